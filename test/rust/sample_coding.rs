//! Frames and headers survive being written as words, whatever they are; broken words never panic.

use proptest::collection::vec;
use proptest::prelude::*;
use ringprof_core::sample::{FrameLine, Frames, GcPhase, Header, Kind, State};
use ringprof_core::sample::{MAX_DEPTH, MAX_RECORD_WORDS, MAX_WEIGHT};

const CASES: u32 = if cfg!(miri) { 4 } else { 256 };

/// Around every edge of the coding: 48 bits of frame, 16 bits of line, the sign.
fn frame_line() -> impl Strategy<Value = FrameLine> {
    let frame = prop_oneof![
        Just(0),
        Just((1 << 48) - 1),
        Just(1 << 48),
        Just(u64::MAX),
        0..1_u64 << 48,
        any::<u64>(),
    ];
    let line = prop_oneof![
        Just(0),
        Just(i32::MAX),
        Just(i32::MIN),
        Just(-1),
        0xFFF0..0x1_000F,
        1..1000,
        any::<i32>(),
    ];
    (frame, line).prop_map(|(frame, line)| FrameLine::new(frame, line))
}

/// Mostly shallow, now and then as deep as a record can be.
fn stack() -> impl Strategy<Value = Vec<FrameLine>> {
    let deep = if cfg!(miri) { 40 } else { MAX_DEPTH };
    prop_oneof![30 => vec(frame_line(), 0..40), 1 => vec(frame_line(), deep - 2..=deep)]
}

/// A frame that fits one word.
fn narrow() -> impl Strategy<Value = FrameLine> {
    (0..1_u64 << 48, 0..0xFFFF_i32).prop_map(|(frame, line)| FrameLine::new(frame, line))
}

/// A frame that needs the escape, by its line or by its width.
fn wide() -> impl Strategy<Value = FrameLine> {
    frame_line().prop_filter("needs two words", |frame| {
        frame.frame >> 48 != 0 || !(0..0xFFFF).contains(&frame.line)
    })
}

fn encode(frames: &[FrameLine]) -> Vec<u64> {
    let mut words = Vec::new();
    for frame in frames {
        let mut pair = [0; 2];
        let used = frame.encode(&mut pair);
        words.extend_from_slice(&pair[..used]);
    }
    words
}

fn decode(words: &[u64]) -> Vec<FrameLine> {
    Frames::new(words.iter().copied()).collect()
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Stack),
        Just(Kind::Again),
        Just(Kind::Gc),
        Just(Kind::Cause),
        Just(Kind::Rest),
        Just(Kind::Delta),
    ]
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Running),
        Just(State::Waiting),
        Just(State::Blocked)
    ]
}

fn phase() -> impl Strategy<Value = GcPhase> {
    prop_oneof![
        Just(GcPhase::None),
        Just(GcPhase::Marking),
        Just(GcPhase::Sweeping)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stacks_survive(frames in stack()) {
        prop_assert_eq!(decode(&encode(&frames)), frames);
    }

    #[test]
    fn ordinary_frames_take_one_word(frame in narrow()) {
        prop_assert_eq!(encode(&[frame]).len(), 1);
    }

    #[test]
    fn a_cut_escape_ends_the_stack_before_it(
        whole in vec(frame_line(), 0..20),
        last in wide(),
    ) {
        let mut words = encode(&whole);
        let escaped = encode(&[last]);
        prop_assert_eq!(escaped.len(), 2);
        words.push(escaped[0]);
        prop_assert_eq!(decode(&words), whole);
    }

    #[test]
    fn any_words_decode_to_at_most_a_frame_each(words in vec(any::<u64>(), 0..100)) {
        prop_assert!(decode(&words).len() <= words.len());
    }

    #[test]
    fn headers_survive(
        kind in kind(),
        phase in phase(),
        truncated in any::<bool>(),
        words in 0..=MAX_RECORD_WORDS,
        slot in any::<u16>(),
        weight in 0..=MAX_WEIGHT,
        state in state(),
        cpu in any::<bool>(),
    ) {
        let plain = Header::new(kind, phase, truncated, words, slot, weight);
        prop_assert!(!plain.has_cpu());
        prop_assert_eq!(plain.state(), State::Running);
        let header = if cpu { plain.with_cpu() } else { plain }.in_state(state);
        prop_assert_eq!(header.has_cpu(), cpu);
        prop_assert_eq!(header.state(), state);
        prop_assert_eq!(header.kind(), Some(kind));
        prop_assert_eq!(header.phase(), phase);
        prop_assert_eq!(header.truncated(), truncated);
        prop_assert_eq!(header.words(), words);
        prop_assert_eq!(header.slot(), slot);
        prop_assert_eq!(header.weight(), weight);
    }

    #[test]
    fn a_weight_too_large_is_cut_and_spoils_nothing(weight in MAX_WEIGHT..=u64::MAX) {
        let header = Header::new(Kind::Again, GcPhase::None, false, 2, 7, weight);
        prop_assert_eq!(header.weight(), MAX_WEIGHT);
        prop_assert_eq!((header.kind(), header.words(), header.slot()), (Some(Kind::Again), 2, 7));
    }

    #[test]
    fn any_word_reads_as_a_header(word in any::<u64>()) {
        let header = Header(word);
        prop_assert_eq!(header.kind().is_some(), matches!(word & 7, 1..=6));
        prop_assert!(header.weight() <= MAX_WEIGHT);
        prop_assert!(header.words() < 1 << 13);
        prop_assert!(header.words_before_frames() <= 4);
        let _ = (header.phase(), header.truncated(), header.slot(), header.state());
    }
}

#[test]
fn the_deepest_stack_of_escapes_fits_the_longest_record() {
    let frames = vec![FrameLine::new(u64::MAX, i32::MIN); MAX_DEPTH];
    let words = encode(&frames);
    // Header, time, number of the collection, weight by the CPU clock.
    assert_eq!(words.len() + 4, MAX_RECORD_WORDS);
    assert_eq!(decode(&words), frames);
}
