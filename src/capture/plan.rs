//! What the handler needs to know of one profile. Changes only while the gate is closed.

use super::preflight::Layout;

/// The clock that a profile's weights are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightClock {
    /// Elapsed time.
    Wall,
    /// The sampled thread's CPU time.
    Cpu,
}

/// Where the stack is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// In the signal handler, after the pre-flight for this layout.
    Direct(Layout),
    /// At the next safepoint, where the VM runs postponed jobs.
    Postponed,
}

/// Who reads the thread's CPU clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The tick thread, just before it signals: no system call in the handler.
    BeforeTick,
    /// The handler itself.
    InHandler,
}

/// The plan of one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What weights count.
    pub clock: WeightClock,
    /// Weights by the CPU clock are kept beside those by the wall clock.
    pub both_clocks: bool,
    /// The VM tells when a thread gives the GVL up and comes back (3.2+).
    pub pauses: bool,
    /// The interval in ns; one weight stands for one of it.
    pub interval_ns: u64,
    /// GC ticks go to the thread's next Ruby stack.
    pub ignore_gc: bool,
    /// Where the stack is walked.
    pub capture: Capture,
    /// Offset of `ec` in the VM's `rb_thread_t`; 0 if the layout is unknown.
    pub thread_ec: usize,
    /// Who reads the CPU clock.
    pub reading: Reading,
    /// Words in the ring from which on a drain is asked for.
    pub high_water: usize,
    /// The VM's outermost pseudo frame (Ruby 3.1), left out of every stack; 0 if there is none.
    pub pseudo_root: u64,
    /// Walk without the pre-flight: shows in a test what it is good for.
    #[cfg(feature = "testing")]
    pub skip_preflight: bool,
    /// Hold each walk that was cut short against a whole one.
    #[cfg(feature = "testing")]
    pub check_walks: bool,
}

impl Plan {
    /// Intervals in `elapsed` ns, rounded: what is cut off or added in advance evens out at the next record.
    #[inline]
    #[must_use]
    pub const fn weight_of(&self, elapsed: u64) -> u64 {
        if self.interval_ns == 0 {
            return 0;
        }
        (elapsed + self.interval_ns / 2) / self.interval_ns
    }
}
