//! The ring against oracles: single-threaded against a `VecDeque` by random sequences of operations,
//! two-threaded against an `ArrayQueue` of the records that it accepted.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;

use crossbeam_queue::ArrayQueue;
use proptest::prelude::*;
use ringprof_core::ring::{with_capacity, with_capacity_at, Consumer, Full, Producer, Record};

/// Miri runs the same tests, a hundred times slower.
const CASES: u32 = if cfg!(miri) { 4 } else { 500 };
const HANDED_OVER: u64 = if cfg!(miri) { 60 } else { 50_000 };

/// Capacity and first position of the rings that two threads share.
const RINGS: &[(usize, usize)] = if cfg!(miri) {
    &[(32, usize::MAX - 100)]
} else {
    &[(16, usize::MAX - 100), (64, 0), (1 << 12, usize::MAX / 2)]
};

const LEN_BITS: u32 = 16;

/// A record of `len` words: sequence number and length in the first, mixed bits in the others.
fn record(seq: u64, len: usize) -> Vec<u64> {
    (0..len as u64)
        .map(|i| match i {
            0 => seq << LEN_BITS | len as u64,
            _ => (seq ^ i << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        })
        .collect()
}

fn len_of(first: u64) -> usize {
    (first & ((1 << LEN_BITS) - 1)) as usize
}

fn seq_of(first: u64) -> u64 {
    first >> LEN_BITS
}

/// Fails unless every word is the one that was written.
fn check(found: &Record<'_>) -> u64 {
    let seq = seq_of(found.get(0));
    let expected = record(seq, found.len());
    assert!(found.words().eq(expected.iter().copied()), "torn record");
    for (i, &word) in expected.iter().enumerate() {
        assert_eq!(found.get(i), word);
    }
    seq
}

fn drain(consumer: &mut Consumer) -> Vec<Vec<u64>> {
    let mut records = Vec::new();
    let drained = consumer.read(len_of, |record| {
        check(&record);
        records.push(record.words().collect());
        ControlFlow::Continue(())
    });
    assert_eq!(drained.records, records.len());
    assert!(!drained.corrupt);
    records
}

#[derive(Clone, Debug)]
enum Op {
    /// Write a record of `len` words, `head` of them as the header.
    Write { len: usize, head: usize },
    /// Read and stop after `records` records.
    Read { records: usize },
    /// Look at everything and read nothing.
    Peek,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..12_usize).prop_flat_map(|len| {
            (Just(len), 0..=len).prop_map(|(len, head)| Op::Write { len, head })
        }),
        2 => (1..5_usize).prop_map(|records| Op::Read { records }),
        1 => Just(Op::Peek),
    ]
}

/// What the ring must be indistinguishable from.
struct Oracle {
    capacity: usize,
    records: VecDeque<Vec<u64>>,
}

impl Oracle {
    fn used(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }

    fn write(&mut self, record: Vec<u64>) -> Result<(), Full> {
        if self.used() + record.len() > self.capacity {
            return Err(Full);
        }
        self.records.push_back(record);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn ring_behaves_like_a_bounded_queue_of_records(
        words in 0..20_usize,
        back in 0..40_usize,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let (mut producer, mut consumer) = with_capacity_at(words, 20_usize.wrapping_sub(back));
        let mut oracle = Oracle { capacity: producer.capacity(), records: VecDeque::new() };
        prop_assert!(oracle.capacity >= words && oracle.capacity.is_power_of_two());
        prop_assert_eq!(consumer.capacity(), oracle.capacity);

        for (seq, op) in (0..).zip(ops) {
            match op {
                Op::Write { len, head } => {
                    let record = record(seq, len);
                    let (head, body) = record.split_at(head);
                    let written = producer.try_write(head, body);
                    prop_assert_eq!(written, oracle.write(record));
                }
                Op::Read { records } => {
                    let mut left = records;
                    let mut read = Vec::new();
                    let drained = consumer.read(len_of, |record| {
                        check(&record);
                        read.push(record.words().collect::<Vec<_>>());
                        left -= 1;
                        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    });
                    let expected: Vec<_> =
                        oracle.records.drain(..records.min(oracle.records.len())).collect();
                    prop_assert_eq!(drained.records, expected.len());
                    prop_assert!(!drained.corrupt);
                    prop_assert_eq!(read, expected);
                }
                Op::Peek => {
                    let mut seen = VecDeque::new();
                    consumer.peek(len_of, |record| seen.push_back(record.words().collect()));
                    prop_assert_eq!(&seen, &oracle.records);
                }
            }
            prop_assert_eq!(consumer.used(), oracle.used());
            prop_assert_eq!(producer.used(), oracle.used());
        }
        prop_assert_eq!(drain(&mut consumer), Vec::from(oracle.records));
    }

    #[test]
    fn impossible_length_discards_what_is_published_and_the_ring_goes_on(
        sound in 0..4_usize,
        wrong in prop_oneof![Just(0_usize), 20..0xFFFF_usize],
        start in any::<usize>(),
    ) {
        let (mut producer, mut consumer) = with_capacity_at(16, start);
        for seq in 0..sound as u64 {
            prop_assert_eq!(producer.try_write(&record(seq, 3), &[]), Ok(()));
        }
        prop_assert_eq!(producer.try_write(&[wrong as u64, 1, 2, 3], &[]), Ok(()));

        let mut peeked = 0;
        consumer.peek(len_of, |_| peeked += 1);
        prop_assert_eq!(peeked, sound, "peek ends before the impossible record");
        prop_assert_eq!(consumer.used(), 3 * sound + 4, "peek discards nothing");

        let drained = consumer.read(len_of, |record| {
            check(&record);
            ControlFlow::Continue(())
        });
        prop_assert_eq!((drained.records, drained.corrupt), (sound, true));
        prop_assert_eq!(consumer.used(), 0);
        prop_assert_eq!(producer.used(), 0);

        prop_assert_eq!(producer.try_write(&record(9, 16), &[]), Ok(()));
        prop_assert_eq!(drain(&mut consumer), vec![record(9, 16)]);
    }
}

#[test]
fn record_without_words_writes_nothing() {
    let (mut producer, mut consumer) = with_capacity(2);
    assert_eq!(producer.try_write(&[], &[]), Ok(()));
    assert_eq!(producer.used(), 0);
    assert_eq!(drain(&mut consumer), Vec::<Vec<u64>>::new());
}

#[test]
fn record_whose_visit_panics_stays_in_the_ring() {
    let (mut producer, mut consumer) = with_capacity(8);
    for seq in 1..=2 {
        assert_eq!(producer.try_write(&record(seq, 3), &[]), Ok(()));
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        consumer.read(len_of, |record| {
            assert_ne!(check(&record), 2, "planted");
            ControlFlow::Continue(())
        })
    }));
    assert!(outcome.is_err());
    assert_eq!(producer.used(), 3);
    assert_eq!(drain(&mut consumer), vec![record(2, 3)]);
}

