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
//! | `columns.rs` | what weights are made of: states, CPU time |
//! | `threads.rs` | totals by thread, and each thread's last stack |
//! | `collections.rs` | the stacks that started collections |
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

use crate::sample::{FrameLine, GcCause, State, FRAME_GC, FRAME_MARKING, FRAME_SWEEPING, NO_SLOT};
use crate::sample::{Frames, GcPhase, Header, Kind, MAX_DEPTH, MAX_RECORD_WORDS};

mod collections;
mod columns;
mod derive;
mod frames;
mod memory;
mod profile;
mod raw;
mod threads;
mod tree;

pub use collections::CauseTotals;
pub use memory::NoMemory;
pub use profile::{Counts, FrameTotals, Profile};
pub use raw::{Point, Raw, Run, StackFrame, Tag};
pub use threads::{ThreadTotals, MAX_INDICES, NO_THREAD, SHARED};

use raw::Start;

use collections::Collections;
use columns::{Column, Columns};
use frames::FrameSet;
use threads::Threads;
use tree::{Tree, ROOT};

/// What the tables keep beyond the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Keep the order and the time of every record ([`Profile::raw`]).
    pub raw: bool,
    /// Records carry a weight by the CPU clock as well.
    pub both_clocks: bool,
    /// Make every delta at least 1 µs (custom mode, where ticks have no spacing of their own).
    pub monotone_deltas: bool,
    /// Bytes that the tables may take; 0 for no bound. Beyond it new stacks are folded into their callers, and raw has no more
    /// points: both are counted ([`Profile::folded`], [`Profile::raw_omitted`]), and no weight is lost.
    pub max_bytes: usize,
}

/// Contexts that there is memory for from the start (2 MB, of which 0.1 MB are touched): twice those of RDoc at work.
const NODES_AHEAD: usize = 1 << 16;

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
    /// [`Kind::Again`] with no stack to repeat, or [`Kind::Delta`] with none that is so deep.
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
    /// Its leaf side has no nodes, for want of room.
    folded: bool,
}

/// What a record adds to a stack.
#[derive(Clone, Copy, Debug)]
struct Credit {
    slot: u16,
    weight: u32,
    cpu: u32,
    /// `None` in GC.
    state: Option<State>,
    time_ns: u64,
}

/// Everything that the records said so far.
#[derive(Debug)]
pub struct Tables {
    options: Options,
    tree: Tree,
    frames: FrameSet,
    columns: Columns,
    threads: Threads,
    collections: Collections,
    points: Vec<Point>,
    /// Thread and state of each point.
    tags: Vec<Tag>,
    /// Weight of each point by the CPU clock, where both clocks are counted.
    cpu_weights: Vec<u32>,
    starts: Vec<Start>,
    last: Option<LastStack>,
    /// Its depth, in frames.
    depth: usize,
    /// The last stack found no memory, so it is not known, but it is no news that it is not.
    unplaced: bool,
    /// Frames of the record at hand, leaf first; kept for its memory alone.
    scratch: Vec<FrameLine>,
    samples: u64,
    gc_samples: u64,
    truncated: u64,
    folded: u64,
    raw_omitted: u64,
    states: [u64; 3],
    cpu_samples: u64,
}

