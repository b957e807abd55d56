//! Exits: whatever way the process ends, no handler touches a VM that is no more.

use crate::allocations;
use crate::guard::quiet;
use crate::gvl::Gvl;
use crate::state;
use crate::thread_events;
use crate::threads;
use crate::values::NIL;
use rb_sys::VALUE;

/// Registers with the VM.
pub fn watch() {
    // SAFETY: functions that live as long as the process.
    unsafe {
        rb_sys::rb_set_end_proc(Some(at_end), NIL);
        rb_sys::ruby_vm_at_exit(Some(at_vm_exit));
    }
}

/// Runs after the program's own `at_exit` blocks, with a whole VM. What was recorded stays readable.
unsafe extern "C" fn at_end(_: VALUE) {
    quiet(|| {
        if let Some(gvl) = state::on_main_ractor() {
            allocations::unwatch(gvl);
            threads::unwatch();
            state::with_session(gvl, |session| session.stop());
            thread_events::unwatch();
        }
    });
}

unsafe extern "C" fn at_vm_exit(_: *mut rb_sys::ruby_vm_t) {
    vm_went_down();
}

/// The last word: handlers are shut out before anything else of the VM goes.
pub fn vm_went_down() {
    quiet(|| {
        // SAFETY: the thread that takes the VM down is the only one left.
        let gvl = unsafe { Gvl::assume() };
        state::with_session(gvl, |session| session.vm_went_down());
    });
}
