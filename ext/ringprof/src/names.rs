//! A frame's name, file and first line. All of it allocates: only inside `protect`, under the GVL.

use crate::guard::{protect, Failure};
use crate::values::{self, NIL};
use rb_sys::VALUE;
use ringprof_core::sample::{FRAME_GC, FRAME_MARKING, FRAME_SWEEPING};

/// What people read of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Qualified name, a String of valid UTF-8.
    pub name: VALUE,
    /// Absolute path, else path, else `""`; `<cfunc>` for C functions. A String of valid UTF-8.
    pub file: VALUE,
    /// Line of the definition; `nil` for C functions and fake frames, `None` where the VM says 0.
    pub line: Option<VALUE>,
}

/// Names a frame. Fake ones never reach the VM, which would abort on them.
pub fn of(frame: VALUE) -> Named {
    let fake = match frame {
        FRAME_GC => Some("(garbage collection)"),
        FRAME_MARKING => Some("(marking)"),
        FRAME_SWEEPING => Some("(sweeping)"),
        _ => None,
    };
    if let Some(name) = fake {
        return Named {
            name: values::string(name),
            file: values::string(""),
            line: None,
        };
    }
    // SAFETY: (I7) a method entry or iseq, checked at capture and marked since.
    unsafe {
        let line = rb_sys::rb_profile_frame_first_lineno(frame);
        Named {
            name: first_readable(
                frame,
                &[
                    rb_sys::rb_profile_frame_full_label,
                    rb_sys::rb_profile_frame_label,
                    rb_sys::rb_profile_frame_base_label,
                ],
                "(unreadable name)",
            ),
            file: first_readable(
                frame,
                &[
                    rb_sys::rb_profile_frame_absolute_path,
                    rb_sys::rb_profile_frame_path,
                ],
                "",
            ),
            line: (line != values::integer(0)).then_some(line),
        }
    }
}

/// The first of these texts that the VM has and that can be turned into UTF-8. A class and a method
/// whose names have encodings that do not go together have no common name, and some encodings have
/// no way to UTF-8: that must not cost the profile.
unsafe fn first_readable(
    frame: VALUE,
    texts: &[unsafe extern "C" fn(VALUE) -> VALUE],
    otherwise: &str,
) -> VALUE {
    for text in texts {
        // SAFETY: the caller's promise for `frame`.
        let found = protect(|| match unsafe { text(frame) } {
            NIL => NIL,
            text => readable(text),
        });
        match found {
            Ok(NIL) => {}
            Ok(found) => return found,
            Err(failure) => forgive(failure),
        }
    }
    values::string(otherwise)
}

/// Forgets what a text raised, if it is about the text; goes on raising what is not, as for want of
/// memory.
fn forgive(failure: Failure) {
    let Failure::Raised(tag) = failure else {
        return;
    };
    // SAFETY: (I11) inside `protect`, and nothing is owned here or above; the class is there since boot.
    unsafe {
        let raised = rb_sys::rb_errinfo();
        if !values::truthy(rb_sys::rb_obj_is_kind_of(raised, rb_sys::rb_eStandardError)) {
            rb_sys::rb_jump_tag(tag);
        }
        rb_sys::rb_set_errinfo(NIL);
    }
}

/// A String of its own (results may be changed by whoever holds them) in valid UTF-8, so that JSON
/// takes it whatever a method was called.
///
/// Only functions of the VM, no methods: those of String are anybody's to redefine.
fn readable(text: VALUE) -> VALUE {
    // SAFETY: a String; the encodings are static.
    unsafe {
        let text = rb_sys::rb_str_dup(text);
        let encoding = rb_sys::rb_enc_get(text);
        let encoded = if encoding == rb_sys::rb_utf8_encoding()
            || encoding == rb_sys::rb_usascii_encoding()
        {
            text
        } else if encoding == rb_sys::rb_ascii8bit_encoding() {
            // Bytes without an encoding are UTF-8 more often than anything else.
            rb_sys::rb_enc_associate(text, rb_sys::rb_utf8_encoding())
        } else {
            rb_sys::rb_str_encode(
                text,
                rb_sys::rb_enc_from_encoding(rb_sys::rb_utf8_encoding()),
                REPLACE,
                NIL,
            )
        };
        // nil where there is nothing to mend.
        match rb_sys::rb_str_scrub(encoded, NIL) {
            NIL => encoded,
            mended => mended,
        }
    }
}

/// `ECONV_INVALID_REPLACE | ECONV_UNDEF_REPLACE`.
const REPLACE: i32 = 0x02 | 0x20;
