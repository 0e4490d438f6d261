//! Memory that ends with a scope: frames of `cairn/stack.h`, whose blocks carry the scope's
//! lifetime.

use crate::{Error, bump};
use cairn_sys as sys;
use core::alloc::Layout;
use core::fmt::{self, Write};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// A frame that is open. What is allocated in it has its lifetime `'s`, which is that of the call
/// that opened it, so nothing of it can be kept beyond:
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
/// What was allocated before a nested scope stays usable in it; what is allocated in it ends with
/// it:
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
/// Nor can a scope be used by another thread; what it holds can:
///
/// ```compile_fail,E0277
/// cairn_alloc::scope(|s| std::thread::scope(|threads| { threads.spawn(|| { s.alloc(1); }); }));
/// ```
///
/// `'e` is what lies around the scope: values in it may borrow from there.
///
/// ```
/// let name = String::from("cairn");
/// cairn_alloc::scope(|s| assert_eq!(s.alloc(&name).len(), 5));
/// ```
///
/// Values are not dropped at the end of the scope, unless they are in a [`ScopeBox`].
pub struct Scope<'s, 'e: 's> {
    stack: NonNull<sys::cairn_stack>,
    mark: sys::cairn_mark,
    // Invariant: two scopes are never of one type, so they cannot be exchanged.
    lifetime: PhantomData<fn(&'s ()) -> &'s ()>,
    around: PhantomData<fn(&'e ()) -> &'e ()>,
}

/// Ends the frame also when a panic passes.
struct Guard<'s, 'e>(Scope<'s, 'e>);

impl Drop for Guard<'_, '_> {
    fn drop(&mut self) {
        let Scope { stack, mark, .. } = self.0;
        // SAFETY: this frame is open; those above it have ended with their own guards.
        unsafe {
            if !bump::pop(stack.as_ptr(), mark) {
                sys::cairn_stack_pop_slow(stack.as_ptr(), mark);
            }
        }
    }
}

/// Opens a frame on the thread's own stack and calls `function` with it. It ends when that returns
/// or panics.
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

/// The same, but says it when memory is out.
///
/// ```
/// assert_eq!(cairn_alloc::try_scope(|s| *s.alloc(7)), Ok(7));
/// ```
///
/// # Errors
/// When there is no memory for the frame; `function` was not called.
pub fn try_scope<'e, R>(
    function: impl for<'s> FnOnce(&mut Scope<'s, 'e>) -> R,
) -> Result<R, Error> {
    // SAFETY: it gives this thread's stack, which lives as long as the thread.
    let stack = NonNull::new(unsafe { sys::cairn_thread_stack() }).ok_or_else(Error::last)?;
    // SAFETY: as above.
    unsafe { run(stack, function) }
}

/// # Safety
/// The stack is this thread's, and outlives the call.
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
    /// # Panics
    /// When memory is out, and when a scope was opened since and has not ended.
    #[allow(clippy::mut_from_ref)]
    pub fn alloc<T>(&self, value: T) -> &'s mut T {
        self.try_alloc(value).expect("cairn: no memory in a scope")
    }

    /// The same, but says it when memory is out; the value is dropped then.
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
        // SAFETY: room for a T that nobody else has, until the frame ends.
        unsafe {
            place.write(value);
            Ok(&mut *place.as_ptr())
        }
    }

    /// A copy of the slice.
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

    /// `count` values, each made by `make` of its index.
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

    /// The same, but says it when memory is out, before `make` is called.
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
            // SAFETY: within the block; `make` may allocate, but not touch it.
            unsafe { start.add(index).write(make(index)) };
        }
        // SAFETY: all are written.
        Ok(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), count) })
    }

    /// A copy of the string.
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
        // SAFETY: a copy of valid UTF-8.
        unsafe { core::str::from_utf8_unchecked_mut(bytes) }
    }

    /// What `format!` would make, in the scope.
    ///
    /// ```
    /// cairn_alloc::scope(|s| assert_eq!(s.alloc_fmt(format_args!("{}-{}", 1, 2)), "1-2"));
    /// ```
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc), and when a value is not printed twice alike or says it cannot be.
    #[must_use]
    #[allow(clippy::mut_from_ref)]
    pub fn alloc_fmt(&self, arguments: fmt::Arguments<'_>) -> &'s mut str {
        let mut length = Length(0);
        length.write_fmt(arguments).expect("a value that can be printed");
        let mut text = Text { bytes: self.alloc_slice_with(length.0, |_| 0), used: 0 };
        text.write_fmt(arguments).expect("a value that is printed twice alike");
        let Text { bytes, used } = text;
        // SAFETY: whole strings were written, one behind the other.
        unsafe { core::str::from_utf8_unchecked_mut(&mut bytes[..used]) }
    }

    /// Moves the value into the scope, to be dropped with the box.
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

    /// Memory for the layout, contents undefined, that lives as long as `'s`.
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
    /// When a scope was opened since on the same stack and has not ended: the block would be in
    /// that one's frame.
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        assert!(self.is_newest(), "cairn: allocation in a scope while one within it is open");
        if layout.size() == 0 {
            return Ok(crate::error::dangling(layout));
        }
        // SAFETY: this thread's stack (a scope is not Send), and its newest frame is ours.
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

    /// A scope within this one. While it is open, nothing can be allocated in this one.
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
        // SAFETY: this thread's stack; it outlives its frames.
        unsafe { run(self.stack, function) }.expect("cairn: no memory for a scope")
    }

    #[inline]
    pub(crate) fn is_newest(&self) -> bool {
        // SAFETY: the stack outlives the frame.
        unsafe { (*self.stack.as_ptr()).frame == self.mark.frame }
    }

    /// The same frame again, for an allocator that lives no longer than it.
    #[cfg(feature = "allocator-api2")]
    pub(crate) fn again(&self) -> Scope<'s, 's> {
        let Scope { stack, mark, .. } = *self;
        Scope { stack, mark, lifetime: PhantomData, around: PhantomData }
    }

    /// The block at a new size, in place or moved; none when memory is out or the frame not the
    /// newest.
    ///
    /// # Safety
    /// The block is one of this scope's, with its layout.
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
        // SAFETY: the newest frame is ours, and the block in it.
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

/// A value in a scope that is dropped with this box, as with `std`'s. It may not outlive the scope:
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
        // SAFETY: the box owns the value, and it is used no more.
        unsafe { ptr::drop_in_place(&raw mut *self.value) }
    }
}
