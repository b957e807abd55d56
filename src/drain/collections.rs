//! Who started the collections that ticks met: a tree of their stacks beside the tree of samples.
//!
//! A tick inside GC and the record of what started that GC name the same collection, and either may
//! come first: ticks fall before our mark function is reached.

use super::derive;
use super::frames::FrameSet;
use super::memory::NoMemory;
use super::profile::FrameTotals;
use super::tree::Tree;
use super::Corrupt;
use crate::sample::{FrameLine, GcCause};

/// What is known of one kind of cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseTotals {
    /// Collections seen to start for it.
    pub collections: u64,
    /// Samples inside them.
    pub samples: u64,
}

/// Totals by [`GcCause`].
pub(super) type Causes = [CauseTotals; GcCause::ALL.len()];

/// Stacks that started collections, credited with the samples inside those.
#[derive(Debug)]
pub(super) struct Collections {
    tree: Tree,
    frames: FrameSet,
    /// The last collection whose cause is known.
    current: Option<(u64, u32, GcCause)>,
    /// Samples in a collection whose cause has not been seen yet.
    early: Option<(u64, u64)>,
    causes: Causes,
}

impl Collections {
    pub(super) fn new() -> Self {
        Self {
            tree: Tree::new(),
            frames: FrameSet::default(),
            current: None,
            early: None,
            causes: Default::default(),
        }
    }

    /// Collection `number` was started by `cause` from this stack, which may take `room` bytes.
    pub(super) fn starts(
        &mut self,
        number: u64,
        cause: GcCause,
        leaf_first: &[FrameLine],
        room: usize,
    ) -> Result<(), Corrupt> {
        let place = self.tree.descend(0, leaf_first, &mut self.frames, room)?;
        let node = place.node;
        self.current = Some((number, node, cause));
        self.causes[cause as usize].collections += 1;
        if let Some((early, weight)) = self.early.take() {
            self.count(early, weight);
        }
        Ok(())
    }

    /// A tick of that weight fell into collection `number`.
    pub(super) fn count(&mut self, number: u64, weight: u64) {
        match self.current {
            Some((current, node, cause)) if current == number => {
                self.tree.credit(node, weight);
                self.add(cause, weight);
            }
            _ => match &mut self.early {
                Some((early, sum)) if *early == number => *sum = sum.saturating_add(weight),
                early => {
                    // Its cause never came.
                    if let Some((_, weight)) = early.replace((number, weight)) {
                        self.add(GcCause::Unknown, weight);
                    }
                }
            },
        }
    }

    fn add(&mut self, cause: GcCause, weight: u64) {
        let samples = &mut self.causes[cause as usize].samples;
        *samples = samples.saturating_add(weight);
    }

    /// Visits every real frame once.
    pub(super) fn each_real(&self, visit: impl FnMut(u64)) {
        self.frames.each_real(visit);
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.tree.bytes() + self.frames.bytes()
    }

    /// The part of it that grows with the number of stacks.
    pub(super) fn bytes_of_nodes(&self) -> usize {
        self.tree.bytes_of_nodes() + self.frames.bytes()
    }

    /// The frames of those stacks that have samples, and the totals by cause.
    pub(super) fn try_finish(&mut self) -> Result<(Vec<FrameTotals>, Causes), NoMemory> {
        if let Some((_, weight)) = self.early.take() {
            self.add(GcCause::Unknown, weight);
        }
        let nodes = self.tree.nodes();
        let indices = derive::frame_indices(nodes, &self.frames)?;
        let frames = derive::frame_totals(nodes, &indices, &self.frames)?;
        // Callers are found by their place in the list, so those without samples stay in it.
        Ok((frames, self.causes))
    }
}
