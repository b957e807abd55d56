//! Around a fork: no ticks while the kernel copies the process, which a signal makes it begin anew;
//! and a child that knows nothing of the parent's profile. Around an exec: no tick that is still
//! pending when the new program begins, which has no handler and would die of it (I12).
//!
//! The hooks run inside libc's fork, before Ruby has mended itself, so they touch our own atomics
//! and timers only. What the child holds of Ruby's is dropped at its first call into the profiler.

use super::tick::{timer, TickPlan};
use super::Shared;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
/// The pace of the timers, in ns; 0 while the source is not a timer.
static TIMER_NS: AtomicU64 = AtomicU64::new(0);
/// Set in a child until the profiler has cleaned up.
static IN_CHILD: AtomicBool = AtomicBool::new(false);

/// Registers the hooks with libc, once for the process.
pub fn watch(shared: &'static Shared) {
    let shared = std::ptr::from_ref(shared).cast_mut();
    // AcqRel: publishes `shared` to the hooks; pairs with the Acquire in `shared`.
    if SHARED.swap(shared, Ordering::AcqRel).is_null() {
        // SAFETY: three functions that live as long as the process; the library is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
}

/// Tells the hooks whether kernel timers are ticking, and how fast.
pub fn timers_tick(plan: Option<TickPlan>) {
    // Relaxed: start, stop and fork happen under the GVL.
    TIMER_NS.store(plan.map_or(0, |plan| plan.every_ns), Ordering::Relaxed);
}

/// Whether this process is a fresh child whose profiler is still the parent's. True once.
#[must_use]
pub fn take_in_child() -> bool {
    // Relaxed: the child has one thread when this is first asked.
    IN_CHILD.swap(false, Ordering::Relaxed)
}

fn shared() -> Option<&'static Shared> {
    // Acquire: pairs with `watch`.
    // SAFETY: (I8) null or leaked.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// Holds ticks back, or lets them go on.
pub fn hold(hold: bool) {
    let Some(shared) = shared() else { return };
    if hold {
        shared.hold();
    } else {
        shared.let_go();
    }
    let every_ns = TIMER_NS.load(Ordering::Relaxed);
    if every_ns != 0 {
        timer::hold_all(shared, every_ns, hold);
    }
}

extern "C" fn prepare() {
    hold(true);
}

extern "C" fn parent() {
    hold(false);
}

extern "C" fn child() {
    // Relaxed: the child has one thread.
    IN_CHILD.store(true, Ordering::Relaxed);
    TIMER_NS.store(0, Ordering::Relaxed);
    if let Some(shared) = shared() {
        shared.reset_in_child();
    }
}
