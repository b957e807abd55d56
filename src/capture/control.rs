//! Control blocks: one for each sampled thread, in a fixed table that is never freed.
//!
//! A tick carries a [`Token`] (slot and generation), never a pointer: a late signal that names a
//! thread long gone finds another generation in the slot and is counted as stale (I8).

use crate::sample::State;
#[allow(
    clippy::disallowed_types,
    reason = "claimed and retired by threads, never in a handler"
)]
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Threads that can be sampled at a time.
pub const MAX_THREADS: usize = 1024;

const TOKEN_MAGIC: u64 = 0x5250;

/// What a tick carries in `si_value`: `magic:16 | generation:32 | slot:16`, highest bits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Index into the table of control blocks.
    pub slot: u16,
    /// Generation of that slot when the tick was sent.
    pub generation: u32,
}

impl Token {
    /// The token as the 64 bits of a signal's value.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        TOKEN_MAGIC << 48 | (self.generation as u64) << 16 | self.slot as u64
    }

    /// The token in a signal's value; `None` if nobody here made it.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> 48 == TOKEN_MAGIC {
            Some(Self {
                slot: bits as u16,
                generation: (bits >> 16) as u32,
            })
        } else {
            None
        }
    }
}

/// What the profiler knows of one thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ControlBlock {
    /// Odd while a thread lives here; one higher at every birth and death.
    generation: AtomicU32,
    /// Kernel's id of the thread.
    tid: AtomicI32,
    /// VALUE of the Thread, for GC to mark: keeps `vm_thread` alive.
    thread: AtomicU64,
    /// Address of its `rb_thread_t`.
    vm_thread: AtomicUsize,
    /// A tick was sent that no handler has taken yet.
    pub(super) pending: AtomicBool,
    /// The thread's CPU clock, in ns, as the tick thread read it just before its tick.
    pub(super) cpu_reading: AtomicU64,
    /// Up to where the thread's time is credited, in ns of the profile's clock.
    pub(super) credited: AtomicU64,
    /// CPU clock and elapsed time, in ns, at the thread's last tick: tells whether it ran since.
    pub(super) cpu_seen: AtomicU64,
    pub(super) time_seen: AtomicU64,
    /// The kernel timer that ticks for this thread (timer source), 0 if none.
    pub(super) timer: AtomicUsize,
    /// Ticks in a row that found no CPU time used (timer source).
    pub(super) idle: AtomicU32,
    /// Time (ns) until which the thread goes on without a walk, so that its own ticks cannot starve it.
    pub(super) rest_until: AtomicU64,
    /// Up to where its CPU time is credited, in ns, where both clocks are counted.
    pub(super) credited_cpu: AtomicU64,
    /// On or off the GVL ([`Pause`]).
    pub(super) pause: Pause,
    /// Time (ns) of its last record, if that was taken in a system call; else 0. For a VM that does not
    /// tell when threads give the GVL up.
    pub(super) asleep_since: AtomicU64,
    /// The last time (ns) at which the tick thread saw that the thread still slept.
    pub(super) asleep_until: AtomicU64,
}

/// What the VM's thread events say: whether the thread is on the GVL, and since when not.
///
/// Written by the events on the thread itself, but for `READY`, which its waker may bring.
#[derive(Debug, Default)]
pub struct Pause {
    state: AtomicU32,
    /// Time (ns) of the suspension.
    since: AtomicU64,
    /// Time (ns) from which on it waited for the GVL.
    ready: AtomicU64,
    /// Its control frame pointer at the suspension: when that has moved, the thread runs, whatever the
    /// events said.
    frame: AtomicUsize,
}

impl Pause {
    /// The thread runs, or so the events say.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        // Acquire: pairs with the Release in `begin` and `waits`; the times are there.
        self.state.load(Ordering::Acquire) == State::Running as u32
    }

    /// The thread gives the GVL up at `now`, with its control frame at `frame`.
    #[inline]
    pub(super) fn begin(&self, now: u64, frame: usize) {
        // Relaxed, all: published by the state below.
        self.since.store(now, Ordering::Relaxed);
        self.ready.store(u64::MAX, Ordering::Relaxed);
        self.frame.store(frame, Ordering::Relaxed);
        // Release: pairs with the Acquire in `is_running`.
        self.state.store(State::Blocked as u32, Ordering::Release);
    }

    /// The thread waits for the GVL from `now` on.
    #[inline]
    pub(super) fn waits(&self, now: u64) {
        // Relaxed: published by the state below.
        self.ready.store(now, Ordering::Relaxed);
        // AcqRel: pairs with the Acquire in `is_running`. Only from blocked: a thread that runs has
        // nothing to wait for.
        let _ = self.state.compare_exchange(
            State::Blocked as u32,
            State::Waiting as u32,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// The thread is back, or was never gone.
    #[inline]
    pub(super) fn end(&self) {
        // Release: pairs with the Acquire in `is_running`; the bell's fence comes before the look at it.
        self.state.store(State::Running as u32, Ordering::Release);
    }

    /// Time (ns) of the suspension.
    #[inline]
    pub(super) fn since(&self) -> u64 {
        // Relaxed: ordered by the state's Acquire.
        self.since.load(Ordering::Relaxed)
    }

    /// Time (ns) from which on the thread waited for the GVL; `u64::MAX` while it does not.
    #[inline]
    pub(super) fn ready(&self) -> u64 {
        // Relaxed: ordered by the state's Acquire.
        self.ready.load(Ordering::Relaxed)
    }

    /// Its control frame pointer at the suspension.
    #[inline]
    pub(super) fn frame(&self) -> usize {
        // Relaxed: ordered by the state's Acquire.
        self.frame.load(Ordering::Relaxed)
    }
}

/// A thread to be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadIdentity {
    /// Kernel's id.
    pub tid: i32,
    /// VALUE of the Thread.
    pub thread: u64,
    /// Address of its `rb_thread_t`.
    pub vm_thread: usize,
    /// It is the VM's main thread.
    pub main: bool,
    /// It is off the GVL at this moment: in what state.
    pub off: Option<State>,
}

