//! Private heaps, which end with all their blocks: `cairn/private_heap.h`.

use crate::Error;
use crate::error::dangling;
use crate::heap::is_plain;
use cairn_sys as sys;
use core::alloc::Layout;
use core::fmt;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// Statistics of one private heap: `cairn/private_heap.h` explains each field.
pub type PrivateHeapStats = sys::cairn_private_heap_stats;

/// A private heap, for example for a tenant, a request or a plug-in. Any thread may allocate and
/// free. The end of the heap releases all its blocks; values still in them are not dropped.
///
/// ```
/// use cairn_alloc::PrivateHeap;
///
/// let tenant = PrivateHeap::with_limit(1 << 20)?;
/// let name = tenant.alloc(String::from("a tenant"))?;
/// assert!(tenant.alloc([0u8; 1 << 21]).unwrap_err().is_out_of_memory());
/// assert_eq!((name.len(), tenant.stats().live_blocks), (8, 1));
/// # Ok::<(), cairn_alloc::Error>(())
/// ```
///
/// No block can outlive its heap:
///
/// ```compile_fail,E0515
/// fn kept() -> cairn_alloc::PrivateHeapBox<'static, i32> {
///     let heap = cairn_alloc::PrivateHeap::new().unwrap();
///     heap.alloc(1).unwrap()
/// }
/// ```
pub struct PrivateHeap {
    heap: NonNull<sys::cairn_private_heap>,
}

// SAFETY: any thread may call every function except the end, and drop owns the heap exclusively.
unsafe impl Send for PrivateHeap {}
// SAFETY: several threads may call every function at once except the end.
unsafe impl Sync for PrivateHeap {}

impl PrivateHeap {
    /// Creates a heap without a limit.
    ///
    /// ```
    /// let heap = cairn_alloc::PrivateHeap::new()?;
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    pub fn new() -> Result<Self, Error> {
        Self::with_limit(0)
    }

