//! The producer's side: walks a stack, packs it, writes the record. Reached only with the seat (I1).

use super::plan::Plan;
use super::preflight::{self, Layout, Torn};
use super::scratch::{Scratch, WALK_LIMIT};
use super::trail::Found;
use super::vm_hooks::VmHooks;
use crate::ring::{Position, Producer};
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

/// The stack record that an `Again` or a `Delta` would refer to: the last one in the ring (I15). Its frames are alive and in
/// place for as long as it is that, for they are in the ring, or in tables that live as long as this writer (I7).
#[derive(Clone, Copy, Debug)]
struct Last {
    slot: u16,
    depth: usize,
    /// Frames at the root that the VM gave and that are not recorded.
    dropped: usize,
    truncated: bool,
}

/// A stack that was walked: so many frames of the last one at the root side, and so many of the scratch at the leaf side.
#[derive(Clone, Copy, Debug)]
struct Walked {
    kept: usize,
    leaf: usize,
    dropped: usize,
    truncated: bool,
}

/// Frames that two stacks must have in common at the root side for the word that says so.
const WORTH_SHARING: usize = 2;

/// The producer and all that it needs to write a record.
#[derive(Debug)]
pub struct Writer {
    /// The profile's plan.
    pub plan: Plan,
    producer: Producer,
    scratch: Scratch,
    last: Option<Last>,
    /// Where the ring's last whole stack is.
    whole: Option<Position>,
    /// Stacks that were folded, not yet in the ring: weight 0 if there are none.
    owed: Mark,
    missed: u64,
    written: u64,
    used: usize,
    /// Number of the last collection whose cause was written.
    collection: u64,
    /// Walks that were whole, that were cut short, and that were so wrongly.
    #[cfg(feature = "testing")]
    walks: [u64; 3],
}

