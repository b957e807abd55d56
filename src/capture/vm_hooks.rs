//! The whole of Ruby that capture can see: a table of C function pointers.

use std::ffi::c_int;

/// What the VM does for capture. The extension fills it with the VM's own functions, tests with fakes.
///
/// Every function is called inside the signal handler unless it says otherwise, so it must be
/// async-signal-safe.
#[derive(Clone, Copy, Debug)]
pub struct VmHooks {
    /// `rb_profile_frames`: writes up to `limit` frames, leaf first, and returns their number.
    pub profile_frames: unsafe extern "C" fn(
        start: c_int,
        limit: c_int,
        frames: *mut u64,
        lines: *mut c_int,
    ) -> c_int,
    /// `rb_profile_thread_frames` (3.3+): the same for another thread. Called under the GVL, never in the
    /// handler.
    pub profile_thread_frames: Option<
        unsafe extern "C" fn(
            thread: u64,
            start: c_int,
            limit: c_int,
            frames: *mut u64,
            lines: *mut c_int,
        ) -> c_int,
    >,
    /// `rb_during_gc`: non-zero while any thread is inside a GC step.
    pub during_gc: unsafe extern "C" fn() -> c_int,
    /// Phase of GC: 0 none, 1 marking, 2 sweeping.
    pub gc_phase: unsafe extern "C" fn() -> c_int,
    /// `rb_gc_count`: number of collections begun.
    pub gc_count: unsafe extern "C" fn() -> u64,
    /// What the current collection was started by, as the number of a
    /// [`GcCause`](crate::sample::GcCause). Called while marking, never in the handler.
    pub gc_cause: unsafe extern "C" fn() -> u64,
    /// `ruby_native_thread_p`: zero on threads that Ruby does not know.
    pub is_ruby_thread: unsafe extern "C" fn() -> c_int,
    /// `ruby_thread_has_gvl_p`: zero inside a region that gave the GVL up (true does not prove the GVL).
    pub may_hold_gvl: unsafe extern "C" fn() -> c_int,
    /// Asks for a drain at the next safepoint. See [`VmHooks::request_from_anywhere`].
    pub request_drain: unsafe extern "C" fn(),
    /// Asks for a sample at the next safepoint (postponed capture). See [`VmHooks::request_from_anywhere`].
    pub request_sample: unsafe extern "C" fn(),
    /// Whether the two requests may be made from any thread (Ruby 3.3+). Before, only the thread that
    /// holds the GVL may: `rb_postponed_job_register_one` claims a place before it fills it. Nor may that
    /// one while it runs such jobs: the VM gives a job's place back before it reads what the job is,
    /// and a request that comes in between is run twice, and the job that was there not at all.
    pub request_from_anywhere: bool,
}
