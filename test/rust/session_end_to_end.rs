//! A whole session over a fake VM, with real ticks: to the last tick and the last interval, whatever
//! the machine is busy with.
//!
//! The time that a profile must show is read from the clock that it counts by, just before and just
//! after what it counts from and up to; so no bound depends on how fast anything is.
#![cfg(not(miri))]

#[path = "support/fake_vm.rs"]
mod fake_vm;

use fake_vm::{FakeThread, LAYOUT};
use ringprof_core::capture::clock;
use ringprof_core::capture::control::{ThreadIdentity, Token, MAX_THREADS};
use ringprof_core::capture::counters::Counts;
use ringprof_core::capture::signal;
use ringprof_core::config::{Config, Mode, TickChoice, MIN_BUFFER};
use ringprof_core::drain::Profile;
use ringprof_core::sample::{
    FrameLine, FRAME_GC, FRAME_MARKING, FRAME_SWEEPING, MAX_DEPTH, MAX_RECORD_WORDS,
};
use ringprof_core::session::{Session, Stats, VmFacts};
use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const SOURCES: [TickChoice; 2] = [TickChoice::Thread, TickChoice::Timer];
/// After this long what does not come counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process's one session, to one test at a time.
struct Profiler(MutexGuard<'static, Session>);

impl Deref for Profiler {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.0
    }
}

impl DerefMut for Profiler {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0
    }
}

impl Profiler {
    fn new() -> Self {
        static SESSION: OnceLock<Mutex<Session>> = OnceLock::new();
        let session = SESSION.get_or_init(|| {
            // SAFETY: the hooks are functions of this program, good on any thread.
            Mutex::new(unsafe { Session::new(fake_vm::hooks(true)) })
        });
        let mut profiler = Self(session.lock().unwrap_or_else(PoisonError::into_inner));
        // Whatever a failed test has left.
        profiler.stop();
        profiler.profile_read();
        fake_vm::reset();
        profiler
    }

    fn begin(&mut self, config: Config, starter: ThreadIdentity, others: &[ThreadIdentity]) {
        self.begin_with(config, VM, starter, others);
    }

    fn begin_with(
        &mut self,
        config: Config,
        facts: VmFacts,
        starter: ThreadIdentity,
        others: &[ThreadIdentity],
    ) {
        self.start(config, facts, &[&[starter], others].concat())
            .expect("signal, thread and timers");
    }

    fn counts(&self) -> Counts {
        self.stats().counts
    }

    /// Spins until `reached`, and drains when asked to, as the VM's safepoints would.
    fn run_until(&mut self, what: &str, mut reached: impl FnMut(&Counts) -> bool) {
        let mut drained = fake_vm::drains_requested();
        self.spin_until(what, |session| {
            if fake_vm::drains_requested() != drained {
                drained = fake_vm::drains_requested();
                session.drain_slice();
            }
            reached(&session.stats().counts)
        });
    }

    /// Spins until `reached`, and never drains.
    fn spin_until(&mut self, what: &str, mut reached: impl FnMut(&mut Session) -> bool) {
        let began = Instant::now();
        while !reached(self) {
            let stats = self.stats();
            assert!(began.elapsed() < PATIENCE, "never {what}: {stats:?}");
        }
    }

    /// Shows that stack until it is recorded.
    fn record(&mut self, stack: &'static [FrameLine]) {
        self.show(stack, |counts| counts.recorded);
    }

    /// Shows that stack until `counter` has moved. No tick comes between the count and the change: one
    /// before would be mistaken for it, and above the high-water mark those after it are folded.
    fn show(&mut self, stack: &'static [FrameLine], counter: impl Fn(&Counts) -> u64) {
        let before = without_signals(|| {
            let before = counter(&self.counts());
            fake_vm::set_stack(stack);
            before
        });
        self.spin_until("taken", |session| {
            counter(&session.stats().counts) != before
        });
    }

    /// Spins until one more tick of the kind that `counter` counts.
    fn one_more(&mut self, what: &str, counter: impl Fn(&Counts) -> u64) {
        let before = counter(&self.counts());
        self.spin_until(what, |session| counter(&session.stats().counts) != before);
    }

    /// Stops; each tick is accounted for (I10).
    fn end(&mut self) -> (Stats, Profile) {
        assert!(self.stop());
        let stats = self.stats();
        assert_accounted(&stats.counts);
        assert_eq!(stats.drains.corrupt, 0);
        assert_eq!(stats.threads, 0);
        let profile = self.profile().expect("a profile").clone();
        self.profile_read();
        assert_eq!(profile.samples, stats.samples);
        let own: u64 = profile.frames.iter().map(|frame| frame.own).sum();
        assert_eq!(own, profile.samples, "each sample has one leaf");
        (stats, profile)
    }
}

/// Runs `body` with every signal of the calling thread held back.
fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: sets that we own; the mask is the calling thread's and is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let value = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        value
    }
}

const VM: VmFacts = VmFacts {
    pauses: false,
    layout: Some(LAYOUT),
    direct: true,
    pseudo_root: 0,
};

fn assert_accounted(counts: &Counts) {
    assert_eq!(
        counts.received,
        counts.recorded + counts.coalesced() + counts.lost(),
        "{counts:?}"
    );
}

fn config(mode: Mode, tick: TickChoice, interval: u64) -> Config {
    Config {
        interval,
        tick,
        buffer: MIN_BUFFER,
        raw: true,
        ..Config::new(mode)
    }
}

fn own(profile: &Profile, frame: u64) -> u64 {
    let mut found = profile.frames.iter().filter(|totals| totals.frame == frame);
    let own = found.next().map_or(0, |totals| totals.own);
    assert!(found.next().is_none(), "a frame is listed once");
    own
}

/// A stack whose record nearly fills a third of the smallest ring: every frame has a long line.
fn deepest(line: i32) -> &'static [FrameLine] {
    fake_vm::stack(MAX_DEPTH, line)
}