impl Writer {
    /// A writer into `producer`'s ring.
    #[must_use]
    pub fn new(producer: Producer, mut scratch: Scratch, plan: Plan) -> Self {
        // It may be that of a profile before this one.
        scratch.trail.forget();
        Self {
            plan,
            producer,
            scratch,
            last: None,
            whole: None,
            owed: Mark::default(),
            missed: 0,
            written: 0,
            used: 0,
            collection: 0,
            #[cfg(feature = "testing")]
            walks: [0; 3],
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

    /// The pre-flight of the calling thread's stack, and what of it is as it was when it was recorded last.
    /// Async-signal-safe.
    ///
    /// # Errors
    /// The stack must not be walked.
    ///
    /// # Safety
    /// As for [`preflight::check`].
    #[inline]
    pub unsafe fn check(&mut self, layout: Layout, thread: usize) -> Result<Option<Found>, Torn> {
        let trail = &mut self.scratch.trail;
        // SAFETY: the caller's promise.
        unsafe { preflight::check_along(layout, thread, trail, self.plan.pseudo_root) }
    }

    /// Walks the calling thread's stack and records it; of what was `found` by [`Writer::check`] only what has changed.
    /// Async-signal-safe.
    ///
    /// # Safety
    /// The calling thread runs Ruby, its stack was found walkable, and no GC moves objects.
    #[inline]
    pub unsafe fn walk(&mut self, hooks: &VmHooks, found: Option<Found>, mark: Mark) -> Outcome {
        // SAFETY: the caller's promise.
        let short = found.and_then(|found| unsafe { self.walk_short(hooks, found, mark.slot) });
        let walked = short.or_else(|| {
            // SAFETY: the caller's promise.
            let walked = unsafe { self.ask(hooks, WALK_LIMIT) };
            #[cfg(feature = "testing")]
            {
                self.walks[0] += 1;
            }
            let counted_right = found.is_some_and(|found| found.total == walked);
            self.scratch.trail.trust(counted_right);
            self.measure(walked)
        });
        let outcome = match walked {
            // SAFETY: (I7) the VM wrote these frames just now.
            Some(walked) => unsafe { self.write_stack(walked, mark) },
            None => Outcome::NoFrames,
        };
        if found.is_some() && matches!(outcome, Outcome::Recorded | Outcome::Folded) {
            self.scratch.trail.keep();
        } else {
            self.scratch.trail.forget();
        }
        outcome
    }

    /// Asks the VM for the frames that have changed, and for one more: if that is not the one that is expected there, or
    /// if there is nothing to go by, `None`.
    ///
    /// # Safety
    /// As for [`Writer::walk`].
    #[inline]
    unsafe fn walk_short(&mut self, hooks: &VmHooks, found: Found, slot: u16) -> Option<Walked> {
        let last = self
            .last
            .filter(|last| last.slot == slot && !last.truncated)?;
        let Found { changed, total } = found;
        let kept = (total - changed).checked_sub(last.dropped)?;
        if kept == 0 || kept > last.depth || total > MAX_DEPTH {
            return None;
        }
        // SAFETY: the caller's promise.
        let walked = unsafe { self.ask(hooks, changed + 1) };
        if walked != changed + 1 || self.scratch.walk.at(changed) != self.scratch.last.at(kept - 1)
        {
            return None;
        }
        let short = Walked {
            kept,
            leaf: changed,
            dropped: last.dropped,
            truncated: false,
        };
        #[cfg(feature = "testing")]
        {
            // SAFETY: the caller's promise.
            let right = !self.plan.check_walks || unsafe { self.is_whole(hooks, short) };
            self.walks[1 + usize::from(!right)] += 1;
        }
        Some(short)
    }

    /// Whether a whole walk gives the same.
    ///
    /// # Safety
    /// As for [`Writer::walk`].
    #[cfg(feature = "testing")]
    unsafe fn is_whole(&mut self, hooks: &VmHooks, short: Walked) -> bool {
        std::mem::swap(&mut self.scratch.walk, &mut self.scratch.whole);
        // SAFETY: the caller's promise.
        let walked = unsafe { self.ask(hooks, WALK_LIMIT) };
        std::mem::swap(&mut self.scratch.walk, &mut self.scratch.whole);
        let Scratch {
            walk, last, whole, ..
        } = &self.scratch;
        let Walked { kept, leaf, .. } = short;
        let shared = (0..kept).all(|place| whole.at(leaf + kept - 1 - place) == last.at(place));
        walked == leaf + kept + short.dropped
            && shared
            && (0..leaf).all(|place| whole.at(place) == walk.at(place))
    }

    /// What the VM gives of the calling thread's stack, into the scratch: so many frames at most.
    ///
    /// # Safety
    /// As for [`Writer::walk`].
    #[inline]
    unsafe fn ask(&mut self, hooks: &VmHooks, limit: usize) -> usize {
        let limit = limit.min(WALK_LIMIT);
        // SAFETY: (I6) the caller's promise; both buffers have WALK_LIMIT entries.
        let walked = unsafe {
            (hooks.profile_frames)(
                0,
                limit as c_int,
                self.scratch.walk.frames.as_mut_ptr(),
                self.scratch.walk.lines.as_mut_ptr(),
            )
        };
        usize::try_from(walked).unwrap_or(0).min(limit)
    }

    /// Takes those three figures.
    #[cfg(feature = "testing")]
    pub(super) fn take_walks(&mut self) -> [u64; 3] {
        std::mem::take(&mut self.walks)
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
                self.scratch.walk.frames.as_mut_ptr(),
                self.scratch.walk.lines.as_mut_ptr(),
            )
        };
        self.scratch.trail.forget();
        match self.measure(usize::try_from(walked).unwrap_or(0)) {
            // SAFETY: (I7) the VM wrote these frames just now.
            Some(walked) => unsafe { self.write_stack(walked, mark) },
            None => Outcome::NoFrames,
        }
    }

    /// What a whole walk left in the scratch, as far as it is recorded. `None` if there is nothing to record.
    #[inline]
    fn measure(&self, walked: usize) -> Option<Walked> {
        let truncated = walked > MAX_DEPTH;
        let depth = walked.min(MAX_DEPTH);
        let root = self.scratch.walk.frames[..depth].last();
        let dropped =
            !truncated && root.is_some_and(|&root| root != 0 && root == self.plan.pseudo_root);
        let leaf = depth - usize::from(dropped);
        (leaf > 0).then_some(Walked {
            kept: 0,
            leaf,
            dropped: usize::from(dropped),
            truncated,
        })
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
        // SAFETY: the caller's promise.
        let walked = unsafe { self.ask(hooks, WALK_LIMIT) };
        let Some(Walked {
            leaf, truncated, ..
        }) = self.measure(walked)
        else {
            return Outcome::NoFrames;
        };
        // SAFETY: (I7) the VM wrote these frames just now.
        let Some(len) = (unsafe { self.pack(leaf) }) else {
            return Outcome::Invalid;
        };
        self.settle();
        self.collection = collection;
        mark.weight = cause as u64;
        let collection = Some(collection);
        self.write(Kind::Cause, GcPhase::None, truncated, collection, mark, len)
    }

