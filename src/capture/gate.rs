//! Law of this file: runs inside a signal; every operation is one atomic instruction, nobody waits.
//!
//! The gate decides who may be in the handler's critical part: it is open or closed, and it has one
//! seat. Two signals can meet there, on two threads or one inside the other; the one that finds the
//! seat taken counts itself and leaves (I1).
//!
//! One word holds both bits, so that «open and free» is tested and taken in one step: once
//! [`Gate::close`] has returned nobody gets in, and whoever is still in is seen by
//! [`Gate::is_vacant`]. After close and vacancy, the closer owns all that the seat protects, until it
//! opens again.
//!
//! # Orderings
//!
//! | operation | by | ordering | reason, partner |
//! | --- | --- | --- | --- |
//! | (e) CAS open → open and taken | handler | Acquire | with (l): what the last holder wrote; with (o): what the opener wrote |
//! | (l) clear taken | `Seat`'s drop | Release | pairs with (e) and (v) |
//! | (o) set open | `open` | Release | pairs with (e) |
//! | clear open | `close` | Relaxed | the order of changes to one word is enough; as a read-modify-write it keeps (l) visible to (v) |
//! | (v) load | `is_vacant` | Acquire | with (l): what the last holder wrote |
//! | (f) fence | `Seat::look_outside`, `wait_for_holder` | SeqCst | see below |
//!
//! # The handshake with GC
//!
//! A holder first sits down and then asks the VM whether GC runs; GC first says that it runs and then,
//! from our mark function, asks whether somebody sits. Each writes one word and reads the other's, and
//! at least one of the two must see what the other wrote: that takes a full fence between write and
//! read on both sides (f). So either the holder finds GC running and walks nothing, or marking waits
//! until the holder has published what it walked, and then marks and pins it before anything can move
//! (I7).

use crate::sync::{fence, AtomicU32, Ordering};

const OPEN: u32 = 1;
const TAKEN: u32 = 2;

/// One seat behind a door.
#[derive(Debug)]
pub struct Gate {
    word: AtomicU32,
}

/// The answer to [`Gate::try_enter`].
#[derive(Debug)]
#[must_use]
pub enum Entry<'a> {
    /// The caller is in, until it drops the seat.
    Seat(Seat<'a>),
    /// Open, but somebody else is in.
    Taken,
    /// Closed.
    Closed,
}

/// The right to touch what the gate protects. Given back on drop.
#[derive(Debug)]
#[must_use]
pub struct Seat<'a> {
    gate: &'a Gate,
}

impl Gate {
    /// A closed gate with its seat free.
    #[must_use]
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
        }
    }

    /// Lets newcomers in. What the caller has written before is visible to them.
    pub fn open(&self) {
        // Release: the opener's preparations come before it; pairs with Acquire in Gate::try_enter.
        self.word.fetch_or(OPEN, Ordering::Release);
    }

    /// Takes the seat if the gate is open and the seat is free. Wait-free and async-signal-safe.
    #[inline]
    pub fn try_enter(&self) -> Entry<'_> {
        match self.word.compare_exchange(
            OPEN,
            OPEN | TAKEN,
            // Acquire: what the last holder and the opener wrote comes before our entry; pairs with
            // Release in Seat's drop and in Gate::open.
            Ordering::Acquire,
            // Relaxed: who does not enter reads nothing that the gate protects.
            Ordering::Relaxed,
        ) {
            Ok(_) => Entry::Seat(Seat { gate: self }),
            Err(word) if word & OPEN == 0 => Entry::Closed,
            Err(_) => Entry::Taken,
        }
    }

    /// Refuses newcomers from now on. Does not wait for who is in: see [`Gate::is_vacant`].
    pub fn close(&self) {
        // Relaxed: an entry comes before it in the word's own order, and then is_vacant sees the seat
        // taken, or after it, and then it is refused. Nothing of ours is published here; that we read
        // what the holder wrote is the matter of Acquire in Gate::is_vacant.
        self.word.fetch_and(!OPEN, Ordering::Relaxed);
    }

    /// Whether newcomers are let in at this moment.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        // Relaxed: a hint; only try_enter's answer grants anything.
        self.word.load(Ordering::Relaxed) & OPEN != 0
    }

    /// Whether nobody holds the seat. If so, what the last holder wrote is visible to the caller. It
    /// stays true only for the thread that has closed the gate, until it opens again.
    #[inline]
    #[must_use]
    pub fn is_vacant(&self) -> bool {
        // Acquire: what the last holder wrote comes before what we do next; pairs with Release in
        // Seat's drop.
        self.word.load(Ordering::Acquire) & TAKEN == 0
    }

    /// Waits until whoever sat in the seat when this was called has left it; see the handshake with GC.
    /// Never called while the caller itself sits, nor in a handler.
    #[allow(clippy::disallowed_methods, reason = "waits: never in a handler")]
    pub fn wait_for_holder(&self) {
        // SeqCst: what the caller wrote before (GC runs) comes before the look at the seat; pairs with
        // the fence in Seat::look_outside.
        fence(Ordering::SeqCst);
        while !self.is_vacant() {
            crate::sync::yield_now();
        }
    }

    /// Closed and vacant, whatever was before. For a forked child, whose only thread holds no seat: who
    /// held it in the parent does not exist here (I12).
    pub fn reset(&self) {
        // Relaxed: the child has one thread.
        self.word.store(0, Ordering::Relaxed);
    }
}

