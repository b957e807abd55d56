//! Ticks by hand: the handler is driven through each of its outcomes by signals that the thread
//! sends to itself, one at a time, so a test knows what each of them has to become.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use crate::fake_vm::{self, FakeThread, LAYOUT};
use ringprof_core::capture::clock;
use ringprof_core::capture::control::Token;
use ringprof_core::capture::counters::Counts;
use ringprof_core::capture::gate::Entry;
use ringprof_core::capture::handler::on_signal;
use ringprof_core::capture::plan::{Capture, Plan, Reading, WeightClock};
use ringprof_core::capture::scratch::Scratch;
use ringprof_core::capture::signal;
use ringprof_core::capture::writer::Writer;
use ringprof_core::capture::Shared;
use ringprof_core::ring::{self, Consumer};
use ringprof_core::sample::{Header, Kind};
use std::ops::ControlFlow;

const INTERVAL_NS: u64 = 1000;
/// Words of the ring; from half of them on stacks are folded.
const RING_WORDS: usize = 64;
/// Signals after which an outcome that does not come counts as missing.
const PATIENCE: u32 = 100_000;
const SIGNAL: i32 = libc::SIGPROF;

/// Runs what it is given, which sends one signal to the calling thread and does nothing else.
pub type Watch<'a> = &'a mut dyn FnMut(&mut dyn FnMut());

/// A profile of the calling thread, without a tick source.
struct ByHand {
    shared: &'static Shared,
    fake: &'static FakeThread,
    consumer: Consumer,
    token: Token,
    /// Time before and after the thread was admitted, in ns.
    admitted: (u64, u64),
    /// Time before and after the last tick whose time was credited.
    credited: (u64, u64),
    /// Sum of the weights that were read from the ring.
    weights: u64,
}

fn plan() -> Plan {
    Plan {
        both_clocks: false,
        pauses: false,
        clock: WeightClock::Wall,
        interval_ns: INTERVAL_NS,
        ignore_gc: false,
        capture: Capture::Direct(LAYOUT),
        thread_ec: LAYOUT.thread_ec,
        reading: Reading::InHandler,
        high_water: RING_WORDS / 2,
        pseudo_root: 0,
        #[cfg(feature = "testing")]
        skip_preflight: false,
        #[cfg(feature = "testing")]
        check_walks: true,
    }
}

impl ByHand {
    fn open(shared: &'static Shared, plan: Plan) -> Self {
        shared.counters.reset();
        // The rings of those who were here before are gone.
        for slot in shared.take_retired() {
            shared.free(slot);
        }
        let fake = FakeThread::new();
        let (producer, consumer) = ring::with_capacity(RING_WORDS);
        // SAFETY: (I1) one test at a time, and the gate is closed and vacant since birth or `close`.
        unsafe { shared.open(Writer::new(producer, Scratch::new(), plan)) };
        let before = clock::monotonic();
        let token = shared
            .admit(fake.identity(), false, clock::monotonic())
            .expect("room");
        let admitted = (before, clock::monotonic());
        Self {
            shared,
            fake,
            consumer,
            token,
            admitted,
            credited: admitted,
            weights: 0,
        }
    }

    fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    /// One signal with that value.
    fn send(&mut self, watch: Watch<'_>, value: u64) {
        watch(&mut || fake_vm::queue_to_self(SIGNAL, value));
    }

    /// One tick. Which counter it moved is the caller's matter.
    fn tick(&mut self, watch: Watch<'_>) {
        let credits = |counts: Counts| counts.recorded + counts.folded + counts.ring_full;
        let credits_before = credits(self.counts());
        let before = clock::monotonic();
        self.send(watch, self.token.to_bits());
        if credits(self.counts()) != credits_before {
            self.credited = (before, clock::monotonic());
        }
    }

    /// Ticks until `counter` has moved. Too early, or not having run since the last tick, is what a
    /// tick may always be.
    fn tick_until(&mut self, watch: Watch<'_>, name: &str, counter: impl Fn(&Counts) -> u64) {
        let before = counter(&self.counts());
        for _ in 0..PATIENCE {
            self.tick(watch);
            if counter(&self.counts()) != before {
                return;
            }
        }
        panic!("no tick was ever {name}: {:?}", self.counts());
    }

    /// A tick of the running thread, and not of one in a system call: only thus is GC its own doing.
    /// The handler is called without a context, and goes by the CPU clock then.
    fn record_running(&mut self, watch: Watch<'_>) {
        let mut info = fake_vm::queued(SIGNAL, self.token.to_bits());
        let recorded = self.counts().recorded;
        for _ in 0..PATIENCE {
            let before = clock::monotonic();
            // SAFETY: what the kernel would pass.
            watch(&mut || unsafe {
                on_signal(SIGNAL, info.as_mut_ptr().cast(), std::ptr::null_mut());
            });
            if self.counts().recorded != recorded {
                self.credited = (before, clock::monotonic());
                return;
            }
        }
        panic!("no tick was ever recorded: {:?}", self.counts());
    }

