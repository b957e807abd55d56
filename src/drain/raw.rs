//! Raw: the stacks in order of time, as (node, weight, time), never as lists of frames.
//!
//! A record of weight n at time t stands for n samples, at t − (n−1)·interval, …, t. Records of
//! different threads overlap, so times are held to never go down, nor below the start: Σ deltas is
//! then the time of the last sample since the start.

use static_assertions::assert_eq_size;

use super::memory::{self, NoMemory};
use super::tree::ROOT;

const NS_PER_US: u64 = 1000;

/// One record: where it ended in the tree, what it weighs, when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Node of the stack, for [`Raw::stack`].
    pub node: u32,
    /// Number of samples, 1 or more.
    pub weight: u32,
    /// `CLOCK_MONOTONIC` in ns.
    pub time_ns: u64,
}

assert_eq_size!(Point, [u64; 2]);

/// Consecutive samples with the same stack, lines included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Node of the stack, for [`Raw::stack`].
    pub node: u32,
    /// Number of samples.
    pub weight: u64,
}

/// One frame of a stack in raw: index in [`Profile::frames`](super::Profile::frames), and line.
pub type StackFrame = (u32, i32);

/// Where a profile began, or went on after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// Number of points before it.
    pub(super) point: usize,
    /// `CLOCK_MONOTONIC` in ns.
    pub(super) ns: u64,
}

/// A node of the tree, as far as a stack needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackNode {
    pub(super) parent: u32,
    /// Index in [`Profile::frames`](super::Profile::frames).
    pub(super) frame: u32,
    pub(super) line: i32,
}

/// Every recorded stack in order of time; expanded by iterators, one item at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    points: Vec<Point>,
    nodes: Vec<StackNode>,
    /// Index of the first sample after each start, and the start's time in µs.
    starts: Vec<(u64, u64)>,
    interval_ns: u64,
    monotone_deltas: bool,
}

impl Raw {
    pub(super) fn new(
        points: Vec<Point>,
        nodes: Vec<StackNode>,
        starts: Vec<(u64, u64)>,
        interval_ns: u64,
        monotone_deltas: bool,
    ) -> Self {
        Self {
            points,
            nodes,
            starts,
            interval_ns,
            monotone_deltas,
        }
    }

    /// Index of the first sample after each start, and the start's time in µs.
    pub(super) fn starts(points: &[Point], starts: &[Start]) -> Result<Vec<(u64, u64)>, NoMemory> {
        let mut samples = 0_u64;
        let mut seen = 0;
        memory::collect(starts.iter().map(|start| {
            let between = points.get(seen..start.point).unwrap_or_default();
            samples += between
                .iter()
                .map(|point| u64::from(point.weight))
                .sum::<u64>();
            seen = start.point;
            (samples, start.ns / NS_PER_US)
        }))
    }

    /// Records, in order.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Number of samples: how many items [`Raw::timestamps_us`] and [`Raw::deltas_us`] have.
    #[must_use]
    pub fn samples(&self) -> u64 {
        let weights = self.points.iter().map(|point| u64::from(point.weight));
        weights.fold(0, u64::saturating_add)
    }

    /// Runs of equal stacks, in order.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let chunks = self.points.chunk_by(|a, b| a.node == b.node);
        chunks.map(|chunk| Run {
            node: chunk[0].node,
            weight: chunk.iter().map(|point| u64::from(point.weight)).sum(),
        })
    }

    /// Replaces `out` with the stack of `node`, root first. Empty for a number that no run has.
    pub fn stack(&self, node: u32, out: &mut Vec<StackFrame>) {
        out.clear();
        let mut number = node;
        while number != ROOT {
            let Some(node) = self.nodes.get(number as usize) else {
                break;
            };
            out.push((node.frame, node.line));
            number = node.parent;
        }
        out.reverse();
    }

    /// One timestamp per sample, in µs of `CLOCK_MONOTONIC`; never going down, never before the
    /// start.
    pub fn timestamps_us(&self) -> impl Iterator<Item = u64> + '_ {
        let interval_ns = self.interval_ns;
        let times = self.points.iter().flat_map(move |point| {
            let later = (0..u64::from(point.weight)).rev();
            later.map(move |n| point.time_ns.saturating_sub(n.saturating_mul(interval_ns)))
        });
        times.scan(self.start_us(), |latest, time_ns| {
            *latest = (*latest).max(time_ns / NS_PER_US);
            Some(*latest)
        })
    }

    /// One delta per sample: µs since the sample before it, for the first after a start since that.
    /// Their sum is the time profiled up to the last sample. With
    /// [`Options::monotone_deltas`](super::Options::monotone_deltas) none is below 1, and what that
    /// adds is taken off the deltas that follow, as far as they have it.
    pub fn deltas_us(&self) -> impl Iterator<Item = u64> + '_ {
        let least = u64::from(self.monotone_deltas);
        let mut starts = self.starts.iter().peekable();
        let mut before = self.start_us();
        let mut debt = 0_u64;
        (0_u64..).zip(self.timestamps_us()).map(move |(n, time)| {
            while let Some(&(_, start)) = starts.next_if(|(first, _)| *first <= n) {
                before = before.max(start);
            }
            let delta = time.saturating_sub(before);
            let paid = delta.saturating_sub(debt).max(least);
            debt = debt.saturating_add(paid).saturating_sub(delta);
            before = before.max(time);
            paid
        })
    }

    /// The first start, in µs; 0 if none was told.
    fn start_us(&self) -> u64 {
        self.starts.first().map_or(0, |(_, start)| *start)
    }
}
