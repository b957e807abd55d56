//! The tick thread: a native thread of our own, every signal blocked, that never runs Ruby.
//!
//! It sleeps until absolute deadlines, so that its own lateness never adds up, looks at the sampled
//! threads and signals those that are due. A thread whose last tick has not been taken yet (it is
//! off the CPU) gets no second one: its time goes to the next record.

use super::super::clock::{self, timespec, Clock};
use super::super::control::{ControlBlock, Token, MAX_THREADS};
use super::super::failure::Failure;
use super::super::Shared;
use super::budget::Budget;
use super::{explained, TickPlan};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// Looks in a row that found no CPU time used, after which a thread is looked at less often.
const IDLE_LOOKS: u32 = 16;
/// Longest time between two looks at an idle thread, in ns.
const IDLE_LOOK_NS: u64 = 1_000_000;
/// Longest time between two looks at one that sleeps in wall mode, in ns.
const SLEEPER_LOOK_NS: u64 = 10_000_000;
/// Time between two looks at the CPU clocks of threads that are off the GVL, in ns, and the longest sleep
/// of a parked tick thread.
const PROBE_NS: u64 = 50_000_000;
/// A thread off the GVL that used one part in so many of that time has work to show.
const PROBE_SHARE: u64 = 5;
/// CPU time (ns) that a sleeper uses when a signal wakes it and it goes back to sleep.
const TURN_OVER_NS: u64 = 60_000;
/// After this time (ns) it has done so.
const TURNED_OVER_NS: u64 = 500_000;
/// More than the standard library takes to make a thread, in bytes.
const MEMORY_OF_A_THREAD: usize = 64 << 10;
/// How long every tick may find the kernel's queue full before the profile is given up, in ns.
const PATIENCE_NS: u64 = 1_000_000_000;

/// A running tick thread.
#[derive(Debug)]
pub struct TickThread {
    handle: std::thread::JoinHandle<()>,
    stop: Arc<StopWord>,
}

/// A word that the thread sleeps on, so that stop need not wait for the next deadline.
#[derive(Debug, Default)]
struct StopWord(AtomicU32);

impl StopWord {
    /// Sleeps until `deadline_ns` (`CLOCK_MONOTONIC`) or until the word is set; true when it is.
    fn sleep_until(&self, deadline_ns: u64) -> bool {
        let deadline = timespec(deadline_ns);
        // SAFETY: FUTEX_WAIT_BITSET reads the word and the deadline, which outlive the call. It takes
        // an absolute time of CLOCK_MONOTONIC.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                0_u32,
                &raw const deadline,
                std::ptr::null::<u32>(),
                u32::MAX,
            );
        }
        // Acquire: pairs with the Release in `set`.
        self.0.load(Ordering::Acquire) != 0
    }

    fn is_set(&self) -> bool {
        // Acquire: pairs with the Release in `set`; after the bell was hung up its fence orders it.
        self.0.load(Ordering::Acquire) != 0
    }

    fn set(&self) {
        // Release: pairs with the Acquire in `sleep_until` and `is_set`; the fence of the bell, which is rung next, orders it
        // for who parks.
        self.0.store(1, Ordering::Release);
        // SAFETY: wakes whoever sleeps on our own word.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }
}

impl TickThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread or no memory to give, or lets no signal through.
    pub fn start(plan: TickPlan, shared: &'static Shared) -> io::Result<Self> {
        // SAFETY: getpid and gettid have no preconditions.
        let (pid, tid) = unsafe { (libc::getpid(), libc::gettid()) };
        // Signal 0 asks whether one would go through.
        send(pid, tid, 0, 0).map_err(|error| {
            explained(
                "the kernel refuses to signal a thread (try tick: :timer)",
                &error,
            )
        })?;
        let mut looks = Vec::new();
        // The standard library ends the process where it finds no memory; so there is some to spare.
        let spare = Vec::<u8>::new().try_reserve_exact(MEMORY_OF_A_THREAD);
        if spare.is_err() || looks.try_reserve_exact(MAX_THREADS).is_err() {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "no memory for the tick thread",
            ));
        }
        looks.resize(MAX_THREADS, Look::default());
        let stop = Arc::new(StopWord::default());
        let word = Arc::clone(&stop);
        // The thread inherits the mask: born with every signal blocked, it is never a target.
        let handle = with_signals_blocked(|| {
            std::thread::Builder::new()
                .name("ringprof-tick".into())
                .stack_size(128 << 10)
                .spawn(move || run(plan, shared, &word, looks))
        })
        .map_err(|error| {
            explained(
                "cannot make the tick thread (try tick: :timer, or see ulimit -u)",
                &error,
            )
        })?;
        Ok(Self { handle, stop })
    }

    /// Ends the thread and waits for it; no tick is sent after this returns.
    pub fn stop(self, shared: &Shared) {
        self.stop.set();
        shared.ring_bell();
        // A panic in there has been printed; there is nothing to add.
        let _ = self.handle.join();
    }

    /// After fork, in the child: the thread does not exist, so there is nothing to wait for.
    pub fn abandon(self) {
        std::mem::forget(self);
    }
}

fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: sets that we own; the mask is the calling thread's and is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let value = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        value
    }
}

/// What the thread remembers of each slot.
#[derive(Clone, Copy, Default)]
struct Look {
    generation: u32,
    /// Looks in a row that found no CPU time used.
    idle: u32,
    /// Time of the next look, in ns.
    next: u64,
    cpu: u64,
    /// The sleep that was seen last: its record's time in ns, and the CPU clock a tick later.
    asleep_since: u64,
    asleep_cpu: u64,
    /// The sleeper has turned over: its CPU clock stood still from one look to the next.
    settled: bool,
}

/// The thread's own state.
struct Ticker {
    plan: TickPlan,
    shared: &'static Shared,
    pid: i32,
    looks: Vec<Look>,
    refused: Refused,
    /// Time between two ticks in force, in ns.
    every: u64,
    /// Time of the next look at the CPU clocks of who is off the GVL, in ns.
    probe: u64,
}

fn run(plan: TickPlan, shared: &'static Shared, stop: &StopWord, looks: Vec<Look>) {
    // SAFETY: sets this thread's own timer slack to 1 ns: the default lets the kernel be 50 µs late.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
    shared.counters.realtime.set(u64::from(ask_for_priority()));
    let began = clock::monotonic();
    let mut ticker = Ticker {
        plan,
        shared,
        // SAFETY: getpid has no preconditions.
        pid: unsafe { libc::getpid() },
        looks,
        refused: Refused::default(),
        every: plan.every_ns,
        probe: began + PROBE_NS,
    };
    let mut budget = Budget::new(plan, began);
    let mut deadline = began + plan.every_ns;
    let mut resumes = 0;
    while !stop.sleep_until(deadline) {
        let now = clock::monotonic();
        if now < deadline {
            // Woken early, for no reason that concerns us.
            continue;
        }
        shared.deadlines.set(deadline, ticker.every);
        shared.counters.rounds.add_one();
        let awake = shared.round_begins() && ticker.round(now);
        if shared.failure.get().is_some() {
            ticker.give_up();
            break;
        }
        if let Some(every) = budget.look(now, &shared.counters) {
            ticker.every = every;
            shared.paces.note(now, every);
        }
        // A round over many threads can take longer than the interval; the thread then sleeps as long
        // as it has worked, for at real-time priority it would take a core to itself.
        let after = clock::monotonic();
        let (next, late) = next_deadline(deadline, ticker.every, after + (after - now));
        shared.counters.late.add(late);
        deadline = next;
        // Relaxed: a hint; a thread that resumes after this look is found by `park`.
        let seen = shared.resumes.load(Ordering::Relaxed);
        if plan.pauses && !awake && seen == resumes {
            shared.park(PROBE_NS, || stop.is_set());
            // What fell meanwhile is credited by who comes back.
            let (next, _) = next_deadline(deadline, ticker.every, clock::monotonic());
            deadline = next;
        }
        resumes = seen;
    }
    budget.account(&shared.counters);
}

impl Ticker {
    /// Ticks the threads that are due. Whether any runs, or may.
    fn round(&mut self, now: u64) -> bool {
        let Self { plan, shared, .. } = *self;
        let probing = now >= self.probe;
        if probing {
            self.probe = now + PROBE_NS;
        }
        let mut awake = !plan.pauses;
        for (token, block) in shared.registry.live() {
            let look = &mut self.looks[token.slot as usize];
            if look.generation != token.generation {
                *look = Look {
                    generation: token.generation,
                    ..Look::default()
                };
            }
            let looked = if !plan.pauses || block.pause.is_running() {
                awake = true;
                look_at(plan, shared, self.pid, look, token, block, now)
            } else if probing && has_worked(look, block) {
                tick(plan, shared, self.pid, token, block, look.cpu)
            } else {
                continue;
            };
            if let Some(failure) = self.refused.judge(looked, now) {
                shared.failure.set(failure);
            }
        }
        if shared.hooks.request_from_anywhere && shared.drain_is_overdue(now) {
            shared.note_drain_wanted(now);
            // SAFETY: the hook says that any thread may call it, while the VM lives; VM shutdown
            // stops this thread first.
            unsafe { (shared.hooks.request_drain)() };
        }
        shared.round_ends();
        awake
    }

