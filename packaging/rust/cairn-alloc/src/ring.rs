//! Frames made by one thread and released by any: `cairn/ring.h`.

use crate::Error;
use crate::error::dangling;
use cairn_sys as sys;
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, needs_drop};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering, fence};

/// The type of what a frame holds, which may refer to the rest of the frame: `Of<'f>` for the
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
    /// The type, for the lifetime of a frame.
    type Of<'f>: 'f;
}

/// Makes frames. It stays with its thread; frames go to any thread, are released by any, in any
/// order, and may outlive it.
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
/// What is in a frame cannot leave it:
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
    /// A new ring.
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

    /// One whose live frames hold at most so many bytes: out of memory means that it is time to
    /// wait for releases.
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
        // SAFETY: the options and the name in them are there.
        let ring = unsafe { sys::cairn_ring_new(&raw const options) };
        Ok(Ring { ring: NonNull::new(ring).ok_or_else(Error::last)? })
    }

    /// Opens a frame, has `make` fill it, and seals it. Where that fails or panics the frame is
    /// gone. Types with a drop are refused by the compiler: nothing in a frame is dropped.
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
    /// When memory or the ring's limit is out, and those of `make`.
    pub fn frame<C: Contents>(
        &mut self,
        make: impl for<'f> FnOnce(&Making<'f>) -> Result<C::Of<'f>, Error>,
    ) -> Result<Frame<C>, Error> {
        // SAFETY: this thread's (a ring is not Send), and no frame is open: each borrows the ring.
        let frame = unsafe { sys::cairn_ring_open(self.ring.as_ptr()) };
        if frame.chunk.is_null() {
            return Err(Error::last());
        }
        let open = Open { ring: self.ring, frame };
        let making = Making { ring: self.ring, lifetime: PhantomData };
        let contents = making.alloc(Held { holds: AtomicUsize::new(1), is: make(&making)? })?;
        let contents = NonNull::from(contents).cast();
        mem::forget(open);
        // SAFETY: the frame is open; from here on it needs one release.
        let handle = unsafe { sys::cairn_ring_seal(self.ring.as_ptr()) };
        Ok(Frame { handle, contents, of: PhantomData })
    }

    /// Gives all free memory but `keep_bytes` back to the system; how many bytes went.
    ///
    /// ```
    /// cairn_alloc::Ring::new()?.trim(0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn trim(&mut self, keep_bytes: usize) -> usize {
        // SAFETY: this thread's.
        unsafe { sys::cairn_ring_trim(self.ring.as_ptr(), keep_bytes) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this thread's, no frame is open; it ends with the last release.
        unsafe { sys::cairn_ring_close(self.ring.as_ptr()) };
    }
}

/// What a frame holds, and how many hold it: counted here and not by the ring, whose count of 32
/// bits clones that are forgotten, never dropped, could exceed.
#[repr(C)]
struct Held<T> {
    holds: AtomicUsize,
    is: T,
}

/// Ends a frame that was not finished.
struct Open {
    ring: NonNull<sys::cairn_ring>,
    frame: sys::cairn_frame,
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: this thread's ring, whose frame is open; nothing refers to it any more.
        unsafe {
            sys::cairn_ring_seal(self.ring.as_ptr());
            sys::cairn_ring_release(self.frame);
        }
    }
}

/// A frame that is being made. What is allocated in it lives as long as the frame.
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
        // SAFETY: room for a T that nobody else has, until the frame's last release.
        unsafe {
            place.write(value);
            Ok(&mut *place.as_ptr())
        }
    }

    /// `count` values, each made by `make` of its index.
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
            // SAFETY: within the block; `make` may allocate, but not touch it.
            unsafe { start.add(index).write(make(index)) };
        }
        // SAFETY: all are written.
        Ok(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), count) })
    }

    /// A copy of the string.
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
        // SAFETY: a copy of valid UTF-8.
        Ok(unsafe { core::str::from_utf8_unchecked_mut(bytes) })
    }

    fn layout(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        // SAFETY: this thread's ring, whose frame is open.
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

/// A hold on a sealed frame. The last one that is dropped ends the frame; a clone is one more.
pub struct Frame<C: Contents> {
    handle: sys::cairn_frame,
    contents: NonNull<AtomicUsize>, // the start of a Held<C::Of<'_>> in the frame
    of: PhantomData<C>,
}

// SAFETY: holds are given up by any thread; what is shared is a reference to the contents.
unsafe impl<C: Contents> Send for Frame<C> where for<'f> C::Of<'f>: Send + Sync {}
// SAFETY: as above.
unsafe impl<C: Contents> Sync for Frame<C> where for<'f> C::Of<'f>: Send + Sync {}

impl<C: Contents> Frame<C> {
    /// Calls `function` with what the frame holds.
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
        // SAFETY: written before the seal, and there as long as this hold.
        function(unsafe { &self.contents.cast::<Held<C::Of<'_>>>().as_ref().is })
    }
}

impl<C: Contents> Clone for Frame<C> {
    fn clone(&self) -> Self {
        // SAFETY: this is a hold, so the frame is there.
        let before = unsafe { self.contents.as_ref() }.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "cairn: too many holds on a frame");
        Frame { handle: self.handle, contents: self.contents, of: PhantomData }
    }
}

impl<C: Contents> Drop for Frame<C> {
    fn drop(&mut self) {
        // SAFETY: this is a hold, so the frame is there. Release pairs with the acquire of the
        // last.
        if unsafe { self.contents.as_ref() }.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: the last hold: nobody refers to the frame any more.
            unsafe { sys::cairn_ring_release(self.handle) };
        }
    }
}

impl<C: Contents> fmt::Debug for Frame<C> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Frame").field("index", &self.handle.index).finish_non_exhaustive()
    }
}