    fn record(&mut self, watch: Watch<'_>) {
        self.tick_until(watch, "recorded", |counts| counts.recorded);
    }

    /// Reads the ring: the kinds of its records.
    fn drain(&mut self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        let weights = &mut self.weights;
        let drained = self.consumer.read(
            |word| Header(word).words(),
            |record| {
                let header = Header(record.get(0));
                kinds.push(header.kind().expect("a kind"));
                *weights += header.weight();
                ControlFlow::Continue(())
            },
        );
        assert!(!drained.corrupt);
        kinds
    }

    /// Ends the profile: each tick is accounted for (I10), and so is the time up to the last one whose
    /// time was credited (I9).
    fn close(mut self) -> Counts {
        self.shared.dismiss(self.token);
        let mut writer = self.shared.close().expect("it was open");
        self.drain();
        let counts = self.counts();
        assert_eq!(
            counts.received,
            counts.recorded + counts.coalesced() + counts.lost(),
            "{counts:?}"
        );
        let credited = (self.weights + counts.missed + writer.take_owed().weight) * INTERVAL_NS;
        let least = self.credited.0.saturating_sub(self.admitted.1);
        let most = self.credited.1 - self.admitted.0;
        assert!(
            credited + INTERVAL_NS > least && credited < most + INTERVAL_NS,
            "{credited} ns credited of {least} to {most}: {counts:?}"
        );
        counts
    }
}

/// A signal before there is anything that the handler could find, then every outcome `rounds` times.
/// Each signal is sent inside `watch`. Fails when one of them becomes something else.
pub fn every_outcome(rounds: u32, watch: Watch<'_>) {
    let installed = signal::install(SIGNAL).expect("a handler");
    watch(&mut || fake_vm::queue_to_self(SIGNAL, 0));
    let shared = Shared::leak(fake_vm::hooks(true));
    for _ in 0..rounds {
        fake_vm::reset();
        stacks(shared, watch);
        garbage_collection(shared, watch);
        full_ring(shared, watch);
        refused(shared, watch);
        not_ours(shared, watch);
        safepoints(shared, watch);
    }
    vm_down(shared, watch);
    installed.restore();
}

fn stacks(shared: &'static Shared, watch: Watch<'_>) {
    let mut profile = ByHand::open(shared, plan());
    // The second is as long as the first.
    let stacks = [
        fake_vm::stack(3, 1),
        fake_vm::stack(3, 100),
        fake_vm::stack(3, 70_000),
    ];
    for stack in stacks {
        fake_vm::set_stack(stack);
        profile.record(watch);
        profile.record(watch);
        assert_eq!(profile.drain(), [Kind::Stack, Kind::Again]);
    }
    // Up to the high-water mark, then folded, and settled by another stack.
    while profile.counts().folded == 0 {
        profile.tick(watch);
    }
    assert!(fake_vm::drains_requested() > 0);
    fake_vm::set_stack(stacks[0]);
    profile.record(watch);
    let kinds = profile.drain();
    assert_eq!(kinds[kinds.len() - 2..], [Kind::Again, Kind::Stack]);
    // Owed at the end.
    while profile.counts().folded < 3 {
        profile.tick(watch);
    }
    profile.close();

    let mut slow = ByHand::open(
        shared,
        Plan {
            interval_ns: 1_000_000_000_000,
            ..plan()
        },
    );
    slow.tick_until(watch, "early", |counts| counts.early);
    shared.dismiss(slow.token);
    drop(shared.close());
}

fn garbage_collection(shared: &'static Shared, watch: Watch<'_>) {
    let mut profile = ByHand::open(shared, plan());
    fake_vm::set_stack(fake_vm::stack(2, 1));
    profile.record(watch);
    let walks = fake_vm::walks();
    for phase in 0..3 {
        fake_vm::set_gc(Some(phase));
        profile.record_running(watch);
    }
    // In a system call, or without the GVL: another thread's GC.
    profile.tick_until(watch, "in_gc", |counts| counts.in_gc);
    fake_vm::set_may_hold_gvl(false);
    profile.tick_until(watch, "in_gc", |counts| counts.in_gc);
    assert_eq!(fake_vm::walks(), walks, "a walk during GC");
    fake_vm::set_may_hold_gvl(true);
    fake_vm::set_gc(None);
    profile.record(watch);
    assert_eq!(
        profile.drain(),
        [Kind::Stack, Kind::Gc, Kind::Gc, Kind::Gc, Kind::Again]
    );
    profile.close();

    let mut ignoring = ByHand::open(
        shared,
        Plan {
            ignore_gc: true,
            ..plan()
        },
    );
    fake_vm::set_gc(Some(1));
    ignoring.tick_until(watch, "in_gc", |counts| counts.in_gc);
    fake_vm::set_gc(None);
    ignoring.record(watch);
    assert_eq!(ignoring.drain(), [Kind::Stack]);
    ignoring.close();
}