    /// Creates a heap that holds at most `limit_bytes` in pages of slabs and large blocks. 0: no
    /// limit.
    ///
    /// ```
    /// let heap = cairn_alloc::PrivateHeap::with_limit(1 << 20)?;
    /// assert_eq!(heap.stats().limit_bytes, 1 << 20);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    pub fn with_limit(limit_bytes: usize) -> Result<Self, Error> {
        let options = sys::cairn_private_heap_options {
            limit_bytes,
            out_of_memory: None,
            context: ptr::null_mut(),
        };
        // SAFETY: the options are valid during the call.
        let heap = unsafe { sys::cairn_private_heap_new(&raw const options) };
        Ok(PrivateHeap { heap: NonNull::new(heap).ok_or_else(Error::last)? })
    }

    /// Allocates a block and moves the value to it.
    ///
    /// ```
    /// let heap = cairn_alloc::PrivateHeap::new()?;
    /// assert_eq!(*heap.alloc(5)?, 5);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out or the limit is reached; then the value is dropped.
    pub fn alloc<T>(&self, value: T) -> Result<PrivateHeapBox<'_, T>, Error> {
        let place = self.alloc_layout(Layout::new::<T>())?.cast::<T>();
        // SAFETY: the block is new and has room for a T.
        unsafe { place.write(value) };
        Ok(PrivateHeapBox { place, heap: self })
    }

    /// Allocates memory for the layout with undefined contents, valid until [`free`](Self::free) or
    /// the end of the heap.
    ///
    /// ```
    /// let heap = cairn_alloc::PrivateHeap::new()?;
    /// let layout = core::alloc::Layout::new::<[u64; 8]>();
    /// let block = heap.alloc_layout(layout)?;
    /// // SAFETY: freed once, with its layout.
    /// unsafe { heap.free(block, layout) };
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out or the limit is reached.
    pub fn alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        let heap = self.heap.as_ptr();
        // SAFETY: any thread may allocate.
        let block = unsafe {
            if is_plain(layout.size(), layout.align()) {
                sys::cairn_private_heap_alloc(heap, layout.size())
            } else {
                sys::cairn_private_heap_alloc_aligned(heap, layout.size(), layout.align())
            }
        };
        NonNull::new(block.cast()).ok_or_else(Error::last)
    }

    /// Frees a block of [`alloc_layout`](Self::alloc_layout).
    ///
    /// # Safety
    /// The block belongs to this heap, was allocated with this layout, and is not used afterwards.
    ///
    /// ```
    /// # let heap = cairn_alloc::PrivateHeap::new()?;
    /// # let layout = core::alloc::Layout::new::<u64>();
    /// let block = heap.alloc_layout(layout)?;
    /// // SAFETY: freed once, with its layout.
    /// unsafe { heap.free(block, layout) };
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller's promise.
            unsafe { sys::cairn_private_heap_free(self.heap.as_ptr(), block.as_ptr().cast()) };
        }
    }

    /// Changes the size of the block, in place or by moving it within the heap.
    ///
    /// # Safety
    /// The block belongs to this heap and has a size other than 0. The old and the new layout
    /// satisfy `is_plain`.
    #[cfg(feature = "allocator-api2")]
    pub(crate) unsafe fn realloc(&self, block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
        let (heap, block) = (self.heap.as_ptr(), block.as_ptr().cast());
        // SAFETY: the caller's promise.
        NonNull::new(unsafe { sys::cairn_private_heap_realloc(heap, block, size).cast() })
    }

    /// Sets the limit; 0: none. If the heap already holds more, its blocks stay valid and requests
    /// that need more pages fail.
    ///
    /// ```
    /// let heap = cairn_alloc::PrivateHeap::with_limit(1)?;
    /// assert!(heap.alloc(1).is_err());
    /// heap.set_limit(0);
    /// assert!(heap.alloc(1).is_ok());
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn set_limit(&self, limit_bytes: usize) {
        // SAFETY: any thread may.
        unsafe { sys::cairn_private_heap_set_limit(self.heap.as_ptr(), limit_bytes) };
    }

    /// Returns empty slabs to the heap of the process.
    ///
    /// ```
    /// let heap = cairn_alloc::PrivateHeap::new()?;
    /// drop(heap.alloc(1)?);
    /// heap.trim();
    /// assert_eq!(heap.stats().held_bytes, 0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn trim(&self) {
        // SAFETY: any thread may.
        unsafe { sys::cairn_private_heap_trim(self.heap.as_ptr()) };
    }

    /// Reads the statistics of the heap.
    ///
    /// ```
    /// let heap = cairn_alloc::PrivateHeap::new()?;
    /// let block = heap.alloc([0u8; 100])?;
    /// assert!(heap.stats().live_bytes >= 100);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> PrivateHeapStats {
        // SAFETY: plain numbers, which the call fills; any thread may.
        unsafe {
            let mut stats = mem::zeroed();
            sys::cairn_private_heap_read_stats(self.heap.as_ptr(), &raw mut stats);
            stats
        }
    }
}

impl Drop for PrivateHeap {
    fn drop(&mut self) {
        // SAFETY: no thread is inside a call, because boxes and calls borrow the heap.
        unsafe { sys::cairn_private_heap_delete(self.heap.as_ptr()) };
    }
}

impl fmt::Debug for PrivateHeap {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("PrivateHeap").field("at", &self.heap).finish()
    }
}

/// A value in a [`PrivateHeap`]. Dropping the box, in any thread, drops the value and frees its
/// block.
pub struct PrivateHeapBox<'h, T> {
    place: NonNull<T>,
    heap: &'h PrivateHeap,
}

// SAFETY: as Box<T>; any thread frees.
unsafe impl<T: Send> Send for PrivateHeapBox<'_, T> {}
// SAFETY: as Box<T>.
unsafe impl<T: Sync> Sync for PrivateHeapBox<'_, T> {}

impl<T> Deref for PrivateHeapBox<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the box owns the value.
        unsafe { self.place.as_ref() }
    }
}

impl<T> DerefMut for PrivateHeapBox<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box owns the value.
        unsafe { self.place.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for PrivateHeapBox<'_, T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(to)
    }
}

impl<T> Drop for PrivateHeapBox<'_, T> {
    fn drop(&mut self) {
        // SAFETY: dropped and freed once. A drop that panics loses the block until the heap's end.
        unsafe {
            self.place.drop_in_place();
            self.heap.free(self.place.cast(), Layout::new::<T>());
        }
    }
}
