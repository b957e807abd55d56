//! `RingProf::Testing`: plays the signal by hand. In the test build only.

use crate::guard::{entry, protect, Failure};
use crate::gvl::Gvl;
use crate::state::with_session;
use crate::values::{define_method, define_method1, integer, truthy, NIL};
use rb_sys::VALUE;
use ringprof_core::capture::clock;
use ringprof_core::capture::control::Token;
use ringprof_core::capture::handler::on_signal;
use ringprof_core::capture::scratch::WALK_LIMIT;
use ringprof_core::capture::Shared;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Defines the module.
pub fn define(_: Gvl) -> Result<(), Failure> {
    protect(|| {
        // SAFETY: at load, under the GVL.
        unsafe {
            let module = rb_sys::rb_define_module(c"RingProf".as_ptr());
            let testing = rb_sys::rb_define_module_under(module, c"Testing".as_ptr());
            define_method(testing, c"tick", tick);
            define_method(testing, c"single_step", single_step);
            define_method1(testing, c"empty_handler=", set_empty_handler);
            define_method1(testing, c"skip_preflight=", set_skip_preflight);
            define_method1(testing, c"plant_allocation=", set_plant_allocation);
            define_method(testing, c"drain", drain);
            define_method1(testing, c"walk_ns", walk_ns);
        }
        NIL
    })?;
    Ok(())
}

/// The token under which the calling thread is sampled, as bits; 0 if it is not.
fn own_token(gvl: Gvl) -> u64 {
    // SAFETY: gettid has no preconditions.
    let tid = unsafe { libc::gettid() };
    with_session(gvl, |session| session.shared().find(tid)).map_or(0, Token::to_bits)
}

/// What the kernel would pass for a tick with that token.
fn info(bits: u64) -> libc::siginfo_t {
    // SAFETY: a zeroed siginfo_t is valid; value sits at byte 24 of a queued signal's.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        info.si_signo = libc::SIGPROF;
        info.si_code = libc::SI_QUEUE;
        (&raw mut info).cast::<u64>().add(3).write(bits);
        info
    }
}

/// One tick of the calling thread, played outside of a signal.
unsafe extern "C" fn tick(_: VALUE) -> VALUE {
    entry(|gvl| {
        let mut info = info(own_token(gvl));
        // SAFETY: a valid info.
        unsafe { on_signal(libc::SIGPROF, &raw mut info, std::ptr::null_mut()) };
        Ok(NIL)
    })
}

unsafe extern "C" fn drain(_: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| session.drain_slice());
        Ok(NIL)
    })
}

unsafe extern "C" fn set_empty_handler(_: VALUE, on: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| {
            session.shared().testing.set_empty_handler(truthy(on));
        });
        Ok(on)
    })
}

unsafe extern "C" fn set_skip_preflight(_: VALUE, on: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| {
            session.shared().testing.set_skip_preflight(truthy(on));
        });
        Ok(on)
    })
}

/// The bare walk that a sample's cost is compared with: average time in ns, a Float, of so many calls
/// (1 at least) of `rb_profile_frames` on the calling stack, with the handler's limit and with
/// buffers that were written before, as the handler's.
unsafe extern "C" fn walk_ns(_: VALUE, calls: VALUE) -> VALUE {
    entry(|_| {
        let mut asked = 0;
        protect(|| {
            // SAFETY: any VALUE; raises TypeError or RangeError.
            asked = unsafe { rb_sys::rb_num2ulong(calls) };
            NIL
        })?;
        let calls = asked.max(1);
        let mut frames = vec![1_u64; WALK_LIMIT];
        let mut lines = vec![1; WALK_LIMIT];
        let began = clock::monotonic();
        for _ in 0..calls {
            // SAFETY: under the GVL, outside of any handler; both buffers have WALK_LIMIT entries.
            unsafe {
                rb_sys::rb_profile_frames(
                    0,
                    WALK_LIMIT as c_int,
                    frames.as_mut_ptr(),
                    lines.as_mut_ptr(),
                )
            };
        }
        let spent = clock::monotonic() - began;
        // SAFETY: no preconditions; most Floats are not even objects.
        protect(|| unsafe { rb_sys::rb_float_new(spent as f64 / calls as f64) })
    })
}

unsafe extern "C" fn set_plant_allocation(_: VALUE, on: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| {
            session.shared().testing.set_plant_allocation(truthy(on));
        });
        Ok(on)
    })
}

/// What [`single_step`] steps under: the shared state, the token, and the number of steps.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
static TOKEN: AtomicU64 = AtomicU64::new(0);
static STEPS: AtomicU64 = AtomicU64::new(0);

/// The trap after each instruction: the real handler, with a tick for the thread that steps.
unsafe extern "C" fn on_trap(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // Relaxed, all: one thread steps at a time.
    STEPS.fetch_add(1, Ordering::Relaxed);
    let bits = TOKEN.load(Ordering::Relaxed);
    // SAFETY: (I8) null or leaked.
    let shared = unsafe { SHARED.load(Ordering::Relaxed).as_ref() };
    if let (Some(shared), Some(token)) = (shared, Token::from_bits(bits)) {
        shared.end_rest(token);
    }
    let mut info = info(bits);
    // SAFETY: a valid info.
    unsafe { on_signal(libc::SIGPROF, &raw mut info, context) };
}

/// Yields with the processor's trap flag set, so that the handler runs after every single
/// instruction of this thread; returns the number of instructions.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn single_step(_: VALUE) -> VALUE {
    entry(|gvl| {
        let shared = with_session(gvl, |session| session.shared());
        // Relaxed, all: see `on_trap`.
        SHARED.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Relaxed);
        TOKEN.store(own_token(gvl), Ordering::Relaxed);
        STEPS.store(0, Ordering::Relaxed);
        // SAFETY: a zeroed sigaction is valid; the handler lives as long as the process.
        let before = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_trap as unsafe extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(libc::SIGTRAP, &raw const action, &raw mut before);
            before
        };
        let outcome = protect(|| {
            set_trap_flag(true);
            // SAFETY: called with a block, or raises LocalJumpError.
            let value = unsafe { rb_sys::rb_yield(NIL) };
            set_trap_flag(false);
            value
        });
        set_trap_flag(false);
        // SAFETY: the action that was there.
        unsafe { libc::sigaction(libc::SIGTRAP, &raw const before, std::ptr::null_mut()) };
        outcome?;
        protect(|| integer(STEPS.load(Ordering::Relaxed)))
    })
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn set_trap_flag(on: bool) {
    // SAFETY: changes the trap flag alone; it uses the stack, which the compiler is told by default.
    unsafe {
        if on {
            std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        } else {
            std::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq");
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn single_step(_: VALUE) -> VALUE {
    entry(|_| {
        Err(Failure::Failed(
            "single stepping needs the trap flag of x86-64".into(),
        ))
    })
}
