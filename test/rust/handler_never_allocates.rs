//! The handler allocates nothing (I5), whatever becomes of a tick: counted by the global allocator.
#![cfg(not(miri))]

#[path = "support/by_hand.rs"]
mod by_hand;
#[path = "support/fake_vm.rs"]
mod fake_vm;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Rounds of every outcome, about fifty signals each.
const ROUNDS: u32 = 200;

struct Counting;

thread_local! {
    // Constant and without a destructor: an allocator may use it at any time.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends the signals of `rounds` rounds: how many, and how often the allocator was called meanwhile.
fn watched(rounds: u32, planted: bool) -> (u64, u64) {
    let mut signals = 0;
    let mut calls = 0;
    by_hand::every_outcome(rounds, &mut |send| {
        fake_vm::set_allocates(planted);
        let before = ALLOCATIONS.get();
        send();
        signals += 1;
        calls += ALLOCATIONS.get() - before;
    });
    (signals, calls)
}

/// One test: the handler finds one shared state at a time.
#[test]
fn no_outcome_of_a_tick_allocates_and_a_planted_allocation_is_seen() {
    let (signals, calls) = watched(ROUNDS, false);
    assert!(signals > u64::from(ROUNDS) * 30, "{signals} signals");
    assert_eq!(calls, 0, "of {signals} signals");

    let (signals, calls) = watched(1, true);
    assert!(
        calls >= 2,
        "{calls} seen of {signals} signals that allocate"
    );
}