/// A span on a clock, known by a reading before and one after each of its ends.
#[derive(Clone, Copy, Debug)]
struct Span {
    least: u64,
    most: u64,
}

impl Span {
    /// Fails unless `weight` intervals are the span, less than one interval off (I9).
    fn assert_is(self, weight: u64, interval_us: u64, what: &str) {
        let (time, interval) = (weight * interval_us * 1000, interval_us * 1000);
        assert!(
            time + interval > self.least && time < self.most + interval,
            "{what}: {time} ns in weights, but {self:?} on the clock"
        );
    }
}

/// Wall time from the admission, which happens in `begin`, to the last record, whose time raw tells.
struct WallTime(u64, u64);

impl WallTime {
    fn around(begin: impl FnOnce()) -> Self {
        let before = clock::monotonic();
        begin();
        Self(before, clock::monotonic())
    }

    fn to_last_of(&self, profile: &Profile) -> Span {
        let raw = profile.raw.as_ref().expect("raw was asked for");
        let last = raw.timestamps_us().last().expect("a sample") * 1000;
        Span {
            least: last.saturating_sub(self.1),
            most: last + 1000 - self.0,
        }
    }
}

/// Whatever a weight cuts off or adds in advance evens out: between the first record and the last, by their
/// own times, no more than that of the two is missing or too much.
fn assert_carries_the_remainder(profile: &Profile, interval_ns: u64) {
    let points = profile.raw.as_ref().expect("raw").points();
    let (first, later) = points.split_first().expect("a record");
    let weight: u64 = later.iter().map(|point| u64::from(point.weight)).sum();
    let elapsed = later.last().map_or(0, |last| last.time_ns - first.time_ns);
    let off = (weight * interval_ns).abs_diff(elapsed);
    assert!(
        off <= 2 * interval_ns,
        "{off} ns off after {} records of {interval_ns} ns each",
        points.len()
    );
}

#[test]
fn wall_weights_are_the_time_that_has_passed() {
    for source in SOURCES {
        // 7 µs are shorter than any tick, so every weight is above 1.
        for interval in [7, 50, 1000] {
            let mut profiler = Profiler::new();
            let leaves = [fake_vm::stack(5, 1), fake_vm::stack(3, 66_000)];
            let starter = FakeThread::new().identity();
            let time = WallTime::around(|| {
                profiler.begin(config(Mode::Wall, source, interval), starter, &[]);
            });
            for turn in 0..20 {
                fake_vm::set_stack(leaves[turn % 2]);
                let enough = profiler.counts().recorded + 5;
                profiler.run_until("recorded", |counts| counts.recorded >= enough);
            }
            let (stats, profile) = profiler.end();
            assert!(stats.counts.recorded >= 100);
            assert_eq!(stats.counts.missed, 0);
            assert_eq!(stats.counts.lost(), 0, "{stats:?}");
            let span = time.to_last_of(&profile);
            span.assert_is(profile.samples, interval, "wall");
            assert_carries_the_remainder(&profile, interval * 1000);
            let leaves = leaves.map(|stack| own(&profile, stack[0].frame));
            assert!(leaves.iter().all(|&weight| weight >= 50), "{leaves:?}");
            assert_eq!(leaves.iter().sum::<u64>(), profile.samples);
        }
    }
}

/// A thread of the test in CPU mode: what it found on its own CPU clock.
struct Worker {
    identity: ThreadIdentity,
    leaf: u64,
    cpu_at_birth: u64,
    done: mpsc::Receiver<u64>,
    quit: Arc<AtomicBool>,
    handle: std::thread::JoinHandle<()>,
}

