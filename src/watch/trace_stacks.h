/* The stacks of a trace: each gets a number, and is written before its number is used.
 *
 * A table of fixed size leads from the hash of a stack, of 64 bits, to its number. Two different
 * stacks with one hash are taken for one: with a million stacks the probability of such a pair is
 * below 10^-7. If a set of neighbouring entries is full, its first entry is replaced. A stack that
 * was replaced gets another number the next time; the format allows several numbers for a stack. So
 * the memory is bounded.
 *
 *   hash      FREE or a hash -> BUSY -> a hash, by the thread that writes the entry
 *
 * `number` changes only while `hash` is BUSY. So a thread that finds one hash before and after it
 * has read `number` has the number of that hash.
 *
 * Chunks of stacks are held as lanes are (trace_lanes.h).
 *
 * Threads: any; async-signal-safe after trace_stacks_make. */
#ifndef CAIRN_WATCH_TRACE_STACKS_H
#define CAIRN_WATCH_TRACE_STACKS_H

#include "base/compiler.h"
#include "unwind/unwind.h"

/* The cache of the walks of a thread. Threads that share a cache use it in turn. A thread that
 * finds it held, or a signal handler that has interrupted its holder, walks without a cache. A
 * cache has copies of words of stacks, addresses of blocks among them, so library_layout.c
 * describes the caches to readers from outside. */
enum { TRACE_STACK_CACHES = 64 };
struct trace_stack_cache {
    uint32_t held; /* atomic: 1 while a thread holds the cache */
    struct unwind_cache stack;
};

/* TRACE_STACK_CACHES caches; const after trace_stacks_make. */
extern hidden_data struct trace_stack_cache *trace_stack_caches;

/* Makes the memory for the table and the caches.
 *
 * Returns: 0 or a negative errno. */
int trace_stacks_make(void);

struct traced_thread;

/* Finds the stack of the caller's callers, and writes it if it is new. `own`: of
 * heap_traced_thread, or NULL.
 *
 * Returns: its number; 0: unknown. */
uint32_t trace_stacks_find(struct traced_thread *own);

/* Finds the number of a stack whose frames are given, innermost first, and writes it if it is new.
 * `cut`: outer frames were left out.
 *
 * Returns: its number; 0: unknown. */
uint32_t trace_stacks_number(const uintptr_t *frames, unsigned depth, bool cut);

/* Returns how many numbers were given to stacks. */
uint32_t trace_stacks_count(void);

/* Removes all stacks and their chunks, in the child of a fork.
 *
 * Threads: the only one. */
void trace_stacks_forget(void);

/* The text of a trace: the program, and the files that its code is mapped from.
 *
 * The mappings are written before the first stack, and again before a stack that has a frame in a
 * file that was loaded since. One thread at a time does this. Another thread continues without: the
 * mappings may not hold for its stack, and the next new stack is checked again. A file becomes
 * known shortly before its mappings are written, but these hold for all stacks that get their
 * number after that. A library that was unloaded, and another one with this name at its address,
 * are taken for one.
 *
 * Threads: trace_modules_see by any; the others by one at a time. */

/* Makes the memory for the text.
 *
 * Returns: 0 or a negative errno. */
int trace_modules_make(void);

/* Writes the first lines of a trace: the version of the library and the program. All files become
 * unknown. */
void trace_modules_begin(void);

/* Writes the mappings again if one of the return addresses of a stack is in an unknown file. Called
 * before the stack is written. *stacks, atomic, is the number of stacks that have a number: the
 * mappings hold for later ones.
 *
 * Returns: false if another thread is writing; then the files stay unknown. */
bool trace_modules_see(const uintptr_t *frames, unsigned depth, const uint32_t *stacks);

#endif
