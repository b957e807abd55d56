//! Takes samples inside a signal.
//!
//! Law of the room: what runs inside the handler allocates nothing, takes no lock, waits for nobody,
//! does not panic, formats nothing, uses no thread-local storage of ours, keeps `errno`, and sees of
//! Ruby only [`vm_hooks::VmHooks`] (I5). Who may write the ring is decided by the [`gate`] (I1).
//!
//! | file | runs in the handler | noun |
//! | --- | --- | --- |
//! | [`handler`] | yes | the handler and its twin at a safepoint |
//! | [`writer`] | yes | the producer's side: walk, pack, write |
//! | [`preflight`] | yes | is this stack walkable |
//! | [`gate`] | yes | running or not, and the producer's seat |
//! | [`control`] | looks up | one block for each thread |
//! | [`interrupted`] | yes | in a system call, or running |
//! | [`pauses`] | yes | a thread off the GVL, and what it is credited with |
//! | [`deadlines`], [`histogram`], [`counters`], [`clock`], [`errno`], [`plan`] | yes | leaves |
//! | [`failure`] | leaves one | what ended a profile before its stop |
//! | [`paces`] | no | the interval in force over time |
//! | [`scratch`] | its memory | buffers allocated before the first tick |
//! | [`probe`] | no | memory that may not be there |
//! | [`signal`] | no | installing and putting back |
//! | [`tick`] | no | where ticks come from |
//! | [`fork`] | no | disarmed around fork, clean in the child |

// The handler's law, checked by clippy in the whole room; what runs outside of the signal is excused
// by name.
#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::disallowed_macros
    )
)]

pub mod bell;
pub mod clock;
pub mod control;
pub mod counters;
pub mod deadlines;
pub mod errno;
pub mod failure;
pub mod fork;
pub mod gate;
pub mod handler;
pub mod histogram;
pub mod interrupted;
pub mod loader;
pub mod paces;
pub mod pauses;
pub mod plan;
pub mod preflight;
pub mod probe;
#[allow(clippy::disallowed_macros, reason = "allocates before the first tick")]
pub mod scratch;
#[allow(clippy::disallowed_macros, reason = "runs in start and stop")]
pub mod signal;
pub mod tick;
pub mod trail;
pub mod vm_hooks;
pub mod writer;

use crate::sample::State;
use bell::Bell;
use control::{Registry, ThreadIdentity, Token};
use counters::Counters;
use deadlines::Deadlines;
use failure::FailureWord;
use gate::Gate;
use histogram::Histogram;
use loader::ThreadStorage;
use paces::Paces;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use vm_hooks::VmHooks;
use writer::Writer;

/// A drain that was asked for is given this long (ns) before it's asked for again.
const DRAIN_PATIENCE_NS: u64 = 10_000_000;

/// Everything that a handler can reach. Leaked at birth (I8).
#[derive(Debug)]
pub struct Shared {
    /// Running or not, and the producer's seat.
    pub gate: Gate,
    /// The VM.
    pub hooks: VmHooks,
    /// What happened to each tick.
    pub counters: Counters,
    /// How long handlers took.
    pub handler_times: Histogram,
    /// How long drains took.
    pub drain_times: Histogram,
    /// When ticks fall.
    pub deadlines: Deadlines,
    /// The interval in force, over time.
    pub paces: Paces,
    /// Why the profile cannot go on, when it cannot.
    pub failure: FailureWord,
    registry: Registry,
    writer: UnsafeCell<Option<Writer>>,
    vm_down: AtomicBool,
    /// Ticks are held back: a fork or an exec is under way.
    paused: AtomicBool,
    /// The tick thread is looking at threads and may send.
    sending: AtomicBool,
    /// Kernel's id of the thread on which GC last marked.
    gc_thread: AtomicI32,
    /// Time (ns) at which a drain was asked for; 0 when none is.
    drain_wanted: AtomicU64,
    /// The tick (token bits) that waits for a safepoint; 0 when none does.
    sample_wanted: AtomicU64,
    /// Offset of `ec` in `rb_thread_t`; 0 if the layout is unknown.
    thread_ec: AtomicUsize,
    /// Times that a thread got the GVL back.
    resumes: AtomicU64,
    /// What the VM's functions need of the loader.
    pub storage: ThreadStorage,
    /// Hangs while the tick thread is parked: who gets the GVL wakes it.
    bell: Bell,
    /// Switches of the test build.
    #[cfg(feature = "testing")]
    pub testing: testing::Switches,
}

