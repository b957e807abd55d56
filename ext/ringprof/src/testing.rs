//! `RingProf::Testing`: plays the signal by hand. In the test build only.

use crate::guard::{entry, protect, Failure};
use crate::gvl::Gvl;
use crate::hooks;
use crate::state::{self, with_session};
use crate::values::{boolean, define_method, define_method1, integer, truthy, NIL, TRUE};
use rb_sys::VALUE;
use ringprof_core::capture::clock;
use ringprof_core::capture::control::Token;
use ringprof_core::capture::handler::on_signal;
use ringprof_core::capture::preflight::Layout;
use ringprof_core::capture::scratch::WALK_LIMIT;
use ringprof_core::capture::Shared;
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

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
            define_method1(testing, c"check_walks=", set_check_walks);
            define_method(testing, c"walks", walks);
            define_method1(testing, c"plant_allocation=", set_plant_allocation);
            define_method(testing, c"drain", drain);
            define_method1(testing, c"walk_ns", walk_ns);
            define_method1(testing, c"fail_inside", fail_inside);
            define_method(testing, c"dropped", dropped);
            define_method(testing, c"read_past_the_end", read_past_the_end);
            define_method(testing, c"layout", layout);
            define_method(testing, c"watched_module", watched_module);
            define_method1(testing, c"try_layout", try_layout);
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

unsafe extern "C" fn set_check_walks(_: VALUE, on: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| {
            session.shared().testing.set_check_walks(truthy(on));
        });
        Ok(on)
    })
}

