//! The drain against an oracle that counts one sample after the other, as StackProf does.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use ringprof_core::drain::{Corrupt, FrameTotals, Options, Profile, Raw, Tables};
use ringprof_core::sample::{FrameLine, GcPhase, Header, Kind, State, NO_SLOT};
use ringprof_core::sample::{FRAME_GC, FRAME_MARKING, FRAME_SWEEPING, MAX_DEPTH, MAX_WEIGHT};

const CASES: u32 = if cfg!(miri) { 8 } else { 256 };
const START_NS: u64 = 1_000_000;
const SLOT: u16 = 3;

/// Empty tables of a profile that started at `start_ns`.
fn tables_from(options: Options, start_ns: u64) -> Tables {
    let mut tables = Tables::new(options);
    tables.resume(start_ns, options.raw, options.max_bytes);
    tables
}

/// One thing that the consumer does to the tables.
#[derive(Clone, Debug)]
enum Step {
    Stack(Vec<FrameLine>, bool, u32),
    /// So much of the last stack's root side, as a share of 256, under these frames.
    Delta(u8, Vec<FrameLine>, bool, u32),
    Again(u32),
    Gc(GcPhase, u32),
    Credit(u32),
    Forget,
}

/// One sample after expansion: its stack (leaf first), and what is needed to place it in time.
#[derive(Clone, Debug)]
struct Sample {
    stack: Vec<FrameLine>,
    truncated: bool,
    time_ns: u64,
    /// How many samples of the same record come after this one.
    later: u64,
}

/// Few frames and lines, so that paths meet, part and recur; some wide ones.
fn frame_line() -> impl Strategy<Value = FrameLine> {
    let frame = prop_oneof![(1..6_u64).prop_map(|n| n * 8), Just(8 << 48)];
    let line = prop_oneof![4 => -1..4, 1 => Just(70_000), 1 => Just(i32::MAX)];
    (frame, line).prop_map(|(frame, line)| FrameLine::new(frame, line))
}

fn step() -> impl Strategy<Value = Step> {
    let weight = || prop_oneof![3 => Just(1_u32), 2 => 1..6_u32];
    let phase = prop_oneof![
        Just(GcPhase::None),
        Just(GcPhase::Marking),
        Just(GcPhase::Sweeping)
    ];
    prop_oneof![
        6 => (vec(frame_line(), 0..8), any::<bool>(), weight())
            .prop_map(|(stack, truncated, weight)| Step::Stack(stack, truncated, weight)),
        4 => (any::<u8>(), vec(frame_line(), 0..5), any::<bool>(), weight())
            .prop_map(|(kept, leaf, truncated, weight)| Step::Delta(kept, leaf, truncated, weight)),
        3 => weight().prop_map(Step::Again),
        2 => (phase, weight()).prop_map(|(phase, weight)| Step::Gc(phase, weight)),
        1 => weight().prop_map(Step::Credit),
        1 => Just(Step::Forget),
    ]
}

/// Steps with the time of each; records of several threads may come out of order.
fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
    let time = prop_oneof![9 => START_NS..START_NS + 200_000, 1 => 0..2 * START_NS];
    vec((step(), time), 0..if cfg!(miri) { 20 } else { 60 })
}

fn record(
    kind: Kind,
    phase: GcPhase,
    truncated: bool,
    weight: u32,
    time_ns: u64,
    stack: &[FrameLine],
) -> Vec<u64> {
    let mut words = vec![0, time_ns];
    for frame in stack {
        let mut pair = [0; 2];
        let used = frame.encode(&mut pair);
        words.extend_from_slice(&pair[..used]);
    }
    words[0] = Header::new(kind, phase, truncated, words.len(), SLOT, weight.into()).0;
    words
}

fn stack_record(stack: &[FrameLine], weight: u32, time_ns: u64) -> Vec<u64> {
    record(Kind::Stack, GcPhase::None, false, weight, time_ns, stack)
}

fn delta_record(
    kept: usize,
    leaf: &[FrameLine],
    truncated: bool,
    weight: u32,
    time_ns: u64,
) -> Vec<u64> {
    let mut words = record(Kind::Delta, GcPhase::None, truncated, weight, time_ns, leaf);
    words.insert(2, kept as u64);
    let length = words.len();
    words[0] = Header::new(
        Kind::Delta,
        GcPhase::None,
        truncated,
        length,
        SLOT,
        weight.into(),
    )
    .0;
    words
}

fn insert(tables: &mut Tables, words: &[u64]) -> Result<(), Corrupt> {
    tables.insert(words.iter().copied())
}

