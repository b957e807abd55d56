//! The Ruby-free core of RingProf.
//!
//! # Anatomy
//!
//! | room | what it holds | law |
//! | --- | --- | --- |
//! | [`sample`] | the words of one record | encoding and decoding, no behaviour |
//! | [`ring`] | the words ring | one producer, one consumer, wait-free, never allocates after birth, no Ruby |
//! | [`capture`] | signal handler, tick sources, control blocks | runs inside a signal: no allocation, lock, wait, panic |
//! | [`drain`] | calling-context tree and what is derived from it | one consumer under the GVL, never a Ruby object |
//! | [`config`] | options as validated values | every refusal and its message |
//! | [`roster`] | who is sampled, and was | under the GVL |
//! | [`session`] | composes the three | knows the order of start and stop |
//!
//! Ruby itself is seen only through [`capture::vm_hooks::VmHooks`], a table of C function pointers
//! that the extension fills in; tests fill it with fakes.

#![cfg_attr(rtsan, feature(sanitize))]

#[cfg(loom)]
compile_error!(
    "the core is not built with --cfg loom; run: cargo test -p loom-tests --profile loom"
);

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "RingProf needs 64-bit Linux: its ticks are thread-directed signals with a 64-bit value"
);

pub mod capture;
pub mod config;
pub mod drain;
pub mod ring;
pub mod roster;
pub mod sample;
pub mod session;
pub mod sync;
