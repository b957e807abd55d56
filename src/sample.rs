//! The words that capture writes and drain reads; no behaviour beyond encoding and decoding.
//!
//! A record is a run of `u64` words:
//!
//! | word | content |
//! | --- | --- |
//! | 0 | [`Header`]: kind, flags, length of the record in words, thread slot, weight |
//! | 1 | time of the tick: `CLOCK_MONOTONIC` in ns |
//! | 2… | frames, leaf first (only for [`Kind::Stack`]) |
//!
//! A frame is one word, `frame | line << 48`, where it fits. A line of 0xFFFF or more, a negative
//! line, or a frame wider than 48 bits is written as two words: the low 48 bits of the frame under
//! the escape line 0xFFFF, then a word with the line in its low 32 bits and the frame's high 16
//! bits above them. So nothing wraps and nothing is lost.

use static_assertions::{assert_eq_size, const_assert};

/// Deepest stack that is recorded, in frames. Deeper ones keep their leaf side and say so
/// ([`Header::truncated`]). The number is StackProf's.
pub const MAX_DEPTH: usize = 2048;

/// Longest record in words: header, time, and every frame escaped.
pub const MAX_RECORD_WORDS: usize = FIXED_WORDS + 2 * MAX_DEPTH;

/// Words of every record before its frames.
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
    /// The same stack as the stack record before this one in the ring; no frames follow.
    Again = 2,
    /// A tick inside garbage collection; [`Header::phase`] says which part of it.
    Gc = 3,
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

/// First word of a record: `kind:3 | phase:2 | truncated:1 | spare:2 | words:16 | slot:16 | weight:24`,
/// lowest bits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Header(pub u64);

assert_eq_size!(Header, u64);
assert_eq_size!(FrameLine, (u64, u64));
const_assert!(MAX_RECORD_WORDS <= u16::MAX as usize);

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
                | (words as u64 & 0xFFFF) << 8
                | (slot as u64) << 24
                | weight << 40,
        )
    }

    /// What the record says; `None` for a word that no producer writes.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        match self.0 & 7 {
            1 => Some(Kind::Stack),
            2 => Some(Kind::Again),
            3 => Some(Kind::Gc),
            _ => None,
        }
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
        (self.0 >> 8 & 0xFFFF) as usize
    }

    /// Slot of the thread's control block, or [`NO_SLOT`].
    #[must_use]
    pub const fn slot(self) -> u16 {
        (self.0 >> 24 & 0xFFFF) as u16
    }

    /// Number of intervals that the record stands for.
    #[must_use]
    pub const fn weight(self) -> u64 {
        self.0 >> 40
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