impl Worker {
    /// Spins, or sleeps, until told to quit; then says how much CPU time it has used.
    fn spawn(busy: bool) -> Self {
        let quit = Arc::new(AtomicBool::new(false));
        let (identity_tx, identity_rx) = mpsc::channel();
        let (done_tx, done) = mpsc::channel();
        let told = Arc::clone(&quit);
        let handle = std::thread::spawn(move || {
            let stack = fake_vm::stack(2, 1);
            fake_vm::set_stack(stack);
            let cpu = clock::thread_cpu();
            let identity = FakeThread::new().identity();
            identity_tx
                .send((identity, stack[0].frame, cpu))
                .expect("somebody listens");
            // Acquire: pairs with the Release in `join`; carries no data.
            while !told.load(Ordering::Acquire) {
                if busy {
                    std::hint::spin_loop();
                } else {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            done_tx.send(clock::thread_cpu()).expect("somebody listens");
        });
        let (identity, leaf, cpu_at_birth) = identity_rx.recv().expect("its first words");
        Self {
            identity,
            leaf,
            cpu_at_birth,
            done,
            quit,
            handle,
        }
    }

    fn cpu(&self) -> u64 {
        clock::Clock::cpu_of(self.identity.tid)
            .read()
            .expect("it lives")
    }

    /// Its whole CPU time, in ns.
    fn join(self) -> u64 {
        // Release: pairs with the Acquire of its loop.
        self.quit.store(true, Ordering::Release);
        let cpu = self.done.recv().expect("its last words");
        self.handle.join().expect("no panic");
        cpu
    }
}

#[test]
fn cpu_weights_are_the_cpu_time_of_each_thread() {
    const INTERVAL: u64 = 500;
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let workers = [true, true, false].map(Worker::spawn);
        let stack = fake_vm::stack(4, 1);
        fake_vm::set_stack(stack);
        let starter = FakeThread::new().identity();
        let before = clock::thread_cpu();
        let identities = [0, 1, 2].map(|n: usize| workers[n].identity);
        profiler.begin(config(Mode::Cpu, source, INTERVAL), starter, &identities);
        let admitted = clock::thread_cpu();
        let workers_admitted = [0, 1].map(|n: usize| workers[n].cpu());
        // Time that every busy thread has surely used; then ticks go on until it is in the tables. A
        // thread that is due is ticked, so what is not seen yet shrinks below a few intervals.
        // Long, because a handler that is put off the CPU with the seat costs the others a run of ticks.
        let goal = 300 * INTERVAL * 1000;
        profiler.run_until("300 intervals of CPU time", |_| {
            clock::thread_cpu() - admitted > goal
                && (0..2).all(|n| workers[n].cpu() - workers_admitted[n] > goal)
        });
        let own_by_now = clock::thread_cpu();
        let enough = profiler.counts().recorded + 200;
        profiler.run_until("recorded", |counts| counts.recorded >= enough);
        assert_eq!(profiler.stats().threads, 4);

        assert!(profiler.stop());
        let own_end = clock::thread_cpu();
        let leaves = [0, 1, 2].map(|n: usize| workers[n].leaf);
        let births = [0, 1, 2].map(|n: usize| workers[n].cpu_at_birth);
        // Joined before the counters are read: a handler of theirs may still have been at work.
        let ends = workers.map(Worker::join);
        let counts = profiler.counts();
        assert_accounted(&counts);
        let profile = profiler.profile().expect("a profile").clone();
        profiler.profile_read();

        let mine = own(&profile, stack[0].frame);
        Span {
            least: 0,
            most: own_end - before,
        }
        .assert_is(mine, INTERVAL, "starter");
        assert!(mine > 0 && own_by_now >= admitted);
        for n in 0..3 {
            let weight = own(&profile, leaves[n]);
            let most = ends[n] - births[n];
            assert!(
                weight * INTERVAL * 1000 < most + INTERVAL * 1000,
                "thread {n}: {weight} intervals of {most} ns"
            );
            assert!(n == 2 || weight > 0, "a busy thread was never seen");
        }
        let all: u64 = leaves.iter().map(|&leaf| own(&profile, leaf)).sum();
        assert_eq!(all + mine, profile.samples);
    }
}

#[test]
fn cpu_weights_of_one_thread_are_its_cpu_time_to_the_interval() {
    const INTERVAL: u64 = 200;
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let stack = fake_vm::stack(4, 1);
        fake_vm::set_stack(stack);
        let starter = FakeThread::new().identity();
        let before = clock::thread_cpu();
        profiler.begin(config(Mode::Cpu, source, INTERVAL), starter, &[]);
        let admitted = clock::thread_cpu();
        profiler.run_until("recorded", |counts| counts.recorded >= 50);
        let by_now = clock::thread_cpu();
        // The clock may have been read for the next record before this; for the one after, it is not.
        let enough = profiler.counts().recorded + 2;
        profiler.run_until("recorded", |counts| counts.recorded >= enough);
        let (stats, profile) = profiler.end();
        Span {
            least: by_now - admitted,
            most: clock::thread_cpu() - before,
        }
        .assert_is(profile.samples, INTERVAL, "CPU");
        assert_eq!(stats.counts.missed, 0);
        assert_eq!(own(&profile, stack[0].frame), profile.samples);
    }
}

#[test]
fn a_sleeper_costs_cpu_time_nothing_and_wakes_to_ticks() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        fake_vm::set_stack(fake_vm::stack(1, 1));
        let before = clock::thread_cpu();
        profiler.begin(
            config(Mode::Cpu, source, 1000),
            FakeThread::new().identity(),
            &[],
        );
        std::thread::sleep(Duration::from_millis(80));
        // Running again, it is ticked again, however slow its timer has become.
        profiler.run_until("recorded", |counts| counts.recorded >= 3);
        let (_, profile) = profiler.end();
        let most = clock::thread_cpu() - before;
        assert!(profile.samples * 1_000_000 < most + 1_000_000);
    }
}

#[test]
fn stacks_above_the_high_water_mark_are_folded_and_none_of_their_time_is_lost() {
    const INTERVAL: u64 = 100;
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let stacks = [deepest(70_000), deepest(80_000)];
        let small = fake_vm::stack(1, 5);
        let starter = FakeThread::new().identity();
        fake_vm::set_stack(stacks[0]);
        let time = WallTime::around(|| {
            profiler.begin(config(Mode::Wall, source, INTERVAL), starter, &[]);
        });
        profiler.one_more("recorded", |counts| counts.recorded);
        profiler.record(stacks[1]);
        profiler.spin_until("folded", |session| session.stats().counts.folded >= 20);
        assert!(fake_vm::drains_requested() > 0);
        // Settled by another stack, then folded once more; the stop settles that.
        profiler.record(small);
        profiler.spin_until("folded", |session| session.stats().counts.folded >= 40);
        let (stats, profile) = profiler.end();
        assert_eq!((stats.counts.missed, stats.counts.ring_full), (0, 0));
        assert!(stats.counts.high_water_words >= 2 * MAX_RECORD_WORDS as u64);
        assert!(own(&profile, stacks[1][0].frame) >= 20);
        assert!(own(&profile, small[0].frame) >= 20);
        time.to_last_of(&profile)
            .assert_is(profile.samples, INTERVAL, "folded");
    }
}

#[test]
fn a_full_ring_costs_stacks_and_says_how_much_time() {
    const INTERVAL: u64 = 100;
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let starter = FakeThread::new().identity();
        fake_vm::set_stack(deepest(70_000));
        let time = WallTime::around(|| {
            profiler.begin(config(Mode::Wall, source, INTERVAL), starter, &[]);
        });
        while profiler.counts().ring_full < 5 {
            // A new one each time: the last one in the ring would be folded.
            profiler.show(deepest(70_000), |counts| counts.recorded + counts.ring_full);
        }
        // The stack before the gap is nobody's «again».
        profiler.drain_slice();
        let after = fake_vm::stack(2, 9);
        profiler.record(after);
        let (stats, profile) = profiler.end();
        assert!(stats.counts.missed >= 5);
        assert_eq!(stats.counts.ring_full, stats.counts.lost());
        time.to_last_of(&profile).assert_is(
            profile.samples + stats.counts.missed,
            INTERVAL,
            "recorded and missed",
        );
        assert!(own(&profile, after[0].frame) >= 1);
    }
}

