//! Where ticks come from.
//!
//! Law of the room: a tick is a signal to one thread with that thread's token in `si_value`. Ticks
//! may be late, early or missing; weights are taken from clocks, so time stays true (I9).

#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "runs on the tick thread"
)]
mod budget;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a thread of its own, never in a handler"
)]
pub mod thread;
pub mod timer;

use super::clock::Clock;
use super::control::Token;
use super::Shared;
use crate::config::{TickChoice, MIN_TICK_NS};
use std::ffi::c_int;
use std::io;

/// What was refused, what may help, and the kernel's own words.
#[allow(clippy::disallowed_macros, reason = "runs in start")]
fn explained(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// What every source needs to know.
#[derive(Clone, Copy, Debug)]
pub struct TickPlan {
    /// Time between ticks in ns.
    pub every_ns: u64,
    /// Tick a thread only when its CPU clock has moved (CPU mode).
    pub by_cpu: bool,
    /// The signal to send.
    pub signal: c_int,
    /// The VM tells when a thread gives the GVL up: who has is not ticked.
    pub pauses: bool,
    /// Do not tick a thread that went to sleep and has used next to no CPU since (where the VM does not
    /// tell).
    pub leave_sleepers: bool,
    /// The share of the time that profiling may cost, in millionths; 0 for no bound.
    pub budget_ppm: u32,
}

impl TickPlan {
    /// Time between ticks for an interval: as asked, but not below [`MIN_TICK_NS`].
    #[must_use]
    pub fn spacing(interval_ns: u64) -> u64 {
        interval_ns.max(MIN_TICK_NS)
    }
}

/// A running source.
#[derive(Debug)]
pub enum Source {
    /// The tick thread.
    Thread(thread::TickThread),
    /// A kernel timer for each thread.
    Timer(TickPlan),
    /// The caller plays the signal.
    #[cfg(feature = "testing")]
    None,
}

/// Which source a choice means on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The tick thread.
    Thread,
    /// Kernel timers.
    Timer,
    /// No source.
    #[cfg(feature = "testing")]
    None,
}

impl SourceKind {
    /// `Auto` is the thread where this process may run on two or more cores: there it takes nothing
    /// from the core that is sampled.
    #[must_use]
    pub fn of(choice: TickChoice) -> Self {
        match choice {
            TickChoice::Thread => Self::Thread,
            TickChoice::Timer => Self::Timer,
            TickChoice::Auto if cores() >= 2 => Self::Thread,
            TickChoice::Auto => Self::Timer,
            #[cfg(feature = "testing")]
            TickChoice::None => Self::None,
        }
    }

    /// The name that `stats` shows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Timer => "timer",
            #[cfg(feature = "testing")]
            Self::None => "none",
        }
    }
}

/// Cores that this process may run on: the affinity mask, and the quota of its control group where
/// there is one (`std` looks at both).
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Source {
    /// Starts ticking for the threads that are admitted, and for those that come later by
    /// [`Source::thread_admitted`].
    ///
    /// # Errors
    /// The kernel's, when it has no thread or no timer to give.
    pub fn start(kind: SourceKind, plan: TickPlan, shared: &'static Shared) -> io::Result<Self> {
        let now = super::clock::monotonic();
        #[cfg(feature = "testing")]
        let ticking = kind != SourceKind::None;
        #[cfg(not(feature = "testing"))]
        let ticking = true;
        shared
            .deadlines
            .set(now, if ticking { plan.every_ns } else { 0 });
        shared.paces.reset();
        shared.paces.note(now, plan.every_ns);
        match kind {
            SourceKind::Thread => thread::TickThread::start(plan, shared).map(Self::Thread),
            SourceKind::Timer => {
                for (token, block) in shared.registry.live() {
                    match timer::arm(block, token, plan) {
                        // A thread that ended since it was found has no timer and needs none.
                        Err(_) if Clock::cpu_of(block.tid()).read().is_none() => {
                            shared.registry.retire(token);
                        }
                        Err(error) => {
                            for (_, block) in shared.registry.live() {
                                timer::disarm(block);
                            }
                            return Err(explained(
                                "cannot make a timer (try tick: :thread, or see ulimit -i)",
                                &error,
                            ));
                        }
                        Ok(()) => {}
                    }
                }
                Ok(Self::Timer(plan))
            }
            #[cfg(feature = "testing")]
            SourceKind::None => Ok(Self::None),
        }
    }

    /// A thread was admitted while ticking.
    ///
    /// # Errors
    /// The kernel's, when it has no timer to give.
    pub fn thread_admitted(&self, shared: &Shared, token: Token) -> io::Result<()> {
        match (self, shared.registry.block(token)) {
            (Self::Timer(plan), Some(block)) => timer::arm(block, token, *plan),
            _ => Ok(()),
        }
    }

    /// Ends the ticking: when this returns, none is sent any more.
    pub fn stop(self, shared: &Shared) {
        match self {
            Self::Thread(thread) => thread.stop(shared),
            Self::Timer(_) => {
                for (_, block) in shared.registry.live() {
                    timer::disarm(block);
                }
            }
            #[cfg(feature = "testing")]
            Self::None => {}
        }
    }

    /// After fork, in the child, where neither our thread nor our timers exist.
    pub fn abandon(self) {
        if let Self::Thread(thread) = self {
            thread.abandon();
        }
    }
}
