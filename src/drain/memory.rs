//! Room in a vector, or the system's refusal (I13).

use std::fmt;

use super::Corrupt;

/// The system has no memory to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system has no memory to give")
    }
}

impl std::error::Error for NoMemory {}

impl From<NoMemory> for Corrupt {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// Room for `more` items, and for many more where the vector grows at all.
pub(super) fn reserve<T>(list: &mut Vec<T>, more: usize) -> Result<(), NoMemory> {
    list.try_reserve(more).map_err(|_| NoMemory)
}

/// `list.push(item)`.
pub(super) fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), NoMemory> {
    reserve(list, 1)?;
    list.push(item);
    Ok(())
}

/// The items, whose number is known, in a vector.
pub(super) fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>, NoMemory> {
    let mut list = Vec::new();
    list.try_reserve_exact(items.len()).map_err(|_| NoMemory)?;
    list.extend(items);
    Ok(list)
}
