//! Allocation in constant time within memory of the caller: `cairn/tlsf.h`. It works without an
//! operating system.

use crate::Error;
use crate::error::dangling;
use cairn_sys as sys;
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// A heap within a buffer. Allocation and free take constant time in every state of the heap.
///
/// ```
/// use cairn_alloc::Tlsf;
/// use core::mem::MaybeUninit;
///
/// let mut memory = [MaybeUninit::uninit(); 65536];
/// let heap = Tlsf::new(&mut memory)?;
/// let mut message = heap.alloc([0u8; 100])?;
/// message[99] = 1;
/// drop(message);
/// assert_eq!(heap.used_blocks(), 0);
/// # Ok::<(), cairn_alloc::Error>(())
/// ```
///
/// A block may not outlive the heap, nor the heap its buffer:
///
/// ```compile_fail,E0597
/// # use cairn_alloc::Tlsf;
/// # use core::mem::MaybeUninit;
/// let mut memory = [MaybeUninit::uninit(); 65536];
/// let kept = { let heap = Tlsf::new(&mut memory).unwrap(); heap.alloc(1).unwrap() };
/// ```
///
/// ```compile_fail,E0597
/// # use cairn_alloc::Tlsf;
/// # use core::mem::MaybeUninit;
/// let heap = { let mut memory = [MaybeUninit::uninit(); 65536]; Tlsf::new(&mut memory).unwrap() };
/// ```
pub struct Tlsf<'m> {
    heap: NonNull<sys::cairn_tlsf>,
    memory: PhantomData<&'m mut [MaybeUninit<u8>]>,
}

// SAFETY: any thread may use the heap, one at a time; no block is in use when the heap moves.
unsafe impl Send for Tlsf<'_> {}

impl<'m> Tlsf<'m> {
    /// Creates a heap in the memory. The start of the memory holds the heap's own structure: about
    /// 3 KiB of 1 MiB.
    ///
    /// ```
    /// let mut memory = vec![core::mem::MaybeUninit::uninit(); 1 << 20];
    /// let heap = cairn_alloc::Tlsf::new(&mut memory)?;
    /// # drop(heap);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EINVAL` when the memory is too small for a heap.
    pub fn new(memory: &'m mut [MaybeUninit<u8>]) -> Result<Self, Error> {
        // SAFETY: the memory is borrowed as long as the heap lives.
        let heap = unsafe { sys::cairn_tlsf_init(memory.as_mut_ptr().cast(), memory.len()) };
        Ok(Tlsf { heap: NonNull::new(heap).ok_or(Error::INVALID)?, memory: PhantomData })
    }

