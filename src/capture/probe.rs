//! Reads words that may not be there.
//!
//! The kernel copies a word into a pipe and tells where it can't (`EFAULT`): no fault, no handler of
//! one, and nothing that a sandbox forbids. A word costs two system calls, so this is for load alone.

use std::ffi::c_int;

/// A pipe through which words are read.
#[derive(Debug)]
pub struct Probe {
    reader: c_int,
    writer: c_int,
}

impl Probe {
    /// `None` if the kernel has no pipe to give.
    #[must_use]
    pub fn new() -> Option<Self> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        (made == 0).then_some(Self {
            reader: ends[0],
            writer: ends[1],
        })
    }

    /// The word at `address`, which may be any.
    #[must_use]
    pub fn read(&self, address: usize) -> Option<usize> {
        const SIZE: usize = size_of::<usize>();
        let mut word = 0_usize;
        // SAFETY: the kernel, not this process, reads the address; `word` has room for a word.
        let read = unsafe {
            if libc::write(self.writer, address as *const _, SIZE) != SIZE as isize {
                // A part of it may have come, up to the end of a page.
                while libc::read(self.reader, (&raw mut word).cast(), SIZE) > 0 {}
                return None;
            }
            libc::read(self.reader, (&raw mut word).cast(), SIZE)
        };
        (read == SIZE as isize).then_some(word)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: descriptors of ours.
        unsafe {
            libc::close(self.reader);
            libc::close(self.writer);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there_and_nothing_else() {
        let probe = Probe::new().expect("a pipe");
        let words = [0x1234_5678_9abc_def0_usize, 7];
        for (index, word) in words.iter().enumerate() {
            assert_eq!(probe.read(words.as_ptr() as usize + index * 8), Some(*word));
        }
        for address in [0, 8, usize::MAX & !7, 1 << 62] {
            assert_eq!(probe.read(address), None);
        }
        assert_eq!(probe.read(words.as_ptr() as usize), Some(words[0]));
    }
}
