//! The finished value: plain data, its frames still opaque.

use super::collections::CauseTotals;
use super::frames;
use super::raw::Raw;
use super::threads::ThreadTotals;
use crate::sample::GcCause;

/// What a session saw, counted as StackProf counts. All counts are sums of weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// All samples, GC's included.
    pub samples: u64,
    /// Samples inside garbage collection.
    pub gc_samples: u64,
    /// Samples whose stack was deeper than was recorded; their root side is missing.
    pub truncated: u64,
    /// Samples whose leaf side was folded into its caller, for the tables had reached their bound.
    pub folded: u64,
    /// Samples that are not in raw for the same reason, the last ones.
    pub raw_omitted: u64,
    /// Samples outside of GC by [`State`](crate::sample::State).
    pub states: [u64; 3],
    /// Samples by the CPU clock; `None` unless both clocks were counted.
    pub cpu_samples: Option<u64>,
    /// Every distinct frame in order of first sight; within one sample leaf first, but
    /// `(garbage collection)` before its phase.
    pub frames: Vec<FrameTotals>,
    /// Stacks in order of time; `None` unless raw was asked for and a stack with frames recorded.
    pub raw: Option<Raw>,
    /// Every thread that has samples, in order of first sight.
    pub threads: Vec<ThreadTotals>,
    /// The frames of the stacks that started the collections which samples fell into; weights are those
    /// samples.
    pub gc_callers: Vec<FrameTotals>,
    /// What started collections, by [`GcCause`].
    pub gc_causes: [CauseTotals; GcCause::ALL.len()],
}

/// A frame's share of something. Both are sums of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples in which the frame occurs.
    pub total: u64,
    /// Samples in which it is the leaf.
    pub own: u64,
}

/// The counts of one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameTotals {
    /// VALUE of the method entry or iseq, or a fake frame.
    pub frame: u64,
    /// Samples in which the frame occurs, once per sample even in recursion.
    pub total: u64,
    /// Samples in which the frame is the leaf (StackProf's `samples`).
    pub own: u64,
    /// Calls made by this frame: index of the callee in [`Profile::frames`] and the samples, once
    /// per adjacent pair (so recursion can exceed `total`). In order of first sight; empty for
    /// a frame that was only ever a leaf.
    pub edges: Vec<(u32, u64)>,
    /// Current lines above 0: line, its total (once per occurrence, recursion included), its own
    /// samples (leaf only). In order of first sight.
    pub lines: Vec<(i32, u64, u64)>,
    /// The part of its samples whose thread waited for the GVL.
    pub waiting: Counts,
    /// The part of its samples whose thread had given the GVL up.
    pub blocked: Counts,
    /// Its samples by the CPU clock, where both clocks were counted.
    pub cpu: Counts,
}

impl FrameTotals {
    pub(super) fn waiting_mut(&mut self) -> &mut Counts {
        &mut self.waiting
    }

    pub(super) fn blocked_mut(&mut self) -> &mut Counts {
        &mut self.blocked
    }

    pub(super) fn cpu_mut(&mut self) -> &mut Counts {
        &mut self.cpu
    }
}

impl Profile {
    /// Visits every real frame once, never a fake one: what GC must mark while the profile is
    /// turned into names.
    pub fn each_frame(&self, visit: impl FnMut(u64)) {
        let all = self.frames.iter().chain(&self.gc_callers);
        frames::each_real(all.map(|totals| totals.frame), visit);
    }
}
