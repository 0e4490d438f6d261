//! Frames that one thread fills and any thread releases: `cairn/ring.h`.

use crate::Error;
use crate::error::dangling;
use cairn_sys as sys;
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, needs_drop};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering, fence};

/// The type of a frame's contents, which may refer to other blocks of the frame: `Of<'f>` has the
/// frame's lifetime.
///
/// ```
/// use cairn_alloc::Contents;
///
/// struct Job<'f> { name: &'f str, numbers: &'f [u64] }
///
/// struct Jobs;
/// impl Contents for Jobs { type Of<'f> = Job<'f>; }
/// ```
pub trait Contents {
    /// The type of the contents, for a frame's lifetime.
    type Of<'f>: 'f;
}

/// Creates frames. A `Ring` stays in its thread. Its frames may move to any thread, be released in
/// any order, and outlive the ring.
///
/// ```
/// use cairn_alloc::{Contents, Ring};
///
/// struct Job<'f> { name: &'f str, numbers: &'f [u64] }
/// struct Jobs;
/// impl Contents for Jobs { type Of<'f> = Job<'f>; }
///
/// let mut ring = Ring::new()?;
/// let frame = ring.frame::<Jobs>(|f| {
///     Ok(Job { name: f.alloc_str("sum")?, numbers: f.alloc_slice_with(10, |i| i as u64)? })
/// })?;
/// let other = frame.clone();
/// let consumer = std::thread::spawn(move || other.with(|job| job.numbers.iter().sum::<u64>()));
/// assert_eq!(consumer.join().unwrap(), 45);
/// assert_eq!(frame.with(|job| job.name.len()), 3);
/// # Ok::<(), cairn_alloc::Error>(())
/// ```
///
/// References to the contents cannot leave the frame:
///
/// ```compile_fail
/// # use cairn_alloc::{Contents, Ring};
/// struct Text;
/// impl Contents for Text { type Of<'f> = &'f str; }
/// let frame = Ring::new().unwrap().frame::<Text>(|f| Ok(f.alloc_str("a")?)).unwrap();
/// let kept: &str = frame.with(|text| *text);
/// ```
///
/// ```compile_fail,E0521
/// # use cairn_alloc::{Contents, Ring};
/// struct Unit;
/// impl Contents for Unit { type Of<'f> = (); }
/// let mut kept = None;
/// Ring::new().unwrap().frame::<Unit>(|f| { kept = Some(f.alloc(1)?); Ok(()) });
/// ```
#[derive(Debug)]
pub struct Ring {
    ring: NonNull<sys::cairn_ring>,
}

impl Ring {
    /// Creates a ring without a limit.
    ///
    /// ```
    /// let ring = cairn_alloc::Ring::new()?;
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    pub fn new() -> Result<Self, Error> {
        Self::with_limit(0)
    }

    /// Creates a ring whose live frames hold at most that many bytes. If an allocation reports "out
    /// of memory", wait until frames are released.
    ///
    /// ```
    /// use cairn_alloc::{Contents, Ring};
    /// struct Bytes;
    /// impl Contents for Bytes { type Of<'f> = &'f [u8]; }
    ///
    /// let mut ring = Ring::with_limit(1 << 16)?;
    /// let error = ring.frame::<Bytes>(|f| Ok(f.alloc_slice_with(1 << 20, |_| 0)?)).unwrap_err();
    /// assert!(error.is_out_of_memory());
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out; `EINVAL` for a limit below 64 KiB.
    pub fn with_limit(max_bytes: usize) -> Result<Self, Error> {
        let options = sys::cairn_ring_options {
            max_bytes,
            name: c"Rust ring".as_ptr(),
            out_of_memory: None,
            out_of_memory_context: ptr::null_mut(),
        };
        // SAFETY: the options and the name in them are valid during the call.
        let ring = unsafe { sys::cairn_ring_new(&raw const options) };
        Ok(Ring { ring: NonNull::new(ring).ok_or_else(Error::last)? })
    }

