//! The general heap as Rust's global allocator.

use cairn_sys as sys;
use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{CStr, c_void};
use core::ptr;

/// What the heap holds and what that takes: `cairn/stats.h` says what each field means.
pub type HeapStats = sys::cairn_heap_stats;

/// The general heap: `#[global_allocator] static HEAP: Cairn = Cairn;`.
///
/// Blocks grow and shrink in place where the heap can; those aligned beyond 16 always move. Every
/// free gives the size it was allocated with, so that a wrong one is found where its size class or
/// its pages show it. Only Rust's allocations go here: C code in the same program keeps its malloc.
///
/// ```
/// use std::alloc::{GlobalAlloc, Layout};
/// use cairn_alloc::Cairn;
///
/// let layout = Layout::from_size_align(100, 64)?;
/// // SAFETY: the block is freed once, with its layout.
/// unsafe {
///     let block = Cairn.alloc_zeroed(layout);
///     assert!(!block.is_null() && block as usize % 64 == 0 && *block == 0);
///     Cairn.dealloc(block, layout);
/// }
/// # Ok::<(), std::alloc::LayoutError>(())
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Cairn;

/// Whether `cairn_malloc` gives such blocks: of up to 8 bytes they are aligned to 8, else to 16.
pub(crate) const fn is_plain(size: usize, align: usize) -> bool {
    align <= 8 || (align == 16 && size > 8)
}

impl Cairn {
    /// The library's version.
    ///
    /// ```
    /// assert_eq!(cairn_alloc::Cairn::version(), "0.2.0");
    /// ```
    #[must_use]
    pub fn version() -> &'static str {
        // SAFETY: a static string.
        let text = unsafe { CStr::from_ptr(sys::cairn_version()) };
        text.to_str().unwrap_or_default()
    }

    /// The heap's statistics. Other threads go on while it is counted.
    ///
    /// ```
    /// let stats = cairn_alloc::Cairn::stats();
    /// assert!(stats.active_bytes >= stats.allocated_bytes);
    /// ```
    #[must_use]
    pub fn stats() -> HeapStats {
        // SAFETY: plain numbers, for which all zero is a value; the call fills them.
        unsafe {
            let mut stats = core::mem::zeroed();
            sys::cairn_heap_read_stats(&raw mut stats);
            stats
        }
    }

    /// Gives free memory but for `keep_bytes` back to the system: whether some went.
    ///
    /// ```
    /// cairn_alloc::Cairn::trim(0);
    /// ```
    #[allow(clippy::must_use_candidate)]
    pub fn trim(keep_bytes: usize) -> bool {
        // SAFETY: any thread may call it at any time.
        unsafe { sys::cairn_malloc_trim(keep_bytes) != 0 }
    }
}

// SAFETY: the C functions keep the contract of malloc; is_plain chooses the one whose blocks are
// aligned enough, and the same one again for the free. They never unwind.
unsafe impl GlobalAlloc for Cairn {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two will do.
        unsafe {
            if is_plain(layout.size(), layout.align()) {
                sys::cairn_malloc(layout.size()).cast()
            } else {
                sys::cairn_aligned_alloc(layout.align(), layout.size()).cast()
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above; what is not known to be zero is written within its size.
        unsafe {
            if is_plain(layout.size(), layout.align()) {
                return sys::cairn_calloc(1, layout.size()).cast();
            }
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives the layout that the block was made with.
        unsafe {
            if is_plain(layout.size(), layout.align()) {
                sys::cairn_free_sized(block.cast::<c_void>(), layout.size());
            } else {
                sys::cairn_free_aligned_sized(block.cast(), layout.align(), layout.size());
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller gives the block's layout, and a size that makes one with its
        // alignment.
        unsafe {
            if is_plain(layout.size(), layout.align()) && is_plain(new_size, layout.align()) {
                return sys::cairn_realloc(block.cast(), new_size).cast();
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}
