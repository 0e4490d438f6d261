/* The bodies of the entry points, for their cairn_ names and those of libc: entry_malloc is the
 * body of malloc and of cairn_malloc, and the others are named in this way. The functions check
 * arguments, call the program's function when memory is out, and set errno. The fast paths are
 * inline, so that they begin at the symbol. The heap below does not use errno.
 *
 * Threads: any. */
#ifndef CAIRN_FRONT_ENTRY_H
#define CAIRN_FRONT_ENTRY_H

#include "heap/heap.h"
#include "watch/watch.h"

/* Serves the mallocs that the fast path does not serve, and sets errno. */
void *entry_malloc_slow(size_t size_bytes);

inline_always void *entry_malloc(size_t size_bytes)
{
    return malloc_fast(size_bytes, entry_malloc_slow);
}
inline_always void entry_free(void *pointer) { free_fast(pointer); }
inline_always void entry_free_sized(void *pointer, size_t size_bytes, size_t alignment_bytes)
{
    heap_free_sized(pointer, size_bytes, alignment_bytes);
}

/* Starts the background thread that is owed, and keeps errno. The entry point has finished its
 * work, so the functions called there may allocate. */
void entry_restart_background(void) cold;

inline_always void entry_pay_background(void)
{
    if (unlikely(load_relaxed(&background_is_owed)))
        entry_restart_background();
}

/* Sets errno to ENOMEM and returns NULL. */
void *entry_no_memory(void) cold;

/* Serves the callocs that the fast path does not serve, and sets errno. */
void *entry_calloc_slow(size_t size_bytes);

inline_always void *entry_calloc(size_t count, size_t size_bytes)
{
    size_t total;
    if (unlikely(__builtin_mul_overflow(count, size_bytes, &total)))
        return entry_no_memory();
    return calloc_fast(total, entry_calloc_slow);
}

void *entry_realloc(void *pointer, size_t size_bytes);
void *entry_reallocarray(void *pointer, size_t count, size_t size_bytes);
int entry_posix_memalign(void **result, size_t alignment_bytes, size_t size_bytes);
void *entry_aligned_alloc(size_t alignment_bytes, size_t size_bytes);
void *entry_memalign(size_t alignment_bytes, size_t size_bytes);
void *entry_valloc(size_t size_bytes);
void *entry_pvalloc(size_t size_bytes);
size_t entry_usable_size(void *pointer);

/* Does what cairn_heap_read_stats does, without the exported name. In api.c. */
void stats_read(cairn_heap_stats *stats);

/* Writes statistics to stderr, in lines that begin with `who`, which may be empty. In api.c. */
void entry_report_stats(const char *who);

#endif