/// Frames that GC would mark.
fn marked(tables: &Tables) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    tables.each_frame(|frame| assert!(seen.insert(frame), "{frame:#x} was visited twice"));
    seen
}

fn gc_stack(phase: GcPhase) -> Vec<FrameLine> {
    let leaf = match phase {
        GcPhase::None => None,
        GcPhase::Marking => Some(FrameLine::new(FRAME_MARKING, 0)),
        GcPhase::Sweeping => Some(FrameLine::new(FRAME_SWEEPING, 0)),
    };
    leaf.into_iter()
        .chain([FrameLine::new(FRAME_GC, 0)])
        .collect()
}

/// Feeds the tables, and lists every sample that they were told of, one by one.
fn run(tables: &mut Tables, steps: &[(Step, u64)]) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut last: Option<(Vec<FrameLine>, bool)> = None;
    for (step, time) in steps {
        let (stack, weight) = match step {
            Step::Stack(stack, truncated, weight) => {
                let words = record(
                    Kind::Stack,
                    GcPhase::None,
                    *truncated,
                    *weight,
                    *time,
                    stack,
                );
                assert_eq!(insert(tables, &words), Ok(()));
                last = Some((stack.clone(), *truncated));
                (last.clone(), *weight)
            }
            Step::Delta(kept, leaf, truncated, weight) => {
                let before = last.as_ref().map_or(&[][..], |(stack, _)| stack);
                let kept = (before.len() + 1) * usize::from(*kept) / 256;
                let words = delta_record(kept, leaf, *truncated, *weight, *time);
                let expected = last.as_ref().map(|_| ()).ok_or(Corrupt::NothingToRepeat);
                assert_eq!(insert(tables, &words), expected);
                last = last.is_some().then(|| {
                    let whole = [leaf, &before[before.len() - kept..]].concat();
                    (whole, *truncated)
                });
                (last.clone(), *weight)
            }
            Step::Again(weight) => {
                let words = record(Kind::Again, GcPhase::None, false, *weight, *time, &[]);
                let expected = last.as_ref().map(|_| ()).ok_or(Corrupt::NothingToRepeat);
                assert_eq!(insert(tables, &words), expected);
                (last.clone(), *weight)
            }
            Step::Gc(phase, weight) => {
                let words = record(Kind::Gc, *phase, false, *weight, *time, &[]);
                assert_eq!(insert(tables, &words), Ok(()));
                (Some((gc_stack(*phase), false)), *weight)
            }
            Step::Credit(weight) => {
                assert_eq!(tables.credit_last((*weight).into(), *time), last.is_some());
                (last.clone(), *weight)
            }
            Step::Forget => {
                tables.forget_last();
                last = None;
                (None, 0)
            }
        };
        if let Some((stack, truncated)) = stack {
            let marked = marked(tables);
            let real = stack.iter().filter(|frame| !frame.is_fake());
            assert!(real.into_iter().all(|frame| marked.contains(&frame.frame)));
            samples.extend((0..weight).rev().map(|later| Sample {
                stack: stack.clone(),
                truncated,
                time_ns: *time,
                later: later.into(),
            }));
        }
    }
    samples
}

/// The oracle: every sample is walked from its leaf, with nothing shared, merged or derived.
fn count(samples: &[Sample]) -> Profile {
    let mut profile = Profile::default();
    for Sample {
        stack, truncated, ..
    } in samples
    {
        let in_gc = stack.last().is_some_and(|root| root.frame == FRAME_GC);
        profile.samples += 1;
        profile.gc_samples += u64::from(in_gc);
        profile.states[State::Running as usize] += u64::from(!in_gc);
        profile.truncated += u64::from(*truncated);
        let mut seen = BTreeSet::new();
        let mut callee = None;
        if in_gc {
            position(
                &mut profile.frames,
                |f| f.frame == FRAME_GC,
                || totals(FRAME_GC),
            );
        }
        for (depth, &FrameLine { frame, line }) in stack.iter().enumerate() {
            let own = u64::from(depth == 0);
            let this = position(&mut profile.frames, |f| f.frame == frame, || totals(frame));
            let counts = &mut profile.frames[this];
            counts.total += u64::from(seen.insert(frame));
            counts.own += own;
            if let Some(callee) = callee.replace(this as u32) {
                let edge = position(&mut counts.edges, |e| e.0 == callee, || (callee, 0));
                counts.edges[edge].1 += 1;
            }
            if line > 0 {
                let at = position(&mut counts.lines, |l| l.0 == line, || (line, 0, 0));
                counts.lines[at].1 += 1;
                counts.lines[at].2 += own;
            }
        }
    }
    profile
}

