//! Long Arrays of Integers and immortal VALUEs, made in one piece.
//!
//! An Array that grows by single pushes is copied again and again, and holds up to twice its memory meanwhile.

use crate::values::{self, NIL};
use rb_sys::VALUE;
use std::ffi::c_long;

/// Items that are handed to the Array at a time.
const BATCH: usize = 512;

/// An Array that is being filled. What waits in it is not marked, so it takes nothing that could be collected.
pub struct List {
    array: VALUE,
    batch: [VALUE; BATCH],
    len: usize,
}

impl List {
    /// An empty one, with memory for `items`. Inside `protect`; lives on this stack, where GC finds the Array.
    pub unsafe fn with_room(items: u64) -> Self {
        let room = c_long::try_from(items).unwrap_or(0);
        Self {
            // SAFETY: the VM raises when it has no memory.
            array: unsafe { rb_sys::rb_ary_new_capa(room) },
            batch: [NIL; BATCH],
            len: 0,
        }
    }

    /// Appends `nil`, a Symbol or a small Integer.
    #[inline]
    pub unsafe fn push(&mut self, value: VALUE) {
        if self.len == BATCH {
            // SAFETY: as below.
            unsafe { self.flush() };
        }
        self.batch[self.len] = value;
        self.len += 1;
    }

    /// Appends an Integer.
    #[inline]
    pub unsafe fn push_integer(&mut self, number: i64) {
        // SAFETY: an Array and a VALUE; one that is no Fixnum goes into the Array at once.
        unsafe {
            match values::fixnum(number) {
                Some(value) => self.push(value),
                None => {
                    self.flush();
                    rb_sys::rb_ary_push(self.array, rb_sys::rb_ll2inum(number));
                }
            }
        }
    }

    /// The Array.
    pub unsafe fn finish(mut self) -> VALUE {
        // SAFETY: as below.
        unsafe { self.flush() };
        self.array
    }

    unsafe fn flush(&mut self) {
        // SAFETY: `len` VALUEs of the batch were set.
        unsafe { rb_sys::rb_ary_cat(self.array, self.batch.as_ptr(), self.len as c_long) };
        self.len = 0;
    }
}

/// An Array of `count` numbers below 2^63.
pub unsafe fn numbers(count: u64, values: impl Iterator<Item = u64>) -> VALUE {
    // SAFETY: a list on this stack.
    unsafe {
        let mut list = List::with_room(count);
        for value in values {
            list.push_integer(i64::try_from(value).unwrap_or(i64::MAX));
        }
        list.finish()
    }
}
