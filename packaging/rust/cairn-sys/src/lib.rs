//! Declarations of Cairn's C interface, and its C sources,
//! which cargo compiles and links. `cairn-alloc` is the safe interface on top of it.
//!
//! Every function, struct and constant of the C headers is here under its C name; the headers say
//! what it does, who may call it and how it fails. Inline functions have no symbol; some of them
//! stand here under `cairn_sys_…`.
//!
//! ```
//! // SAFETY: a block is freed once, and written within its size.
//! unsafe {
//!     let block = cairn_sys::cairn_malloc(100).cast::<u8>();
//!     assert!(!block.is_null());
//!     block.write_bytes(7, 100);
//!     assert!(cairn_sys::cairn_malloc_usable_size(block.cast()) >= 100);
//!     cairn_sys::cairn_free(block.cast());
//! }
//! ```
//!
//! # Features
//! - `heap` (default): all of Cairn, for Linux.
//! - without it: TLSF alone, compiled freestanding, for programs without an operating system. What
//!   TLSF dies of is then a panic: its line is given to the panic handler.
//! - `hardened-light`, `hardened`: the hardened forms of the library.
//! - `verify`: the structures' verifiers run on every slow path.
#![no_std]
// The names are those of C.
#![allow(non_camel_case_types)]

#[allow(missing_docs, clippy::pedantic)]
#[rustfmt::skip]
mod functions;
#[allow(missing_docs, clippy::pedantic)]
#[rustfmt::skip]
mod types;
pub use functions::*;
pub use types::*;

#[cfg(not(feature = "heap"))]
pub mod host;

unsafe extern "C" {
    /// Where libc keeps this thread's error number.
    #[cfg(feature = "heap")]
    #[link_name = "__errno_location"]
    pub fn errno_location() -> *mut core::ffi::c_int;
}

#[cfg(all(doctest, feature = "heap"))]
#[doc = include_str!("../README.md")]
struct Readme;
