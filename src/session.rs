//! Composes capture, ring and drain; knows the order of start and stop.
//!
//! Law of the room: every method is called under the GVL, which is the lock of the consumer and of
//! the tables (I2). Only what is behind [`Shared`] is ever touched by anyone else.

use crate::capture::control::{ThreadIdentity, Token};
use crate::capture::counters::Counts;
use crate::capture::failure::Failure;
use crate::capture::histogram::Spread;
use crate::capture::paces::Pace;
use crate::capture::plan::{Capture, Plan, Reading, WeightClock};
use crate::capture::preflight::{self, Layout};
use crate::capture::scratch::{Scratch, WALK_LIMIT};
use crate::capture::signal::{self, Installed};
use crate::capture::tick::{Source, SourceKind, TickPlan};
use crate::capture::vm_hooks::VmHooks;
use crate::capture::writer::{Mark, Outcome, Writer};
use crate::capture::{clock, fork, handler, Shared, Standing};
use crate::config::{Config, Mode, Threads, TickChoice, SHORTEST_FOR_A_THREAD};
use crate::drain::{Corrupt, NoMemory, Options, Profile, Tables};
use crate::ring::{self, Consumer, Producer};
use crate::roster::{Person, Roster};
use crate::sample::{Frames, Header, State, MAX_RECORD_WORDS, MAX_WEIGHT, NO_SLOT};
use std::ffi::c_void;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Longest time that one drain job keeps the GVL, in ns; what is left waits for the next.
const SLICE_NS: u64 = 200_000;
/// The same where few may ask for the next one and the ring is nearly full: a ring that stays full loses time.
const LONG_SLICE_NS: u64 = 2_000_000;
/// Records between two looks at the clock.
const RECORDS_PER_LOOK: usize = 32;
/// How long stop, and exec, wait for ticks that were sent and not yet taken, in ns.
const SETTLE_NS: u64 = 5_000_000;

/// What drains have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainStats {
    /// Number of drains.
    pub count: u64,
    /// Records drained.
    pub records: u64,
    /// Records that no producer writes; each time the whole ring was given up.
    pub corrupt: u64,
    /// Records that the tables found no memory for.
    pub no_memory: u64,
    /// Time in drains, in ns.
    pub ns: u64,
    /// Longest drain, in ns.
    pub max_ns: u64,
}

/// A reading of everything that the profiler knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Whether a profile is being taken.
    pub running: bool,
    /// What happened to each tick.
    pub counts: Counts,
    /// What drains have cost.
    pub drains: DrainStats,
    /// Words that the ring holds at most.
    pub ring_words: usize,
    /// Memory of the tables in bytes.
    pub table_bytes: usize,
    /// Distinct calling contexts.
    pub nodes: usize,
    /// Sum of the weights of stacks that were folded into their callers.
    pub folded: u64,
    /// Threads being sampled.
    pub threads: usize,
    /// Sum of weights in the tables.
    pub samples: u64,
    /// `direct` or `postponed`; why the latter, if it was not asked for, is the extension's to say.
    pub capture: &'static str,
    /// `thread`, `timer`, or empty where no clock ticks.
    pub tick: &'static str,
    /// Name of the signal, or empty.
    pub signal: String,
    /// Time since start, or between start and stop, in ns.
    pub elapsed_ns: u64,
    /// Why the last profile ended before its stop, if it did.
    pub failure: Option<Failure>,
    /// When the profile began (`CLOCK_MONOTONIC`), in ns.
    pub started_ns: u64,
    /// Times in handlers.
    pub handler_times: Spread,
    /// Times in drains.
    pub drain_times: Spread,
    /// Time between two ticks in force, in ns; 0 while nothing ticks.
    pub every_ns: u64,
    /// The intervals that were in force, in order of time.
    pub paces: Vec<Pace>,
    /// Whether the VM tells when threads give the GVL up.
    pub pauses: bool,
    /// Time that profiling has cost, in ns: handlers, pauses, drains, the tick thread.
    pub cost_ns: u64,
    /// Threads on the roster, those gone with samples included.
    pub people: usize,
}

/// A finished profile, with who its threads were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The one profile, in a vector because that can be refused memory.
    profile: Vec<Profile>,
    /// As many as [`Profile::threads`], in their order.
    pub people: Vec<Person>,
}

