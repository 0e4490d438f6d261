/* The slow half of malloc, and zeroed and aligned blocks. The fast half is fast.h. The calls from
 * there to the page layer:
 *   malloc_cached -> malloc_uncached -> heap_take -> heap_take_slow   a small block: the usual case
 *                                    -> malloc_general                all other requests
 *                                    -> malloc_hooked                 while a hook is on (hooks.h)
 *   malloc_general -> malloc_take_block -> heap_take, or malloc_take_large */
#include "heap/harden.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/packed.h"
#include "heap/refill.h"
#include "os/memory.h"

#include <string.h>

/* Takes a block of the class while guards or the profiler are on, and reports it to the profiler.
 * Locking: heap held. */
static no_inline void *malloc_take_hooked(struct heap *heap, unsigned class, size_t size_bytes,
                                          size_t alignment_bytes)
{
    void *block = NULL;
    if (heap_is_guarding())
        block = heap_guard_block(heap, class, size_bytes, alignment_bytes);
    if (block == NULL)
        block = heap_take(heap, class);
    if (block)
        heap_profile_take(heap, class, block, size_bytes);
    return block;
}

/* A block of the class for a request of that size and alignment, in any state of the thread: a
 * thread without a heap gets one, or borrows one for this call. */
static no_inline void *malloc_take_block(unsigned class, size_t size_bytes, size_t alignment_bytes)
{
    struct heap *heap = thread_heap;
    if (unlikely(heap == &no_heap)) {
        heap_start(); /* libc may allocate within */
        heap = heap_at_hand();
        if (heap == NULL && (heap = heap_hold_any()) == NULL)
            return NULL;
    }
    void *block = heap_is_hooked() && !class_is_zero_size(class)
                      ? malloc_take_hooked(heap, class, size_bytes, alignment_bytes)
                      : heap_take(heap, class);
    if (unlikely(heap != thread_heap))
        heap_return(heap);
    if (!config_hardened || block == NULL || class_is_zero_size(class) ||
        !span_is_slab(page_map_find(block)))
        return block; /* a guarded block has guard pages instead */
    return harden_hand_out(block, size_bytes);
}

/* A large block: a run that this thread has just freed, a kept mapping, or a new run. A kept
 * mapping serves no zeroed request, because clearing it would touch all of its pages. A new block
 * that need not read zero will probably be written in full, so the pages may become huge pages. A
 * thread that has only large blocks gets a heap as well, which keeps their runs. */
static no_inline void *malloc_take_large(size_t size_bytes, size_t alignment_bytes, bool zeroed)
{
    alignment_bytes = larger_of(alignment_bytes, PAGE_BYTES);
    struct span *span = large_allocate_kept(size_bytes, alignment_bytes);
    bool kept = span != NULL;
    if (!kept) {
        heap_start();
        (void)heap_at_hand();
        span = zeroed ? NULL : large_allocate_mapped(size_bytes, alignment_bytes);
        if (span == NULL)
            span = large_allocate(size_bytes, alignment_bytes);
    }
    if (span == NULL)
        return NULL;
    if (heap_is_hooked())
        heap_profile_large(heap_at_hand(), span, size_bytes);
    if (zeroed && kept) /* the page layer does not know that it was written */
        memset(span->base, 0, size_bytes);
    else if (zeroed)
        pages_clear(span, size_bytes);
    else if (!kept && load_relaxed(&span->tag) == SPAN_HUGE)
        pages_expect_filled(span);
    return span->base;
}

/* Any request, seen by guards and the profiler, but not by the tracer. `zeroed` concerns large
 * blocks only: the caller clears the others. */
static no_inline void *malloc_general(size_t size_bytes, size_t alignment_bytes, bool zeroed)
{
    void *block = NULL;
    if (config_zero_size_blocks && unlikely(size_bytes == 0) && alignment_bytes <= PAGE_BYTES)
        block = malloc_take_block(ZERO_SIZE_CLASS, 0, 1);
    else if (size_bytes <= PACKED_BYTES && alignment_bytes <= PACKED_BYTES &&
             packed_serves(thread_heap))
        block = packed_take(thread_heap);
    if (block)
        return block;
    unsigned class = class_of_request(size_bytes, alignment_bytes);
    return class == CLASS_COUNT ? malloc_take_large(size_bytes, alignment_bytes, zeroed)
                                : malloc_take_block(class, size_bytes, alignment_bytes);
}

/* The usual slow call: a small or medium request of a thread that has a heap, when no hook wants to
 * choose the block. Returns: NULL when this is not such a request, or out of memory. */
