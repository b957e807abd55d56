//! What the profiler knows of itself → Hash.

use crate::guard::{protect, Failure};
use crate::gvl::Gvl;
use crate::state::with;
use crate::values::{self, boolean, integer, symbol, NIL};
use rb_sys::VALUE;
use ringprof_core::capture::histogram::Spread;
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
        (c"rounds", integer(counts.rounds)),
        (c"unsent", integer(counts.unsent)),
        (c"late", integer(counts.late)),
        (c"overrun", integer(counts.overrun)),
        (c"foreign", integer(counts.foreign)),
        (c"received", integer(counts.received)),
        (c"recorded", integer(counts.recorded)),
        (c"written", integer(counts.written)),
        (
            c"coalesced",
            table(&[
                (c"early", integer(counts.early)),
                (c"folded", integer(counts.folded)),
                (c"in_gc", integer(counts.in_gc)),
                (c"paused", integer(counts.paused)),
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
                (c"loader", integer(counts.loader)),
                (c"wrong_thread", integer(counts.wrong_thread)),
                (c"closed", integer(counts.closed)),
                (c"vm_down", integer(counts.vm_down)),
                (c"total", integer(counts.lost())),
            ]),
        ),
        (c"missed_samples", integer(counts.missed)),
        (
            c"handler",
            table(&[
                (c"count", integer(stats.handler_times.total())),
                (c"total_ns", integer(counts.handler_ns)),
                (c"max_ns", integer(counts.handler_max_ns)),
                (c"p50_ns", integer(stats.handler_times.quantile(0.5))),
                (c"p99_ns", integer(stats.handler_times.quantile(0.99))),
                (c"histogram", histogram(&stats.handler_times)),
            ]),
        ),
        (
            c"pauses",
            table(&[
                (c"told", boolean(stats.pauses)),
                (c"credited", integer(counts.pauses)),
                (c"given_up", integer(counts.pauses_lost)),
                (c"total_ns", integer(counts.pauses_ns)),
            ]),
        ),
        (
            c"tick_thread",
            table(&[
                (c"cpu_ns", integer(counts.tick_cpu_ns)),
                (c"parked", integer(counts.parked)),
            ]),
        ),
        (c"cost_ns", integer(stats.cost_ns)),
        (c"interval_ns", integer(stats.every_ns)),
        (c"intervals", intervals(stats)),
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
                (c"p50_ns", integer(stats.drain_times.quantile(0.5))),
                (c"p99_ns", integer(stats.drain_times.quantile(0.99))),
                (c"histogram", histogram(&stats.drain_times)),
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
                (c"folded", integer(stats.folded)),
            ]),
        ),
    ])
}

/// `{longest time in ns => how many took at most that}`.
fn histogram(spread: &Spread) -> VALUE {
    // SAFETY: a Hash on this stack.
    unsafe {
        let hash = rb_sys::rb_hash_new();
        for (ns, count) in spread.cumulative() {
            rb_sys::rb_hash_aset(hash, integer(ns), integer(count));
        }
        hash
    }
}

/// `[{since_ns:, interval_ns:}, …]`, counted from the start.
fn intervals(stats: &Stats) -> VALUE {
    // SAFETY: an Array on this stack.
    unsafe {
        let list = rb_sys::rb_ary_new();
        for pace in &stats.paces {
            let since = pace.since_ns.saturating_sub(stats.started_ns);
            let pace = table(&[
                (c"since_ns", integer(since)),
                (c"interval_ns", integer(pace.every_ns)),
            ]);
            rb_sys::rb_ary_push(list, pace);
        }
        list
    }
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