// SAFETY: (I1) all fields are atomics but the writer, and that is reached only with the gate's seat,
// or while the gate is closed and vacant, by the one that holds the GVL.
unsafe impl Sync for Shared {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Shared {}

impl Shared {
    /// Creates and leaks the shared state and makes it known to the handler.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "allocates once, at load")]
    pub fn leak(hooks: VmHooks) -> &'static Self {
        let shared: &'static Self = Box::leak(Box::new(Self {
            gate: Gate::new(),
            hooks,
            counters: Counters::default(),
            handler_times: Histogram::default(),
            drain_times: Histogram::default(),
            deadlines: Deadlines::default(),
            paces: Paces::default(),
            failure: FailureWord::default(),
            registry: Registry::new(),
            writer: UnsafeCell::new(None),
            vm_down: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            sending: AtomicBool::new(false),
            gc_thread: AtomicI32::new(0),
            drain_wanted: AtomicU64::new(0),
            sample_wanted: AtomicU64::new(0),
            thread_ec: AtomicUsize::new(0),
            resumes: AtomicU64::new(0),
            storage: ThreadStorage::default(),
            bell: Bell::new(),
            #[cfg(feature = "testing")]
            testing: testing::Switches::default(),
        }));
        handler::publish(shared);
        shared
    }

    /// The producer's side.
    ///
    /// # Safety
    /// The caller holds the seat; or holds the GVL while the gate is closed and vacant. And it keeps
    /// one reference at a time.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    unsafe fn writer(&self) -> Option<&mut Writer> {
        // SAFETY: (I1) the caller's promise makes this the only reference.
        unsafe { (*self.writer.get()).as_mut() }
    }

    /// Lets handlers in, writing through `writer`.
    ///
    /// # Safety
    /// Under the GVL, with the gate closed and vacant.
    pub unsafe fn open(&self, writer: Writer) {
        // Relaxed: the gate's opening publishes it.
        self.thread_ec
            .store(writer.plan.thread_ec, Ordering::Relaxed);
        // SAFETY: (I1) the caller's promise.
        unsafe { *self.writer.get() = Some(writer) };
        self.drain_done();
        // Relaxed: the gate's opening publishes it.
        self.sample_wanted.store(0, Ordering::Relaxed);
        self.gate.open();
    }

    /// Shuts handlers out, waits until none is inside, and takes the producer's side back.
    /// Under the GVL, never in a handler.
    #[allow(clippy::disallowed_methods, reason = "waits: never in a handler")]
    pub fn close(&self) -> Option<Writer> {
        self.gate.close();
        while !self.gate.is_vacant() {
            std::thread::yield_now();
        }
        if self.sample_wanted.swap(0, Ordering::Relaxed) != 0 {
            // The tick that still waited for a safepoint.
            self.counters.closed.add_one();
        }
        // SAFETY: (I1) closed and vacant, under the GVL.
        unsafe { (*self.writer.get()).take() }
    }

    /// After fork, in the child: nobody is inside, whatever the word says; and nothing was written.
    pub fn reset_in_child(&self) {
        self.gate.reset();
        // Relaxed: the child has one thread.
        self.paused.store(false, Ordering::Relaxed);
        self.sending.store(false, Ordering::Relaxed);
        self.sample_wanted.store(0, Ordering::Relaxed);
        self.drain_done();
        for (_, block) in self.registry.live() {
            // Timers are not inherited; their ids mean nothing here.
            block.timer.store(0, Ordering::Relaxed);
            block.pending.store(false, Ordering::Relaxed);
        }
    }

    /// Enters a thread for sampling, from `now` (ns) on. `None` if the table is full (counted). Under the GVL.
    pub fn admit(&self, identity: ThreadIdentity, cpu_clock: bool, now: u64) -> Option<Token> {
        let cpu = clock::Clock::cpu_of(identity.tid).read().unwrap_or(0);
        let token = self
            .registry
            .claim(identity, if cpu_clock { cpu } else { now });
        match token.and_then(|token| self.registry.block(token)) {
            Some(block) => {
                // Relaxed: the thread is not signalled before this call returns.
                block.cpu_seen.store(cpu, Ordering::Relaxed);
                block.time_seen.store(now, Ordering::Relaxed);
                block.credited_cpu.store(cpu, Ordering::Relaxed);
                if let Some(state) = identity.off {
                    block.pause.begin(now, self.frame_of(block));
                    if state == State::Waiting {
                        block.pause.waits(now);
                    }
                }
            }
            None => self.counters.threads_skipped.add_one(),
        }
        token
    }

    /// Calls `visit` with each live thread's token and where its time stands. While the gate is closed.
    pub fn each_standing(&self, mut visit: impl FnMut(Token, Standing)) {
        for (token, block) in self.registry.live() {
            // Relaxed, all: no handler is inside, and the gate's closing orders what the last one wrote.
            let standing = Standing {
                tid: block.tid(),
                thread: block.thread(),
                vm_thread: block.vm_thread(),
                credited: block.credited.load(Ordering::Relaxed),
                credited_cpu: block.credited_cpu.load(Ordering::Relaxed),
                paused: (!block.pause.is_running()).then(|| block.pause.ready()),
                asleep_until: if block.asleep_since.load(Ordering::Relaxed) == 0 {
                    0
                } else {
                    block.asleep_until.load(Ordering::Relaxed)
                },
            };
            visit(token, standing);
        }
    }

    /// Whether no thread more can be entered before a slot is freed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.registry.is_full()
    }

    /// Nothing ticks any more.
    pub fn deadlines_end(&self) {
        self.deadlines.set(0, 0);
    }

    /// The slots of threads that are gone; see [`Shared::free`].
    pub fn take_retired(&self) -> impl Iterator<Item = u16> + '_ {
        self.registry.take_retired()
    }

    /// The last record of a slot's thread is in the tables: another thread may have the slot.
    pub fn free(&self, slot: u16) {
        self.registry.free(slot);
    }

    /// The token of the thread with that kernel id.
    #[must_use]
    pub fn find(&self, tid: i32) -> Option<Token> {
        self.registry.find(tid)
    }

    /// The token of the Thread with that VALUE; `hint` is looked at first. Without the GVL.
    #[inline]
    #[must_use]
    pub fn find_thread(&self, thread: u64, hint: Option<Token>) -> Option<Token> {
        let holds = |token: &Token| {
            let block = self.registry.block(*token);
            block.is_some_and(|block| block.thread() == thread)
        };
        hint.filter(holds)
            .or_else(|| self.registry.find_thread(thread))
    }

    /// Ends the thread's rest after its last handler: who plays the signal wants every tick taken,
    /// however soon it comes.
    #[cfg(feature = "testing")]
    pub fn end_rest(&self, token: Token) {
        if let Some(block) = self.registry.block(token) {
            // Relaxed: only this thread's handlers touch it.
            block.rest_until.store(0, Ordering::Relaxed);
        }
    }

    /// Ends a thread's sampling: its timer is deleted, later ticks are stale.
    pub fn dismiss(&self, token: Token) {
        if let Some(block) = self.registry.block(token) {
            tick::timer::disarm(block);
        }
        self.registry.retire(token);
    }

    /// Ends the sampling of every thread.
    pub fn dismiss_all(&self) {
        for (token, _) in self.registry.live() {
            self.dismiss(token);
        }
    }

    /// Calls `visit` with the VALUE of each Thread whose `rb_thread_t` a handler may read.
    pub fn each_thread(&self, mut visit: impl FnMut(u64)) {
        for (_, block) in self.registry.live() {
            visit(block.thread());
        }
    }

    /// Threads that are being sampled.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.registry.live().count()
    }

    /// Waits until every tick that was sent has been taken, `patience_ns` at most. Never in a handler.
    #[allow(clippy::disallowed_methods, reason = "waits: never in a handler")]
    pub fn let_ticks_arrive(&self, patience_ns: u64) {
        let began = clock::monotonic();
        // Relaxed: set by the tick thread, which has ended; cleared by handlers.
        while self
            .registry
            .live()
            .any(|(_, block)| block.pending.load(Ordering::Relaxed))
            && clock::monotonic() - began < patience_ns
        {
            std::thread::yield_now();
        }
    }

    /// GC marks, on the calling thread. Waits for a handler that may be walking on a thread without the
    /// GVL: what it finds is published, and can be pinned, before this GC moves anything.
    pub fn gc_marks(&self) {
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::gettid() };
        // Relaxed: tells a handler whose GC it is; carries no data.
        self.gc_thread.store(tid, Ordering::Relaxed);
        self.gate.wait_for_holder();
        if self.gate.is_open() {
            self.record_gc_cause(tid);
        }
    }

    /// Wakes the tick thread, if it is parked.
    #[inline]
    fn ring_bell(&self) {
        if !self.bell.ring() {
            return;
        }
        // SAFETY: wakes whoever sleeps on our own word, which is never freed (I8).
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.bell.futex(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }

    /// Sleeps until somebody rings, `longest_ns` at most; not at all if a thread runs, or `stop` says so.
    /// On the tick thread.
    fn park(&self, longest_ns: u64, stop: impl Fn() -> bool) {
        self.bell.hang_up();
        if !stop() && !self.anybody_runs() {
            self.counters.parked.add_one();
            let longest = clock::timespec(longest_ns);
            // SAFETY: FUTEX_WAIT reads our own word and the time, which outlive the call.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.bell.futex(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    1_u32,
                    &raw const longest,
                );
            }
        }
        self.bell.take_down();
    }

    fn anybody_runs(&self) -> bool {
        self.registry
            .live()
            .any(|(_, block)| block.pause.is_running())
    }

    /// The VM is being torn down: no handler touches it from now on.
    pub fn vm_went_down(&self) {
        // Release: pairs with the Acquire in vm_is_down.
        self.vm_down.store(true, Ordering::Release);
    }

    #[inline]
    fn vm_is_down(&self) -> bool {
        // Acquire: pairs with the Release in vm_went_down.
        self.vm_down.load(Ordering::Acquire)
    }

    /// The tick thread asks before each round whether it may send; after one it says
    /// [`Shared::round_ends`].
    fn round_begins(&self) -> bool {
        // SeqCst, both: we say that we send before we ask whether that is held; `hold` says that it
        // is before it asks whether we send. One of the two sees the other.
        self.sending.store(true, Ordering::SeqCst);
        let may_send = !self.paused.load(Ordering::SeqCst);
        if !may_send {
            self.round_ends();
        }
        may_send
    }

    fn round_ends(&self) {
        // Release: what was sent comes before it; pairs with the SeqCst load in `hold`.
        self.sending.store(false, Ordering::Release);
    }

    /// Holds the tick thread back: when this returns, it sends nothing until [`Shared::let_go`].
    #[allow(clippy::disallowed_methods, reason = "waits: never in a handler")]
    fn hold(&self) {
        // SeqCst, both: see `round_begins`.
        self.paused.store(true, Ordering::SeqCst);
        while self.sending.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    /// Lets the tick thread go on.
    fn let_go(&self) {
        // Relaxed: sooner or later.
        self.paused.store(false, Ordering::Relaxed);
    }

    #[inline]
    fn drain_is_pending(&self, now: u64) -> bool {
        // Relaxed: a hint; two requests for one drain do no harm.
        let asked = self.drain_wanted.load(Ordering::Relaxed);
        asked != 0 && now.saturating_sub(asked) < DRAIN_PATIENCE_NS
    }

    /// Somebody asks for a drain.
    pub(crate) fn note_drain_wanted(&self, now: u64) {
        // Relaxed: as above.
        self.drain_wanted.store(now, Ordering::Relaxed);
        self.counters.drains_requested.add_one();
    }

    /// A drain that was asked for and has not come in time. The tick thread asks again, for the
    /// thread that was flagged may be asleep.
    fn drain_is_overdue(&self, now: u64) -> bool {
        // Relaxed: as above.
        let asked = self.drain_wanted.load(Ordering::Relaxed);
        asked != 0 && now.saturating_sub(asked) >= DRAIN_PATIENCE_NS
    }

    /// A drain is at work, or has made room: until the next request, none is pending.
    pub fn drain_done(&self) {
        // Relaxed: as above.
        self.drain_wanted.store(0, Ordering::Relaxed);
    }
}

