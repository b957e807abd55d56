//! The writing half.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use super::{index, Shared};
use crate::sync::{Arc, Ordering};

/// There was not enough room: nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring is full")
    }
}

impl std::error::Error for Full {}

/// Where a record begins, as long as the ring lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(usize);

/// The writing half of a ring. `Send`, not `Sync`, not `Clone`: there is one, and one holder at a
/// time (I1).
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    /// Next position to write.
    tail: usize,
    /// The head as it was seen last: the consumer may be further on, never further back.
    seen_head: usize,
    not_sync: PhantomData<Cell<()>>,
}

impl Producer {
    pub(super) fn new(shared: Arc<Shared>, position: usize) -> Self {
        Self {
            shared,
            tail: position,
            seen_head: position,
            not_sync: PhantomData,
        }
    }

    /// Number of words that fit into the ring.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.slots.capacity()
    }

    /// Writes one record, the words of `head` and then those of `body`, or nothing.
    ///
    /// Wait-free and async-signal-safe: at most one load, two copies, one store. A record without
    /// words is no record; it writes nothing.
    ///
    /// # Errors
    /// [`Full`] when the record does not fit now. One longer than the capacity never does.
    #[inline]
    pub fn try_write(&mut self, head: &[u64], body: &[u64]) -> Result<(), Full> {
        // Cannot overflow: a slice is at most isize::MAX bytes long.
        let words = head.len() + body.len();
        if words > self.capacity() - index::distance(self.seen_head, self.tail)
            && words > self.capacity() - self.used()
        {
            return Err(Full);
        }
        let middle = index::advance(self.tail, head.len());
        let end = index::advance(self.tail, words);
        // SAFETY: (I1, I3) `&mut self` makes us the one producer, and the words tail..end lie outside
        // head..tail, because a head that has moved on since only makes more room.
        unsafe {
            self.shared.slots.write(self.tail, head);
            self.shared.slots.write(middle, body);
        }
        self.tail = end;
        // Release: the record's words come before it; pairs with Acquire in Consumer::published.
        self.shared.tail.0.store(end, Ordering::Release);
        Ok(())
    }

    /// Number of words that are written and not read yet. Async-signal-safe.
    #[inline]
    pub fn used(&mut self) -> usize {
        // Acquire: the consumer's last reads of the words before the head come before our writes to
        // them; pairs with Release in Consumer::read.
        self.seen_head = self.shared.head.0.load(Ordering::Acquire);
        index::distance(self.seen_head, self.tail)
    }

    /// Where the next record will begin.
    #[inline]
    #[must_use]
    pub fn position(&self) -> Position {
        Position(self.tail)
    }

    /// Whether the consumer is past the record that began there. Async-signal-safe.
    #[inline]
    pub fn has_been_read(&mut self, record: Position) -> bool {
        index::distance(record.0, self.tail) > self.used()
    }
}
