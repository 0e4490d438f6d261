/* Swaps and counts that need not be atomic while this thread is the only one of the process: a
 * locked instruction takes as long as ten or twenty others, and a program without threads should
 * not pay for theirs.
 *
 * glibc says whether there are others, before the first of them starts, and its own locks go by it.
 * Nobody comes between then: only this thread could start one. Elsewhere it is not known.
 */
#ifndef CAIRN_BASE_ALONE_H
#define CAIRN_BASE_ALONE_H

#include "base/atomic.h"

#include <stdlib.h> /* defines __GLIBC_PREREQ */

#ifdef __GLIBC_PREREQ
#define KNOWS_ALONE __GLIBC_PREREQ(2, 32)
#else
#define KNOWS_ALONE 0
#endif

#if KNOWS_ALONE
#include <sys/single_threaded.h>
inline_always bool is_alone(void) { return __libc_single_threaded != 0; }
#else
inline_always bool is_alone(void) { return false; }
#endif

/* As exchange_acquire, of a word that this thread has just read. */
inline_always uintptr_t alone_or_exchange(uintptr_t *word, uintptr_t read, uintptr_t value)
{
    if (unlikely(!is_alone()))
        return exchange_acquire(word, value);
    store_relaxed(word, value);
    return read;
}

/* As fetch_or_seq_cst. */
inline_always uint64_t alone_or_fetch_or(uint64_t *word, uint64_t bits)
{
    if (unlikely(!is_alone()))
        return fetch_or_seq_cst(word, bits);
    uint64_t old = load_relaxed(word);
    store_relaxed(word, old | bits);
    return old;
}

/* As compare_swap_acq_rel; `*expected` is what this thread has just read. */
#define alone_or_compare_swap(address, expected, desired)                                          \
    (likely(is_alone()) ? (store_relaxed((address), (desired)), true)                              \
                        : compare_swap_acq_rel((address), (expected), (desired)))

/* As fetch_add_relaxed of 1. A signal handler of this thread may count, too: it comes before this
 * instruction or after it. */
inline_always uint64_t alone_or_count(uint64_t *word)
{
#if defined(__x86_64__)
    if (likely(is_alone()) && !config_tsan) {
        uint64_t count = 1;
        __asm__ volatile("xaddq %0, %1" : "+r"(count), "+m"(*word));
        return count;
    }
#endif
    return fetch_add_relaxed(word, (uint64_t)1);
}

#endif
