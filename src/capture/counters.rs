//! What happened to every tick.
//!
//! Relaxed everywhere: each counter stands alone, nothing is published through it, and a reader
//! wants a number that is right once the handlers are out (the gate's closing orders that).

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters of one profile; see the fields of [`Counts`].
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)+
        }

        /// A reading of [`Counters`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            /// Reads every counter.
            #[must_use]
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)+ }
            }

            /// Sets every counter to what was read; only while no handler is inside.
            pub fn restore(&self, counts: &Counts) {
                $(self.$name.set(counts.$name);)+
            }

            /// Sets every counter to zero; only while no handler is inside.
            pub fn reset(&self) {
                $(self.$name.set(0);)+
            }
        }
    };
}

counters! {
    /// Ticks sent by the tick thread.
    sent,
    /// Ticks that the kernel refused to send.
    unsent,
    /// 1 if the tick thread runs at real-time priority.
    realtime,
    /// Deadlines that the tick thread kept.
    rounds,
    /// Deadlines that the tick thread itself slept through.
    late,
    /// Ticks that a timer could not deliver because the one before was still pending.
    overrun,
    /// Ticks that reached a handler.
    received,
    /// Ticks that became a record of their own.
    recorded,
    /// Records in the ring so far: those of ticks, and those of pauses and of what started collections.
    written,
    /// Too early after the thread's last record: less than half an interval had passed, or less time
    /// than the last tick had taken.
    early,
    /// The same stack again while the ring was filling up: added to the record before.
    folded,
    /// GC ran, and its time goes to the thread's next record (`ignore_gc`, or another thread's GC).
    in_gc,
    /// A tick that was waiting for a safepoint already.
    awaiting_safepoint,
    /// The thread was off the GVL: the time is credited when it comes back.
    paused,
    /// No Ruby frame on the thread at all.
    no_frames,
    /// The ring was full.
    ring_full,
    /// Another handler, or `sample`, held the producer's seat.
    seat_taken,
    /// The pre-flight found a stack in the middle of a change.
    torn,
    /// The walk returned a VALUE that is no method entry and no iseq.
    invalid,
    /// The signal carried the token of a thread that is gone.
    stale,
    /// A thread that Ruby does not know.
    not_ruby,
    /// The loader had yet to give the thread the VM's thread-local storage.
    loader,
    /// The safepoint came on another thread than the tick.
    wrong_thread,
    /// The profiler had stopped.
    closed,
    /// The VM was going down.
    vm_down,
    /// Signals of our number that are not ours (sent by `kill`, or by another program).
    foreign,
    /// Intervals that were credited to no stack.
    missed,
    /// Threads that could not be sampled: another ractor's, without a native thread of their own, or
    /// beyond the table of control blocks.
    threads_skipped,
    /// Time inside handlers, in ns.
    handler_ns,
    /// Longest handler, in ns.
    handler_max_ns,
    /// Most words that the ring ever held.
    high_water_words,
    /// Pauses credited when the thread came back.
    pauses,
    /// Pauses that could not be, for somebody held the seat too long: the time went to the next record.
    pauses_lost,
    /// Time spent crediting them, in ns.
    pauses_ns,
    /// Time inside drains, in ns.
    drain_ns,
    /// CPU time of the tick thread, in ns.
    tick_cpu_ns,
    /// Times that the tick thread parked because nobody ran.
    parked,
    /// Drains that the handler, or the tick thread, asked for.
    drains_requested,
}

impl Counts {
    /// Ticks without a record whose time went to the thread's next one as a matter of course.
    #[must_use]
    pub const fn coalesced(&self) -> u64 {
        self.early
            + self.folded
            + self.in_gc
            + self.paused
            + self.awaiting_safepoint
            + self.no_frames
    }

    /// Ticks without a record for a reason that one would rather not see.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.ring_full
            + self.seat_taken
            + self.torn
            + self.invalid
            + self.stale
            + self.not_ruby
            + self.loader
            + self.wrong_thread
            + self.closed
            + self.vm_down
    }
}

impl Counters {
    /// Time that profiling has taken so far, in ns: handlers, pauses, drains, the tick thread.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        self.handler_ns.get() + self.pauses_ns.get() + self.drain_ns.get() + self.tick_cpu_ns.get()
    }
}

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one, from any thread.
    #[inline]
    pub fn add_one(&self) {
        self.add(1);
    }

    /// Adds `n`, from any thread.
    #[inline]
    pub fn add(&self, n: u64) {
        // Relaxed: a lone number; no partner.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds `n`; only one thread at a time (the seat's holder), which saves the locked instruction.
    #[inline]
    pub fn add_alone(&self, n: u64) {
        self.set(self.get() + n);
    }

    /// Raises the counter to `n` if it is lower; only one thread at a time (the seat's holder).
    #[inline]
    pub fn raise_to(&self, n: u64) {
        if n > self.get() {
            self.set(n);
        }
    }

    /// The number.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        // Relaxed: a lone number; no partner.
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the number.
    #[inline]
    pub fn set(&self, n: u64) {
        // Relaxed: a lone number; no partner.
        self.0.store(n, Ordering::Relaxed);
    }
}
