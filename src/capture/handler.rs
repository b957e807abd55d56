//! The signal handler, and the same steps taken at a safepoint.
//!
//! Functions called inside the signal, and why each may be: `clock_gettime` (POSIX's list),
//! `timer_settime` (POSIX's list), `gettid` (a bare system call), the hooks of [`VmHooks`] (no lock, no allocation, no longjmp once
//! they were called at load), atomics, and copies between buffers that exist since start.

use super::clock;
use super::control::{ControlBlock, Token};
use super::errno::ErrnoGuard;
use super::failure::Failure;
use super::gate::Entry;
use super::interrupted::in_system_call;
use super::plan::{Capture, Plan, Reading, WeightClock};
use super::preflight;
use super::tick::timer;
use super::vm_hooks::VmHooks;
use super::writer::{Mark, Outcome, Writer};
use super::Shared;
use crate::sample::{GcCause, GcPhase, State, MAX_WEIGHT};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Longest rest after a handler, in ns: one that took longer was itself off the CPU.
const LONGEST_REST_NS: u64 = 1_000_000;

/// The one thing that a handler can find by itself. Set once, never freed (I8).
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

/// Makes `shared` what the handler finds.
pub(super) fn publish(shared: &'static Shared) {
    // Release: publishes the contents; pairs with the Acquire in on_signal.
    SHARED.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Release);
}

/// The handler. Installed with `SA_SIGINFO`.
///
/// # Safety
/// Called by the kernel (or a test in its place) with a valid `info`.
#[cfg_attr(rtsan, sanitize(realtime = "nonblocking"))]
pub unsafe extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = ErrnoGuard::new();
    // Acquire: pairs with the Release in `publish`.
    let shared = SHARED.load(Ordering::Acquire);
    // SAFETY: (I8) null or leaked.
    let Some(shared) = (unsafe { shared.as_ref() }) else {
        return;
    };
    #[cfg(feature = "testing")]
    {
        shared.testing.allocate_if_planted();
        if shared.testing.empty_handler() {
            return;
        }
    }
    // SAFETY: the caller's promise; ours are sent by rt_tgsigqueueinfo or a POSIX timer.
    let token = unsafe {
        match (*info).si_code {
            libc::SI_QUEUE => Token::from_bits((*info).si_value().sival_ptr as u64),
            libc::SI_TIMER => {
                shared.counters.overrun.add(timer::overrun(info));
                Token::from_bits((*info).si_value().sival_ptr as u64)
            }
            // Nobody's: the kernel had no room in its queue (RLIMIT_SIGPENDING) and sent the bare number.
            libc::SI_USER if (*info).si_pid() == 0 => shared.find(libc::gettid()),
            _ => None,
        }
    };
    match token {
        Some(token) => shared.tick(token, context),
        None => shared.counters.foreign.add_one(),
    }
}

impl Shared {
    /// One tick on the calling thread. The order of the tests is that of what each later read relies on.
    #[inline]
    fn tick(&self, token: Token, context: *const c_void) {
        let counters = &self.counters;
        counters.received.add_one();
        if self.vm_is_down() {
            counters.vm_down.add_one();
            return;
        }
        let Some(block) = self.registry.block(token) else {
            counters.stale.add_one();
            return;
        };
        // Relaxed: tells the tick thread that it may send another one; carries no data.
        block.pending.store(false, Ordering::Relaxed);
        if !self.storage.is_there() {
            counters.loader.add_one();
            return;
        }
        let now = clock::monotonic();
        match self.gate.try_enter() {
            Entry::Closed => counters.closed.add_one(),
            Entry::Taken => counters.seat_taken.add_one(),
            Entry::Seat(seat) => {
                // The handshake with GC: sit down first, then ask whether it runs.
                seat.look_outside();
                // SAFETY: (I1) we hold the seat.
                let Some(writer) = (unsafe { self.writer() }) else {
                    counters.closed.add_one();
                    return;
                };
                // SAFETY: the hook reads thread-local storage of the VM, set up since its start.
                if unsafe { (self.hooks.is_ruby_thread)() } == 0 {
                    counters.not_ruby.add_one();
                    return;
                }
                // Relaxed, here and below: only this thread's handlers touch it.
                if now < block.rest_until.load(Ordering::Relaxed) {
                    counters.early.add_one();
                    return;
                }
                let outcome = self.take(writer, token, block, now, context);
                self.count(outcome);
                self.account(writer);
                let spent = clock::monotonic() - now;
                counters.handler_ns.add_alone(spent);
                counters.handler_max_ns.raise_to(spent);
                self.handler_times.count(spent);
                // A walk that takes longer than the interval would be followed by the next one at once;
                // the thread gets as much time as it has just lost.
                let rest = spent.min(LONGEST_REST_NS);
                block
                    .rest_until
                    .store(now + spent + rest, Ordering::Relaxed);
            }
        }
    }

