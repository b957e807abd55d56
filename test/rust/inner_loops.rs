//! The four inner loops, each as often as it is told to, for `bin/instructions` to count:
//! `inner_loops ring|encode|decode|tree COUNT`.
//!
//! Nothing here is random or timed, so that the same build executes the same instructions. With `RINGPROF_PLANT` set each
//! loop does a tenth more than it says, which must be noticed.

#[path = "support/fake_vm.rs"]
mod fake_vm;

use fake_vm::LAYOUT;
use ringprof_core::capture::plan::{Capture, Plan, Reading, WeightClock};
use ringprof_core::capture::scratch::Scratch;
use ringprof_core::capture::writer::{Mark, Outcome, Writer};
use ringprof_core::drain::{Options, Tables};
use ringprof_core::ring::{self, Consumer};
use ringprof_core::sample::{FrameLine, Frames, GcPhase, Header, Kind};
use std::hint::black_box;
use std::ops::ControlFlow;

/// Frames of a stack.
const DEPTH: usize = 50;
/// Ring, in words.
const WORDS: usize = 1 << 14;
/// Records between two drains.
const A_DRAIN: usize = 64;
/// Leaf frames by which neighbouring stacks differ.
const CHANGED: usize = 4;

fn stacks() -> [&'static [FrameLine]; 2] {
    let first = fake_vm::stack(DEPTH, 1);
    let mut second = first.to_vec();
    for frame in &mut second[..CHANGED] {
        frame.line += 100;
    }
    [first, second.leak()]
}

/// A whole record.
fn record(stack: &[FrameLine]) -> Vec<u64> {
    let mut words = vec![0, 1000];
    for frame in stack {
        let mut pair = [0; 2];
        let used = frame.encode(&mut pair);
        words.extend_from_slice(&pair[..used]);
    }
    words[0] = Header::new(Kind::Stack, GcPhase::None, false, words.len(), 1, 1).0;
    words
}

fn discard(consumer: &mut Consumer) -> usize {
    let visit = |record: ring::Record<'_>| {
        black_box(record.get(0));
        ControlFlow::Continue(())
    };
    consumer.read(|word| Header(word).words(), visit).records
}

/// A record of a dozen words into the ring and out of it.
fn ring(count: usize) {
    let (mut producer, mut consumer) = ring::with_capacity(WORDS);
    let words = record(&stacks()[0][..10]);
    let (head, body) = words.split_at(2);
    for n in 1..=count {
        producer.try_write(head, body).expect("room");
        if n % A_DRAIN == 0 {
            assert_eq!(discard(&mut consumer), A_DRAIN);
        }
    }
}

/// A walk of 50 frames, of which four are not those of the walk before, into a record.
fn encode(count: usize) {
    let (producer, mut consumer) = ring::with_capacity(WORDS);
    let plan = Plan {
        both_clocks: false,
        pauses: false,
        clock: WeightClock::Wall,
        interval_ns: 1000,
        ignore_gc: false,
        capture: Capture::Direct(LAYOUT),
        thread_ec: LAYOUT.thread_ec,
        reading: Reading::InHandler,
        high_water: producer.capacity() / 2,
        pseudo_root: 0,
        #[cfg(feature = "testing")]
        skip_preflight: false,
        #[cfg(feature = "testing")]
        check_walks: false,
    };
    let hooks = fake_vm::hooks(true);
    let mut writer = Writer::new(producer, Scratch::new(), plan);
    let stacks = stacks();
    for n in 1..=count {
        fake_vm::set_stack(stacks[n % 2]);
        let mark = Mark {
            slot: 1,
            time: n as u64,
            weight: 1,
            ..Mark::default()
        };
        // SAFETY: there is no VM, and the frames are what `fake_vm` takes for frames.
        let outcome = unsafe { writer.walk(&hooks, None, mark) };
        assert_eq!(outcome, Outcome::Recorded);
        if n % A_DRAIN == 0 {
            assert_eq!(discard(&mut consumer), A_DRAIN);
        }
    }
}

/// A record of 50 frames into frames and lines.
fn decode(count: usize) {
    let words = record(stacks()[0]);
    for _ in 0..count {
        let frames = Frames::new(black_box(&words[2..]).iter().copied());
        let lines: i64 = frames.map(|frame| i64::from(frame.line)).sum();
        black_box(lines);
    }
}

/// A stack of 50 frames into the tables, which know it; four are not those of the one before.
fn tree(count: usize) {
    let words = stacks().map(record);
    let mut tables = Tables::new(Options::default());
    tables.resume(0, false, 0);
    tables.thread_begins(1, 1).expect("memory");
    for n in 0..count {
        let inserted = tables.insert(words[n % 2].iter().copied());
        assert_eq!(inserted, Ok(()));
    }
    assert_eq!(tables.samples(), count as u64);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let count = arguments.next().and_then(|count| count.parse().ok());
    let planted = std::env::var_os("RINGPROF_PLANT").is_some();
    let (Some(count), Some(run)) = (
        count,
        match name.as_str() {
            "ring" => Some(ring as fn(usize)),
            "encode" => Some(encode as fn(usize)),
            "decode" => Some(decode as fn(usize)),
            "tree" => Some(tree as fn(usize)),
            _ => None,
        },
    ) else {
        eprintln!("usage: inner_loops ring|encode|decode|tree COUNT");
        std::process::exit(2);
    };
    run(if planted { count + count / 10 } else { count });
}
