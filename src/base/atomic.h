/* Names for the atomic operations in use, on plain integer and pointer fields (also from C++
 * tests).
 *
 * The memory order is part of the name, and each acquire or release has a comment that names its
 * counterpart. A field is accessed either only through these operations or only by the thread or
 * lock that its comment names.
 */
#ifndef CAIRN_BASE_ATOMIC_H
#define CAIRN_BASE_ATOMIC_H

#include "base/compiler.h"

#define load_relaxed(address) __atomic_load_n((address), __ATOMIC_RELAXED)
/* A relaxed load of one word that the compiler may fold into an operand of an instruction, which
 * it never does with an atomic load. For the fast paths, where the word is read once and cannot
 * tear. */
#define load_folded(address)              (config_tsan ? load_relaxed(address) : *(address))
#define load_acquire(address)             __atomic_load_n((address), __ATOMIC_ACQUIRE)
#define load_seq_cst(address)             __atomic_load_n((address), __ATOMIC_SEQ_CST)
#define store_relaxed(address, value)     __atomic_store_n((address), (value), __ATOMIC_RELAXED)
#define store_release(address, value)     __atomic_store_n((address), (value), __ATOMIC_RELEASE)
#define store_seq_cst(address, value)     __atomic_store_n((address), (value), __ATOMIC_SEQ_CST)
#define exchange_acquire(address, value)  __atomic_exchange_n((address), (value), __ATOMIC_ACQUIRE)
#define exchange_acq_rel(address, value)  __atomic_exchange_n((address), (value), __ATOMIC_ACQ_REL)
#define exchange_seq_cst(address, value)  __atomic_exchange_n((address), (value), __ATOMIC_SEQ_CST)
#define fetch_add_relaxed(address, value) __atomic_fetch_add((address), (value), __ATOMIC_RELAXED)
#define fetch_sub_relaxed(address, value) __atomic_fetch_sub((address), (value), __ATOMIC_RELAXED)
#define fetch_add_acq_rel(address, value) __atomic_fetch_add((address), (value), __ATOMIC_ACQ_REL)
#define fetch_sub_acq_rel(address, value) __atomic_fetch_sub((address), (value), __ATOMIC_ACQ_REL)
#define fetch_and_acq_rel(address, value) __atomic_fetch_and((address), (value), __ATOMIC_ACQ_REL)
#define fetch_or_acq_rel(address, value)  __atomic_fetch_or((address), (value), __ATOMIC_ACQ_REL)
#define fetch_or_seq_cst(address, value)  __atomic_fetch_or((address), (value), __ATOMIC_SEQ_CST)
#define fetch_and_seq_cst(address, value) __atomic_fetch_and((address), (value), __ATOMIC_SEQ_CST)

/* Both compare and swap; on failure `*expected` gets the value found. */
#define compare_swap_acq_rel(address, expected, desired)                                           \
    __atomic_compare_exchange_n((address), (expected), (desired), false, __ATOMIC_ACQ_REL,         \
                                __ATOMIC_ACQUIRE)
#define compare_swap_seq_cst(address, expected, desired)                                           \
    __atomic_compare_exchange_n((address), (expected), (desired), false, __ATOMIC_SEQ_CST,         \
                                __ATOMIC_SEQ_CST)

/* Makes the processor wait for a moment, in loops that wait for another thread. */
inline_always void pause_processor(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
