//! Objects that are freed in nearly the order of their allocation: `cairn/fifo.h`.

use crate::Error;
use cairn_sys as sys;
use core::marker::PhantomData;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// Allocates objects for queues. A `Fifo` stays in its thread. Its objects may move to other
/// threads, be dropped there in any order, and outlive the `Fifo`.
///
/// ```
/// use cairn_alloc::{Fifo, FifoBox};
/// use std::sync::mpsc;
///
/// let fifo = Fifo::new()?;
/// let (sender, receiver) = mpsc::channel();
/// let consumer =
///     std::thread::spawn(move || receiver.iter().map(FifoBox::into_inner).sum::<u64>());
/// for number in 0..1000 {
///     sender.send(fifo.alloc(number)?).expect("the consumer is there");
/// }
/// drop(sender);
/// drop(fifo);
/// assert_eq!(consumer.join().unwrap(), 499_500);
/// # Ok::<(), cairn_alloc::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// let fifo = cairn_alloc::Fifo::new().unwrap();
/// std::thread::spawn(move || drop(fifo));   // not Send
/// ```
#[derive(Debug)]
pub struct Fifo {
    fifo: NonNull<sys::cairn_fifo>,
}

impl Fifo {
    /// Creates a FIFO without a limit.
    ///
    /// ```
    /// let fifo = cairn_alloc::Fifo::new()?;
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    pub fn new() -> Result<Self, Error> {
        Self::with_limit(0)
    }

    /// Creates a FIFO with a limit on the memory of live and dead objects, in whole segments of 64
    /// KiB.
    ///
    /// ```
    /// let fifo = cairn_alloc::Fifo::with_limit(1 << 16)?;
    /// assert!(fifo.alloc([0u8; 1 << 17]).unwrap_err().is_out_of_memory());
    /// assert_eq!(cairn_alloc::Fifo::with_limit(1).unwrap_err().code(), 22); // EINVAL
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out, or the limit is smaller than one segment.
    pub fn with_limit(max_bytes: usize) -> Result<Self, Error> {
        let options = sys::cairn_fifo_options {
            max_bytes,
            name: c"Rust fifo".as_ptr(),
            any_thread_free: true,
            out_of_memory: None,
            out_of_memory_context: ptr::null_mut(),
        };
        // SAFETY: the options and the name in them are valid during the call.
        let fifo = unsafe { sys::cairn_fifo_new(&raw const options) };
        Ok(Fifo { fifo: NonNull::new(fifo).ok_or_else(Error::last)? })
    }

    /// Allocates an object and moves the value to it.
    ///
    /// ```
    /// let fifo = cairn_alloc::Fifo::new()?;
    /// let mut text = fifo.alloc(String::from("first in"))?;
    /// text.push_str(", first out");
    /// assert_eq!(text.len(), 19);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out; then the value is dropped.
    pub fn alloc<T>(&self, value: T) -> Result<FifoBox<T>, Error> {
        // SAFETY: only this thread uses the FIFO, which is not Send. The FIFO counts size 0 as 1.
        let object = unsafe {
            sys::cairn_sys_fifo_alloc(self.fifo.as_ptr(), size_of::<T>(), align_of::<T>())
        };
        let object = NonNull::new(object.cast::<T>()).ok_or_else(Error::last)?;
        // SAFETY: the object is new and has room for a T.
        unsafe { object.write(value) };
        Ok(FifoBox { object, fifo: self.fifo, owns: PhantomData })
    }

    /// Returns all empty segments except `keep_bytes` to the system. Returns how many bytes it
    /// released.
    ///
    /// ```
    /// let fifo = cairn_alloc::Fifo::new()?;
    /// fifo.trim(0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[allow(clippy::must_use_candidate)]
    pub fn trim(&self, keep_bytes: usize) -> usize {
        // SAFETY: only this thread uses the FIFO, which is not Send.
        unsafe { sys::cairn_fifo_trim(self.fifo.as_ptr(), keep_bytes) }
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        // SAFETY: only this thread uses the FIFO. Its memory stays until the last object is freed.
        unsafe { sys::cairn_fifo_close(self.fifo.as_ptr()) };
    }
}

/// An object of a [`Fifo`]. Dropping the box drops the value and frees its memory.
#[derive(Debug)]
pub struct FifoBox<T> {
    object: NonNull<T>,
    fifo: NonNull<sys::cairn_fifo>,
    owns: PhantomData<T>,
}

// SAFETY: as Box<T>. Any thread may free an object, and the FIFO's memory outlives its objects.
unsafe impl<T: Send> Send for FifoBox<T> {}
// SAFETY: as Box<T>.
unsafe impl<T: Sync> Sync for FifoBox<T> {}

impl<T> FifoBox<T> {
    /// Returns the value and frees its memory.
    ///
    /// ```
    /// let fifo = cairn_alloc::Fifo::new()?;
    /// assert_eq!(fifo.alloc(vec![1, 2])?.into_inner(), [1, 2]);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: the box is not dropped, and the value is read once, before its memory is freed.
        unsafe {
            let value = this.object.read();
            sys::cairn_sys_fifo_free(this.fifo.as_ptr(), this.object.as_ptr().cast());
            value
        }
    }
}

impl<T> Deref for FifoBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the box owns the object.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for FifoBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box owns the object.
        unsafe { self.object.as_mut() }
    }
}

impl<T> Drop for FifoBox<T> {
    fn drop(&mut self) {
        struct Place<'a, T>(&'a FifoBox<T>);
        impl<T> Drop for Place<'_, T> {
            fn drop(&mut self) {
                let FifoBox { object, fifo, .. } = self.0;
                // SAFETY: the object is freed once, and any thread may free it.
                unsafe { sys::cairn_sys_fifo_free(fifo.as_ptr(), object.as_ptr().cast()) };
            }
        }
        let object = self.object;
        let _place = Place(self); // also when the value's drop panics
        // SAFETY: the box owns the value.
        unsafe { object.drop_in_place() };
    }
}
