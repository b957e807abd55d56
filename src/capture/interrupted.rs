//! Where the signal found the thread: in a system call, or running.
//!
//! A thread that waits for the GVL, sleeps or does I/O is in a system call; one that marks or sweeps
//! is running. The CPU clock cannot tell as well: on a busy machine a thread in GC may have had
//! little of the last interval, and a sleeper's handlers use some of it.

use std::ffi::c_void;

/// Whether the thread was in a system call when the signal came; `None` where that cannot be seen.
/// Async-signal-safe.
///
/// # Safety
/// `context` is null or what the kernel passed to a handler.
#[inline]
#[must_use]
pub unsafe fn in_system_call(context: *const c_void) -> Option<bool> {
    if context.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { instructions_around(context.cast()) }.map(|around| around.contains(&SYSTEM_CALL))
}

#[cfg(target_arch = "x86_64")]
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
#[cfg(target_arch = "x86_64")]
type Instruction = [u8; 2];

#[cfg(target_arch = "aarch64")]
const SYSTEM_CALL: [u8; 4] = 0xd400_0001_u32.to_le_bytes();
#[cfg(target_arch = "aarch64")]
type Instruction = [u8; 4];

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SYSTEM_CALL: [u8; 0] = [];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Instruction = [u8; 0];

/// The instruction that ends where the thread will go on, and the one that begins there: a system call
/// that was interrupted lies before; one that the kernel will begin anew it has stepped back to already
/// (`arch/x86/kernel/signal.c`, `handle_signal`; arm64 does the same).
unsafe fn instructions_around(context: *const libc::ucontext_t) -> Option<[Instruction; 2]> {
    // SAFETY: the caller's promise.
    #[cfg(target_arch = "x86_64")]
    let next = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize };
    // SAFETY: the caller's promise.
    #[cfg(target_arch = "aarch64")]
    let next = unsafe { (*context).uc_mcontext.pc as usize };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return None;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let size = size_of::<Instruction>();
        let place = next & 0xfff;
        // The pages before and behind may not be there; no system call lies across two in practice.
        let before = place >= size;
        let at = place + size <= 0x1000;
        // SAFETY: on the page of the code that was about to run.
        let read =
            |address: usize| unsafe { std::ptr::read_unaligned(address as *const Instruction) };
        Some([
            if before {
                read(next - size)
            } else {
                Instruction::default()
            },
            if at {
                read(next)
            } else {
                Instruction::default()
            },
        ])
    }
}