impl Seat<'_> {
    /// Puts our sitting down before whatever the holder reads next of the world outside; see the
    /// handshake with GC.
    #[inline]
    pub fn look_outside(&self) {
        // SeqCst: pairs with the fence in Gate::wait_for_holder. On x86-64 the locked exchange of
        // try_enter has been a full fence already; there the compiler alone has to keep the order.
        #[cfg(any(loom, not(target_arch = "x86_64")))]
        fence(Ordering::SeqCst);
        #[cfg(not(any(loom, not(target_arch = "x86_64"))))]
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Seat<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: what we wrote while in comes before it; pairs with Acquire in Gate::try_enter and
        // in Gate::is_vacant.
        self.gate.word.fetch_and(!TAKEN, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_new_gate_is_closed_and_vacant() {
        let gate = Gate::new();
        assert!(!gate.is_open());
        assert!(gate.is_vacant());
        assert!(matches!(gate.try_enter(), Entry::Closed));
    }

    #[test]
    fn the_seat_is_given_once_and_given_back() {
        let gate = Gate::new();
        gate.open();
        let Entry::Seat(seat) = gate.try_enter() else {
            panic!("an open and vacant gate lets nobody in");
        };
        assert!(matches!(gate.try_enter(), Entry::Taken));
        assert!(!gate.is_vacant());
        drop(seat);
        assert!(gate.is_vacant());
        assert!(matches!(gate.try_enter(), Entry::Seat(_)));
    }

    #[test]
    fn close_refuses_newcomers_and_leaves_the_holder_in() {
        let gate = Gate::new();
        gate.open();
        let Entry::Seat(seat) = gate.try_enter() else {
            panic!("an open and vacant gate lets nobody in");
        };
        gate.close();
        assert!(!gate.is_vacant());
        assert!(matches!(gate.try_enter(), Entry::Closed));
        drop(seat);
        assert!(gate.is_vacant());
        assert!(matches!(gate.try_enter(), Entry::Closed));
    }

    #[test]
    fn opening_again_while_the_seat_is_held_grants_no_second_one() {
        let gate = Gate::new();
        gate.open();
        let entry = gate.try_enter();
        gate.close();
        gate.open();
        assert!(matches!(gate.try_enter(), Entry::Taken));
        drop(entry);
        assert!(matches!(gate.try_enter(), Entry::Seat(_)));
    }

    #[test]
    fn reset_forgets_a_holder_that_does_not_exist_any_more() {
        let gate = Gate::new();
        gate.open();
        std::mem::forget(gate.try_enter());
        gate.reset();
        assert!(!gate.is_open());
        assert!(gate.is_vacant());
        gate.open();
        assert!(matches!(gate.try_enter(), Entry::Seat(_)));
    }
}