impl Tables {
    /// Empty tables.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            tree: Tree::new(),
            frames: FrameSet::default(),
            columns: Columns::default(),
            threads: Threads::default(),
            collections: Collections::new(),
            points: Vec::new(),
            tags: Vec::new(),
            cpu_weights: Vec::new(),
            starts: Vec::new(),
            last: None,
            depth: 0,
            unplaced: false,
            scratch: Vec::new(),
            samples: 0,
            gc_samples: 0,
            truncated: 0,
            folded: 0,
            raw_omitted: 0,
            states: [0; 3],
            cpu_samples: 0,
        }
    }

    /// Empty tables with memory for a program's usual number of contexts, unless there is a bound: so that no drain waits
    /// for a small table to become a larger one.
    #[must_use]
    pub fn with_room(options: Options) -> Self {
        let mut tables = Self::new(options);
        if options.max_bytes == 0 {
            tables.tree.make_room_ahead(NODES_AHEAD);
        }
        tables
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
        let credit = Credit {
            slot: last.slot,
            weight,
            cpu: 0,
            state: Some(State::Running),
            time_ns,
        };
        self.count_stack(last, credit).is_ok()
    }

    /// The same for the last stack of the thread in `slot`, in `state`, with a weight by the CPU clock
    /// too. Returns `false`, with nothing counted, if it has none or a weight is 2^32 or more.
    #[must_use]
    pub fn credit_slot(
        &mut self,
        slot: u16,
        weight: u64,
        cpu: u64,
        state: State,
        time_ns: u64,
    ) -> bool {
        let (Some(stack), Ok(weight), Ok(cpu)) = (
            self.threads.last(slot),
            u32::try_from(weight),
            u32::try_from(cpu),
        ) else {
            return false;
        };
        let credit = Credit {
            slot,
            weight,
            cpu,
            state: Some(state),
            time_ns,
        };
        self.count_stack(stack, credit).is_ok()
    }

    /// From now on the records of `slot` are those of the thread `serial`.
    ///
    /// # Errors
    /// [`NoMemory`]; its records are then no thread's.
    pub fn thread_begins(&mut self, slot: u16, serial: u64) -> Result<(), NoMemory> {
        self.threads.begins(slot, serial)
    }

    /// Whether a record of the thread `serial` has been counted.
    #[must_use]
    pub fn knows_thread(&self, serial: u64) -> bool {
        self.threads.knows(serial)
    }

    /// A profile begins, or goes on after a stop, at `start_ns`: the next delta counts from here, not
    /// from the last sample before the stop. `raw` and `max_bytes` as in [`Options`], from now on.
    pub fn resume(&mut self, start_ns: u64, raw: bool, max_bytes: usize) {
        self.options.raw = raw;
        self.options.max_bytes = max_bytes;
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
        self.threads.forget_last();
    }

    /// Visits every distinct real frame (once for samples, once for collections), never a fake one: what GC must mark and pin (I7).
    /// Reads only, so it may run at any time and inside itself.
    pub fn each_frame(&self, mut visit: impl FnMut(u64)) {
        self.frames.each_real(&mut visit);
        self.collections.each_real(visit);
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
        let mut frames = derive::frame_totals(nodes, &indices, &self.frames)?;
        for (column, part) in [
            (
                Column::Waiting,
                FrameTotals::waiting_mut as fn(&mut _) -> &mut Counts,
            ),
            (Column::Blocked, FrameTotals::blocked_mut),
            (Column::Cpu, FrameTotals::cpu_mut),
        ] {
            let column = self.columns.get(column);
            derive::add_column(nodes, &indices, column, &mut frames, part)?;
        }
        let both = self.options.both_clocks;
        let (gc_callers, gc_causes) = self.collections.try_finish()?;
        let threads = self.threads.try_totals()?;
        let raw = if self.points.is_empty() {
            None
        } else {
            let stacks = derive::stack_nodes(nodes, &indices)?;
            let starts = Raw::starts(&self.points, &self.starts)?;
            let points = std::mem::take(&mut self.points);
            let tags = std::mem::take(&mut self.tags);
            let cpu_weights = both.then(|| std::mem::take(&mut self.cpu_weights));
            let monotone = self.options.monotone_deltas;
            let raw = Raw::new(points, stacks, starts, interval_ns, monotone);
            Some(raw.with_tags(tags, cpu_weights))
        };
        Ok(Profile {
            samples: self.samples,
            gc_samples: self.gc_samples,
            truncated: self.truncated,
            folded: self.folded,
            raw_omitted: self.raw_omitted,
            states: self.states,
            cpu_samples: both.then_some(self.cpu_samples),
            frames,
            raw,
            threads,
            gc_callers,
            gc_causes,
        })
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tree.bytes()
            + self.frames.bytes()
            + self.columns.bytes()
            + self.threads.bytes()
            + self.collections.bytes()
            + self.bytes_of_raw()
            + self.scratch.capacity() * size_of::<FrameLine>()
    }

    fn bytes_of_raw(&self) -> usize {
        self.points.capacity() * size_of::<Point>()
            + self.tags.capacity() * size_of::<Tag>()
            + self.cpu_weights.capacity() * size_of::<u32>()
    }

    /// By how many bytes the tables may grow still.
    fn room(&self) -> usize {
        match self.options.max_bytes {
            0 => usize::MAX,
            // Each node will have weights in every column, as far as is known.
            bound => bound
                .saturating_sub(self.tree.bytes_of_nodes() + self.frames.bytes())
                .saturating_sub(self.tree.capacity() * columns::BYTES_A_NODE)
                .saturating_sub(self.threads.bytes() + self.collections.bytes_of_nodes())
                .saturating_sub(self.bytes_of_raw()),
        }
    }

    /// Sum of the weights of stacks that were folded into their callers.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.folded
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
        let before_frames = header.words_before_frames();
        let lengths = match kind {
            Kind::Stack | Kind::Delta | Kind::Cause => before_frames..=MAX_RECORD_WORDS,
            Kind::Again | Kind::Rest => before_frames..=before_frames,
            // With the number of the collection, or without.
            Kind::Gc => before_frames..=before_frames + 1,
        };
        if !lengths.contains(&length) {
            return Err(Corrupt::Length);
        }
        let time_ns = words.next().ok_or(Corrupt::Short)?;
        let numbered = kind == Kind::Cause || (kind == Kind::Gc && length > before_frames);
        // The number of a collection, or of the frames that are kept.
        let extra = if numbered || kind == Kind::Delta {
            Some(words.next().ok_or(Corrupt::Short)?)
        } else {
            None
        };
        let cpu = if header.has_cpu() {
            u32::try_from(words.next().ok_or(Corrupt::Short)?).unwrap_or(u32::MAX)
        } else {
            0
        };
        let mut credit = Credit {
            slot: header.slot(),
            // The header has 24 bits for the weight, so this keeps all of them.
            weight: header.weight() as u32,
            cpu,
            state: Some(header.state()),
            time_ns,
        };
        match kind {
            Kind::Stack | Kind::Delta => {
                let kept = self.kept(extra)?;
                self.last = None;
                self.unplaced = true;
                self.decode(words, length - before_frames)?;
                let depth = kept + self.scratch.len();
                if depth > MAX_DEPTH {
                    return Err(Corrupt::Depth);
                }
                let room = self.room();
                let place = self
                    .tree
                    .descend(kept, &self.scratch, &mut self.frames, room)?;
                self.depth = depth;
                let last = LastStack {
                    node: place.node,
                    slot: header.slot(),
                    truncated: header.truncated(),
                    folded: place.folded,
                };
                self.last = Some(last);
                self.unplaced = false;
                self.threads.saw(last);
                self.count_stack(last, credit)?;
            }
            Kind::Again => {
                let last = self.last_stack()?;
                self.count_stack(last, credit)?;
            }
            Kind::Rest => {
                let last = self.threads.last(credit.slot);
                self.count_stack(last.ok_or(Corrupt::NothingToRepeat)?, credit)?;
            }
            Kind::Gc => {
                let node = self.gc_node(header.phase())?;
                credit.state = None;
                self.count(node, credit)?;
                self.gc_samples = self.gc_samples.saturating_add(u64::from(credit.weight));
                if let Some(collection) = extra {
                    self.collections.count(collection, credit.weight.into());
                }
            }
            Kind::Cause => {
                self.decode(words, length - before_frames)?;
                let cause = GcCause::from_number(credit.weight.into());
                let number = extra.unwrap_or_default();
                let room = self.room();
                self.collections
                    .starts(number, cause, &self.scratch, room)?;
            }
        }
        Ok(())
    }

    /// The stack that a record refers to.
    fn last_stack(&self) -> Result<LastStack, Corrupt> {
        self.last.ok_or(if self.unplaced {
            Corrupt::NoMemory
        } else {
            Corrupt::NothingToRepeat
        })
    }

    /// How many frames a stack record keeps of the last stack: as many as a [`Kind::Delta`] says, none of a whole one.
    fn kept(&self, said: Option<u64>) -> Result<usize, Corrupt> {
        let Some(said) = said else { return Ok(0) };
        self.last_stack()?;
        usize::try_from(said)
            .ok()
            .filter(|&kept| kept <= self.depth)
            .ok_or(Corrupt::NothingToRepeat)
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

    fn count_stack(&mut self, stack: LastStack, credit: Credit) -> Result<(), NoMemory> {
        self.count(stack.node, credit)?;
        if stack.truncated {
            self.truncated = self.truncated.saturating_add(credit.weight.into());
        }
        if stack.folded {
            self.folded = self.folded.saturating_add(credit.weight.into());
        }
        Ok(())
    }

    /// By how many bytes one more point would make raw grow.
    fn raw_growth(&self) -> usize {
        let cpu_weights = if self.options.both_clocks {
            memory::growth(&self.cpu_weights, 1)
        } else {
            0
        };
        memory::growth(&self.points, 1) + memory::growth(&self.tags, 1) + cpu_weights
    }

    /// Counts everywhere, or, without memory, nowhere.
    fn count(&mut self, node: u32, credit: Credit) -> Result<(), NoMemory> {
        let weight = u64::from(credit.weight);
        let cpu = u64::from(credit.cpu);
        let column = match credit.state {
            Some(State::Waiting) => Some(Column::Waiting),
            Some(State::Blocked) => Some(Column::Blocked),
            Some(State::Running) | None => None,
        };
        let both = self.options.both_clocks;
        let mut raw = self.options.raw && node != ROOT && credit.weight > 0;
        // Nothing may come after a point that is missing, or it would look as if the time before it were its own.
        let bounded = self.options.max_bytes > 0;
        if raw && bounded && (self.raw_omitted > 0 || self.raw_growth() > self.room()) {
            raw = false;
            self.raw_omitted = self.raw_omitted.saturating_add(weight);
        }
        if raw {
            memory::reserve(&mut self.points, 1)?;
            memory::reserve(&mut self.tags, 1)?;
            if both {
                memory::reserve(&mut self.cpu_weights, 1)?;
            }
        }
        let room = self.tree.capacity();
        if let Some(column) = column {
            self.columns.make_room(column, node, room)?;
        }
        if both {
            self.columns.make_room(Column::Cpu, node, room)?;
        }
        let thread = self.threads.index(credit.slot)?;
        self.threads.credit(thread, credit.state, weight, cpu);
        if let Some(state) = credit.state {
            let sum = &mut self.states[state as usize];
            *sum = sum.saturating_add(weight);
        }
        if let Some(column) = column {
            self.columns.add(column, node, weight);
        }
        if both {
            self.cpu_samples = self.cpu_samples.saturating_add(cpu);
            self.columns.add(Column::Cpu, node, cpu);
        }
        if raw {
            self.points.push(Point {
                node,
                weight: credit.weight,
                time_ns: credit.time_ns,
            });
            self.tags.push(Tag::new(thread, credit.state));
            if both {
                self.cpu_weights.push(credit.cpu);
            }
        }
        self.samples = self.samples.saturating_add(weight);
        self.tree.credit(node, weight);
        Ok(())
    }
}
