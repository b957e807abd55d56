//! Models of the bell: nobody sleeps on while a thread runs that has not rung.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::Arc;
use loom::thread;
use loom_tests::capture::bell::Bell;
use loom_tests::model;

/// Two threads that may run, and the bell of the one that parks while neither does.
struct Hall {
    bell: Bell,
    runs: [AtomicBool; 2],
}

impl Hall {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bell: Bell::new(),
            runs: [AtomicBool::new(false), AtomicBool::new(false)],
        })
    }

    /// A thread gets the GVL. Whether it rang for somebody.
    fn resume(&self, who: usize) -> bool {
        // Release: as in the product's Pause::end; the bell's fence does the rest.
        self.runs[who].store(true, Ordering::Release);
        self.bell.ring()
    }

    fn anybody_runs(&self) -> bool {
        // Acquire: as in the product's Pause::is_running.
        self.runs.iter().any(|runs| runs.load(Ordering::Acquire))
    }

    /// Hangs the bell up and looks; whether the caller would go to sleep on it.
    fn would_sleep(&self) -> bool {
        self.bell.hang_up();
        !self.anybody_runs()
    }
}

fn resume(hall: &Arc<Hall>, who: usize) -> thread::JoinHandle<bool> {
    let hall = Arc::clone(hall);
    thread::spawn(move || hall.resume(who))
}

#[test]
fn who_parks_is_woken_by_whoever_runs() {
    model(|| {
        let hall = Hall::new();
        let others = [resume(&hall, 0), resume(&hall, 1)];
        let asleep = hall.would_sleep();
        let rung = others.map(|other| other.join().expect("a thread panicked"));
        // The kernel lets nobody sleep on a bell that does not hang.
        assert!(!(asleep && hall.bell.hangs()), "it sleeps while both run");
        assert!(!asleep || rung.contains(&true), "nobody rang");
    });
}

#[test]
fn a_late_ring_does_no_harm_to_the_next_park() {
    model(|| {
        let hall = Hall::new();
        let other = resume(&hall, 0);
        // A park that ended by its time.
        let _ = hall.would_sleep();
        hall.bell.take_down();
        let asleep = hall.would_sleep();
        let _ = other.join().expect("a thread panicked");
        assert!(!(asleep && hall.bell.hangs()), "it sleeps while one runs");
    });
}
