//! Memory of the handler, allocated and touched before the first tick.

use super::trail::Trail;
use crate::sample::{FrameLine, MAX_DEPTH};
use std::ffi::c_int;

/// Frames asked of the VM: one more than is kept, so that a cut stack is known as such.
pub const WALK_LIMIT: usize = MAX_DEPTH + 1;

/// Frames and lines of a stack.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) frames: Box<[u64]>,
    pub(super) lines: Box<[c_int]>,
}

impl Walk {
    fn try_new() -> Option<Self> {
        Some(Self {
            frames: touched(WALK_LIMIT, 1)?,
            lines: touched(WALK_LIMIT, 1)?,
        })
    }

    /// The frame at that place.
    #[inline]
    pub(super) fn at(&self, place: usize) -> FrameLine {
        FrameLine::new(self.frames[place], self.lines[place])
    }

    /// How many of the first `leaf` frames of this stack, which is leaf first, counted from its end, are those of
    /// `other`, which is root first, from `kept` up to `depth`.
    #[inline]
    pub(super) fn continues(&self, leaf: usize, other: &Self, kept: usize, depth: usize) -> usize {
        let (frames, lines) = (&self.frames[..leaf], &self.lines[..leaf]);
        let ours = frames.iter().rev().zip(lines.iter().rev());
        let theirs = other.frames[kept..depth]
            .iter()
            .zip(&other.lines[kept..depth]);
        ours.zip(theirs)
            .take_while(|(one, other)| one == other)
            .count()
    }

    /// Makes the frames from `kept` on those of `leaf_first`'s first `leaf`; this stack is root first.
    #[inline]
    pub(super) fn replace_leaf_side(&mut self, kept: usize, leaf_first: &Self, leaf: usize) {
        let places = kept..kept + leaf;
        let frames = self.frames[places.clone()]
            .iter_mut()
            .zip(&mut self.lines[places]);
        let leaf_side = leaf_first.frames[..leaf]
            .iter()
            .zip(&leaf_first.lines[..leaf]);
        for ((frame, line), (&new_frame, &new_line)) in frames.zip(leaf_side.rev()) {
            (*frame, *line) = (new_frame, new_line);
        }
    }
}

/// Where a walk lands, the stack that the last record meant, and where words are packed.
#[derive(Debug)]
pub struct Scratch {
    /// Leaf first, as the VM has it.
    pub(super) walk: Walk,
    /// Root first, so that what is shared stays where it is.
    pub(super) last: Walk,
    /// What the last stack's control frames looked like.
    pub(super) trail: Trail,
    pub(super) words: Box<[u64]>,
    /// A whole walk that a short one is held against.
    #[cfg(feature = "testing")]
    pub(super) whole: Walk,
}

impl Scratch {
    /// Allocates the buffers and writes every page of them (210 KiB in all), so that no handler takes
    /// a page fault.
    ///
    /// # Panics
    /// When there is no memory for them; [`Scratch::try_new`] says so instead.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "never in a handler")]
    pub fn new() -> Self {
        Self::try_new().expect("memory for the scratch")
    }

    /// As [`Scratch::new`]; `None` when there is no memory for them.
    #[must_use]
    pub fn try_new() -> Option<Self> {
        Some(Self {
            walk: Walk::try_new()?,
            last: Walk::try_new()?,
            trail: Trail::try_new()?,
            words: touched(2 * MAX_DEPTH, 1)?,
            #[cfg(feature = "testing")]
            whole: Walk::try_new()?,
        })
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// `len` times `item`, which must not be all zeros: a zeroed allocation is not backed by memory yet.
pub(super) fn touched<T: Copy>(len: usize, item: T) -> Option<Box<[T]>> {
    let mut items = Vec::new();
    items.try_reserve_exact(len).ok()?;
    items.resize(len, item);
    Some(items.into_boxed_slice())
}
