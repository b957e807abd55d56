//! Holding the GVL, as a type.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

/// Proof that the calling thread holds the GVL of the main ractor. Made by [`crate::guard`] at each
/// entry point; cannot leave the thread.
#[derive(Clone, Copy, Debug)]
pub struct Gvl(PhantomData<*mut ()>);

impl Gvl {
    /// # Safety
    /// The calling thread holds the GVL of the main ractor.
    pub unsafe fn assume() -> Self {
        Self(PhantomData)
    }
}

/// A value whose lock is the GVL (I2).
#[derive(Debug)]
pub struct GvlCell<T>(UnsafeCell<T>);

// SAFETY: (I2) reached only with a `Gvl`, which one thread at a time can have.
unsafe impl<T> Sync for GvlCell<T> {}

impl<T> GvlCell<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Runs `body` with the value. `body` must not call anything of Ruby that could run Ruby code,
    /// allocate an object, or let the GVL go: those could come back here.
    pub fn with<R>(&self, _: Gvl, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: (I2) the token's thread is the only one here, and `body` does not come back.
        body(unsafe { &mut *self.0.get() })
    }

    /// The address, for GC's marking, which runs while the GVL's holder is inside the VM.
    pub const fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}