    /// Decides what this tick is worth and records it.
    #[inline]
    fn take(
        &self,
        writer: &mut Writer,
        token: Token,
        block: &ControlBlock,
        now: u64,
        context: *const c_void,
    ) -> Outcome {
        let plan = writer.plan;
        let reading = match plan.reading {
            // Relaxed: written before the signal was sent, and sending orders it.
            Reading::BeforeTick => block.cpu_reading.load(Ordering::Relaxed),
            Reading::InHandler => clock::Clock::THREAD_CPU.read().unwrap_or_else(|| {
                self.failure.set(Failure::Clock(clock::refusal()));
                0
            }),
        };
        let ran = Self::ran_since_last(block, reading, now);
        // SAFETY: what the kernel passed to this handler, or null.
        let running = unsafe { in_system_call(context) }.map_or(ran, |inside| !inside);
        if plan.pauses && !block.pause.is_running() {
            if self.runs_after_all(block) {
                block.pause.end();
            } else {
                let outcome = self.credit_pause(writer, token, block, now, Some(reading));
                if outcome == Outcome::Paused && plan.reading == Reading::InHandler {
                    // Its timer would wake it at every interval.
                    timer::pace(block, plan.interval_ns, 0);
                }
                return outcome;
            }
        }
        let clock = match plan.clock {
            WeightClock::Wall => now,
            WeightClock::Cpu => reading,
        };
        // Relaxed, here and below: only handlers of this thread touch it while the gate is open.
        let credited = block.credited.load(Ordering::Relaxed);
        let weight = plan
            .weight_of(clock.saturating_sub(credited))
            .min(MAX_WEIGHT);
        if plan.reading == Reading::InHandler && (plan.clock == WeightClock::Cpu || plan.pauses) {
            timer::pace(block, plan.interval_ns, weight);
        }
        if weight == 0 {
            return Outcome::Early;
        }
        let mut mark = Mark {
            slot: token.slot,
            time: now,
            weight,
            cpu: 0,
            state: self.state(plan, running || ran),
        };
        if plan.both_clocks {
            let credited = block.credited_cpu.load(Ordering::Relaxed);
            mark.cpu = plan.weight_of(reading.saturating_sub(credited));
        }
        self.credit_sleep(writer, block, &mut mark);
        // SAFETY: reads one flag of the VM, which is up.
        let outcome = if unsafe { (self.hooks.during_gc)() } != 0 {
            // This thread's own GC? It must be running, and either have been for a while or be the
            // one that marked last: a sleeper that our own signals wake runs now and then, and a
            // thread in GC on a busy machine may have had little of the last interval. Where the VM
            // tells who is on the GVL, that decides.
            // Relaxed: see `gc_marks`.
            let marks = self.gc_thread.load(Ordering::Relaxed) == block.tid();
            let ours = running && (ran || marks || plan.pauses);
            if plan.ignore_gc || !self.surely_holds_gvl(ours) {
                return Outcome::InGc;
            }
            // SAFETY: reads one number of the VM, which is up.
            let collection = unsafe { (self.hooks.gc_count)() };
            writer.write_gc(self.gc_phase(), collection, mark)
        } else {
            match plan.capture {
                Capture::Postponed => return self.defer(token, block, ran && running),
                Capture::Direct(layout) => {
                    #[cfg(feature = "testing")]
                    let layout = (!plan.skip_preflight).then_some(layout);
                    #[cfg(not(feature = "testing"))]
                    let layout = Some(layout);
                    let found = match layout {
                        // SAFETY: (I6) the block's thread is this thread, and GC marks its Thread.
                        Some(layout) => match unsafe { writer.check(layout, block.vm_thread()) } {
                            Ok(found) => found,
                            Err(_) => return Outcome::Torn,
                        },
                        None => None,
                    };
                    // SAFETY: (I6) the pre-flight has passed and GC is not running.
                    let outcome = unsafe { writer.walk(&self.hooks, found, mark) };
                    let asleep = !running && !ran && outcome == Outcome::Recorded;
                    // Relaxed: a hint for the tick thread.
                    block
                        .asleep_since
                        .store(if asleep { now } else { 0 }, Ordering::Relaxed);
                    outcome
                }
            }
        };
        if outcome.settles_time() {
            // A full ring costs this time (it is missed), not the truth of the next stack (I9).
            block.credit(plan.interval_ns, mark.weight, mark.cpu);
        }
        if writer.used() >= plan.high_water {
            self.want_drain(block, ran && running, now);
        }
        outcome
    }