#[test]
fn a_stack_that_is_too_deep_keeps_its_leaf_side_and_says_so() {
    let mut profiler = Profiler::new();
    let starter = FakeThread::new().identity();
    profiler.begin(config(Mode::Wall, TickChoice::Thread, 500), starter, &[]);
    let stack = fake_vm::stack(3 * MAX_DEPTH, 1);
    profiler.record(stack);
    // As deep as is kept: whole, so another stack than the one before.
    profiler.record(&stack[..MAX_DEPTH]);
    let (_, profile) = profiler.end();
    assert_eq!(profile.frames.len(), MAX_DEPTH);
    assert!(profile.truncated > 0 && profile.truncated < profile.samples);
    assert_eq!(own(&profile, stack[0].frame), profile.samples);
}

#[test]
fn gc_is_a_record_of_its_phase_and_walks_nothing() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let stack = fake_vm::stack(3, 1);
        fake_vm::set_stack(stack);
        let starter = FakeThread::new().identity();
        let time = WallTime::around(|| {
            profiler.begin(config(Mode::Wall, source, 100), starter, &[]);
        });
        profiler.one_more("recorded", |counts| counts.recorded);
        for phase in [1, 2, 0] {
            fake_vm::set_gc(Some(phase));
            // A walk that had begun before has ended: we are the thread that it would run on.
            let walks = fake_vm::walks();
            let enough = profiler.counts().recorded + 5;
            profiler.run_until("recorded", |counts| counts.recorded >= enough);
            assert_eq!(fake_vm::walks(), walks);
        }
        // Another thread's GC: nothing is known of this one.
        fake_vm::set_may_hold_gvl(false);
        let in_gc = profiler.counts().in_gc;
        profiler.run_until("in_gc", |counts| counts.in_gc >= in_gc + 3);
        fake_vm::set_may_hold_gvl(true);
        fake_vm::set_gc(None);
        profiler.one_more("recorded", |counts| counts.recorded);
        let (_, profile) = profiler.end();
        time.to_last_of(&profile)
            .assert_is(profile.samples, 100, "with GC");
        let gc = profile
            .frames
            .iter()
            .find(|totals| totals.frame == FRAME_GC)
            .expect("GC was seen");
        let phases = [FRAME_GC, FRAME_MARKING, FRAME_SWEEPING].map(|frame| own(&profile, frame));
        assert!(phases.iter().all(|&weight| weight >= 5), "{phases:?}");
        assert_eq!(phases.iter().sum::<u64>(), profile.gc_samples);
        assert_eq!(gc.total, profile.gc_samples);
        assert_eq!(
            own(&profile, stack[0].frame) + profile.gc_samples,
            profile.samples
        );
    }
}

#[test]
fn ignored_gc_goes_to_the_next_stack() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let stack = fake_vm::stack(3, 1);
        fake_vm::set_stack(stack);
        let ignoring = Config {
            ignore_gc: true,
            ..config(Mode::Wall, source, 100)
        };
        let starter = FakeThread::new().identity();
        let time = WallTime::around(|| profiler.begin(ignoring, starter, &[]));
        fake_vm::set_gc(Some(1));
        profiler.run_until("in_gc", |counts| counts.in_gc >= 20);
        fake_vm::set_gc(None);
        profiler.one_more("recorded", |counts| counts.recorded);
        let (_, profile) = profiler.end();
        assert_eq!(profile.gc_samples, 0);
        assert!(profile.samples >= 20);
        assert_eq!(own(&profile, stack[0].frame), profile.samples);
        time.to_last_of(&profile)
            .assert_is(profile.samples, 100, "without GC");
    }
}

#[test]
fn a_torn_stack_and_a_wild_value_are_refused_and_their_time_is_kept() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let fake = FakeThread::new();
        let good = fake_vm::stack(3, 1);
        fake_vm::set_stack(good);
        let time = WallTime::around(|| {
            profiler.begin(config(Mode::Wall, source, 100), fake.identity(), &[]);
        });
        fake.tear();
        let walks = fake_vm::walks();
        profiler.run_until("torn", |counts| counts.torn >= 10);
        assert_eq!(fake_vm::walks(), walks);
        fake.mend();
        for value in fake_vm::no_frames() {
            fake_vm::set_stack(fake_vm::stack_of(&[value, good[0].frame]));
            profiler.one_more("invalid", |counts| counts.invalid);
        }
        fake_vm::set_stack(&[]);
        profiler.one_more("no_frames", |counts| counts.no_frames);
        profiler.record(good);
        let (stats, profile) = profiler.end();
        assert!(stats.counts.invalid >= 5);
        assert_eq!(stats.counts.missed, 0);
        assert_eq!(own(&profile, good[0].frame), profile.samples);
        assert_eq!(profile.frames.len(), good.len());
        time.to_last_of(&profile)
            .assert_is(profile.samples, 100, "after refusals");
    }
}

#[test]
fn every_frame_is_marked_from_the_ring_to_the_result_and_nothing_else_is() {
    let mut profiler = Profiler::new();
    let stacks = [fake_vm::stack(4, 1), fake_vm::stack(4, 70_000)];
    let starter = FakeThread::new().identity();
    profiler.begin(config(Mode::Wall, TickChoice::Thread, 100), starter, &[]);
    let marked = |session: &Session| {
        let mut marked = HashSet::new();
        session.each_marked(|value| {
            marked.insert(value);
        });
        marked
    };
    let frames_of = |stacks: &[&[FrameLine]]| {
        let frames = stacks.iter().flat_map(|stack| stack.iter());
        frames.map(|frame| frame.frame).collect::<HashSet<_>>()
    };
    let thread = HashSet::from([starter.thread]);
    assert_eq!(marked(&profiler), thread);
    profiler.record(stacks[0]);
    let in_ring = frames_of(&stacks[..1]);
    assert_eq!(marked(&profiler), &in_ring | &thread);
    profiler.drain_slice();
    profiler.record(stacks[1]);
    fake_vm::set_gc(Some(1));
    profiler.one_more("recorded", |counts| counts.recorded);
    fake_vm::set_gc(None);
    let all = frames_of(&stacks);
    assert_eq!(marked(&profiler), &all | &thread);
    assert!(profiler.stop());
    // The Thread too: results say what it is called.
    assert_eq!(marked(&profiler), &all | &thread);
    assert!(profiler.profile().is_some());
    assert_eq!(marked(&profiler), &all | &thread);
    // Lent while it is turned into names, and a new profile may begin.
    let lent = profiler.lend().expect("memory").expect("a profile");
    assert_eq!(marked(&profiler), &all | &thread);
    assert!(profiler.take_back(&lent, false));
    assert_eq!(marked(&profiler), &all | &thread);
    profiler.profile_read();
    assert_eq!(marked(&profiler), HashSet::new());
}

