//! The words themselves: where the ring's unsafe code lives.

use super::index;
use crate::sync::{write_words, UnsafeCell};

/// What a word holds before it is written. Not zero, because zeroing may be left to the kernel, which
/// does it at the first touch of each page, in the handler.
const UNWRITTEN: u64 = u64::MAX;

/// A power of two of words, reached by position.
#[derive(Debug)]
pub(super) struct Slots {
    cells: Box<[UnsafeCell<u64>]>,
}

// SAFETY: (I3) a word is written by the producer only while it lies outside head..tail, and read by
// the consumer only while it lies inside; the Release stores and Acquire loads of head and tail order
// the one before the other.
unsafe impl Sync for Slots {}

impl Slots {
    /// `capacity` words (a power of two), each of them touched; `None` when memory is short.
    pub(super) fn new(capacity: usize) -> Option<Self> {
        let mut cells = Vec::new();
        cells.try_reserve_exact(capacity).ok()?;
        cells.extend((0..capacity).map(|_| UnsafeCell::new(UNWRITTEN)));
        Some(Self {
            cells: cells.into_boxed_slice(),
        })
    }

    /// Number of words.
    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// Writes `words` from `position` on, in one run, or in two across the ring's end.
    ///
    /// # Safety
    /// There are at most `capacity` words and the caller is the producer to whom their places belong
    /// (outside head..tail).
    #[inline]
    pub(super) unsafe fn write(&self, position: usize, words: &[u64]) {
        let start = index::place(position, self.capacity());
        let first = index::before_end(position, words.len(), self.capacity());
        let rest = words.len() - first;
        // SAFETY: (I1, I3) start + first <= capacity and rest <= capacity by the arithmetic of
        // `index` (exhaustively tested) and the caller's bound; the places are the caller's alone.
        // Unchecked, because a bounds check would bring a panic into the handler (I5).
        unsafe {
            write_words(
                self.cells.get_unchecked(start..start + first),
                words.get_unchecked(..first),
            );
            write_words(
                self.cells.get_unchecked(..rest),
                words.get_unchecked(first..),
            );
        }
    }

    /// The word at `position`.
    ///
    /// # Safety
    /// The caller is the consumer to whom the place belongs (inside head..tail).
    #[inline]
    pub(super) unsafe fn read(&self, position: usize) -> u64 {
        let cell = &self.cells[index::place(position, self.capacity())];
        // SAFETY: (I2, I3) the word is published and stays unwritten until the caller moves the head.
        cell.with(|word| unsafe { *word })
    }
}
