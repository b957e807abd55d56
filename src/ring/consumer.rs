//! The reading half.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use super::slots::Slots;
use super::{index, Shared};
use crate::sync::{Arc, Ordering};

/// The reading half of a ring. `Send`, not `Sync`, not `Clone`: there is one, and one holder at a
/// time (I2).
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    /// Next position to read.
    head: usize,
    not_sync: PhantomData<Cell<()>>,
}

/// What one [`Consumer::read`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Drained {
    /// Records visited.
    pub records: usize,
    /// Whether a record's length could not be true, so that all that was published was discarded.
    pub corrupt: bool,
}

impl Consumer {
    pub(super) fn new(shared: Arc<Shared>, position: usize) -> Self {
        Self {
            shared,
            head: position,
            not_sync: PhantomData,
        }
    }

    /// Number of words that fit into the ring.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.slots.capacity()
    }

    /// Number of words that are published and not read yet.
    #[inline]
    #[must_use]
    pub fn used(&self) -> usize {
        index::distance(self.head, self.published())
    }

    /// Reads the records that are published when the call begins, in order: `visit` first, then the
    /// head moves past the record. `ControlFlow::Break` stops after the record just visited. If `visit`
    /// panics, its record stays in the ring.
    ///
    /// `len_of` tells a record's length in words from its first word. A length of 0 or beyond what is
    /// published means that the ring's content is not what the caller takes it for: everything
    /// published at the start of the call is discarded and [`Drained::corrupt`] is set.
    pub fn read(
        &mut self,
        len_of: impl Fn(u64) -> usize,
        mut visit: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Drained {
        let tail = self.published();
        let mut drained = Drained::default();
        while self.head != tail {
            let Some(record) = Record::first(&self.shared.slots, self.head, tail, &len_of) else {
                drained.corrupt = true;
                self.head = tail;
                // Release: our reads of the discarded words come before it; pairs with Acquire in
                // Producer::used.
                self.shared.head.0.store(tail, Ordering::Release);
                break;
            };
            let next = record.end();
            let flow = visit(record);
            self.head = next;
            // Release: the visit's reads and what it wrote into the tables come before it; pairs with
            // Acquire in Producer::used.
            self.shared.head.0.store(next, Ordering::Release);
            drained.records += 1;
            if flow.is_break() {
                break;
            }
        }
        drained
    }

    /// Visits the records that are published when the call begins, in order, and leaves them in the
    /// ring; ends early at a record of impossible length, which [`Consumer::read`] will report.
    /// For garbage collection: allocates nothing itself.
    pub fn peek(&self, len_of: impl Fn(u64) -> usize, mut visit: impl FnMut(Record<'_>)) {
        let tail = self.published();
        let mut position = self.head;
        while position != tail {
            let Some(record) = Record::first(&self.shared.slots, position, tail, &len_of) else {
                break;
            };
            position = record.end();
            visit(record);
        }
    }

    /// The tail as the producer published it last.
    #[inline]
    fn published(&self) -> usize {
        // Acquire: the words of every record before this tail are whole; pairs with Release in
        // Producer::try_write.
        self.shared.tail.0.load(Ordering::Acquire)
    }
}

/// One published record, in place: a run of words that may wrap round the ring's end. Lives no
/// longer than the visit.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    // Invariant: the `words` words from `start` on lie between head and tail for as long as 'a.
    slots: &'a Slots,
    start: usize,
    words: usize,
}

impl<'a> Record<'a> {
    /// The record at `start`, a position before `tail`; `None` if its length is 0 or reaches beyond
    /// `tail`.
    fn first(
        slots: &'a Slots,
        start: usize,
        tail: usize,
        len_of: impl Fn(u64) -> usize,
    ) -> Option<Self> {
        // SAFETY: (I2, I3) `start` lies between the consumer's head and the published tail.
        let words = len_of(unsafe { slots.read(start) });
        (1..=index::distance(start, tail))
            .contains(&words)
            .then_some(Self {
                slots,
                start,
                words,
            })
    }

    /// Position after the last word.
    fn end(&self) -> usize {
        index::advance(self.start, self.words)
    }

    /// Length in words, 1 at least.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a record has at least its first word"
    )]
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.words
    }

    /// The word at `i`, counted from the record's first word, 0.
    ///
    /// # Panics
    /// When `i` is not less than [`Record::len`].
    #[inline]
    #[must_use]
    pub fn get(&self, i: usize) -> u64 {
        assert!(
            i < self.words,
            "a record of {} words has no word {i}",
            self.words
        );
        // SAFETY: (I2, I3) the word is one of the record's, which lie between head and tail.
        unsafe { self.slots.read(index::advance(self.start, i)) }
    }

    /// The words in order, the first one included.
    #[inline]
    pub fn words(&self) -> impl Iterator<Item = u64> + Clone + 'a {
        let Self {
            slots,
            start,
            words,
        } = *self;
        // SAFETY: (I2, I3) these are the record's words, which lie between head and tail for 'a.
        (0..words).map(move |i| unsafe { slots.read(index::advance(start, i)) })
    }
}
