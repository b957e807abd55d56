//! Room in a vector, or the system's refusal (I13).

use std::fmt;

use hashbrown::HashTable;

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

/// By how many bytes [`reserve`] would make a vector grow.
pub(super) fn growth<T>(list: &Vec<T>, more: usize) -> usize {
    let (length, capacity) = (list.len(), list.capacity());
    if capacity - length >= more {
        return 0;
    }
    let grown = (2 * capacity).max(length + more).max(4);
    (grown - capacity) * size_of::<T>()
}

/// By how many bytes room for `more` numbers would make a hash table of them grow, at most.
pub(super) fn table_growth(table: &HashTable<u32>, more: usize) -> usize {
    let (length, capacity) = (table.len(), table.capacity());
    if capacity - length >= more {
        return 0;
    }
    // 7 of 8 buckets are used at most, their number is a power of two, and each has a byte of control; one group of those
    // is there twice (hashbrown's layout).
    let buckets = ((capacity + 1).max(length + more) * 8 / 7 + 1)
        .next_power_of_two()
        .max(4);
    let bytes = buckets * (size_of::<u32>() + 1) + 2 * 16;
    bytes.saturating_sub(table.allocation_size())
}

/// Room for `length` items in all, and for up to `most` where the vector grows at all.
pub(super) fn reserve_up_to<T>(
    list: &mut Vec<T>,
    length: usize,
    most: usize,
) -> Result<(), NoMemory> {
    if length <= list.capacity() {
        return Ok(());
    }
    let wanted = (2 * list.capacity()).min(most).max(length);
    let more = wanted - list.len();
    list.try_reserve_exact(more).map_err(|_| NoMemory)
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
