//! The VM as the core sees it. Every fork by Ruby version is in this file.

use crate::guard::quiet;
use crate::state;
use crate::values::{self, symbol, NIL};
use rb_sys::VALUE;
use ringprof_core::capture::preflight::{self, Layout};
use ringprof_core::capture::vm_hooks::VmHooks;
use ringprof_core::sample::GcCause;
use static_assertions::assert_eq_size;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

// A frame of the core is a VALUE.
assert_eq_size!(u64, VALUE);

extern "C" {
    /// Exported by every Ruby from 3.1 to 4.0; in a public header from 4.0 only.
    fn ruby_thread_has_gvl_p() -> c_int;
}

/// The hooks of this VM.
pub fn table() -> VmHooks {
    // SAFETY: sets up symbols and jobs; called once, under the GVL.
    unsafe { prepare() };
    VmHooks {
        profile_frames,
        profile_thread_frames: thread_frames(),
        gc_count,
        gc_cause,
        during_gc: rb_sys::rb_during_gc,
        gc_phase,
        is_ruby_thread: rb_sys::ruby_native_thread_p,
        may_hold_gvl: ruby_thread_has_gvl_p,
        request_drain,
        request_sample,
        request_from_anywhere: cfg!(ruby_gte_3_3),
    }
}

/// Where this Ruby keeps what the pre-flight reads, if that is known.
pub fn layout() -> Option<Layout> {
    let (major, minor) = version();
    Layout::of_version(major, minor)
}

/// Major and minor version of the Ruby that this library was built for.
pub const fn version() -> (u32, u32) {
    (
        decimal(env!("RINGPROF_RUBY_MAJOR")),
        decimal(env!("RINGPROF_RUBY_MINOR")),
    )
}

const fn decimal(digits: &str) -> u32 {
    let mut rest = digits.as_bytes();
    let mut number = 0;
    while let [digit, others @ ..] = rest {
        number = number * 10 + (*digit - b'0') as u32;
        rest = others;
    }
    number
}

unsafe extern "C" fn profile_frames(
    start: c_int,
    limit: c_int,
    frames: *mut u64,
    lines: *mut c_int,
) -> c_int {
    // SAFETY: the core's promise.
    unsafe { rb_sys::rb_profile_frames(start, limit, frames, lines) }
}

#[cfg(ruby_gte_3_3)]
const fn thread_frames(
) -> Option<unsafe extern "C" fn(u64, c_int, c_int, *mut u64, *mut c_int) -> c_int> {
    extern "C" {
        fn rb_profile_thread_frames(
            thread: VALUE,
            start: c_int,
            limit: c_int,
            frames: *mut VALUE,
            lines: *mut c_int,
        ) -> c_int;
    }
    Some(rb_profile_thread_frames)
}

#[cfg(not(ruby_gte_3_3))]
const fn thread_frames(
) -> Option<unsafe extern "C" fn(u64, c_int, c_int, *mut u64, *mut c_int) -> c_int> {
    None
}

unsafe extern "C" fn gc_count() -> u64 {
    // SAFETY: reads one number of the VM, which is up.
    unsafe { rb_sys::rb_gc_count() as u64 }
}

/// The Symbols of what starts a collection, by number of the core's `GcCause`; 0 where the VM does not
/// tell.
static CAUSES: [AtomicU64; GcCause::ALL.len()] = [const { AtomicU64::new(0) }; GcCause::ALL.len()];
static GC_BY: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn gc_cause() -> u64 {
    // Relaxed, all: set at load.
    let key = GC_BY.load(Ordering::Relaxed);
    if key == 0 {
        return 0;
    }
    // SAFETY: a Symbol key returns without allocation, and it was tried at load.
    let by = unsafe { rb_sys::rb_gc_latest_gc_info(key) };
    let is = |cause: &GcCause| CAUSES[*cause as usize].load(Ordering::Relaxed) == by;
    GcCause::ALL
        .iter()
        .skip(1)
        .find(|cause| is(cause))
        .map_or(0, |&cause| cause as u64)
}

