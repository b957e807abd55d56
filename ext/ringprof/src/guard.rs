//! Where panics and Ruby's longjmps meet, and nowhere else (I11).
//!
//! Ruby code is called inside [`protect`], so a raise comes back as a value; Rust code runs inside
//! [`entry`], so a panic does. Only when every owned value is dropped does [`entry`] raise.

use crate::gvl::Gvl;
use crate::state;
use crate::values::{self, NIL};
use rb_sys::VALUE;
use ringprof_core::config::Refusal;
use ringprof_core::drain::NoMemory;
use std::any::Any;
use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Why an entry point cannot return a value.
#[derive(Debug)]
pub enum Failure {
    /// An option was refused: `ArgumentError`.
    Refused(Refusal),
    /// Something is wrong with the machine or with us: `RingProf::Error`.
    Failed(String),
    /// The library is not for this Ruby: `LoadError`.
    Unloadable(String),
    /// Ruby raised; the tag to go on with.
    Raised(c_int),
    /// Wrong number of arguments.
    Arity(c_int),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<NoMemory> for Failure {
    fn from(error: NoMemory) -> Self {
        Self::Failed(format!("{error}; the profile is kept, ask again"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Runs the body of an entry point called by Ruby under the GVL, and raises what it failed with.
pub fn entry(body: impl FnOnce(Gvl) -> Result<VALUE, Failure>) -> VALUE {
    // SAFETY: Ruby calls methods of an extension under the GVL; an extension that has not declared
    // itself safe for ractors is callable from the main one alone.
    let gvl = unsafe { Gvl::assume() };
    let failure = match catch_unwind(AssertUnwindSafe(|| body(gvl))) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            state::note_panic();
            Failure::Failed(format!("internal error: {}", panic_text(&*panic)))
        }
    };
    raise(failure)
}

/// Runs a body that Ruby calls where nothing may be raised (hooks, jobs). A panic in there is a bug of
/// ours, whose message is printed: it ends the profile, not the program.
pub fn quiet(body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        state::note_panic();
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic")
}

fn raise(failure: Failure) -> VALUE {
    let exception = match failure {
        // SAFETY: (I11) a tag that rb_protect gave; nothing is owned in this frame or above it.
        Failure::Raised(tag) => unsafe { rb_sys::rb_jump_tag(tag) },
        // SAFETY: (I11) as above.
        Failure::Arity(given) => unsafe { rb_sys::rb_error_arity(given, 0, 0) },
        Failure::Refused(refusal) => {
            // SAFETY: the class is there since boot.
            exception(unsafe { rb_sys::rb_eArgError }, refusal.message())
        }
        Failure::Failed(message) => exception(error_class(), &message),
        // SAFETY: the class is there since boot.
        Failure::Unloadable(message) => exception(unsafe { rb_sys::rb_eLoadError }, &message),
    };
    // The message, if it was ours, has been dropped.
    match exception {
        // SAFETY: (I11) nothing is owned in this frame or above it.
        Ok(exception) => unsafe { rb_sys::rb_exc_raise(exception) },
        // SAFETY: (I11) as above.
        Err(tag) => unsafe { rb_sys::rb_jump_tag(tag) },
    }
}

/// `RingProf::Error`, or `RuntimeError` before it is defined.
fn error_class() -> VALUE {
    let found = protect(|| {
        // SAFETY: a C string.
        unsafe { rb_sys::rb_path2class(c"RingProf::Error".as_ptr()) }
    });
    found.unwrap_or_else(|_| {
        // SAFETY: forgets the NameError that rb_protect left; the class is there since boot.
        unsafe {
            rb_sys::rb_set_errinfo(NIL);
            rb_sys::rb_eRuntimeError
        }
    })
}

fn exception(class: VALUE, message: &str) -> Result<VALUE, c_int> {
    protect(|| {
        let message = values::string(message);
        // SAFETY: a class of exceptions and a String.
        unsafe { rb_sys::rb_exc_new_str(class, message) }
    })
    .map_err(|failure| match failure {
        Failure::Raised(tag) => tag,
        // `protect` fails in no other way.
        _ => 0,
    })
}

/// Runs `body`, which may raise, and brings the raise back as [`Failure::Raised`]. When it raises,
/// `body`'s frame is jumped over: it must own nothing, only borrow (I11).
pub fn protect(body: impl FnOnce() -> VALUE) -> Result<VALUE, Failure> {
    struct Call<F> {
        body: Option<F>,
        panic: Option<Box<dyn Any + Send>>,
    }

    unsafe extern "C" fn trampoline<F: FnOnce() -> VALUE>(call: VALUE) -> VALUE {
        // SAFETY: `protect` passes its own live `Call`.
        let call = unsafe { &mut *(call as *mut Call<F>) };
        let Some(body) = call.body.take() else {
            return NIL;
        };
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(value) => value,
            Err(panic) => {
                call.panic = Some(panic);
                NIL
            }
        }
    }

    fn trampoline_of<F: FnOnce() -> VALUE>(_: &F) -> unsafe extern "C" fn(VALUE) -> VALUE {
        trampoline::<F>
    }

    let function = trampoline_of(&body);
    let mut call = Call {
        body: Some(body),
        panic: None,
    };
    let mut tag = 0;
    // SAFETY: the trampoline gets the `Call` that it expects; the raise stops here.
    let value = unsafe { rb_sys::rb_protect(Some(function), &raw mut call as VALUE, &raw mut tag) };
    if let Some(panic) = call.panic {
        std::panic::resume_unwind(panic);
    }
    if tag == 0 {
        Ok(value)
    } else {
        Err(Failure::Raised(tag))
    }
}
