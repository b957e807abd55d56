//! A fixed histogram of times, logarithmic: four buckets for each power of two, so that a quantile
//! read from it is at most a fifth above the true one.
//!
//! Relaxed everywhere, as in [`counters`](super::counters): lone numbers, nothing is published
//! through them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of a histogram: up to 2^34 ns (17 s), the last takes what is longer.
pub const BUCKETS: usize = 4 * 32;
/// Times below this power of two share the first buckets.
const FIRST_BIT: u32 = 3;

/// Counts of times in ns.
#[derive(Debug)]
pub struct Histogram([AtomicU64; BUCKETS]);

/// A reading of a [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Default for Spread {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

/// The bucket of a time.
const fn bucket(ns: u64) -> usize {
    let bits = u64::BITS - ns.leading_zeros();
    if bits <= FIRST_BIT {
        return (ns >> 1) as usize;
    }
    // The highest bit says which power of two, the two bits below it which quarter.
    let power = bits - FIRST_BIT;
    let quarter = (ns >> (bits - 3)) & 3;
    let bucket = (power * 4) as usize + quarter as usize;
    if bucket < BUCKETS {
        bucket
    } else {
        BUCKETS - 1
    }
}

/// The longest time of a bucket in ns, that is the shortest of the next less one.
const fn upper_bound(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64 * 2 + 1;
    }
    let power = (bucket / 4) as u32;
    let quarter = (bucket % 4) as u64;
    ((5 + quarter) << (power + FIRST_BIT - 3)) - 1
}

impl Histogram {
    /// Counts one time; only one thread at a time (the seat's holder, or the GVL's).
    #[inline]
    pub fn count(&self, ns: u64) {
        // `bucket` is below BUCKETS, which the compiler sees.
        let counter = &self.0[bucket(ns)];
        // Relaxed, both: a lone number; no partner.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Reads every bucket.
    #[must_use]
    pub fn read(&self) -> Spread {
        let mut spread = Spread::default();
        for (to, from) in spread.0.iter_mut().zip(&self.0) {
            // Relaxed: as above.
            *to = from.load(Ordering::Relaxed);
        }
        spread
    }

    /// Forgets everything; only while nobody counts.
    pub fn reset(&self) {
        for counter in &self.0 {
            // Relaxed: as above.
            counter.store(0, Ordering::Relaxed);
        }
    }
}

impl Spread {
    /// Number of times counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time in ns that a share `part` of the times does not exceed (at most a fifth too long); 0
    /// where nothing was counted.
    #[must_use]
    pub fn quantile(&self, part: f64) -> u64 {
        let total = self.total();
        let wanted = (part * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, &count) in self.0.iter().enumerate() {
            seen += count;
            if count > 0 && seen >= wanted {
                return upper_bound(bucket);
            }
        }
        0
    }

    /// Longest time in ns and how many took at most that long, for each bucket that counted
    /// something; ascending.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut seen = 0;
        self.0
            .iter()
            .enumerate()
            .filter(|(_, &count)| count > 0)
            .map(move |(bucket, &count)| {
                seen += count;
                (upper_bound(bucket), seen)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_time_in_order_and_within_a_fifth() {
        let mut last = 0;
        for ns in (0..100_000).chain([1 << 20, 1 << 33, (1 << 33) + 1]) {
            let bucket = bucket(ns);
            assert!(bucket >= last, "{ns} is in {bucket}, after {last}");
            last = bucket;
            let bound = upper_bound(bucket);
            assert!(bound >= ns, "{ns} is above the bound {bound} of {bucket}");
            assert!(bound <= ns + ns / 4 + 1, "{ns} counts as {bound}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let histogram = Histogram::default();
        for ns in 1..=1000 {
            histogram.count(ns * 100);
        }
        let spread = histogram.read();
        assert_eq!(spread.total(), 1000);
        for (part, exact) in [(0.5, 50_000), (0.99, 99_000), (1.0, 100_000)] {
            let found = spread.quantile(part);
            assert!(
                found >= exact && found <= exact + exact / 4,
                "{part}: {found}"
            );
        }
        assert_eq!(spread.cumulative().last().map(|(_, seen)| seen), Some(1000));
        histogram.reset();
        assert_eq!(histogram.read().quantile(0.5), 0);
    }
}
