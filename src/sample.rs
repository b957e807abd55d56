//! The words that capture writes and drain reads; no behaviour beyond encoding and decoding.
//!
//! A record is a run of `u64` words:
//!
//! | word | content |
//! | --- | --- |
//! | 0 | [`Header`]: kind, flags, state, length of the record in words, thread slot, weight |
//! | 1 | time of the tick: `CLOCK_MONOTONIC` in ns |
//! | next | number of the collection ([`Kind::Gc`] and [`Kind::Cause`], where it is known) |
//! | next | weight by the CPU clock ([`Header::has_cpu`]) |
//! | next | number of frames at the root side that are those of the stack before it ([`Kind::Delta`]) |
//! | next… | frames, leaf first ([`Kind::Stack`], [`Kind::Cause`]; of a [`Kind::Delta`] those that are not the stack's before it) |
//!
//! A frame is one word, `frame | line << 48`, where it fits. A line of 0xFFFF or more, a negative
//! line, or a frame wider than 48 bits is written as two words: the low 48 bits of the frame under
//! the escape line 0xFFFF, then a word with the line in its low 32 bits and the frame's high 16
//! bits above them. So nothing wraps and nothing is lost.

use static_assertions::{assert_eq_size, const_assert};

/// Deepest stack that is recorded, in frames. Deeper ones keep their leaf side and say so
/// ([`Header::truncated`]). The number is StackProf's.
pub const MAX_DEPTH: usize = 2048;

/// Longest record in words: header, time, number of the collection, CPU weight, and every frame escaped.
pub const MAX_RECORD_WORDS: usize = FIXED_WORDS + 2 + 2 * MAX_DEPTH;

/// Words of every record before what only some have.
pub const FIXED_WORDS: usize = 2;

/// Largest weight that one record can carry; the rest stays with the thread and goes to its next record.
pub const MAX_WEIGHT: u64 = (1 << 24) - 1;

/// The slot of records that belong to no registered thread (object and custom mode).
pub const NO_SLOT: u16 = u16::MAX;

/// Fake frame `(garbage collection)`: a Fixnum VALUE, told from real ones by its lowest bit.
pub const FRAME_GC: u64 = 1;
/// Fake frame `(marking)`.
pub const FRAME_MARKING: u64 = 3;
/// Fake frame `(sweeping)`.
pub const FRAME_SWEEPING: u64 = 5;

const LINE_SHIFT: u32 = 48;
const FRAME_MASK: u64 = (1 << LINE_SHIFT) - 1;
const LINE_ESCAPE: u64 = 0xFFFF;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A whole Ruby stack follows.
    Stack = 1,
    /// The same stack as the stack record ([`Kind::Stack`] or [`Kind::Delta`]) before this one in the ring; no frames follow.
    Again = 2,
    /// A tick inside garbage collection; [`Header::phase`] says which part of it.
    Gc = 3,
    /// The stack from which a collection was started; of no weight. In place of one it has the
    /// [`GcCause`].
    Cause = 4,
    /// The last stack of this record's own thread again, whatever other threads recorded since.
    Rest = 5,
    /// A stack that has its root side in common with the stack record before this one in the ring, whoever recorded that.
    Delta = 6,
}

/// What a thread was doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It held the GVL.
    #[default]
    Running = 0,
    /// It was ready to run and waited for the GVL.
    Waiting = 1,
    /// It had given the GVL up: input and output, sleep, native work.
    Blocked = 2,
}

impl State {
    /// Every state, by number.
    pub const ALL: [Self; 3] = [Self::Running, Self::Waiting, Self::Blocked];

    /// The name that results show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
        }
    }
}

/// What started a collection, as the VM tells it (`gc_by`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum GcCause {
    /// The VM does not tell.
    #[default]
    Unknown = 0,
    /// No free slot for a new object.
    NewObject = 1,
    /// Too much allocated by malloc.
    Malloc = 2,
    /// `GC.start`.
    Method = 3,
    /// A C extension asked.
    CApi = 4,
    /// `GC.stress`.
    Stress = 5,
}

impl GcCause {
    /// Every cause, by number.
    pub const ALL: [Self; 6] = [
        Self::Unknown,
        Self::NewObject,
        Self::Malloc,
        Self::Method,
        Self::CApi,
        Self::Stress,
    ];

    /// The name that results show: the VM's own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NewObject => "newobj",
            Self::Malloc => "malloc",
            Self::Method => "method",
            Self::CApi => "capi",
            Self::Stress => "stress",
        }
    }

    /// The cause with that number.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        match number {
            1 => Self::NewObject,
            2 => Self::Malloc,
            3 => Self::Method,
            4 => Self::CApi,
            5 => Self::Stress,
            _ => Self::Unknown,
        }
    }
}

/// The phase of garbage collection, as the VM tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GcPhase {
    /// In GC, neither marking nor sweeping.
    None = 0,
    /// Marking.
    Marking = 1,
    /// Sweeping (compaction counts as sweeping, as the VM reports it).
    Sweeping = 2,
}

/// First word of a record:
/// `kind:3 | phase:2 | truncated:1 | state:2 | words:13 | cpu:1 | spare:2 | slot:16 | weight:24`, lowest
/// bits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Header(pub u64);

assert_eq_size!(Header, u64);
assert_eq_size!(FrameLine, (u64, u64));
const_assert!(MAX_RECORD_WORDS <= WORDS_MASK as usize);

const WORDS_MASK: u64 = 0x1FFF;
const CPU_BIT: u64 = 1 << 21;

