//! Models of the gate: who may be in, and what the next one sees of the last.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::Arc;
use loom::thread;
use loom_tests::capture::gate::Entry;
use loom_tests::ring::with_capacity;
use loom_tests::{model, Station, Tick};

/// A station whose ring is never full in these models, so that a tick is in, or refused.
fn station() -> Arc<Station> {
    let (producer, _consumer) = with_capacity(8);
    Arc::new(Station::new(producer))
}

fn handler(station: &Arc<Station>, ticks: u64) -> thread::JoinHandle<Vec<Tick>> {
    let station = Arc::clone(station);
    thread::spawn(move || (1..=ticks).map(|seq| station.tick(seq, 1)).collect())
}

fn count(ticks: &[Tick], what: Tick) -> u64 {
    ticks.iter().filter(|&&tick| tick == what).count() as u64
}

#[test]
fn two_handlers_are_never_in_together_and_each_tick_is_accounted_for() {
    model(|| {
        let station = station();
        station.gate.open();
        let other = handler(&station, 2);
        let mut ticks = vec![station.tick(1, 1), station.tick(2, 1)];
        ticks.extend(other.join().expect("a handler panicked"));
        let recorded = count(&ticks, Tick::Recorded);
        assert!(recorded >= 2, "both lost a seat that nobody held");
        assert_eq!(recorded + count(&ticks, Tick::Taken), 4);
        station.close();
        // SAFETY: (I1) closed and vacant.
        unsafe { station.inside(|inside| assert_eq!(inside.note, recorded)) };
    });
}

#[test]
fn who_enters_sees_what_the_opener_prepared() {
    model(|| {
        let station = station();
        let early = handler(&station, 1);
        // SAFETY: (I1) the gate is born closed and vacant, and nobody has opened it.
        unsafe { station.inside(|inside| inside.note = 10) };
        station.gate.open();
        let late = handler(&station, 1);
        let mut ticks = early.join().expect("a handler panicked");
        ticks.extend(late.join().expect("a handler panicked"));
        let recorded = count(&ticks, Tick::Recorded);
        assert!(recorded >= 1);
        station.close();
        // SAFETY: (I1) closed and vacant.
        unsafe { station.inside(|inside| assert_eq!(inside.note, 10 + recorded)) };
    });
}

#[test]
fn closer_owns_the_producer_side_once_the_gate_is_vacant() {
    model(|| {
        let station = station();
        station.gate.open();
        let handlers = [handler(&station, 2), handler(&station, 1)];
        station.close();
        // SAFETY: (I1) closed and vacant.
        let seen = unsafe { station.inside(|inside| std::mem::replace(&mut inside.note, 100)) };
        let late = station.tick(9, 1);
        assert_eq!(late, Tick::Closed, "a closed gate let a tick in");
        let mut recorded = 0;
        for handler in handlers {
            let ticks = handler.join().expect("a handler panicked");
            recorded += count(&ticks, Tick::Recorded);
            // Closed stays closed.
            let first_refusal = ticks.iter().position(|&tick| tick == Tick::Closed);
            assert!(first_refusal.is_none_or(|i| ticks[i..].iter().all(|&t| t == Tick::Closed)));
        }
        assert_eq!(recorded, seen);
        // SAFETY: (I1) still closed and vacant.
        unsafe { station.inside(|inside| assert_eq!(inside.note, 100)) };
    });
}

#[test]
fn start_stop_start_hands_the_producer_side_back_and_forth() {
    model(|| {
        let station = station();
        station.gate.open();
        let other = handler(&station, 2);
        station.close();
        // SAFETY: (I1) closed and vacant.
        let first = unsafe { station.inside(|inside| std::mem::replace(&mut inside.note, 0)) };
        station.gate.open();
        thread::yield_now();
        station.close();
        // SAFETY: (I1) closed and vacant.
        let second = unsafe { station.inside(|inside| inside.note) };
        let ticks = other.join().expect("a handler panicked");
        assert_eq!(count(&ticks, Tick::Recorded), first + second);
    });
}

/// What GC moves, and the VM's word that it is at work.
struct Heap {
    during_gc: AtomicBool,
    place: UnsafeCell<u64>,
}

// SAFETY: `place` is what the handshake protects; loom fails the model if it does not.
unsafe impl Sync for Heap {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Heap {}

#[test]
fn a_holder_and_gc_never_work_on_the_heap_together() {
    model(|| {
        let station = station();
        station.gate.open();
        let heap = Arc::new(Heap {
            during_gc: AtomicBool::new(false),
            place: UnsafeCell::new(1),
        });
        let walker = {
            let (station, heap) = (Arc::clone(&station), Arc::clone(&heap));
            thread::spawn(move || {
                let Entry::Seat(seat) = station.gate.try_enter() else {
                    panic!("nobody else enters");
                };
                seat.look_outside();
                if !heap.during_gc.load(Ordering::Relaxed) {
                    // SAFETY: GC waits for us before it moves anything.
                    heap.place.with(|place| assert_eq!(unsafe { *place }, 1));
                }
            })
        };
        heap.during_gc.store(true, Ordering::Relaxed);
        station.gate.wait_for_holder();
        // SAFETY: whoever sits now has seen that GC runs.
        heap.place.with_mut(|place| unsafe { *place = 2 });
        walker.join().expect("the walker panicked");
    });
}
