//! Threads that give the GVL up and come back, as the VM tells it (3.2+).
//!
//! The events come without the GVL, or with a lock of the VM held: nothing of Ruby is called here. Up to
//! 3.2 they do not name the thread; it is then the calling one.

use ringprof_core::capture::Shared;
use std::sync::atomic::{AtomicPtr, Ordering};

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

/// Whether this VM tells.
pub const KNOWN: bool = cfg!(ruby_gte_3_2);

/// Makes known, at load, whom the events are for.
pub fn serve(shared: &'static Shared) {
    // Release: pairs with the Acquire in the events.
    SHARED.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Release);
}

#[cfg(ruby_gte_3_2)]
pub use told::{unwatch, watch};

#[cfg(ruby_gte_3_2)]
mod told {
    use super::SHARED;
    use rb_sys::VALUE;
    use ringprof_core::capture::control::Token;
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

    /// `rb_internal_thread_event_data_t`, of which only the first field is public (3.3+).
    #[repr(C)]
    struct EventData {
        thread: VALUE,
    }

    type Callback = unsafe extern "C" fn(u32, *const EventData, *mut c_void);

    // `ruby/thread.h`
    const READY: u32 = 1 << 1;
    const RESUMED: u32 = 1 << 2;
    const SUSPENDED: u32 = 1 << 3;
    const EXITED: u32 = 1 << 4;

    extern "C" {
        fn rb_internal_thread_add_event_hook(
            callback: Callback,
            events: u32,
            data: *mut c_void,
        ) -> *mut c_void;
        fn rb_internal_thread_remove_event_hook(hook: *mut c_void) -> bool;
    }

    /// The hook, while it is installed.
    static HOOK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    /// The process that installed it.
    static PROCESS: AtomicI32 = AtomicI32::new(0);

    thread_local! {
        /// The token of this native thread's Ruby thread when it was last looked up.
        static OWN: Cell<u64> = const { Cell::new(0) };
    }

    /// Follows the events from now on. Under the GVL.
    pub fn watch() {
        // Relaxed, all here: under the GVL.
        if HOOK.load(Ordering::Relaxed).is_null() {
            // SAFETY: a function that lives as long as the process; not inside of a hook.
            let hook = unsafe {
                rb_internal_thread_add_event_hook(
                    on_event,
                    READY | RESUMED | SUSPENDED | EXITED,
                    std::ptr::null_mut(),
                )
            };
            HOOK.store(hook, Ordering::Relaxed);
            PROCESS.store(std::process::id() as i32, Ordering::Relaxed);
        }
    }

    /// Stops following. Under the GVL. In a forked child the hook stays, with nothing to do: a thread of
    /// the parent's may have been inside, and the lock that removing takes would never come free.
    pub fn unwatch() {
        // Relaxed, all here: under the GVL.
        if PROCESS.load(Ordering::Relaxed) != std::process::id() as i32 {
            return;
        }
        let hook = HOOK.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if !hook.is_null() {
            // SAFETY: what `watch` got; not inside of a hook.
            unsafe { rb_internal_thread_remove_event_hook(hook) };
        }
    }

    unsafe extern "C" fn on_event(event: u32, data: *const EventData, _: *mut c_void) {
        // Acquire: pairs with the Release in `serve`.
        // SAFETY: (I8) null or leaked.
        let Some(shared) = (unsafe { SHARED.load(Ordering::Acquire).as_ref() }) else {
            return;
        };
        let hint = OWN.with(|own| Token::from_bits(own.get()));
        let token = if cfg!(ruby_gte_3_3) && !data.is_null() {
            // SAFETY: the VM's own data, alive during this call.
            shared.find_thread(unsafe { (*data).thread }, hint)
        } else {
            // SAFETY: gettid has no preconditions.
            shared.find(unsafe { libc::gettid() })
        };
        let Some(token) = token else {
            return;
        };
        match event {
            READY => return shared.waits(token),
            RESUMED => shared.resumed(token),
            SUSPENDED => shared.suspended(token),
            EXITED => shared.dismiss(token),
            _ => {}
        }
        // All but READY come on the thread itself.
        if hint != Some(token) {
            OWN.with(|own| own.set(token.to_bits()));
        }
    }
}

/// This VM does not tell.
#[cfg(not(ruby_gte_3_2))]
pub fn watch() {}

/// This VM does not tell.
#[cfg(not(ruby_gte_3_2))]
pub fn unwatch() {}