#[test]
fn errno_survives_every_tick() {
    for (source, mode) in SOURCES
        .into_iter()
        .flat_map(|source| [(source, Mode::Wall), (source, Mode::Cpu)])
    {
        let mut profiler = Profiler::new();
        fake_vm::set_stack(fake_vm::stack(3, 1));
        profiler.begin(config(mode, source, 20), FakeThread::new().identity(), &[]);
        let mut checks = 0_u64;
        profiler.run_until("ticks", |counts| {
            for _ in 0..100 {
                // SAFETY: the calling thread's own errno.
                let found = unsafe {
                    let errno = libc::__errno_location();
                    errno.write_volatile(libc::ENOTNAM);
                    for _ in 0..50 {
                        std::hint::spin_loop();
                    }
                    errno.read_volatile()
                };
                assert_eq!(found, libc::ENOTNAM, "a tick has changed errno");
                checks += 1;
            }
            counts.recorded >= 500
        });
        assert!(checks >= 100);
        profiler.end();
    }
}

#[test]
fn signals_of_others_are_counted_and_harmless() {
    let mut profiler = Profiler::new();
    fake_vm::set_stack(fake_vm::stack(3, 1));
    let starter = FakeThread::new().identity();
    profiler.begin(
        config(Mode::Wall, TickChoice::Thread, 900_000),
        starter,
        &[],
    );
    assert_eq!(profiler.stats().signal, "PROF");
    let foreign =
        |wanted: u64| move |session: &mut Session| session.stats().counts.foreign == wanted;
    // SAFETY: it is handled.
    unsafe { libc::raise(libc::SIGPROF) };
    profiler.spin_until("foreign", foreign(1));
    fake_vm::queue_to_self(libc::SIGPROF, 0);
    profiler.spin_until("foreign", foreign(2));
    fake_vm::queue_to_self(libc::SIGPROF, starter.vm_thread as u64);
    profiler.spin_until("foreign", foreign(3));
    assert_eq!(profiler.counts().received, 0);
    // Tokens that name no living thread.
    for (slot, generation) in [(0, 0), (1, 0), (MAX_THREADS as u16 - 1, 2), (u16::MAX, 1)] {
        let token = Token { slot, generation };
        let before = profiler.counts().stale;
        fake_vm::queue_to_self(libc::SIGPROF, token.to_bits());
        profiler.spin_until("stale", |session| session.stats().counts.stale > before);
    }
    assert!(profiler.stop());
    assert_accounted(&profiler.counts());
    assert_eq!(profiler.counts().recorded, 0);

    // After the stop the number is still harmless, and so are ticks that come late.
    // SAFETY: as above.
    unsafe { libc::raise(libc::SIGPROF) };
    let slots = (0..4).flat_map(|slot| (0..4000).map(move |generation| Token { slot, generation }));
    for token in slots {
        fake_vm::queue_to_self(libc::SIGPROF, token.to_bits());
    }
    let counts = profiler.counts();
    assert_eq!((counts.foreign, counts.recorded), (4, 0));
    assert_eq!(counts.stale, counts.received);
    profiler.profile_read();
}

#[test]
fn a_signal_to_the_whole_process_is_foreign_whichever_thread_takes_it() {
    let mut profiler = Profiler::new();
    fake_vm::set_stack(fake_vm::stack(3, 1));
    let starter = FakeThread::new().identity();
    profiler.begin(config(Mode::Wall, TickChoice::Timer, 900_000), starter, &[]);
    // SAFETY: it is handled.
    unsafe { libc::kill(libc::getpid(), libc::SIGPROF) };
    profiler.spin_until("foreign", |session| session.stats().counts.foreign == 1);
    assert_eq!(profiler.counts().received, 0);
    assert!(profiler.stop());
    profiler.profile_read();
}

static TAKEN_BY_OTHER: AtomicU64 = AtomicU64::new(0);

extern "C" fn other_handler(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // Relaxed: a lone number; no partner.
    TAKEN_BY_OTHER.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn third_handler(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}

fn taken_by_other() -> u64 {
    // Relaxed: as above.
    TAKEN_BY_OTHER.load(Ordering::Relaxed)
}

fn handler_of(signal: c_int) -> libc::sighandler_t {
    // SAFETY: a zeroed action is overwritten; a null new action only reads.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(
            libc::sigaction(signal, std::ptr::null(), &raw mut action),
            0
        );
        action.sa_sigaction
    }
}

/// Sets another program's handler, or SIG_IGN.
fn set_handler(signal: c_int, handler: libc::sighandler_t) {
    // SAFETY: a handler of this program, or a constant of the kernel's.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(signal, &raw const action, std::ptr::null_mut()),
            0
        );
    }
}

fn other() -> libc::sighandler_t {
    other_handler as extern "C" fn(_, _, _) as usize
}