impl Finished {
    /// The counts.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile[0]
    }
}

/// What runs while a timed profile is taken.
#[derive(Debug)]
struct Ticking {
    source: Source,
    installed: Installed,
}

/// What runs while any profile is taken.
#[derive(Debug)]
struct Running {
    config: Config,
    ticking: Option<Ticking>,
}

/// The halves of the ring, while nobody profiles.
#[derive(Debug)]
struct Idle {
    producer: Producer,
    scratch: Scratch,
}

/// The one profiler of a process.
#[derive(Debug)]
pub struct Session {
    shared: &'static Shared,
    consumer: Option<Consumer>,
    running: Option<Running>,
    tables: Tables,
    /// The last start's.
    config: Config,
    /// Records are in the tables, or could be, that nobody has read.
    unread: bool,
    finished: Option<Arc<Finished>>,
    /// The profile failed, and no stop has said so.
    untold: bool,
    /// Profiles that are being turned into results.
    lent: Vec<Arc<Finished>>,
    roster: Roster,
    /// Slots of threads that are gone, whose last records may not be in the tables yet.
    retiring: Vec<u16>,
    pauses: bool,
    started_ns: u64,
    elapsed_ns: u64,
    drains: DrainStats,
    ring_words: usize,
    capture: &'static str,
    tick: &'static str,
    signal: String,
}

/// What a start needs to know of the VM.
#[derive(Clone, Copy, Debug)]
pub struct VmFacts {
    /// Where the VM keeps its stacks, if that is known.
    pub layout: Option<Layout>,
    /// Stacks may be walked in the handler, if the layout is known.
    pub direct: bool,
    /// Ruby 3.1's outermost pseudo frame, or 0.
    pub pseudo_root: u64,
    /// The caller passes the VM's thread events on.
    pub pauses: bool,
}

impl Session {
    /// A session over the VM behind `hooks`.
    ///
    /// # Safety
    /// Under the GVL on a Ruby thread; the hooks stay valid until [`Session::vm_went_down`].
    #[must_use]
    pub unsafe fn new(hooks: VmHooks) -> Self {
        // SAFETY: the caller's promise.
        unsafe { handler::warm_up(&hooks) };
        let shared = Shared::leak(hooks);
        shared
            .storage
            .watch_library_of(hooks.is_ruby_thread as *const c_void);
        fork::watch(shared);
        Self {
            shared,
            consumer: None,
            running: None,
            tables: Tables::new(Options::default()),
            config: Config::new(Mode::Wall),
            unread: false,
            finished: None,
            untold: false,
            lent: Vec::new(),
            roster: Roster::default(),
            retiring: Vec::new(),
            pauses: false,
            started_ns: 0,
            elapsed_ns: 0,
            drains: DrainStats::default(),
            ring_words: 0,
            capture: "direct",
            tick: "",
            signal: String::new(),
        }
    }

    /// Tries a layout on the calling thread (see [`preflight::self_test`]).
    ///
    /// # Safety
    /// Under the GVL on the Ruby thread whose `rb_thread_t` is at `vm_thread`.
    #[must_use]
    pub unsafe fn layout_holds(&self, layout: Layout, vm_thread: usize) -> bool {
        let mut frames = vec![0; WALK_LIMIT];
        let mut lines = vec![0; WALK_LIMIT];
        // SAFETY: the caller's promise.
        unsafe {
            preflight::self_test(
                layout,
                vm_thread,
                &self.shared.hooks,
                &mut frames,
                &mut lines,
            )
        }
    }