#[test]
#[should_panic(expected = "has no word")]
fn word_beyond_the_record_is_refused() {
    let (mut producer, consumer) = with_capacity(8);
    producer
        .try_write(&record(1, 2), &record(2, 2))
        .expect("an empty ring has room");
    consumer.peek(len_of, |record| {
        let _ = record.get(2);
    });
}

/// Length of a record that depends on its number only, so that both sides know it.
fn some_len(seq: u64) -> usize {
    1 + (seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize
}

/// Writes each of the numbers once if there is room, and tells the oracle which were accepted.
fn produce(mut producer: Producer, accepted: &ArrayQueue<u64>) {
    let mut refused = 0;
    for seq in 0..HANDED_OVER {
        let record = record(seq, some_len(seq));
        let (head, body) = record.split_at(1);
        if producer.try_write(head, body).is_ok() {
            accepted
                .push(seq)
                .expect("the oracle has room for every record");
        } else {
            // Seldom enough not to crawl on a busy machine, often enough for a single core.
            refused += 1;
            if refused % 100 == 0 {
                thread::yield_now();
            }
        }
    }
}

#[test]
fn two_threads_hand_over_exactly_what_was_accepted() {
    for &(words, position) in RINGS {
        let (producer, mut consumer) = with_capacity_at(words, position);
        let accepted = Arc::new(ArrayQueue::new(HANDED_OVER as usize));
        let done = Arc::new(AtomicBool::new(false));
        let handler = {
            let (accepted, done) = (Arc::clone(&accepted), Arc::clone(&done));
            thread::spawn(move || {
                produce(producer, &accepted);
                // Release: every write to the ring comes before it; pairs with Acquire in the test.
                done.store(true, Ordering::Release);
            })
        };

        let mut read = Vec::new();
        loop {
            // Acquire: once done is seen, one more pass reads everything; pairs with Release in the
            // handler's thread.
            let last = done.load(Ordering::Acquire);
            let mut peeked = Vec::new();
            consumer.peek(len_of, |record| peeked.push(check(&record)));
            let before = read.len();
            let drained = consumer.read(len_of, |record| {
                read.push(check(&record));
                ControlFlow::Continue(())
            });
            assert!(!drained.corrupt);
            assert!(
                read[before..].starts_with(&peeked),
                "peek saw what read did not"
            );
            if last {
                break;
            }
            if read.len() == before {
                thread::yield_now();
            }
        }
        handler.join().expect("the producer panicked");

        let accepted: Vec<_> = std::iter::from_fn(|| accepted.pop()).collect();
        assert_eq!(read, accepted);
        assert!(!read.is_empty());
    }
}

/// Bytes of this process that are in memory.
#[cfg(all(target_os = "linux", not(miri)))]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("the second field is a number");
    // The smallest page there is: a larger one would only make the number larger.
    pages * 4096
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn every_page_is_in_memory_at_birth() {
    const WORDS: usize = 1 << 23;
    let before = resident();
    let (producer, _consumer) = with_capacity(WORDS);
    let grown = resident().saturating_sub(before);
    assert_eq!(producer.capacity(), WORDS);
    // The other tests of this binary may give back a little meanwhile.
    assert!(
        grown >= WORDS * 8 / 10 * 9,
        "only {grown} bytes of {} are in memory",
        WORDS * 8
    );
}
