//! The producer's side: walks a stack, packs it, writes the record. Reached only with the seat (I1).

use super::plan::Plan;
use super::scratch::{Scratch, WALK_LIMIT};
use super::vm_hooks::VmHooks;
use crate::ring::Producer;
use crate::sample::{
    FrameLine, GcPhase, Header, Kind, FIXED_WORDS, MAX_DEPTH, MAX_WEIGHT, NO_SLOT,
};
use std::ffi::c_int;

/// What became of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A record was written.
    Recorded,
    /// The same stack again while the ring fills up: owed to the record before.
    Folded,
    /// Less than half an interval since the last record.
    Early,
    /// GC is running and the time goes to the next record.
    InGc,
    /// Handed to a safepoint.
    Deferred,
    /// A safepoint is awaited already.
    AwaitingSafepoint,
    /// No Ruby frame.
    NoFrames,
    /// No room.
    RingFull,
    /// Refused by the pre-flight.
    Torn,
    /// The walk returned something that is no frame.
    Invalid,
}

/// The stack record that an `Again` would refer to: the last one in the ring.
#[derive(Clone, Copy, Debug)]
struct Last {
    slot: u16,
    len: usize,
    truncated: bool,
}

/// Weight of stacks that were folded, not yet in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// Intervals.
    pub weight: u64,
    /// Time of the last of them, in ns.
    pub time: u64,
}

/// The producer and all that it needs to write a record.
#[derive(Debug)]
pub struct Writer {
    /// The profile's plan.
    pub plan: Plan,
    producer: Producer,
    scratch: Scratch,
    last: Option<Last>,
    owed: Owed,
    missed: u64,
    used: usize,
}

impl Writer {
    /// A writer into `producer`'s ring.
    #[must_use]
    pub fn new(producer: Producer, scratch: Scratch, plan: Plan) -> Self {
        Self {
            plan,
            producer,
            scratch,
            last: None,
            owed: Owed::default(),
            missed: 0,
            used: 0,
        }
    }

    /// Words in the ring after the last write.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Forgets the last stack: the tables that keep its frames alive are about to be emptied.
    pub fn forget_last(&mut self) {
        self.last = None;
    }

    /// Takes the folded weight that never reached the ring; it belongs to the last stack record.
    pub fn take_owed(&mut self) -> Owed {
        std::mem::take(&mut self.owed)
    }

    /// Takes the number of intervals that had to be given up since the last call.
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// Walks the calling thread's stack and records it. Async-signal-safe.
    ///
    /// # Safety
    /// The calling thread runs Ruby, its stack was found walkable, and no GC moves objects.
    #[inline]
    pub unsafe fn walk(&mut self, hooks: &VmHooks, slot: u16, time: u64, weight: u64) -> Outcome {
        // SAFETY: (I6) the caller's promise; both buffers have WALK_LIMIT entries.
        let walked = unsafe {
            (hooks.profile_frames)(
                0,
                WALK_LIMIT as c_int,
                self.scratch.frames.as_mut_ptr(),
                self.scratch.lines.as_mut_ptr(),
            )
        };
        let walked = usize::try_from(walked).unwrap_or(0).min(WALK_LIMIT);
        let truncated = walked > MAX_DEPTH;
        let mut depth = walked.min(MAX_DEPTH);
        if let Some(&root) = self.scratch.frames[..depth].last() {
            if root != 0 && root == self.plan.pseudo_root && !truncated {
                depth -= 1;
            }
        }
        if depth == 0 {
            return Outcome::NoFrames;
        }
        // SAFETY: (I7) the VM wrote these VALUEs a moment ago and read each of them itself.
        match unsafe { self.pack(depth) } {
            Some(len) => self.write_stack(len, truncated, slot, time, weight),
            None => Outcome::Invalid,
        }
    }

    /// Records a tick inside GC. Async-signal-safe.
    #[inline]
    pub fn write_gc(&mut self, phase: GcPhase, slot: u16, time: u64, weight: u64) -> Outcome {
        self.settle();
        let header = Header::new(Kind::Gc, phase, false, FIXED_WORDS, slot, weight);
        self.write(header, time, 0)
    }

