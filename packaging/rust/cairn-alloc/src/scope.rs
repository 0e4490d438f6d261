//! Memory that ends with a scope: frames of `cairn/stack.h`, whose blocks carry the scope's
//! lifetime.

use crate::{Error, bump};
use cairn_sys as sys;
use core::alloc::Layout;
use core::fmt::{self, Write};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// A frame that is open. Its blocks have the lifetime `'s`, which ends with the call that opened
/// the frame. So no reference to them can be kept longer:
///
/// ```compile_fail,E0521
/// let mut kept = None;
/// cairn_alloc::scope(|s| kept = Some(s.alloc(1)));   // borrowed data escapes the closure
/// ```
///
/// ```compile_fail
/// let number: &mut i32 = cairn_alloc::scope(|s| s.alloc(1));   // may not live long enough
/// ```
///
/// Blocks of a scope can be used within a nested scope. Blocks of the nested scope end with it:
///
/// ```
/// cairn_alloc::scope(|s| {
///     let sum = s.alloc(0);
///     s.scope(|inner| *sum += inner.alloc_slice_copy(&[1, 2, 3]).iter().sum::<i32>());
///     assert_eq!(*sum, 6);
/// });
/// ```
///
/// ```compile_fail,E0521
/// cairn_alloc::scope(|s| {
///     let mut kept = s.alloc(0);
///     s.scope(|inner| kept = inner.alloc(1));   // the inner frame ends first
/// });
/// ```
///
/// A scope cannot be used by another thread, but its blocks can:
///
/// ```compile_fail,E0277
/// cairn_alloc::scope(|s| std::thread::scope(|threads| { threads.spawn(|| { s.alloc(1); }); }));
/// ```
///
/// Values in the scope may borrow from data around it, which has the lifetime `'e`.
///
/// ```
/// let name = String::from("cairn");
/// cairn_alloc::scope(|s| assert_eq!(s.alloc(&name).len(), 5));
/// ```
///
/// The end of the scope drops no values, except those in a [`ScopeBox`].
pub struct Scope<'s, 'e: 's> {
    stack: NonNull<sys::cairn_stack>,
    mark: sys::cairn_mark,
    // Invariant: two scopes never have the same type, so they cannot be exchanged.
    lifetime: PhantomData<fn(&'s ()) -> &'s ()>,
    around: PhantomData<fn(&'e ()) -> &'e ()>,
}

/// Ends the frame, also after a panic.
struct Guard<'s, 'e>(Scope<'s, 'e>);

impl Drop for Guard<'_, '_> {
    fn drop(&mut self) {
        let Scope { stack, mark, .. } = self.0;
        // SAFETY: this frame is open. The guards of newer frames have already ended those.
        unsafe {
            if !bump::pop(stack.as_ptr(), mark) {
                sys::cairn_stack_pop_slow(stack.as_ptr(), mark);
            }
        }
    }
}

/// Opens a frame on the thread's own stack and calls `function` with it. The frame ends when
/// `function` returns or panics.
///
/// ```
/// let longest = cairn_alloc::scope(|s| {
///     let words = s.alloc_slice_copy(&["a", "list", "of", "words"]);
///     words.iter().map(|word| word.len()).max()
/// });
/// assert_eq!(longest, Some(5));
/// ```
///
/// # Panics
/// When memory is out.
pub fn scope<'e, R>(function: impl for<'s> FnOnce(&mut Scope<'s, 'e>) -> R) -> R {
    try_scope(function).expect("cairn: no memory for a scope")
}

/// Opens a frame on the thread's own stack and calls `function` with it. Returns an error when
/// memory is out.
///
/// ```
/// assert_eq!(cairn_alloc::try_scope(|s| *s.alloc(7)), Ok(7));
/// ```
///
/// # Errors
/// When there is no memory for the frame; then `function` is not called.
pub fn try_scope<'e, R>(
    function: impl for<'s> FnOnce(&mut Scope<'s, 'e>) -> R,
) -> Result<R, Error> {
    // SAFETY: the function returns this thread's stack, which lives as long as the thread.
    let stack = NonNull::new(unsafe { sys::cairn_thread_stack() }).ok_or_else(Error::last)?;
    // SAFETY: the stack belongs to this thread and lives as long as the thread.
    unsafe { run(stack, function) }
}

/// # Safety
/// The stack belongs to this thread and outlives the call.
pub(crate) unsafe fn run<'e, R>(
    stack: NonNull<sys::cairn_stack>,
    function: impl for<'s> FnOnce(&mut Scope<'s, 'e>) -> R,
) -> Result<R, Error> {
    // SAFETY: the caller's promise.
    let mark = unsafe {
        bump::push(stack.as_ptr()).unwrap_or_else(|| sys::cairn_stack_push_slow(stack.as_ptr()))
    };
    if mark.frame.is_null() {
        return Err(Error::last());
    }
    let mut guard = Guard(Scope { stack, mark, lifetime: PhantomData, around: PhantomData });
    Ok(function(&mut guard.0))
}