    /// The profile cannot go on: says so, and has it ended by the job that drains; where that cannot be
    /// asked for from here, the next call ends it.
    fn give_up(&self) {
        let shared = self.shared;
        shared.failure.tell();
        if shared.hooks.request_from_anywhere && shared.round_begins() {
            // SAFETY: as in `round`.
            unsafe { (shared.hooks.request_drain)() };
            shared.round_ends();
        }
    }
}

/// Whether a thread that is off the GVL, or said to be, has used the CPU since the last look.
fn has_worked(look: &mut Look, block: &ControlBlock) -> bool {
    let Some(cpu) = Clock::cpu_of(block.tid()).read() else {
        return false;
    };
    let used = cpu.saturating_sub(look.cpu);
    let first = look.cpu == 0;
    look.cpu = cpu;
    !first && used >= PROBE_NS / PROBE_SHARE
}

/// The first deadline after `deadline`, in steps of `every` ns, that is not before `earliest`; and the
/// number of those left out: their ticks are gone, their time is not.
fn next_deadline(deadline: u64, every: u64, earliest: u64) -> (u64, u64) {
    let next = deadline + every;
    let late = earliest.saturating_sub(next).div_ceil(every);
    (next + late * every, late)
}

/// Asks for the lowest real-time priority, where the process may have it. On a busy machine a tick
/// thread of normal priority gets its turn when the sampled thread lets go, and then samples just
/// those places: with every core taken twice, errors of 3 to 8 points in a profile fall below half
/// a point. The thread runs for some µs a tick.
fn ask_for_priority() -> bool {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: a whole parameter; 0 is the calling thread.
    unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const lowest,
        ) == 0
    }
}

/// Since when, in ns, every tick has been refused.
#[derive(Default)]
struct Refused {
    since: Option<u64>,
}

impl Refused {
    /// A queue that is full may empty itself again; what else is refused will go on being refused.
    fn judge(&mut self, looked: Result<bool, Failure>, now: u64) -> Option<Failure> {
        match looked {
            Ok(false) => None,
            Ok(true) => {
                self.since = None;
                None
            }
            Err(Failure::Ticks(libc::EAGAIN)) => {
                let since = *self.since.get_or_insert(now);
                (now - since >= PATIENCE_NS).then_some(Failure::Ticks(libc::EAGAIN))
            }
            Err(failure) => Some(failure),
        }
    }
}

/// Ticks one thread if it is due; true if it was.
fn look_at(
    plan: TickPlan,
    shared: &Shared,
    pid: i32,
    look: &mut Look,
    token: Token,
    block: &ControlBlock,
    now: u64,
) -> Result<bool, Failure> {
    if now < look.next {
        return Ok(false);
    }
    let Some(cpu) = Clock::cpu_of(block.tid()).read() else {
        let refusal = clock::refusal();
        if !matches!(refusal, libc::EINVAL | libc::ESRCH) {
            return Err(Failure::Clock(refusal));
        }
        // The thread is gone without a word.
        shared.registry.retire(token);
        return Ok(false);
    };
    if plan.by_cpu || plan.leave_sleepers {
        let idle = if plan.by_cpu {
            cpu == look.cpu
        } else {
            is_asleep(look, block, cpu, now)
        };
        look.cpu = cpu;
        if idle {
            look.idle = look.idle.saturating_add(1);
            if look.idle > IDLE_LOOKS {
                let stretch = u64::from(look.idle - IDLE_LOOKS);
                let longest = if plan.by_cpu {
                    IDLE_LOOK_NS
                } else {
                    SLEEPER_LOOK_NS
                };
                look.next = now + (plan.every_ns * stretch).min(longest.max(plan.every_ns));
                // Half a tick early, so that the deadline itself is not skipped.
                look.next -= plan.every_ns / 2;
            }
        } else {
            look.idle = 0;
        }
        if idle && plan.leave_sleepers {
            // Relaxed: sending the next signal orders it.
            block.asleep_until.store(now, Ordering::Relaxed);
            return Ok(false);
        }
    }
    if plan.by_cpu {
        // Relaxed: the handler's own word on what is credited; a stale one costs one look.
        let credited = block.credited.load(Ordering::Relaxed);
        if cpu.saturating_sub(credited) < plan.every_ns / 2 {
            return Ok(false);
        }
    }
    look.cpu = cpu;
    tick(plan, shared, pid, token, block, cpu)
}

