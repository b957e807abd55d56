//! The producer's side: walks a stack, packs it, writes the record. Reached only with the seat (I1).

use super::plan::Plan;
use super::scratch::{Scratch, WALK_LIMIT};
use super::vm_hooks::VmHooks;
use crate::ring::Producer;
use crate::sample::{
    FrameLine, GcCause, GcPhase, Header, Kind, State, FIXED_WORDS, MAX_DEPTH, MAX_WEIGHT, NO_SLOT,
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
    /// The thread is off the GVL: its time is credited when it comes back.
    Paused,
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

impl Outcome {
    /// Whether the time is accounted for: in a record, owed to one, or counted as missed. Otherwise it
    /// goes to the thread's next record.
    #[must_use]
    pub const fn settles_time(self) -> bool {
        matches!(self, Self::Recorded | Self::Folded | Self::RingFull)
    }
}

/// What a record says besides its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Slot of the thread, or [`NO_SLOT`].
    pub slot: u16,
    /// Time of the tick, in ns.
    pub time: u64,
    /// Intervals by the profile's clock.
    pub weight: u64,
    /// Intervals by the CPU clock, where both are counted.
    pub cpu: u64,
    /// What the thread was doing.
    pub state: State,
}

/// The stack record that an `Again` would refer to: the last one in the ring.
#[derive(Clone, Copy, Debug)]
struct Last {
    slot: u16,
    len: usize,
    truncated: bool,
}

