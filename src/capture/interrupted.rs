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
    unsafe { instruction_before(context.cast()) }.map(|instruction| instruction == SYSTEM_CALL)
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

/// The instruction that ends where the thread will go on: that of the system call, if it was in one
/// (also when the kernel is to begin the call anew, for then it steps back only after the handler).
unsafe fn instruction_before(context: *const libc::ucontext_t) -> Option<Instruction> {
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
        // The page before may not be there; no system call ends at the start of one in practice.
        if next & 0xfff < size {
            return Some(Instruction::default());
        }
        // SAFETY: on the page of the code that was about to run.
        Some(unsafe { std::ptr::read_unaligned((next - size) as *const Instruction) })
    }
}