/// Whether the thread still sleeps where its last record found it. The CPU clock of a thread that sleeps stands still; but
/// the tick that found it so woke it, and until it has turned over its clock moves a little.
fn is_asleep(look: &mut Look, block: &ControlBlock, cpu: u64, now: u64) -> bool {
    // Relaxed: a hint from the handler.
    let since = block.asleep_since.load(Ordering::Relaxed);
    if since == 0 {
        return false;
    }
    let still = cpu == look.cpu;
    if look.settled && look.asleep_since == since {
        return still;
    }
    if look.asleep_since != since {
        // The last look was the one that sent the tick.
        look.asleep_since = since;
        look.asleep_cpu = look.cpu;
        // One that takes longer to turn over is not woken for that again and again.
        if std::mem::take(&mut look.settled) && cpu.saturating_sub(look.asleep_cpu) >= TURN_OVER_NS
        {
            return false;
        }
    }
    look.settled = still || now.saturating_sub(since) >= TURNED_OVER_NS;
    cpu.saturating_sub(look.asleep_cpu) < TURN_OVER_NS || look.settled
}

/// Sends a thread its tick, unless it has not taken the last one; true if it was sent.
fn tick(
    plan: TickPlan,
    shared: &Shared,
    pid: i32,
    token: Token,
    block: &ControlBlock,
    cpu: u64,
) -> Result<bool, Failure> {
    // Relaxed: see the handler; a stale true costs one tick.
    let pending = block.pending.load(Ordering::Relaxed);
    #[cfg(feature = "testing")]
    let pending = pending && !shared.testing.empty_handler();
    if pending {
        return Ok(false);
    }
    // Relaxed, both: the signal that follows orders them before the handler.
    block.cpu_reading.store(cpu, Ordering::Relaxed);
    block.pending.store(true, Ordering::Relaxed);
    let Err(error) = send(pid, block.tid(), plan.signal, token.to_bits()) else {
        shared.counters.sent.add_one();
        return Ok(true);
    };
    block.pending.store(false, Ordering::Relaxed);
    match error.raw_os_error() {
        // It ended since its clock was read.
        Some(libc::ESRCH) => Ok(false),
        errno => {
            shared.counters.unsent.add_one();
            Err(Failure::Ticks(errno.unwrap_or(0)))
        }
    }
}

/// Queues the signal to one thread with `value` in it (`rt_tgsigqueueinfo`).
fn send(pid: i32, tid: i32, signal: i32, value: u64) -> io::Result<()> {
    /// The kernel's `siginfo_t` of a queued signal (`include/uapi/asm-generic/siginfo.h`).
    #[repr(C)]
    struct QueueInfo {
        signo: libc::c_int,
        errno: libc::c_int,
        code: libc::c_int,
        pad: libc::c_int,
        pid: libc::pid_t,
        uid: libc::uid_t,
        value: u64,
        rest: [u64; 12],
    }
    static_assertions::assert_eq_size!(QueueInfo, libc::siginfo_t);
    // SAFETY: getuid has no preconditions.
    let uid = unsafe { libc::getuid() };
    let info = QueueInfo {
        signo: signal,
        errno: 0,
        code: libc::SI_QUEUE,
        pad: 0,
        pid,
        uid,
        value,
        rest: [0; 12],
    };
    // SAFETY: the kernel copies the 128 bytes of `info`.
    let status = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            pid,
            tid,
            signal,
            &raw const info,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::next_deadline;

    #[test]
    fn deadlines_stay_on_the_grid_and_late_ones_are_counted() {
        assert_eq!(next_deadline(1000, 100, 1010), (1100, 0));
        assert_eq!(next_deadline(1000, 100, 1100), (1100, 0));
        assert_eq!(next_deadline(1000, 100, 1101), (1200, 1));
        assert_eq!(next_deadline(1000, 100, 1200), (1200, 1));
        assert_eq!(next_deadline(1000, 100, 1555), (1600, 5));
    }
}
