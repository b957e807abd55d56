//! What the Hash has beyond StackProf's keys, which its readers pass over. But for the last two in timed modes alone.
//!
//! | key | content |
//! | --- | --- |
//! | `:states` | `{running:, waiting:, blocked:, gc:}`: samples by what the thread was doing |
//! | `:threads` | for each thread `{id:, native_id:, name:, main:, born:, died:, samples:, states:}`, and `cpu_samples:` with both clocks; times in µs of `CLOCK_MONOTONIC` |
//! | `:gc_callers` | frames as in `:frames`, of the stacks that started collections; weights are the samples inside those |
//! | `:gc_causes` | `{newobj: {collections:, samples:}, …}` |
//! | `:cpu_samples` | samples by the CPU clock (mode `:cpu_and_wall`) |
//! | `:raw_threads`, `:raw_states` | with `raw: true`, as many as `:raw_sample_timestamps`: index in `:threads`, Symbol |
//! | `:raw_cpu_weights` | with both clocks: one for each run of `:raw` |
//! | `:folded_samples` | samples whose leaf side was folded into its caller, where `max_memory:` was reached |
//! | `:raw_omitted_samples` | samples that `:raw` lacks for the same reason |
//!
//! A frame has `:states` (`{running: [total, self], …}`) when not all of its samples are of a thread that
//! ran, and `:cpu_samples`, `:cpu_total_samples` with both clocks.

use crate::guard::Failure;
use crate::lists::List;
use crate::threads;
use crate::values::{self, boolean, integer, symbol, NIL};
use rb_sys::VALUE;
use ringprof_core::drain::{Counts, FrameTotals, Raw, ThreadTotals};
use ringprof_core::roster::Person;
use ringprof_core::sample::{GcCause, State};
use ringprof_core::session::Finished;
use std::ffi::CStr;

/// The Symbol of a state.
fn state_key(state: State) -> VALUE {
    symbol(match state {
        State::Running => c"running",
        State::Waiting => c"waiting",
        State::Blocked => c"blocked",
    })
}

fn cause_key(cause: GcCause) -> VALUE {
    symbol(match cause {
        GcCause::Unknown => c"unknown",
        GcCause::NewObject => c"newobj",
        GcCause::Malloc => c"malloc",
        GcCause::Method => c"method",
        GcCause::CApi => c"capi",
        GcCause::Stress => c"stress",
    })
}

/// `{running:, waiting:, blocked:, gc:}`. Inside `protect`.
unsafe fn states(states: &[u64; 3], gc: u64) -> VALUE {
    // SAFETY: a Hash on this stack.
    unsafe {
        let hash = rb_sys::rb_hash_new();
        for state in State::ALL {
            rb_sys::rb_hash_aset(hash, state_key(state), integer(states[state as usize]));
        }
        rb_sys::rb_hash_aset(hash, symbol(c"gc"), integer(gc));
        hash
    }
}

/// Adds a frame's own extras. Inside `protect`.
pub unsafe fn add_to_frame(hash: VALUE, totals: &FrameTotals, both_clocks: bool) {
    // SAFETY: Ruby objects on this stack until they are in `hash`.
    unsafe {
        let (waiting, blocked) = (totals.waiting, totals.blocked);
        if waiting.total + blocked.total > 0 {
            let running = Counts {
                total: totals.total.saturating_sub(waiting.total + blocked.total),
                own: totals.own.saturating_sub(waiting.own + blocked.own),
            };
            let states = rb_sys::rb_hash_new();
            rb_sys::rb_hash_aset(hash, symbol(c"states"), states);
            for (state, counts) in State::ALL.into_iter().zip([running, waiting, blocked]) {
                let pair = [integer(counts.total), integer(counts.own)];
                let pair = rb_sys::rb_ary_new_from_values(2, pair.as_ptr());
                rb_sys::rb_hash_aset(states, state_key(state), pair);
            }
        }
        if both_clocks {
            let set = |key: &CStr, n: u64| rb_sys::rb_hash_aset(hash, symbol(key), integer(n));
            set(c"cpu_samples", totals.cpu.own);
            set(c"cpu_total_samples", totals.cpu.total);
        }
    }
}