/// The Symbols that `rb_gc_latest_gc_info` takes and gives; immortal.
static STATE: AtomicU64 = AtomicU64::new(0);
static MARKING: AtomicU64 = AtomicU64::new(0);
static SWEEPING: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn gc_phase() -> c_int {
    // Relaxed, all: set at load, before any handler exists.
    let state = STATE.load(Ordering::Relaxed);
    if state == 0 {
        return 0;
    }
    // SAFETY: a Symbol key returns without allocation, and it was tried at load.
    let phase = unsafe { rb_sys::rb_gc_latest_gc_info(state) };
    if phase == MARKING.load(Ordering::Relaxed) {
        1
    } else if phase == SWEEPING.load(Ordering::Relaxed) {
        2
    } else {
        0
    }
}

unsafe fn prepare() {
    // Relaxed, all: see `gc_phase`.
    MARKING.store(symbol(c"marking"), Ordering::Relaxed);
    SWEEPING.store(symbol(c"sweeping"), Ordering::Relaxed);
    for (cause, name) in [
        (GcCause::NewObject, c"newobj"),
        (GcCause::Malloc, c"malloc"),
        (GcCause::Method, c"method"),
        (GcCause::CApi, c"capi"),
        (GcCause::Stress, c"stress"),
    ] {
        CAUSES[cause as usize].store(symbol(name), Ordering::Relaxed);
    }
    for (key, place) in [(c"state", &STATE), (c"gc_by", &GC_BY)] {
        let key = symbol(key);
        // A GC of another make may not know the key and raise: then its answer stays unknown.
        let known = crate::guard::protect(|| {
            // SAFETY: a Symbol key.
            unsafe { rb_sys::rb_gc_latest_gc_info(key) }
        });
        if known.is_ok() {
            place.store(key, Ordering::Relaxed);
        } else {
            // SAFETY: forgets the error that rb_protect left.
            unsafe { rb_sys::rb_set_errinfo(NIL) };
        }
    }
    jobs::prepare();
}

/// The drain, as the VM runs it at a safepoint.
unsafe extern "C" fn drain_job(_: *mut c_void) {
    quiet(|| {
        if let Some(gvl) = state::on_main_ractor() {
            state::with_session(gvl, |session| session.drain_slice());
        }
    });
}

/// The sample of a tick that waited for a safepoint.
unsafe extern "C" fn sample_job(_: *mut c_void) {
    quiet(|| {
        if let Some(gvl) = state::on_main_ractor() {
            // SAFETY: a Ruby thread under the GVL.
            let thread = unsafe { rb_sys::rb_thread_current() };
            state::with_session(gvl, |session| session.safepoint(thread));
        }
    });
}

#[cfg(ruby_gte_3_3)]
mod jobs {
    use super::{drain_job, sample_job};
    use std::sync::atomic::{AtomicU32, Ordering};

    static DRAIN: AtomicU32 = AtomicU32::new(0);
    static SAMPLE: AtomicU32 = AtomicU32::new(0);

    pub fn prepare() {
        // Relaxed, all: set at load, before any handler exists.
        // SAFETY: functions that live as long as the process; under the GVL.
        unsafe {
            DRAIN.store(
                rb_sys::rb_postponed_job_preregister(0, Some(drain_job), std::ptr::null_mut()),
                Ordering::Relaxed,
            );
            SAMPLE.store(
                rb_sys::rb_postponed_job_preregister(0, Some(sample_job), std::ptr::null_mut()),
                Ordering::Relaxed,
            );
        }
    }

    pub unsafe fn request_drain() {
        // SAFETY: a handle of ours; async-signal-safe from any thread while the VM lives.
        unsafe { rb_sys::rb_postponed_job_trigger(DRAIN.load(Ordering::Relaxed)) }
    }

    pub unsafe fn request_sample() {
        // SAFETY: as above.
        unsafe { rb_sys::rb_postponed_job_trigger(SAMPLE.load(Ordering::Relaxed)) }
    }
}

#[cfg(not(ruby_gte_3_3))]
mod jobs {
    use super::{drain_job, sample_job};