/// Index of the first match; appends a new item if there is none.
fn position<T>(list: &mut Vec<T>, found: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    list.iter().position(found).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    })
}

fn totals(frame: u64) -> FrameTotals {
    FrameTotals {
        frame,
        ..FrameTotals::default()
    }
}

/// StackProf's `raw` and `raw_lines` in one: stacks root first, with the number of repeats.
fn runs_of(samples: &[Sample]) -> Vec<(Vec<(u64, i32)>, u64)> {
    let mut runs: Vec<(Vec<(u64, i32)>, u64)> = Vec::new();
    for sample in samples {
        let root_first = sample.stack.iter().rev();
        let stack: Vec<_> = root_first.map(|frame| (frame.frame, frame.line)).collect();
        match runs.last_mut() {
            Some((same, weight)) if *same == stack => *weight += 1,
            _ => runs.push((stack, 1)),
        }
    }
    runs
}

fn expanded_runs(profile: &Profile, raw: &Raw) -> Vec<(Vec<(u64, i32)>, u64)> {
    let mut stack = Vec::new();
    raw.runs()
        .map(|run| {
            raw.stack(run.node, &mut stack);
            let value = |&(index, line): &(u32, i32)| (profile.frames[index as usize].frame, line);
            (stack.iter().map(value).collect(), run.weight)
        })
        .collect()
}

/// Time of every sample, in µs.
fn timestamps_of(samples: &[Sample], interval_ns: u64) -> Vec<u64> {
    let even = |s: &Sample| s.time_ns.saturating_sub(s.later * interval_ns) / 1000;
    let times: Vec<u64> = samples.iter().map(even).collect();
    let latest = |end| times[..=end].iter().fold(START_NS / 1000, |a, &b| a.max(b));
    (0..times.len()).map(latest).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counts_are_those_of_the_oracle(steps in steps()) {
        let mut tables = tables_from(Options::default(), START_NS);
        let samples = run(&mut tables, &steps);
        let expected = count(&samples);
        prop_assert_eq!(tables.samples(), expected.samples);
        prop_assert_eq!(tables.gc_samples(), expected.gc_samples);
        let before = marked(&tables);
        let real = expected.frames.iter().map(|frame| frame.frame).filter(|frame| frame & 1 == 0);
        prop_assert_eq!(&before, &real.collect::<BTreeSet<_>>());
        let profile = tables.finish(1000);
        prop_assert_eq!(&profile, &expected);
        let mut after = BTreeSet::new();
        profile.each_frame(|frame| assert!(after.insert(frame)));
        prop_assert_eq!(after, before);
    }

    #[test]
    fn raw_is_that_of_the_oracle(
        steps in steps(),
        interval_ns in prop_oneof![Just(0_u64), 1..50_000_u64],
        monotone_deltas in any::<bool>(),
    ) {
        let mut tables = tables_from(Options { raw: true, monotone_deltas, ..Options::default() }, START_NS);
        let mut samples = run(&mut tables, &steps);
        let profile = tables.finish(interval_ns);
        samples.retain(|sample| !sample.stack.is_empty());
        let Some(raw) = &profile.raw else {
            prop_assert!(samples.is_empty());
            return Ok(());
        };
        prop_assert_eq!(expanded_runs(&profile, raw), runs_of(&samples));
        prop_assert_eq!(raw.samples(), samples.len() as u64);
        let words: usize = runs_of(&samples).iter().map(|(stack, _)| stack.len() + 2).sum();
        prop_assert_eq!(raw.words(), Ok(words as u64));
        let times = timestamps_of(&samples, interval_ns);
        prop_assert_eq!(raw.timestamps_us().collect::<Vec<_>>(), &times[..]);

        // Where each delta ends, counted from the start.
        let mut end = 0;
        let ends: Vec<u64> = times
            .iter()
            .map(|time| {
                let least = if monotone_deltas { end + 1 } else { end };
                end = least.max(time - START_NS / 1000);
                end
            })
            .collect();
        let sums = raw.deltas_us().scan(0, |sum, delta| {
            *sum += delta;
            Some(*sum)
        });
        prop_assert_eq!(sums.collect::<Vec<_>>(), ends);
    }

    #[test]
    fn random_words_never_panic(
        records in vec(
            (
                prop_oneof![any::<u64>(), (0..8_u64, 0..12_u64, any::<u64>())
                    .prop_map(|(kind, words, rest)| kind | words << 8 | rest << 24)],
                vec(any::<u64>(), 0..12),
                any::<bool>(),
            ),
            0..30,
        ),
        start_ns in any::<u64>(),
        interval_ns in any::<u64>(),
        max_bytes in prop_oneof![Just(0_usize), 1..10_000_usize],
    ) {
        let mut tables = tables_from(Options { raw: true, monotone_deltas: true, max_bytes, ..Options::default() }, start_ns);
        for (header, words, credit) in records {
            let (samples, nodes) = (tables.samples(), tables.nodes());
            let inserted = tables.insert([header].into_iter().chain(words));
            if inserted.is_ok() {
                prop_assert_eq!(tables.samples(), samples + Header(header).intervals());
            } else {
                prop_assert_eq!((tables.samples(), tables.nodes()), (samples, nodes));
                prop_assert!(!tables.credit_last(1, start_ns));
            }
            if credit {
                let _ = tables.credit_last(interval_ns, start_ns);
            }
        }
        let profile = tables.finish(interval_ns);
        let Some(raw) = &profile.raw else {
            return Ok(());
        };
        let mut stack = Vec::new();
        for run in raw.runs() {
            raw.stack(run.node, &mut stack);
            prop_assert!(!stack.is_empty());
        }
        raw.stack(u32::MAX, &mut stack);
        prop_assert!(stack.is_empty());
        prop_assert!(raw.deltas_us().take(1000).all(|delta| delta >= 1));
        prop_assert!(raw.timestamps_us().take(1000).is_sorted());
    }
}

