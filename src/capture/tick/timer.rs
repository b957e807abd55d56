//! A kernel timer for each sampled thread: `timer_create(CLOCK_MONOTONIC, SIGEV_THREAD_ID)`.
//!
//! For machines with one core, where a tick thread would take its time from the sampled one. Never
//! `setitimer`: it is process-directed, survives `exec` and tells no overruns. Never a CPU clock:
//! its timers tick at the kernel's HZ.

use super::super::clock::timespec;
use super::super::control::{ControlBlock, Token};
use super::super::Shared;
use super::TickPlan;
use std::io;
use std::sync::atomic::Ordering;

/// Ticks without CPU time after which a thread's timer slows down.
const IDLE_TICKS: u32 = 4;
/// Slowest pace of an idle thread's timer (CPU mode), in ns.
const IDLE_PACE_NS: u64 = 5_000_000;

/// Creates and starts the timer of a thread.
///
/// # Errors
/// The kernel's (`EAGAIN` when the process has too many queued signals or timers).
pub fn arm(block: &ControlBlock, token: Token, plan: TickPlan) -> io::Result<()> {
    // SAFETY: a zeroed sigevent is valid; the fields that count are set below.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = plan.signal;
    event.sigev_value.sival_ptr = token.to_bits() as *mut libc::c_void;
    event.sigev_notify_thread_id = block.tid();
    let mut timer: libc::timer_t = std::ptr::null_mut();
    // SAFETY: both arguments live through the call.
    let status =
        unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // An id may be 0, which means "none" here, so it's kept one higher.
    // Relaxed: set and cleared under the GVL; the handler sees it at some tick.
    block.timer.store(timer as usize + 1, Ordering::Relaxed);
    if !set_pace(block, plan.every_ns) {
        let error = io::Error::last_os_error();
        disarm(block);
        return Err(error);
    }
    Ok(())
}

/// Deletes the timer of a thread, if it has one.
pub fn disarm(block: &ControlBlock) {
    // Relaxed: as in `arm`.
    let timer = block.timer.swap(0, Ordering::Relaxed);
    if timer != 0 {
        // SAFETY: an id that timer_create gave, deleted once.
        unsafe { libc::timer_delete((timer - 1) as libc::timer_t) };
    }
}

/// Sets the time between two ticks of a thread in ns; 0 stops them. Async-signal-safe. False if the
/// kernel refuses.
pub fn set_pace(block: &ControlBlock, ns: u64) -> bool {
    // Relaxed: as in `arm`.
    let timer = block.timer.load(Ordering::Relaxed);
    if timer == 0 {
        return true;
    }
    let spec = libc::itimerspec {
        it_interval: timespec(ns),
        it_value: timespec(ns),
    };
    // SAFETY: an id that timer_create gave; should it have been deleted meanwhile, the call fails.
    unsafe {
        libc::timer_settime(
            (timer - 1) as libc::timer_t,
            0,
            &raw const spec,
            std::ptr::null_mut(),
        ) == 0
    }
}

/// CPU mode: slows the timer of a thread that uses no CPU, so that a sleeper is not woken at every
/// interval, and sets the full pace again when it runs. Called in the handler.
#[inline]
pub fn pace(block: &ControlBlock, interval_ns: u64, weight: u64) {
    // Relaxed, all: only this thread's handlers touch it.
    let idle = block.idle.load(Ordering::Relaxed);
    let every_ns = interval_ns.max(crate::config::MIN_TICK_NS);
    if weight > 0 {
        if idle >= IDLE_TICKS {
            set_pace(block, every_ns);
        }
        if idle != 0 {
            block.idle.store(0, Ordering::Relaxed);
        }
        return;
    }
    let idle = idle.saturating_add(1);
    block.idle.store(idle, Ordering::Relaxed);
    if idle >= IDLE_TICKS {
        let slower = every_ns.checked_shl(idle - IDLE_TICKS + 1);
        let ceiling = IDLE_PACE_NS.max(every_ns);
        let before = every_ns.checked_shl(idle - IDLE_TICKS);
        if before.is_some_and(|ns| ns < ceiling) {
            set_pace(block, slower.unwrap_or(ceiling).min(ceiling));
        }
    }
}

/// The thread is back on the GVL: its timer, if it was slowed down, gets its full pace again. On the thread
/// itself, outside of a handler.
#[inline]
pub fn quicken(block: &ControlBlock, every_ns: u64) {
    // Relaxed, both: a handler that comes in between does the same.
    if block.idle.load(Ordering::Relaxed) >= IDLE_TICKS {
        block.idle.store(0, Ordering::Relaxed);
        set_pace(block, every_ns);
    }
}

/// Holds every timer back (fork), or lets them go on.
pub fn hold_all(shared: &Shared, every_ns: u64, hold: bool) {
    for (_, block) in shared.registry.live() {
        set_pace(block, if hold { 0 } else { every_ns });
    }
}

/// Ticks that the kernel merged into the delivered one.
///
/// # Safety
/// `info` is that of a signal with `si_code == SI_TIMER`.
#[must_use]
pub unsafe fn overrun(info: *const libc::siginfo_t) -> u64 {
    /// The kernel's `siginfo_t` of a timer: after the three ints and their padding come the timer's
    /// id and its overrun (`include/uapi/asm-generic/siginfo.h`).
    #[repr(C)]
    struct TimerInfo {
        signo: libc::c_int,
        errno: libc::c_int,
        code: libc::c_int,
        pad: libc::c_int,
        timer_id: libc::c_int,
        overrun: libc::c_int,
    }
    // SAFETY: the caller's promise; the struct is a prefix of the kernel's 128 bytes.
    let overrun = unsafe { (*info.cast::<TimerInfo>()).overrun };
    u64::try_from(overrun).unwrap_or(0)
}