    /// Where the VM does not tell when threads give the GVL up: what the tick thread saw of this one's
    /// sleep goes to the stack that it slept on, and comes off this tick's weight.
    #[inline]
    fn credit_sleep(&self, writer: &mut Writer, block: &ControlBlock, mark: &mut Mark) {
        // Relaxed, both: written before the signal was sent, and sending orders it.
        let until = block.asleep_until.swap(0, Ordering::Relaxed);
        let credited = block.credited.load(Ordering::Relaxed);
        let slept = writer.plan.weight_of(until.saturating_sub(credited));
        let weight = slept.min(mark.weight.saturating_sub(1));
        if weight == 0 {
            return;
        }
        let rest = Mark {
            time: until,
            weight,
            cpu: 0,
            state: State::Blocked,
            ..*mark
        };
        if writer.rest(rest).settles_time() {
            block.credit(writer.plan.interval_ns, weight, 0);
            mark.weight -= weight;
        }
    }

    /// What the thread is doing. Where the VM tells who gave the GVL up, this one has not.
    #[inline]
    fn state(&self, plan: Plan, running: bool) -> State {
        // SAFETY: the VM is up and this is a thread of its.
        if plan.pauses || (running && unsafe { (self.hooks.may_hold_gvl)() } != 0) {
            State::Running
        } else {
            State::Blocked
        }
    }

    /// Whether the thread was on a CPU for at least half of the time since its last tick.
    #[inline]
    fn ran_since_last(block: &ControlBlock, reading: u64, now: u64) -> bool {
        // Relaxed, all: only this thread's handlers touch the two.
        let cpu = reading.saturating_sub(block.cpu_seen.load(Ordering::Relaxed));
        let elapsed = now.saturating_sub(block.time_seen.load(Ordering::Relaxed));
        block.cpu_seen.store(reading, Ordering::Relaxed);
        block.time_seen.store(now, Ordering::Relaxed);
        cpu * 2 >= elapsed
    }

    /// Whether this thread holds the GVL. The VM tells only who does not; but a thread that runs
    /// outside of the regions without the GVL does hold it.
    #[inline]
    fn surely_holds_gvl(&self, running: bool) -> bool {
        // SAFETY: the VM is up and this is a thread of its.
        running && unsafe { (self.hooks.may_hold_gvl)() } != 0
    }

    /// The phase of the GC that is running.
    #[inline]
    fn gc_phase(&self) -> GcPhase {
        // SAFETY: the hook was called at load, so its symbols exist and it allocates no more.
        match unsafe { (self.hooks.gc_phase)() } {
            1 => GcPhase::Marking,
            2 => GcPhase::Sweeping,
            _ => GcPhase::None,
        }
    }

    /// Whether a request to the VM may be made from here.
    #[inline]
    fn may_request(&self, block: &ControlBlock, ran: bool) -> bool {
        self.hooks.request_from_anywhere || (self.surely_holds_gvl(ran) && !self.runs_jobs(block))
    }

    /// Whether this thread is running postponed jobs, as far as the VM's layout is known.
    #[inline]
    fn runs_jobs(&self, block: &ControlBlock) -> bool {
        // Relaxed: written while the gate is closed.
        let offset = self.thread_ec.load(Ordering::Relaxed);
        // SAFETY: (I6) the block's thread is this thread, and GC marks its Thread.
        offset != 0 && unsafe { preflight::runs_jobs(offset, block.vm_thread()) }
    }

    /// Asks for a sample at the next safepoint.
    #[inline]
    fn defer(&self, token: Token, block: &ControlBlock, ran: bool) -> Outcome {
        // Relaxed: set and cleared by whoever holds the seat; carries no data.
        let waiting = self.sample_wanted.load(Ordering::Relaxed) != 0;
        if !self.may_request(block, ran) {
            return Outcome::AwaitingSafepoint;
        }
        // When one is waiting already it is asked for again: the flag is on the execution context that
        // was current then, maybe not on this one.
        if !waiting {
            // Relaxed: as above.
            self.sample_wanted.store(token.to_bits(), Ordering::Relaxed);
        }
        // SAFETY: `may_request` is the hook's condition.
        unsafe { (self.hooks.request_sample)() };
        if waiting {
            Outcome::AwaitingSafepoint
        } else {
            Outcome::Deferred
        }
    }

