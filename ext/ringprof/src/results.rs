//! A finished profile → StackProf's Hash.
//!
//! | key | from |
//! | --- | --- |
//! | `:version` | 1.2, the format's |
//! | `:mode`, `:interval`, `:metadata` | the last start |
//! | `:samples`, `:gc_samples` | sums of weights |
//! | `:missed_samples` | intervals that were credited to no stack |
//! | `:frames` | `{id => {name, file, line, total_samples, samples, edges, lines}}`, in order of first sight |
//! | more | see [`extras`] |
//! | `:raw`, `:raw_lines`, `:raw_sample_timestamps`, `:raw_timestamp_deltas` | with `raw: true`, when a stack was recorded |

use crate::extras;
use crate::guard::{protect, Failure};
use crate::gvl::Gvl;
use crate::lists::{numbers, List};
use crate::names;
use crate::state::{with, with_session, Kept};
use crate::values::{self, integer, symbol, NIL};
use rb_sys::VALUE;
use ringprof_core::config::Mode;
use ringprof_core::drain::{FrameTotals, NoMemory, Profile, Raw, StackFrame};
use ringprof_core::sample::MAX_DEPTH;
use ringprof_core::session::Finished;

/// The Hash of the profile that waits to be read, or `nil`. The profile is given up only when the
/// Hash is whole.
pub fn take(gvl: Gvl) -> Result<VALUE, Failure> {
    // Building the Hash calls Ruby, which may let another thread start, stop and read profiles.
    // As deep as a stack can be, so that it needs no more in `build`.
    let mut stack = Vec::new();
    stack.try_reserve(MAX_DEPTH).map_err(|_| NoMemory)?;
    let Some((profile, kept)) = with(gvl, |state| {
        let Some(profile) = state.session.lend()? else {
            return Ok(None);
        };
        let kept = state.kept;
        // What the profile was given belongs to its reader now.
        state.kept.metadata = NIL;
        Ok::<_, NoMemory>(Some((profile, kept)))
    })?
    else {
        return Ok(NIL);
    };
    let missed = with_session(gvl, |session| session.missed());
    let mode = with_session(gvl, |session| session.config().mode);
    let aggregate = with(gvl, |state| state.aggregate);
    let built = extras::names(&profile)
        .and_then(|names| build(&profile, &names, kept, missed, mode, aggregate, &mut stack));
    with(gvl, |state| {
        if state.session.take_back(&profile, built.is_ok()) {
            state.kept.metadata = kept.metadata;
        }
    });
    built
}

/// The Hash of a profile whose frames are marked.
fn build(
    finished: &Finished,
    names: &[Option<String>],
    kept: Kept,
    missed: u64,
    mode: Mode,
    aggregate: bool,
    // Owned out there, because a raise would jump over it in here (I11).
    stack: &mut Vec<StackFrame>,
) -> Result<VALUE, Failure> {
    let profile = finished.profile();
    // Counted out here: it takes memory, which a raise would not give back.
    let words = match &profile.raw {
        Some(raw) => raw.words()?,
        None => 0,
    };
    protect(|| {
        let keys = Keys::new();
        // SAFETY: Ruby objects, all on this stack until they are in `hash`.
        unsafe {
            let hash = rb_sys::rb_hash_new();
            let set = |key: &std::ffi::CStr, value: VALUE| {
                rb_sys::rb_hash_aset(hash, symbol(key), value);
            };
            set(c"version", rb_sys::rb_float_new(1.2));
            set(
                c"mode",
                values::call(values::string(mode.name()), c"to_sym", &[]),
            );
            set(c"interval", kept.interval);
            set(c"samples", integer(profile.samples));
            set(c"gc_samples", integer(profile.gc_samples));
            set(c"missed_samples", integer(missed));
            set(
                c"metadata",
                if kept.metadata == NIL {
                    rb_sys::rb_hash_new()
                } else {
                    kept.metadata
                },
            );
            let frames = rb_sys::rb_hash_new();
            set(c"frames", frames);
            fill(frames, &keys, &profile.frames, aggregate, profile);
            if let Some(raw) = &profile.raw {
                let (stacks, lines) = raw_arrays(profile, raw, words, stack);
                set(c"raw", stacks);
                set(c"raw_lines", lines);
                let times = numbers(raw.samples(), raw.timestamps_us());
                set(c"raw_sample_timestamps", times);
                let deltas = numbers(raw.samples(), raw.deltas_us());
                set(c"raw_timestamp_deltas", deltas);
            }
            if mode.is_timed() {
                extras::add(hash, finished, names);
                let callers = rb_sys::rb_hash_new();
                set(c"gc_callers", callers);
                fill(callers, &keys, &profile.gc_callers, aggregate, profile);
            }
            for (key, omitted) in [
                (c"folded_samples", profile.folded),
                (c"raw_omitted_samples", profile.raw_omitted),
            ] {
                if omitted > 0 {
                    set(key, integer(omitted));
                }
            }
            hash
        }
    })
}

