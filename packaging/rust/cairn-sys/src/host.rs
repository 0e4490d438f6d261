//! What TLSF asks of the system where there is none: a misuse panics with its line. A panic here
//! cannot be caught: the function was called by C, so it ends in an abort.

use core::ffi::c_char;

/// TLSF's report of a misuse, one line that ends in a newline. Always followed by [`host_abort`].
///
/// # Safety
/// `text` has `length_bytes` bytes.
///
/// # Panics
/// Always.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn host_write_error(text: *const c_char, length_bytes: usize) {
    // SAFETY: the caller says so.
    let line = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), length_bytes) };
    panic!("{}", core::str::from_utf8(line).unwrap_or("cairn: misuse").trim_end());
}

/// The end after a report.
///
/// # Panics
/// Always.
#[unsafe(no_mangle)]
pub extern "C" fn host_abort() -> ! {
    panic!("cairn: misuse");
}

/// Nobody waits for TLSF without a lock.
#[unsafe(no_mangle)]
pub extern "C" fn host_wait(_word: *mut u32, _seen: u32) {}

/// See [`host_wait`].
#[unsafe(no_mangle)]
pub extern "C" fn host_wake(_word: *mut u32, _waiters: u32) {}

/// There is no errno here: null says it all.
#[unsafe(no_mangle)]
pub extern "C" fn tlsf_note_no_memory() {}

/// See [`tlsf_note_no_memory`].
#[unsafe(no_mangle)]
pub extern "C" fn tlsf_note_invalid() {}
