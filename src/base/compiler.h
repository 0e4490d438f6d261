/* Compiler vocabulary and build-time configuration: the only place, with os/, where `#if` decides
 * anything.
 *
 * Features are constants (`config_…`) that every build compiles; code says `if (config_debug)`, so
 * no branch rots.
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
#define CAIRN_HARDENED 0 /* 1 light, 2 full */
#endif

#ifdef __cplusplus
#define static_check(condition, text) static_assert(condition, text)
#else
#define static_check(condition, text) _Static_assert(condition, text)
#endif

enum {
    config_debug = CAIRN_DEBUG, /* verifiers and assertions on slow paths, fault injection */

    /* Hardening, docs/HARDENING.md. Light: */
    config_hardened = CAIRN_HARDENED >= 1,     /* any of it */
    config_packed = CAIRN_HARDENED == 0,       /* blocks of 8 bytes where a heap has many */
    config_canaries = CAIRN_HARDENED >= 1,     /* behind slab blocks, and their exact sizes */
    config_random_slots = CAIRN_HARDENED >= 1, /* slots of a slab in random order */
    config_random_runs = CAIRN_HARDENED >= 1,  /* arenas and runs at random addresses */
    config_fences = CAIRN_HARDENED >= 1,       /* guard pages in arenas and around metadata */
    config_sealed = CAIRN_HARDENED >= 1,       /* options and tables read-only after the start */
    /* Full, beside it: */
    config_random_pages = CAIRN_HARDENED >= 2,   /* over whole pages, not among neighbours only */
    config_zero_freed = CAIRN_HARDENED >= 2,     /* freed blocks are zeroed, checked at reuse */
    config_random_frees = CAIRN_HARDENED >= 2,   /* a freed slot is not always the next one */
    config_quarantine = CAIRN_HARDENED >= 2,     /* freed blocks wait, replaced at random */
    config_cleared_slabs = CAIRN_HARDENED >= 2,  /* a slab's pages are zero when they become one */
    config_guarded_blocks = CAIRN_HARDENED >= 2, /* large blocks between guard pages */
    config_void_blocks = CAIRN_HARDENED >= 2,    /* blocks of 0 bytes have no memory */
};

/* For what config_sealed makes read-only: whole pages of its own, of the largest page size. A
 * variable is declared sealed_data, as an array of sealed_count elements, which fill its pages;
 * those that are never touched cost nothing. */
enum { SEALED_BYTES = 65536 };
#if CAIRN_HARDENED >= 1
#define sealed_data __attribute__((aligned(SEALED_BYTES)))
#else
#define sealed_data
#endif
#define sealed_count(type, count) (config_sealed ? SEALED_BYTES / sizeof(type) : (size_t)(count))
#define sealed_fills(variable)                                                                     \
    static_check(!config_sealed || sizeof(variable) == SEALED_BYTES, "no other data in its pages")

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

#define inline_always static inline __attribute__((always_inline))
#define no_inline     __attribute__((noinline))
#define no_return     __attribute__((noreturn))
#define cold          __attribute__((cold, noinline))
/* What every process runs once, at its start or its end: the linker puts it beside the constructors
 * and destructors, so its pages are resident anyway. */
#define at_process_start __attribute__((section(".text.startup")))
#define at_process_end   __attribute__((section(".text.exit")))
#define api              __attribute__((visibility("default")))
#define hidden_data                                                                                \
    __attribute__((visibility("hidden"))) /* on declarations, so that no GOT is asked */
#define cache_aligned __attribute__((aligned(64)))
/* For reads that race with the program's writes by contract. */
#define unseen_by_tsan          __attribute__((no_sanitize("thread")))
#define print_like(text, first) __attribute__((format(printf, text, first)))

/* Keeps a constant address in a register, so that it is computed once and used as a base. */
#define keep_in_register(variable) __asm__("" : "+r"(variable))

/* The variable's register serves nothing else before this point. */
#define needed_until_here(variable) __asm__ volatile("" : : "r"(variable))

/* An alias has its target's attributes, which gcc checks. */
#if __has_attribute(copy)
#define copy_attributes(name) __attribute__((copy(name)))
#else
#define copy_attributes(name)
#endif

#define countof(array) (sizeof(array) / sizeof((array)[0]))

/* One pointer of static TLS, reachable in a single load: the library must be in the initial set or
 * within the loader's surplus when opened late. */
#define thread_local_word __thread __attribute__((tls_model("initial-exec")))

/* User space ends here. */
#if defined(__aarch64__)
enum { ADDRESS_BITS = 48 };
#else
enum { ADDRESS_BITS = 47 };
#endif

/* The machine, by its number in ELF files. */
#if defined(__aarch64__)
enum { ELF_MACHINE = 183 };
#else
enum { ELF_MACHINE = 62 };
#endif

/* Whether two shifts, the left one short, take a field out of a word faster than any instruction
 * that is there for it. */
#if defined(__x86_64__)
enum { config_shifted_fields = 1 };
#else
enum { config_shifted_fields = 0 };
#endif

/* A word that differs for all living threads and survives fork: the thread pointer. Never 0. */
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
