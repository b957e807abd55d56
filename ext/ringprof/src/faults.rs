//! `RingProf::Testing`: makes the system refuse. In the test build only.
//!
//! | method | what is refused |
//! | --- | --- |
//! | `fail_allocation=` n | the nth allocation of ours from now on, on the calling thread; 0: none |
//! | `fail_allocations_from=` n | that one and all after it |
//! | `small_allocation=` bytes | the size below which allocations neither count nor fail |
//! | `allocations` | how many have been counted since one of the first two |
//! | `deny` name | a system call, from now on and for ever, in the whole process: EPERM |
//! | `hold_drains=` | drain jobs, while true |
//! | `plant_panic=` | the next drain panics |

use crate::guard::{entry, protect, Failure};
use crate::gvl::Gvl;
use crate::state::with_session;
use crate::values::{define_method, define_method1, integer, truthy, NIL};
use rb_sys::VALUE;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_long;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Defines the methods.
pub fn define(_: Gvl) -> Result<(), Failure> {
    protect(|| {
        // SAFETY: at load, under the GVL.
        unsafe {
            let module = rb_sys::rb_define_module(c"RingProf".as_ptr());
            let testing = rb_sys::rb_define_module_under(module, c"Testing".as_ptr());
            define_method1(testing, c"fail_allocation=", fail_allocation);
            define_method1(testing, c"fail_allocations_from=", fail_allocations_from);
            define_method1(testing, c"small_allocation=", small_allocation);
            define_method(testing, c"allocations", allocations);
            define_method1(testing, c"deny", deny);
            define_method1(testing, c"hold_drains=", hold_drains);
            define_method1(testing, c"plant_panic=", plant_panic);
        }
        NIL
    })?;
    Ok(())
}

/// The system's allocator, which refuses on demand.
struct Refusing;

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

// Relaxed, all of them, everywhere: set and read by one thread, the one that is watched.
/// Kernel's id of the thread that is watched; 0 while none is.
static WATCHED: AtomicI32 = AtomicI32::new(0);
static SMALL: AtomicUsize = AtomicUsize::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);
/// The first that fails; 0: none does.
static FIRST: AtomicU64 = AtomicU64::new(0);
static ALL_AFTER: AtomicBool = AtomicBool::new(false);

fn is_refused(size: usize) -> bool {
    let watched = WATCHED.load(Ordering::Relaxed);
    // SAFETY: gettid has no preconditions.
    if watched == 0 || size < SMALL.load(Ordering::Relaxed) || watched != unsafe { libc::gettid() }
    {
        return false;
    }
    let number = SEEN.fetch_add(1, Ordering::Relaxed) + 1;
    let first = FIRST.load(Ordering::Relaxed);
    first != 0 && (number == first || number > first && ALL_AFTER.load(Ordering::Relaxed))
}

// SAFETY: every call goes on to the system's allocator unchanged, or answers null as it may itself.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_refused(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

fn number(value: VALUE) -> Result<u64, Failure> {
    let mut number = 0;
    protect(|| {
        // SAFETY: any VALUE; raises TypeError or RangeError.
        number = unsafe { rb_sys::rb_num2ulong(value) };
        NIL
    })?;
    Ok(number)
}

fn refuse(first: VALUE, all_after: bool) -> VALUE {
    entry(|_| {
        let number = number(first)?;
        SEEN.store(0, Ordering::Relaxed);
        FIRST.store(number, Ordering::Relaxed);
        ALL_AFTER.store(all_after, Ordering::Relaxed);
        // SAFETY: gettid has no preconditions.
        WATCHED.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        Ok(first)
    })
}

unsafe extern "C" fn fail_allocation(_: VALUE, first: VALUE) -> VALUE {
    refuse(first, false)
}

unsafe extern "C" fn fail_allocations_from(_: VALUE, first: VALUE) -> VALUE {
    refuse(first, true)
}

unsafe extern "C" fn small_allocation(_: VALUE, bytes: VALUE) -> VALUE {
    entry(|_| {
        let bytes_below = usize::try_from(number(bytes)?).unwrap_or(usize::MAX);
        SMALL.store(bytes_below, Ordering::Relaxed);
        Ok(bytes)
    })
}

unsafe extern "C" fn allocations(_: VALUE) -> VALUE {
    entry(|_| protect(|| integer(SEEN.load(Ordering::Relaxed))))
}

unsafe extern "C" fn hold_drains(_: VALUE, on: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| {
            session.shared().testing.set_hold_drains(truthy(on));
        });
        Ok(on)
    })
}

unsafe extern "C" fn plant_panic(_: VALUE, on: VALUE) -> VALUE {
    entry(|gvl| {
        with_session(gvl, |session| {
            session.shared().testing.set_plant_panic(truthy(on));
        });
        Ok(on)
    })
}

/// System calls that can be denied.
const CALLS: [(&str, c_long); 8] = [
    ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
    ("timer_create", libc::SYS_timer_create),
    ("timer_settime", libc::SYS_timer_settime),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("clone", libc::SYS_clone),
    ("clone3", libc::SYS_clone3),
    // Of CPU clocks alone.
    ("clock_gettime", libc::SYS_clock_gettime),
];

unsafe extern "C" fn deny(_: VALUE, name: VALUE) -> VALUE {
    entry(|_| {
        let mut asked = name;
        protect(|| {
            // SAFETY: raises TypeError unless it is a String.
            unsafe { rb_sys::rb_string_value(&raw mut asked) }
        })?;
        // SAFETY: a String, whose bytes stay while nothing of Ruby is called.
        let bytes = unsafe {
            let length = rb_sys::macros::RSTRING_LEN(asked) as usize;
            std::slice::from_raw_parts(rb_sys::macros::RSTRING_PTR(asked).cast::<u8>(), length)
        };
        let Some(&(_, call)) = CALLS.iter().find(|(name, _)| name.as_bytes() == bytes) else {
            return Err(Failure::Failed("no such system call in the list".into()));
        };
        filter(call)?;
        Ok(NIL)
    })
}

/// Makes the kernel answer EPERM to `call`, in every thread of the process.
fn filter(call: c_long) -> std::io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const SAME: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const SHARES_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // Where `struct seccomp_data` has the number of the call and the low half of its first argument.
    const NUMBER: u32 = 0;
    const ARGUMENT: u32 = 16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let allow = step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    let refuse = step(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0);
    let mut all = [
        step(LOAD, NUMBER, 0, 0),
        step(SAME, call as u32, 0, 1),
        refuse,
        allow,
    ];
    let mut cpu_clocks = [
        step(LOAD, NUMBER, 0, 0),
        step(SAME, call as u32, 0, 3),
        step(LOAD, ARGUMENT, 0, 0),
        step(SAME, libc::CLOCK_THREAD_CPUTIME_ID as u32, 2, 0),
        // Clocks of other threads and processes have negative ids.
        step(SHARES_BIT, 1 << 31, 1, 0),
        allow,
        refuse,
    ];
    let steps: &mut [libc::sock_filter] = if call == libc::SYS_clock_gettime {
        &mut cpu_clocks
    } else {
        &mut all
    };
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: a whole program, which the kernel copies; it refuses what no caller relies on for memory.
    let status = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1_u64, 0_u64, 0_u64, 0_u64);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    match status {
        0 => Ok(()),
        -1 => Err(std::io::Error::last_os_error()),
        thread => Err(std::io::Error::other(format!(
            "thread {thread} has another filter"
        ))),
    }
}
