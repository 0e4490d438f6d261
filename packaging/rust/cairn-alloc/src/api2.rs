//! The allocators for the containers of `allocator-api2` and `hashbrown`.

use crate::Tlsf;
#[cfg(feature = "heap")]
use crate::{Cairn, Pool, PrivateHeap, Scope, error::dangling, heap::is_plain};
use allocator_api2::alloc::{AllocError, Allocator};
#[cfg(feature = "heap")]
use core::alloc::GlobalAlloc;
use core::alloc::Layout;
use core::ptr::NonNull;

/// A slice of `size` bytes at `block`, as the trait returns it.
fn sized(block: NonNull<u8>, size: usize) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(block, size)
}

// SAFETY: all values of `Cairn` stand for the one heap of the process.
#[cfg(feature = "heap")]
unsafe impl Allocator for Cairn {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(sized(dangling(layout), 0));
        }
        // SAFETY: the size is not 0.
        let block = NonNull::new(unsafe { self.alloc(layout) }).ok_or(AllocError)?;
        Ok(sized(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller's promise.
            unsafe { self.dealloc(block.as_ptr(), layout) };
        }
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate(new);
        }
        if old.align() == new.align() {
            // SAFETY: the caller's promise. The new size is not 0, because it is at least the old
            // one.
            let grown = unsafe { self.realloc(block.as_ptr(), old, new.size()) };
            return Ok(sized(NonNull::new(grown).ok_or(AllocError)?, new.size()));
        }
        // SAFETY: the caller's promise.
        unsafe { move_block(self, block, old, new) }
    }
}

// SAFETY: blocks belong to the heap, which ends when no container borrows it any more.
#[cfg(feature = "heap")]
unsafe impl Allocator for PrivateHeap {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = self.alloc_layout(layout).map_err(|_| AllocError)?;
        Ok(sized(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.free(block, layout) };
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let plain = |layout: Layout| is_plain(layout.size(), layout.align());
        if old.size() == 0 || !plain(old) || !plain(new) {
            // SAFETY: the caller's promise.
            return unsafe { move_block(self, block, old, new) };
        }
        // SAFETY: the caller's promise, and the size is not 0.
        let grown = unsafe { self.realloc(block, new.size()) }.ok_or(AllocError)?;
        Ok(sized(grown, new.size()))
    }
}

/// # Safety
/// `block` belongs to that allocator and has the layout `old`; `new` is large enough for the bytes
/// to be kept.
unsafe fn move_block(
    allocator: &impl Allocator,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    let moved = allocator.allocate(new)?;
    // SAFETY: these are two blocks, and each has at least that size.
    unsafe {
        let bytes = old.size().min(new.size());
        moved.cast::<u8>().copy_from_nonoverlapping(block, bytes);
        allocator.deallocate(block, old);
    }
    Ok(moved)
}

/// The allocator of a [`Scope`]. Its blocks end with the scope, so the container must end before.
///
/// ```
/// use allocator_api2::vec::Vec;
///
/// cairn_alloc::scope(|s| {
///     let mut numbers = Vec::new_in(s.allocator());
///     numbers.extend(0..1000);
///     assert_eq!(numbers.iter().sum::<i32>(), 499_500);
/// });
/// ```
///
/// ```compile_fail
/// use allocator_api2::vec::Vec;
/// let kept: Vec<i32, _> = cairn_alloc::scope(|s| Vec::new_in(s.allocator()));
/// ```
///
/// Allocations fail while a nested scope is open: a container that must grow then gets the error
/// "out of memory".
#[cfg(feature = "heap")]
#[derive(Debug)]
pub struct ScopeAllocator<'s>(Scope<'s, 's>);

#[cfg(feature = "heap")]
impl Clone for ScopeAllocator<'_> {
    fn clone(&self) -> Self {
        ScopeAllocator(self.0.again())
    }
}

#[cfg(feature = "heap")]
impl<'s> Scope<'s, '_> {
    /// Returns an allocator for containers that end with the scope.
    ///
    /// ```
    /// use hashbrown::HashMap;
    /// cairn_alloc::scope(|s| {
    ///     let mut ages = HashMap::new_in(s.allocator());
    ///     ages.insert("Ann", 30);
    ///     assert_eq!(ages["Ann"], 30);
    /// });
    /// ```
    #[must_use]
    pub fn allocator(&self) -> ScopeAllocator<'s> {
        ScopeAllocator(self.again())
    }
}

