//! What is asked of a VM whose jobs are not for everybody to ask for (3.1 and 3.2), over a fake one.
#![cfg(not(miri))]

#[path = "support/fake_vm.rs"]
mod fake_vm;

use fake_vm::{FakeThread, LAYOUT};
use ringprof_core::capture::control::ThreadIdentity;
use ringprof_core::config::{Config, Mode, TickChoice, MIN_BUFFER};
use ringprof_core::sample::{FrameLine, MAX_DEPTH};
use ringprof_core::session::{Session, VmFacts};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a profile on the calling thread.
fn begin(session: &mut Session, direct: bool, starter: ThreadIdentity) {
    let config = Config {
        interval: 100,
        buffer: MIN_BUFFER,
        tick: TickChoice::Timer,
        ..Config::new(Mode::Wall)
    };
    let facts = VmFacts {
        layout: Some(LAYOUT),
        direct,
        pseudo_root: 0,
        pauses: false,
    };
    session
        .start(config, facts, &[starter])
        .expect("a signal and a timer");
}

/// Runs on until `reached`, and never drains. No system call: a tick in one would find the thread off the CPU.
fn spin_until(session: &Session, what: &str, reached: impl Fn(&Session) -> bool) {
    let began = Instant::now();
    while !reached(session) {
        assert!(
            began.elapsed() < PATIENCE,
            "never {what}: {:?}",
            session.stats()
        );
        for _ in 0..10_000 {
            std::hint::spin_loop();
        }
    }
}

/// One test at a time: there is one VM.
fn alone() -> MutexGuard<'static, ()> {
    static VM: Mutex<()> = Mutex::new(());
    VM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `body` where no tick comes.
fn without_signals(body: impl FnOnce()) {
    // SAFETY: sets that we own; the mask is the calling thread's and is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

fn asked() -> u64 {
    fake_vm::drains_requested() + fake_vm::samples_requested()
}

#[test]
fn nothing_is_asked_while_the_vm_takes_a_job_from_its_place() {
    let _alone = alone();
    // SAFETY: the hooks are functions of this program, good on any thread.
    let mut session = unsafe { Session::new(fake_vm::hooks(false)) };
    let deep: [&'static [FrameLine]; 2] = [1, 2].map(|line| fake_vm::stack(MAX_DEPTH, line));
    for direct in [true, false] {
        fake_vm::reset();
        fake_vm::set_stack(deep[usize::from(direct)]);
        let thread = FakeThread::new();
        thread.set_runs_jobs(true);
        begin(&mut session, direct, thread.identity());
        spin_until(&session, "out of room, or waiting", |session| {
            let counts = session.stats().counts;
            counts.folded + counts.awaiting_safepoint + counts.ring_full >= 20
        });
        assert_eq!(asked(), 0, "direct: {direct}");
        thread.set_runs_jobs(false);
        spin_until(&session, "asked for", |_| asked() > 0);
        session.stop();
        session.profile_read();
    }
}

#[test]
fn a_collection_asks_for_a_drain() {
    let _alone = alone();
    // SAFETY: the hooks are functions of this program, good on any thread.
    let mut session = unsafe { Session::new(fake_vm::hooks(false)) };
    fake_vm::reset();
    // No tick finds who surely holds the GVL.
    fake_vm::set_may_hold_gvl(false);
    let stacks = [1, 2].map(|line| fake_vm::stack(MAX_DEPTH, line));
    fake_vm::set_stack(stacks[0]);
    begin(&mut session, true, FakeThread::new().identity());
    let looks = Cell::new(0);
    spin_until(&session, "full", |session| {
        looks.set(looks.get() + 1);
        fake_vm::set_stack(stacks[looks.get() % 2]);
        session.stats().counts.ring_full > 0
    });
    assert_eq!(asked(), 0);
    without_signals(|| {
        fake_vm::set_may_hold_gvl(true);
        session.each_marked(|_| {});
        assert_eq!(asked(), 0, "who only looks does not collect");
        fake_vm::set_gc(Some(1));
        session.each_marked(|_| {});
        assert_eq!(asked(), 1);
        fake_vm::set_gc(None);
    });
    session.stop();
    session.profile_read();
}