#[test]
fn broken_records_are_refused_and_end_the_repeats() {
    let stack = [FrameLine::new(8, 1), FrameLine::new(16, 70_000)];
    let good = stack_record(&stack, 1, 5);
    let header = |kind, words| Header::new(kind, GcPhase::None, false, words, 0, 1).0;
    let again = [header(Kind::Again, 2), 6];
    let too_deep = stack_record(&vec![stack[0]; MAX_DEPTH + 1], 1, 5);
    let no_kind = good[0] & !7;
    let keeps_too_much = delta_record(3, &stack[..1], false, 1, 5);
    let too_deep_with_what_is_kept = delta_record(2, &vec![stack[0]; MAX_DEPTH - 1], false, 1, 5);
    let keeps_without_saying = [header(Kind::Delta, 2), 5];
    let broken: [(&[u64], Corrupt); 12] = [
        (&[], Corrupt::Short),
        (&[no_kind, 5], Corrupt::Kind),
        (&[header(Kind::Stack, 1), 5], Corrupt::Length),
        (
            &[header(Kind::Stack, usize::from(u16::MAX)), 5],
            Corrupt::Length,
        ),
        (&[header(Kind::Again, 3), 5, 8], Corrupt::Length),
        (&good[..1], Corrupt::Short),
        (&good[..3], Corrupt::Short),
        (
            &[header(Kind::Stack, 4), 5, good[2], good[3]],
            Corrupt::Escape,
        ),
        (&too_deep, Corrupt::Depth),
        (&keeps_too_much, Corrupt::NothingToRepeat),
        (&too_deep_with_what_is_kept, Corrupt::Depth),
        (&keeps_without_saying, Corrupt::Length),
    ];
    for (words, why) in broken {
        let mut tables = Tables::new(Options::default());
        assert_eq!(insert(&mut tables, &good), Ok(()));
        assert_eq!(insert(&mut tables, words), Err(why));
        assert_eq!(tables.samples(), 1, "{why}");
        assert_eq!(insert(&mut tables, &again), Err(Corrupt::NothingToRepeat));
    }
}

#[test]
fn words_after_the_record_are_not_read() {
    let mut words = stack_record(&[FrameLine::new(8, 1)], 1, 5);
    words.push(64);
    let mut tables = Tables::new(Options::default());
    assert_eq!(insert(&mut tables, &words), Ok(()));
    assert_eq!(marked(&tables), BTreeSet::from([8]));
}

#[test]
fn a_weight_of_0_is_seen_and_counts_nothing() {
    let mut tables = tables_from(
        Options {
            both_clocks: false,
            raw: true,
            monotone_deltas: false,
            max_bytes: 0,
        },
        0,
    );
    let stack = stack_record(&[FrameLine::new(8, 1)], 0, 5);
    assert_eq!(insert(&mut tables, &stack), Ok(()));
    assert_eq!(marked(&tables), BTreeSet::from([8]));
    assert!(tables.credit_last(2, 7));
    let profile = tables.finish(0);
    assert_eq!((profile.samples, profile.frames[0].total), (2, 2));
    assert_eq!(profile.raw.map(|raw| raw.points().len()), Some(1));
}

