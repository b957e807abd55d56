//! Memory of the handler, allocated and touched before the first tick.

use crate::sample::MAX_DEPTH;
use std::ffi::c_int;

/// Frames asked of the VM: one more than is kept, so that a cut stack is known as such.
pub const WALK_LIMIT: usize = MAX_DEPTH + 1;

/// Where a walk lands and where its words are packed. Two word buffers: this stack and the last one.
#[derive(Debug)]
pub struct Scratch {
    pub(super) frames: Box<[u64]>,
    pub(super) lines: Box<[c_int]>,
    pub(super) words: Box<[u64]>,
    pub(super) last: Box<[u64]>,
}

impl Scratch {
    /// Allocates the buffers and writes every page of them (56 KiB in all), so that no handler takes
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
            frames: touched(WALK_LIMIT)?,
            lines: touched(WALK_LIMIT)?,
            words: touched(2 * MAX_DEPTH)?,
            last: touched(2 * MAX_DEPTH)?,
        })
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

fn touched<T: Copy + From<u8>>(len: usize) -> Option<Box<[T]>> {
    let mut items = Vec::new();
    items.try_reserve_exact(len).ok()?;
    // A zeroed allocation is not backed by memory yet; ones are.
    items.resize(len, T::from(1));
    Some(items.into_boxed_slice())
}
