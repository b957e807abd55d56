//! Law of this file: no handler calls into a library whose thread-local storage the loader has yet to give to the thread.
//!
//! A shared libruby asks `__tls_get_addr` for its thread-local variables, and most of what the handler calls reads one.
//! That is a look into a table of the thread, as long as the library's entry there is filled. Where it is not, the loader
//! takes its lock. The lock is recursive, but a signal can come between the two halves of taking it or of giving it back,
//! in the very thread, and then the handler would wait for ever. So the handler looks at the entry first.
//!
//! The table and its entries are part of glibc's interface for debuggers (`nptl_db`) and have not changed since 2.3:
//! `dtv[-1]` is the number of entries, `dtv[n]` that of module n, 16 bytes each, and a first word of all ones is an entry
//! to be filled. On other C libraries and processors nothing is known, and nothing refused.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Module number that stands for none: nothing is asked.
const NONE: usize = 0;
/// `TLS_DTV_UNALLOCATED`.
const UNFILLED: usize = usize::MAX;

/// The library whose storage is looked for.
#[derive(Debug, Default)]
pub struct ThreadStorage {
    module: AtomicUsize,
}

/// What the search for a library is passed.
struct Search {
    address: usize,
    module: usize,
}

impl ThreadStorage {
    /// From now on: the storage of the library that has `function`, which the calling thread has used. The main
    /// program's is part of every thread from its birth, so nobody asks the loader for it. Never in a handler.
    pub fn watch_library_of(&self, function: *const c_void) {
        let mut search = Search {
            address: function as usize,
            module: NONE,
        };
        // SAFETY: the callback has the type that is asked for, and `search` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(has_address), (&raw mut search).cast()) };
        self.watch(search.module);
        if !self.is_there() {
            // Not here, where it has been used: what is known of the table does not hold, and would refuse every tick.
            self.watch(NONE);
        }
    }

    /// From now on: the storage of that module, 0 for none.
    pub fn watch(&self, module: usize) {
        // Relaxed: set before there are handlers.
        self.module.store(module, Ordering::Relaxed);
    }

    /// The module whose storage is looked for; 0 for none.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn watched(&self) -> usize {
        // Relaxed: see `watch`.
        self.module.load(Ordering::Relaxed)
    }

    /// Whether the calling thread has it. Async-signal-safe.
    #[inline]
    #[must_use]
    pub fn is_there(&self) -> bool {
        // Relaxed: see `watch`.
        let module = self.module.load(Ordering::Relaxed);
        // SAFETY: (I6) the calling thread's own table, which only this thread changes.
        module == NONE || unsafe { is_filled(table(), module) }
    }
}

/// One library of `dl_iterate_phdr`; 1 ends the search.
unsafe extern "C" fn has_address(
    library: *mut libc::dl_phdr_info,
    _: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: what the loader and `watch_library_of` pass.
    let (library, search) = unsafe { (&*library, &mut *search.cast::<Search>()) };
    // SAFETY: the loader's description of the library's segments.
    let segments =
        unsafe { std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum)) };
    let found = segments.iter().any(|segment| {
        let begin = (library.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
        segment.p_type == libc::PT_LOAD
            && (begin..begin + segment.p_memsz as usize).contains(&search.address)
    });
    // SAFETY: a C string; the main program's is empty.
    let is_program = unsafe { library.dlpi_name.is_null() || *library.dlpi_name == 0 };
    if found && !is_program {
        search.module = library.dlpi_tls_modid;
    }
    c_int::from(found)
}

/// The thread's table; null where it is not known.
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(miri)
))]
#[inline]
fn table() -> *const [usize; 2] {
    let table: *const [usize; 2];
    // SAFETY: reads `tcbhead_t.dtv`, the second word of the thread's control block.
    unsafe {
        std::arch::asm!("mov {}, fs:[8]", out(reg) table, options(nostack, pure, readonly, preserves_flags));
    }
    table
}

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(miri)
)))]
#[inline]
fn table() -> *const [usize; 2] {
    std::ptr::null()
}

/// Whether that table has an entry for that module, and a filled one.
///
/// # Safety
/// `table` is null or a thread's table.
#[inline]
unsafe fn is_filled(table: *const [usize; 2], module: usize) -> bool {
    if table.is_null() {
        return true;
    }
    // SAFETY: (I6) by the caller; the number of entries is checked before an entry is read. Volatile, because the loader
    // fills entries in code that this one may have interrupted.
    unsafe {
        let entries = std::ptr::read_volatile(table.sub(1))[0];
        module <= entries && std::ptr::read_volatile(table.add(module))[0] != UNFILLED
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_there_when_it_is_filled_and_within_the_table() {
        let table = [[2, 0], [7, 0], [0x7000, 0], [UNFILLED, 0], [0x8000, 0]];
        // SAFETY: the second element is where the entries begin; two of them count.
        let filled = |module| unsafe { is_filled(table.as_ptr().add(1), module) };
        assert!(filled(1));
        assert!(!filled(2));
        assert!(!filled(3), "beyond the table");
        // SAFETY: null is allowed.
        assert!(unsafe { is_filled(std::ptr::null(), 1) });
    }

    #[test]
    fn the_library_of_a_function_is_found_with_its_storage() {
        let storage = ThreadStorage::default();
        assert!(storage.is_there(), "nothing is watched");
        // libc has errno, and this thread has it.
        storage.watch_library_of(libc::__errno_location as *const c_void);
        assert_ne!(storage.watched(), NONE);
        assert!(storage.is_there());
        let of_the_program: fn() = the_library_of_a_function_is_found_with_its_storage;
        for nothing_to_ask in [of_the_program as *const c_void, std::ptr::null()] {
            storage.watch_library_of(nothing_to_ask);
            assert_eq!(storage.watched(), NONE);
        }
        storage.watch(1 << 40);
        assert_eq!(storage.is_there(), table().is_null());
    }
}
