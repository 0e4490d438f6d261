//! The general heap as Rust's global allocator.

use cairn_sys as sys;
use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{CStr, c_void};
use core::ptr;

/// Statistics of the heap: `cairn/stats.h` explains each field.
pub type HeapStats = sys::cairn_heap_stats;

/// The general heap: `#[global_allocator] static HEAP: Cairn = Cairn;`.
///
/// Blocks grow and shrink in place where possible; blocks aligned to more than 16 always move. Each
/// free passes the size of the allocation, so a wrong size is detected when it belongs to another
/// size class or another number of pages. Only Rust's allocations use this heap: C code in the
/// program keeps its own malloc.
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

/// Returns whether `cairn_malloc` aligns such a block enough: blocks of up to 8 bytes are aligned
/// to 8, larger ones to 16.
pub(crate) const fn is_plain(size: usize, align: usize) -> bool {
    align <= 8 || (align == 16 && size > 8)
}

impl Cairn {
    /// Returns the library's version.
    ///
    /// ```
    /// assert_eq!(cairn_alloc::Cairn::version(), env!("CARGO_PKG_VERSION"));
    /// ```
    #[must_use]
    pub fn version() -> &'static str {
        // SAFETY: a static string.
        let text = unsafe { CStr::from_ptr(sys::cairn_version()) };
        text.to_str().unwrap_or_default()
    }

    /// Reads the heap's statistics. Other threads continue while the heap is counted.
    ///
    /// ```
    /// let stats = cairn_alloc::Cairn::stats();
    /// assert!(stats.active_bytes >= stats.allocated_bytes);
    /// ```
    #[must_use]
    pub fn stats() -> HeapStats {
        // SAFETY: the struct has only numbers, for which zero is a valid value; the call fills
        // them.
        unsafe {
            let mut stats = core::mem::zeroed();
            sys::cairn_heap_read_stats(&raw mut stats);
            stats
        }
    }

    /// Returns free memory except `keep_bytes` to the system. Returns whether it released any.
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

// SAFETY: the C functions keep the contract of malloc. is_plain chooses the function whose blocks
// are aligned enough, and makes the same choice again at the free. The functions never unwind.
unsafe impl GlobalAlloc for Cairn {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the function accepts every size and every power of two.
        unsafe {
            if is_plain(layout.size(), layout.align()) {
                sys::cairn_malloc(layout.size()).cast()
            } else {
                sys::cairn_aligned_alloc(layout.align(), layout.size()).cast()
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the function accepts every size and every power of two. Memory that may not be
        // zero is written only within its size.
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
        // SAFETY: the caller passes the layout of the allocation.
        unsafe {
            if is_plain(layout.size(), layout.align()) {
                sys::cairn_free_sized(block.cast::<c_void>(), layout.size());
            } else {
                sys::cairn_free_aligned_sized(block.cast(), layout.align(), layout.size());
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller passes the block's layout, and a size that is valid with its
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
