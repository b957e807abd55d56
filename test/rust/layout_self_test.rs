//! The self-test of a layout: what does not fit the running VM is found out before anything is walked by it.
#![cfg(not(miri))]

#[path = "support/fake_vm.rs"]
mod fake_vm;

use fake_vm::{FakeThread, LAYOUT};
use ringprof_core::capture::preflight::Layout;
use ringprof_core::session::Session;

/// One test: the handler finds one shared state at a time.
#[test]
fn a_wrong_layout_is_found_out() {
    fake_vm::reset();
    // SAFETY: the hooks are functions of this program, good on any thread.
    let session = unsafe { Session::new(fake_vm::hooks(true)) };
    let fake = FakeThread::new();
    // SAFETY: the thread's memory is ours, with room for each of these offsets.
    let holds = |layout| unsafe { session.layout_holds(layout, fake.identity().vm_thread) };
    // The fake thread has a Ruby frame over the root's dummy.
    fake_vm::set_stack(fake_vm::stack(1, 1));
    assert!(holds(LAYOUT));
    fake_vm::set_stack(fake_vm::stack(2, 1));
    assert!(holds(LAYOUT), "a C frame may be walked as well");

    for thread_ec in [LAYOUT.thread_ec - 8, LAYOUT.thread_ec + 8] {
        let wrong = Layout {
            thread_ec,
            ..LAYOUT
        };
        assert!(!holds(wrong), "wrong layout passed: {wrong:?}");
    }
    for frame_size in [8, 16, 48, 64, 112] {
        let wrong = Layout {
            frame_size,
            ..LAYOUT
        };
        assert!(!holds(wrong), "wrong layout passed: {wrong:?}");
    }
    // The VM sees another stack than we do.
    for depth in [0, 3, 50] {
        fake_vm::set_stack(fake_vm::stack(depth, 1));
        assert!(
            !holds(LAYOUT),
            "wrong layout passed: {depth} frames of one or two"
        );
    }
    fake_vm::set_stack(fake_vm::stack(1, 1));
    fake.tear();
    assert!(!holds(LAYOUT), "wrong layout passed: torn");
    fake.mend();
    assert!(holds(LAYOUT));
}
