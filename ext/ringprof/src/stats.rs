//! What the profiler knows of itself → Hash.

use crate::guard::{protect, Failure};
use crate::gvl::Gvl;
use crate::state::with;
use crate::values::{self, boolean, integer, symbol, NIL};
use rb_sys::VALUE;
use ringprof_core::session::Stats;
use std::ffi::CStr;

/// The Hash of `RingProf.stats`.
pub fn build(gvl: Gvl) -> Result<VALUE, Failure> {
    let (stats, because) = with(gvl, |state| {
        (state.session.stats(), state.postponed_because)
    });
    let because = because.or_else(crate::hooks::unsafe_to_walk).or_else(|| {
        with(gvl, |state| state.layout.is_none())
            .then_some("the layout of this Ruby's stacks is unknown")
    });
    // Owned out here, because a raise would jump over it in there (I11).
    let failure = stats.failure.map(|failure| failure.to_string());
    protect(|| hash(&stats, because, failure.as_deref()))
}

fn hash(stats: &Stats, because: Option<&'static str>, failure: Option<&str>) -> VALUE {
    let counts = &stats.counts;
    let drains = &stats.drains;
    table(&[
        (c"running", boolean(stats.running)),
        (c"capture", name(stats.capture)),
        (
            c"postponed_because",
            because
                .filter(|_| stats.capture == "postponed")
                .map_or(NIL, values::string),
        ),
        (c"tick", name(stats.tick)),
        (
            c"tick_realtime",
            boolean(stats.tick == "thread" && counts.realtime == 1),
        ),
        (
            c"signal",
            if stats.signal.is_empty() {
                NIL
            } else {
                values::string(&stats.signal)
            },
        ),
        (c"threads", integer(stats.threads as u64)),
        (c"threads_skipped", integer(counts.threads_skipped)),
        (c"elapsed_ns", integer(stats.elapsed_ns)),
        (c"failure", failure.map_or(NIL, values::string)),
        (c"sent", integer(counts.sent)),
        (c"unsent", integer(counts.unsent)),
        (c"late", integer(counts.late)),
        (c"overrun", integer(counts.overrun)),
        (c"foreign", integer(counts.foreign)),
        (c"received", integer(counts.received)),
        (c"recorded", integer(counts.recorded)),
        (
            c"coalesced",
            table(&[
                (c"early", integer(counts.early)),
                (c"folded", integer(counts.folded)),
                (c"in_gc", integer(counts.in_gc)),
                (c"awaiting_safepoint", integer(counts.awaiting_safepoint)),
                (c"no_frames", integer(counts.no_frames)),
                (c"total", integer(counts.coalesced())),
            ]),
        ),
        (
            c"lost",
            table(&[
                (c"ring_full", integer(counts.ring_full)),
                (c"seat_taken", integer(counts.seat_taken)),
                (c"torn", integer(counts.torn)),
                (c"invalid", integer(counts.invalid)),
                (c"stale", integer(counts.stale)),
                (c"not_ruby", integer(counts.not_ruby)),
                (c"wrong_thread", integer(counts.wrong_thread)),
                (c"closed", integer(counts.closed)),
                (c"total", integer(counts.lost())),
            ]),
        ),
        (c"missed_samples", integer(counts.missed)),
        (
            c"handler",
            table(&[
                (c"total_ns", integer(counts.handler_ns)),
                (c"max_ns", integer(counts.handler_max_ns)),
            ]),
        ),
        (
            c"drains",
            table(&[
                (c"count", integer(drains.count)),
                (c"requested", integer(counts.drains_requested)),
                (c"records", integer(drains.records)),
                (c"corrupt", integer(drains.corrupt)),
                (c"no_memory", integer(drains.no_memory)),
                (c"total_ns", integer(drains.ns)),
                (c"max_ns", integer(drains.max_ns)),
            ]),
        ),
        (
            c"ring",
            table(&[
                (c"words", integer(stats.ring_words as u64)),
                (c"high_water_words", integer(counts.high_water_words)),
            ]),
        ),
        (
            c"tables",
            table(&[
                (c"bytes", integer(stats.table_bytes as u64)),
                (c"nodes", integer(stats.nodes as u64)),
                (c"samples", integer(stats.samples)),
            ]),
        ),
    ])
}

fn table(entries: &[(&CStr, VALUE)]) -> VALUE {
    // SAFETY: a Hash on this stack; the values are in `entries`, on the caller's.
    unsafe {
        let hash = rb_sys::rb_hash_new();
        for (key, value) in entries {
            rb_sys::rb_hash_aset(hash, symbol(key), *value);
        }
        hash
    }
}

fn name(text: &str) -> VALUE {
    if text.is_empty() {
        NIL
    } else {
        values::call(values::string(text), c"to_sym", &[])
    }
}