/// Where a thread's time stands when a profile ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Kernel's id.
    pub tid: i32,
    /// VALUE of the Thread.
    pub thread: u64,
    /// Address of its `rb_thread_t`.
    pub vm_thread: usize,
    /// Up to where its time is credited, in ns of the profile's clock.
    pub credited: u64,
    /// Up to where its CPU time is credited, in ns, where both are counted.
    pub credited_cpu: u64,
    /// The events say that it is off the GVL; from when on (ns) it waited for that, or `u64::MAX`.
    pub paused: Option<u64>,
    /// Up to when (ns) it was seen asleep where its last record found it; 0 if it was not. For a VM that
    /// does not tell of pauses.
    pub asleep_until: u64,
}

/// Switches of the test build.
#[cfg(feature = "testing")]
pub mod testing {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// See the fields' setters.
    #[derive(Debug, Default)]
    pub struct Switches {
        empty_handler: AtomicBool,
        skip_preflight: AtomicBool,
        hold_drains: AtomicBool,
        plant_panic: AtomicBool,
        plant_allocation: AtomicBool,
        check_walks: AtomicBool,
        walks: [AtomicU64; 3],
    }

    impl Switches {
        /// Makes the handler return at once: the floor that benchmarks measure against.
        pub fn set_empty_handler(&self, on: bool) {
            // Relaxed: set before the ticks start.
            self.empty_handler.store(on, Ordering::Relaxed);
        }