/// The producer and all that it needs to write a record.
#[derive(Debug)]
pub struct Writer {
    /// The profile's plan.
    pub plan: Plan,
    producer: Producer,
    scratch: Scratch,
    last: Option<Last>,
    /// Stacks that were folded, not yet in the ring: weight 0 if there are none.
    owed: Mark,
    missed: u64,
    written: u64,
    used: usize,
    /// Number of the last collection whose cause was written.
    collection: u64,
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
            owed: Mark::default(),
            missed: 0,
            written: 0,
            used: 0,
            collection: 0,
        }
    }

    /// Words in the ring after the last write.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Takes what was folded and never reached the ring; it belongs to the last stack record.
    pub fn take_owed(&mut self) -> Mark {
        std::mem::take(&mut self.owed)
    }

    /// Takes the number of records that were written since the last call.
    pub fn take_written(&mut self) -> u64 {
        std::mem::take(&mut self.written)
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
    pub unsafe fn walk(&mut self, hooks: &VmHooks, mark: Mark) -> Outcome {
        // SAFETY: (I6) the caller's promise; both buffers have WALK_LIMIT entries.
        let walked = unsafe {
            (hooks.profile_frames)(
                0,
                WALK_LIMIT as c_int,
                self.scratch.frames.as_mut_ptr(),
                self.scratch.lines.as_mut_ptr(),
            )
        };
        // SAFETY: (I7) the VM wrote these frames just now.
        match unsafe { self.take_walk(walked) } {
            Ok((len, truncated)) => self.write_stack(len, truncated, mark),
            Err(outcome) => outcome,
        }
    }

    /// Walks the stack of another thread, which is off the GVL, and records it.
    ///
    /// # Safety
    /// Under the GVL, outside of any handler; `thread` is a living Thread, its stack was found walkable.
    pub unsafe fn walk_other(&mut self, hooks: &VmHooks, thread: u64, mark: Mark) -> Outcome {
        let Some(profile_thread_frames) = hooks.profile_thread_frames else {
            return Outcome::NoFrames;
        };
        // SAFETY: (I6) the caller's promise; both buffers have WALK_LIMIT entries.
        let walked = unsafe {
            profile_thread_frames(
                thread,
                0,
                WALK_LIMIT as c_int,
                self.scratch.frames.as_mut_ptr(),
                self.scratch.lines.as_mut_ptr(),
            )
        };
        // SAFETY: (I7) the VM wrote these frames just now.
        match unsafe { self.take_walk(walked) } {
            Ok((len, truncated)) => self.write_stack(len, truncated, mark),
            Err(outcome) => outcome,
        }
    }

    /// Packs what a walk left in the scratch: the number of words, and whether the root is missing.
    ///
    /// # Safety
    /// The VM has just written `walked` frames.
    #[inline]
    unsafe fn take_walk(&mut self, walked: c_int) -> Result<(usize, bool), Outcome> {
        let walked = usize::try_from(walked).unwrap_or(0).min(WALK_LIMIT);
        let truncated = walked > MAX_DEPTH;
        let mut depth = walked.min(MAX_DEPTH);
        if let Some(&root) = self.scratch.frames[..depth].last() {
            if root != 0 && root == self.plan.pseudo_root && !truncated {
                depth -= 1;
            }
        }
        if depth == 0 {
            return Err(Outcome::NoFrames);
        }
        // SAFETY: (I7) the VM wrote these VALUEs a moment ago and read each of them itself.
        match unsafe { self.pack(depth) } {
            Some(len) => Ok((len, truncated)),
            None => Err(Outcome::Invalid),
        }
    }

    /// The stack that was recorded a moment ago, with more time. Only after a walk that settled its time,
    /// with nothing written in between.
    pub fn again(&mut self, mark: Mark) -> Outcome {
        match self.last {
            Some(last) if last.slot == mark.slot => self.repeat(mark),
            // The ring was full, so there is nothing to repeat.
            _ => {
                self.missed += mark.weight;
                Outcome::RingFull
            }
        }
    }

    /// More time for the last stack of the thread in `mark.slot`, whoever else recorded since.
    /// Async-signal-safe.
    pub fn rest(&mut self, mark: Mark) -> Outcome {
        self.settle();
        self.write(Kind::Rest, GcPhase::None, false, None, mark, 0)
    }

    /// Records a tick inside GC. Async-signal-safe.
    #[inline]
    pub fn write_gc(&mut self, phase: GcPhase, collection: u64, mark: Mark) -> Outcome {
        self.settle();
        self.write(Kind::Gc, phase, false, Some(collection), mark, 0)
    }

    /// Records the calling thread's stack as that from which a collection was started, once for each.
    /// Its frames are marked by the collection itself.
    ///
    /// # Safety
    /// As for [`Writer::walk`]; GC may be marking, but moves nothing yet.
    pub unsafe fn walk_cause(
        &mut self,
        hooks: &VmHooks,
        collection: u64,
        cause: GcCause,
        mut mark: Mark,
    ) -> Outcome {
        if collection == self.collection {
            return Outcome::Folded;
        }
        // SAFETY: (I6) the caller's promise; both buffers have WALK_LIMIT entries.
        let walked = unsafe {
            (hooks.profile_frames)(
                0,
                WALK_LIMIT as c_int,
                self.scratch.frames.as_mut_ptr(),
                self.scratch.lines.as_mut_ptr(),
            )
        };
        // SAFETY: (I7) the VM wrote these frames just now.
        match unsafe { self.take_walk(walked) } {
            Ok((len, truncated)) => {
                self.settle();
                self.collection = collection;
                mark.weight = cause as u64;
                let collection = Some(collection);
                self.write(Kind::Cause, GcPhase::None, truncated, collection, mark, len)
            }
            Err(outcome) => outcome,
        }
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

    fn write_stack(&mut self, len: usize, truncated: bool, mark: Mark) -> Outcome {
        let same = self.last.is_some_and(|last| {
            last.slot == mark.slot
                && last.len == len
                && last.truncated == truncated
                && mark.slot != NO_SLOT
                && self.scratch.words[..len] == self.scratch.last[..len]
        });
        if same {
            return self.repeat(mark);
        }
        self.settle();
        let outcome = self.write(Kind::Stack, GcPhase::None, truncated, None, mark, len);
        if outcome == Outcome::Recorded {
            std::mem::swap(&mut self.scratch.words, &mut self.scratch.last);
            self.last = Some(Last {
                slot: mark.slot,
                len,
                truncated,
            });
        }
        outcome
    }

    /// The last stack again: a record of its own while there is room, then folded.
    fn repeat(&mut self, mark: Mark) -> Outcome {
        let owed = self.owed;
        if owed.weight + mark.weight > MAX_WEIGHT || (owed.weight > 0 && owed.state != mark.state) {
            self.settle();
        }
        let together = Mark {
            weight: self.owed.weight + mark.weight,
            cpu: self.owed.cpu + mark.cpu,
            ..mark
        };
        self.used = self.producer.used();
        if self.used >= self.plan.high_water {
            self.owed = together;
            return Outcome::Folded;
        }
        self.owed = Mark::default();
        self.write(Kind::Again, GcPhase::None, false, None, together, 0)
    }

    /// Writes what is owed to the last stack, before a record of another kind follows it.
    fn settle(&mut self) {
        let owed = self.take_owed();
        if owed.weight > 0 {
            // A full ring was counted as missed by `write` itself.
            let _ = self.write(Kind::Again, GcPhase::None, false, None, owed, 0);
        }
    }

    /// One record, with `len` words of frames out of the scratch.
    #[inline]
    fn write(
        &mut self,
        kind: Kind,
        phase: GcPhase,
        truncated: bool,
        collection: Option<u64>,
        mark: Mark,
        len: usize,
    ) -> Outcome {
        let mut prefix = [0, mark.time, 0, 0];
        let mut fixed = FIXED_WORDS;
        if let Some(collection) = collection {
            prefix[fixed] = collection;
            fixed += 1;
        }
        let both = self.plan.both_clocks;
        if both {
            prefix[fixed] = mark.cpu;
            fixed += 1;
        }
        let header = Header::new(kind, phase, truncated, fixed + len, mark.slot, mark.weight)
            .in_state(mark.state);
        prefix[0] = if both { header.with_cpu().0 } else { header.0 };
        let written = self
            .producer
            .try_write(&prefix[..fixed], &self.scratch.words[..len]);
        self.used = self.producer.used();
        if written.is_ok() {
            self.written += 1;
            Outcome::Recorded
        } else {
            self.missed += header.intervals();
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
