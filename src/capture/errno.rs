//! Keeps the interrupted code's `errno`.

/// Saves `errno` at birth and puts it back at the end of its scope (I5).
#[derive(Debug)]
pub struct ErrnoGuard {
    saved: libc::c_int,
}

impl ErrnoGuard {
    /// Saves the calling thread's `errno`. Async-signal-safe.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: (I5) glibc returns the address of the thread's own errno, always valid.
        let saved = unsafe { *libc::__errno_location() };
        Self { saved }
    }
}

impl Default for ErrnoGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ErrnoGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: (I5) as in `new`; the guard lives on the stack of one handler, so it's the same thread.
        unsafe { *libc::__errno_location() = self.saved }
    }
}
