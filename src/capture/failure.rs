//! What ended a profile before its stop did (I13).

use std::fmt::{self, Write as _};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A reason why a profile cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The tables found no memory to grow.
    Memory,
    /// The kernel sends no ticks any more; its error number.
    Ticks(i32),
    /// The kernel tells no CPU time any more; its error number.
    Clock(i32),
    /// A panic where the VM had called us.
    Bug,
}

impl Failure {
    /// Whether time passed unseen until somebody noticed.
    #[must_use]
    pub const fn blinds(self) -> bool {
        matches!(self, Self::Ticks(_) | Self::Clock(_))
    }

    const fn to_bits(self) -> u64 {
        let (kind, errno) = match self {
            Self::Memory => (1, 0),
            Self::Ticks(errno) => (2, errno),
            Self::Clock(errno) => (3, errno),
            Self::Bug => (4, 0),
        };
        kind << 32 | errno as u32 as u64
    }

    const fn from_bits(bits: u64) -> Option<Self> {
        match bits >> 32 {
            1 => Some(Self::Memory),
            2 => Some(Self::Ticks(bits as i32)),
            3 => Some(Self::Clock(bits as i32)),
            4 => Some(Self::Bug),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("the system has no memory for more samples"),
            Self::Ticks(errno) => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "the kernel refuses to send ticks: {error}")
            }
            Self::Clock(errno) => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(
                    f,
                    "the kernel refuses to tell the CPU time of threads: {error}"
                )
            }
            Self::Bug => f.write_str("internal error: a panic, whose message was printed"),
        }
    }
}

/// Where a failure is left for whoever can end the profile.
#[derive(Debug, Default)]
pub struct FailureWord {
    bits: AtomicU64,
    told: AtomicBool,
}

impl FailureWord {
    /// Leaves `failure`, unless there is one already. Async-signal-safe.
    pub fn set(&self, failure: Failure) {
        // Relaxed, both: a lone word; what follows from it happens under the GVL.
        let _ =
            self.bits
                .compare_exchange(0, failure.to_bits(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The failure, if there is one.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<Failure> {
        // Relaxed: as above.
        Failure::from_bits(self.bits.load(Ordering::Relaxed))
    }

    /// Forgets it: another profile begins.
    pub fn clear(&self) {
        // Relaxed, both: no profile is being taken.
        self.bits.store(0, Ordering::Relaxed);
        self.told.store(false, Ordering::Relaxed);
    }

    /// Says on the standard error stream, once, what has happened. Written past Ruby, where it can
    /// run nobody's code and raise nothing. Never in a handler.
    pub fn tell(&self) {
        let Some(failure) = self.get() else { return };
        // Relaxed: one of two tellers wins.
        if self.told.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut line = Line::default();
        // A line that is too long is cut.
        let _ = writeln!(
            line,
            "ringprof: the profile has ended: {failure}; what was recorded is kept"
        );
        // SAFETY: writes from a live buffer; nobody is left to be told of an error.
        unsafe { libc::write(libc::STDERR_FILENO, line.text.as_ptr().cast(), line.len) };
    }
}

/// One line, made without memory: there may be none.
struct Line {
    text: [u8; 256],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            text: [0; 256],
            len: 0,
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.text.get_mut(self.len..).unwrap_or_default();
        let room = room.get_mut(..text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_the_one() {
        let word = FailureWord::default();
        assert_eq!(word.get(), None);
        for failure in [
            Failure::Ticks(libc::EPERM),
            Failure::Clock(-1),
            Failure::Memory,
            Failure::Bug,
        ] {
            word.set(failure);
            word.set(Failure::Bug);
            assert_eq!(word.get(), Some(failure));
            word.clear();
            assert_eq!(word.get(), None);
        }
    }
}
