//! Law of this room: single producer, single consumer, bounded, wait-free on both sides, no
//! allocation after birth, no Ruby. It uses `crate::sync` and nothing else.
//!
//! A ring of `u64` words. The producer writes whole records (runs of words) or nothing; the
//! consumer reads them in order. The ring does not know what a record means: the consumer passes a
//! function that tells a record's length from its first word.
//!
//! # Protocol
//!
//! Two positions run freely over `usize` and wrap there: `tail`, the next word to write, which only
//! the producer moves, and `head`, the next word to read, which only the consumer moves. The
//! capacity is a power of two, so a word's place is `position & (capacity - 1)` even across the wrap
//! of `usize`, and `tail - head` (wrapping) lies in `0..=capacity`: empty and full differ without a
//! spare word.
//!
//! Words between head and tail belong to the consumer and are never written; the others belong to
//! the producer and are never read (I3). Each side keeps its own position in a plain field. The
//! producer also keeps the head that it saw last and loads it anew only when the ring seems full.
//!
//! The consumer visits a record first and moves the head past it afterwards (I4). Whoever looks for
//! frames that must stay alive finds each of them in the ring ([`Consumer::peek`]) or in the tables
//! that `visit` filled, never in neither.
//!
//! # Orderings
//!
//! | operation | by | ordering | reason, partner |
//! | --- | --- | --- | --- |
//! | read own tail / own head | producer / consumer | none (plain field) | only its owner ever writes it |
//! | (p) store tail | producer, after the write | Release | publishes the record's words; pairs with (t) |
//! | (t) load tail | consumer, at the start of `read` and `peek` and in `used` | Acquire | with (p): sees whole records |
//! | (c) store head | consumer, after the visit | Release | gives the record's words back; pairs with (h) |
//! | (h) load head | producer, when the ring seems full, and in `used` and `has_been_read` | Acquire | with (c): the reader is done with the words before they are overwritten |
//! | seat CAS / seat release | `capture::gate` | Acquire / Release | hands the producer's plain fields from the last seat holder to the next (I1) |
//!
//! There are no fences and nothing is `SeqCst`: no decision rests on the order of two different
//! atomics.
//!
//! # Signals and fork
//!
//! [`Producer::try_write`], [`Producer::used`] and [`Producer::has_been_read`] are async-signal-safe (I5). Dropping a half may
//! free memory and is not: what a handler can reach is leaked (I8). A ring that was shared with other
//! threads when the process forked must not be written in the child, because one of them may have
//! been in the middle of a write; the child makes a new one (I12).

mod consumer;
mod index;
mod producer;
mod slots;

pub use consumer::{Consumer, Drained, Record};
pub use producer::{Full, Position, Producer};

use crate::sync::{Arc, AtomicUsize};
use slots::Slots;

/// What both halves reach.
#[derive(Debug)]
struct Shared {
    slots: Slots,
    head: CachePadded<AtomicUsize>,
    tail: CachePadded<AtomicUsize>,
}

/// Keeps two positions that different threads write off each other's cache line. Lines are
/// fetched in pairs on x86-64, hence 128 bytes.
#[derive(Debug)]
#[repr(align(128))]
struct CachePadded<T>(T);

/// An empty ring of at least `words` words: rounded up to a power of two, 1 at least.
///
/// Every word is written here, so that no page of the ring is touched for the first time inside a
/// signal handler.
///
/// # Panics
/// When no power of two fits or the allocator has no room.
#[must_use]
pub fn with_capacity(words: usize) -> (Producer, Consumer) {
    with_capacity_at(words, 0)
}

/// Like [`with_capacity`], with both positions at `position`, so that a test reaches the wrap of
/// `usize` within a few words.
///
/// # Panics
/// As [`with_capacity`].
#[must_use]
pub fn with_capacity_at(words: usize, position: usize) -> (Producer, Consumer) {
    new(words, position).expect("memory for the ring")
}

/// Like [`with_capacity`]; `None` when the allocator has no room for the words.
///
/// # Panics
/// When no power of two fits.
#[must_use]
pub fn try_with_capacity(words: usize) -> Option<(Producer, Consumer)> {
    new(words, 0)
}

fn new(words: usize, position: usize) -> Option<(Producer, Consumer)> {
    let slots = Slots::new(index::capacity_for(words))?;
    let shared = Arc::new(Shared {
        slots,
        head: CachePadded(AtomicUsize::new(position)),
        tail: CachePadded(AtomicUsize::new(position)),
    });
    Some((
        Producer::new(shared.clone(), position),
        Consumer::new(shared, position),
    ))
}

#[cfg(not(loom))]
mod shape {
    use super::{CachePadded, Consumer, Producer};
    use crate::sync::AtomicUsize;
    use static_assertions::{assert_eq_align, assert_impl_all, assert_not_impl_any};

    #[repr(align(128))]
    struct Line;

    assert_eq_align!(CachePadded<AtomicUsize>, Line);
    assert_impl_all!(Producer: Send);
    assert_impl_all!(Consumer: Send);
    assert_not_impl_any!(Producer: Sync, Clone);
    assert_not_impl_any!(Consumer: Sync, Clone);
}