        /// Whether the handler is to return at once.
        #[inline]
        #[must_use]
        pub fn empty_handler(&self) -> bool {
            // Relaxed: as above.
            self.empty_handler.load(Ordering::Relaxed)
        }

        /// Makes the next profile walk without the pre-flight.
        pub fn set_skip_preflight(&self, on: bool) {
            // Relaxed: read at start.
            self.skip_preflight.store(on, Ordering::Relaxed);
        }

        /// Makes drain jobs leave the ring as it is.
        pub fn set_hold_drains(&self, on: bool) {
            // Relaxed: jobs run under the GVL.
            self.hold_drains.store(on, Ordering::Relaxed);
        }

        /// Whether drain jobs leave the ring as it is.
        #[must_use]
        pub fn hold_drains(&self) -> bool {
            // Relaxed: as above.
            self.hold_drains.load(Ordering::Relaxed)
        }

        /// Makes the next drain panic.
        pub fn set_plant_panic(&self, on: bool) {
            // Relaxed: as above.
            self.plant_panic.store(on, Ordering::Relaxed);
        }

        /// Whether this drain is to panic.
        #[must_use]
        pub fn take_panic(&self) -> bool {
            // Relaxed: as above.
            self.plant_panic.swap(false, Ordering::Relaxed)
        }

