//! Tables with a bound on their memory: what is new beyond it counts as its caller's own, and no weight is lost.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use ringprof_core::drain::{Options, Profile, Tables};
use ringprof_core::sample::{FrameLine, GcPhase, Header, Kind, State, FRAME_GC};

const CASES: u32 = if cfg!(miri) { 4 } else { 128 };
/// What the tables hold at least, and what is not for stacks: the scratch, one path, one thread.
const REST: usize = 4_096;

fn options(max_bytes: usize) -> Options {
    Options {
        raw: true,
        both_clocks: true,
        monotone_deltas: false,
        max_bytes,
    }
}

fn tables(options: Options) -> Tables {
    let mut tables = Tables::new(options);
    tables.resume(0, options.raw, options.max_bytes);
    tables.thread_begins(1, 77).expect("memory");
    tables
}

/// A record of `kind` with `leaf` first; `kept` frames are those of the last stack.
fn record(kind: Kind, state: State, weight: u32, kept: usize, leaf: &[FrameLine]) -> Vec<u64> {
    let mut words = vec![0, 1_000];
    if kind == Kind::Delta {
        words.push(kept as u64);
    }
    words.push(7);
    for frame in leaf {
        let mut pair = [0; 2];
        let used = frame.encode(&mut pair);
        words.extend_from_slice(&pair[..used]);
    }
    let header = Header::new(kind, GcPhase::None, false, words.len(), 1, weight.into());
    words[0] = header.in_state(state).with_cpu().0;
    words
}

fn insert(tables: &mut Tables, words: &[u64]) {
    assert_eq!(tables.insert(words.iter().copied()), Ok(()));
}

/// A stack, leaf first, of frames whose ancestors are given by `path`.
fn stack(path: &[u8]) -> Vec<FrameLine> {
    path.iter()
        .map(|&step| FrameLine::new(u64::from(step) * 8 + 8, i32::from(step)))
        .collect()
}

fn own(profile: &Profile) -> u64 {
    profile.frames.iter().map(|frame| frame.own).sum()
}

/// Total by frame.
fn totals(profile: &Profile) -> BTreeMap<u64, u64> {
    let frames = profile.frames.iter();
    frames.map(|frame| (frame.frame, frame.total)).collect()
}

fn paths() -> impl Strategy<Value = Vec<(Vec<u8>, u32)>> {
    let path = vec(any::<u8>(), 1..30);
    vec((path, 1..5_u32), 1..if cfg!(miri) { 20 } else { 400 })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_bound_holds_and_nothing_is_lost(paths in paths(), bound in 1..100_000_usize) {
        let (mut free, mut bounded) = (tables(options(0)), tables(options(bound)));
        let states = [State::Running, State::Blocked, State::Waiting];
        let mut samples = 0;
        for (at, (path, weight)) in paths.iter().enumerate() {
            let words = record(Kind::Stack, states[at % 3], *weight, 0, &stack(path));
            insert(&mut free, &words);
            insert(&mut bounded, &words);
            samples += u64::from(*weight);
            prop_assert!(bounded.bytes() <= bound + REST, "{} of {bound}", bounded.bytes());
        }
        let folded = bounded.folded();
        let (free, bounded) = (free.finish(0), bounded.finish(0));
        prop_assert_eq!((free.samples, free.folded, free.raw_omitted), (samples, 0, 0));
        prop_assert_eq!((bounded.samples, bounded.folded), (samples, folded));
        prop_assert_eq!(bounded.states, free.states);
        prop_assert_eq!(bounded.cpu_samples, free.cpu_samples);
        prop_assert_eq!(&bounded.threads, &free.threads);
        // No frame has more than it had; what is nobody's own had no root with a node.
        prop_assert!(own(&bounded) + folded >= samples);
        let had = totals(&free);
        for (frame, total) in totals(&bounded) {
            prop_assert!(total <= had[&frame], "{frame:#x}");
        }
        let raw = bounded.raw.as_ref().map_or(0, |raw| raw.samples());
        prop_assert_eq!(raw + bounded.raw_omitted, own(&bounded));
        if folded == 0 {
            prop_assert_eq!(bounded.frames, free.frames);
        }
    }

    /// What is left out of a record is what the record before it had, whether that had nodes or not.
    #[test]
    fn deltas_are_folded_like_whole_stacks(paths in paths(), bound in 1..60_000_usize) {
        let options = Options { raw: false, ..options(bound) };
        let (mut whole, mut delta) = (tables(options), tables(options));
        let mut before: Vec<FrameLine> = Vec::new();
        for (at, (path, weight)) in paths.iter().enumerate() {
            let mut now = stack(path);
            // So that there is something to share.
            let kept = before.len() * (at % 4) / 4;
            now.extend_from_slice(&before[before.len() - kept..]);
            insert(&mut whole, &record(Kind::Stack, State::Running, *weight, 0, &now));
            let words = if at == 0 {
                record(Kind::Stack, State::Running, *weight, 0, &now)
            } else {
                record(Kind::Delta, State::Running, *weight, kept, &now[..now.len() - kept])
            };
            insert(&mut delta, &words);
            if at % 3 == 0 {
                for tables in [&mut whole, &mut delta] {
                    insert(tables, &record(Kind::Again, State::Running, 2, 0, &[]));
                    insert(tables, &record(Kind::Rest, State::Blocked, 3, 0, &[]));
                }
            }
            before = now;
        }
        prop_assert_eq!(whole.finish(0), delta.finish(0));
    }
}

