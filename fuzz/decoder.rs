//! Any words in the ring become clean records or are counted as corrupt: never a panic, a read out of
//! bounds or an endless loop; and what the tables say is what a naive reader of the same words says.
//!
//! An input is a run of little-endian words. The first one steers: how many words are written between
//! two reads, how often the last word of the input is repeated (so that small inputs make deep
//! stacks), whether raw is kept, and what is credited at the end.
#![no_main]

mod oracle;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use oracle::{Oracle, Stack};
use ringprof_core::drain::{Options, Profile, Tables};
use ringprof_core::ring::{self, Consumer};
use ringprof_core::sample::{Header, MAX_DEPTH};

const RING_WORDS: usize = 8192;
/// Items of an endless-looking list that are looked at.
const ENOUGH: usize = 1000;

fuzz_target!(|bytes: &[u8]| {
    let mut words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    if words.is_empty() {
        return;
    }
    let steer = words.remove(0);
    let chunk = 1 + (steer & 0x1FFF) as usize;
    let repeats = (steer >> 13 & 0x1FFF) as usize % (2 * MAX_DEPTH + 8);
    let options = Options {
        raw: steer >> 26 & 1 == 1,
        monotone_deltas: steer >> 27 & 1 == 1,
        max_bytes: 0,
        both_clocks: steer >> 63 == 1,
    };
    if let Some(&last) = words.last() {
        words.resize(words.len() + repeats, last);
    }

    let (mut producer, mut consumer) = ring::with_capacity(RING_WORDS);
    let mut tables = Tables::new(options);
    tables.resume(steer, options.raw, 0);
    for slot in 0..oracle::SLOTS {
        tables.thread_begins(slot as u16, slot).expect("memory");
    }
    let mut oracle = Oracle::default();
    for chunk in words.chunks(chunk) {
        let (head, body) = chunk.split_at(chunk.len() / 2);
        producer.try_write(head, body).expect("the ring is empty");
        read(&mut consumer, chunk, &mut tables, &mut oracle);
        assert_eq!(consumer.used(), 0, "words are left in the ring");
    }
    let credit = steer >> 28;
    assert_eq!(tables.credit_last(credit, steer), oracle.credit(credit));
    assert_eq!(tables.samples(), oracle.samples);
    assert_eq!(tables.gc_samples(), oracle.gc_samples);
    let interval_ns = steer >> 40;
    check(&tables.finish(interval_ns), options, &oracle);
});

fn record_words(header: u64) -> usize {
    Header(header).words()
}

/// One drain, of the words that were just written.
fn read(consumer: &mut Consumer, written: &[u64], tables: &mut Tables, oracle: &mut Oracle) {
    let mut peeked = 0;
    consumer.peek(record_words, |record| {
        assert!(record.len() <= written.len());
        peeked += 1;
    });
    let mut rest = written;
    let drained = consumer.read(record_words, |record| {
        let (expected, after) = rest.split_at(record.len());
        assert!(record.words().eq(expected.iter().copied()), "other words");
        rest = after;
        let (samples, nodes) = (tables.samples(), tables.nodes());
        let taken = tables.insert(record.words()).is_ok();
        assert_eq!(taken, oracle.insert(expected), "{expected:x?}");
        if taken {
            assert_eq!(tables.samples(), samples + Header(record.get(0)).intervals());
        } else {
            assert_eq!((tables.samples(), tables.nodes()), (samples, nodes));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(drained.records, peeked, "GC sees what the drain sees");
    // What was not a record has a length that cannot be true.
    let impossible = rest
        .first()
        .is_some_and(|&word| !(1..=rest.len()).contains(&record_words(word)));
    assert_eq!(drained.corrupt, impossible);
    assert!(drained.corrupt || rest.is_empty(), "words were passed over");
    if drained.corrupt {
        tables.forget_last();
        oracle.forget();
    }
    let mut marked = BTreeSet::new();
    tables.each_frame(|frame| {
        marked.insert(frame);
    });
    assert_eq!(marked, oracle.real_frames());
}

fn check(profile: &Profile, options: Options, oracle: &Oracle) {
    assert_eq!(profile.samples, oracle.samples);
    assert_eq!(profile.truncated, oracle.truncated);
    assert_eq!(profile.states, oracle.states);
    assert_eq!(profile.gc_samples, oracle.gc_samples);
    let cpu = options.both_clocks.then_some(oracle.cpu);
    assert_eq!(profile.cpu_samples, cpu);
    let causes = profile.gc_causes.iter().map(|cause| cause.samples);
    assert!(causes.sum::<u64>() <= profile.gc_samples);
    for frame in &profile.frames {
        assert!(frame.waiting.total + frame.blocked.total <= frame.total);
        assert!(frame.waiting.own + frame.blocked.own <= frame.own);
    }
    let of_threads = profile.threads.iter().map(|thread| thread.samples());
    assert!(of_threads.sum::<u64>() <= profile.samples);
    let own: u64 = profile.frames.iter().map(|frame| frame.own).sum();
    assert_eq!(
        own + oracle.frameless,
        profile.samples,
        "each sample has one leaf"
    );
    assert_eq!(profile.frames.len(), oracle.frames.len());
    for found in &profile.frames {
        let expected = &oracle.frames[&found.frame];
        assert_eq!((found.total, found.own), (expected.total, expected.own));
        let edges = found.edges.iter();
        let edges = edges.map(|&(callee, weight)| (profile.frames[callee as usize].frame, weight));
        assert_eq!(edges.collect::<oracle::Edges>(), expected.edges);
        let lines = found.lines.iter();
        let lines = lines.map(|&(line, total, own)| (line, (total, own)));
        assert_eq!(lines.collect::<oracle::Lines>(), expected.lines);
    }
    let Some(raw) = &profile.raw else {
        assert!(!options.raw || oracle.runs.is_empty());
        return;
    };
    let mut stack = Vec::new();
    let runs = raw.runs().map(|run| {
        raw.stack(run.node, &mut stack);
        let value = |&(index, line): &(u32, i32)| (profile.frames[index as usize].frame, line);
        (stack.iter().rev().map(value).collect::<Stack>(), run.weight)
    });
    assert_eq!(runs.collect::<Vec<_>>(), oracle.runs);
    assert_eq!(raw.samples(), oracle.samples - oracle.frameless);
    let many = ENOUGH.min(raw.samples() as usize);
    assert_eq!(raw.timestamps_us().take(ENOUGH).count(), many);
    assert!(raw.timestamps_us().take(ENOUGH).is_sorted());
    let least = u64::from(options.monotone_deltas);
    assert!(raw.deltas_us().take(ENOUGH).all(|delta| delta >= least));
}
