//! When ticks fall: what a thread that was off the GVL has to know, for no tick was sent to it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The tick source's deadlines: one, and the time between two.
#[derive(Debug, Default)]
pub struct Deadlines {
    /// A deadline that has passed, in ns.
    anchor: AtomicU64,
    /// Time between two deadlines, in ns; 0 while nothing ticks.
    every: AtomicU64,
}

impl Deadlines {
    /// A deadline is at `anchor`, and more follow `every` ns apart.
    pub(super) fn set(&self, anchor: u64, every: u64) {
        // Relaxed, both: who reads one of each is off by less than a tick.
        self.anchor.store(anchor, Ordering::Relaxed);
        self.every.store(every, Ordering::Relaxed);
    }

    /// Time between two deadlines, in ns; 0 while nothing ticks.
    #[must_use]
    pub fn every(&self) -> u64 {
        // Relaxed: as above.
        self.every.load(Ordering::Relaxed)
    }

    /// The last deadline at or before `time`; 0 while nothing ticks. Async-signal-safe.
    #[inline]
    pub(super) fn last_before(&self, time: u64) -> u64 {
        // Relaxed, both: as above.
        let anchor = self.anchor.load(Ordering::Relaxed);
        let every = self.every.load(Ordering::Relaxed);
        if every == 0 {
            return 0;
        }
        if time >= anchor {
            anchor + (time - anchor) / every * every
        } else {
            anchor.saturating_sub((anchor - time).div_ceil(every) * every)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_deadline_is_at_most_one_step_back() {
        let deadlines = Deadlines::default();
        assert_eq!(deadlines.last_before(5), 0);
        deadlines.set(1000, 100);
        for (time, last) in [
            (1000, 1000),
            (1099, 1000),
            (1100, 1100),
            (999, 900),
            (901, 900),
            (900, 900),
            (50, 0),
        ] {
            assert_eq!(deadlines.last_before(time), last, "at {time}");
        }
    }
}
