//! Objects that die about in the order in which they were made: `cairn/fifo.h`.

use crate::Error;
use cairn_sys as sys;
use core::marker::PhantomData;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// Makes objects for queues. It stays with its thread; the objects may go to others, be dropped by
/// them in any order, and outlive it.
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
    /// A new FIFO.
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

    /// One whose objects, dead ones included, hold at most so many bytes, in segments of 64 KiB.
    ///
    /// ```
    /// let fifo = cairn_alloc::Fifo::with_limit(1 << 16)?;
    /// assert!(fifo.alloc([0u8; 1 << 17]).unwrap_err().is_out_of_memory());
    /// assert_eq!(cairn_alloc::Fifo::with_limit(1).unwrap_err().code(), 22); // EINVAL
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out, and for a limit below one segment.
    pub fn with_limit(max_bytes: usize) -> Result<Self, Error> {
        let options = sys::cairn_fifo_options {
            max_bytes,
            name: c"Rust fifo".as_ptr(),
            any_thread_free: true,
            out_of_memory: None,
            out_of_memory_context: ptr::null_mut(),
        };
        // SAFETY: the options and the name in them are there.
        let fifo = unsafe { sys::cairn_fifo_new(&raw const options) };
        Ok(Fifo { fifo: NonNull::new(fifo).ok_or_else(Error::last)? })
    }

    /// An object with this value.
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
    /// When memory is out; the value is dropped then.
    pub fn alloc<T>(&self, value: T) -> Result<FifoBox<T>, Error> {
        // SAFETY: this thread's (a FIFO is not Send). Size 0 counts as 1.
        let object = unsafe {
            sys::cairn_sys_fifo_alloc(self.fifo.as_ptr(), size_of::<T>(), align_of::<T>())
        };
        let object = NonNull::new(object.cast::<T>()).ok_or_else(Error::last)?;
        // SAFETY: room for a T that nobody else has.
        unsafe { object.write(value) };
        Ok(FifoBox { object, fifo: self.fifo, owns: PhantomData })
    }

    /// Gives all empty segments but `keep_bytes` back to the system; how many bytes went.
    ///
    /// ```
    /// let fifo = cairn_alloc::Fifo::new()?;
    /// fifo.trim(0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[allow(clippy::must_use_candidate)]
    pub fn trim(&self, keep_bytes: usize) -> usize {
        // SAFETY: this thread's.
        unsafe { sys::cairn_fifo_trim(self.fifo.as_ptr(), keep_bytes) }
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        // SAFETY: this thread's; it ends with its last object, which may be later.
        unsafe { sys::cairn_fifo_close(self.fifo.as_ptr()) };
    }
}

/// An object of a [`Fifo`]; it is dropped and given back with this.
#[derive(Debug)]
pub struct FifoBox<T> {
    object: NonNull<T>,
    fifo: NonNull<sys::cairn_fifo>,
    owns: PhantomData<T>,
}

// SAFETY: as Box<T>; the FIFO takes frees from any thread, and lives as long as its objects.
unsafe impl<T: Send> Send for FifoBox<T> {}
// SAFETY: as Box<T>.
unsafe impl<T: Sync> Sync for FifoBox<T> {}

impl<T> FifoBox<T> {
    /// The value; its place is given back.
    ///
    /// ```
    /// let fifo = cairn_alloc::Fifo::new()?;
    /// assert_eq!(fifo.alloc(vec![1, 2])?.into_inner(), [1, 2]);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: the box is not dropped; the value is taken once, before its place goes.
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
                // SAFETY: freed once, by any thread.
                unsafe { sys::cairn_sys_fifo_free(fifo.as_ptr(), object.as_ptr().cast()) };
            }
        }
        let object = self.object;
        let _place = Place(self); // also when the value's drop panics
        // SAFETY: the box owns the value.
        unsafe { object.drop_in_place() };
    }
}