impl ControlBlock {
    /// The generation, if a thread lives here.
    #[inline]
    pub(super) fn live_generation(&self) -> Option<u32> {
        // Acquire: pairs with the Release in Registry::claim; the identity is whole.
        let generation = self.generation.load(Ordering::Acquire);
        (generation & 1 == 1).then_some(generation)
    }

    /// Kernel's id of the thread that lives (or lived) here.
    #[inline]
    pub(super) fn tid(&self) -> i32 {
        // Relaxed: ordered by the generation's Acquire; a stale id goes with a stale token.
        self.tid.load(Ordering::Relaxed)
    }

    /// Address of its `rb_thread_t`.
    #[inline]
    pub(super) fn vm_thread(&self) -> usize {
        // Relaxed: as for `tid`.
        self.vm_thread.load(Ordering::Relaxed)
    }

    /// Credits the thread with intervals by the profile's clock, and by the CPU clock where that is kept
    /// beside it. On the thread itself, with the seat.
    #[inline]
    pub(super) fn credit(&self, interval_ns: u64, weight: u64, cpu: u64) {
        // Relaxed, all: only this thread's handlers and events touch them while the gate is open.
        let credited = self.credited.load(Ordering::Relaxed);
        self.credited
            .store(credited + weight * interval_ns, Ordering::Relaxed);
        if cpu > 0 {
            let credited = self.credited_cpu.load(Ordering::Relaxed);
            self.credited_cpu
                .store(credited + cpu * interval_ns, Ordering::Relaxed);
        }
    }

    /// VALUE of its Thread.
    #[inline]
    pub(super) fn thread(&self) -> u64 {
        // Relaxed: as for `tid`.
        self.thread.load(Ordering::Relaxed)
    }
}

/// The table of control blocks. Slots are claimed and retired by threads, outside of any handler.
#[derive(Debug)]
pub struct Registry {
    blocks: Box<[ControlBlock]>,
    /// Slots that were used before and are free again.
    #[allow(clippy::disallowed_types, reason = "as above")]
    free: ArrayQueue<u16>,
    /// Slots whose threads are gone, but maybe not their last records.
    #[allow(clippy::disallowed_types, reason = "as above")]
    retired: ArrayQueue<u16>,
    /// Slots from here on were never used.
    used: AtomicUsize,
}

impl Registry {
    #[allow(clippy::disallowed_types, reason = "as above")]
    pub(super) fn new() -> Self {
        Self {
            blocks: (0..MAX_THREADS).map(|_| ControlBlock::default()).collect(),
            free: ArrayQueue::new(MAX_THREADS),
            retired: ArrayQueue::new(MAX_THREADS),
            used: AtomicUsize::new(0),
        }
    }