#[test]
fn a_credit_that_no_point_can_carry_is_refused() {
    let mut tables = Tables::new(Options::default());
    assert!(!tables.credit_last(1, 5));
    assert_eq!(insert(&mut tables, &stack_record(&[], 1, 5)), Ok(()));
    assert!(!tables.credit_last(1 << 32, 5));
    assert!(tables.credit_last((1 << 32) - 1, 5));
    assert_eq!(tables.samples(), 1 << 32);
}

#[test]
fn the_largest_weights_add_up() {
    let mut tables = tables_from(
        Options {
            both_clocks: false,
            raw: true,
            monotone_deltas: false,
            max_bytes: 0,
        },
        0,
    );
    let words = stack_record(&[FrameLine::new(8, 1)], MAX_WEIGHT as u32, 9_000_000);
    for _ in 0..1000 {
        assert_eq!(insert(&mut tables, &words), Ok(()));
    }
    let profile = tables.finish(1);
    assert_eq!(
        profile.frames[0].lines,
        [(1, 1000 * MAX_WEIGHT, 1000 * MAX_WEIGHT)]
    );
    let raw = profile.raw.expect("raw was asked for");
    assert_eq!(
        raw.runs().next().map(|run| run.weight),
        Some(1000 * MAX_WEIGHT)
    );
    assert_eq!(raw.samples(), 1000 * MAX_WEIGHT);
}

#[test]
fn known_stacks_take_no_more_memory() {
    let stacks: Vec<_> = (0..50)
        .map(|line| {
            let mut stack: Vec<_> = (1..=20).map(|n| FrameLine::new(8 * n, 1)).collect();
            stack[3].line = line;
            stack_record(&stack, 1, 5)
        })
        .collect();
    let mut tables = Tables::new(Options::default());
    let mut pass = || {
        for stack in &stacks {
            assert_eq!(insert(&mut tables, stack), Ok(()));
        }
        (tables.bytes(), tables.nodes())
    };
    let first = pass();
    // The 16 frames at the root side are shared, the 4 at the leaf side are not.
    assert_eq!(first.1, 16 + 50 * 4);
    assert_eq!(pass(), first);
    assert_eq!(pass(), first);
}

#[test]
fn deep_recursion_is_counted_once_a_sample() {
    let mut tables = tables_from(Options::default(), 0);
    for depth in 1..=MAX_DEPTH {
        let stack = vec![FrameLine::new(8, 1); depth];
        assert_eq!(insert(&mut tables, &stack_record(&stack, 1, 5)), Ok(()));
    }
    assert_eq!(tables.nodes(), MAX_DEPTH);
    let profile = tables.finish(1000);
    let depth = MAX_DEPTH as u64;
    let pairs = depth * (depth - 1) / 2;
    let frame = &profile.frames[0];
    assert_eq!((frame.total, frame.own), (depth, depth));
    assert_eq!(frame.edges, [(0, pairs)]);
    assert_eq!(frame.lines, [(1, pairs + depth, depth)]);
}

#[test]
fn deltas_after_a_pause_count_from_the_second_start() {
    let options = Options {
        both_clocks: false,
        raw: true,
        monotone_deltas: false,
        max_bytes: 0,
    };
    let record = |time_ns| {
        let header = Header::new(Kind::Stack, GcPhase::None, false, 3, 0, 1);
        [header.0, time_ns, 8]
    };
    let mut tables = tables_from(options, 1_000_000);
    tables.insert(record(1_500_000).into_iter()).unwrap();
    tables.resume(9_000_000, true, 0);
    tables.insert(record(9_100_000).into_iter()).unwrap();
    tables.insert(record(9_300_000).into_iter()).unwrap();
    let raw = tables.finish(0).raw.unwrap();
    assert_eq!(raw.deltas_us().collect::<Vec<_>>(), [500, 100, 200]);
    assert_eq!(
        raw.timestamps_us().collect::<Vec<_>>(),
        [1_500, 9_100, 9_300]
    );
}

#[test]
fn a_stack_that_is_no_threads_is_credited_no_time() {
    let mut tables = Tables::new(Options::default());
    let header = Header::new(Kind::Stack, GcPhase::None, false, 3, NO_SLOT, 1);
    tables.insert([header.0, 5, 8].into_iter()).unwrap();
    assert!(!tables.credit_last(2, 7));
    assert_eq!(tables.samples(), 1);
}