    /// Asks for a drain, unless one was asked for a moment ago.
    #[inline]
    pub(super) fn want_drain(&self, block: &ControlBlock, ran: bool, now: u64) {
        if self.drain_is_pending(now) || !self.may_request(block, ran) {
            return;
        }
        self.note_drain_wanted(now);
        // SAFETY: `may_request` is the hook's condition.
        unsafe { (self.hooks.request_drain)() };
    }

    /// One more in the counter of that outcome.
    #[inline]
    fn count(&self, outcome: Outcome) {
        let counters = &self.counters;
        match outcome {
            Outcome::Recorded => &counters.recorded,
            Outcome::Folded => &counters.folded,
            Outcome::Early => &counters.early,
            Outcome::InGc => &counters.in_gc,
            Outcome::Paused => &counters.paused,
            // Counted by the safepoint that takes the sample.
            Outcome::Deferred => return,
            Outcome::AwaitingSafepoint => &counters.awaiting_safepoint,
            Outcome::NoFrames => &counters.no_frames,
            Outcome::RingFull => &counters.ring_full,
            Outcome::Torn => &counters.torn,
            Outcome::Invalid => &counters.invalid,
        }
        .add_alone(1);
    }

    /// Carries the writer's figures over to the counters.
    #[inline]
    pub(super) fn account(&self, writer: &mut Writer) {
        self.counters.written.add_alone(writer.take_written());
        let missed = writer.take_missed();
        if missed != 0 {
            self.counters.missed.add(missed);
        }
        self.counters
            .high_water_words
            .raise_to(writer.used() as u64);
        #[cfg(feature = "testing")]
        self.testing.add_walks(writer.take_walks());
    }

    /// The safepoint that a tick waited for: walks the stack of `thread`, the current Thread.
    /// Called under the GVL, outside of any handler.
    pub(crate) fn safepoint(&self, thread: u64) {
        // Relaxed: see `defer`.
        let bits = self.sample_wanted.swap(0, Ordering::Relaxed);
        let Some(token) = Token::from_bits(bits) else {
            return;
        };
        let counters = &self.counters;
        let Some(block) = self.registry.block(token) else {
            counters.stale.add_one();
            return;
        };
        if block.thread() != thread {
            counters.wrong_thread.add_one();
            return;
        }
        let Some(_seat) = self.sit_down() else {
            counters.closed.add_one();
            return;
        };
        // SAFETY: (I1) we hold the seat.
        let Some(writer) = (unsafe { self.writer() }) else {
            counters.closed.add_one();
            return;
        };
        let now = clock::monotonic();
        let clock = match writer.plan.clock {
            WeightClock::Wall => now,
            WeightClock::Cpu => clock::thread_cpu(),
        };
        // Relaxed: only this thread touches it, and its handlers find the seat taken.
        let credited = block.credited.load(Ordering::Relaxed);
        let weight = writer
            .plan
            .weight_of(clock.saturating_sub(credited))
            .min(MAX_WEIGHT);
        let cpu = if writer.plan.both_clocks {
            let credited = block.credited_cpu.load(Ordering::Relaxed);
            let elapsed = clock::thread_cpu().saturating_sub(credited);
            writer.plan.weight_of(elapsed)
        } else {
            0
        };
        let mark = Mark {
            slot: token.slot,
            time: now,
            weight,
            cpu,
            state: State::Running,
        };
        let outcome = if weight == 0 {
            Outcome::Early
        } else {
            // SAFETY: (I6) a safepoint: every stack is whole and GC is not running.
            unsafe { writer.walk(&self.hooks, None, mark) }
        };
        if outcome.settles_time() {
            block.credit(writer.plan.interval_ns, weight, cpu);
        }
        self.count(outcome);
        self.account(writer);
    }

