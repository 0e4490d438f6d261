//! The only error type of this crate: an error number of libc.

use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};

/// The reason of a refusal: an error number of Linux, as in the C interface.
///
/// ```
/// use cairn_alloc::Tlsf;
///
/// let mut memory = [core::mem::MaybeUninit::uninit(); 10];
/// let error = Tlsf::new(&mut memory).unwrap_err();
/// assert!(!error.is_out_of_memory());
/// assert_eq!(error.code(), 22); // EINVAL
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Error {
    code: i32,
}

const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;

impl Error {
    pub(crate) const OUT_OF_MEMORY: Error = Error { code: ENOMEM };
    pub(crate) const INVALID: Error = Error { code: EINVAL };

    /// The error number: `ENOMEM`, `EINVAL`, `EBUSY`, …
    ///
    /// ```
    /// # #[cfg(feature = "heap")] {
    /// use cairn_alloc::{Stack, StackOptions};
    /// let options = StackOptions { max_bytes: 4096, ..StackOptions::default() };
    /// let mut stack = Stack::new(&options)?;
    /// let code = stack.scope(|s| s.try_alloc([0u8; 100_000]).unwrap_err().code());
    /// assert_eq!(code, 12); // ENOMEM
    /// # }
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub const fn code(self) -> i32 {
        self.code
    }

    /// Returns whether the error is `ENOMEM`.
    ///
    /// ```
    /// # #[cfg(feature = "heap")]
    /// cairn_alloc::scope(|s| {
    ///     let layout = core::alloc::Layout::array::<u64>(1 << 57).unwrap();
    ///     assert!(s.try_alloc_layout(layout).unwrap_err().is_out_of_memory());
    /// });
    /// ```
    #[must_use]
    pub const fn is_out_of_memory(self) -> bool {
        self.code == ENOMEM
    }

    /// Reads errno after a C function has failed.
    #[cfg(feature = "heap")]
    pub(crate) fn last() -> Error {
        // SAFETY: libc's errno of this thread always exists.
        Error { code: unsafe { *cairn_sys::errno_location() } }
    }

    /// Converts the result of a C function that returns 0 or an error number.
    #[cfg(feature = "std")]
    pub(crate) fn check(code: i32) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(Error { code }) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            ENOMEM => to.write_str("out of memory"),
            EINVAL => to.write_str("invalid argument"),
            code => write!(to, "error {code}"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(feature = "std")]
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        std::io::Error::from_raw_os_error(error.code)
    }
}

/// Returns the address of values that have no size.
pub(crate) fn dangling(layout: Layout) -> NonNull<u8> {
    // SAFETY: an alignment is not 0.
    unsafe { NonNull::new_unchecked(ptr::without_provenance_mut(layout.align())) }
}