    /// Packs the `depth` frames at the leaf side into the word scratch; `None` if one of them is no frame.
    ///
    /// # Safety
    /// The frames were just written by the VM's walk on this thread.
    #[inline]
    unsafe fn pack(&mut self, depth: usize) -> Option<usize> {
        let frames = self.scratch.walk.frames.get(..depth)?;
        let lines = self.scratch.walk.lines.get(..depth)?;
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

    /// # Safety
    /// The frames of the leaf side were just written by the VM's walk.
    unsafe fn write_stack(&mut self, walked: Walked, mark: Mark) -> Outcome {
        let Walked {
            kept,
            leaf,
            dropped,
            truncated,
        } = walked;
        let depth = kept + leaf;
        let mut shared = kept;
        if let Some(last) = self.last {
            let Scratch {
                walk, last: before, ..
            } = &self.scratch;
            shared += walk.continues(leaf, before, kept, last.depth);
            let same = shared == depth
                && last.depth == depth
                && last.slot == mark.slot
                && last.truncated == truncated
                && mark.slot != NO_SLOT;
            if same {
                return self.repeat(mark);
            }
        }
        let whole = shared < WORTH_SHARING || !self.has_unread_whole();
        // What is shared was found to be frames when it was written first, and has been kept alive since.
        let news = if whole { leaf } else { depth - shared };
        // SAFETY: (I7) the caller's promise.
        let Some(mut len) = (unsafe { self.pack(news) }) else {
            return Outcome::Invalid;
        };
        self.settle();
        let begin = self.producer.position();
        let outcome = if whole {
            len = self.pack_last(kept, len);
            self.write(Kind::Stack, GcPhase::None, truncated, None, mark, len)
        } else {
            let shared = Some(shared as u64);
            self.write(Kind::Delta, GcPhase::None, truncated, shared, mark, len)
        };
        if outcome == Outcome::Recorded {
            if whole {
                self.whole = Some(begin);
            }
            let Scratch { walk, last, .. } = &mut self.scratch;
            last.replace_leaf_side(shared, walk, depth - shared);
            self.last = Some(Last {
                slot: mark.slot,
                depth,
                dropped,
                truncated,
            });
        }
        outcome
    }

    /// Packs the last stack's `kept` frames at the root side behind the `len` words in the word scratch, and returns
    /// their number in all.
    #[inline]
    fn pack_last(&mut self, kept: usize, mut len: usize) -> usize {
        let Scratch { last, words, .. } = &mut self.scratch;
        for place in (0..kept).rev() {
            let mut pair = [0; 2];
            let used = last.at(place).encode(&mut pair);
            words[len..len + used].copy_from_slice(&pair[..used]);
            len += used;
        }
        len
    }

    /// Whether the last whole stack is in the ring still. The first stack after it was read is whole again, so that what
    /// the drain has to forget does not spoil what comes much later.
    #[inline]
    fn has_unread_whole(&mut self) -> bool {
        self.whole
            .is_some_and(|whole| !self.producer.has_been_read(whole))
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

    /// One record, with `len` words of frames out of the scratch, and the word that only its kind has (`extra`): the
    /// number of a collection, or that of the frames that are shared.
    #[inline]
    fn write(
        &mut self,
        kind: Kind,
        phase: GcPhase,
        truncated: bool,
        extra: Option<u64>,
        mark: Mark,
        len: usize,
    ) -> Outcome {
        let mut prefix = [0, mark.time, 0, 0];
        let mut fixed = FIXED_WORDS;
        let both = self.plan.both_clocks;
        if let Some(extra) = extra {
            prefix[fixed] = extra;
            fixed += 1;
        }
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
