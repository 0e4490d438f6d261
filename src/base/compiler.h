/* Vocabulary for the compiler, and the configuration of the build. Only this folder and os/ use
 * `#if` for decisions.
 *
 * Features are constants `config_…` that all builds compile; code says `if (config_debug)`, so
 * that each build checks all branches.
 */
#ifndef CAIRN_BASE_COMPILER_H
#define CAIRN_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef CAIRN_DEBUG
#define CAIRN_DEBUG 0
#endif
#ifndef CAIRN_HARDENED
#define CAIRN_HARDENED 0 /* 0 none, 1 light, 2 full */
#endif

#ifdef __cplusplus
#define static_check(condition, text) static_assert(condition, text)
#else
#define static_check(condition, text) _Static_assert(condition, text)
#endif

enum {
    config_debug = CAIRN_DEBUG, /* verifiers and assertions on slow paths, fault injection */

    /* Hardening, docs/HARDENING.md. In light and full builds: */
    config_hardened = CAIRN_HARDENED >= 1, /* any hardening */
    config_packed = CAIRN_HARDENED == 0,   /* slabs of 8-byte blocks in heaps that have many */
    /* canaries behind slab blocks, and their exact sizes */
    config_canaries = CAIRN_HARDENED >= 1,
    config_random_slots = CAIRN_HARDENED >= 1, /* slots of a slab in random order */
    config_random_runs = CAIRN_HARDENED >= 1,  /* arenas and runs at random addresses */
    config_fences = CAIRN_HARDENED >= 1,       /* guard pages within arenas */
    config_sealed = CAIRN_HARDENED >= 1,       /* options and tables read-only after the start */
    /* In full builds, in addition: */
    /* random order among a page of slots, not among a few neighbours */
    config_random_pages = CAIRN_HARDENED >= 2,
    config_zero_freed = CAIRN_HARDENED >= 2,       /* freed blocks are zeroed, checked at reuse */
    config_random_frees = CAIRN_HARDENED >= 2,     /* a freed slot is not always the next one */
    config_quarantine = CAIRN_HARDENED >= 2,       /* freed blocks wait, replaced at random */
    config_cleared_slabs = CAIRN_HARDENED >= 2,    /* the pages of a new slab are zero */
    config_guarded_blocks = CAIRN_HARDENED >= 2,   /* large blocks between guard pages */
    config_zero_size_blocks = CAIRN_HARDENED >= 2, /* blocks of 0 bytes have no memory */
};

/* The largest page that a kernel for this processor uses: the alignment of data whose
 * permissions change. The constant is not larger, because if the alignment is larger than a page,
 * the linker gives .bss a segment of its own, and Valgrind then ignores all symbols of the file. */
#if defined(__x86_64__)
enum { LARGEST_PAGE_BYTES = 4096 };
#else
enum { LARGEST_PAGE_BYTES = 65536 };
#endif
#define page_aligned __attribute__((aligned(LARGEST_PAGE_BYTES)))

/* For data that config_sealed makes read-only, which needs whole pages of its own. A variable is
 * declared as sealed_data, as an array of sealed_count elements, which fill its pages. Untouched
 * elements cost nothing. */
#if CAIRN_HARDENED >= 1
#define sealed_data page_aligned
#else
#define sealed_data
#endif
#define sealed_pages(size_bytes) (((size_bytes) + LARGEST_PAGE_BYTES - 1) / LARGEST_PAGE_BYTES)
#define sealed_count(type, count)                                                                  \
    (config_sealed ? sealed_pages((count) * sizeof(type)) * LARGEST_PAGE_BYTES / sizeof(type)      \
                   : (size_t)(count))
#define sealed_fills(variable)                                                                     \
    static_check(!config_sealed || sizeof(variable) % LARGEST_PAGE_BYTES == 0,                     \
                 "no other data in its pages")

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

#define inline_always static inline __attribute__((always_inline))
#define no_inline     __attribute__((noinline))
#define no_return     __attribute__((__noreturn__))
#define cold          __attribute__((cold, noinline))
/* Functions that each process runs at its start, or at its end. The linker places them next to
 * the constructors and destructors, whose pages are resident in each process. */
#define at_process_start __attribute__((section(".text.startup")))
#define at_process_end   __attribute__((section(".text.exit")))
/* Functions that few programs call. The linker places them behind the code that every program uses.
 */
#define seldom_called __attribute__((section(".seldom_called"), noinline))
#define api              __attribute__((visibility("default")))
/* A function that a program linked with the archive may define, too. In the shared library it is
 * not weak, because it need not be there, and Valgrind replaces no weak function. */
#ifdef CAIRN_SHARED
#define replaceable
#else
#define replaceable __attribute__((weak))
#endif
#define hidden_data                                                                                \
    __attribute__((visibility("hidden"))) /* for declarations: accesses do not use the GOT */
/* Of a variable or a field: it begins on a cache line. Of a type, right behind its closing brace:
 * its objects begin on a line and also fill their last line, so no other variable shares a line
 * with them. A variable that several threads write while the program runs has such a type:
 * dev/check_lines.py finds those that have not. */
#define cache_aligned __attribute__((aligned(64)))
/* For functions that run before the runtime of a sanitizer is ready, and for reads that race with
 * writes of the program, which their contract allows. */
#if defined(__has_attribute) && __has_attribute(disable_sanitizer_instrumentation)
#define not_instrumented __attribute__((disable_sanitizer_instrumentation))
#else
#define not_instrumented __attribute__((no_sanitize("address", "thread", "undefined")))
#endif
#define print_like(text, first) __attribute__((format(printf, text, first)))

/* Keeps a constant address in a register, so that it is computed once and used as a base. */
#define keep_in_register(variable) __asm__("" : "+r"(variable))

/* Prevents the compiler from using the variable's register otherwise before this point. */
#define needed_until_here(variable) __asm__ volatile("" : : "r"(variable))

/* Gives an alias the attributes of its target, which gcc checks. */
#if __has_attribute(copy)
#define copy_attributes(name) __attribute__((copy(name)))
#else
#define copy_attributes(name)
#endif

#define countof(array) (sizeof(array) / sizeof((array)[0]))

/* For a word of static TLS, which is accessed by a single load. The library must be loaded at
 * the start, or fit into the loader's surplus when it is loaded later. */
#define thread_local_word __thread __attribute__((tls_model("initial-exec")))

/* The number of bits of a user-space address. */
#if defined(__aarch64__)
enum { ADDRESS_BITS = 48 };
#else
enum { ADDRESS_BITS = 47 };
#endif

/* The number of the machine in ELF files. */
#if defined(__aarch64__)
enum { ELF_MACHINE = 183 };
#else
enum { ELF_MACHINE = 62 };
#endif

/* Whether two shifts, the left one of 32 bits, extract a field from a word faster than an
 * instruction for bit fields. */
#if defined(__x86_64__)
enum { config_shifted_fields = 1 };
#else
enum { config_shifted_fields = 0 };
#endif

/* A word that differs between all living threads and stays the same after fork: the thread
 * pointer. Never 0. */
inline_always uintptr_t thread_identity(void)
{
    uintptr_t identity;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(identity));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(identity));
#else
#error "Cairn knows x86-64 and aarch64"
#endif
    return identity;
}

#if defined(__SANITIZE_THREAD__)
#define CAIRN_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CAIRN_TSAN 1
#endif
#endif
#ifndef CAIRN_TSAN
#define CAIRN_TSAN 0
#endif
enum { config_tsan = CAIRN_TSAN };

#endif
