//! Law of this file: whoever hangs the bell up and then finds nobody to wait for is rung for by the next to come (I14).
//!
//! The tick thread parks while no sampled thread runs. It hangs the bell up, looks at the threads once more, and sleeps
//! if none runs; a thread that gets the GVL says that it runs, and then looks whether the bell hangs. Each writes one
//! word and reads the other's, and at least one of the two must see what the other wrote, or the profile would be deaf to
//! a running thread for as long as the park may last: that takes a full fence between write and read on both sides.
//!
//! # Orderings
//!
//! | operation | by | ordering | reason, partner |
//! | --- | --- | --- | --- |
//! | store 1 | `hang_up` | Relaxed | the fence after it orders it |
//! | (f) fence | `hang_up`, `ring` | SeqCst | each with the other, see above |
//! | load, store 0 | `ring` | Relaxed | the fence before orders the load; the futex's own lock orders a wake |
//! | store 0 | `take_down` | Relaxed | who rings now rings in vain |

use crate::sync::{fence, AtomicU32, Ordering};

const HANGS: u32 = 1;

/// Tells who parks that somebody runs.
#[derive(Debug)]
pub struct Bell {
    word: AtomicU32,
}

impl Bell {
    /// A bell that does not hang.
    #[must_use]
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
        }
    }

    /// From here on the caller is rung for. What it looks at afterwards is what those have written who did not ring, or
    /// newer.
    pub fn hang_up(&self) {
        // Relaxed: ordered by the fence.
        self.word.store(HANGS, Ordering::Relaxed);
        // SeqCst: with the fence in `ring`.
        fence(Ordering::SeqCst);
    }

    /// Nobody waits any more.
    pub fn take_down(&self) {
        // Relaxed: who rings now rings in vain.
        self.word.store(0, Ordering::Relaxed);
    }

    /// Whether somebody waits, who is then to be woken: the bell no longer hangs, so that the next to come need not. What
    /// the caller has written before is seen by whoever hangs it up later. Async-signal-safe.
    #[inline]
    #[must_use]
    pub fn ring(&self) -> bool {
        // SeqCst: with the fence in `hang_up`.
        fence(Ordering::SeqCst);
        // Relaxed, both: ordered by the fence; a second ring does no harm.
        if self.word.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.word.store(0, Ordering::Relaxed);
        true
    }

    /// The bell hangs, so that the kernel lets the one whom it is for go on sleeping. For the models, which have no futex.
    #[cfg(loom)]
    #[must_use]
    pub fn hangs(&self) -> bool {
        // Relaxed: asked when all threads have ended.
        self.word.load(Ordering::Relaxed) == HANGS
    }

    /// The word that the futex is: 1 while the bell hangs.
    #[cfg(not(loom))]
    pub fn futex(&self) -> *mut u32 {
        self.word.as_ptr()
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}
