//! Which signal we use, and how its action is installed and put back.
//!
//! SIGPROF, as every profiler; but where somebody else has a handler on it, a real-time signal that
//! nobody uses. A default or ignored action is never put back: a late tick could hit it, and the
//! default kills. There an inert handler stays, which `exec` resets.

use super::handler::on_signal;
use std::ffi::c_int;
use std::io;

/// An action that we replaced.
pub struct Installed {
    signal: c_int,
    previous: Option<libc::sigaction>,
    /// Whatever was there, a default or ignored action too.
    before: libc::sigaction,
}

impl std::fmt::Debug for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installed")
            .field("signal", &self.signal)
            .field("replaced_a_handler", &self.previous.is_some())
            .finish()
    }
}

fn ours() -> libc::sighandler_t {
    on_signal as unsafe extern "C" fn(_, _, _) as usize
}

fn current(signal: c_int) -> io::Result<libc::sigaction> {
    // SAFETY: a zeroed sigaction is a valid one to be overwritten.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only reads.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0 {
        Ok(action)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn is_free(action: &libc::sigaction) -> bool {
    matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) || action.sa_sigaction == ours()
}

/// The signal to use: SIGPROF if nobody else handles it, else the highest free real-time signal.
///
/// # Errors
/// When every candidate has a handler of somebody else.
pub fn choose() -> io::Result<c_int> {
    let real_time = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev();
    for signal in std::iter::once(libc::SIGPROF).chain(real_time) {
        let action = current(signal).map_err(|error| {
            let text = format!("the kernel refuses to tell who handles signals: {error}");
            io::Error::new(error.kind(), text)
        })?;
        if is_free(&action) {
            return Ok(signal);
        }
    }
    Err(io::Error::other(
        "every signal that ringprof could use (SIGPROF, SIGRTMIN to SIGRTMAX) has a handler already",
    ))
}

/// The signal's name: `PROF`, or `RTMAX-n`.
#[must_use]
pub fn name(signal: c_int) -> String {
    if signal == libc::SIGPROF {
        "PROF".into()
    } else {
        format!("RTMAX-{}", libc::SIGRTMAX() - signal)
    }
}

/// Installs the handler for `signal`.
///
/// # Errors
/// The kernel's.
pub fn install(signal: c_int) -> io::Result<Installed> {
    // SAFETY: as in `current`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ours();
    // On the alternate stack: a tick at the end of a deep C recursion must not be what overflows it.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // No other handler on top of ours, but faults and traps stay what they are.
    // SAFETY: fills and edits a set that we own.
    unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        for fault in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGABRT,
        ] {
            libc::sigdelset(&raw mut action.sa_mask, fault);
        }
    }
    let before = current(signal)?;
    // SAFETY: both actions are whole; the handler is ours and never unloaded.
    if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Installed {
        signal,
        previous: (!is_free(&before)).then_some(before),
        before,
    })
}

impl Installed {
    /// The signal.
    #[must_use]
    pub fn signal(&self) -> c_int {
        self.signal
    }

    /// Whether the action is still ours (somebody may have replaced it meanwhile).
    #[must_use]
    pub fn is_ours(&self) -> bool {
        current(self.signal).is_ok_and(|action| action.sa_sigaction == ours())
    }

    /// Puts back whatever was there: no signal was ever sent.
    pub fn undo(self) {
        if self.is_ours() {
            // SAFETY: an action that the kernel gave us.
            unsafe {
                libc::sigaction(self.signal, &raw const self.before, std::ptr::null_mut());
            }
        }
    }

    /// Puts the previous action back, if it was a handler and the present one is still ours.
    pub fn restore(self) {
        if let Some(previous) = self.previous {
            if self.is_ours() {
                // SAFETY: an action that the kernel gave us.
                unsafe {
                    libc::sigaction(self.signal, &raw const previous, std::ptr::null_mut());
                }
            }
        }
    }
}