    /// Allocates a block and moves the value to it.
    ///
    /// ```
    /// # let mut memory = [core::mem::MaybeUninit::uninit(); 65536];
    /// let heap = cairn_alloc::Tlsf::new(&mut memory)?;
    /// assert_eq!(*heap.alloc(5)?, 5);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out; then the value is dropped.
    pub fn alloc<T>(&self, value: T) -> Result<TlsfBox<'_, T>, Error> {
        let place = self.alloc_layout(Layout::new::<T>())?.cast::<T>();
        // SAFETY: the block is new and has room for a T.
        unsafe { place.write(value) };
        Ok(TlsfBox { place, heap: self.heap, of: PhantomData })
    }

    /// Allocates memory for the layout with undefined contents, valid until [`free`](Self::free) or
    /// the end of the heap.
    ///
    /// ```
    /// # let mut memory = [core::mem::MaybeUninit::uninit(); 65536];
    /// let heap = cairn_alloc::Tlsf::new(&mut memory)?;
    /// let layout = core::alloc::Layout::new::<[u64; 8]>();
    /// let block = heap.alloc_layout(layout)?;
    /// // SAFETY: freed once, with its layout.
    /// unsafe { heap.free(block, layout) };
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    pub fn alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        let (heap, size) = (self.heap.as_ptr(), layout.size());
        // SAFETY: one thread uses the heap at a time, because it is not Sync.
        let block = unsafe {
            if layout.align() <= sys::CAIRN_TLSF_ALIGNMENT_BYTES as usize {
                sys::cairn_tlsf_alloc(heap, size)
            } else {
                sys::cairn_tlsf_alloc_aligned(heap, size, layout.align())
            }
        };
        NonNull::new(block.cast()).ok_or(Error::OUT_OF_MEMORY)
    }

    /// Frees a block of [`alloc_layout`](Self::alloc_layout).
    ///
    /// # Safety
    /// The block belongs to this heap, was allocated with this layout, and is not used afterwards.
    ///
    /// ```
    /// # let mut memory = [core::mem::MaybeUninit::uninit(); 65536];
    /// # let heap = cairn_alloc::Tlsf::new(&mut memory)?;
    /// # let layout = core::alloc::Layout::new::<u64>();
    /// let block = heap.alloc_layout(layout)?;
    /// // SAFETY: freed once, with its layout.
    /// unsafe { heap.free(block, layout) };
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller's promise; one thread uses the heap at a time.
            unsafe { sys::cairn_tlsf_free(self.heap.as_ptr(), block.as_ptr().cast()) };
        }
    }

    /// Returns how many blocks are in use.
    ///
    /// ```
    /// # let mut memory = [core::mem::MaybeUninit::uninit(); 65536];
    /// let heap = cairn_alloc::Tlsf::new(&mut memory)?;
    /// let block = heap.alloc(1)?;
    /// assert_eq!(heap.used_blocks(), 1);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn used_blocks(&self) -> usize {
        self.stats().used_blocks
    }

    /// Returns the size of the largest request that would succeed now.
    ///
    /// ```
    /// # let mut memory = [core::mem::MaybeUninit::uninit(); 65536];
    /// let heap = cairn_alloc::Tlsf::new(&mut memory)?;
    /// assert!(heap.largest_request() > 60_000);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn largest_request(&self) -> usize {
        self.stats().largest_request_bytes
    }

    fn stats(&self) -> sys::cairn_tlsf_stats {
        // SAFETY: the struct has only numbers, which the call fills; one thread uses the heap at a
        // time.
        unsafe {
            let mut stats = mem::zeroed();
            sys::cairn_tlsf_read_stats(self.heap.as_ptr(), &raw mut stats);
            stats
        }
    }

    /// Changes the size of the block in place, or fails.
    ///
    /// # Safety
    /// The block belongs to this heap.
    #[cfg(feature = "allocator-api2")]
    pub(crate) unsafe fn resize(&self, block: NonNull<u8>, size: usize) -> bool {
        let (heap, block) = (self.heap.as_ptr(), block.as_ptr().cast());
        // SAFETY: the caller's promise; one thread uses the heap at a time.
        unsafe { !sys::cairn_tlsf_resize(heap, block, size).is_null() }
    }
}

impl fmt::Debug for Tlsf<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Tlsf").field("used_blocks", &self.used_blocks()).finish_non_exhaustive()
    }
}

/// A value in a [`Tlsf`] heap. Dropping the box drops the value and frees its block.
pub struct TlsfBox<'h, T> {
    place: NonNull<T>,
    heap: NonNull<sys::cairn_tlsf>,
    of: PhantomData<(&'h Tlsf<'h>, T)>,
}

impl<T> Deref for TlsfBox<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the box owns the value.
        unsafe { self.place.as_ref() }
    }
}

impl<T> DerefMut for TlsfBox<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box owns the value.
        unsafe { self.place.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for TlsfBox<'_, T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(to)
    }
}

impl<T> Drop for TlsfBox<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the value is dropped and its block freed once; a value without size has no block.
        // The box borrows the heap, so the heap exists. If the value's drop panics, the block is
        // lost.
        unsafe {
            self.place.drop_in_place();
            if size_of::<T>() != 0 {
                sys::cairn_tlsf_free(self.heap.as_ptr(), self.place.as_ptr().cast());
            }
        }
    }
}
