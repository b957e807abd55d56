//! Threads off the GVL, and who started collections, over a fake VM that tells of both.
//!
//! The tick thread keeps real time; the events are played by the thread that they are about. Every bound
//! is read from the clock around what it is about.
#![cfg(not(miri))]

#[path = "support/fake_vm.rs"]
mod fake_vm;

use fake_vm::{FakeThread, LAYOUT};
use ringprof_core::capture::clock;
use ringprof_core::capture::control::{ThreadIdentity, Token};
use ringprof_core::config::{Config, Mode, Threads, TickChoice, MIN_BUFFER};
use ringprof_core::drain::{FrameTotals, Profile};
use ringprof_core::sample::{FrameLine, GcCause, State};
use ringprof_core::session::{Session, VmFacts};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

const INTERVAL_US: u64 = 500;
const VM: VmFacts = VmFacts {
    layout: Some(LAYOUT),
    direct: true,
    pseudo_root: 0,
    pauses: true,
};

fn session() -> MutexGuard<'static, Session> {
    static SESSION: OnceLock<Mutex<Session>> = OnceLock::new();
    let session = SESSION.get_or_init(|| {
        // SAFETY: the hooks are functions of this program, good on any thread.
        Mutex::new(unsafe { Session::new(fake_vm::hooks(true)) })
    });
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    session.stop();
    session.profile_read();
    fake_vm::reset();
    session
}

fn config(mode: Mode) -> Config {
    Config {
        interval: INTERVAL_US,
        tick: TickChoice::Thread,
        threads: Threads::All,
        ..Config::new(mode)
    }
}

fn begin(session: &mut Session, mode: Mode, starter: ThreadIdentity, others: &[ThreadIdentity]) {
    session
        .start(config(mode), VM, &[&[starter], others].concat())
        .expect("a signal and a thread");
}

fn token(session: &Session) -> Token {
    session.shared().find(fake_vm::tid()).expect("sampled")
}

fn intervals(ns: u64) -> f64 {
    ns as f64 / (INTERVAL_US * 1000) as f64
}

fn burn(time: Duration) {
    let began = clock::monotonic();
    while clock::monotonic() - began < time.as_nanos() as u64 {
        // No system call: a tick in one would find the thread off the CPU.
        std::hint::spin_loop();
    }
}

/// Spins until some more ticks were recorded.
fn burn_until_recorded(session: &Session, more: u64) {
    let before = session.stats().counts.recorded;
    let began = clock::monotonic();
    while session.stats().counts.recorded < before + more {
        burn(Duration::from_micros(200));
        assert!(clock::monotonic() - began < 20_000_000_000, "no tick comes");
    }
}

fn end(session: &mut Session) -> Profile {
    assert!(session.stop());
    let counts = session.stats().counts;
    assert_eq!(
        counts.received,
        counts.recorded + counts.coalesced() + counts.lost()
    );
    let profile = session.profile().expect("a profile").clone();
    session.profile_read();
    assert_eq!(
        profile.samples,
        profile.states.iter().sum::<u64>() + profile.gc_samples
    );
    profile
}

fn of<'a>(profile: &'a Profile, stack: &[FrameLine]) -> &'a FrameTotals {
    let leaf = stack[0].frame;
    let found = profile.frames.iter().find(|totals| totals.frame == leaf);
    found.expect("the stack was seen")
}

fn assert_near(found: u64, expected: f64, what: &str) {
    assert!(
        (found as f64 - expected).abs() <= 3.0,
        "{what}: {found} for {expected}"
    );
}