        /// Makes the handler do what it must never do, so that a guard against it can be seen to work.
        pub fn set_plant_allocation(&self, on: bool) {
            // Relaxed: set before the ticks start.
            self.plant_allocation.store(on, Ordering::Relaxed);
        }

        /// Allocates, if that was planted. Called in the handler.
        #[inline]
        #[expect(clippy::disallowed_methods, reason = "what guards have to find")]
        pub fn allocate_if_planted(&self) {
            // Relaxed: as above.
            if self.plant_allocation.load(Ordering::Relaxed) {
                drop(std::hint::black_box(Box::new(0_u64)));
            }
        }

        /// Makes the next profile hold each walk that was cut short against a whole one.
        pub fn set_check_walks(&self, on: bool) {
            // Relaxed: read at start.
            self.check_walks.store(on, Ordering::Relaxed);
        }

        /// Whether the next profile does so.
        #[must_use]
        pub fn check_walks(&self) -> bool {
            // Relaxed: as above.
            self.check_walks.load(Ordering::Relaxed)
        }

        /// Adds to the walks that were whole, that were cut short, and that were so wrongly.
        pub(crate) fn add_walks(&self, walks: [u64; 3]) {
            for (sum, more) in self.walks.iter().zip(walks) {
                // Relaxed: a figure.
                sum.fetch_add(more, Ordering::Relaxed);
            }
        }

        /// Takes those three figures.
        #[must_use]
        pub fn take_walks(&self) -> [u64; 3] {
            // Relaxed: as above.
            [0, 1, 2].map(|kind| self.walks[kind].swap(0, Ordering::Relaxed))
        }

        /// Whether the next profile walks without the pre-flight.
        #[must_use]
        pub fn skip_preflight(&self) -> bool {
            // Relaxed: as above.
            self.skip_preflight.load(Ordering::Relaxed)
        }
    }
}