impl<'s> Scope<'s, '_> {
    /// Moves the value into the scope.
    ///
    /// ```
    /// cairn_alloc::scope(|s| {
    ///     let pair = s.alloc((1, "one"));
    ///     pair.0 += 1;
    ///     assert_eq!(*pair, (2, "one"));
    /// });
    /// ```
    ///
    /// When memory is out, or a nested scope is open.
    /// When memory is out, and when a scope was opened since and has not ended.
    #[allow(clippy::mut_from_ref)]
    pub fn alloc<T>(&self, value: T) -> &'s mut T {
        self.try_alloc(value).expect("cairn: no memory in a scope")
    }

    /// Moves the value into the scope. Returns an error when memory is out; then the value is
    /// dropped.
    ///
    /// ```
    /// cairn_alloc::scope(|s| assert_eq!(s.try_alloc(1).map(|number| *number), Ok(1)));
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    #[allow(clippy::mut_from_ref)]
    pub fn try_alloc<T>(&self, value: T) -> Result<&'s mut T, Error> {
        let place = self.try_alloc_layout(Layout::new::<T>())?.cast::<T>();
        // SAFETY: the block is new and has room for a T; it stays until the frame ends.
        unsafe {
            place.write(value);
            Ok(&mut *place.as_ptr())
        }
    }

    /// Copies the slice into the scope.
    ///
    /// ```
    /// cairn_alloc::scope(|s| assert_eq!(s.alloc_slice_copy(&[1, 2, 3])[2], 3));
    /// ```
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[allow(clippy::mut_from_ref)]
    pub fn alloc_slice_copy<T: Copy>(&self, from: &[T]) -> &'s mut [T] {
        self.alloc_slice_with(from.len(), |index| from[index])
    }

    /// Allocates `count` values; `make` creates each one from its index.
    ///
    /// ```
    /// let sum: usize = cairn_alloc::scope(|s| s.alloc_slice_with(10, |i| i * i).iter().sum());
    /// assert_eq!(sum, 285);
    /// ```
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[allow(clippy::mut_from_ref)]
    pub fn alloc_slice_with<T>(&self, count: usize, make: impl FnMut(usize) -> T) -> &'s mut [T] {
        self.try_alloc_slice_with(count, make).expect("cairn: no memory in a scope")
    }

    /// Allocates `count` values; `make` creates each one from its index. Returns an error when
    /// memory is out, before the first call of `make`.
    ///
    /// ```
    /// cairn_alloc::scope(|s| assert!(s.try_alloc_slice_with(usize::MAX, |_| 0u64).is_err()));
    /// ```
    ///
    /// # Errors
    /// When memory is out, or the size overflows.
    #[allow(clippy::mut_from_ref)]
    pub fn try_alloc_slice_with<T>(
        &self,
        count: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<&'s mut [T], Error> {
        let layout = Layout::array::<T>(count).map_err(|_| Error::OUT_OF_MEMORY)?;
        let start = self.try_alloc_layout(layout)?.cast::<T>();
        for index in 0..count {
            // SAFETY: the element is within the block. `make` may allocate, but cannot reach this
            // block.
            unsafe { start.add(index).write(make(index)) };
        }
        // SAFETY: all elements are written.
        Ok(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), count) })
    }

    /// Copies the string into the scope.
    ///
    /// ```
    /// cairn_alloc::scope(|s| assert_eq!(s.alloc_str("cairn").to_uppercase(), "CAIRN"));
    /// ```
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[must_use]
    #[allow(clippy::mut_from_ref)]
    pub fn alloc_str(&self, from: &str) -> &'s mut str {
        let bytes = self.alloc_slice_copy(from.as_bytes());
        // SAFETY: the bytes are a copy of valid UTF-8.
        unsafe { core::str::from_utf8_unchecked_mut(bytes) }
    }

    /// Formats a string into the scope, as `format!` does on the heap.
    ///
    /// ```
    /// cairn_alloc::scope(|s| assert_eq!(s.alloc_fmt(format_args!("{}-{}", 1, 2)), "1-2"));
    /// ```
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc), and when formatting a value fails or has another result the
    /// second time.
    #[must_use]
    #[allow(clippy::mut_from_ref)]
    pub fn alloc_fmt(&self, arguments: fmt::Arguments<'_>) -> &'s mut str {
        let mut length = Length(0);
        length.write_fmt(arguments).expect("a value that can be printed");
        let mut text = Text { bytes: self.alloc_slice_with(length.0, |_| 0), used: 0 };
        text.write_fmt(arguments).expect("a value that is printed twice alike");
        let Text { bytes, used } = text;
        // SAFETY: only whole strings were written, one after the other.
        unsafe { core::str::from_utf8_unchecked_mut(&mut bytes[..used]) }
    }

    /// Moves the value into the scope. Dropping the box drops the value.
    ///
    /// ```
    /// use std::rc::Rc;
    /// let counted = Rc::new(());
    /// cairn_alloc::scope(|s| {
    ///     let held = s.alloc_box(Rc::clone(&counted));
    ///     assert_eq!(Rc::strong_count(&held), 2);
    /// });
    /// assert_eq!(Rc::strong_count(&counted), 1);
    /// ```
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    pub fn alloc_box<T>(&self, value: T) -> ScopeBox<'s, T> {
        ScopeBox { value: self.alloc(value) }
    }

    /// Allocates memory for the layout, with undefined contents, that lives as long as `'s`.
    ///
    /// ```
    /// use std::alloc::Layout;
    /// cairn_alloc::scope(|s| {
    ///     let block = s.try_alloc_layout(Layout::from_size_align(100, 4096)?).unwrap();
    ///     assert_eq!(block.as_ptr() as usize % 4096, 0);
    ///     Ok::<(), std::alloc::LayoutError>(())
    /// })?;
    /// # Ok::<(), std::alloc::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    ///
    /// # Panics
    /// When a nested scope is open on the same stack: the block would end with that scope.
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        assert!(self.is_newest(), "cairn: allocation in a scope while one within it is open");
        if layout.size() == 0 {
            return Ok(crate::error::dangling(layout));
        }
        // SAFETY: the stack belongs to this thread (a scope is not Send), and its newest frame is
        // this scope's.
        let block = unsafe {
            let block = bump::alloc(self.stack.as_ptr(), layout.size(), layout.align());
            if block.is_null() {
                let stack = self.stack.as_ptr();
                sys::cairn_stack_alloc_slow(stack, layout.size(), layout.align()).cast()
            } else {
                block
            }
        };
        NonNull::new(block).ok_or_else(Error::last)
    }

    /// Opens a scope within this one. Until it ends, this scope cannot allocate.
    ///
    /// ```compile_fail,E0502
    /// cairn_alloc::scope(|s| s.scope(|inner| { s.alloc(1); }));   // the inner one borrows s
    /// ```
    ///
    /// ```
    /// cairn_alloc::scope(|s| {
    ///     for round in 0..1000 {
    ///         s.scope(|inner| assert_eq!(inner.alloc([round; 100])[99], round));
    ///     }
    /// });
    /// ```
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    pub fn scope<R>(&mut self, function: impl for<'i> FnOnce(&mut Scope<'i, 's>) -> R) -> R {
        assert!(self.is_newest(), "cairn: a scope in a scope while one within it is open");
        // SAFETY: the stack belongs to this thread and outlives its frames.
        unsafe { run(self.stack, function) }.expect("cairn: no memory for a scope")
    }

    #[inline]
    pub(crate) fn is_newest(&self) -> bool {
        // SAFETY: the stack outlives the frame.
        unsafe { (*self.stack.as_ptr()).frame == self.mark.frame }
    }

    /// Returns this frame again, for an allocator that lives no longer than this scope.
    #[cfg(feature = "allocator-api2")]
    pub(crate) fn again(&self) -> Scope<'s, 's> {
        let Scope { stack, mark, .. } = *self;
        Scope { stack, mark, lifetime: PhantomData, around: PhantomData }
    }

    /// Changes the size of a block, in place or by moving it. Returns none when memory is out or
    /// this frame is not the newest.
    ///
    /// # Safety
    /// The block belongs to this scope and has this layout.
    #[cfg(feature = "allocator-api2")]
    pub(crate) unsafe fn realloc(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
        align: usize,
    ) -> Option<NonNull<u8>> {
        if !self.is_newest() {
            return None;
        }
        let (stack, block) = (self.stack.as_ptr(), block.as_ptr().cast());
        // SAFETY: the newest frame is this scope's, and contains the block.
        NonNull::new(unsafe {
            sys::cairn_stack_realloc_slow(stack, block, old.size(), new_size, align).cast()
        })
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Scope").field("frame", &self.mark.frame).finish_non_exhaustive()
    }
}

struct Length(usize);

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

struct Text<'s> {
    bytes: &'s mut [u8],
    used: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.used + text.len();
        let room = self.bytes.get_mut(self.used..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used = end;
        Ok(())
    }
}

/// A value in a scope that is dropped with this box, as with `Box` of `std`. The box may not
/// outlive the scope:
///
/// ```compile_fail
/// let kept = cairn_alloc::scope(|s| s.alloc_box(String::from("text")));
/// ```
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeBox<'s, T: ?Sized> {
    value: &'s mut T,
}

impl<T: ?Sized> Deref for ScopeBox<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T: ?Sized> DerefMut for ScopeBox<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

impl<T: ?Sized> Drop for ScopeBox<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the box owns the value and does not use it afterwards.
        unsafe { ptr::drop_in_place(&raw mut *self.value) }
    }
}