#[test]
fn a_pause_is_its_stacks_by_what_the_thread_waited_for() {
    let mut session = session();
    let (running, paused) = (fake_vm::stack(3, 1), fake_vm::stack(4, 50));
    fake_vm::set_stack(running);
    begin(&mut session, Mode::Wall, FakeThread::new().identity(), &[]);
    let shared = session.shared();
    let token = token(&session);
    burn(Duration::from_millis(5));
    fake_vm::set_stack(paused);
    let began = clock::monotonic();
    shared.suspended(token);
    std::thread::sleep(Duration::from_millis(40));
    let ready = clock::monotonic();
    shared.waits(token);
    std::thread::sleep(Duration::from_millis(20));
    let sent = session.stats().counts.sent;
    shared.resumed(token);
    let resumed = clock::monotonic();
    fake_vm::set_stack(running);
    burn(Duration::from_millis(5));
    let counts = session.stats().counts;
    let profile = end(&mut session);
    // 120 ticks, had it been signalled.
    assert!(sent < 60, "{sent} ticks were sent to a thread off the GVL");
    assert_eq!(counts.pauses, 1, "pauses credited");
    let totals = of(&profile, paused);
    assert_near(totals.blocked.own, intervals(ready - began), "blocked");
    assert_near(totals.waiting.own, intervals(resumed - ready), "waiting");
    assert_eq!(of(&profile, running).waiting.own, 0);
    assert!(counts.parked > 0, "nobody ran");
}

#[test]
fn who_comes_back_asks_for_a_drain() {
    let mut session = session();
    let rare = Config {
        interval: 10_000,
        buffer: MIN_BUFFER,
        ..config(Mode::Wall)
    };
    session
        .start(rare, VM, &[FakeThread::new().identity()])
        .expect("a signal and a thread");
    let shared = session.shared();
    let token = token(&session);
    // On the GVL for an instant at a time, in which hardly a tick comes.
    shared.suspended(token);
    for line in 1..=30 {
        fake_vm::set_stack(fake_vm::stack(400, line));
        std::thread::sleep(Duration::from_millis(11));
        shared.resumed(token);
        shared.suspended(token);
    }
    assert!(fake_vm::drains_requested() > 0);
    end(&mut session);
}

#[test]
fn a_thread_that_runs_after_all_is_found_and_sampled() {
    let mut session = session();
    let stack = fake_vm::stack(3, 1);
    fake_vm::set_stack(stack);
    let fake = FakeThread::new();
    begin(&mut session, Mode::Wall, fake.identity(), &[]);
    session.shared().suspended(token(&session));
    // The suspension is not carried out, and nothing says so.
    fake.pop_frame();
    let before = session.stats().counts.recorded;
    let began = clock::monotonic();
    while session.stats().counts.recorded < before + 20 {
        burn(Duration::from_millis(1));
        assert!(
            clock::monotonic() - began < 20_000_000_000,
            "never sampled again"
        );
    }
    let profile = end(&mut session);
    let totals = of(&profile, stack);
    let running = totals.own - totals.blocked.own - totals.waiting.own;
    assert!(running >= 15, "it ran: {totals:?}");
}

