//! Heaps beside the general one, that end with all their blocks: `cairn/heaps.h`.

use crate::Error;
use crate::error::dangling;
use crate::heap::is_plain;
use cairn_sys as sys;
use core::alloc::Layout;
use core::fmt;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// One heap's numbers: `cairn/heaps.h` says what each field means.
pub type OwnStats = sys::cairn_heap_own_stats;

/// A heap of its own: a tenant's, a request's, a plug-in's. Any thread may allocate and free. It
/// ends at once with all that is still in it, which is not dropped.
///
/// ```
/// use cairn_alloc::Heap;
///
/// let tenant = Heap::with_limit(1 << 20)?;
/// let name = tenant.alloc(String::from("a tenant"))?;
/// assert!(tenant.alloc([0u8; 1 << 21]).unwrap_err().is_out_of_memory());
/// assert_eq!((name.len(), tenant.stats().live_blocks), (8, 1));
/// # Ok::<(), cairn_alloc::Error>(())
/// ```
///
/// No block outlives its heap:
///
/// ```compile_fail,E0515
/// fn kept() -> cairn_alloc::HeapBox<'static, i32> {
///     let heap = cairn_alloc::Heap::new().unwrap();
///     heap.alloc(1).unwrap()
/// }
/// ```
pub struct Heap {
    heap: NonNull<sys::cairn_heap>,
}

// SAFETY: any thread may call everything but the end, which has the heap alone: it takes it.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// A heap without a limit.
    ///
    /// ```
    /// let heap = cairn_alloc::Heap::new()?;
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    pub fn new() -> Result<Self, Error> {
        Self::with_limit(0)
    }

    /// A heap that holds at most so many bytes, in pages of slabs and large blocks. 0: no limit.
    ///
    /// ```
    /// let heap = cairn_alloc::Heap::with_limit(1 << 20)?;
    /// assert_eq!(heap.stats().limit_bytes, 1 << 20);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    pub fn with_limit(limit_bytes: usize) -> Result<Self, Error> {
        let options =
            sys::cairn_heap_options { limit_bytes, out_of_memory: None, context: ptr::null_mut() };
        // SAFETY: the options are there.
        let heap = unsafe { sys::cairn_heap_new(&raw const options) };
        Ok(Heap { heap: NonNull::new(heap).ok_or_else(Error::last)? })
    }

    /// A block with this value.
    ///
    /// ```
    /// let heap = cairn_alloc::Heap::new()?;
    /// assert_eq!(*heap.alloc(5)?, 5);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory or the limit is out; the value is dropped then.
    pub fn alloc<T>(&self, value: T) -> Result<HeapBox<'_, T>, Error> {
        let place = self.alloc_layout(Layout::new::<T>())?.cast::<T>();
        // SAFETY: room for a T that nobody else has.
        unsafe { place.write(value) };
        Ok(HeapBox { place, heap: self })
    }

    /// Memory for the layout, contents undefined, until [`free`](Self::free) or the heap's end.
    ///
    /// ```
    /// let heap = cairn_alloc::Heap::new()?;
    /// let layout = core::alloc::Layout::new::<[u64; 8]>();
    /// let block = heap.alloc_layout(layout)?;
    /// // SAFETY: freed once, with its layout.
    /// unsafe { heap.free(block, layout) };
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory or the limit is out.
    pub fn alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        let heap = self.heap.as_ptr();
        // SAFETY: any thread may allocate.
        let block = unsafe {
            if is_plain(layout.size(), layout.align()) {
                sys::cairn_heap_alloc(heap, layout.size())
            } else {
                sys::cairn_heap_alloc_aligned(heap, layout.size(), layout.align())
            }
        };
        NonNull::new(block.cast()).ok_or_else(Error::last)
    }

    /// Gives a block of [`alloc_layout`](Self::alloc_layout) back.
    ///
    /// # Safety
    /// The block is this heap's, was made with this layout, and is used no more.
    ///
    /// ```
    /// # let heap = cairn_alloc::Heap::new()?;
    /// # let layout = core::alloc::Layout::new::<u64>();
    /// let block = heap.alloc_layout(layout)?;
    /// // SAFETY: freed once, with its layout.
    /// unsafe { heap.free(block, layout) };
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller's promise.
            unsafe { sys::cairn_heap_free(self.heap.as_ptr(), block.as_ptr().cast()) };
        }
    }

    /// The block at a new size, in place or moved within the heap.
    ///
    /// # Safety
    /// The block is this heap's, and of a size that is not 0; neither the old nor the new layout
    /// needs more than `is_plain` says.
    #[cfg(feature = "allocator-api2")]
    pub(crate) unsafe fn realloc(&self, block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
        let (heap, block) = (self.heap.as_ptr(), block.as_ptr().cast());
        // SAFETY: the caller's promise.
        NonNull::new(unsafe { sys::cairn_heap_realloc(heap, block, size).cast() })
    }

    /// A new limit; 0: none. Below what the heap holds it only gets no more.
    ///
    /// ```
    /// let heap = cairn_alloc::Heap::with_limit(1)?;
    /// assert!(heap.alloc(1).is_err());
    /// heap.set_limit(0);
    /// assert!(heap.alloc(1).is_ok());
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn set_limit(&self, limit_bytes: usize) {
        // SAFETY: any thread may.
        unsafe { sys::cairn_heap_set_limit(self.heap.as_ptr(), limit_bytes) };
    }

    /// Gives back slabs that are empty.
    ///
    /// ```
    /// let heap = cairn_alloc::Heap::new()?;
    /// drop(heap.alloc(1)?);
    /// heap.trim();
    /// assert_eq!(heap.stats().held_bytes, 0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn trim(&self) {
        // SAFETY: any thread may.
        unsafe { sys::cairn_heap_trim(self.heap.as_ptr()) };
    }

    /// The heap's numbers.
    ///
    /// ```
    /// let heap = cairn_alloc::Heap::new()?;
    /// let block = heap.alloc([0u8; 100])?;
    /// assert!(heap.stats().live_bytes >= 100);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> OwnStats {
        // SAFETY: plain numbers, which the call fills; any thread may.
        unsafe {
            let mut stats = mem::zeroed();
            sys::cairn_heap_read_own_stats(self.heap.as_ptr(), &raw mut stats);
            stats
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: nobody is within a call: boxes and calls borrow the heap.
        unsafe { sys::cairn_heap_delete(self.heap.as_ptr()) };
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Heap").field("at", &self.heap).finish()
    }
}

/// A value in a [`Heap`]; it is dropped and its block freed with this, by any thread.
pub struct HeapBox<'h, T> {
    place: NonNull<T>,
    heap: &'h Heap,
}

// SAFETY: as Box<T>; any thread frees.
unsafe impl<T: Send> Send for HeapBox<'_, T> {}
// SAFETY: as Box<T>.
unsafe impl<T: Sync> Sync for HeapBox<'_, T> {}

impl<T> Deref for HeapBox<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the box owns the value.
        unsafe { self.place.as_ref() }
    }
}

impl<T> DerefMut for HeapBox<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box owns the value.
        unsafe { self.place.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for HeapBox<'_, T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(to)
    }
}

impl<T> Drop for HeapBox<'_, T> {
    fn drop(&mut self) {
        // SAFETY: dropped and freed once. A drop that panics loses the block until the heap's end.
        unsafe {
            self.place.drop_in_place();
            self.heap.free(self.place.cast(), Layout::new::<T>());
        }
    }
}
