//! Atomics, cells and reference counts: `std` in the product, `loom` in the models.
//!
//! The only file that knows loom exists. It holds no behaviour of its own, so that what the models
//! explore is the code that ships.

pub use facade::{
    fence, write_words, yield_now, Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    UnsafeCell,
};

#[cfg(not(loom))]
mod facade {
    pub use std::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    pub use std::sync::Arc;
    pub use std::thread::yield_now;

    /// A cell whose content is reached by raw pointer only, in loom's manner.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        #[inline]
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Passes a pointer for reading to `f`. Reading through it is `f`'s responsibility: nobody
        /// may write meanwhile.
        #[inline(always)]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Passes a pointer for writing to `f`. Writing through it is `f`'s responsibility: nobody
        /// may read or write meanwhile.
        #[inline(always)]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    /// Copies `words` into `cells`, in one go.
    ///
    /// # Safety
    /// Both have the same length, and nobody else reads or writes `cells` meanwhile.
    #[inline(always)]
    pub unsafe fn write_words(cells: &[UnsafeCell<u64>], words: &[u64]) {
        let to = cells.as_ptr().cast::<u64>().cast_mut();
        // SAFETY: (I3) the caller owns the cells and gives equal lengths; a cell is a transparent
        // `u64` that may be written through a shared reference; `words` is a live shared slice and
        // the caller's sole ownership of the cells keeps the two apart.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), to, words.len()) }
    }
}

#[cfg(loom)]
mod facade {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    pub use loom::sync::Arc;
    pub use loom::thread::yield_now;

    /// Copies `words` into `cells`, one tracked cell at a time.
    ///
    /// # Safety
    /// Both have the same length, and nobody else reads or writes `cells` meanwhile.
    pub unsafe fn write_words(cells: &[UnsafeCell<u64>], words: &[u64]) {
        assert_eq!(cells.len(), words.len());
        for (cell, &word) in cells.iter().zip(words) {
            // SAFETY: (I3) the caller owns the cell; loom fails the model if it does not.
            cell.with_mut(|to| unsafe { *to = word });
        }
    }
}
