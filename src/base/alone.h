/* Swaps and counts that need not be atomic while this thread is the only one of the process. An
 * atomic instruction takes as long as many others, and a program without threads should not pay for
 * threads.
 *
 * glibc says whether other threads exist, and updates this before the first of them starts; its
 * own locks rely on it. Between the check and the store no other thread can begin, because only
 * this thread could start one. With other libcs this is not known, and all operations are
 * atomic.
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

/* Whether this thread is the only one of the process; false where that is not known. */
#if KNOWS_ALONE
#include <sys/single_threaded.h>
inline_always bool process_is_single_threaded(void) { return __libc_single_threaded != 0; }
#else
inline_always bool process_is_single_threaded(void) { return false; }
#endif

/* Does what exchange_acquire does, with a word whose value `read` this thread has just read. */
inline_always uintptr_t exchange_if_threaded(uintptr_t *word, uintptr_t read, uintptr_t value)
{
    if (unlikely(!process_is_single_threaded()))
        return exchange_acquire(word, value);
    store_relaxed(word, value);
    return read;
}

/* Does what store_seq_cst does. */
#define store_if_threaded(address, value)                                                          \
    (likely(process_is_single_threaded()) ? store_release((address), (value))                      \
                                          : store_seq_cst((address), (value)))

/* Does what fetch_or_seq_cst does. */
inline_always uint64_t fetch_or_if_threaded(uint64_t *word, uint64_t bits)
{
    if (unlikely(!process_is_single_threaded()))
        return fetch_or_seq_cst(word, bits);
    uint64_t old = load_relaxed(word);
    store_relaxed(word, old | bits);
    return old;
}

/* Clears `bits` like fetch_and_seq_cst, in a word whose value `read` this thread has just read. */
inline_always void clear_if_threaded(uint64_t *word, uint64_t read, uint64_t bits)
{
    if (unlikely(!process_is_single_threaded()))
        (void)fetch_and_seq_cst(word, ~bits);
    else
        store_relaxed(word, read & ~bits);
}

/* Does what compare_swap_seq_cst does, with a word whose value `*expected` this thread has just
 * read. */
#define compare_swap_if_threaded(address, expected, desired)                                       \
    (likely(process_is_single_threaded())                                                          \
         ? (store_relaxed((address), (desired)), true)                                             \
         : compare_swap_seq_cst((address), (expected), (desired)))

/* Does what fetch_add_relaxed of 1 does. A signal handler of this thread may count too: it runs
 * before or after the one instruction. */
inline_always uint64_t count_if_threaded(uint64_t *word)
{
#if defined(__x86_64__)
    if (likely(process_is_single_threaded()) && !config_tsan) {
        uint64_t count = 1;
        __asm__ volatile("xaddq %0, %1" : "+r"(count), "+m"(*word));
        return count;
    }
#endif
    return fetch_add_relaxed(word, (uint64_t)1);
}

#endif
