//! Stacks beside that of the thread: `cairn/stack.h`.

use crate::scope::run;
use crate::{Error, Scope};
use cairn_sys as sys;
use core::ptr::{self, NonNull};

/// What a [`Stack`] is made with; all zero is the default.
#[derive(Clone, Copy, Default, Debug)]
pub struct StackOptions {
    /// Address space of the first block, so that all of the stack is one piece. 0: 64 KiB, growing.
    pub reserve_bytes: usize,
    /// Most memory that the stack may hold, in whole pages. 0: no limit.
    pub max_bytes: usize,
}

/// A stack of its own, beside that of the thread. It stays with the thread that made it:
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
    /// A new stack.
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
        // SAFETY: the options and the name in them are there.
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
        // SAFETY: this thread's (a stack is not Send), and borrowed meanwhile.
        unsafe { run(self.stack, function) }.expect("cairn: no memory for a scope")
    }

    /// Gives all unused memory but `keep_bytes` back to the system; how many bytes went.
    ///
    /// ```
    /// let mut stack = cairn_alloc::Stack::new(&Default::default())?;
    /// stack.scope(|s| { s.alloc([0u8; 1 << 18]); });
    /// assert!(stack.trim(0) > 0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    pub fn trim(&mut self, keep_bytes: usize) -> usize {
        // SAFETY: this thread's stack.
        unsafe { sys::cairn_stack_trim(self.stack.as_ptr(), keep_bytes) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: ours, and no frame is open: each borrows the stack.
        unsafe { sys::cairn_stack_delete(self.stack.as_ptr()) };
    }
}
