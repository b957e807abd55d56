//! VALUEs of the VM, and calls that may raise.

use crate::guard::{protect, Failure};
use rb_sys::{ID, VALUE};
use std::ffi::CStr;

/// `nil`.
pub const NIL: VALUE = rb_sys::Qnil as VALUE;
/// `true`.
pub const TRUE: VALUE = rb_sys::Qtrue as VALUE;
/// `false`.
pub const FALSE: VALUE = rb_sys::Qfalse as VALUE;

/// `true` or `false`.
pub const fn boolean(value: bool) -> VALUE {
    if value {
        TRUE
    } else {
        FALSE
    }
}

/// Whether Ruby takes the value for true.
pub const fn truthy(value: VALUE) -> bool {
    value != NIL && value != FALSE
}

/// The id of a name.
pub fn id(name: &CStr) -> ID {
    // SAFETY: a C string; interning raises only when memory is out.
    unsafe { rb_sys::rb_intern(name.as_ptr()) }
}

/// The Symbol of a name; immortal, so it needs no marking.
pub fn symbol(name: &CStr) -> VALUE {
    // SAFETY: an id that was just interned.
    unsafe { rb_sys::rb_id2sym(id(name)) }
}

/// An Integer. May raise when memory is out: only inside [`protect`].
#[inline]
pub fn integer(number: u64) -> VALUE {
    let small = i64::try_from(number).ok().and_then(fixnum);
    // SAFETY: no preconditions.
    small.unwrap_or_else(|| unsafe { rb_sys::rb_ull2inum(number) })
}

/// An Integer that is no object: the number times two, and the lowest bit set (`RUBY_FIXNUM_FLAG`,
/// `ruby/internal/special_consts.h`). `None` for one that has 64 bits.
#[inline]
pub const fn fixnum(number: i64) -> Option<VALUE> {
    match number.checked_mul(2) {
        Some(doubled) => Some(doubled as VALUE | 1),
        None => None,
    }
}

/// A String of UTF-8. May raise when memory is out: only inside [`protect`].
pub fn string(text: &str) -> VALUE {
    // SAFETY: the VM copies `len` bytes.
    unsafe { rb_sys::rb_utf8_str_new(text.as_ptr().cast(), text.len() as _) }
}

/// The text of a String, with what is no UTF-8 replaced.
pub fn text(string: VALUE) -> String {
    // SAFETY: a String, which lives through the call.
    let bytes = unsafe {
        std::slice::from_raw_parts(
            rb_sys::macros::RSTRING_PTR(string).cast::<u8>(),
            rb_sys::macros::RSTRING_LEN(string) as usize,
        )
    };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Calls a method. May raise: only inside [`protect`].
pub fn call(receiver: VALUE, method: &CStr, arguments: &[VALUE]) -> VALUE {
    // SAFETY: as many arguments as are said.
    unsafe {
        rb_sys::rb_funcallv(
            receiver,
            id(method),
            arguments.len() as _,
            arguments.as_ptr(),
        )
    }
}

/// Calls a method and brings what it raises back as a failure.
pub fn try_call(receiver: VALUE, method: &CStr, arguments: &[VALUE]) -> Result<VALUE, Failure> {
    protect(|| call(receiver, method, arguments))
}

/// `hash[key]`, or `nil`.
pub fn lookup(hash: VALUE, key: &CStr) -> VALUE {
    // SAFETY: `hash` is a Hash with Symbol keys, whose hashing runs no Ruby code.
    unsafe { rb_sys::rb_hash_lookup2(hash, symbol(key), NIL) }
}

/// Defines a singleton method that takes no arguments but the receiver.
pub fn define_method(module: VALUE, name: &CStr, function: unsafe extern "C" fn(VALUE) -> VALUE) {
    // SAFETY: arity 0 means that the VM calls `function` with the receiver alone.
    unsafe {
        let function: unsafe extern "C" fn() -> VALUE = std::mem::transmute(function);
        rb_sys::rb_define_singleton_method(module, name.as_ptr(), Some(function), 0);
    }
}

/// Defines a singleton method that takes one argument.
#[cfg(feature = "testing")]
pub fn define_method1(
    module: VALUE,
    name: &CStr,
    function: unsafe extern "C" fn(VALUE, VALUE) -> VALUE,
) {
    // SAFETY: arity 1 means the receiver and one argument.
    unsafe {
        let function: unsafe extern "C" fn() -> VALUE = std::mem::transmute(function);
        rb_sys::rb_define_singleton_method(module, name.as_ptr(), Some(function), 1);
    }
}

/// Defines a singleton method that takes whatever it is given.
pub fn define_method_any(
    module: VALUE,
    name: &CStr,
    function: unsafe extern "C" fn(i32, *const VALUE, VALUE) -> VALUE,
) {
    // SAFETY: arity -1 means count, arguments, receiver.
    unsafe {
        let function: unsafe extern "C" fn() -> VALUE = std::mem::transmute(function);
        rb_sys::rb_define_singleton_method(module, name.as_ptr(), Some(function), -1);
    }
}
