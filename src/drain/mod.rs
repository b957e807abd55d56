//! Drain: turns the words of records into tables, and the tables into a [`Profile`].
//!
//! **Law of this room.** Everything here is called by the one consumer, under the GVL (I2). It may
//! allocate, from the system allocator alone, and never touches a Ruby object: so GC can't start in
//! the middle of a change, and whoever marks ([`Tables::each_frame`]) always finds whole tables.
//! A VALUE is a number here; nothing follows it. No input makes this room panic: words that no
//! producer writes are answered with [`Corrupt`]; and so is memory that the system refuses, with the
//! tables as they were, for a profiler must not end its process as the standard library would.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `tree.rs` | the calling-context tree, in flat arrays |
//! | `memory.rs` | room in a vector, or the system's refusal |
//! | `frames.rs` | the set of distinct frames, in order of first sight |
//! | `raw.rs` | the order and time of samples, for raw mode |
//! | `profile.rs` | the finished value |
//! | `derive.rs` | the one pass from the tree to totals, edges and lines |
//!
//! A record costs one walk down the tree, and only below the part that it shares with the record
//! before it. Whatever can be derived from the tree is not kept up to date per record.

use std::cell::Cell;
use std::fmt;

use crate::sample::{FrameLine, FRAME_GC, FRAME_MARKING, FRAME_SWEEPING, NO_SLOT};
use crate::sample::{Frames, GcPhase, Header, Kind, FIXED_WORDS, MAX_DEPTH, MAX_RECORD_WORDS};

mod derive;
mod frames;
mod memory;
mod profile;
mod raw;
mod tree;

pub use memory::NoMemory;
pub use profile::{FrameTotals, Profile};
pub use raw::{Point, Raw, Run, StackFrame};

use raw::Start;

use frames::FrameSet;
use tree::{Tree, ROOT};

/// What the tables keep beyond the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Keep the order and the time of every record ([`Profile::raw`]).
    pub raw: bool,
    /// Make every delta at least 1 µs (custom mode, where ticks have no spacing of their own).
    pub monotone_deltas: bool,
}

/// Why a record was refused. The tables then count nothing of it, and forget the last stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupt {
    /// The header names no kind.
    Kind,
    /// The header's length does not fit its kind, or is beyond [`MAX_RECORD_WORDS`].
    Length,
    /// Fewer words than the header says.
    Short,
    /// The last frame is an escape without its second word.
    Escape,
    /// More frames than [`MAX_DEPTH`].
    Depth,
    /// [`Kind::Again`] with no stack to repeat.
    NothingToRepeat,
    /// The tree has used up its 2^32 node numbers.
    TreeFull,
    /// The system has no memory for what the record would add.
    NoMemory,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "record of an unknown kind",
            Self::Length => "record with a length that does not fit its kind",
            Self::Short => "record shorter than its header says",
            Self::Escape => "record that ends inside an escaped frame",
            Self::Depth => "record with too many frames",
            Self::NothingToRepeat => "repeat of a stack that was never seen",
            Self::TreeFull => "more distinct stacks than the tree can number",
            Self::NoMemory => "no memory for the tables to grow",
        })
    }
}

impl std::error::Error for Corrupt {}

/// The stack that [`Kind::Again`] repeats.
#[derive(Clone, Copy, Debug)]
struct LastStack {
    node: u32,
    slot: u16,
    truncated: bool,
}

/// Everything that the records said so far.
#[derive(Debug)]
pub struct Tables {
    options: Options,
    tree: Tree,
    frames: FrameSet,
    points: Vec<Point>,
    starts: Vec<Start>,
    last: Option<LastStack>,
    /// The last stack found no memory, so it is not known, but it is no news that it is not.
    unplaced: bool,
    /// Frames of the record at hand, leaf first; kept for its memory alone.
    scratch: Vec<FrameLine>,
    samples: u64,
    gc_samples: u64,
    truncated: u64,
}

