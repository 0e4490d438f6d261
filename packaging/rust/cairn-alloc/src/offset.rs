//! Pointers within a heap that may be mapped at another address in the next run. They are plain
//! arithmetic, so Miri can run them.

use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroU64;
use core::ptr;

/// The place of a `T` in a persistent heap, as its distance from the heap's start. It has eight
/// bytes, may be copied and stored in the heap, and stays valid in the next run. `Option<Rel<T>>`
/// has eight bytes, too.
///
/// ```
/// use cairn_alloc::offset::Rel;
/// assert_eq!(size_of::<Option<Rel<u64>>>(), 8);
/// ```
#[repr(transparent)]
pub struct Rel<T: ?Sized> {
    offset: NonZeroU64,
    to: PhantomData<fn() -> *const T>,
}

impl<T> Rel<T> {
    #[cfg(any(feature = "std", test))]
    pub(crate) fn between(base: *const u8, to: *const T) -> Option<Self> {
        let offset = to.addr().wrapping_sub(base.addr()) as u64;
        NonZeroU64::new(offset).map(|offset| Rel { offset, to: PhantomData })
    }

    #[cfg(any(feature = "std", test))]
    pub(crate) fn in_heap_at(self, base: *mut u8) -> *mut T {
        #[allow(clippy::cast_possible_truncation)] // 64-bit addresses only
        base.wrapping_add(self.offset.get() as usize).cast()
    }
}

impl<T: ?Sized> Rel<T> {
    /// Returns the distance from the heap's start, in bytes.
    ///
    /// ```no_run
    /// # fn print<T>(place: cairn_alloc::offset::Rel<T>) {
    /// println!("{:#x}", place.bytes());
    /// # }
    /// ```
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.offset.get()
    }
}

impl<T: ?Sized> Clone for Rel<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Rel<T> {}

impl<T: ?Sized> PartialEq for Rel<T> {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset
    }
}

impl<T: ?Sized> Eq for Rel<T> {}

impl<T: ?Sized> fmt::Debug for Rel<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Rel({:#x})", self.offset)
    }
}

/// `cairn_offset` of C and `cairn::offset_ptr` of C++: the distance from itself to a `T` in the
/// same heap. It is invalid after a move, so it is not `Copy`; structures of Rust should use
/// [`Rel`].
///
/// ```
/// use cairn_alloc::offset::Offset;
///
/// #[repr(C)]
/// struct Node { next: Offset<u64>, value: u64 }
///
/// let mut node = Box::new(Node { next: Offset::null(), value: 5 });
/// assert!(node.next.get().is_null());
/// let value = &raw const node.value;
/// node.next.set(value);
/// assert_eq!(node.next.get(), value.cast_mut());
/// ```
#[repr(transparent)]
pub struct Offset<T> {
    distance: u64,
    to: PhantomData<*mut T>,
}

const TO_ITSELF: u64 = 1 << 63;

impl<T> Offset<T> {
    /// Creates an offset that points nowhere.
    ///
    /// ```
    /// assert!(cairn_alloc::offset::Offset::<u8>::null().get().is_null());
    /// ```
    #[must_use]
    pub const fn null() -> Self {
        Offset { distance: 0, to: PhantomData }
    }

    /// Returns the address that it points to, or null. The caller must know whether the block there
    /// is still live.
    ///
    /// ```
    /// # let offset = cairn_alloc::offset::Offset::<u8>::null();
    /// assert!(offset.get().is_null());
    /// ```
    #[must_use]
    pub fn get(&self) -> *mut T {
        if self.distance == 0 {
            return ptr::null_mut();
        }
        // Bit 62 is the sign. Bit 63 alone stands for a distance of 0; the shift removes it.
        #[allow(clippy::cast_possible_wrap)] // its sign is bit 62
        let distance = ((self.distance << 1) as i64 >> 1) as isize;
        let own = ptr::from_ref(self).addr();
        ptr::with_exposed_provenance_mut(own.wrapping_add_signed(distance))
    }

    /// Sets the target to `to`; null makes it point nowhere.
    ///
    /// ```
    /// let mut offset = cairn_alloc::offset::Offset::<u8>::null();
    /// offset.set(core::ptr::null());
    /// ```
    pub fn set(&mut self, to: *const T) {
        let distance = to.expose_provenance().wrapping_sub(ptr::from_ref(self).addr()) as u64;
        self.distance = match (to.is_null(), distance) {
            (true, _) => 0,
            (false, 0) => TO_ITSELF,
            (false, distance) => distance & !TO_ITSELF,
        };
    }
}

impl<T> Default for Offset<T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T> fmt::Debug for Offset<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Offset({:p})", self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_reaches_both_ways_and_itself() {
        struct Places {
            below: u32,
            offset: Offset<u32>,
            above: u32,
        }
        let mut places = Places { below: 1, offset: Offset::null(), above: 2 };
        let (below, above) = (&raw const places.below, &raw const places.above);
        for (to, value) in [(below, 1), (above, 2)] {
            places.offset.set(to);
            // SAFETY: the pointer leads to a live field.
            assert_eq!(unsafe { *places.offset.get() }, value);
        }
        let own = (&raw const places.offset).cast::<u32>();
        places.offset.set(own);
        assert_eq!(places.offset.get().cast_const(), own);
        places.offset.set(ptr::null());
        assert!(places.offset.get().is_null());
    }

    #[test]
    fn a_place_moves_with_its_heap() {
        let mut heap = [7u64, 8, 9];
        let mut moved = heap;
        let base: *mut u8 = heap.as_mut_ptr().cast();
        let place = Rel::between(base, &raw const heap[2]).unwrap();
        assert_eq!(place.bytes(), 16);
        assert!(Rel::between(base, base).is_none());
        moved[2] = 10;
        // SAFETY: the index is within the array.
        unsafe {
            assert_eq!(*place.in_heap_at(base), 9);
            assert_eq!(*place.in_heap_at(moved.as_mut_ptr().cast()), 10);
        }
    }
}
