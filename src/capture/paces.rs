//! The interval in force over time: what a cost budget made of the interval that was asked for.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Changes that are remembered; older ones are forgotten.
const REMEMBERED: usize = 64;

/// From when on which interval was in force. Written by the tick thread alone.
#[derive(Debug)]
pub struct Paces {
    changes: [(AtomicU64, AtomicU64); REMEMBERED],
    count: AtomicUsize,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// When it came into force (`CLOCK_MONOTONIC`), in ns.
    pub since_ns: u64,
    /// Time between two ticks, in ns.
    pub every_ns: u64,
}

impl Default for Paces {
    fn default() -> Self {
        Self {
            changes: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; REMEMBERED],
            count: AtomicUsize::new(0),
        }
    }
}

impl Paces {
    /// From `since` on, ticks are `every` ns apart.
    pub(super) fn note(&self, since: u64, every: u64) {
        // Relaxed, all but the last: published by it; a reader may find the oldest one overwritten.
        let count = self.count.load(Ordering::Relaxed);
        let (to_since, to_every) = &self.changes[count % REMEMBERED];
        to_since.store(since, Ordering::Relaxed);
        to_every.store(every, Ordering::Relaxed);
        // Release: pairs with the Acquire in `read`.
        self.count.store(count + 1, Ordering::Release);
    }

    /// Forgets everything; only while nothing ticks.
    pub fn reset(&self) {
        // Relaxed: nobody writes.
        self.count.store(0, Ordering::Relaxed);
    }

    /// The changes that are remembered, in order of time.
    #[must_use]
    pub fn read(&self) -> Vec<Pace> {
        // Acquire: pairs with the Release in `note`.
        let count = self.count.load(Ordering::Acquire);
        (count.saturating_sub(REMEMBERED)..count)
            .map(|number| {
                let (since, every) = &self.changes[number % REMEMBERED];
                Pace {
                    // Relaxed, both: ordered by the count.
                    since_ns: since.load(Ordering::Relaxed),
                    every_ns: every.load(Ordering::Relaxed),
                }
            })
            .collect()
    }
}