#[test]
fn a_new_stack_counts_as_its_caller() {
    let mut tables = tables(options(0));
    let known = stack(&[3, 2, 1]);
    insert(
        &mut tables,
        &record(Kind::Stack, State::Running, 5, 0, &known),
    );
    // No room for anything from here on.
    tables.resume(0, true, 1);
    // 4 and 5 are new; 3 is known under 2 alone, so that under 4 it has no place of its own.
    let new = stack(&[3, 5, 4, 2, 1]);
    insert(
        &mut tables,
        &record(Kind::Stack, State::Running, 2, 0, &new),
    );
    insert(&mut tables, &record(Kind::Again, State::Running, 3, 0, &[]));
    // It keeps 4, which has no node, and continues it by 3, which has one elsewhere.
    insert(
        &mut tables,
        &record(Kind::Delta, State::Running, 1, 3, &stack(&[3])),
    );
    // Back to what is known.
    insert(
        &mut tables,
        &record(Kind::Delta, State::Running, 7, 2, &stack(&[3])),
    );
    // A root that is new has nobody to fold into.
    insert(
        &mut tables,
        &record(Kind::Stack, State::Running, 11, 0, &stack(&[9])),
    );
    assert_eq!(tables.folded(), 2 + 3 + 1 + 11);
    let profile = tables.finish(0);
    assert_eq!(profile.samples, 5 + 2 + 3 + 1 + 7 + 11);
    let counts: Vec<_> = profile
        .frames
        .iter()
        .map(|frame| (frame.frame / 8 - 1, frame.total, frame.own))
        .collect();
    assert_eq!(counts, [(3, 12, 12), (2, 18, 6), (1, 18, 0)]);
    // Four points had room already; then raw has no more.
    assert_eq!(profile.raw.map(|raw| raw.samples()), Some(5 + 2 + 3 + 1));
    assert_eq!(profile.raw_omitted, 7);
}

#[test]
fn garbage_collection_has_its_place_whatever_the_bound() {
    let mut tables = tables(Options {
        raw: false,
        ..options(1)
    });
    let header = Header::new(Kind::Gc, GcPhase::Marking, false, 2, 1, 4);
    insert(&mut tables, &[header.0, 5]);
    let profile = tables.finish(0);
    assert_eq!(
        (profile.samples, profile.gc_samples, profile.folded),
        (4, 4, 0)
    );
    assert_eq!(profile.frames[0].frame, FRAME_GC);
    assert_eq!(profile.frames[0].total, 4);
}

/// A day at 1 ms: stacks that come back need nothing new, and those that do not are folded.
#[test]
fn memory_stays_where_it_is() {
    let bound = 1 << 20;
    let mut tables = tables(Options {
        raw: false,
        both_clocks: false,
        ..options(bound)
    });
    let mut highest = 0;
    let rounds = if cfg!(miri) { 2 } else { 12 };
    for round in 0..rounds {
        for number in 0..10_000_u32 {
            let [_, a, b, c] = (number + round * 5_000).to_be_bytes();
            let words = record(
                Kind::Stack,
                State::Running,
                1,
                0,
                &stack(&[c, b, a, 1, 2, 3]),
            );
            let header = Header(words[0]);
            // Without the second clock.
            let mut words = words;
            words.remove(2);
            words[0] = Header::new(
                Kind::Stack,
                GcPhase::None,
                false,
                words.len(),
                header.slot(),
                1,
            )
            .0;
            insert(&mut tables, &words);
        }
        highest = highest.max(tables.bytes());
    }
    assert!(highest <= bound + REST, "{highest}");
    assert!(tables.folded() > 0);
    assert_eq!(tables.samples(), u64::from(rounds) * 10_000);
}