#[test]
fn a_signal_with_a_handler_of_somebody_else_is_left_alone() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        set_handler(libc::SIGPROF, other());
        let highest = libc::SIGRTMAX();
        set_handler(highest, other());
        fake_vm::set_stack(fake_vm::stack(3, 1));
        let starter = FakeThread::new().identity();
        profiler.begin(config(Mode::Wall, source, 100), starter, &[]);
        assert_eq!(profiler.stats().signal, "RTMAX-1");
        profiler.run_until("recorded", |counts| counts.recorded >= 10);
        let before = taken_by_other();
        // SAFETY: the other's handler takes it.
        unsafe { libc::raise(libc::SIGPROF) };
        assert_eq!(taken_by_other(), before + 1);
        let (stats, _) = profiler.end();
        assert_eq!(stats.counts.foreign, 0);
        assert_eq!(handler_of(libc::SIGPROF), other());
        assert_eq!(handler_of(highest), other());
        assert_eq!(taken_by_other(), before + 1);
        // Ours stays on the signal that nobody had, for a tick that comes late.
        // SAFETY: it is handled.
        unsafe { libc::raise(highest - 1) };
        set_handler(libc::SIGPROF, libc::SIG_IGN);
        set_handler(highest, libc::SIG_IGN);
    }
}

#[test]
fn a_handler_that_was_set_meanwhile_stays_and_the_profile_ends_in_order() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        fake_vm::set_stack(fake_vm::stack(3, 1));
        let starter = FakeThread::new().identity();
        profiler.begin(config(Mode::Wall, source, 100), starter, &[]);
        profiler.run_until("recorded", |counts| counts.recorded >= 3);
        let before = taken_by_other();
        set_handler(libc::SIGPROF, other());
        profiler.spin_until("taken by the other", |_| taken_by_other() > before);
        profiler.end();
        assert_eq!(handler_of(libc::SIGPROF), other());
        set_handler(libc::SIGPROF, libc::SIG_IGN);
    }
}

#[test]
fn a_replaced_handler_is_put_back_and_a_default_action_is_not() {
    let _profiler = Profiler::new();
    set_handler(libc::SIGPROF, other());
    let installed = signal::install(libc::SIGPROF).expect("a handler");
    assert_ne!(handler_of(libc::SIGPROF), other());
    assert!(installed.is_ours());
    installed.restore();
    assert_eq!(handler_of(libc::SIGPROF), other());

    // Somebody's in our place: neither ours nor the one before it comes back.
    let installed = signal::install(libc::SIGPROF).expect("a handler");
    let third = third_handler as extern "C" fn(_, _, _) as usize;
    set_handler(libc::SIGPROF, third);
    assert!(!installed.is_ours());
    installed.restore();
    assert_eq!(handler_of(libc::SIGPROF), third);

    for free in [libc::SIG_IGN, libc::SIG_DFL] {
        set_handler(libc::SIGPROF, free);
        let installed = signal::install(libc::SIGPROF).expect("a handler");
        let ours = handler_of(libc::SIGPROF);
        installed.restore();
        assert_eq!(handler_of(libc::SIGPROF), ours);
        // SAFETY: it is handled.
        unsafe { libc::raise(libc::SIGPROF) };
    }
}

#[test]
fn a_thousand_starts_and_stops_leave_nothing_behind() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let stack = fake_vm::stack(3, 1);
        fake_vm::set_stack(stack);
        let starter = FakeThread::new().identity();
        let open = descriptors();
        let mut before = Counts::default();
        for turn in 0..1000 {
            let mode = if turn % 2 == 0 { Mode::Wall } else { Mode::Cpu };
            profiler.begin(config(mode, source, 20), starter, &[]);
            if turn % 100 == 0 {
                profiler.one_more("recorded", |counts| counts.recorded);
            }
            assert!(profiler.stop());
            assert!(!profiler.stop());
            let stats = profiler.stats();
            assert_accounted(&stats.counts);
            assert_eq!(stats.threads, 0);
            assert!(
                stats.counts.received >= before.received,
                "unread, so added to"
            );
            before = stats.counts;
        }
        assert_eq!(descriptors(), open);
        assert_eq!(before.threads_skipped, 0);
        let profile = profiler.profile().expect("a profile");
        assert!(own(profile, stack[0].frame) == profile.samples && profile.samples >= 10);
        profiler.profile_read();
        assert!(profiler.profile().is_none());
    }
}

#[test]
fn walks_that_take_longer_than_the_interval_let_the_thread_go_on() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        fake_vm::set_walk_ns(300_000);
        let (identity_tx, identity_rx) = mpsc::channel();
        let (go_tx, go) = mpsc::channel::<()>();
        let (done_tx, done) = mpsc::channel();
        let handle = std::thread::spawn(move || {
            fake_vm::set_stack(fake_vm::stack(3, 1));
            identity_tx
                .send(FakeThread::new().identity())
                .expect("somebody listens");
            go.recv().expect("a start");
            // Some ms of work.
            for _ in 0..100_000 {
                std::hint::black_box(clock::monotonic());
            }
            done_tx.send(()).expect("somebody listens");
        });
        let worker = identity_rx.recv().expect("its identity");
        profiler.begin(config(Mode::Wall, source, 20), worker, &[]);
        go_tx.send(()).expect("it waits");
        done.recv_timeout(PATIENCE)
            .expect("the thread is not starved by its own ticks");
        assert!(profiler.stop());
        handle.join().expect("no panic");
        assert_accounted(&profiler.counts());
        assert!(profiler.counts().recorded + profiler.counts().folded > 0);
        profiler.profile_read();
    }
}

#[test]
fn slots_of_threads_that_ended_are_used_again() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        fake_vm::set_stack(fake_vm::stack(3, 1));
        let starter = FakeThread::new().identity();
        profiler.begin(config(Mode::Cpu, source, 200), starter, &[]);
        for _ in 0..MAX_THREADS + 500 {
            let worker = Worker::spawn(false);
            profiler.thread_born(worker.identity);
            assert_eq!(profiler.stats().threads, 2);
            profiler.thread_died(worker.identity, None);
            assert_eq!(profiler.stats().threads, 1);
            worker.join();
        }
        assert_eq!(profiler.counts().threads_skipped, 0);

        // As many as the table holds, at a time: the rest is counted, and room comes back.
        let fakes: Vec<_> = (0..MAX_THREADS).map(|_| FakeThread::new()).collect();
        if source == TickChoice::Thread {
            profiler.stop();
            profiler.profile_read();
            let slow = config(Mode::Cpu, TickChoice::Thread, 900_000);
            let others: Vec<_> = (1..)
                .zip(&fakes)
                .map(|(n, fake)| ThreadIdentity {
                    tid: i32::MAX - n,
                    ..fake.identity()
                })
                .collect();
            profiler.begin(slow, starter, &others);
            assert_eq!(profiler.stats().threads, MAX_THREADS);
            assert_eq!(profiler.counts().threads_skipped, 1);
        }
        assert!(profiler.stop());
        assert_eq!(profiler.stats().threads, 0);
        profiler.profile_read();
    }
}