    /// A sample of the calling thread's stack, of weight 1, now. Called under the GVL, outside of any
    /// handler. False if the gate is closed or there is nothing to record.
    pub(crate) fn sample_now(&self, slot: u16) -> bool {
        let Some(_seat) = self.sit_down() else {
            return false;
        };
        // SAFETY: (I1) we hold the seat.
        let Some(writer) = (unsafe { self.writer() }) else {
            return false;
        };
        // SAFETY: (I6) called by Ruby code or by an allocation: stacks are whole and GC is not running.
        let outcome = unsafe {
            writer.walk(
                &self.hooks,
                None,
                Mark {
                    slot,
                    time: clock::monotonic(),
                    weight: 1,
                    ..Mark::default()
                },
            )
        };
        self.account(writer);
        outcome == Outcome::Recorded
    }

    /// A thread ends, on itself, of which the last record found it asleep: its time since then was sleep. For
    /// a VM that does not tell when threads give the GVL up. Called under the GVL, outside of any handler.
    pub(crate) fn credit_last_sleep(&self, token: Token) {
        let Some(block) = self.registry.block(token) else {
            return;
        };
        // Relaxed, here and below: only this thread's handlers write it.
        if block.asleep_since.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(_seat) = self.sit_down() else {
            return;
        };
        // SAFETY: (I1) we hold the seat.
        let Some(writer) = (unsafe { self.writer() }) else {
            return;
        };
        if writer.plan.clock != WeightClock::Wall {
            return;
        }
        let now = clock::monotonic();
        let credited = block.credited.load(Ordering::Relaxed);
        let mut left = now.saturating_sub(credited) / writer.plan.interval_ns.max(1);
        while left > 0 {
            let weight = left.min(MAX_WEIGHT);
            let mark = Mark {
                slot: token.slot,
                time: now,
                weight,
                cpu: 0,
                state: State::Blocked,
            };
            if !writer.rest(mark).settles_time() {
                break;
            }
            block.credit(writer.plan.interval_ns, weight, 0);
            left -= weight;
        }
        self.account(writer);
    }

    /// GC marks on this thread: the stack from which it was started is recorded, if the thread is one of
    /// ours. Marking moves nothing, and the frames are pinned by this very marking, which looks into the
    /// ring after this.
    pub(super) fn record_gc_cause(&self, tid: i32) {
        // SAFETY: reads one flag of the VM, which is up: it runs this.
        if unsafe { (self.hooks.during_gc)() } == 0 {
            // Not a GC, but somebody who looks at what objects refer to.
            return;
        }
        let Some(token) = self.registry.find(tid) else {
            return;
        };
        let (Some(block), Entry::Seat(_seat)) = (self.registry.block(token), self.gate.try_enter())
        else {
            return;
        };
        // SAFETY: (I1) we hold the seat.
        let Some(writer) = (unsafe { self.writer() }) else {
            return;
        };
        let now = clock::monotonic();
        if writer.used() >= writer.plan.high_water {
            // Where only who holds the GVL may ask, no tick ever finds such a thread among threads that sleep and
            // run a little. This one has it.
            self.want_drain(block, true, now);
        }
        if let Capture::Direct(layout) = writer.plan.capture {
            // SAFETY: (I6) the block's thread is this thread, and GC marks its Thread.
            if unsafe { preflight::check(layout, block.vm_thread()) }.is_err() {
                return;
            }
        }
        let mark = Mark {
            slot: token.slot,
            time: now,
            ..Mark::default()
        };
        // SAFETY: (I6) the pre-flight has passed; GC marks, and what it moves it moves later. The two
        // hooks are for this place.
        unsafe {
            let cause = GcCause::from_number((self.hooks.gc_cause)());
            writer.walk_cause(&self.hooks, (self.hooks.gc_count)(), cause, mark);
        }
        self.account(writer);
    }

    /// Takes the seat, waiting for a handler on another thread to leave it. Never in a handler.
    fn sit_down(&self) -> Option<super::gate::Seat<'_>> {
        loop {
            match self.gate.try_enter() {
                Entry::Seat(seat) => return Some(seat),
                Entry::Closed => return None,
                Entry::Taken => std::hint::spin_loop(),
            }
        }
    }
}

/// Calls every hook once outside of a signal, so that whatever they set up on first use exists.
///
/// # Safety
/// Under the GVL on a Ruby thread.
pub unsafe fn warm_up(hooks: &VmHooks) {
    // SAFETY: the caller's promise.
    unsafe {
        (hooks.during_gc)();
        (hooks.gc_phase)();
        (hooks.gc_count)();
        (hooks.gc_cause)();
        (hooks.is_ruby_thread)();
        (hooks.may_hold_gvl)();
    }
}