impl Header {
    /// A header of `words` words in all; `weight` is cut to [`MAX_WEIGHT`].
    #[must_use]
    pub const fn new(
        kind: Kind,
        phase: GcPhase,
        truncated: bool,
        words: usize,
        slot: u16,
        weight: u64,
    ) -> Self {
        let weight = if weight > MAX_WEIGHT {
            MAX_WEIGHT
        } else {
            weight
        };
        Self(
            kind as u64
                | (phase as u64) << 3
                | (truncated as u64) << 5
                | (words as u64 & WORDS_MASK) << 8
                | (slot as u64) << 24
                | weight << 40,
        )
    }

    /// The same header for a thread in `state`.
    #[must_use]
    pub const fn in_state(self, state: State) -> Self {
        Self(self.0 & !(3 << 6) | (state as u64) << 6)
    }

    /// The same header for a record that carries a weight by the CPU clock.
    #[must_use]
    pub const fn with_cpu(self) -> Self {
        Self(self.0 | CPU_BIT)
    }

    /// What the record says; `None` for a word that no producer writes.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        match self.0 & 7 {
            1 => Some(Kind::Stack),
            2 => Some(Kind::Again),
            3 => Some(Kind::Gc),
            4 => Some(Kind::Cause),
            5 => Some(Kind::Rest),
            6 => Some(Kind::Delta),
            _ => None,
        }
    }

    /// What the thread was doing.
    #[must_use]
    pub const fn state(self) -> State {
        match self.0 >> 6 & 3 {
            1 => State::Waiting,
            2 => State::Blocked,
            _ => State::Running,
        }
    }

    /// Whether the record carries a weight by the CPU clock as well.
    #[must_use]
    pub const fn has_cpu(self) -> bool {
        self.0 & CPU_BIT != 0
    }

    /// Whether frames follow.
    #[must_use]
    pub const fn has_frames(self) -> bool {
        matches!(self.kind(), Some(Kind::Stack | Kind::Cause | Kind::Delta))
    }

    /// Words before the frames, where there are any.
    #[must_use]
    pub const fn words_before_frames(self) -> usize {
        let one_more = matches!(self.kind(), Some(Kind::Cause | Kind::Delta)) as usize;
        FIXED_WORDS + one_more + self.has_cpu() as usize
    }

    /// Phase of GC ([`Kind::Gc`] only).
    #[must_use]
    pub const fn phase(self) -> GcPhase {
        match self.0 >> 3 & 3 {
            1 => GcPhase::Marking,
            2 => GcPhase::Sweeping,
            _ => GcPhase::None,
        }
    }

    /// Whether the stack was deeper than [`MAX_DEPTH`], so that its root side is missing.
    #[must_use]
    pub const fn truncated(self) -> bool {
        self.0 >> 5 & 1 == 1
    }

    /// Length of the whole record, in words.
    #[must_use]
    pub const fn words(self) -> usize {
        (self.0 >> 8 & WORDS_MASK) as usize
    }

    /// Slot of the thread's control block, or [`NO_SLOT`].
    #[must_use]
    pub const fn slot(self) -> u16 {
        (self.0 >> 24 & 0xFFFF) as u16
    }

    /// The record's weight: intervals, or the number of a [`GcCause`] ([`Kind::Cause`]).
    #[must_use]
    pub const fn weight(self) -> u64 {
        self.0 >> 40
    }

    /// Number of intervals that the record stands for: what is missed if it is lost.
    #[must_use]
    pub const fn intervals(self) -> u64 {
        match self.kind() {
            Some(Kind::Cause) => 0,
            _ => self.weight(),
        }
    }
}

/// One frame of a stack: the VM's VALUE (never dereferenced here) and the current line, 0 if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameLine {
    /// VALUE of the method entry or iseq, or a fake frame (lowest bit set).
    pub frame: u64,
    /// Current line; 0 for C functions and where the VM does not know.
    pub line: i32,
}

impl FrameLine {
    /// A frame with its line.
    #[must_use]
    pub const fn new(frame: u64, line: i32) -> Self {
        Self { frame, line }
    }

    /// Whether this is one of the fake frames (a Fixnum), which must never reach the VM.
    #[must_use]
    pub const fn is_fake(self) -> bool {
        self.frame & 1 == 1
    }

    /// Writes the frame into `out` and returns the number of words used (1 or 2). Async-signal-safe.
    #[inline]
    pub fn encode(self, out: &mut [u64; 2]) -> usize {
        // A negative line becomes a large unsigned one and takes the escape.
        let line = u64::from(self.line as u32);
        if line < LINE_ESCAPE && self.frame <= FRAME_MASK {
            out[0] = self.frame | line << LINE_SHIFT;
            1
        } else {
            out[0] = self.frame & FRAME_MASK | LINE_ESCAPE << LINE_SHIFT;
            out[1] = line | self.frame >> LINE_SHIFT << 32;
            2
        }
    }
}

/// Decodes frame words, leaf first; ends early (never panics) when an escape lacks its second word.
#[derive(Clone, Debug)]
pub struct Frames<I> {
    words: I,
}

impl<I: Iterator<Item = u64>> Frames<I> {
    /// Frames out of the words that follow a record's fixed part.
    pub fn new(words: I) -> Self {
        Self { words }
    }
}

impl<I: Iterator<Item = u64>> Iterator for Frames<I> {
    type Item = FrameLine;

    #[inline]
    fn next(&mut self) -> Option<FrameLine> {
        let word = self.words.next()?;
        let line = word >> LINE_SHIFT;
        let frame = word & FRAME_MASK;
        if line != LINE_ESCAPE {
            return Some(FrameLine::new(frame, line as i32));
        }
        let rest = self.words.next()?;
        Some(FrameLine::new(
            frame | (rest >> 32 & 0xFFFF) << LINE_SHIFT,
            rest as u32 as i32,
        ))
    }
}
