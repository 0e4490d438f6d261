/* The general heap, as front/ uses it: every entry point without its libc name. errno is not
 * touched here.
 *
 * Allocating functions return NULL when memory is out or the size is beyond PTRDIFF_MAX. Freeing
 * functions die on misuse, see docs/MESSAGES.md. Any thread, any time, also before constructors and
 * after a thread's end.
 */
#ifndef CAIRN_HEAP_HEAP_H
#define CAIRN_HEAP_HEAP_H

#include "cairn/stats.h"
#include "heap/by_site.h"
#include "heap/fast.h"
#include "heap/heap_life.h"
#include "heap/heap_start.h"
#include "heap/program_heap.h"
#include "heap/refuse.h"
#include "heap/sampling.h"
#include "heap/slab_count.h"
#include "heap/tick.h"
#include "heap/tracing.h"

void *heap_allocate_zeroed(size_t size_bytes);
void *heap_allocate_aligned(size_t size_bytes, size_t alignment_bytes); /* a power of two */
void *heap_resize(void *pointer,
                  size_t size_bytes); /* neither NULL nor 0; the block stays on failure */

/* The same, and the caller's `failed` says what becomes of it when memory is out: then nothing is
 * left to do after the call, and its caller needs no frame. */
typedef void *heap_resize_failed(void *pointer, size_t size_bytes);
void *heap_resize_or(void *pointer, size_t size_bytes, heap_resize_failed *failed);

bool heap_resize_in_place(void *pointer, size_t size_bytes); /* likewise; never moves */

/* Up to `count` blocks, fewer when memory is out: how many. */
size_t heap_allocate_batch(size_t count, size_t size_bytes, void **blocks);
void heap_free_batch(size_t count, void *const *blocks); /* NULL is passed over */

/* What a request of so many bytes may ask for as well without taking more memory. */
size_t heap_good_size(size_t size_bytes);

/* As heap_resize, but bytes from `old_bytes` on read zero, and what is given up, or left behind, is
 * overwritten with zero. */
void *heap_resize_zeroed(void *pointer, size_t old_bytes, size_t size_bytes);

/* What this thread's heap keeps without need goes to the pages. */
void heap_idle(void);

size_t heap_usable_size(const void *pointer); /* 0 of NULL */
void heap_free_sized(void *pointer, size_t size_bytes,
                     size_t alignment_bytes); /* as asked for when allocated */
bool heap_release(size_t keep_bytes);         /* gives free memory back; true when some went */
/* For a thread that calls now and then: what is due by age, and with `sweeps` what owners that did
 * not come by since then keep in their slabs. Returns whether no owner came by. */
bool heap_tend(bool sweeps, uint64_t since_ms);

struct heap_stats {
    struct page_stats pages;
    size_t sampled_bytes; /* in guarded blocks, which lie outside the arenas */
    size_t sampled_blocks;
    size_t live_bytes; /* in blocks in use, sampled ones among them, as their sizes were rounded */
    size_t live_blocks;
    size_t large_bytes; /* of those, in large and huge blocks */
    size_t large_blocks;
    size_t slab_bytes; /* pages of slabs */
    size_t heaps;      /* thread heaps, orphans among them */
};
void heap_read_stats(struct heap_stats *stats);

/* The same by size of slab blocks, and by thread heap: see cairn/stats.h. */
size_t heap_read_classes(cairn_heap_class_stats *rows, size_t count);
size_t heap_read_threads(cairn_heap_thread_stats *rows, size_t count);

void heap_verify_all(void);

/* That the page layer counts as swept what the slabs say was given back of them. While no other
 * thread allocates, frees or gives back; not in the child of a fork, see bound.h. */
void heap_verify_given(void);

#endif
