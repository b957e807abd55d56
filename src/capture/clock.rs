//! Clocks, in ns. All are async-signal-safe.

use std::io;

/// A clock that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock(libc::clockid_t);

impl Clock {
    /// Elapsed time, never set back.
    pub const MONOTONIC: Self = Self(libc::CLOCK_MONOTONIC);
    /// CPU time of the calling thread.
    pub const THREAD_CPU: Self = Self(libc::CLOCK_THREAD_CPUTIME_ID);

    /// CPU time of the thread `tid` of this process. The kernel's encoding of a per-thread scheduler
    /// clock (`include/linux/posix-timers_types.h`): the complement of the id above three bits,
    /// of which 4 says "thread" and 2 "scheduler time".
    #[must_use]
    pub const fn cpu_of(tid: i32) -> Self {
        Self((!tid << 3) | 6)
    }

    /// The time in ns, or `None` if the clock's thread is gone.
    #[inline]
    #[must_use]
    pub fn read(self) -> Option<u64> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: (I5) clock_gettime writes one timespec, which we own; POSIX lists it as async-signal-safe.
        let status = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (status == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// Elapsed time in ns (`CLOCK_MONOTONIC`).
#[inline]
#[must_use]
pub fn monotonic() -> u64 {
    Clock::MONOTONIC.read().unwrap_or(0)
}

/// Error number of the clock that could not be read just now.
#[must_use]
pub fn refusal() -> i32 {
    // SAFETY: (I5) the calling thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// Whether CPU clocks can be read at all, the calling thread's by either name.
///
/// # Errors
/// The kernel's.
pub fn check() -> io::Result<()> {
    // SAFETY: gettid has no preconditions.
    let own = Clock::cpu_of(unsafe { libc::gettid() });
    if Clock::THREAD_CPU.read().and(own.read()).is_some() {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// CPU time of the calling thread in ns.
#[inline]
#[must_use]
pub fn thread_cpu() -> u64 {
    Clock::THREAD_CPU.read().unwrap_or(0)
}

/// A point of time as the kernel takes it.
#[must_use]
pub const fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_tid_is_that_threads_clock() {
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::gettid() };
        let before = thread_cpu();
        let other = Clock::cpu_of(tid).read().expect("own clock");
        let after = thread_cpu();
        assert!(before <= other && other <= after);
        assert_eq!(Clock::cpu_of(i32::MAX - 1).read(), None);
    }
}