    /// Gives a thread a slot; its time counts from `credited` (ns of the profile's clock).
    /// `None` when [`MAX_THREADS`] are alive. Under the GVL.
    pub(super) fn claim(&self, identity: ThreadIdentity, credited: u64) -> Option<Token> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                // Relaxed: only the GVL's holder claims; readers need no more than a bound.
                let used = self.used.load(Ordering::Relaxed);
                if used == MAX_THREADS {
                    return None;
                }
                // Release: pairs with the Acquire in `slots`; the block is there (it always was).
                self.used.store(used + 1, Ordering::Release);
                used as u16
            }
        };
        let block = &self.blocks[slot as usize];
        // Relaxed, all of them: published by the generation below.
        block.tid.store(identity.tid, Ordering::Relaxed);
        block.thread.store(identity.thread, Ordering::Relaxed);
        block.vm_thread.store(identity.vm_thread, Ordering::Relaxed);
        block.pending.store(false, Ordering::Relaxed);
        block.credited.store(credited, Ordering::Relaxed);
        block.cpu_reading.store(0, Ordering::Relaxed);
        block.cpu_seen.store(0, Ordering::Relaxed);
        block.time_seen.store(0, Ordering::Relaxed);
        block.timer.store(0, Ordering::Relaxed);
        block.idle.store(0, Ordering::Relaxed);
        block.rest_until.store(0, Ordering::Relaxed);
        block.credited_cpu.store(0, Ordering::Relaxed);
        block.asleep_since.store(0, Ordering::Relaxed);
        block.asleep_until.store(0, Ordering::Relaxed);
        block.pause.end();
        // Release: publishes the identity; pairs with the Acquire in live_generation.
        let generation = block.generation.fetch_add(1, Ordering::Release) + 1;
        Some(Token { slot, generation })
    }

    /// Whether [`Registry::claim`] would find no slot.
    pub(super) fn is_full(&self) -> bool {
        // Relaxed: only the GVL's holder claims.
        self.free.is_empty() && self.used.load(Ordering::Relaxed) == MAX_THREADS
    }

    /// Ends a slot's life; false if it had ended already (then somebody else gave it back).
    pub(super) fn retire(&self, token: Token) -> bool {
        let block = &self.blocks[token.slot as usize];
        // AcqRel: one of two retirers wins; Release pairs with the Acquire in live_generation.
        let ended = block
            .generation
            .compare_exchange(
                token.generation,
                token.generation.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok();
        if ended {
            // Cannot be full: it has room for every slot, and each is in it at most once.
            let _ = self.retired.push(token.slot);
        }
        ended
    }

    /// The slots of threads that are gone, for a drain to begin with: what it finds then is theirs.
    /// Under the GVL.
    pub(super) fn take_retired(&self) -> impl Iterator<Item = u16> + '_ {
        std::iter::from_fn(|| self.retired.pop())
    }

    /// The last record of the slot's thread is in the tables: another thread may have the slot.
    pub(super) fn free(&self, slot: u16) {
        // Cannot be full, as above.
        let _ = self.free.push(slot);
    }

    /// The block that a token names, if its thread still lives. Async-signal-safe.
    #[inline]
    pub(super) fn block(&self, token: Token) -> Option<&ControlBlock> {
        let block = self.blocks.get(token.slot as usize)?;
        (block.live_generation() == Some(token.generation)).then_some(block)
    }

    /// The blocks in use, with their tokens.
    pub(super) fn live(&self) -> impl Iterator<Item = (Token, &ControlBlock)> {
        // Acquire: pairs with the Release in `claim`.
        let used = self.used.load(Ordering::Acquire);
        self.blocks[..used]
            .iter()
            .enumerate()
            .filter_map(|(slot, block)| {
                let generation = block.live_generation()?;
                Some((
                    Token {
                        slot: slot as u16,
                        generation,
                    },
                    block,
                ))
            })
    }

    /// The token of the Thread with that VALUE. Async-signal-safe.
    pub(super) fn find_thread(&self, thread: u64) -> Option<Token> {
        self.live()
            .find(|(_, block)| block.thread() == thread)
            .map(|(token, _)| token)
    }

    /// The token of the thread with that kernel id.
    pub(super) fn find(&self, tid: i32) -> Option<Token> {
        self.live()
            .find(|(_, block)| block.tid() == tid)
            .map(|(token, _)| token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(tid: i32) -> ThreadIdentity {
        ThreadIdentity {
            tid,
            thread: 8,
            vm_thread: 16,
            main: false,
            off: None,
        }
    }

    #[test]
    fn tokens_survive_the_signal_value_and_foreign_values_do_not() {
        let token = Token {
            slot: 1023,
            generation: u32::MAX,
        };
        assert_eq!(Token::from_bits(token.to_bits()), Some(token));
        assert_eq!(Token::from_bits(0), None);
        assert_eq!(Token::from_bits(u64::MAX), None);
    }

    #[test]
    fn a_retired_slot_is_reused_under_another_generation() {
        let registry = Registry::new();
        let first = registry.claim(identity(1), 0).expect("room");
        assert!(registry.block(first).is_some());
        assert!(registry.retire(first));
        assert!(!registry.retire(first));
        assert!(registry.block(first).is_none());
        assert_eq!(registry.take_retired().collect::<Vec<_>>(), [first.slot]);
        registry.free(first.slot);
        let second = registry.claim(identity(2), 0).expect("room");
        assert_eq!(second.slot, first.slot);
        assert_ne!(second.generation, first.generation);
        assert!(registry.block(first).is_none());
        assert_eq!(registry.find(2), Some(second));
        assert_eq!(registry.find(1), None);
    }

    #[test]
    fn the_table_is_bounded_and_recovers() {
        let registry = Registry::new();
        let tokens: Vec<_> = (0..MAX_THREADS)
            .map(|tid| registry.claim(identity(tid as i32), 0).expect("room"))
            .collect();
        assert_eq!(registry.claim(identity(-1), 0), None);
        assert_eq!(registry.live().count(), MAX_THREADS);
        for token in tokens {
            assert!(registry.retire(token));
        }
        assert_eq!(registry.live().count(), 0);
        // Their last records may be in the ring.
        assert_eq!(registry.claim(identity(7), 0), None);
        for slot in registry.take_retired() {
            registry.free(slot);
        }
        assert!(registry.claim(identity(7), 0).is_some());
    }
}
