//! The skin between the VM and the core.
//!
//! Law of the room: it translates and decides nothing. Every entry point goes guard → options → core
//! → values; a panic is caught and a Ruby exception is raised only in [`guard`], where nothing is
//! owned any more (I11). It is the only crate that names `rb-sys`.
//!
//! | file | noun |
//! | --- | --- |
//! | [`api`] | the methods of `RingProf` |
//! | [`state`] | the session and the VALUEs that go with it, and how GC marks them |
//! | [`hooks`] | the VM as the core sees it; every fork by Ruby version |
//! | [`options`] | keywords → configuration |
//! | [`results`], [`names`] | profile → StackProf's Hash |
//! | [`extras`] | what that Hash has beyond StackProf's keys |
//! | [`allocations`] | object mode's tracepoint |
//! | [`threads`] | threads born and gone |
//! | [`thread_events`] | threads that give the GVL up and come back |
//! | [`shutdown`] | exits |
//! | [`stats`] | self-report → Hash |

mod allocations;
mod api;
mod extras;
#[cfg(feature = "testing")]
mod faults;
mod guard;
mod gvl;
mod hooks;
mod lists;
mod names;
mod options;
mod results;
mod shutdown;
mod state;
mod stats;
#[cfg(feature = "testing")]
mod testing;
mod thread_events;
mod threads;
mod values;

// `rb-sys` defines this for development versions of Ruby, which look it up; releases do not, and the
// library exports its entry point alone.
core::arch::global_asm!(".hidden ruby_abi_version");

/// Called by Ruby when the library is loaded.
#[no_mangle]
pub extern "C" fn Init_ringprof() {
    guard::entry(|gvl| {
        if !hooks::is_built_for_this_ruby() {
            let (major, minor) = hooks::version();
            return Err(guard::Failure::Unloadable(format!(
                "ringprof's extension was built for Ruby {major}.{minor} and this is Ruby {}: build it with this one",
                hooks::running_version()
            )));
        }
        state::create(gvl)?;
        api::define(gvl)?;
        #[cfg(feature = "testing")]
        testing::define(gvl)?;
        #[cfg(feature = "testing")]
        faults::define(gvl)?;
        Ok(values::NIL)
    });
}
