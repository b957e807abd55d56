//! Models of the ring alone: one producer thread, one consumer thread.

use std::ops::ControlFlow;

use loom::thread;
use loom_tests::ring::{with_capacity, with_capacity_at};
use loom_tests::{drain, len_of, model, peek, seq_of, write};

/// A producer that never retries beside a consumer that reads `reads` times: what was accepted is
/// what is read, in order, whatever the interleaving.
fn accepted_is_read(words: usize, position: usize, lens: &'static [usize], reads: usize) {
    model(move || {
        let (mut producer, mut consumer) = with_capacity_at(words, position);
        let handler = thread::spawn(move || {
            let mut accepted = Vec::new();
            for (seq, &len) in (1..).zip(lens) {
                if write(&mut producer, seq, len) {
                    accepted.push(seq);
                }
            }
            accepted
        });
        let mut read = Vec::new();
        for _ in 0..reads {
            drain(&mut consumer, &mut read);
        }
        let accepted = handler.join().expect("the producer panicked");
        drain(&mut consumer, &mut read);
        assert_eq!(read, accepted);
        assert_eq!(consumer.used(), 0);
    });
}

#[test]
fn one_word_ring_hands_over_word_by_word() {
    accepted_is_read(1, 0, &[1, 1, 1, 1], 3);
}

#[test]
fn two_word_ring_hands_over_whole_records() {
    accepted_is_read(2, usize::MAX, &[2, 1, 1, 2], 3);
}

#[test]
fn records_wrap_round_the_end_of_the_ring() {
    accepted_is_read(4, 3, &[3, 3, 2, 4], 3);
}

#[test]
fn positions_wrap_round_usize() {
    accepted_is_read(4, usize::MAX - 2, &[2, 3, 1, 2], 3);
}

#[test]
fn retrying_producer_loses_and_repeats_nothing() {
    model(|| {
        let (mut producer, mut consumer) = with_capacity_at(4, usize::MAX - 3);
        let handler = thread::spawn(move || {
            for seq in 1..=3 {
                while !write(&mut producer, seq, 3) {
                    thread::yield_now();
                }
            }
        });
        let mut read = Vec::new();
        while read.len() < 3 {
            drain(&mut consumer, &mut read);
            thread::yield_now();
        }
        handler.join().expect("the producer panicked");
        assert_eq!(read, [1, 2, 3]);
    });
}

#[test]
fn full_ring_refuses_and_what_is_in_it_survives() {
    model(|| {
        let (mut producer, mut consumer) = with_capacity(2);
        assert!(write(&mut producer, 1, 2));
        let handler = thread::spawn(move || {
            assert!(!write(&mut producer, 2, 3), "longer than the ring");
            let accepted = write(&mut producer, 3, 1);
            assert!(producer.used() <= producer.capacity());
            accepted
        });
        let mut read = Vec::new();
        assert!(consumer.used() >= 2);
        drain(&mut consumer, &mut read);
        assert!(read.starts_with(&[1]));
        let accepted = handler.join().expect("the producer panicked");
        drain(&mut consumer, &mut read);
        assert_eq!(read, if accepted { vec![1, 3] } else { vec![1] });
    });
}

#[test]
fn visited_record_is_not_overwritten_before_the_visit_is_over() {
    model(|| {
        let (mut producer, mut consumer) = with_capacity(2);
        assert!(write(&mut producer, 1, 2));
        let handler = thread::spawn(move || write(&mut producer, 2, 2));
        let mut read = Vec::new();
        let drained = consumer.read(len_of, |record| {
            thread::yield_now();
            read.push(seq_of(&record));
            ControlFlow::Continue(())
        });
        assert_eq!((drained.records, drained.corrupt), (1, false));
        let accepted = handler.join().expect("the producer panicked");
        drain(&mut consumer, &mut read);
        assert_eq!(read, if accepted { vec![1, 2] } else { vec![1] });
    });
}

#[test]
fn peek_sees_whole_records_and_later_ones_never_fewer() {
    model(|| {
        let (mut producer, mut consumer) = with_capacity_at(8, usize::MAX - 1);
        let handler = thread::spawn(move || {
            assert!(write(&mut producer, 1, 2));
            assert!(write(&mut producer, 2, 3));
            assert!(write(&mut producer, 3, 1));
        });
        let first = peek(&consumer);
        let second = peek(&consumer);
        assert!([1, 2, 3].starts_with(&first));
        assert!(second.starts_with(&first));
        assert!([1, 2, 3].starts_with(&second));
        let mut read = Vec::new();
        drain(&mut consumer, &mut read);
        assert!(read.starts_with(&second));
        handler.join().expect("the producer panicked");
        drain(&mut consumer, &mut read);
        assert_eq!(read, [1, 2, 3]);
    });
}

#[test]
fn every_accepted_record_is_in_the_tables_or_in_sight_of_peek() {
    model(|| {
        let (mut producer, mut consumer) = with_capacity(4);
        assert!(write(&mut producer, 1, 2));
        assert!(write(&mut producer, 2, 2));
        let handler = thread::spawn(move || write(&mut producer, 3, 2));
        let mut tables = Vec::new();
        // Stops after the first record, so that the second stays in a ring that is being refilled.
        let drained = consumer.read(len_of, |record| {
            tables.push(seq_of(&record));
            ControlFlow::Break(())
        });
        assert_eq!(drained.records, 1);
        let marked: Vec<_> = tables.iter().copied().chain(peek(&consumer)).collect();
        assert!(marked == [1, 2] || marked == [1, 2, 3]);
        let accepted = handler.join().expect("the producer panicked");
        drain(&mut consumer, &mut tables);
        assert_eq!(tables, if accepted { vec![1, 2, 3] } else { vec![1, 2] });
    });
}
