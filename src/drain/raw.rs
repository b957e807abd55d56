//! Raw: the stacks in order of time, as (node, weight, time), never as lists of frames.
//!
//! A record of weight n at time t stands for n samples, at t − (n−1)·interval, …, t. Records of
//! different threads overlap, so times are held to never go down, nor below the start: Σ deltas is
//! then the time of the last sample since the start.

use static_assertions::assert_eq_size;

use super::memory::{self, NoMemory};
use super::tree::ROOT;
use crate::sample::State;

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

/// Whose a point is, and in what state: `thread:30 | state:2`, highest bits first; state 3 is GC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u32);

const IN_GC: u32 = 3;
const NOBODY: u32 = u32::MAX >> 2;

impl Tag {
    pub(super) fn new(thread: u32, state: Option<State>) -> Self {
        let state = state.map_or(IN_GC, |state| state as u32);
        Self(thread.min(NOBODY) << 2 | state)
    }

    /// Index in [`Profile::threads`](super::Profile::threads); `None` for samples that are no thread's.
    #[must_use]
    pub const fn thread(self) -> Option<u32> {
        match self.0 >> 2 {
            NOBODY => None,
            thread => Some(thread),
        }
    }

    /// What the thread was doing; `None` in GC.
    #[must_use]
    pub const fn state(self) -> Option<State> {
        match self.0 & 3 {
            0 => Some(State::Running),
            1 => Some(State::Waiting),
            2 => Some(State::Blocked),
            _ => None,
        }
    }
}

assert_eq_size!(Tag, u32);

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
    /// As many as points, or none.
    tags: Vec<Tag>,
    /// As many as points, where both clocks were counted.
    cpu_weights: Option<Vec<u32>>,
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
            tags: Vec::new(),
            cpu_weights: None,
            nodes,
            starts,
            interval_ns,
            monotone_deltas,
        }
    }

    pub(super) fn with_tags(mut self, tags: Vec<Tag>, cpu_weights: Option<Vec<u32>>) -> Self {
        self.tags = tags;
        self.cpu_weights = cpu_weights;
        self
    }

    /// One tag per sample, as [`Raw::timestamps_us`] has one time.
    pub fn sample_tags(&self) -> impl Iterator<Item = Tag> + '_ {
        let weights = self.points.iter().map(|point| point.weight as usize);
        let tags = self.tags.iter().zip(weights);
        tags.flat_map(|(&tag, weight)| std::iter::repeat_n(tag, weight))
    }

    /// One weight by the CPU clock per run; `None` unless both clocks were counted.
    pub fn run_cpu_weights(&self) -> Option<impl Iterator<Item = u64> + '_> {
        let weights = self.cpu_weights.as_deref()?;
        let mut done = 0;
        let chunks = self.points.chunk_by(|a, b| a.node == b.node);
        Some(chunks.map(move |chunk| {
            let part = weights.get(done..done + chunk.len()).unwrap_or_default();
            done += chunk.len();
            part.iter().map(|&weight| u64::from(weight)).sum()
        }))
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

    /// How many numbers StackProf's `raw` takes for all runs: for each its depth, its frames and its weight.
    ///
    /// # Errors
    /// [`NoMemory`], for it takes some.
    pub fn words(&self) -> Result<u64, NoMemory> {
        let mut depths = memory::collect(self.nodes.iter().map(|_| 0_u16))?;
        let mut sum = 0;
        for run in self.runs() {
            sum += 2 + u64::from(self.depth(run.node, &mut depths));
        }
        Ok(sum)
    }

    /// The depth of a stack; those of the nodes on its way are noted.
    fn depth(&self, node: u32, depths: &mut [u16]) -> u16 {
        let known = |number: u32, depths: &[u16]| match depths.get(number as usize) {
            Some(0) if number != ROOT => None,
            depth => Some(depth.copied().unwrap_or_default()),
        };
        let mut steps = 0;
        let mut number = node;
        let base = loop {
            if let Some(depth) = known(number, depths) {
                break depth;
            }
            steps += 1;
            number = self.nodes[number as usize].parent;
        };
        // No stack is deeper than MAX_DEPTH, which fits.
        let depth = base + steps;
        let (mut number, mut left) = (node, depth);
        while left > base {
            depths[number as usize] = left;
            left -= 1;
            number = self.nodes[number as usize].parent;
        }
        depth
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
