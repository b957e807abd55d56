//! A frame's name, file and first line. All of it allocates: only inside `protect`, under the GVL.

use crate::values::{self, call, NIL};
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
        let mut name = rb_sys::rb_profile_frame_full_label(frame);
        if name == NIL {
            name = rb_sys::rb_profile_frame_label(frame);
        }
        let mut file = rb_sys::rb_profile_frame_absolute_path(frame);
        if file == NIL {
            file = rb_sys::rb_profile_frame_path(frame);
        }
        let line = rb_sys::rb_profile_frame_first_lineno(frame);
        Named {
            name: readable(name),
            file: readable(file),
            line: (line != values::integer(0)).then_some(line),
        }
    }
}

/// A String of its own (results may be changed by whoever holds them) in valid UTF-8, so that JSON
/// takes it whatever a method was called.
fn readable(text: VALUE) -> VALUE {
    if text == NIL {
        return values::string("");
    }
    let text = call(text, c"dup", &[]);
    // SAFETY: a String; the encodings are static.
    let encoded = unsafe {
        let encoding = rb_sys::rb_enc_get(text);
        if encoding == rb_sys::rb_utf8_encoding() || encoding == rb_sys::rb_usascii_encoding() {
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
        }
    };
    call(encoded, c"scrub", &[])
}

/// `ECONV_INVALID_REPLACE | ECONV_UNDEF_REPLACE`.
const REPLACE: i32 = 0x02 | 0x20;
