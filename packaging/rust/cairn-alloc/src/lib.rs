//! Cairn's allocators for Rust.
//!
//! | what | for |
//! |---|---|
//! | [`Cairn`] | the program's heap, as `#[global_allocator]` |
//! | [`Heap`] | a heap of its own, with a limit, that ends with all its blocks |
//! | [`scope()`], [`Stack`] | memory that ends with a scope; a pointer cannot outlive it |
//! | [`Ring`] | frames made by one thread and released by any, in any order |
//! | [`Fifo`] | objects that die about in the order in which they were made |
//! | [`Pool`] | objects of one type, got and put back in any order |
//! | [`Tlsf`] | constant time over memory of the caller's, also without an operating system |
//! | [`persist::PersistentHeap`] | a heap in a file, safe from kills and power loss |
//!
//! ```
//! use cairn_alloc::Cairn;
//!
//! #[global_allocator]
//! static HEAP: Cairn = Cairn;
//!
//! let words = vec!["every", "allocation", "is", "Cairn's"];
//! assert!(Cairn::stats().allocated_blocks > 0);
//! # drop(words);
//! ```
//!
//! # Features
//! `std` (default): what needs paths and `io::Error`. `heap`: all that needs Linux. With neither,
//! TLSF is left, `no_std` and without libc. `hardened` and `hardened-light` are the hardened forms
//! of the library, `allocator-api2` lets the containers of `hashbrown` and `allocator-api2` live in
//! the allocators, `verify` runs the structures' verifiers on every slow path.
//!
//! # Misuse and panics
//! The library ends the process with one line when it finds misuse, such as a double free. Safe
//! code cannot cause it. Where memory is out, `try_` functions say so and the others panic.
#![no_std]

#[cfg(feature = "std")]
extern crate std;

pub use cairn_sys as sys;

#[cfg(feature = "allocator-api2")]
mod api2;
#[cfg(feature = "heap")]
mod bump;
mod error;
#[cfg(feature = "heap")]
mod fifo;
#[cfg(feature = "heap")]
mod heap;
#[cfg(feature = "heap")]
mod heaps;
pub mod offset;
#[cfg(feature = "std")]
pub mod persist;
#[cfg(feature = "heap")]
mod pool;
#[cfg(feature = "heap")]
mod ring;
#[cfg(feature = "heap")]
mod scope;
#[cfg(feature = "heap")]
mod stack;
mod tlsf;

#[cfg(feature = "allocator-api2")]
pub use api2::TlsfAllocator;
#[cfg(all(feature = "allocator-api2", feature = "heap"))]
pub use api2::{PoolAllocator, ScopeAllocator};
pub use error::Error;
#[cfg(feature = "heap")]
pub use fifo::{Fifo, FifoBox};
#[cfg(feature = "heap")]
pub use heap::{Cairn, HeapStats};
#[cfg(feature = "heap")]
pub use heaps::{Heap, HeapBox, OwnStats};
#[cfg(feature = "heap")]
pub use pool::{Local, Magazine, Pool, PoolBox, Shared};
#[cfg(feature = "heap")]
pub use ring::{Contents, Frame, Making, Ring};
#[cfg(feature = "heap")]
pub use scope::{Scope, ScopeBox, scope, try_scope};
#[cfg(feature = "heap")]
pub use stack::{Stack, StackOptions};
pub use tlsf::{Tlsf, TlsfBox};

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