inline_always void *malloc_take_simple(size_t size_bytes)
{
    struct heap *heap = thread_heap;
    if (config_hardened || size_bytes > MEDIUM_REQUEST_MAX || unlikely(heap == &no_heap))
        return NULL;
    if (config_packed && size_bytes <= PACKED_BYTES)
        return NULL;
    return heap_take(heap, class_of_size(size_bytes));
}

/* Any request, also seen by the tracer. */
static seldom_called void *malloc_hooked(size_t size_bytes, size_t alignment_bytes, bool zeroed)
{
    void *block = malloc_general(size_bytes, alignment_bytes, zeroed);
    return heap_is_traced() && block ? hooks_trace_block(block, size_bytes, alignment_bytes, zeroed)
                                     : block;
}

inline_always void *malloc_uncached_at(size_t size_bytes, size_t alignment_bytes)
{
    if (heap_is_hooked())
        return malloc_hooked(size_bytes, alignment_bytes, false);
    void *block = malloc_take_simple(size_bytes);
    return likely(block != NULL) ? block : malloc_general(size_bytes, alignment_bytes, false);
}

void *malloc_uncached(size_t size_bytes) { return malloc_uncached_at(size_bytes, 1); }

void *malloc_slow(size_t size_bytes) { return malloc_cached(size_bytes, malloc_uncached); }

static no_inline void *malloc_uncached_untraced(size_t size_bytes)
{
    return heap_is_hooked() ? malloc_general(size_bytes, 1, false) : malloc_uncached(size_bytes);
}

void *malloc_slow_untraced(size_t size_bytes)
{
    return malloc_cached(size_bytes, malloc_uncached_untraced);
}

static no_inline void *malloc_uncached_zeroed(size_t size_bytes)
{
    return heap_is_hooked() ? malloc_hooked(size_bytes, 1, true) : malloc_uncached(size_bytes);
}

static no_inline void *malloc_slow_zeroed(size_t size_bytes)
{
    return malloc_cached(size_bytes, malloc_uncached_zeroed);
}

void *heap_allocate_zeroed(size_t size_bytes)
{
    if (size_bytes > MEDIUM_REQUEST_MAX)
        return heap_is_hooked() ? malloc_hooked(size_bytes, 1, true)
                                : malloc_take_large(size_bytes, 1, true);
    void *block = malloc_fast(size_bytes, malloc_slow_zeroed);
    return block && !config_zero_freed ? memset(block, 0, size_bytes) : block;
}

/* A block at a multiple of the largest power of two that divides the size. */
static no_inline void *malloc_uncached_aligned(size_t size_bytes)
{
    return malloc_uncached_at(size_bytes, size_bytes & -size_bytes);
}

/* Serves a request with an alignment above 16 from a slab, as a request of the rounded size; see
 * class_of_aligned. */
inline_always void *malloc_aligned(size_t size_bytes, size_t alignment_bytes)
{
    size_t least = larger_of(size_bytes, 1);
    size_t rounded = align_up(least, alignment_bytes);
    /* `rounded` is 0 if it overflows. */
    if (config_hardened || rounded - 1 >= MEDIUM_REQUEST_MAX || rounded - least >= PAGE_BYTES)
        return malloc_general(size_bytes, alignment_bytes, false);
    return rounded > SMALL_REQUEST_MAX ? malloc_medium(rounded, malloc_uncached_aligned)
                                       : malloc_fast(rounded, malloc_uncached_aligned);
}

void *heap_allocate_aligned(size_t size_bytes, size_t alignment_bytes)
{
    if (alignment_bytes <= PACKED_BYTES)
        return malloc_fast(size_bytes, malloc_slow);
    if (heap_is_hooked())
        return malloc_hooked(size_bytes, alignment_bytes, false);
    if (alignment_bytes > 16)
        return malloc_aligned(size_bytes, alignment_bytes);
    /* Packed blocks are aligned to 8 only, so the request must be larger than they are. */
    size_t least = config_packed ? larger_of(size_bytes, PACKED_BYTES + 1) : size_bytes;
    return malloc_fast(least, malloc_slow);
}

size_t heap_good_size(size_t size_bytes)
{
    heap_start(); /* fills the table of classes */
    if (config_packed && size_bytes <= PACKED_BYTES)
        return PACKED_BYTES;
    if (size_bytes <= MEDIUM_REQUEST_MAX)
        return smaller_of(size_classes[class_of_request(size_bytes, 1)].size_bytes - CANARY_BYTES,
                          MEDIUM_REQUEST_MAX);
    return size_bytes > PTRDIFF_MAX - os_page_size()
               ? size_bytes
               : align_up(large_pages(size_bytes) << PAGE_SHIFT, os_page_size());
}