    /// Whether a profile is being taken.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The configuration of the last start.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Starts a profile for `threads` (the first is the one that starts it). What an earlier
    /// profile left unread stays, and is added to.
    ///
    /// # Errors
    /// The system's, when it has no memory, signal, thread or timer to give; nothing runs then, and
    /// what an earlier profile left unread is as it was.
    pub fn start(
        &mut self,
        config: Config,
        facts: VmFacts,
        sampled: &[ThreadIdentity],
    ) -> io::Result<()> {
        debug_assert!(self.running.is_none());
        let capture = match facts.layout {
            Some(layout) if facts.direct => Capture::Direct(layout),
            _ => Capture::Postponed,
        };
        let kind = SourceKind::of(match config.tick {
            // Only the tick thread can keep to a budget.
            TickChoice::Auto if config.budget_ppm > 0 => TickChoice::Thread,
            // Falling asleep and waking up takes a thread as long as so short an interval; a timer ticks in the sampled thread.
            TickChoice::Auto
                if config.mode == Mode::Wall
                    && config.threads == Threads::Starter
                    && config.interval < SHORTEST_FOR_A_THREAD =>
            {
                TickChoice::Timer
            }
            choice => choice,
        });
        let signal = if config.mode.is_timed() {
            Some(signal::choose()?)
        } else {
            None
        };
        let by_cpu = config.mode == Mode::Cpu;
        let idle = self.idle_halves(config.buffer)?;
        let mut admitted = Vec::new();
        if admitted.try_reserve(sampled.len()).is_err() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let before = self.shared.counters.read();
        if self.begins_anew() {
            self.shared.counters.reset();
        }
        self.shared.failure.clear();
        self.untold = false;
        let plan = Plan {
            clock: if by_cpu {
                WeightClock::Cpu
            } else {
                WeightClock::Wall
            },
            both_clocks: config.mode == Mode::CpuAndWall,
            pauses: facts.pauses && config.mode.is_timed(),
            interval_ns: config.interval_ns(),
            ignore_gc: config.ignore_gc,
            capture,
            thread_ec: facts.layout.map_or(0, |layout| layout.thread_ec),
            reading: if kind == SourceKind::Thread {
                Reading::BeforeTick
            } else {
                Reading::InHandler
            },
            high_water: idle.producer.capacity() / 2,
            pseudo_root: facts.pseudo_root,
            #[cfg(feature = "testing")]
            skip_preflight: self.shared.testing.skip_preflight(),
            #[cfg(feature = "testing")]
            check_walks: self.shared.testing.check_walks(),
        };
        let writer = Writer::new(idle.producer, idle.scratch, plan);
        // SAFETY: (I1) under the GVL, and the gate has been closed and vacant since stop (or birth).
        unsafe { self.shared.open(writer) };
        // Only now: what the ring takes to be made is in nobody's time (I9).
        self.started_ns = clock::monotonic();
        let mut running = Running {
            config,
            ticking: None,
        };
        if let Some(signal) = signal {
            for &thread in sampled {
                if let Some(token) = self.shared.admit(thread, by_cpu, self.started_ns) {
                    admitted.push((thread, token));
                }
            }
            let ticks = TickPlan {
                every_ns: TickPlan::spacing(plan.interval_ns),
                by_cpu,
                signal,
                pauses: plan.pauses,
                leave_sleepers: !by_cpu && !plan.pauses && config.threads == Threads::All,
                budget_ppm: config.budget_ppm,
            };
            match self.start_ticking(kind, ticks) {
                Ok(ticking) => running.ticking = Some(ticking),
                Err(error) => {
                    self.shared.dismiss_all();
                    self.shared.close();
                    self.consumer = None;
                    self.free_retired();
                    self.shared.counters.restore(&before);
                    return Err(error);
                }
            }
        }
        self.pauses = plan.pauses;
        // No drain has run since the first tick: that takes the GVL, which is ours.
        self.begin_tables(config);
        self.tables
            .resume(self.started_ns, config.raw, config.max_memory as usize);
        for (thread, token) in admitted {
            self.enroll(thread, token, self.started_ns);
        }
        self.capture = match capture {
            Capture::Direct(_) => "direct",
            Capture::Postponed => "postponed",
        };
        self.tick = if config.mode.is_timed() {
            kind.name()
        } else {
            ""
        };
        self.signal = signal.map_or_else(String::new, signal::name);
        self.config = config;
        self.running = Some(running);
        self.unread = true;
        Ok(())
    }

    /// The tables for a start: those that wait to be read, or new ones.
    fn begin_tables(&mut self, config: Config) {
        if self.begins_anew() {
            let make = if config.mode.is_timed() {
                Tables::with_room
            } else {
                Tables::new
            };
            self.tables = make(Options {
                raw: config.raw,
                both_clocks: config.mode == Mode::CpuAndWall,
                monotone_deltas: config.mode == Mode::Custom,
                max_bytes: config.max_memory as usize,
            });
            self.shared.handler_times.reset();
            self.shared.drain_times.reset();
            self.drains = DrainStats::default();
            self.finished = None;
            self.roster.clear();
            self.elapsed_ns = 0;
        }
    }

