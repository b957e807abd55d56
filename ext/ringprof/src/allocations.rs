//! Object mode: exactly every Nth allocation is a sample.

use crate::guard::{protect, quiet, Failure};
use crate::gvl::Gvl;
use crate::state;
use crate::values::{FALSE, NIL};
use rb_sys::VALUE;
use ringprof_core::config::Mode;
use std::ffi::c_void;

/// Makes the tracepoint, once, before the profile starts, so that its own allocation is not in it.
pub fn prepare(gvl: Gvl, mode: Mode) -> Result<(), Failure> {
    if mode != Mode::Object || state::with(gvl, |state| state.kept.tracepoint) != NIL {
        return Ok(());
    }
    let tracepoint = protect(|| {
        // SAFETY: a function that lives as long as the process.
        unsafe {
            rb_sys::rb_tracepoint_new(
                0,
                rb_sys::RUBY_INTERNAL_EVENT_NEWOBJ,
                Some(allocated),
                std::ptr::null_mut(),
            )
        }
    })?;
    state::with(gvl, |state| state.kept.tracepoint = tracepoint);
    Ok(())
}

/// Enables the tracepoint in object mode.
pub fn watch(gvl: Gvl, mode: Mode) -> Result<(), Failure> {
    if mode == Mode::Object {
        let tracepoint = state::with(gvl, |state| state.kept.tracepoint);
        // SAFETY: a tracepoint that is marked with the state.
        protect(|| unsafe { rb_sys::rb_tracepoint_enable(tracepoint) })?;
    }
    Ok(())
}

/// Disables it, if it is enabled: also after a profile that has ended by a failure.
pub fn unwatch(gvl: Gvl) {
    let tracepoint = state::with(gvl, |state| state.kept.tracepoint);
    // SAFETY: as above. Disabling a tracepoint that is enabled does not raise.
    let _ = protect(|| unsafe {
        if tracepoint == NIL || rb_sys::rb_tracepoint_enabled_p(tracepoint) == FALSE {
            return NIL;
        }
        rb_sys::rb_tracepoint_disable(tracepoint)
    });
}

/// An object was allocated. Runs under the GVL inside the allocation: no Ruby object is made here.
unsafe extern "C" fn allocated(_: VALUE, _: *mut c_void) {
    quiet(|| {
        let Some(gvl) = state::on_main_ractor() else {
            return;
        };
        state::with(gvl, |state| {
            let Some(interval) = state.session.samples_objects() else {
                return;
            };
            state.allocations += 1;
            if state.allocations >= interval {
                state.allocations = 0;
                state.session.sample();
            }
        });
    });
}
