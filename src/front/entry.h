/* The entry points' bodies, shared by their cairn_ and their libc names: arguments checked, errno
 * set.
 *
 * Inline, so that the fast paths start at the symbol; the heap below knows nothing of errno.
 */
#ifndef CAIRN_FRONT_ENTRY_H
#define CAIRN_FRONT_ENTRY_H

#include "heap/heap.h"

/* malloc_slow with errno. */
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

void *entry_no_memory(void) cold; /* NULL, with errno set */

void *entry_calloc_slow(size_t size_bytes); /* what calloc's fast path does not serve */

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

/* cairn_heap_read_stats under a name of our own. In stats.c. */
void stats_read(cairn_heap_stats *stats);

/* Statistics on stderr, some lines that begin with `who`, which may be empty. In api.c. */
void entry_report_stats(const char *who);

#endif
