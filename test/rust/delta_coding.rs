//! Stacks through the writer, the ring and the tables: whatever a record leaves out because the one before it had it,
//! each stack that was walked is the one that comes out.

#[path = "support/fake_vm.rs"]
mod fake_vm;

use fake_vm::LAYOUT;
use proptest::collection::vec;
use proptest::prelude::*;
use ringprof_core::capture::plan::{Capture, Plan, Reading, WeightClock};
use ringprof_core::capture::scratch::Scratch;
use ringprof_core::capture::writer::{Mark, Outcome, Writer};
use ringprof_core::drain::{Options, Tables};
use ringprof_core::ring::{self, Consumer};
use ringprof_core::sample::{FrameLine, GcCause, GcPhase, Header, Kind, MAX_DEPTH};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

const CASES: u32 = if cfg!(miri) { 4 } else { 64 };

/// What happens between a walk and the next one.
#[derive(Clone, Debug)]
enum Change {
    /// The stack returns to that depth and calls so many frames, at lines from there on.
    Call { keep: usize, push: usize, line: i32 },
    /// The leaf goes on to another line.
    Line(i32),
    /// The program goes deeper than what is kept.
    Deep(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Walk(Change, u16),
    Gc,
    Cause(u64),
    Rest(u16),
    /// So many records are drained.
    Drain(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let line = prop_oneof![6 => 0..3, 1 => Just(70_000)];
    let change = prop_oneof![
        8 => (0..24_usize, 0..6_usize, line).prop_map(|(keep, push, line)| Change::Call { keep, push, line }),
        4 => (0..4).prop_map(Change::Line),
        1 => (MAX_DEPTH - 2..MAX_DEPTH + 3).prop_map(Change::Deep),
    ];
    let slot = || prop_oneof![4 => Just(1_u16), 1 => Just(2_u16)];
    prop_oneof![
        12 => (change, slot()).prop_map(|(change, slot)| Step::Walk(change, slot)),
        1 => Just(Step::Gc),
        1 => (1..4_u64).prop_map(Step::Cause),
        1 => slot().prop_map(Step::Rest),
        3 => (0..12_usize).prop_map(Step::Drain),
    ]
}

fn plan(high_water: usize, both_clocks: bool) -> Plan {
    Plan {
        both_clocks,
        pauses: false,
        clock: WeightClock::Wall,
        interval_ns: 1000,
        ignore_gc: false,
        capture: Capture::Direct(LAYOUT),
        thread_ec: LAYOUT.thread_ec,
        reading: Reading::InHandler,
        high_water,
        pseudo_root: 0,
        #[cfg(feature = "testing")]
        skip_preflight: false,
        #[cfg(feature = "testing")]
        check_walks: true,
    }
}

/// What a drain has taken: tables, the kinds of records, and frames that GC has to be told of meanwhile.
struct Drain {
    consumer: Consumer,
    tables: Tables,
    kinds: Vec<Kind>,
}

impl Drain {
    fn read(&mut self, records: usize) {
        let Self {
            consumer,
            tables,
            kinds,
        } = self;
        for _ in 0..records {
            let drained = consumer.read(
                |word| Header(word).words(),
                |record| {
                    kinds.push(Header(record.get(0)).kind().expect("a kind"));
                    tables.insert(record.words()).expect("a record of ours");
                    ControlFlow::Break(())
                },
            );
            assert!(!drained.corrupt);
            if drained.records == 0 {
                return;
            }
        }
    }

    /// What GC would mark.
    fn marked(&self) -> BTreeSet<u64> {
        let mut marked = BTreeSet::new();
        self.tables.each_frame(|frame| {
            marked.insert(frame);
        });
        self.consumer.peek(
            |word| Header(word).words(),
            |record| {
                let header = Header(record.get(0));
                if header.has_frames() {
                    let words = record.words().skip(header.words_before_frames());
                    marked
                        .extend(ringprof_core::sample::Frames::new(words).map(|frame| frame.frame));
                }
            },
        );
        marked
    }
}

type Stack = Vec<FrameLine>;
/// Stacks in order, with how often each was found in a row.
type Runs = Vec<(Stack, u64)>;

/// The kinds of the records, the stacks that should come out (leaf first, by order), and those that do.
fn run(steps: &[Step], words: usize, both: bool) -> (Vec<Kind>, Runs, Runs) {
    let values: Vec<u64> = (0..MAX_DEPTH + 8).map(fake_vm::frame).collect();
    let hooks = fake_vm::hooks(true);
    let (producer, consumer) = ring::with_capacity(words);
    let high_water = producer.capacity() / 2;
    let mut writer = Writer::new(producer, Scratch::new(), plan(high_water, both));
    let options = Options {
        raw: true,
        both_clocks: both,
        ..Options::default()
    };
    let mut drain = Drain {
        consumer,
        tables: Tables::new(options),
        kinds: Vec::new(),
    };
    drain.tables.resume(0, true, 0);
    for slot in [1, 2] {
        drain
            .tables
            .thread_begins(slot, slot.into())
            .expect("memory");
    }

    // Root first.
    let mut stack: Stack = vec![FrameLine::new(values[0], 1)];
    let mut expected: Runs = Vec::new();
    let mut lasts: [Option<Stack>; 3] = [const { None }; 3];
    // Samples that are owed to the last stack, and lost if there is no room for them when another one comes.
    let mut owed = 0;
    for (now, step) in steps.iter().enumerate() {
        let mark = |slot| Mark {
            slot,
            time: now as u64 * 1000,
            weight: 1,
            ..Mark::default()
        };
        let mut outcome = Outcome::Early;
        match step {
            Step::Walk(change, slot) => {
                match *change {
                    Change::Call { keep, push, line } => {
                        stack.truncate(keep.clamp(1, stack.len()));
                        let base = stack.len();
                        stack.extend((0..push).map(|n| FrameLine::new(values[base + n], line)));
                    }
                    Change::Line(line) => stack.last_mut().expect("a root").line = line,
                    Change::Deep(depth) => {
                        stack.truncate(depth);
                        let base = stack.len();
                        stack.extend((base..depth).map(|n| FrameLine::new(values[n], 1)));
                    }
                }
                let leaf_first: Stack = stack.iter().rev().copied().collect();
                fake_vm::set_stack(leaf_first.clone().leak());
                // SAFETY: there is no VM, and the frames are what `fake_vm` takes for frames.
                outcome = unsafe { writer.walk(&hooks, None, mark(*slot)) };
                if matches!(outcome, Outcome::Recorded | Outcome::Folded) {
                    let kept = leaf_first[..leaf_first.len().min(MAX_DEPTH)].to_vec();
                    lasts[usize::from(*slot)] = Some(kept.clone());
                    expected.push((kept, 1));
                } else {
                    assert_eq!(outcome, Outcome::RingFull);
                }
            }
            Step::Gc => {
                outcome = writer.write_gc(GcPhase::Marking, 0, mark(1));
                if outcome == Outcome::Recorded {
                    let gc = [3, 1].map(|fake| FrameLine::new(fake, 0));
                    expected.push((gc.to_vec(), 1));
                }
            }
            Step::Cause(collection) => {
                // SAFETY: as above.
                outcome =
                    unsafe { writer.walk_cause(&hooks, *collection, GcCause::Malloc, mark(1)) };
            }
            Step::Rest(slot) => {
                if let Some(last) = &lasts[usize::from(*slot)] {
                    outcome = writer.rest(mark(*slot));
                    if outcome == Outcome::Recorded {
                        expected.push((last.clone(), 1));
                    }
                }
            }
            Step::Drain(records) => drain.read(*records),
        }
        let weighs = !matches!(step, Step::Cause(_));
        let own = u64::from(outcome == Outcome::RingFull && weighs);
        if writer.take_missed() > own {
            let recorded = usize::from(outcome == Outcome::Recorded && weighs);
            let end = expected.len() - recorded;
            expected.drain(end - owed..end);
        }
        match (step, outcome) {
            (Step::Walk(..), Outcome::Folded) => owed += 1,
            (Step::Drain(_), _) | (_, Outcome::Early) => {}
            (Step::Cause(_), Outcome::Folded) => {}
            _ => owed = 0,
        }
        // Whatever the next record leaves out is kept alive by what is marked now (I7).
        let marked = drain.marked();
        for last in lasts.iter().flatten() {
            assert!(last.iter().all(|frame| marked.contains(&frame.frame)));
        }
    }
    let owed = writer.take_owed();
    drain.read(usize::MAX);
    if owed.weight > 0 {
        assert!(drain.tables.credit_last(owed.weight, owed.time));
    }
    let profile = drain.tables.finish(0);
    let mut frames = Vec::new();
    let raw = profile.raw.as_ref();
    let found = raw.map_or_else(Vec::new, |raw| {
        raw.runs()
            .map(|run| {
                raw.stack(run.node, &mut frames);
                let value = |&(index, line): &(u32, i32)| {
                    FrameLine::new(profile.frames[index as usize].frame, line)
                };
                (frames.iter().rev().map(value).collect(), run.weight)
            })
            .collect()
    });
    (drain.kinds, together(expected), found)
}

/// Equal neighbours are one run. Folded stacks come out behind records of other kinds, as they are of the same stack.
fn together(samples: Runs) -> Runs {
    let mut runs: Runs = Vec::new();
    for (stack, weight) in samples {
        match runs.last_mut() {
            Some((same, sum)) if *same == stack => *sum += weight,
            _ => runs.push((stack, weight)),
        }
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_stack_comes_out_as_it_was_walked(
        steps in vec(step(), 0..if cfg!(miri) { 12 } else { 80 }),
        words in prop_oneof![Just(1 << 16), Just(1 << 13), 40..200_usize],
        both in any::<bool>(),
    ) {
        let (_, expected, found) = run(&steps, words, both);
        prop_assert_eq!(found, expected);
    }
}

fn call(keep: usize, push: usize) -> Step {
    Step::Walk(
        Change::Call {
            keep,
            push,
            line: 1,
        },
        1,
    )
}

#[test]
fn only_what_changed_is_written() {
    let steps = [
        call(1, 9),
        Step::Walk(Change::Line(7), 1),
        call(5, 0),
        // Deeper than any before: new frames in a record that is not whole.
        call(5, 9),
        Step::Walk(Change::Line(7), 2),
        // One frame in common is not worth a word.
        Step::Walk(
            Change::Call {
                keep: 1,
                push: 3,
                line: 2,
            },
            1,
        ),
        Step::Walk(Change::Line(70_000), 1),
        // The first after a drain is whole, whoever reads it.
        Step::Drain(100),
        call(3, 1),
        call(3, 2),
    ];
    let (kinds, expected, found) = run(&steps, 1 << 12, false);
    use Kind::{Delta, Stack};
    assert_eq!(
        kinds,
        [Stack, Delta, Delta, Delta, Delta, Stack, Delta, Stack, Delta]
    );
    assert_eq!(found, expected);
}

#[test]
fn a_record_that_found_no_room_is_nobodys_reference() {
    // 32 words: a stack of ten, then one that shares three frames with it and has no room, then one that shares
    // more with that than with the first.
    let lost = Change::Call {
        keep: 3,
        push: 40,
        line: 2,
    };
    let steps = [
        call(1, 9),
        Step::Walk(lost, 1),
        call(5, 0),
        Step::Walk(Change::Line(3), 1),
    ];
    let (kinds, expected, found) = run(&steps, 32, false);
    assert_eq!(kinds, [Kind::Stack, Kind::Delta, Kind::Delta]);
    assert_eq!(found, expected);
}