/// Walks in handlers since the last call, an Array of Integers: whole, cut short, and cut short wrongly (known only while
/// they are checked).
unsafe extern "C" fn walks(_: VALUE) -> VALUE {
    entry(|gvl| {
        let walks = with_session(gvl, |session| session.shared().testing.take_walks());
        protect(|| {
            // SAFETY: no preconditions.
            let array = unsafe { rb_sys::rb_ary_new() };
            for figure in walks {
                // SAFETY: an Array of ours and an Integer.
                unsafe { rb_sys::rb_ary_push(array, rb_sys::rb_ull2inum(figure)) };
            }
            array
        })
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

/// Number of the library whose thread-local storage the handler looks for, as the loader counts them; 0
/// for none.
unsafe extern "C" fn watched_module(_: VALUE) -> VALUE {
    entry(|gvl| {
        let module = state::with(gvl, |state| state.session.shared().storage.watched());
        Ok(integer(module as u64))
    })
}

/// The layout of this Ruby as an Array: `thread_ec`, `frame_size`, `frame_ep`, `local_flag`; nil if it
/// is not known.
unsafe extern "C" fn layout(_: VALUE) -> VALUE {
    entry(|_| {
        let Some(layout) = hooks::layout() else {
            return Ok(NIL);
        };
        let numbers = [
            layout.thread_ec,
            layout.frame_size,
            layout.frame_ep,
            layout.local_flag,
        ];
        protect(|| {
            let values = numbers.map(|number| integer(number as u64));
            // SAFETY: four VALUEs on this stack.
            unsafe { rb_sys::rb_ary_new_from_values(4, values.as_ptr()) }
        })
    })
}

/// Puts a layout (an Array as of [`layout`], or nil) through the self-test, as if this library had been
/// loaded with it; true if it is believed.
unsafe extern "C" fn try_layout(_: VALUE, numbers: VALUE) -> VALUE {
    entry(|gvl| {
        let mut read = [0; 4];
        if numbers != NIL {
            protect(|| {
                for (index, number) in read.iter_mut().enumerate() {
                    // SAFETY: elements of an Array; raises TypeError for any other.
                    *number = unsafe {
                        let element = rb_sys::rb_ary_entry(numbers, index as c_long);
                        rb_sys::rb_num2ulong(element) as usize
                    };
                }
                NIL
            })?;
        }
        let [thread_ec, frame_size, frame_ep, local_flag] = read;
        let layout = (numbers != NIL).then_some(Layout {
            thread_ec,
            frame_size,
            frame_ep,
            local_flag,
        });
        let tested = with_session(gvl, |session| state::tested(gvl, session, layout));
        let pseudo_root = hooks::pseudo_root(tested);
        state::with(gvl, |state| {
            state.layout = tested;
            state.pseudo_root = pseudo_root;
        });
        Ok(boolean(tested.is_some()))
    })
}

/// Does what memcheck must find: reads the word after the end of an allocation.
unsafe extern "C" fn read_past_the_end(_: VALUE) -> VALUE {
    entry(|_| {
        let words = std::hint::black_box(vec![0_u64; 8]);
        // SAFETY: there is none; that is the point. The allocator's own bookkeeping lies there.
        let beyond = unsafe { words.as_ptr().add(words.len()).read_volatile() };
        Ok(boolean(beyond != 0))
    })
}

/// Values of [`Owned`] that were dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Something that a frame owns, and that must be dropped whatever happens to the frame.
struct Owned;

impl Drop for Owned {
    fn drop(&mut self) {
        // Relaxed: a lone number.
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Fails in one of the ways that an entry point can: by a panic (`nil`), by a panic inside of what
/// Ruby calls (`true`), or by raising the exception that it is given. Whatever the way, one
/// [`Owned`] is dropped.
unsafe extern "C" fn fail_inside(_: VALUE, how: VALUE) -> VALUE {
    entry(|_| {
        let _owned = Owned;
        if how == NIL {
            panic!("planted");
        }
        protect(|| {
            assert!(how != TRUE, "planted in protect");
            // SAFETY: (I11) nothing is owned in this frame.
            unsafe { rb_sys::rb_exc_raise(how) }
        })
    })
}

/// How many values were dropped so far.
unsafe extern "C" fn dropped(_: VALUE) -> VALUE {
    entry(|_| protect(|| integer(DROPPED.load(Ordering::Relaxed))))
}

unsafe extern "C" fn set_plant_allocation(_: VALUE, on: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| {
            session.shared().testing.set_plant_allocation(truthy(on));
        });
        Ok(on)
    })
}

/// What [`single_step`] steps under: the shared state, whether it is at it, and the number of steps.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
static STEPPING: AtomicBool = AtomicBool::new(false);
static STEPS: AtomicU64 = AtomicU64::new(0);

/// The trap after each instruction: the real handler, with a tick for the thread that steps. A thread
/// that is not sampled gets one that is not ours.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn on_trap(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    const TRAP_FLAG: libc::greg_t = 0x100;
    // Relaxed, all: what is read was written before the trap flag was set.
    if !STEPPING.load(Ordering::Relaxed) {
        // A thread that outlives the stepping goes on without.
        // SAFETY: what the kernel passed to this handler.
        unsafe {
            (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] &=
                !TRAP_FLAG;
        }
        return;
    }
    STEPS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: (I8) null or leaked.
    let shared = unsafe { SHARED.load(Ordering::Relaxed).as_ref() };
    // SAFETY: gettid has no preconditions.
    let token = shared.and_then(|shared| shared.find(unsafe { libc::gettid() }));
    if let (Some(shared), Some(token)) = (shared, token) {
        shared.end_rest(token);
    }
    let mut info = info(token.map_or(0, Token::to_bits));
    // SAFETY: a valid info.
    unsafe { on_signal(libc::SIGPROF, &raw mut info, context) };
}

/// Yields with the processor's trap flag set, so that the handler runs after every single
/// instruction of this thread, and of those that it starts where something sets their flag too; returns
/// the number of instructions.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn single_step(_: VALUE) -> VALUE {
    entry(|gvl| {
        let shared = with_session(gvl, |session| session.shared());
        // Relaxed, all: see `on_trap`.
        SHARED.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Relaxed);
        STEPS.store(0, Ordering::Relaxed);
        STEPPING.store(true, Ordering::Relaxed);
        // SAFETY: a zeroed sigaction is valid; the handler lives as long as the process, and stays, for
        // a thread that was started here may come back to it late.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_trap as unsafe extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut());
        }
        let outcome = protect(|| {
            set_trap_flag(true);
            // SAFETY: called with a block, or raises LocalJumpError.
            let value = unsafe { rb_sys::rb_yield(NIL) };
            set_trap_flag(false);
            value
        });
        set_trap_flag(false);
        STEPPING.store(false, Ordering::Relaxed);
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
