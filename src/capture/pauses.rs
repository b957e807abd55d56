//! Threads off the GVL. A thread that has given the GVL up cannot change its stack, so nobody signals
//! it: its time is credited when it comes back, from the event that says so, on the thread itself.
//!
//! What it is credited with is what the ticks that fell meanwhile would have found: those before it
//! waited for the GVL found it blocked, those after, waiting. So a short pause counts as often as a
//! tick falls into it, and a long one to the tick.
//!
//! The events come in thread context, `RESUMED` with a lock of the VM held: no Ruby, no lock of ours.

use super::clock;
use super::control::{ControlBlock, Token};
use super::errno::ErrnoGuard;
use super::gate::Entry;
use super::plan::{Capture, WeightClock};
use super::preflight;
use super::tick::timer;
use super::writer::{Mark, Outcome, Writer};
use super::Shared;
use crate::sample::{State, MAX_WEIGHT};
use std::sync::atomic::Ordering;

/// How long (ns) a thread that comes back waits for a handler on another thread to leave the seat. A
/// lock of the VM is held meanwhile.
const SEAT_PATIENCE_NS: u64 = 50_000;

impl Shared {
    /// The thread gives the GVL up. On the thread itself.
    #[inline]
    pub fn suspended(&self, token: Token) {
        let Some(block) = self.registry.block(token) else {
            return;
        };
        let frame = self.frame_of(block);
        // Told twice, the first time counts; unless the thread has run in between.
        if block.pause.is_running() || block.pause.frame() != frame {
            block.pause.begin(clock::monotonic(), frame);
        }
    }

    /// The thread has what it waited for and wants the GVL. On any thread.
    #[inline]
    pub fn waits(&self, token: Token) {
        let Some(block) = self.registry.block(token) else {
            return;
        };
        let now = clock::monotonic();
        if block.pause.is_running() {
            // Ruby 3.2 does not tell of the suspension at the end of a time slice.
            block.pause.begin(now, self.frame_of(block));
        }
        block.pause.waits(now);
    }

    /// The thread has the GVL again. On the thread itself.
    #[inline]
    pub fn resumed(&self, token: Token) {
        // The system call that the thread comes back from may have left its errno.
        let _errno = ErrnoGuard::new();
        let Some(block) = self.registry.block(token) else {
            return;
        };
        let paused = !block.pause.is_running();
        if paused {
            self.credit_before_resuming(token, block);
            block.pause.end();
            timer::quicken(block, self.deadlines.every());
        }
        // Relaxed: counts for the tick thread; two at a time do not happen, for each holds the GVL.
        let resumes = self.resumes.load(Ordering::Relaxed);
        self.resumes
            .store(resumes.wrapping_add(1), Ordering::Relaxed);
        self.ring_bell();
    }

    fn credit_before_resuming(&self, token: Token, block: &ControlBlock) {
        let now = clock::monotonic();
        if !self.gate.is_open() || self.deadlines.last_before(now) <= block.pause.since() {
            return;
        }
        loop {
            match self.gate.try_enter() {
                Entry::Closed => return,
                Entry::Taken if clock::monotonic() - now < SEAT_PATIENCE_NS => {
                    std::hint::spin_loop();
                }
                Entry::Taken => {
                    self.counters.pauses_lost.add_one();
                    return;
                }
                Entry::Seat(seat) => {
                    seat.look_outside();
                    // SAFETY: (I1) we hold the seat.
                    let Some(writer) = (unsafe { self.writer() }) else {
                        return;
                    };
                    let outcome = self.credit_pause(writer, token, block, now, None);
                    self.account(writer);
                    if outcome.settles_time() {
                        self.counters.pauses.add_alone(1);
                    }
                    // Threads that sleep and run a little fill the ring without a tick. Before the VM has made
                    // this thread the current one, not every VM can be asked.
                    if self.hooks.request_from_anywhere && writer.used() >= writer.plan.high_water {
                        self.want_drain(block, true, now);
                    }
                    let spent = clock::monotonic() - now;
                    self.counters.pauses_ns.add_alone(spent);
                    return;
                }
            }
        }
    }

