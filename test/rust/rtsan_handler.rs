//! Under RealtimeSanitizer: the handler makes no call that could wait or allocate, whatever becomes
//! of a tick. `bin/sanitize` builds and runs it; elsewhere it is empty.
#![cfg(rtsan)]

#[path = "support/by_hand.rs"]
mod by_hand;
#[path = "support/fake_vm.rs"]
mod fake_vm;

use fake_vm::FakeThread;
use ringprof_core::config::{Config, Mode, TickChoice, MIN_BUFFER};
use ringprof_core::session::{Session, VmFacts};
use std::time::{Duration, Instant};

/// One test: the handler finds one shared state at a time.
#[test]
fn the_handler_makes_no_blocking_call() {
    // Set by `bin/sanitize`, which then expects the sanitizer to end this process.
    let planted = std::env::var_os("RINGPROF_PLANT").is_some();
    leave_alternate_stack();
    by_hand::every_outcome(50, &mut |send| {
        fake_vm::set_allocates(planted);
        send();
    });
    assert!(!planted, "an allocation in the handler went unnoticed");
    real_ticks();
}

/// Handlers run on the thread's own stack from now on: the sanitizer's report does not fit on the
/// alternate one that `std` gives a thread.
fn leave_alternate_stack() {
    let none = libc::stack_t {
        ss_sp: std::ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: no handler is running on the stack that is given up.
    let status = unsafe { libc::sigaltstack(&raw const none, std::ptr::null_mut()) };
    assert_eq!(status, 0);
}

/// Ticks of either source, with the timer slowed down and sped up inside the handler.
fn real_ticks() {
    // SAFETY: the hooks are functions of this program, good on any thread.
    let mut session = unsafe { Session::new(fake_vm::hooks(true)) };
    fake_vm::reset();
    fake_vm::set_stack(fake_vm::stack(20, 1));
    let facts = VmFacts {
        layout: Some(fake_vm::LAYOUT),
        direct: true,
        pseudo_root: 0,
        pauses: false,
    };
    for tick in [TickChoice::Thread, TickChoice::Timer] {
        for mode in [Mode::Wall, Mode::Cpu] {
            let config = Config {
                interval: 200,
                tick,
                buffer: MIN_BUFFER,
                ..Config::new(mode)
            };
            session
                .start(config, facts, &[FakeThread::new().identity()])
                .expect("signal, thread and timers");
            for round in 1..=3 {
                std::thread::sleep(Duration::from_millis(30));
                let began = Instant::now();
                while session.stats().counts.recorded < round * 50 {
                    assert!(began.elapsed() < Duration::from_secs(60), "never ticked");
                    session.drain_slice();
                }
            }
            assert!(session.stop());
            session.profile_read();
        }
    }
}