/// Puts frames into a Hash by their ids.
unsafe fn fill(
    hash: VALUE,
    keys: &Keys,
    frames: &[FrameTotals],
    aggregate: bool,
    profile: &Profile,
) {
    for totals in frames.iter().filter(|totals| totals.total > 0) {
        // SAFETY: Ruby objects on this stack until they are in `hash`.
        unsafe {
            let frame = frame(keys, frames, totals, aggregate);
            extras::add_to_frame(frame, totals, profile.cpu_samples.is_some());
            rb_sys::rb_hash_aset(hash, integer(totals.frame), frame);
        }
    }
}

/// The Symbols of a frame.
struct Keys {
    name: VALUE,
    file: VALUE,
    line: VALUE,
    total_samples: VALUE,
    samples: VALUE,
    edges: VALUE,
    lines: VALUE,
}

impl Keys {
    fn new() -> Self {
        Self {
            name: symbol(c"name"),
            file: symbol(c"file"),
            line: symbol(c"line"),
            total_samples: symbol(c"total_samples"),
            samples: symbol(c"samples"),
            edges: symbol(c"edges"),
            lines: symbol(c"lines"),
        }
    }
}

unsafe fn frame(
    keys: &Keys,
    frames: &[FrameTotals],
    totals: &FrameTotals,
    aggregate: bool,
) -> VALUE {
    // SAFETY: Ruby objects on this stack until they are in `hash`, which is returned.
    unsafe {
        let hash = rb_sys::rb_hash_new();
        let named = names::of(totals.frame);
        rb_sys::rb_hash_aset(hash, keys.name, named.name);
        rb_sys::rb_hash_aset(hash, keys.file, named.file);
        if let Some(line) = named.line {
            rb_sys::rb_hash_aset(hash, keys.line, line);
        }
        rb_sys::rb_hash_aset(hash, keys.total_samples, integer(totals.total));
        rb_sys::rb_hash_aset(hash, keys.samples, integer(totals.own));
        if !aggregate {
            return hash;
        }
        if totals.edges.iter().any(|&(_, weight)| weight > 0) {
            let edges = rb_sys::rb_hash_new();
            rb_sys::rb_hash_aset(hash, keys.edges, edges);
            for &(callee, weight) in totals.edges.iter().filter(|&&(_, weight)| weight > 0) {
                let id = integer(frames[callee as usize].frame);
                rb_sys::rb_hash_aset(edges, id, integer(weight));
            }
        }
        if !totals.lines.is_empty() {
            let lines = rb_sys::rb_hash_new();
            rb_sys::rb_hash_aset(hash, keys.lines, lines);
            for &(line, total, own) in &totals.lines {
                let counts = [integer(total), integer(own)];
                let counts = rb_sys::rb_ary_new_from_values(2, counts.as_ptr());
                rb_sys::rb_hash_aset(lines, integer(line as u64), counts);
            }
        }
        hash
    }
}

/// `raw` and `raw_lines`, of that many words each: for each run `n, root, …, leaf, weight`.
unsafe fn raw_arrays(
    profile: &Profile,
    raw: &Raw,
    words: u64,
    stack: &mut Vec<StackFrame>,
) -> (VALUE, VALUE) {
    // SAFETY: two lists on this stack, filled with Integers.
    unsafe {
        let mut stacks = List::with_room(words);
        let mut lines = List::with_room(words);
        for run in raw.runs() {
            raw.stack(run.node, stack);
            let depth = stack.len() as i64;
            let weight = i64::try_from(run.weight).unwrap_or(i64::MAX);
            stacks.push_integer(depth);
            lines.push_integer(depth);
            for &(frame, line) in stack.iter() {
                // An address, or a small number.
                stacks.push_integer(profile.frames[frame as usize].frame as i64);
                lines.push_integer(line.into());
            }
            stacks.push_integer(weight);
            lines.push_integer(weight);
        }
        (stacks.finish(), lines.finish())
    }
}
