//! What each thread was credited with.
//!
//! Records name a slot; who has the slot is told by [`Threads::begins`]. A thread gets its index at its
//! first record, so that threads that come and go unseen cost nothing.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::memory::{self, NoMemory};
use super::LastStack;
use crate::sample::{State, NO_SLOT};

/// Index of samples that are no thread's.
pub const NO_THREAD: u32 = u32::MAX;
/// Threads that are told apart; all later ones share one more index.
pub const MAX_INDICES: usize = 10_000;

/// The counts of one thread. All are sums of weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTotals {
    /// The number that it was entered with, or [`SHARED`].
    pub serial: u64,
    /// By [`State`]; time in GC is not among them.
    pub states: [u64; 3],
    /// In garbage collection.
    pub gc: u64,
    /// By the CPU clock, where both clocks were counted.
    pub cpu: u64,
}

/// Serial of the entry that threads beyond [`MAX_INDICES`] share.
pub const SHARED: u64 = u64::MAX;

impl ThreadTotals {
    /// All samples of the thread.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.states.iter().sum::<u64>() + self.gc
    }
}

/// No node: the tree gives this number to none.
const NO_NODE: u32 = u32::MAX;

/// Where a slot's records go.
#[derive(Clone, Copy, Debug)]
struct Slot {
    serial: u64,
    /// Its index, once it has one.
    index: u32,
    /// Node of its last stack, [`NO_NODE`] if there is none; whether that was cut, and whether it was folded.
    node: u32,
    truncated: bool,
    folded: bool,
}

/// Totals by thread.
#[derive(Debug, Default)]
pub(super) struct Threads {
    totals: Vec<ThreadTotals>,
    by_serial: HashMap<u64, u32, FxBuildHasher>,
    slots: Vec<Option<Slot>>,
}

impl Threads {
    /// From now on the records of `slot` are those of the thread `serial`.
    pub(super) fn begins(&mut self, slot: u16, serial: u64) -> Result<(), NoMemory> {
        let place = usize::from(slot);
        if place >= self.slots.len() {
            let more = place + 1 - self.slots.len();
            memory::reserve(&mut self.slots, more)?;
            self.slots.resize(place + 1, None);
        }
        self.slots[place] = Some(Slot {
            serial,
            index: self.by_serial.get(&serial).copied().unwrap_or(NO_THREAD),
            node: NO_NODE,
            truncated: false,
            folded: false,
        });
        Ok(())
    }

    /// Index of the thread that has `slot`; [`NO_THREAD`] if nobody has.
    pub(super) fn index(&mut self, slot: u16) -> Result<u32, NoMemory> {
        let Self {
            totals,
            by_serial,
            slots,
        } = self;
        let Some(Some(slot)) = slots.get_mut(usize::from(slot)) else {
            return Ok(NO_THREAD);
        };
        if slot.index == NO_THREAD {
            memory::reserve(totals, 1)?;
            by_serial.try_reserve(1).map_err(|_| NoMemory)?;
            let serial = if totals.len() < MAX_INDICES {
                slot.serial
            } else {
                SHARED
            };
            slot.index = *by_serial.entry(serial).or_insert_with(|| {
                totals.push(ThreadTotals {
                    serial,
                    ..ThreadTotals::default()
                });
                totals.len() as u32 - 1
            });
        }
        Ok(slot.index)
    }

    /// Remembers its slot's last stack.
    pub(super) fn saw(&mut self, stack: LastStack) {
        if stack.slot == NO_SLOT {
            return;
        }
        if let Some(Some(slot)) = self.slots.get_mut(usize::from(stack.slot)) {
            slot.node = stack.node;
            slot.truncated = stack.truncated;
            slot.folded = stack.folded;
        }
    }

    /// A slot's last stack, if it has one.
    pub(super) fn last(&self, slot: u16) -> Option<LastStack> {
        let found = self.slots.get(usize::from(slot)).copied().flatten()?;
        (found.node != NO_NODE).then_some(LastStack {
            node: found.node,
            slot,
            truncated: found.truncated,
            folded: found.folded,
        })
    }

    /// Nobody's last stack is known any more.
    pub(super) fn forget_last(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            slot.node = NO_NODE;
        }
    }

    /// Adds to a thread's totals.
    pub(super) fn credit(&mut self, index: u32, state: Option<State>, weight: u64, cpu: u64) {
        let Some(totals) = self.totals.get_mut(index as usize) else {
            return;
        };
        let part = match state {
            Some(state) => &mut totals.states[state as usize],
            None => &mut totals.gc,
        };
        *part = part.saturating_add(weight);
        totals.cpu = totals.cpu.saturating_add(cpu);
    }

    /// Whether the thread has an index.
    pub(super) fn knows(&self, serial: u64) -> bool {
        self.by_serial.contains_key(&serial)
    }

    /// The totals, by index.
    pub(super) fn try_totals(&self) -> Result<Vec<ThreadTotals>, NoMemory> {
        memory::collect(self.totals.iter().cloned())
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.totals.capacity() * size_of::<ThreadTotals>()
            + self.by_serial.allocation_size()
            + self.slots.capacity() * size_of::<Option<Slot>>()
    }
}