    pub fn prepare() {}

    pub unsafe fn request_drain() {
        // SAFETY: the core calls this only on the thread that holds the GVL.
        unsafe { rb_sys::rb_postponed_job_register_one(0, Some(drain_job), std::ptr::null_mut()) };
    }

    pub unsafe fn request_sample() {
        // SAFETY: as above.
        unsafe { rb_sys::rb_postponed_job_register_one(0, Some(sample_job), std::ptr::null_mut()) };
    }
}

unsafe extern "C" fn request_drain() {
    // SAFETY: the core's promise (VmHooks::request_from_anywhere).
    unsafe { jobs::request_drain() }
}

unsafe extern "C" fn request_sample() {
    // SAFETY: as above.
    unsafe { jobs::request_sample() }
}

/// Why this VM's stacks cannot be walked in the handler; `None` if they can.
///
/// 3.1's YJIT publishes a frame before its fields; 3.2's leaves the pc unset; 3.2.0 has the open
/// window of Bug 19336. 3.3 and later publish whole frames.
pub fn unsafe_to_walk() -> Option<&'static str> {
    if cfg!(ruby_gte_3_3) {
        return None;
    }
    if jit_enabled() {
        return Some("YJIT of Ruby before 3.3 publishes frames before they are whole");
    }
    if version() == (3, 2) && is_3_2_0() {
        return Some("Ruby 3.2.0 starts threads with a half-made stack");
    }
    None
}

fn jit_enabled() -> bool {
    crate::guard::protect(|| {
        // SAFETY: constants of RubyVM, looked up by name.
        unsafe {
            let vm = rb_sys::rb_path2class(c"RubyVM".as_ptr());
            let name = values::id(c"YJIT");
            if rb_sys::rb_const_defined(vm, name) == 0 {
                return values::FALSE;
            }
            values::call(rb_sys::rb_const_get(vm, name), c"enabled?", &[])
        }
    })
    .is_ok_and(values::truthy)
}

fn is_3_2_0() -> bool {
    running_version() == "3.2.0"
}

/// The version of the Ruby that runs, as it says it itself: `3.1.2`.
pub fn running_version() -> &'static str {
    // SAFETY: a NUL-terminated string in the VM's constant data.
    let version = unsafe { std::ffi::CStr::from_ptr(rb_sys::ruby_version.as_ptr()) };
    version.to_str().unwrap_or("")
}

/// Whether this library was built for the Ruby that runs. Another one's structures differ, and it
/// would crash.
pub fn is_built_for_this_ruby() -> bool {
    let mut numbers = running_version().split('.').map(str::parse);
    let (major, minor) = version();
    numbers.next() == Some(Ok(major)) && numbers.next() == Some(Ok(minor))
}

/// Address of the `rb_thread_t` behind a Thread.
///
/// # Safety
/// `thread` is a Thread.
pub unsafe fn vm_thread(thread: VALUE) -> usize {
    // SAFETY: a Thread is an RTypedData whose data is its rb_thread_t, allocated once (3.1 to 4.0).
    unsafe { rb_sys::macros::RTYPEDDATA_GET_DATA(thread) as usize }
}

/// Ruby 3.1's outermost pseudo frame `<main>`, which later versions hide: the iseq of the dummy frame
/// at the root of the main thread's stack. 0 where the VM does not show it.
pub fn pseudo_root(layout: Option<Layout>) -> VALUE {
    let (Some(layout), (3, 1)) = (layout, version()) else {
        return 0;
    };
    let Ok(main) = values::try_call(main_thread_class(), c"main", &[]) else {
        return 0;
    };
    // SAFETY: (I6) the main thread is this one, or waits for the GVL that we hold: its stack is still.
    let seen = unsafe { preflight::check(layout, vm_thread(main)) };
    seen.map_or(0, |seen| seen.last_iseq as VALUE)
}

fn main_thread_class() -> VALUE {
    // SAFETY: the class is there since boot.
    unsafe { rb_sys::rb_cThread }
}
