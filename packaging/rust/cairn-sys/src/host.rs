//! The functions that TLSF calls instead of an operating system: a misuse panics with its message.
//! The panic cannot be caught, because C called the function, so it ends in an abort.

use core::ffi::c_char;

/// Reports a misuse: one line that ends in a newline. TLSF calls [`host_abort`] afterwards.
///
/// # Safety
/// `text` has `length_bytes` bytes.
///
/// # Panics
/// Always.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn host_write_error(text: *const c_char, length_bytes: usize) {
    // SAFETY: the caller's promise.
    let line = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), length_bytes) };
    panic!("{}", core::str::from_utf8(line).unwrap_or("cairn: misuse").trim_end());
}

/// Ends the program after a report.
///
/// # Panics
/// Always.
#[unsafe(no_mangle)]
pub extern "C" fn host_abort() -> ! {
    panic!("cairn: misuse");
}

/// Never called, because TLSF without a lock does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn host_wait(_word: *mut u32, _seen: u32) {}

/// See [`host_wait`].
#[unsafe(no_mangle)]
pub extern "C" fn host_wake(_word: *mut u32, _waiters: u32) {}

/// Does nothing, because there is no errno: null is the whole answer.
#[unsafe(no_mangle)]
pub extern "C" fn tlsf_note_no_memory() {}

/// See [`tlsf_note_no_memory`].
#[unsafe(no_mangle)]
pub extern "C" fn tlsf_note_invalid() {}
