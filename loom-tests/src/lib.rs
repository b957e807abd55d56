//! The core's atomic files, mounted under `cfg(loom)` at the same paths as in the core, and what the
//! models share.
//!
//! Mounting enforces the arrows: a ring that reached for another room of the core would not compile
//! here. A signal handler is modelled as a thread. That allows more interleavings than a handler that
//! interrupts its own thread, never fewer, because nobody waits for anybody.

#[cfg(not(mutant))]
#[path = "../../src/sync.rs"]
pub mod sync;

#[cfg(not(mutant))]
#[path = "../../src/ring/mod.rs"]
pub mod ring;

/// The part of capture that is modelled.
#[cfg(not(mutant))]
#[path = "../../src/capture"]
pub mod capture {
    pub mod bell;
    pub mod gate;
}

#[cfg(mutant)]
include!(concat!(env!("OUT_DIR"), "/mutant/mounts.rs"));

use std::ops::ControlFlow;

use capture::gate::{Entry, Gate};
use ring::{Consumer, Producer, Record};
use sync::UnsafeCell;

/// Explores `f` up to `LOOM_MAX_PREEMPTIONS` preemptions, 3 if that is not set.
pub fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(f);
}

/// A record of `len` words that carries `seq` in each of them, so that a torn one shows.
#[must_use]
pub fn record(seq: u64, len: usize) -> Vec<u64> {
    (0..len).map(|i| word(seq, i, len)).collect()
}

fn word(seq: u64, i: usize, len: usize) -> u64 {
    seq << 16 | (i as u64) << 8 | len as u64
}

/// Length of a record by its first word.
#[must_use]
pub fn len_of(first: u64) -> usize {
    (first & 0xFF) as usize
}

/// The `seq` of a record, once all of its words agree.
///
/// # Panics
/// When the record is torn.
#[must_use]
pub fn seq_of(record: &Record<'_>) -> u64 {
    let seq = record.get(0) >> 16;
    for (i, found) in record.words().enumerate() {
        assert_eq!(found, word(seq, i, record.len()), "torn record");
    }
    seq
}

/// Writes a record of `len` words, header and body apart; whether there was room.
pub fn write(producer: &mut Producer, seq: u64, len: usize) -> bool {
    let words = record(seq, len);
    let (head, body) = words.split_at(1);
    producer.try_write(head, body).is_ok()
}

/// Reads all that is published and appends each record's `seq`.
///
/// # Panics
/// When a record is torn or its length impossible.
pub fn drain(consumer: &mut Consumer, seqs: &mut Vec<u64>) {
    let before = seqs.len();
    let drained = consumer.read(len_of, |record| {
        seqs.push(seq_of(&record));
        ControlFlow::Continue(())
    });
    assert!(!drained.corrupt, "impossible length");
    assert_eq!(drained.records, seqs.len() - before);
}

/// The `seq` of each record that is published and not read yet.
///
/// # Panics
/// When a record is torn.
#[must_use]
pub fn peek(consumer: &Consumer) -> Vec<u64> {
    let mut seqs = Vec::new();
    consumer.peek(len_of, |record| seqs.push(seq_of(&record)));
    seqs
}

/// What became of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// A record was written.
    Recorded,
    /// The ring was full.
    Full,
    /// Another handler was in.
    Taken,
    /// The gate was closed.
    Closed,
}

/// The gate and what it protects: the capture side as handlers reach it.
pub struct Station {
    /// Who may touch the rest.
    pub gate: Gate,
    inside: UnsafeCell<Inside>,
}

/// What only the holder of the seat, or the closer of a vacant gate, touches.
pub struct Inside {
    /// The writing half.
    pub producer: Producer,
    /// Plain memory that holders and openers hand to each other.
    pub note: u64,
}

// SAFETY: (I1) `inside` is reached with the seat, or by the closer of a vacant gate; loom fails the
// model if that does not hold.
unsafe impl Sync for Station {}

impl Station {
    /// A closed station.
    #[must_use]
    pub fn new(producer: Producer) -> Self {
        Self {
            gate: Gate::new(),
            inside: UnsafeCell::new(Inside { producer, note: 0 }),
        }
    }

    /// One tick: a record of `len` words that carries `seq`, and the note counted up, if the gate
    /// grants the seat.
    pub fn tick(&self, seq: u64, len: usize) -> Tick {
        let _seat = match self.gate.try_enter() {
            Entry::Seat(seat) => seat,
            Entry::Taken => return Tick::Taken,
            Entry::Closed => return Tick::Closed,
        };
        // SAFETY: (I1) we hold the seat.
        unsafe {
            self.inside(|inside| {
                inside.note += 1;
                if write(&mut inside.producer, seq, len) {
                    Tick::Recorded
                } else {
                    Tick::Full
                }
            })
        }
    }

    /// Closes the gate and waits until nobody is in.
    pub fn close(&self) {
        self.gate.close();
        while !self.gate.is_vacant() {
            loom::thread::yield_now();
        }
    }

    /// Reaches what the gate protects.
    ///
    /// # Safety
    /// The caller holds the seat or has closed the gate and found it vacant.
    pub unsafe fn inside<R>(&self, f: impl FnOnce(&mut Inside) -> R) -> R {
        // SAFETY: (I1) by the caller.
        self.inside.with_mut(|inside| f(unsafe { &mut *inside }))
    }
}