    /// Packs `depth` frames into the word scratch; `None` if one of them is no frame.
    ///
    /// # Safety
    /// The frames were just written by the VM's walk on this thread.
    #[inline]
    unsafe fn pack(&mut self, depth: usize) -> Option<usize> {
        let frames = self.scratch.frames.get(..depth)?;
        let lines = self.scratch.lines.get(..depth)?;
        // Two words of room for each frame: the only bound to check.
        let words = self.scratch.words.get_mut(..2 * depth)?;
        let mut len = 0;
        for (&frame, &line) in frames.iter().zip(lines) {
            // SAFETY: (I7) the caller's promise.
            if !unsafe { is_frame(frame) } {
                return None;
            }
            // SAFETY: each frame before this one took two words at most, so two are left.
            let room = unsafe { &mut *words.as_mut_ptr().add(len).cast::<[u64; 2]>() };
            len += FrameLine::new(frame, line).encode(room);
        }
        Some(len)
    }

    fn write_stack(
        &mut self,
        len: usize,
        truncated: bool,
        slot: u16,
        time: u64,
        weight: u64,
    ) -> Outcome {
        let same = self.last.is_some_and(|last| {
            last.slot == slot
                && last.len == len
                && last.truncated == truncated
                && slot != NO_SLOT
                && self.scratch.words[..len] == self.scratch.last[..len]
        });
        if !same {
            self.settle();
            let header = Header::new(
                Kind::Stack,
                GcPhase::None,
                truncated,
                FIXED_WORDS + len,
                slot,
                weight,
            );
            let outcome = self.write(header, time, len);
            if outcome == Outcome::Recorded {
                std::mem::swap(&mut self.scratch.words, &mut self.scratch.last);
                self.last = Some(Last {
                    slot,
                    len,
                    truncated,
                });
            }
            return outcome;
        }
        let together = self.owed.weight + weight;
        if together > MAX_WEIGHT {
            self.settle();
            return self.write_again(slot, time, weight);
        }
        self.used = self.producer.used();
        if self.used >= self.plan.high_water {
            self.owed = Owed {
                weight: together,
                time,
            };
            return Outcome::Folded;
        }
        self.owed = Owed::default();
        self.write_again(slot, time, together)
    }

    fn write_again(&mut self, slot: u16, time: u64, weight: u64) -> Outcome {
        let header = Header::new(Kind::Again, GcPhase::None, false, FIXED_WORDS, slot, weight);
        self.write(header, time, 0)
    }

    /// Writes what is owed to the last stack, before a record of another kind follows it.
    fn settle(&mut self) {
        let owed = self.take_owed();
        if owed.weight == 0 {
            return;
        }
        let slot = self.last.map_or(NO_SLOT, |last| last.slot);
        // A full ring was counted as missed by `write` itself.
        let _ = self.write_again(slot, owed.time, owed.weight);
    }

    fn write(&mut self, header: Header, time: u64, len: usize) -> Outcome {
        let written = self
            .producer
            .try_write(&[header.0, time], &self.scratch.words[..len]);
        self.used = self.producer.used();
        if written.is_ok() {
            Outcome::Recorded
        } else {
            self.missed += header.weight();
            Outcome::RingFull
        }
    }
}

/// `T_IMEMO` in an object's flags.
const T_MASK: u64 = 0x1f;
const T_IMEMO: u64 = 0x1a;
/// Kind of imemo in its flags, and the two kinds that are frames (`internal/imemo.h`, 3.1 to 4.0).
const IMEMO_SHIFT: u32 = 12;
const IMEMO_MASK: u64 = 0xf;
const IMEMO_MENT: u64 = 6;
const IMEMO_ISEQ: u64 = 7;

/// Whether a VALUE is a method entry or an iseq (I7). A wrong one would kill a GC much later.
///
/// # Safety
/// The VM has read the object behind `frame` just now.
#[inline(always)]
unsafe fn is_frame(frame: u64) -> bool {
    if frame == 0 || frame & 7 != 0 {
        return false;
    }
    // SAFETY: (I7) the caller's promise; the flags are an object's first word.
    let flags = unsafe { std::ptr::read_volatile(frame as *const u64) };
    flags & T_MASK == T_IMEMO
        && matches!(flags >> IMEMO_SHIFT & IMEMO_MASK, IMEMO_MENT | IMEMO_ISEQ)
}