fn full_ring(shared: &'static Shared, watch: Watch<'_>) {
    let mut profile = ByHand::open(shared, plan());
    while profile.counts().ring_full < 3 {
        // A new one each time: the last one in the ring would be folded.
        fake_vm::set_stack(fake_vm::stack(9, 1));
        profile.tick_until(watch, "taken", |counts| counts.recorded + counts.ring_full);
    }
    assert!(profile.counts().missed >= 3);
    assert!(profile.counts().high_water_words > (RING_WORDS / 2) as u64);
    let written = profile.counts().recorded as usize;
    assert_eq!(profile.drain(), vec![Kind::Stack; written]);
    profile.record(watch);
    profile.close();
}

fn refused(shared: &'static Shared, watch: Watch<'_>) {
    let mut profile = ByHand::open(shared, plan());
    let good = fake_vm::stack(2, 1);
    fake_vm::set_stack(good);
    profile.record(watch);
    let walks = fake_vm::walks();
    let fake = profile.fake;
    for break_it in [FakeThread::tear, FakeThread::lose_context] {
        break_it(fake);
        profile.tick_until(watch, "torn", |counts| counts.torn);
        fake.mend();
    }
    assert_eq!(fake_vm::walks(), walks, "a walk without a pre-flight");
    for value in fake_vm::no_frames() {
        fake_vm::set_stack(fake_vm::stack_of(&[value, good[0].frame]));
        profile.tick_until(watch, "invalid", |counts| counts.invalid);
    }
    fake_vm::set_stack(&[]);
    profile.tick_until(watch, "no_frames", |counts| counts.no_frames);
    fake_vm::set_stack(good);
    profile.record(watch);
    assert_eq!(profile.drain(), [Kind::Stack, Kind::Again]);
    profile.close();

    let root = fake_vm::frame(0);
    let mut rooted = ByHand::open(
        shared,
        Plan {
            pseudo_root: root,
            ..plan()
        },
    );
    fake_vm::set_stack(fake_vm::stack_of(&[root]));
    rooted.tick_until(watch, "no_frames", |counts| counts.no_frames);
    assert_eq!(rooted.drain(), []);
    rooted.close();
}

fn not_ours(shared: &'static Shared, watch: Watch<'_>) {
    let mut profile = ByHand::open(shared, plan());
    fake_vm::set_stack(fake_vm::stack(2, 1));
    fake_vm::set_ruby_thread(false);
    profile.tick_until(watch, "not_ruby", |counts| counts.not_ruby);
    fake_vm::set_ruby_thread(true);

    // No thread has that many libraries.
    shared.storage.watch(1 << 40);
    profile.tick_until(watch, "loader", |counts| counts.loader);
    shared.storage.watch(0);

    let Entry::Seat(seat) = shared.gate.try_enter() else {
        panic!("nobody is in");
    };
    profile.tick_until(watch, "seat_taken", |counts| counts.seat_taken);
    drop(seat);

    let received = profile.counts().received;
    profile.send(watch, 0);
    profile.send(watch, u64::MAX);
    assert_eq!(profile.counts().foreign, 2);
    assert_eq!(profile.counts().received, received);

    let bits = profile.token.to_bits();
    let nobody = Token {
        slot: u16::MAX,
        generation: 1,
    };
    profile.send(watch, nobody.to_bits());
    assert_eq!(profile.counts().stale, 1);
    profile.record(watch);

    // Closed, while the thread is still known; then not known any more.
    let writer = shared.close().expect("it was open");
    profile.tick_until(watch, "closed", |counts| counts.closed);
    // SAFETY: (I1) closed and vacant.
    unsafe { shared.open(writer) };
    profile.record(watch);
    shared.dismiss(profile.token);
    profile.send(watch, bits);
    assert_eq!(profile.counts().stale, 2);
    profile.close();
}

fn safepoints(shared: &'static Shared, watch: Watch<'_>) {
    let mut profile = ByHand::open(
        shared,
        Plan {
            capture: Capture::Postponed,
            ..plan()
        },
    );
    fake_vm::set_stack(fake_vm::stack(2, 1));
    let walks = fake_vm::walks();
    profile.tick_until(watch, "awaiting_safepoint", |counts| {
        counts.awaiting_safepoint
    });
    assert!(fake_vm::samples_requested() > 0);
    assert_eq!(
        fake_vm::walks(),
        walks,
        "a walk that was to wait for a safepoint"
    );
    shared.dismiss(profile.token);
    drop(shared.close());
    let counts = profile.counts();
    // The tick that the safepoint never came for.
    assert_eq!(counts.closed, 1);
    assert_eq!(
        counts.received,
        counts.recorded + counts.coalesced() + counts.lost()
    );
}

fn vm_down(shared: &'static Shared, watch: Watch<'_>) {
    fake_vm::reset();
    let mut profile = ByHand::open(shared, plan());
    shared.vm_went_down();
    fake_vm::set_stack(fake_vm::stack(2, 1));
    profile.tick_until(watch, "vm_down", |counts| counts.vm_down);
    assert_eq!(fake_vm::walks(), 0);
    profile.close();
}
