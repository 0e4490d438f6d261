//! google/tcmalloc under the names of libc and of C++, for `LD_PRELOAD`.
//!
//! Its caches per processor need the restartable sequences (rseq) of each thread. glibc 2.35 and
//! later register them for themselves, and tcmalloc then uses caches per thread without a message.
//! So a constructor takes the registration of the first thread back, before any allocation. glibc
//! registers a thread only if its creator is registered. The effect is that of
//! `GLIBC_TUNABLES=glibc.pthread.rseq=0`, which google/tcmalloc requires.

use std::ffi::{c_int, c_long, c_void};
use libtcmalloc_sys as _;

/// Defines functions with exported names, which call those of tcmalloc. Those of C++ may throw.
macro_rules! forward {
    ($($name:literal $target:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        mod tcmalloc {
            use std::ffi::c_int;
            unsafe extern "C-unwind" {
                $(pub fn $target($($argument: $kind),*) -> $result;)*
            }
        }
        $(
            #[unsafe(export_name = $name)]
            #[allow(non_snake_case)]
            unsafe extern "C-unwind" fn $target($($argument: $kind),*) -> $result {
                // SAFETY: the caller keeps the rules of the function that it names.
                unsafe { tcmalloc::$target($($argument),*) }
            }
        )*
    };
}

// An address is a number here: no function looks at what it points to.
forward! {
    "malloc" TCMallocInternalMalloc(size: usize) -> usize;
    "free" TCMallocInternalFree(block: usize) -> ();
    "calloc" TCMallocInternalCalloc(count: usize, size: usize) -> usize;
    "realloc" TCMallocInternalRealloc(block: usize, size: usize) -> usize;
    "reallocarray" TCMallocInternalReallocArray(block: usize, count: usize, size: usize) -> usize;
    "aligned_alloc" TCMallocInternalAlignedAlloc(alignment: usize, size: usize) -> usize;
    "memalign" TCMallocInternalMemalign(alignment: usize, size: usize) -> usize;
    "posix_memalign" TCMallocInternalPosixMemalign(place: usize, alignment: usize, size: usize)
        -> c_int;
    "valloc" TCMallocInternalValloc(size: usize) -> usize;
    "pvalloc" TCMallocInternalPvalloc(size: usize) -> usize;
    "malloc_usable_size" TCMallocInternalMallocSize(block: usize) -> usize;
    "malloc_trim" TCMallocInternalMallocTrim(pad: usize) -> c_int;
    "_Znwm" TCMallocInternalNew(size: usize) -> usize;
    "_Znam" TCMallocInternalNewArray(size: usize) -> usize;
    "_ZnwmRKSt9nothrow_t" TCMallocInternalNewNothrow(size: usize, nothrow: usize) -> usize;
    "_ZnamRKSt9nothrow_t" TCMallocInternalNewArrayNothrow(size: usize, nothrow: usize) -> usize;
    "_ZnwmSt11align_val_t" TCMallocInternalNewAligned(size: usize, alignment: usize) -> usize;
    "_ZnamSt11align_val_t" TCMallocInternalNewArrayAligned(size: usize, alignment: usize) -> usize;
    "_ZnwmSt11align_val_tRKSt9nothrow_t" TCMallocInternalNewAlignedNothrow(
        size: usize, alignment: usize, nothrow: usize) -> usize;
    "_ZnamSt11align_val_tRKSt9nothrow_t" TCMallocInternalNewArrayAlignedNothrow(
        size: usize, alignment: usize, nothrow: usize) -> usize;
    "_ZdlPv" TCMallocInternalDelete(block: usize) -> ();
    "_ZdaPv" TCMallocInternalDeleteArray(block: usize) -> ();
    "_ZdlPvm" TCMallocInternalDeleteSized(block: usize, size: usize) -> ();
    "_ZdaPvm" TCMallocInternalDeleteArraySized(block: usize, size: usize) -> ();
    "_ZdlPvSt11align_val_t" TCMallocInternalDeleteAligned(block: usize, alignment: usize) -> ();
    "_ZdaPvSt11align_val_t" TCMallocInternalDeleteArrayAligned(block: usize, alignment: usize)
        -> ();
    "_ZdlPvmSt11align_val_t" TCMallocInternalDeleteSizedAligned(
        block: usize, size: usize, alignment: usize) -> ();
    "_ZdaPvmSt11align_val_t" TCMallocInternalDeleteArraySizedAligned(
        block: usize, size: usize, alignment: usize) -> ();
}

unsafe extern "C" {
    static __rseq_offset: isize;
    static __rseq_size: u32;
    fn syscall(number: c_long, ...) -> c_long;
    fn TCMalloc_Internal_ForceCpuCacheActivation();
    fn MallocExtension_Internal_GetPerCpuCachesActive() -> bool;
}

#[cfg(target_arch = "x86_64")]
const RSEQ: (c_long, u32) = (334, 0x5305_3053); // the number of the call, and glibc's signature
#[cfg(target_arch = "aarch64")]
const RSEQ: (c_long, u32) = (293, 0xd428_bc00);
const RSEQ_FLAG_UNREGISTER: c_int = 1;
const AREA_BYTES: c_int = 32; // glibc registers this size, whatever __rseq_size counts of it

/// Takes glibc's registration back, and begins with the caches per processor. Without the call of
/// tcmalloc here, the linker would leave the file with these caches out.
extern "C" fn start() {
    // SAFETY: glibc sets both variables before the first constructor runs. They say where the area
    // of each thread is. The call only ends its registration.
    unsafe {
        if __rseq_size != 0 {
            let area = thread_pointer().wrapping_offset(__rseq_offset);
            syscall(RSEQ.0, area, AREA_BYTES, RSEQ_FLAG_UNREGISTER, RSEQ.1);
        }
        TCMalloc_Internal_ForceCpuCacheActivation();
        if !MallocExtension_Internal_GetPerCpuCachesActive() {
            eprintln!("google-tcmalloc: the kernel refuses rseq: no caches per processor");
        }
    }
}

fn thread_pointer() -> *mut c_void {
    let pointer;
    // SAFETY: reads a register, or the word that x86-64 has for it.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, fs:0", out(reg) pointer);
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer);
    }
    pointer
}

// The loader runs the constructors of this library before all others, because build.rs links it
// with -z initfirst, and this one before those of tcmalloc.
#[used]
#[unsafe(link_section = ".init_array.00001")]
static START: extern "C" fn() = start;
