//! Threads born and gone, and what identifies them.
//!
//! The VM's `THREAD_BEGIN` and `THREAD_END` events come on the thread itself, with its stack whole.
//! Before 3.3 a thread that ends by an exception has no `THREAD_END`; its slot is given up when its
//! native thread begins another Ruby thread or is gone, and until then the pre-flight finds no stack.

use crate::guard::{protect, quiet, Failure};
use crate::hooks;
use crate::state;
use crate::thread_events;
use crate::values::{self, call, truthy, try_call, NIL};
use rb_sys::{rb_event_flag_t, ID, VALUE};
use ringprof_core::capture::control::ThreadIdentity;
use ringprof_core::sample::State;
use std::ffi::c_long;

/// The calling thread.
pub fn current() -> ThreadIdentity {
    // SAFETY: a Ruby thread under the GVL.
    unsafe {
        let thread = rb_sys::rb_thread_current();
        ThreadIdentity {
            tid: libc::gettid(),
            thread,
            vm_thread: hooks::vm_thread(thread),
            main: thread == rb_sys::rb_thread_main(),
            off: None,
        }
    }
}

/// Every living thread that has a native thread of its own, the calling one first. Under M:N scheduling only the main
/// thread and, as long as this call, the caller do.
pub fn all(caller: ThreadIdentity) -> Result<Vec<ThreadIdentity>, Failure> {
    // SAFETY: the class is there since boot.
    let class = unsafe { rb_sys::rb_cThread };
    let list = if m_n_threads() {
        protect(|| {
            let main = call(class, c"main", &[]);
            // SAFETY: one element.
            unsafe { rb_sys::rb_ary_new_from_values(1, &raw const main) }
        })?
    } else {
        try_call(class, c"list", &[])?
    };
    let mut found = Vec::new();
    if !is_left_out(caller.thread)? {
        found.push(caller);
    }
    let mut index = 0;
    loop {
        // SAFETY: reads an element, or nil beyond the end; `list` stays on this stack.
        let thread = unsafe { rb_sys::rb_ary_entry(list, index as c_long) };
        if thread == NIL {
            return Ok(found);
        }
        index += 1;
        if thread == caller.thread {
            continue;
        }
        let id = try_call(thread, c"native_thread_id", &[])?;
        if id == NIL {
            // Not begun yet, and its THREAD_BEGIN will tell; or left out.
            continue;
        }
        let mut tid = 0;
        protect(|| {
            // SAFETY: an Integer.
            tid = unsafe { rb_sys::rb_num2int(id) };
            NIL
        })?;
        let asleep = try_call(thread, c"stop?", &[]).is_ok_and(truthy);
        // SAFETY: a Ruby thread, under the GVL.
        let main = thread == unsafe { rb_sys::rb_thread_main() };
        found.push(ThreadIdentity {
            tid: if main {
                main_tid(tid as i32)
            } else {
                tid as i32
            },
            thread,
            // SAFETY: a Thread out of Thread.list.
            vm_thread: unsafe { hooks::vm_thread(thread) },
            main,
            // This thread holds the GVL, so no other one does.
            off: thread_events::KNOWN.then_some(if asleep {
                State::Blocked
            } else {
                State::Waiting
            }),
        });
    }
}

/// Whether a running thread is not to be sampled: it says that it has no native thread, as the agent's own does.
fn is_left_out(thread: VALUE) -> Result<bool, Failure> {
    // SAFETY: an object's class, and a class that is there since boot.
    let plain = unsafe { rb_sys::rb_obj_class(thread) == rb_sys::rb_cThread };
    Ok(!plain && try_call(thread, c"native_thread_id", &[])? == NIL)
}

/// The main thread's id, which is told as `told`. In a forked child Ruby 3.1 goes on telling the id that the thread
/// had in the parent (`native_thread_id`, thread_pthread.c); there it is the process's own.
fn main_tid(told: i32) -> i32 {
    // SAFETY: asks whether there is such a thread in this process, and signals nobody.
    unsafe {
        let pid = libc::getpid();
        let exists = libc::syscall(libc::SYS_tgkill, pid, told, 0) == 0;
        if exists {
            told
        } else {
            pid
        }
    }
}

fn m_n_threads() -> bool {
    state::on_main_ractor().is_some_and(|gvl| state::with(gvl, |state| state.m_n_threads))
}

/// Follows births and deaths from now on. A forked child may follow them already: once is enough.
pub fn watch() {
    unwatch();
    let events = rb_sys::RUBY_EVENT_THREAD_BEGIN | rb_sys::RUBY_EVENT_THREAD_END;
    // SAFETY: a function that lives as long as the process.
    unsafe { rb_sys::rb_add_event_hook(Some(on_event), events, NIL) };
}

/// Stops following.
pub fn unwatch() {
    // SAFETY: removes what `watch` added, if it did.
    unsafe { rb_sys::rb_remove_event_hook(Some(on_event)) };
}

/// A Thread's name, if it has one.
pub fn name_of(thread: VALUE) -> Option<String> {
    match try_call(thread, c"name", &[]) {
        Ok(name) if name != NIL => Some(values::text(name)),
        _ => None,
    }
}

unsafe extern "C" fn on_event(event: rb_event_flag_t, _: VALUE, _: VALUE, _: ID, _: VALUE) {
    quiet(|| {
        let Some(gvl) = state::on_main_ractor() else {
            return;
        };
        let thread = current();
        let ends = event != rb_sys::RUBY_EVENT_THREAD_BEGIN;
        let name = if ends { name_of(thread.thread) } else { None };
        // What it raises is its own affair, and no reason to leave it out.
        if !ends && is_left_out(thread.thread).unwrap_or(false) {
            return;
        }
        state::with(gvl, |state| {
            if ends {
                state.session.thread_died(thread, name);
            } else if state.m_n_threads {
                state.session.thread_skipped();
            } else {
                state.session.thread_born(thread);
            }
        });
    });
}
