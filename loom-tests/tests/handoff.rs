//! Models of the whole way of a record: handlers, gate, ring, drain and the marking of GC.

use loom::sync::Arc;
use loom::thread;
use loom_tests::ring::{with_capacity, with_capacity_at};
use loom_tests::{drain, model, peek, Station, Tick};

/// A handler that gets the ticks `seqs`, each a record of `len` words.
fn handler(
    station: &Arc<Station>,
    seqs: impl IntoIterator<Item = u64> + Send + 'static,
    len: usize,
) -> thread::JoinHandle<Vec<(u64, Tick)>> {
    let station = Arc::clone(station);
    thread::spawn(move || {
        seqs.into_iter()
            .map(|seq| (seq, station.tick(seq, len)))
            .collect()
    })
}

fn recorded(ticks: &[(u64, Tick)]) -> Vec<u64> {
    ticks
        .iter()
        .filter(|(_, tick)| *tick == Tick::Recorded)
        .map(|(seq, _)| *seq)
        .collect()
}

/// Whether `part` occurs in `whole` in the same order, gaps allowed.
fn is_subsequence(part: &[u64], whole: &[u64]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|seq| whole.any(|other| other == seq))
}

#[test]
fn two_handlers_a_drain_and_a_peek_lose_nothing() {
    model(|| {
        let (producer, mut consumer) = with_capacity_at(4, usize::MAX - 1);
        let station = Arc::new(Station::new(producer));
        station.gate.open();
        let one = handler(&station, [1, 2], 2);
        let two = handler(&station, [3], 2);

        let mut read = Vec::new();
        let peeked = peek(&consumer);
        drain(&mut consumer, &mut read);
        assert!(
            read.starts_with(&peeked),
            "a peeked record must be read next"
        );

        station.close();
        drain(&mut consumer, &mut read);
        // SAFETY: (I1) closed and vacant.
        unsafe { station.inside(|inside| assert_eq!(inside.producer.used(), 0)) };

        let one = one.join().expect("a handler panicked");
        let two = two.join().expect("a handler panicked");
        assert_eq!(consumer.used(), 0, "nobody writes after close");
        let (one, two) = (recorded(&one), recorded(&two));
        assert_eq!(read.len(), one.len() + two.len());
        assert!(is_subsequence(&one, &read) && is_subsequence(&two, &read));
    });
}

#[test]
fn second_session_on_the_same_ring_begins_empty() {
    model(|| {
        let (producer, mut consumer) = with_capacity(2);
        let station = Arc::new(Station::new(producer));
        station.gate.open();
        let other = handler(&station, 1..=3, 1);

        station.close();
        let mut first = Vec::new();
        drain(&mut consumer, &mut first);
        station.gate.open();
        station.close();
        let mut second = Vec::new();
        drain(&mut consumer, &mut second);

        let ticks = other.join().expect("a handler panicked");
        assert!(ticks.iter().all(|(_, tick)| *tick != Tick::Taken));
        first.extend(second);
        assert_eq!(first, recorded(&ticks));
    });
}

#[test]
fn stop_moves_to_a_new_ring_while_a_handler_ticks() {
    model(|| {
        let (producer, mut old) = with_capacity(2);
        let (mut next, mut new) = with_capacity(2);
        let station = Arc::new(Station::new(producer));
        station.gate.open();
        let other = handler(&station, 1..=2, 2);

        station.close();
        // SAFETY: (I1) closed and vacant.
        unsafe { station.inside(|inside| std::mem::swap(&mut inside.producer, &mut next)) };
        station.gate.open();
        let mut first = Vec::new();
        drain(&mut old, &mut first);

        let ticks = other.join().expect("a handler panicked");
        assert_eq!(old.used(), 0, "nobody writes into the old ring any more");
        let mut second = Vec::new();
        drain(&mut new, &mut second);
        first.extend(second);
        assert_eq!(first, recorded(&ticks));
    });
}