/// Names of the threads that live, asked for before the Hash is built: asking runs Ruby code.
pub fn names(finished: &Finished) -> Result<Vec<Option<String>>, Failure> {
    let mut names = Vec::new();
    names
        .try_reserve(finished.people.len())
        .map_err(|_| Failure::Failed("out of memory".into()))?;
    for person in &finished.people {
        names.push(if person.thread == 0 {
            person.name.clone()
        } else {
            threads::name_of(person.thread)
        });
    }
    Ok(names)
}

/// Adds the extras but for the frames' own. Inside `protect`.
pub unsafe fn add(hash: VALUE, finished: &Finished, names: &[Option<String>]) {
    let profile = finished.profile();
    // SAFETY: Ruby objects on this stack until they are in `hash`.
    unsafe {
        let set = |key: &CStr, value: VALUE| rb_sys::rb_hash_aset(hash, symbol(key), value);
        set(c"states", states(&profile.states, profile.gc_samples));
        let list = rb_sys::rb_ary_new();
        set(c"threads", list);
        for ((totals, person), name) in profile.threads.iter().zip(&finished.people).zip(names) {
            let both = profile.cpu_samples.is_some();
            rb_sys::rb_ary_push(list, thread(totals, person, name.as_deref(), both));
        }
        let causes = rb_sys::rb_hash_new();
        set(c"gc_causes", causes);
        for cause in GcCause::ALL {
            let totals = profile.gc_causes[cause as usize];
            if totals.collections + totals.samples > 0 {
                let counts = rb_sys::rb_hash_new();
                rb_sys::rb_hash_aset(causes, cause_key(cause), counts);
                rb_sys::rb_hash_aset(counts, symbol(c"collections"), integer(totals.collections));
                rb_sys::rb_hash_aset(counts, symbol(c"samples"), integer(totals.samples));
            }
        }
        if let Some(cpu) = profile.cpu_samples {
            set(c"cpu_samples", integer(cpu));
        }
        if let Some(raw) = &profile.raw {
            add_raw(hash, raw);
        }
    }
}

unsafe fn thread(totals: &ThreadTotals, person: &Person, name: Option<&str>, both: bool) -> VALUE {
    let micros = |ns: u64| integer(ns / 1000);
    // SAFETY: a Hash on this stack.
    unsafe {
        let hash = rb_sys::rb_hash_new();
        let set = |key: &CStr, value: VALUE| rb_sys::rb_hash_aset(hash, symbol(key), value);
        let shared = totals.serial == ringprof_core::drain::SHARED;
        set(c"id", if shared { NIL } else { integer(totals.serial) });
        set(
            c"native_id",
            if shared {
                NIL
            } else {
                integer(person.tid as u64)
            },
        );
        set(c"name", name.map_or(NIL, values::string));
        set(c"main", boolean(person.main));
        set(c"born", if shared { NIL } else { micros(person.born_ns) });
        set(c"died", person.died_ns.map_or(NIL, micros));
        set(c"samples", integer(totals.samples()));
        set(c"states", states(&totals.states, totals.gc));
        if both {
            set(c"cpu_samples", integer(totals.cpu));
        }
        hash
    }
}

unsafe fn add_raw(hash: VALUE, raw: &Raw) {
    // SAFETY: Ruby objects on this stack until they are in `hash`.
    unsafe {
        let keys = State::ALL.map(state_key);
        let gc = symbol(c"gc");
        let mut threads = List::with_room(raw.samples());
        let mut states = List::with_room(raw.samples());
        for tag in raw.sample_tags() {
            threads.push(tag.thread().map_or(NIL, |index| integer(index.into())));
            states.push(tag.state().map_or(gc, |state| keys[state as usize]));
        }
        rb_sys::rb_hash_aset(hash, symbol(c"raw_threads"), threads.finish());
        rb_sys::rb_hash_aset(hash, symbol(c"raw_states"), states.finish());
        if let Some(weights) = raw.run_cpu_weights() {
            let list = rb_sys::rb_ary_new();
            rb_sys::rb_hash_aset(hash, symbol(c"raw_cpu_weights"), list);
            for weight in weights {
                rb_sys::rb_ary_push(list, integer(weight));
            }
        }
    }
}