#[test]
fn a_thread_that_is_paused_at_the_stop_is_walked_by_who_stops() {
    let mut session = session();
    let (mine, others) = (fake_vm::stack(3, 1), fake_vm::stack(5, 90));
    fake_vm::set_stack(mine);
    fake_vm::set_other_stack(others);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (tell, told) = std::sync::mpsc::channel();
    let sleeper = std::thread::spawn({
        let stop = stop.clone();
        move || {
            tell.send(fake_vm::tid()).expect("somebody listens");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let other = ThreadIdentity {
        tid: told.recv().expect("its id"),
        off: Some(State::Blocked),
        ..FakeThread::new().identity()
    };
    let before = clock::monotonic();
    begin(
        &mut session,
        Mode::Wall,
        FakeThread::new().identity(),
        &[other],
    );
    burn(Duration::from_millis(30));
    let profile = end(&mut session);
    let elapsed = clock::monotonic() - before;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    sleeper.join().expect("no panic");
    let totals = of(&profile, others);
    assert_eq!(totals.blocked.own, totals.own);
    assert!(totals.own as f64 >= 58.0 && totals.own as f64 <= intervals(elapsed) + 1.0);
    assert_eq!(profile.threads.len(), 2);
    let samples = profile.threads.iter().map(|thread| thread.samples());
    assert_eq!(samples.sum::<u64>(), profile.samples);
}

#[test]
fn both_clocks_tell_a_sleep_from_work() {
    let mut session = session();
    let (working, asleep) = (fake_vm::stack(3, 1), fake_vm::stack(4, 50));
    fake_vm::set_stack(working);
    begin(
        &mut session,
        Mode::CpuAndWall,
        FakeThread::new().identity(),
        &[],
    );
    let token = token(&session);
    let cpu = clock::thread_cpu();
    burn(Duration::from_millis(30));
    let cpu = clock::thread_cpu() - cpu;
    fake_vm::set_stack(asleep);
    session.shared().suspended(token);
    std::thread::sleep(Duration::from_millis(30));
    session.shared().resumed(token);
    fake_vm::set_stack(working);
    let profile = end(&mut session);
    assert_near(
        of(&profile, working).cpu.own,
        intervals(cpu),
        "CPU time of work",
    );
    assert!(of(&profile, asleep).cpu.own <= 3);
    assert!(of(&profile, asleep).own >= 57);
    let of_frames = profile.frames.iter().map(|totals| totals.cpu.own);
    assert_eq!(profile.cpu_samples, Some(of_frames.sum()));
}

#[test]
fn a_slot_that_is_used_again_is_another_threads() {
    let mut session = session();
    fake_vm::set_stack(fake_vm::stack(3, 1));
    let first = FakeThread::new().identity();
    begin(&mut session, Mode::Wall, first, &[]);
    let slot = token(&session).slot;
    burn_until_recorded(&session, 6);
    session.thread_died(first, Some("first".into()));
    // Its last records are in the ring, so its slot is not free before they are read.
    let second = FakeThread::new().identity();
    session.thread_born(second);
    assert_ne!(token(&session).slot, slot);
    burn_until_recorded(&session, 6);
    session.drain_slice();
    session.thread_died(second, None);
    let third = FakeThread::new().identity();
    session.thread_born(third);
    assert_eq!(token(&session).slot, slot);
    burn_until_recorded(&session, 6);
    assert!(session.stop());
    let lent = session.lend().expect("memory").expect("a profile");
    let people = &lent.people;
    assert_eq!(people.len(), 3);
    assert_eq!(people[0].name.as_deref(), Some("first"));
    assert!(people[0].died_ns <= Some(people[1].born_ns + 1) && people[0].died_ns.is_some());
    for thread in &lent.profile().threads {
        assert!(thread.samples() >= 5, "{thread:?}");
    }
    session.take_back(&lent, true);
}

#[test]
fn a_collection_is_its_callers_whichever_comes_first() {
    let mut session = session();
    let (running, caller) = (fake_vm::stack(3, 1), fake_vm::stack(4, 50));
    fake_vm::set_stack(running);
    begin(&mut session, Mode::Wall, FakeThread::new().identity(), &[]);
    burn(Duration::from_millis(3));
    fake_vm::set_stack(caller);
    for number in [7, 8] {
        fake_vm::set_collection(number, GcCause::Method as u64);
        fake_vm::set_gc(Some(1));
        // Ticks before our mark function is reached, and after.
        burn_until_recorded(&session, 3);
        session.each_marked(|_| {});
        burn_until_recorded(&session, 3);
        fake_vm::set_gc(None);
    }
    // Nobody collects: who looks at what we refer to is no caller.
    fake_vm::set_collection(9, GcCause::Method as u64);
    session.each_marked(|_| {});
    fake_vm::set_stack(running);
    let profile = end(&mut session);
    assert!(profile.gc_samples >= 12, "{}", profile.gc_samples);
    let cause = profile.gc_causes[GcCause::Method as usize];
    assert_eq!((cause.collections, cause.samples), (2, profile.gc_samples));
    assert_eq!(profile.gc_causes[GcCause::Unknown as usize].samples, 0);
    let leaf = profile
        .gc_callers
        .iter()
        .find(|totals| totals.frame == caller[0].frame);
    assert_eq!(leaf.map(|totals| totals.own), Some(profile.gc_samples));
}
