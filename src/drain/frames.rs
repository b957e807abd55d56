//! The set of distinct frames, in order of first sight.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::{memory, Corrupt};
use crate::sample::FrameLine;

/// Distinct frames (without lines), numbered from 0 in order of first sight.
#[derive(Debug, Default)]
pub(super) struct FrameSet {
    frames: Vec<u64>,
    /// Indices into `frames`, by the frame.
    index: HashTable<u32>,
}

impl FrameSet {
    /// Memory for `count` more frames, so that adding them cannot fail.
    pub(super) fn make_room(&mut self, count: usize) -> Result<(), Corrupt> {
        let Self { frames, index } = self;
        memory::reserve(frames, count)?;
        let indexed = index.try_reserve(count, |&i| FxBuildHasher.hash_one(frames[i as usize]));
        indexed.map_err(|_| Corrupt::NoMemory)
    }

    /// By how many bytes [`FrameSet::make_room`] would make the set grow, at most.
    pub(super) fn growth(&self, count: usize) -> usize {
        memory::growth(&self.frames, count) + memory::table_growth(&self.index, count)
    }

    /// Adds `frame` if it is new; there is room for it. The tree has a node number to spare for every frame, so the
    /// index always fits.
    pub(super) fn add(&mut self, frame: u64) {
        let Self { frames, index } = self;
        let hash = FxBuildHasher.hash_one(frame);
        if index.find(hash, |&i| frames[i as usize] == frame).is_some() {
            return;
        }
        let new = frames.len() as u32;
        frames.push(frame);
        index.insert_unique(hash, new, |&i| FxBuildHasher.hash_one(frames[i as usize]));
    }

    /// Number of `frame`, if it was ever added.
    pub(super) fn index_of(&self, frame: u64) -> Option<u32> {
        let hash = FxBuildHasher.hash_one(frame);
        let same = |&i: &u32| self.frames[i as usize] == frame;
        self.index.find(hash, same).copied()
    }

    /// All frames, in order of first sight.
    pub(super) fn as_slice(&self) -> &[u64] {
        &self.frames
    }

    /// Visits the frames that are VALUEs of the VM, not fake.
    pub(super) fn each_real(&self, visit: impl FnMut(u64)) {
        each_real(self.frames.iter().copied(), visit);
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.frames.capacity() * size_of::<u64>() + self.index.allocation_size()
    }
}

/// Visits those of `frames` that are VALUEs of the VM, not fake.
pub(super) fn each_real(frames: impl Iterator<Item = u64>, visit: impl FnMut(u64)) {
    frames
        .filter(|&frame| !FrameLine::new(frame, 0).is_fake())
        .for_each(visit);
}
