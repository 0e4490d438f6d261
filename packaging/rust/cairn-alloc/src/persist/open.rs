//! Options for opening a persistent heap, and the error of a refused open.

use super::PersistentHeap;
use crate::Error;
use cairn_sys as sys;
use core::ffi::{CStr, c_char};
use core::fmt;
use core::ptr::{self, NonNull};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::string::String;

/// Options for opening a persistent heap.
///
/// ```no_run
/// use cairn_alloc::persist::OpenOptions;
/// let heap = OpenOptions::new().create(true).open("visits.heap")?;
/// # Ok::<(), cairn_alloc::persist::OpenError>(())
/// ```
#[derive(Clone, Copy, Default, Debug)]
#[must_use]
pub struct OpenOptions {
    flags: u32,
    size_bytes: usize,
    capacity_bytes: usize,
    log_bytes: usize,
}

impl OpenOptions {
    /// Opens an existing heap for reading and writing.
    ///
    /// ```no_run
    /// # use cairn_alloc::persist::OpenOptions;
    /// let heap = OpenOptions::new().open("visits.heap")?;
    /// # Ok::<(), cairn_alloc::persist::OpenError>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    fn flag(mut self, flag: u32, on: bool) -> Self {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
        self
    }

    /// Creates the heap if the file does not exist.
    ///
    /// ```
    /// let options = cairn_alloc::persist::OpenOptions::new().create(true);
    /// ```
    pub fn create(self, on: bool) -> Self {
        self.flag(sys::CAIRN_PERSIST_CREATE, on)
    }

    /// Opens the heap read-only: the file system is not written, and a write to the heap's memory
    /// ends the process.
    ///
    /// ```
    /// let options = cairn_alloc::persist::OpenOptions::new().read_only(true);
    /// ```
    pub fn read_only(self, on: bool) -> Self {
        self.flag(sys::CAIRN_PERSIST_READ_ONLY, on)
    }

    /// Checks all structures first, and refuses a heap that is not sound.
    ///
    /// ```
    /// let options = cairn_alloc::persist::OpenOptions::new().check(true);
    /// ```
    pub fn check(self, on: bool) -> Self {
        self.flag(sys::CAIRN_PERSIST_CHECK, on)
    }

    /// Sets the size of a new heap, which grows when needed. 0: 1 MiB.
    ///
    /// ```
    /// let options = cairn_alloc::persist::OpenOptions::new().size_bytes(1 << 24);
    /// ```
    pub fn size_bytes(mut self, bytes: usize) -> Self {
        self.size_bytes = bytes;
        self
    }

    /// Sets the address space that the heap can grow into. 0: 16 GiB, or four times the file's
    /// size.
    ///
    /// ```
    /// let options = cairn_alloc::persist::OpenOptions::new().capacity_bytes(1 << 30);
    /// ```
    pub fn capacity_bytes(mut self, bytes: usize) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// Limits the log, and with it the time of recovery. 0: 64 MiB.
    ///
    /// ```
    /// let options = cairn_alloc::persist::OpenOptions::new().log_bytes(1 << 24);
    /// ```
    pub fn log_bytes(mut self, bytes: usize) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// Opens the heap, after recovery if the last process crashed.
    ///
    /// ```
    /// # use cairn_alloc::persist::OpenOptions;
    /// let error = OpenOptions::new().open("/nowhere/at.all").unwrap_err();
    /// assert_eq!(error.error().code(), 2); // ENOENT
    /// ```
    ///
    /// # Errors
    /// `EBUSY`: in use. `ENOENT`: no such heap. `EBADMSG`: damaged. `ENOTSUP`: not a heap. Others
    /// come from the file system. Some errors have a sentence that explains them.
    pub fn open(self, path: impl AsRef<Path>) -> Result<PersistentHeap, OpenError> {
        let refuse = |error| OpenError { error, why: None };
        let path = CString::new(path.as_ref().as_os_str().as_bytes())
            .map_err(|_| refuse(Error::INVALID))?;
        let mut why: *const c_char = ptr::null();
        let options = sys::cairn_persist_options {
            flags: self.flags,
            tracking: sys::CAIRN_PERSIST_AUTO,
            address: ptr::null_mut(),
            size_bytes: self.size_bytes,
            capacity_bytes: self.capacity_bytes,
            log_bytes: self.log_bytes,
            why: &raw mut why,
        };
        // SAFETY: path and options are valid during the call.
        let heap = unsafe { sys::cairn_persist_open(path.as_ptr(), &raw const options) };
        let Some(heap) = NonNull::new(heap) else {
            let error = Error::last();
            // SAFETY: null, or a sentence that stays valid until further opens have failed.
            let why = (!why.is_null()).then(|| unsafe { CStr::from_ptr(why) });
            let why = why.and_then(|why| why.to_str().ok()).map(String::from);
            return Err(OpenError { error, why });
        };
        let mut opened = PersistentHeap { heap, base: NonNull::dangling() };
        opened.base = NonNull::new(opened.stats().address.cast()).unwrap_or(opened.base);
        Ok(opened)
    }
}

/// The reason why a heap was not opened.
///
/// ```
/// let error = cairn_alloc::persist::OpenOptions::new().open("/dev/null").unwrap_err();
/// assert!(!error.to_string().is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenError {
    error: Error,
    why: Option<String>,
}

impl OpenError {
    /// Returns the error number.
    ///
    /// ```
    /// # let error = cairn_alloc::persist::OpenOptions::new().open("/nowhere/at.all").unwrap_err();
    /// assert_eq!(error.error().code(), 2);
    /// ```
    #[must_use]
    pub fn error(&self) -> Error {
        self.error
    }

    /// Returns the library's explanation of the error, if it has one.
    ///
    /// ```
    /// # let error = cairn_alloc::persist::OpenOptions::new().open("/nowhere/at.all").unwrap_err();
    /// println!("{:?}", error.why());
    /// ```
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Some(why) => to.write_str(why),
            None => self.error.fmt(to),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<OpenError> for std::io::Error {
    fn from(error: OpenError) -> Self {
        error.error.into()
    }
}