    /// Opens a frame, calls `make` to fill it, and seals it. If `make` fails or panics, the frame
    /// is released. The contents of a frame are never dropped, so the compiler refuses types with a
    /// drop.
    ///
    /// ```
    /// use cairn_alloc::{Contents, Ring};
    /// struct Pair;
    /// impl Contents for Pair { type Of<'f> = (&'f u32, &'f str); }
    ///
    /// let mut ring = Ring::new()?;
    /// let frame = ring.frame::<Pair>(|f| Ok((f.alloc(1)?, f.alloc_str("one")?)))?;
    /// drop(ring);   // the frame lives on
    /// frame.with(|pair| assert_eq!(*pair, (&1, "one")));
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out or the ring's limit is reached, and the errors of `make`.
    pub fn frame<C: Contents>(
        &mut self,
        make: impl for<'f> FnOnce(&Making<'f>) -> Result<C::Of<'f>, Error>,
    ) -> Result<Frame<C>, Error> {
        // SAFETY: only this thread uses the ring, which is not Send. No frame is open, because an
        // open frame borrows the ring.
        let frame = unsafe { sys::cairn_ring_open(self.ring.as_ptr()) };
        if frame.chunk.is_null() {
            return Err(Error::last());
        }
        let open = Open { ring: self.ring, frame };
        let making = Making { ring: self.ring, lifetime: PhantomData };
        let contents = making.alloc(Held { holds: AtomicUsize::new(1), is: make(&making)? })?;
        let contents = NonNull::from(contents).cast();
        mem::forget(open);
        // SAFETY: the frame is open, and is released once after this.
        let handle = unsafe { sys::cairn_ring_seal(self.ring.as_ptr()) };
        Ok(Frame { handle, contents, of: PhantomData })
    }

    /// Returns all free memory except `keep_bytes` to the system. Returns how many bytes it
    /// released.
    ///
    /// ```
    /// cairn_alloc::Ring::new()?.trim(0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn trim(&mut self, keep_bytes: usize) -> usize {
        // SAFETY: only this thread uses the ring.
        unsafe { sys::cairn_ring_trim(self.ring.as_ptr(), keep_bytes) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: only this thread uses the ring, and no frame is open. Its memory stays until the
        // last frame is released.
        unsafe { sys::cairn_ring_close(self.ring.as_ptr()) };
    }
}

/// The contents of a frame, and the number of its holds. The ring has a count of its own with 32
/// bits, but clones that are forgotten instead of dropped could overflow it.
#[repr(C)]
struct Held<T> {
    holds: AtomicUsize,
    is: T,
}

/// Releases a frame if filling it failed.
struct Open {
    ring: NonNull<sys::cairn_ring>,
    frame: sys::cairn_frame,
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the ring belongs to this thread, its frame is open, and no reference to the frame
        // exists.
        unsafe {
            sys::cairn_ring_seal(self.ring.as_ptr());
            sys::cairn_ring_release(self.frame);
        }
    }
}

/// A frame that is being filled. Its blocks live as long as the frame.
pub struct Making<'f> {
    ring: NonNull<sys::cairn_ring>,
    lifetime: PhantomData<fn(&'f ()) -> &'f ()>,
}

