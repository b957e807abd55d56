//! What the weights of a node are made of, beside the sum that the node itself keeps.
//!
//! A column is as long as its last node that has something in it: a profile in which no thread waits,
//! blocks or counts CPU time pays nothing.

use super::memory::{self, NoMemory};

/// The columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Weights of threads that waited for the GVL.
    Waiting = 0,
    /// Weights of threads that had given the GVL up.
    Blocked = 1,
    /// Weights by the CPU clock.
    Cpu = 2,
}

/// Bytes that a node takes in all columns.
pub(super) const BYTES_A_NODE: usize = 3 * size_of::<u64>();

/// Weights by column and node.
#[derive(Debug, Default)]
pub(super) struct Columns([Vec<u64>; 3]);

impl Columns {
    /// Memory for a node's weight in a column, so that adding to it cannot fail; never for more nodes than the tree has room
    /// for.
    pub(super) fn make_room(
        &mut self,
        column: Column,
        node: u32,
        room: usize,
    ) -> Result<(), NoMemory> {
        let column = &mut self.0[column as usize];
        let length = node as usize + 1;
        if length > column.len() {
            memory::reserve_up_to(column, length, room)?;
            column.resize(length, 0);
        }
        Ok(())
    }

    /// Adds to a node's weight in a column, where there is room for it.
    pub(super) fn add(&mut self, column: Column, node: u32, weight: u64) {
        if let Some(sum) = self.0[column as usize].get_mut(node as usize) {
            *sum = sum.saturating_add(weight);
        }
    }

    /// A column by node number; shorter than the tree where the rest is 0.
    pub(super) fn get(&self, column: Column) -> &[u64] {
        &self.0[column as usize]
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let words = self.0.iter().map(Vec::capacity).sum::<usize>();
        words * size_of::<u64>()
    }
}
