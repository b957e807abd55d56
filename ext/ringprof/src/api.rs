//! The methods of `RingProf` and `RingProf::Native`.

use crate::guard::{entry, protect, Failure};
use crate::gvl::Gvl;
use crate::state::{self, with, with_session};
use crate::values::{boolean, define_method, define_method_any, try_call, NIL, TRUE};
use crate::{allocations, hooks, options, results, stats, thread_events, threads};
use rb_sys::VALUE;
use ringprof_core::config::Threads;
use ringprof_core::session::VmFacts;
use std::sync::atomic::{AtomicBool, Ordering};

/// Defines them.
pub fn define(_: Gvl) -> Result<(), Failure> {
    protect(|| {
        // SAFETY: at load, under the GVL.
        unsafe {
            let module = rb_sys::rb_define_module(c"RingProf".as_ptr());
            define_method_any(module, c"start", start);
            define_method(module, c"stop", stop);
            define_method(module, c"running?", is_running);
            define_method(module, c"sample", sample);
            define_method(module, c"use_postponed_job!", use_postponed_job);
            let native = rb_sys::rb_define_module_under(module, c"Native".as_ptr());
            define_method(native, c"stats", self::stats);
            define_method(native, c"options", self::options);
            define_method(native, c"take", take);
            define_method(native, c"ready?", is_ready);
            define_method(native, c"out", out);
            define_method(native, c"hold", hold);
            define_method(native, c"release", release);
        }
        NIL
    })?;
    Ok(())
}

unsafe extern "C" fn start(argc: i32, argv: *const VALUE, _: VALUE) -> VALUE {
    entry(|gvl| {
        // SAFETY: asks about the frame of this very call.
        let keywords = match (argc, unsafe { rb_sys::rb_keyword_given_p() }) {
            (0, _) => NIL,
            // SAFETY: argc says that there is one.
            (1, given) if given != 0 => unsafe { *argv },
            _ => return Err(Failure::Arity(argc)),
        };
        if with_session(gvl, |session| session.is_running()) {
            return Ok(boolean(false));
        }
        let options = options::read(keywords)?;
        let kept = if keywords == NIL {
            // SAFETY: no preconditions.
            protect(|| unsafe { rb_sys::rb_hash_new() })?
        } else {
            try_call(keywords, c"dup", &[])?
        };
        let starter = threads::current();
        let unsafe_to_walk = hooks::unsafe_to_walk();
        if unsafe_to_walk.is_none() && options.config.mode.is_timed() {
            warn_of_unknown_layout(gvl)?;
        }
        allocations::prepare(gvl, options.config.mode)?;
        // The last call of Ruby: from here on nobody else runs, and the Threads found stay alive.
        let sampled = match options.config.threads {
            _ if !options.config.mode.is_timed() => Vec::new(),
            Threads::All => threads::all(starter)?,
            Threads::Starter => vec![starter],
        };
        let started = with(gvl, |state| {
            // The calls above may have let another thread start a profile.
            if state.session.is_running() {
                return Ok(false);
            }
            let postponed = state.postponed_because.or(unsafe_to_walk).or_else(|| {
                state
                    .layout
                    .is_none()
                    .then_some("the layout of this Ruby's stacks is unknown")
            });
            let facts = VmFacts {
                layout: state.layout,
                direct: postponed.is_none(),
                pseudo_root: state.pseudo_root,
                pauses: thread_events::KNOWN,
            };
            state.session.start(options.config, facts, &sampled)?;
            if options.config.mode.is_timed() {
                // Before anybody else can have the GVL.
                thread_events::watch();
            }
            state.kept.metadata = options.metadata;
            state.kept.interval = options.interval;
            state.kept.out = options.out;
            state.kept.options = kept;
            state.aggregate = options.aggregate;
            state.raise_failure = options.raise_failure;
            state.allocations = 0;
            Ok::<_, Failure>(true)
        })?;
        if !started {
            return Ok(boolean(false));
        }
        if options.config.mode.is_timed() {
            threads::watch();
        }
        if let Err(failure) = allocations::watch(gvl, options.config.mode) {
            with_session(gvl, |session| session.stop());
            thread_events::unwatch();
            return Err(failure);
        }
        Ok(TRUE)
    })
}

/// Says once that this Ruby is one whose stacks nobody has looked at.
fn warn_of_unknown_layout(gvl: Gvl) -> Result<(), Failure> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let unknown = with(gvl, |state| {
        state.layout.is_none() && state.postponed_because.is_none()
    });
    // Relaxed: under the GVL.
    if unknown && !TOLD.swap(true, Ordering::Relaxed) {
        protect(|| {
            // SAFETY: a format without arguments. May raise what `Warning.warn` does.
            unsafe {
                rb_sys::rb_warn(
                    c"RingProf does not know this Ruby's stacks: samples are taken at safepoints"
                        .as_ptr(),
                );
            }
            NIL
        })?;
    }
    Ok(())
}

unsafe extern "C" fn stop(_: VALUE) -> VALUE {
    entry(|gvl| {
        allocations::unwatch(gvl);
        let (stopped, failure, raise) = with(gvl, |state| {
            let stopped = state.session.stop();
            (stopped, state.session.take_failure(), state.raise_failure)
        });
        if stopped || failure.is_some() {
            threads::unwatch();
            thread_events::unwatch();
        }
        match failure {
            Some(failure) if raise => Err(Failure::Failed(format!(
                "the profile has ended before stop: {failure}; what was recorded is kept, see results"
            ))),
            failure => Ok(boolean(stopped || failure.is_some())),
        }
    })
}

unsafe extern "C" fn is_running(_: VALUE) -> VALUE {
    entry(|gvl| Ok(boolean(with_session(gvl, |session| session.is_running()))))
}

unsafe extern "C" fn sample(_: VALUE) -> VALUE {
    entry(|gvl| Ok(boolean(with_session(gvl, |session| session.sample()))))
}

unsafe extern "C" fn use_postponed_job(_: VALUE) -> VALUE {
    entry(|gvl| {
        with(gvl, |state| state.postponed_because = Some("asked for"));
        Ok(NIL)
    })
}

unsafe extern "C" fn stats(_: VALUE) -> VALUE {
    entry(stats::build)
}

unsafe extern "C" fn take(_: VALUE) -> VALUE {
    entry(results::take)
}

unsafe extern "C" fn is_ready(_: VALUE) -> VALUE {
    entry(|gvl| Ok(boolean(with_session(gvl, |session| session.has_profile()))))
}

unsafe extern "C" fn out(_: VALUE) -> VALUE {
    entry(|gvl| Ok(state::with(gvl, |state| state.kept.out)))
}

/// The keywords of the last start, a Hash.
unsafe extern "C" fn options(_: VALUE) -> VALUE {
    entry(|gvl| Ok(state::with(gvl, |state| state.kept.options)))
}

unsafe extern "C" fn hold(_: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| session.hold_ticks());
        Ok(NIL)
    })
}

unsafe extern "C" fn release(_: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| session.release_ticks());
        Ok(NIL)
    })
}
