//! Keywords → configuration. Every refusal and its text is the core's ([`Refusal`]).

use crate::guard::{protect, Failure};
use crate::values::{lookup, symbol, truthy, FALSE, NIL};
use rb_sys::VALUE;
use ringprof_core::config::{Config, Mode, Refusal, Threads, TickChoice};
use std::ffi::CStr;

/// A start's keywords.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub config: Config,
    /// As passed, or the default; `nil` for custom mode.
    pub interval: VALUE,
    /// A Hash, or `nil` when none was passed.
    pub metadata: VALUE,
    pub out: VALUE,
    pub aggregate: bool,
    /// Stop raises when the profile has ended before it.
    pub raise_failure: bool,
}

/// Reads the keywords (a Hash, or `nil` for none). Unknown ones are nobody's business, as with
/// StackProf. Checked in its order: metadata, interval, mode.
pub fn read(keywords: VALUE) -> Result<Options, Failure> {
    let get = |name: &CStr| {
        if keywords == NIL {
            NIL
        } else {
            lookup(keywords, name)
        }
    };
    let metadata = get(c"metadata");
    if truthy(metadata) && !is_hash(metadata) {
        return Err(Refusal::Metadata.into());
    }
    let asked = get(c"interval");
    let interval = if truthy(asked) {
        Some(Config::check_interval(to_integer(asked)?)?)
    } else {
        None
    };
    let mode = match get(c"mode") {
        mode if !truthy(mode) => Mode::Wall,
        mode => named(
            mode,
            &[c"wall", c"cpu", c"cpu_and_wall", c"object", c"custom"],
            Refusal::Mode,
        )
        .and_then(Mode::from_name)?,
    };
    let mut config = Config::new(mode);
    config.interval = interval.unwrap_or(config.interval);
    config.raw = truthy(get(c"raw"));
    config.ignore_gc = truthy(get(c"ignore_gc"));
    let buffer = get(c"buffer");
    if truthy(buffer) {
        config.buffer = Config::check_buffer(to_integer(buffer)?)?;
    }
    let tick = get(c"tick");
    if truthy(tick) {
        config.tick = named(
            tick,
            &[c"auto", c"thread", c"timer", c"none"],
            Refusal::Tick,
        )
        .and_then(TickChoice::from_name)?;
    }
    let threads = get(c"threads");
    if truthy(threads) {
        config.threads =
            named(threads, &[c"all", c"current"], Refusal::Threads).and_then(Threads::from_name)?;
    }
    let overhead = get(c"max_overhead");
    if truthy(overhead) {
        config.budget_ppm = Config::check_overhead(to_float(overhead)?)?;
        if config.tick == TickChoice::Timer {
            return Err(Refusal::OverheadOfTimer.into());
        }
    }
    let memory = get(c"max_memory");
    if truthy(memory) {
        config.max_memory = Config::check_memory(to_integer(memory)?)?;
    }
    let raise_failure = match get(c"on_failure") {
        NIL | FALSE => std::env::var_os("RINGPROF_ON_FAILURE").is_none_or(|value| value != "warn"),
        asked => named(asked, &[c"raise", c"warn"], Refusal::OnFailure)? == "raise",
    };
    Ok(Options {
        raise_failure,
        config,
        interval: match mode {
            Mode::Custom => NIL,
            _ if truthy(asked) => asked,
            // SAFETY: a small number is a Fixnum.
            _ => unsafe { rb_sys::rb_ull2inum(mode.default_interval()) },
        },
        metadata: if truthy(metadata) { metadata } else { NIL },
        out: get(c"out"),
        aggregate: get(c"aggregate") != FALSE || keywords == NIL,
    })
}

/// Which of these Symbols a value is.
fn named(value: VALUE, names: &[&'static CStr], refusal: Refusal) -> Result<&'static str, Refusal> {
    names
        .iter()
        .find(|name| symbol(name) == value)
        .and_then(|name| name.to_str().ok())
        .ok_or(refusal)
}

fn is_hash(value: VALUE) -> bool {
    // SAFETY: any VALUE has a class.
    unsafe { truthy(rb_sys::rb_obj_is_kind_of(value, rb_sys::rb_cHash)) }
}

/// What `NUM2INT` makes of it: a Float is cut, a String is a `TypeError`.
fn to_integer(value: VALUE) -> Result<i64, Failure> {
    let mut number = 0;
    protect(|| {
        // SAFETY: any VALUE; raises TypeError or RangeError.
        number = unsafe { rb_sys::rb_num2int(value) };
        NIL
    })?;
    Ok(number)
}

/// What `Float()` makes of a number; anything else is a `TypeError`.
fn to_float(value: VALUE) -> Result<f64, Failure> {
    let mut number = 0.0;
    protect(|| {
        // SAFETY: any VALUE; raises TypeError.
        number = unsafe { rb_sys::rb_num2dbl(value) };
        NIL
    })?;
    Ok(number)
}