impl Tables {
    /// Empty tables.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            tree: Tree::new(),
            frames: FrameSet::default(),
            points: Vec::new(),
            starts: Vec::new(),
            last: None,
            unplaced: false,
            scratch: Vec::new(),
            samples: 0,
            gc_samples: 0,
            truncated: 0,
        }
    }

    /// Counts the record at the start of `words`; words after its length are not read. A record of
    /// weight 0 is seen (frames, what `Again` repeats) and counts nothing. A stack without frames
    /// counts as samples and has no place in frames or raw.
    ///
    /// Once this returns, every frame of the record is visited by [`Tables::each_frame`] (I4).
    /// For a stack seen before it allocates nothing, but for the growth of raw.
    ///
    /// # Errors
    /// [`Corrupt`] if no producer writes such a record. What `Again` repeats is then unknown, so
    /// the last stack is forgotten. [`Corrupt::NoMemory`] for a record that the tables had to grow for,
    /// and for the repeats of such a stack.
    pub fn insert(&mut self, words: impl Iterator<Item = u64>) -> Result<(), Corrupt> {
        let inserted = self.insert_record(words);
        if inserted.is_err_and(|error| error != Corrupt::NoMemory) {
            self.forget_last();
        }
        inserted
    }

    /// Adds `weight` at `time_ns` to the stack that `Again` would repeat, for the time between the
    /// last record and the stop. Returns `false`, with nothing counted, if there is no such stack, if
    /// it is no thread's ([`NO_SLOT`]: time is not its measure), if `weight` is 2^32 or more, or if there
    /// is no memory for it in raw: the caller has to account for it then.
    #[must_use]
    pub fn credit_last(&mut self, weight: u64, time_ns: u64) -> bool {
        let (Some(last), Ok(weight)) = (self.last, u32::try_from(weight)) else {
            return false;
        };
        if last.slot == NO_SLOT {
            return false;
        }
        self.count_stack(last, weight, time_ns).is_ok()
    }

    /// A profile begins, or goes on after a stop, at `start_ns`: the next delta counts from here, not
    /// from the last sample before the stop. `raw` as in [`Options::raw`], from now on.
    pub fn resume(&mut self, start_ns: u64, raw: bool) {
        self.options.raw = raw;
        self.forget_last();
        self.starts.push(Start {
            point: self.points.len(),
            ns: start_ns,
        });
    }

    /// Makes the next `Again` an error, as after a gap in the records.
    pub fn forget_last(&mut self) {
        self.last = None;
        self.unplaced = false;
    }

    /// Visits every distinct real frame once, never a fake one: what GC must mark and pin (I7).
    /// Reads only, so it may run at any time and inside itself.
    pub fn each_frame(&self, visit: impl FnMut(u64)) {
        self.frames.each_real(visit);
    }

    /// The profile of all records. `interval_ns` spaces the samples of one record, 0 puts all of them
    /// at its time. Deltas count from the starts told to [`Tables::resume`].
    ///
    /// The tables end here: from now on [`Profile::each_frame`] is what GC must mark.
    ///
    /// # Panics
    /// When there is no memory for it; [`Tables::try_finish`] says so instead.
    #[must_use]
    pub fn finish(mut self, interval_ns: u64) -> Profile {
        self.try_finish(interval_ns).expect("memory")
    }

    /// As [`Tables::finish`]; afterwards the tables have no more use than to be dropped.
    ///
    /// # Errors
    /// [`NoMemory`] when there is none for the profile; the tables are whole then, and may be asked
    /// again.
    pub fn try_finish(&mut self, interval_ns: u64) -> Result<Profile, NoMemory> {
        let nodes = self.tree.nodes();
        let indices = derive::frame_indices(nodes, &self.frames)?;
        let frames = derive::frame_totals(nodes, &indices, &self.frames)?;
        let raw = if self.points.is_empty() {
            None
        } else {
            let stacks = derive::stack_nodes(nodes, &indices)?;
            let starts = Raw::starts(&self.points, &self.starts)?;
            let points = std::mem::take(&mut self.points);
            let monotone = self.options.monotone_deltas;
            Some(Raw::new(points, stacks, starts, interval_ns, monotone))
        };
        Ok(Profile {
            samples: self.samples,
            gc_samples: self.gc_samples,
            truncated: self.truncated,
            frames,
            raw,
        })
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tree.bytes()
            + self.frames.bytes()
            + self.points.capacity() * size_of::<Point>()
            + self.scratch.capacity() * size_of::<FrameLine>()
    }

    /// Number of distinct calling contexts, GC's included.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.tree.len()
    }

    /// Sum of all weights so far, GC's included.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Sum of the weights of GC records so far.
    #[must_use]
    pub fn gc_samples(&self) -> u64 {
        self.gc_samples
    }

    fn insert_record(&mut self, mut words: impl Iterator<Item = u64>) -> Result<(), Corrupt> {
        let header = Header(words.next().ok_or(Corrupt::Short)?);
        let kind = header.kind().ok_or(Corrupt::Kind)?;
        let length = header.words();
        let lengths = match kind {
            Kind::Stack => FIXED_WORDS..=MAX_RECORD_WORDS,
            Kind::Again | Kind::Gc => FIXED_WORDS..=FIXED_WORDS,
        };
        if !lengths.contains(&length) {
            return Err(Corrupt::Length);
        }
        let time_ns = words.next().ok_or(Corrupt::Short)?;
        // The header has 24 bits for the weight, so this keeps all of them.
        let weight = header.weight() as u32;
        match kind {
            Kind::Stack => {
                self.last = None;
                self.unplaced = true;
                self.decode(words, length - FIXED_WORDS)?;
                let node = self.tree.descend(&self.scratch, &mut self.frames)?;
                let truncated = header.truncated();
                let last = LastStack {
                    node,
                    slot: header.slot(),
                    truncated,
                };
                self.last = Some(last);
                self.unplaced = false;
                self.count_stack(last, weight, time_ns)?;
            }
            Kind::Again => {
                let last = self.last.ok_or(if self.unplaced {
                    Corrupt::NoMemory
                } else {
                    Corrupt::NothingToRepeat
                })?;
                self.count_stack(last, weight, time_ns)?;
            }
            Kind::Gc => {
                let node = self.gc_node(header.phase())?;
                self.count(node, weight, time_ns)?;
                self.gc_samples = self.gc_samples.saturating_add(u64::from(weight));
            }
        }
        Ok(())
    }

    /// Reads `length` frame words into the scratch.
    fn decode(&mut self, words: impl Iterator<Item = u64>, length: usize) -> Result<(), Corrupt> {
        let read = Cell::new(0);
        let counted = words.take(length).inspect(|_| read.set(read.get() + 1));
        self.scratch.clear();
        memory::reserve(&mut self.scratch, length)?;
        let mut whole = 0;
        for frame in Frames::new(counted) {
            self.scratch.push(frame);
            whole = read.get();
        }
        // The decoder ends alike at the end and inside an escape; only in the latter case has it
        // read a word past the last whole frame.
        if read.get() < length {
            Err(Corrupt::Short)
        } else if whole < length {
            Err(Corrupt::Escape)
        } else if self.scratch.len() > MAX_DEPTH {
            Err(Corrupt::Depth)
        } else {
            Ok(())
        }
    }

    /// The node of GC in `phase`. Two steps from the root, so that `(garbage collection)` is seen
    /// before its phase; beside the path of the last stack, which GC does not change.
    fn gc_node(&mut self, phase: GcPhase) -> Result<u32, Corrupt> {
        let gc = FrameLine::new(FRAME_GC, 0);
        let gc = self.tree.child_or_new(ROOT, gc, &mut self.frames)?;
        let phase = match phase {
            GcPhase::None => return Ok(gc),
            GcPhase::Marking => FRAME_MARKING,
            GcPhase::Sweeping => FRAME_SWEEPING,
        };
        let phase = FrameLine::new(phase, 0);
        self.tree.child_or_new(gc, phase, &mut self.frames)
    }

    fn count_stack(&mut self, stack: LastStack, weight: u32, time_ns: u64) -> Result<(), NoMemory> {
        self.count(stack.node, weight, time_ns)?;
        if stack.truncated {
            self.truncated = self.truncated.saturating_add(u64::from(weight));
        }
        Ok(())
    }

    /// Counts everywhere, or, without memory for raw, nowhere.
    fn count(&mut self, node: u32, weight: u32, time_ns: u64) -> Result<(), NoMemory> {
        if self.options.raw && node != ROOT && weight > 0 {
            let point = Point {
                node,
                weight,
                time_ns,
            };
            memory::push(&mut self.points, point)?;
        }
        self.samples = self.samples.saturating_add(u64::from(weight));
        self.tree.credit(node, u64::from(weight));
        Ok(())
    }
}