impl<'f> Making<'f> {
    /// Moves the value into the frame.
    ///
    /// ```
    /// # use cairn_alloc::{Contents, Ring};
    /// # struct Number;
    /// impl Contents for Number { type Of<'f> = &'f mut i32; }
    /// let frame = Ring::new()?.frame::<Number>(|f| f.alloc(1))?;
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    #[allow(clippy::mut_from_ref)]
    pub fn alloc<T>(&self, value: T) -> Result<&'f mut T, Error> {
        const { assert!(!needs_drop::<T>(), "nothing in a ring's frame is dropped") };
        let place = self.layout(Layout::new::<T>())?.cast::<T>();
        // SAFETY: the block is new and has room for a T; it stays until the frame's last release.
        unsafe {
            place.write(value);
            Ok(&mut *place.as_ptr())
        }
    }

    /// Allocates `count` values; `make` creates each one from its index.
    ///
    /// ```
    /// # use cairn_alloc::{Contents, Ring};
    /// # struct Squares;
    /// impl Contents for Squares { type Of<'f> = &'f [usize]; }
    /// let frame = Ring::new()?.frame::<Squares>(|f| Ok(f.alloc_slice_with(5, |i| i * i)?))?;
    /// assert_eq!(frame.with(|squares| squares[4]), 16);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out, or the size overflows.
    #[allow(clippy::mut_from_ref)]
    pub fn alloc_slice_with<T>(
        &self,
        count: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<&'f mut [T], Error> {
        const { assert!(!needs_drop::<T>(), "nothing in a ring's frame is dropped") };
        let layout = Layout::array::<T>(count).map_err(|_| Error::OUT_OF_MEMORY)?;
        let start = self.layout(layout)?.cast::<T>();
        for index in 0..count {
            // SAFETY: the element is within the block. `make` may allocate, but cannot reach this
            // block.
            unsafe { start.add(index).write(make(index)) };
        }
        // SAFETY: all elements are written.
        Ok(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), count) })
    }

    /// Copies the string into the frame.
    ///
    /// ```
    /// # use cairn_alloc::{Contents, Ring};
    /// # struct Text;
    /// impl Contents for Text { type Of<'f> = &'f str; }
    /// let frame = Ring::new()?.frame::<Text>(|f| Ok(f.alloc_str("text")?))?;
    /// assert_eq!(frame.with(|text| text.len()), 4);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    #[allow(clippy::mut_from_ref)]
    pub fn alloc_str(&self, from: &str) -> Result<&'f mut str, Error> {
        let bytes = self.alloc_slice_with(from.len(), |index| from.as_bytes()[index])?;
        // SAFETY: the bytes are a copy of valid UTF-8.
        Ok(unsafe { core::str::from_utf8_unchecked_mut(bytes) })
    }

    fn layout(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        // SAFETY: the ring belongs to this thread, and its frame is open.
        let block =
            unsafe { sys::cairn_sys_ring_alloc(self.ring.as_ptr(), layout.size(), layout.align()) };
        NonNull::new(block.cast()).ok_or_else(Error::last)
    }
}

impl fmt::Debug for Making<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Making").finish_non_exhaustive()
    }
}

/// A hold on a sealed frame. A clone is another hold. The frame ends when the last hold is dropped.
pub struct Frame<C: Contents> {
    handle: sys::cairn_frame,
    contents: NonNull<AtomicUsize>, // the start of a Held<C::Of<'_>> in the frame
    of: PhantomData<C>,
}

// SAFETY: any thread may drop a hold, and holds share only a reference to the contents.
unsafe impl<C: Contents> Send for Frame<C> where for<'f> C::Of<'f>: Send + Sync {}
// SAFETY: any thread may drop a hold, and holds share only a reference to the contents.
unsafe impl<C: Contents> Sync for Frame<C> where for<'f> C::Of<'f>: Send + Sync {}

impl<C: Contents> Frame<C> {
    /// Calls `function` with a reference to the frame's contents.
    ///
    /// ```
    /// # use cairn_alloc::{Contents, Ring};
    /// # struct Number;
    /// impl Contents for Number { type Of<'f> = u32; }
    /// let frame = Ring::new()?.frame::<Number>(|_| Ok(7))?;
    /// assert_eq!(frame.with(|number| *number), 7);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn with<R>(&self, function: impl for<'f> FnOnce(&C::Of<'f>) -> R) -> R {
        // SAFETY: the contents were written before the seal, and exist as long as this hold.
        function(unsafe { &self.contents.cast::<Held<C::Of<'_>>>().as_ref().is })
    }
}

impl<C: Contents> Clone for Frame<C> {
    fn clone(&self) -> Self {
        // SAFETY: the frame exists as long as this hold.
        let before = unsafe { self.contents.as_ref() }.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "cairn: too many holds on a frame");
        Frame { handle: self.handle, contents: self.contents, of: PhantomData }
    }
}

impl<C: Contents> Drop for Frame<C> {
    fn drop(&mut self) {
        // SAFETY: the frame exists as long as this hold. This release pairs with the acquire of the
        // last drop.
        if unsafe { self.contents.as_ref() }.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: this was the last hold, so no reference to the frame exists.
            unsafe { sys::cairn_ring_release(self.handle) };
        }
    }
}

impl<C: Contents> fmt::Debug for Frame<C> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Frame").field("index", &self.handle.index).finish_non_exhaustive()
    }
}