    /// Credits a thread with the ticks that fell since it gave the GVL up; `reading` is its CPU clock,
    /// if somebody has read it. On the thread itself, in an event or in its handler, with the seat.
    pub(super) fn credit_pause(
        &self,
        writer: &mut Writer,
        token: Token,
        block: &ControlBlock,
        now: u64,
        reading: Option<u64>,
    ) -> Outcome {
        let since = block.pause.since();
        let until = self.deadlines.last_before(now);
        if until <= since {
            return Outcome::Paused;
        }
        let plan = writer.plan;
        // Another thread's GC: this one is not on the GVL. Its pause goes on, so nothing is lost.
        // SAFETY: reads one flag of the VM, which is up.
        if unsafe { (self.hooks.during_gc)() } != 0 {
            return Outcome::InGc;
        }
        let found = match plan.capture {
            // SAFETY: (I6) the block's thread is this thread, and GC marks its Thread.
            Capture::Direct(layout) => match unsafe { writer.check(layout, block.vm_thread()) } {
                Ok(found) => found,
                Err(_) => return Outcome::Torn,
            },
            Capture::Postponed => None,
        };
        let cpu_now = || reading.unwrap_or_else(clock::thread_cpu);
        let mut parts = [(0, State::Running); 3];
        // Relaxed, here and below: only this thread touches it while the gate is open.
        let mut credited = block.credited.load(Ordering::Relaxed);
        match plan.clock {
            WeightClock::Wall => {
                let ready = block.pause.ready().min(until);
                let ends = [
                    (self.deadlines.last_before(since), State::Running),
                    (self.deadlines.last_before(ready), State::Blocked),
                    (until, State::Waiting),
                ];
                for (part, (end, state)) in parts.iter_mut().zip(ends) {
                    let weight = plan.weight_of(end.saturating_sub(credited));
                    credited += weight * plan.interval_ns;
                    *part = (weight, state);
                }
            }
            WeightClock::Cpu => {
                let weight = plan.weight_of(cpu_now().saturating_sub(credited));
                parts[0] = (weight, State::Blocked);
            }
        }
        let mut cpu = if plan.both_clocks {
            // Relaxed: as above.
            let credited_cpu = block.credited_cpu.load(Ordering::Relaxed);
            plan.weight_of(cpu_now().saturating_sub(credited_cpu))
        } else {
            0
        };
        let mut outcome = Outcome::Paused;
        for (mut left, state) in parts {
            while left > 0 {
                let weight = left.min(MAX_WEIGHT);
                let mark = Mark {
                    slot: token.slot,
                    time: now - (left - weight) * plan.interval_ns,
                    weight,
                    cpu,
                    state,
                };
                outcome = if outcome == Outcome::Paused {
                    // SAFETY: (I6) the pre-flight has passed, or the thread is at a safepoint: it has
                    // given the GVL up; and GC is not running, or waits for the seat.
                    unsafe { writer.walk(&self.hooks, found, mark) }
                } else {
                    writer.again(mark)
                };
                if !outcome.settles_time() {
                    return outcome;
                }
                block.credit(plan.interval_ns, weight, cpu);
                cpu = 0;
                left -= weight;
            }
        }
        outcome
    }

    /// Whether the thread runs although the last event said that it gave the GVL up: the VM may tell of a
    /// suspension that it then does not carry out.
    #[inline]
    pub(super) fn runs_after_all(&self, block: &ControlBlock) -> bool {
        let frame = self.frame_of(block);
        frame != 0 && frame != block.pause.frame()
    }

    /// The thread's control frame pointer; 0 if the layout is unknown. On the thread itself, or under
    /// the GVL.
    #[inline]
    pub(super) fn frame_of(&self, block: &ControlBlock) -> usize {
        // Relaxed: written while the gate is closed.
        let offset = self.thread_ec.load(Ordering::Relaxed);
        if offset == 0 {
            return 0;
        }
        // SAFETY: (I6) the block's thread lives, and GC marks its Thread.
        unsafe { preflight::control_frame(offset, block.vm_thread()) }
    }
}
