//! Cairn's allocators for Rust.
//!
//! | type | use |
//! |---|---|
//! | [`Cairn`] | the program's heap, as `#[global_allocator]` |
//! | [`PrivateHeap`] | a heap of its own, with a limit, that ends with all its blocks |
//! | [`scope()`], [`Stack`] | memory that ends with a scope; a pointer cannot outlive it |
//! | [`Ring`] | frames made by one thread and released by any, in any order |
//! | [`Fifo`] | objects that are freed in nearly the order of their allocation |
//! | [`Pool`] | objects of one type, allocated and freed in any order |
//! | [`Tlsf`] | constant-time allocation in the caller's memory, also without an operating system |
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
//! `std` (default) adds paths and `io::Error`; `heap` adds everything that needs Linux. Without
//! both, only TLSF remains: `no_std` and without libc. `hardened` and `hardened-light` select the
//! hardened forms of the library. `allocator-api2` lets the containers of `hashbrown` and
//! `allocator-api2` use the allocators. `verify` runs the structures' verifiers on every slow path.
//!
//! # Misuse and panics
//! When the library detects misuse, such as a double free, it ends the process with a one-line
//! message. Safe code cannot cause it. When memory is out, `try_` functions return an error and the
//! others panic.
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
pub mod offset;
#[cfg(feature = "std")]
pub mod persist;
#[cfg(feature = "heap")]
mod pool;
#[cfg(feature = "heap")]
mod private_heap;
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
pub use pool::{Local, Magazine, Pool, PoolBox, Shared};
#[cfg(feature = "heap")]
pub use private_heap::{PrivateHeap, PrivateHeapBox, PrivateHeapStats};
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