    /// Enters a thread that was admitted into roster and tables.
    fn enroll(&mut self, thread: ThreadIdentity, token: Token, now: u64) {
        let serial = self.roster.enter(thread, now);
        if self.tables.thread_begins(token.slot, serial).is_err() {
            self.shared.failure.set(Failure::Memory);
        }
    }

    /// Gives the slots of threads that are gone to others: everything that they wrote is in the tables.
    fn free_retired(&mut self) {
        self.shared
            .take_retired()
            .for_each(|slot| self.shared.free(slot));
        let tables = &self.tables;
        self.roster
            .forget_unseen(|serial| tables.knows_thread(serial));
    }

    /// Whether a start begins a new profile rather than adds to one that waits to be read.
    fn begins_anew(&self) -> bool {
        !self.unread || self.finished.is_some()
    }

    fn start_ticking(&self, kind: SourceKind, plan: TickPlan) -> io::Result<Ticking> {
        clock::check().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the kernel refuses to tell the CPU time of threads: {error}"),
            )
        })?;
        let installed = signal::install(plan.signal)?;
        match Source::start(kind, plan, self.shared) {
            Ok(source) => {
                fork::timers_tick((kind == SourceKind::Timer).then_some(plan));
                Ok(Ticking { source, installed })
            }
            Err(error) => {
                // A timer that was armed before the refused one may have ticked.
                if kind == SourceKind::Timer && self.shared.thread_count() > 1 {
                    installed.restore();
                } else {
                    installed.undo();
                }
                Err(error)
            }
        }
    }

    /// The producer's half and the scratch, made anew when the size of the ring changes.
    fn idle_halves(&mut self, buffer: u64) -> io::Result<Idle> {
        // The ring of the profile before is empty by now; a new one costs a few hundred µs.
        let words = usize::try_from(buffer / 8).unwrap_or(usize::MAX);
        let made = ring::try_with_capacity(words).zip(Scratch::try_new());
        let Some(((producer, consumer), scratch)) = made else {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!("no memory for a ring of {buffer} bytes (buffer: sets its size)"),
            ));
        };
        self.ring_words = consumer.capacity();
        self.consumer = Some(consumer);
        Ok(Idle { producer, scratch })
    }

    /// Ends the profile: no tick, no handler, everything drained. False if none was running.
    pub fn stop(&mut self) -> bool {
        let Some(running) = self.running.take() else {
            return false;
        };
        if let Some(ticking) = running.ticking {
            ticking.source.stop(self.shared);
            fork::timers_tick(None);
            self.shared.let_ticks_arrive(SETTLE_NS);
            ticking.installed.restore();
        }
        let writer = self.shared.close();
        // Before the drain, which no tick can see.
        let stopped_ns = clock::monotonic();
        self.elapsed_ns += stopped_ns - self.started_ns;
        if self.shared.failure.get() == Some(Failure::Bug) {
            self.give_up_ring();
        } else {
            self.drain_all();
        }
        if let Some(mut writer) = writer {
            self.settle(&mut writer);
            let shared = self.shared;
            if running.config.mode.is_timed() {
                let mode = running.config.mode;
                shared.each_standing(|token, thread| {
                    self.credit_rest(&mut writer, mode, token, thread, stopped_ns);
                });
            }
            if self.consumer.as_ref().is_some_and(|ring| ring.used() > 0) {
                self.drain_all();
            }
            self.settle(&mut writer);
        }
        self.shared.dismiss_all();
        self.shared.deadlines_end();
        self.consumer = None;
        self.free_retired();
        self.tables.forget_last();
        self.untold = self.shared.failure.get().is_some();
        true
    }

    /// What the writer owes to the last stack, and what it had to give up.
    fn settle(&mut self, writer: &mut Writer) {
        self.shared.counters.written.add(writer.take_written());
        self.shared.counters.missed.add(writer.take_missed());
        let owed = writer.take_owed();
        if owed.weight > 0 {
            self.credit_slot(owed);
        }
    }

    /// Credits a slot's last stack; if it has none, that time is missed.
    fn credit_slot(&mut self, mark: Mark) {
        let Mark {
            slot,
            time,
            weight,
            cpu,
            state,
        } = mark;
        if !self.tables.credit_slot(slot, weight, cpu, state, time) {
            self.shared.counters.missed.add(weight);
        }
    }

    /// A thread's whole intervals since its last record. By the wall clock they are the stack's on which
    /// it stands off the GVL, or the last one's of a thread that runs; by the CPU clock a thread that
    /// runs keeps its fraction.
    fn credit_rest(
        &mut self,
        writer: &mut Writer,
        mode: Mode,
        token: Token,
        thread: Standing,
        stopped_ns: u64,
    ) {
        let interval = writer.plan.interval_ns;
        let cpu_now = || {
            let clock = clock::Clock::cpu_of(thread.tid).read();
            clock.unwrap_or_default()
        };
        let failure = self.shared.failure.get();
        let mut parts = [(0, State::Running); 2];
        let mut cpu = 0;
        match (mode, thread.paused) {
            // Nobody has looked for a while, or what was last seen is not known.
            (Mode::Wall | Mode::CpuAndWall, _)
                if failure.is_some_and(Failure::blinds) || failure == Some(Failure::Bug) =>
            {
                let rest = stopped_ns.saturating_sub(thread.credited) / interval;
                self.shared.counters.missed.add(rest);
                return;
            }
            (Mode::Cpu, _) if failure == Some(Failure::Bug) => return,
            (Mode::Cpu, Some(_)) => {
                let rest = cpu_now().saturating_sub(thread.credited) / interval;
                parts[0] = (rest, State::Blocked);
            }
            (Mode::Cpu, None) => return,
            (_, Some(ready)) => {
                let blocked = ready.min(stopped_ns).saturating_sub(thread.credited) / interval;
                let whole = stopped_ns.saturating_sub(thread.credited) / interval;
                parts = [(blocked, State::Blocked), (whole - blocked, State::Waiting)];
            }
            (_, None) => {
                let rest = stopped_ns.saturating_sub(thread.credited) / interval;
                if writer.plan.pauses {
                    parts[0] = (rest, State::Running);
                } else {
                    // Without events a thread that does not call stop itself is off the GVL.
                    // SAFETY: gettid has no preconditions.
                    let stops = unsafe { libc::gettid() } == thread.tid;
                    let until = if stops {
                        thread.asleep_until
                    } else {
                        stopped_ns
                    };
                    let blocked = until.saturating_sub(thread.credited) / interval;
                    parts = [
                        (blocked, State::Blocked),
                        (rest - blocked.min(rest), State::Running),
                    ];
                }
            }
        }
        if writer.plan.both_clocks && thread.paused.is_some() {
            cpu = cpu_now().saturating_sub(thread.credited_cpu) / interval;
        }
        let mut walked = false;
        for (mut left, state) in parts {
            while left > 0 {
                let mark = Mark {
                    slot: token.slot,
                    time: stopped_ns,
                    weight: left.min(MAX_WEIGHT),
                    cpu,
                    state,
                };
                let outcome = if walked {
                    writer.again(mark)
                } else {
                    self.walk_paused(writer, thread, mark)
                };
                if outcome.settles_time() {
                    walked = true;
                } else {
                    self.credit_slot(mark);
                }
                cpu = 0;
                left -= mark.weight;
            }
        }
        if writer.used() >= writer.plan.high_water {
            self.drain_all();
        }
    }

    /// Walks the stack of a thread that is off the GVL, which this thread holds.
    fn walk_paused(&self, writer: &mut Writer, thread: Standing, mark: Mark) -> Outcome {
        let Capture::Direct(layout) = writer.plan.capture else {
            return Outcome::NoFrames;
        };
        if thread.paused.is_none() {
            return Outcome::NoFrames;
        }
        // SAFETY: (I6) the thread cannot move without the GVL, which we hold; it is on the roster, so GC
        // marks its Thread.
        unsafe {
            if preflight::check(layout, thread.vm_thread).is_err() {
                return Outcome::Torn;
            }
            writer.walk_other(&self.shared.hooks, thread.thread, mark)
        }
    }

    /// Ends the profile if something has happened that it cannot go on with, and says so on the
    /// standard error stream. What was recorded stays readable.
    pub fn notice_failure(&mut self) {
        if self.shared.failure.get().is_some() && self.stop() {
            self.shared.failure.tell();
        }
    }

    /// A panic of ours has been caught: the next call ends the profile, if one is being taken.
    pub fn note_panic(&self) {
        if self.is_running() {
            self.shared.failure.set(Failure::Bug);
        }
    }

    /// Why the profile ended before its stop, if it did and nobody has asked yet.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.shared.failure.tell();
        self.shared
            .failure
            .get()
            .filter(|_| std::mem::take(&mut self.untold))
    }

    /// Leaves the records in the ring unread: whoever read them last did not come to an end.
    fn give_up_ring(&mut self) {
        let missed = &self.shared.counters.missed;
        if let Some(consumer) = &self.consumer {
            consumer.peek(record_words, |record| {
                missed.add(Header(record.get(0)).intervals());
            });
        }
    }

    /// One sample of the calling thread now. False if no profile is being taken.
    pub fn sample(&mut self) -> bool {
        if self.running.is_none() {
            return false;
        }
        self.make_room();
        self.notice_failure();
        self.shared.sample_now(NO_SLOT);
        self.is_running()
    }

    /// The safepoint that a tick waits for, on the Thread `thread`.
    pub fn safepoint(&mut self, thread: u64) {
        if self.running.is_some() {
            self.shared.safepoint(thread);
            // No handler finds the ring above its mark here, for none writes into it.
            let half_full = |ring: &Consumer| ring.used() >= ring.capacity() / 2;
            if self.consumer.as_ref().is_some_and(half_full) {
                self.shared.note_drain_wanted(clock::monotonic());
                self.drain_slice();
            }
        }
    }

    /// One bounded slice of draining, as a postponed job runs it.
    pub fn drain_slice(&mut self) {
        #[cfg(feature = "testing")]
        if self.shared.testing.hold_drains() {
            return;
        }
        let nearly_full = self
            .consumer
            .as_ref()
            .is_some_and(|consumer| consumer.used() >= consumer.capacity() / 4 * 3);
        let scarce = nearly_full && !self.shared.hooks.request_from_anywhere;
        self.drain(Some(if scarce { LONG_SLICE_NS } else { SLICE_NS }));
        self.notice_failure();
    }

    /// Drains if the ring has no room for the deepest stack: samples of ours are never lost.
    fn make_room(&mut self) {
        let full = self
            .consumer
            .as_ref()
            .is_some_and(|consumer| consumer.capacity() - consumer.used() < 2 * MAX_RECORD_WORDS);
        if full {
            self.drain_all();
        }
    }

    fn drain_all(&mut self) {
        self.drain(None);
    }

    fn drain(&mut self, slice_ns: Option<u64>) {
        let Some(consumer) = &mut self.consumer else {
            return;
        };
        let began = clock::monotonic();
        self.retiring.extend(self.shared.take_retired());
        let tables = &mut self.tables;
        let missed = &self.shared.counters.missed;
        #[cfg(feature = "testing")]
        assert!(!self.shared.testing.take_panic(), "planted");
        let mut corrupt = 0;
        let mut cut = false;
        let mut no_memory = 0;
        let mut records = 0_usize;
        let drained = consumer.read(record_words, |record| {
            // I4: into the tables first; the ring moves its head when this returns.
            if let Err(error) = tables.insert(record.words()) {
                if error == Corrupt::NoMemory {
                    no_memory += 1;
                } else {
                    corrupt += 1;
                }
                missed.add(Header(record.get(0)).intervals());
            }
            records += 1;
            let look = records.is_multiple_of(RECORDS_PER_LOOK);
            match slice_ns {
                Some(limit) if look && clock::monotonic() - began >= limit => {
                    cut = true;
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        });
        if drained.corrupt {
            corrupt += 1;
            tables.forget_last();
        }
        // Everything that was there when the drain began is in the tables.
        if !cut {
            for slot in self.retiring.drain(..) {
                self.shared.free(slot);
            }
            self.roster
                .forget_unseen(|serial| tables.knows_thread(serial));
        }
        let spent = clock::monotonic() - began;
        self.shared.counters.drain_ns.add(spent);
        self.shared.drain_times.count(spent);
        self.drains.count += 1;
        self.drains.records += records as u64;
        self.drains.corrupt += corrupt;
        self.drains.no_memory += no_memory;
        if no_memory > 0 {
            self.shared.failure.set(Failure::Memory);
        }
        self.drains.ns += spent;
        self.drains.max_ns = self.drains.max_ns.max(spent);
        // Only now: a request that came sooner would be for room that is being made.
        self.shared.drain_done();
    }

    /// The finished profile: `None` while running, before any start, and once it was read
    /// ([`Session::profile_read`]). Its frames stay marked.
    pub fn profile(&mut self) -> Option<&Profile> {
        self.finish().ok()?;
        self.finished.as_deref().map(Finished::profile)
    }

    /// Turns the tables into the finished profile, if there is one to give and it is not done.
    fn finish(&mut self) -> Result<(), NoMemory> {
        if self.has_profile() && self.finished.is_none() {
            // First, for it changes nothing: the tables are asked once.
            let mut people = Vec::new();
            people
                .try_reserve(self.roster.len() + 1)
                .map_err(|_| NoMemory)?;
            let mut profile = Vec::new();
            profile.try_reserve_exact(1).map_err(|_| NoMemory)?;
            profile.push(self.tables.try_finish(self.config.interval_ns())?);
            let serials = profile[0].threads.iter().map(|thread| thread.serial);
            people.extend(serials.map(|serial| self.roster.of(serial)));
            self.finished = Some(Arc::new(Finished { profile, people }));
            self.tables = Tables::new(Options::default());
        }
        Ok(())
    }

    /// Lends the finished profile out, if there is one: nobody else can read it, and a new one may
    /// begin, while its frames stay marked until [`Session::take_back`].
    ///
    /// # Errors
    /// [`NoMemory`] when there is none to finish it with; it waits to be asked for again.
    pub fn lend(&mut self) -> Result<Option<Arc<Finished>>, NoMemory> {
        self.finish()?;
        if !self.has_profile() {
            return Ok(None);
        }
        Ok(self.finished.take().inspect(|profile| {
            self.unread = false;
            self.roster.clear();
            self.lent.push(Arc::clone(profile));
        }))
    }

    /// Takes a lent profile back. One that was not read waits to be read again, unless a newer one
    /// was begun. True if it does.
    pub fn take_back(&mut self, profile: &Arc<Finished>, was_read: bool) -> bool {
        self.lent.retain(|lent| !Arc::ptr_eq(lent, profile));
        if was_read || self.unread || self.running.is_some() {
            return false;
        }
        self.finished = Some(Arc::clone(profile));
        self.unread = true;
        true
    }

    /// The finished profile was turned into a result; it is given up.
    pub fn profile_read(&mut self) {
        self.unread = false;
        self.finished = None;
        self.roster.clear();
    }

    /// Whether [`Session::profile`] has something to give.
    #[must_use]
    pub fn has_profile(&self) -> bool {
        self.running.is_none() && self.unread
    }

    /// Whether an allocation of this running profile is to be sampled (object mode).
    #[must_use]
    pub fn samples_objects(&self) -> Option<u64> {
        let running = self.running.as_ref()?;
        (running.config.mode == Mode::Object).then_some(running.config.interval)
    }

    /// Holds ticks back and waits until those that were sent have been taken: the process is about to
    /// become another program, and must not take a pending signal along (I12).
    pub fn hold_ticks(&mut self) {
        if self.running.is_some() {
            fork::hold(true);
            self.shared.let_ticks_arrive(SETTLE_NS);
        }
    }

    /// Lets ticks go on: the process stays what it was.
    pub fn release_ticks(&mut self) {
        if self.running.is_some() {
            fork::hold(false);
        }
    }

    /// A thread was born. Sampled in CPU mode.
    pub fn thread_born(&mut self, thread: ThreadIdentity) {
        let Some(running) = &self.running else { return };
        if running.ticking.is_none() {
            return;
        }
        // The native thread may have been another Ruby thread's before.
        if let Some(old) = self.shared.find(thread.tid) {
            self.shared.dismiss(old);
        }
        if running.config.threads != Threads::All {
            return;
        }
        let by_cpu = running.config.mode == Mode::Cpu;
        // The room of those who are gone is this one's, once their records are read.
        if self.shared.is_full() {
            self.drain_all();
        }
        let now = clock::monotonic();
        let Some(token) = self.shared.admit(thread, by_cpu, now) else {
            return;
        };
        self.enroll(thread, token, now);
        let ticking = self
            .running
            .as_ref()
            .and_then(|running| running.ticking.as_ref());
        if ticking
            .is_some_and(|ticking| ticking.source.thread_admitted(self.shared, token).is_err())
        {
            self.shared.dismiss(token);
            self.shared.counters.threads_skipped.add_one();
        }
    }

    /// A thread that cannot be sampled was born (another ractor's, or one without a native thread of
    /// its own).
    pub fn thread_skipped(&mut self) {
        if self.running.is_some() {
            self.shared.counters.threads_skipped.add_one();
        }
    }

    /// A thread ends its Ruby life; `name` is what it was called.
    pub fn thread_died(&mut self, thread: ThreadIdentity, name: Option<String>) {
        if let Some(token) = self.shared.find(thread.tid) {
            if !self.pauses {
                self.shared.credit_last_sleep(token);
            }
            self.shared.dismiss(token);
        }
        self.roster.leave(thread.thread, name, clock::monotonic());
    }

    /// Calls `visit` with every VALUE that must stay alive and in place: frames in the tables, in the
    /// ring, and in a profile being turned into a result; Threads being sampled (I7). Reads only.
    pub fn each_marked(&self, mut visit: impl FnMut(u64)) {
        self.shared.gc_marks();
        self.tables.each_frame(&mut visit);
        for finished in self.finished.iter().chain(&self.lent) {
            finished.profile().each_frame(&mut visit);
            for person in finished.people.iter().filter(|person| person.thread != 0) {
                visit(person.thread);
            }
        }
        self.roster.each_thread(&mut visit);
        if let Some(consumer) = &self.consumer {
            consumer.peek(record_words, |record| {
                let header = Header(record.get(0));
                // What a Delta has of the stack before it is in the ring before it, or in the tables.
                if header.has_frames() {
                    for frame in Frames::new(record.words().skip(header.words_before_frames())) {
                        visit(frame.frame);
                    }
                }
            });
        }
        self.shared.each_thread(&mut visit);
    }

    /// What the profiler knows of itself.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let running = self.running.is_some();
        Stats {
            running,
            counts: self.shared.counters.read(),
            drains: self.drains,
            ring_words: self.ring_words,
            table_bytes: self.tables.bytes(),
            nodes: self.tables.nodes(),
            folded: self.tables.folded(),
            threads: self.shared.thread_count(),
            samples: self.tables.samples(),
            capture: self.capture,
            tick: self.tick,
            signal: self.signal.clone(),
            failure: self.shared.failure.get(),
            elapsed_ns: if running {
                self.elapsed_ns + clock::monotonic() - self.started_ns
            } else {
                self.elapsed_ns
            },
            started_ns: self.started_ns,
            handler_times: self.shared.handler_times.read(),
            drain_times: self.shared.drain_times.read(),
            every_ns: self.shared.deadlines.every(),
            paces: self.shared.paces.read(),
            pauses: self.pauses,
            cost_ns: self.shared.counters.cost_ns(),
            people: self.roster.len(),
        }
    }

    /// Intervals that were credited to no stack.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.shared.counters.missed.get()
    }

    /// A forked child drops what it has of the parent's profile (I12). True if it did.
    pub fn clean_up_after_fork(&mut self) -> bool {
        if !fork::take_in_child() {
            return false;
        }
        if let Some(running) = self.running.take() {
            if let Some(ticking) = running.ticking {
                ticking.source.abandon();
                ticking.installed.restore();
            }
        }
        self.shared.dismiss_all();
        // Not dropped, for a thread that does not exist here may have been inside: it is leaked.
        std::mem::forget(self.shared.close());
        std::mem::forget(self.consumer.take());
        self.tables = Tables::new(Options::default());
        self.finished = None;
        self.lent.clear();
        self.roster.clear();
        self.free_retired();
        self.unread = false;
        self.untold = false;
        self.elapsed_ns = 0;
        self.drains = DrainStats::default();
        self.shared.counters.reset();
        self.shared.failure.clear();
        true
    }

    /// The VM is going down: nothing of it is touched from now on. Ticks end, data stay as they are.
    pub fn vm_went_down(&mut self) {
        self.shared.vm_went_down();
        self.stop();
    }

    /// What handlers and thread events reach.
    #[must_use]
    pub fn shared(&self) -> &'static Shared {
        self.shared
    }
}

/// Length of a record by its first word, as the ring asks for it.
fn record_words(header: u64) -> usize {
    Header(header).words()
}
