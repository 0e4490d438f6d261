//! Declarations of Cairn's C interface, and its C sources,
//! which cargo compiles and links. `cairn-alloc` is the safe interface on top of it.
//!
//! Every function, struct and constant of the C headers has its C name here; the headers document
//! each one's purpose, threads and errors. Inline functions have no symbol; some of them are
//! available as `cairn_sys_…`.
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
//! - without it: TLSF alone, compiled freestanding, for programs without an operating system. A
//!   misuse is then a panic with TLSF's message.
//! - `hardened-light`, `hardened`: the hardened forms of the library.
//! - `verify`: the structures' verifiers run on every slow path.
#![no_std]
// Names as in C.
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
    /// Returns the address of this thread's error number in libc.
    #[cfg(feature = "heap")]
    #[link_name = "__errno_location"]
    pub fn errno_location() -> *mut core::ffi::c_int;
}

#[cfg(all(doctest, feature = "heap"))]
#[doc = include_str!("../README.md")]
struct Readme;