// SAFETY: blocks live as long as 's, which is longer than every clone. If the old block is the
// newest of the newest frame, it is resized in place. Otherwise its contents move to a new block,
// and the old memory is not reused before the frame ends.
#[cfg(feature = "heap")]
unsafe impl Allocator for ScopeAllocator<'_> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if !self.0.is_newest() {
            return Err(AllocError);
        }
        let block = self.0.try_alloc_layout(layout).map_err(|_| AllocError)?;
        Ok(sized(block, layout.size()))
    }

    unsafe fn deallocate(&self, _block: NonNull<u8>, _layout: Layout) {}

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate(new);
        }
        if old.align() < new.align() {
            // SAFETY: the caller's promise.
            return unsafe { move_block(self, block, old, new) };
        }
        // SAFETY: the caller's promise.
        let grown = unsafe { self.0.realloc(block, old, new.size(), new.align()) };
        Ok(sized(grown.ok_or(AllocError)?, new.size()))
    }

    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.align() < new.align() {
            // SAFETY: the caller's promise.
            return unsafe { move_block(self, block, old, new) };
        }
        if new.size() != 0 {
            // SAFETY: the caller's promise. If the block cannot shrink, it is still large enough.
            let _ = unsafe { self.0.realloc(block, old, new.size(), new.align()) };
        }
        Ok(sized(block, new.size()))
    }
}

/// The allocator of a [`Pool`]: for containers whose nodes fit into its objects.
///
/// ```
/// use allocator_api2::boxed::Box;
/// use cairn_alloc::Pool;
///
/// let pool = Pool::<[u64; 8]>::new()?;
/// let small = Box::new_in([1u8; 48], pool.allocator());
/// assert_eq!(pool.live(), 1);
/// drop(small);
/// assert!(Box::try_new_in([1u8; 65], pool.allocator()).is_err());
/// # Ok::<(), cairn_alloc::Error>(())
/// ```
#[cfg(feature = "heap")]
#[derive(Debug)]
pub struct PoolAllocator<'p, T, M>(&'p Pool<T, M>);

#[cfg(feature = "heap")]
impl<T, M> Clone for PoolAllocator<'_, T, M> {
    fn clone(&self) -> Self {
        PoolAllocator(self.0)
    }
}

#[cfg(feature = "heap")]
impl<T, M> Pool<T, M> {
    /// Returns an allocator for values that fit into an object of this pool.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::<[u64; 8]>::new()?;
    /// let number = allocator_api2::boxed::Box::new_in(5, pool.allocator());
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn allocator(&self) -> PoolAllocator<'_, T, M> {
        PoolAllocator(self)
    }
}

// SAFETY: blocks are objects of the pool, which outlives every clone. An object is given out once
// until it is put back.
#[cfg(feature = "heap")]
unsafe impl<T, M> Allocator for PoolAllocator<'_, T, M> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(sized(dangling(layout), 0));
        }
        if layout.size() > size_of::<T>() || layout.align() > align_of::<T>() {
            return Err(AllocError);
        }
        // SAFETY: one thread uses the pool at a time, or the pool is shared.
        let object = unsafe { cairn_sys::cairn_sys_pool_get(self.0.as_ptr()) };
        Ok(sized(NonNull::new(object.cast()).ok_or(AllocError)?, size_of::<T>()))
    }

    unsafe fn deallocate(&self, object: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller's promise.
            unsafe { cairn_sys::cairn_sys_pool_put(self.0.as_ptr(), object.as_ptr().cast()) };
        }
    }
}

/// The allocator of a [`Tlsf`] heap.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use cairn_alloc::Tlsf;
///
/// let mut memory = [core::mem::MaybeUninit::uninit(); 65536];
/// let heap = Tlsf::new(&mut memory)?;
/// let mut numbers = Vec::new_in(heap.allocator());
/// numbers.extend(0..1000);
/// assert_eq!(numbers.len(), 1000);
/// # Ok::<(), cairn_alloc::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TlsfAllocator<'h>(&'h Tlsf<'h>);

impl<'m> Tlsf<'m> {
    /// Returns an allocator for containers within the heap.
    ///
    /// ```
    /// # let mut memory = [core::mem::MaybeUninit::uninit(); 65536];
    /// let heap = cairn_alloc::Tlsf::new(&mut memory)?;
    /// let number = allocator_api2::boxed::Box::new_in(5, heap.allocator());
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn allocator<'h>(&'h self) -> TlsfAllocator<'h>
    where
        'm: 'h,
    {
        TlsfAllocator(self)
    }
}

// SAFETY: blocks belong to the heap, which outlives every clone.
unsafe impl Allocator for TlsfAllocator<'_> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = self.0.alloc_layout(layout).map_err(|_| AllocError)?;
        Ok(sized(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.free(block, layout) };
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe {
            if old.size() != 0 && old.align() >= new.align() && self.0.resize(block, new.size()) {
                return Ok(sized(block, new.size()));
            }
            move_block(self, block, old, new)
        }
    }
}
