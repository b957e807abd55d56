//! What is asked of a VM whose jobs are not for everybody to ask for (3.1 and 3.2), over a fake one.
#![cfg(not(miri))]

#[path = "support/fake_vm.rs"]
mod fake_vm;

use fake_vm::{FakeThread, LAYOUT};
use ringprof_core::capture::control::ThreadIdentity;
use ringprof_core::config::{Config, Mode, TickChoice, MIN_BUFFER};
use ringprof_core::sample::{FrameLine, MAX_DEPTH};
use ringprof_core::session::{Session, VmFacts};
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
        .start(config, facts, starter, &[])
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

fn asked() -> u64 {
    fake_vm::drains_requested() + fake_vm::samples_requested()
}

#[test]
fn nothing_is_asked_while_the_vm_takes_a_job_from_its_place() {
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
