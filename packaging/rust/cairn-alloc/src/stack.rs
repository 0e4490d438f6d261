//! Stacks in addition to the thread's own one: `cairn/stack.h`.

use crate::scope::run;
use crate::{Error, Scope};
use cairn_sys as sys;
use core::ptr::{self, NonNull};

/// Options of a [`Stack`]; 0 in a field selects its default.
#[derive(Clone, Copy, Default, Debug)]
pub struct StackOptions {
    /// Address space of the first block: the stack is contiguous within it. 0: it starts with 64
    /// KiB and grows.
    pub reserve_bytes: usize,
    /// Limits the memory of the stack, in whole pages. 0: no limit.
    pub max_bytes: usize,
}

/// A stack in addition to the thread's own one. It stays in the thread that created it:
///
/// ```compile_fail,E0277
/// let stack = cairn_alloc::Stack::new(&Default::default()).unwrap();
/// std::thread::spawn(move || drop(stack));   // not Send
/// ```
///
/// ```
/// use cairn_alloc::{Stack, StackOptions};
///
/// let mut stack = Stack::new(&StackOptions::default())?;
/// let sum: i32 = stack.scope(|s| s.alloc_slice_with(100, |i| i as i32).iter().sum());
/// assert_eq!(sum, 4950);
/// # Ok::<(), cairn_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Stack {
    stack: NonNull<sys::cairn_stack>,
}

impl Stack {
    /// Creates a stack.
    ///
    /// # Errors
    /// When memory is out.
    ///
    /// ```
    /// let stack = cairn_alloc::Stack::new(&Default::default())?;
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn new(options: &StackOptions) -> Result<Self, Error> {
        let options = sys::cairn_stack_options {
            reserve_bytes: options.reserve_bytes,
            max_bytes: options.max_bytes,
            name: c"Rust stack".as_ptr(),
            buffer: ptr::null_mut(),
            buffer_bytes: 0,
            fixed: false,
            out_of_memory: None,
            out_of_memory_context: ptr::null_mut(),
        };
        // SAFETY: the options and the name in them are valid during the call.
        let stack = unsafe { sys::cairn_stack_new(&raw const options) };
        Ok(Stack { stack: NonNull::new(stack).ok_or_else(Error::last)? })
    }

    /// Opens a frame and calls `function` with it.
    ///
    /// ```
    /// let mut stack = cairn_alloc::Stack::new(&Default::default())?;
    /// assert_eq!(stack.scope(|s| *s.alloc(3)), 3);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Panics
    /// When memory is out.
    pub fn scope<'e, R>(&mut self, function: impl for<'s> FnOnce(&mut Scope<'s, 'e>) -> R) -> R {
        // SAFETY: the stack belongs to this thread (it is not Send) and is borrowed during the
        // call.
        unsafe { run(self.stack, function) }.expect("cairn: no memory for a scope")
    }

    /// Returns all unused memory except `keep_bytes` to the system. Returns how many bytes it
    /// released.
    ///
    /// ```
    /// let mut stack = cairn_alloc::Stack::new(&Default::default())?;
    /// stack.scope(|s| { s.alloc([0u8; 1 << 18]); });
    /// assert!(stack.trim(0) > 0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn trim(&mut self, keep_bytes: usize) -> usize {
        // SAFETY: the stack belongs to this thread.
        unsafe { sys::cairn_stack_trim(self.stack.as_ptr(), keep_bytes) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the stack belongs to this thread, and no frame is open, because an open frame
        // borrows it.
        unsafe { sys::cairn_stack_delete(self.stack.as_ptr()) };
    }
}