#[test]
fn a_thread_that_is_gone_without_a_word_gives_its_slot_back() {
    let mut profiler = Profiler::new();
    fake_vm::set_stack(fake_vm::stack(3, 1));
    let starter = FakeThread::new().identity();
    profiler.begin(config(Mode::Cpu, TickChoice::Thread, 100), starter, &[]);
    let worker = Worker::spawn(true);
    profiler.thread_born(worker.identity);
    assert_eq!(profiler.stats().threads, 2);
    profiler.run_until("recorded", |counts| counts.recorded >= 5);
    worker.join();
    profiler.spin_until("one thread", |session| session.stats().threads == 1);
    profiler.end();
}

#[test]
fn a_tick_that_waits_for_a_safepoint_is_taken_there() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let stack = fake_vm::stack(3, 1);
        fake_vm::set_stack(stack);
        let starter = FakeThread::new().identity();
        let nowhere = VmFacts {
            layout: None,
            direct: true,
            ..VM
        };
        let time = WallTime::around(|| {
            profiler.begin_with(config(Mode::Wall, source, 100), nowhere, starter, &[]);
        });
        assert_eq!(profiler.stats().capture, "postponed");
        let mut asked = 0;
        for _ in 0..30 {
            profiler.spin_until("asked for", |_| fake_vm::samples_requested() > asked);
            // Several ticks, one sample.
            profiler.one_more("waiting", |counts| counts.awaiting_safepoint);
            asked = fake_vm::samples_requested();
            assert_eq!(fake_vm::walks(), profiler.counts().recorded);
            profiler.safepoint(starter.thread);
        }
        assert!(profiler.counts().recorded >= 30);
        // Another Thread runs when the safepoint comes: its stack is not the tick's.
        profiler.one_more("waiting", |counts| counts.awaiting_safepoint);
        profiler.safepoint(starter.thread + 8);
        assert_eq!(profiler.counts().wrong_thread, 1);
        let (_, profile) = profiler.end();
        time.to_last_of(&profile)
            .assert_is(profile.samples, 100, "at safepoints");
    }
}

#[test]
fn samples_at_safepoints_make_room_for_the_next() {
    let mut profiler = Profiler::new();
    let starter = FakeThread::new().identity();
    let nowhere = VmFacts {
        layout: None,
        direct: true,
        ..VM
    };
    let small = Config {
        buffer: MIN_BUFFER,
        ..config(Mode::Wall, TickChoice::Thread, 100)
    };
    profiler.begin_with(small, nowhere, starter, &[]);
    for number in 0..40 {
        let asked = fake_vm::samples_requested();
        fake_vm::set_stack(deepest(1000 * number));
        profiler.spin_until("asked for", |_| fake_vm::samples_requested() > asked);
        profiler.safepoint(starter.thread);
    }
    let (stats, profile) = profiler.end();
    assert_eq!(
        (stats.counts.missed, stats.counts.ring_full),
        (0, 0),
        "lost"
    );
    assert!(profile.samples >= 40);
}

#[test]
fn samples_by_call_are_never_lost_for_lack_of_room() {
    let mut profiler = Profiler::new();
    let stacks = [deepest(70_000), deepest(80_000)];
    let starter = FakeThread::new().identity();
    assert!(!profiler.sample());
    profiler.begin(config(Mode::Custom, TickChoice::Auto, 1), starter, &[]);
    for turn in 0..500 {
        fake_vm::set_stack(stacks[turn % 2]);
        assert!(profiler.sample());
    }
    let (stats, profile) = profiler.end();
    assert_eq!((profile.samples, stats.counts.missed), (500, 0));
    assert_eq!(own(&profile, stacks[0][0].frame), 250);
    assert_eq!(stats.signal, "");
}

/// What the child of a fork says is wrong, by its exit status.
#[repr(i32)]
#[derive(Clone, Copy, Debug)]
enum Wrong {
    NotCleaned = 1,
    StillRunning,
    ParentsData,
    WasTicked,
    CannotStart,
    NotSampled,
}

fn in_child(profiler: &mut Profiler, starter: ThreadIdentity, tick: Config) -> Result<(), Wrong> {
    let check = |holds: bool, wrong: Wrong| if holds { Ok(()) } else { Err(wrong) };
    // Long enough for a tick of the parent's, were there one.
    std::thread::sleep(Duration::from_millis(20));
    let received = profiler.counts().received;
    std::thread::sleep(Duration::from_millis(20));
    check(profiler.counts().received == received, Wrong::WasTicked)?;
    check(profiler.clean_up_after_fork(), Wrong::NotCleaned)?;
    check(!profiler.clean_up_after_fork(), Wrong::NotCleaned)?;
    check(!profiler.is_running(), Wrong::StillRunning)?;
    let stats = profiler.stats();
    let empty = stats.counts == Counts::default() && stats.samples == 0 && stats.threads == 0;
    check(empty && profiler.profile().is_none(), Wrong::ParentsData)?;
    // SAFETY: an inert handler is on it.
    unsafe { libc::raise(libc::SIGPROF) };

    let starter = ThreadIdentity {
        tid: fake_vm::tid(),
        ..starter
    };
    profiler
        .start(tick, VM, &[starter])
        .map_err(|_| Wrong::CannotStart)?;
    profiler.run_until("recorded in the child", |counts| counts.recorded >= 5);
    profiler.stop();
    let samples = profiler.profile().map_or(0, |profile| profile.samples);
    check(samples >= 5, Wrong::NotSampled)
}

#[test]
fn a_forked_child_is_clean_and_the_parent_goes_on() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        fake_vm::set_stack(fake_vm::stack(3, 1));
        let starter = FakeThread::new().identity();
        let tick = config(Mode::Wall, source, 100);
        let time = WallTime::around(|| profiler.begin(tick, starter, &[]));
        profiler.run_until("recorded", |counts| counts.recorded >= 10);
        assert!(!profiler.clean_up_after_fork(), "this is the parent");
        // Something in the tables and something in the ring.
        profiler.drain_slice();
        profiler.one_more("recorded", |counts| counts.recorded);
        assert!(profiler.stats().samples > 0);
        // SAFETY: the child uses this thread alone, and leaves by _exit.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "cannot fork");
        if child == 0 {
            // A panic in here would go on as a second test runner.
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                in_child(&mut profiler, starter, tick)
            }));
            let status = match answer {
                Ok(Ok(())) => 0,
                Ok(Err(wrong)) => wrong as i32,
                Err(_) => 100,
            };
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(status) };
        }
        let enough = profiler.counts().recorded + 10;
        profiler.run_until("recorded", |counts| counts.recorded >= enough);
        let mut status = 0;
        // SAFETY: our own child; ticks interrupt the wait (SA_RESTART resumes it).
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(
            (libc::WIFEXITED(status), libc::WEXITSTATUS(status)),
            (true, 0),
            "the child says what is wrong, as in Wrong; 100 is a panic"
        );
        let (_, profile) = profiler.end();
        time.to_last_of(&profile)
            .assert_is(profile.samples, 100, "in the parent");
    }
}

#[test]
fn the_time_since_the_last_tick_is_the_last_stacks() {
    const INTERVAL: u64 = 2000;
    for source in SOURCES {
        let mut profiler = Profiler::new();
        let stack = fake_vm::stack(3, 1);
        fake_vm::set_stack(stack);
        let starter = FakeThread::new().identity();
        let before = clock::monotonic();
        profiler.begin(config(Mode::Wall, source, INTERVAL), starter, &[]);
        let begun = clock::monotonic();
        profiler.one_more("recorded", |counts| counts.recorded);
        let ended = without_signals(|| {
            let rest = clock::monotonic() + 5 * INTERVAL * 1000;
            while clock::monotonic() < rest {
                std::hint::spin_loop();
            }
            let ended = clock::monotonic();
            assert!(profiler.stop());
            ended
        });
        assert_accounted(&profiler.counts());
        assert_eq!(profiler.counts().missed, 0);
        let profile = profiler.profile().expect("a profile").clone();
        Span {
            least: ended - begun,
            most: clock::monotonic() - before,
        }
        .assert_is(profile.samples, INTERVAL, "up to the stop");
        assert_eq!(own(&profile, stack[0].frame), profile.samples);
    }
}

#[test]
fn a_drain_slice_ends_before_the_ring_is_empty() {
    // Many times as much as any machine drains in one slice.
    const SAMPLES: u64 = 60_000;
    let mut profiler = Profiler::new();
    let stacks = [fake_vm::stack(20, 1), fake_vm::stack(20, 100)];
    let starter = FakeThread::new().identity();
    let roomy = Config {
        buffer: 32 << 20,
        ..config(Mode::Custom, TickChoice::Auto, 1)
    };
    profiler.begin(roomy, starter, &[]);
    for turn in 0..SAMPLES {
        fake_vm::set_stack(stacks[turn as usize % 2]);
        assert!(profiler.sample());
    }
    assert_eq!(profiler.stats().drains.records, 0);
    let mut drained = 0;
    while drained < SAMPLES {
        profiler.drain_slice();
        let drains = profiler.stats().drains;
        assert!(drains.records > drained, "a slice drained nothing");
        drained = drains.records;
    }
    assert!(profiler.stats().drains.count > 1, "one slice drained all");
    let (_, profile) = profiler.end();
    assert_eq!(profile.samples, SAMPLES);
    assert_eq!(own(&profile, stacks[0][0].frame), SAMPLES / 2);
}

/// GC begins on this thread while a handler walks on another.
#[test]
fn gc_waits_for_a_walk_under_way_and_marks_what_it_found() {
    for source in SOURCES {
        let mut profiler = Profiler::new();
        // Time enough to begin to mark while it lasts.
        fake_vm::set_walk_ns(50_000_000);
        let worker = Worker::spawn(true);
        profiler.begin(config(Mode::Wall, source, 1000), worker.identity, &[]);
        profiler.spin_until("walking", |_| fake_vm::walks() > 0);
        let mut marked = HashSet::new();
        profiler.each_marked(|value| {
            marked.insert(value);
        });
        assert!(
            marked.contains(&worker.leaf),
            "the walk's frames are not marked"
        );
        fake_vm::set_walk_ns(0);
        assert!(profiler.stop());
        worker.join();
        assert_accounted(&profiler.counts());
    }
}

/// The VM gives a native thread to one Ruby thread after the other.
#[test]
fn a_native_thread_that_lives_on_is_one_thread() {
    let mut profiler = Profiler::new();
    fake_vm::set_stack(fake_vm::stack(3, 1));
    let starter = FakeThread::new().identity();
    profiler.begin(config(Mode::Cpu, TickChoice::Thread, 100), starter, &[]);
    let worker = Worker::spawn(true);
    for _ in 0..3 {
        // The one before has ended without a word.
        let thread = ThreadIdentity {
            tid: worker.identity.tid,
            ..FakeThread::new().identity()
        };
        profiler.thread_born(thread);
        assert_eq!(profiler.stats().threads, 2, "two threads on a native one");
    }
    assert!(profiler.stop());
    worker.join();
    assert_accounted(&profiler.counts());
}
