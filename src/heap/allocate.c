/* The slow half of malloc: other sizes, empty lists, first calls, ended threads. The fast half is
 * fast.h. */
#include "heap/by_site.h"
#include "heap/harden.h"
#include "heap/heap.h"
#include "heap/heap_slabs.h"
#include "heap/large.h"
#include "heap/packed_take.h"
#include "os/os.h"

#include <string.h>

static no_inline void *take_watched(struct heap *heap, unsigned class, size_t size_bytes,
                                    size_t alignment_bytes)
{
    void *block = heap_is_sampling() ? heap_sample(heap, class, size_bytes, alignment_bytes) : NULL;
    bool guarded = block != NULL;
    if (!guarded)
        block = heap_take(heap, class);
    if (block)
        heap_profile_take(heap, class, block, size_bytes, guarded);
    return block;
}

static void *take_block(struct heap *heap, unsigned class, size_t size_bytes,
                        size_t alignment_bytes)
{
    if (heap_is_watched() && !class_is_void(class))
        return take_watched(heap, class, size_bytes, alignment_bytes);
    return heap_take(heap, class);
}

/* A block of the class, which the size and the alignment asked for belong to, for a thread whatever
 * its state. */
static no_inline void *allocate_raw(unsigned class, size_t size_bytes, size_t alignment_bytes)
{
    struct heap *heap = thread_heap;
    if (unlikely(heap == &no_heap)) {
        heap_start();
        heap = heap_enter();
        if (heap == NULL) {
            heap = heap_borrow();
            if (heap == NULL)
                return NULL;
            void *block = take_block(heap, class, size_bytes, alignment_bytes);
            heap_return(heap);
            return block;
        }
    }
    return take_block(heap, class, size_bytes, alignment_bytes);
}

inline_always void *allocate_class(unsigned class, size_t size_bytes, size_t alignment_bytes)
{
    void *block = allocate_raw(class, size_bytes, alignment_bytes);
    if (!config_hardened || block == NULL || !span_is_slab(page_map_find(block)))
        return block; /* a sampled one has guards of its own */
    return harden_hand_out(block, size_bytes);
}

/* One of 0 bytes, without memory. NULL where such blocks are not to be had: then it is a block like
 * others. */
static void *allocate_void(size_t alignment_bytes)
{
    return config_void_blocks && alignment_bytes <= PAGE_BYTES ? allocate_raw(VOID_CLASS, 0, 1)
                                                               : NULL;
}

/* Its caller may never ask for a smaller block, which would start the heap. A thread that has only
 * large blocks gets a heap, too, which keeps their runs. */
static struct span *allocate_new_large(size_t size_bytes, size_t alignment_bytes)
{
    heap_start();
    if (unlikely(thread_heap == &no_heap))
        (void)heap_enter();
    return large_allocate(size_bytes, alignment_bytes);
}

/* Apart, or every calloc would save the registers that this needs. */
static no_inline void sample_large(struct span *span, size_t size_bytes)
{
    heap_profile_large(heap_at_hand(), span, size_bytes);
}

/* A run that this thread freed just now, which says so in `kept`, or a new one. */
inline_always struct span *allocate_large(size_t size_bytes, size_t alignment_bytes, bool *kept)
{
    struct span *span = alignment_bytes <= PAGE_BYTES ? large_allocate_kept(size_bytes) : NULL;
    *kept = span != NULL;
    if (span == NULL)
        span = allocate_new_large(size_bytes, alignment_bytes);
    if (heap_is_watched() && span)
        sample_large(span, size_bytes);
    return span;
}

/* What need not read zero will be filled, likely. */
inline_always void *allocate_filled(size_t size_bytes, size_t alignment_bytes)
{
    bool kept;
    struct span *span = allocate_large(size_bytes, alignment_bytes, &kept);
    if (span && !kept)
        pages_expect_filled(span);
    return span ? span->base : NULL;
}

inline_always void *allocate_any(size_t size_bytes)
{
    if (config_void_blocks && unlikely(size_bytes == 0)) {
        void *block = allocate_void(1);
        if (block)
            return block;
    }
    if (size_bytes <= PACKED_BYTES && packed_serves(thread_heap)) {
        void *block = packed_allocate(thread_heap);
        if (likely(block != NULL))
            return block;
    }
    if (likely(size_bytes <= SMALL_MOST))
        return allocate_class(small_class(size_bytes + CANARY_BYTES), size_bytes, 1);
    if (likely(size_bytes <= MEDIUM_MOST))
        return allocate_class((unsigned)medium_class(size_bytes + CANARY_BYTES), size_bytes, 1);
    return allocate_filled(size_bytes, PAGE_BYTES);
}

/* Somebody wants to choose where the block is, or to hear of it. */
inline_always bool is_followed(void)
{
    return unlikely((load_acquire(&heap_watch) & (WATCH_TRACE | WATCH_TRACED | WATCH_SITES)) != 0);
}

static void *by_site(size_t size_bytes, size_t alignment_bytes)
{
    bool served = (load_acquire(&heap_watch) & WATCH_SITES) != 0; /* pairs with heap_serve_sites */
    return served ? heap_allocate_by_site(size_bytes, alignment_bytes) : NULL;
}

static void *traced(void *block, size_t size_bytes, size_t alignment_bytes, bool zeroed)
{
    return heap_is_traced() && block ? heap_trace_block(block, size_bytes, alignment_bytes, zeroed)
                                     : block;
}

static no_inline void *allocate_otherwise_followed(size_t size_bytes, size_t alignment_bytes,
                                                   bool zeroed)
{
    void *block = by_site(size_bytes, alignment_bytes);
    return traced(block ? block : allocate_any(size_bytes), size_bytes, alignment_bytes, zeroed);
}

/* What most traced blocks are: small, of a thread that has a heap, and nobody else watches, and
 * the class's current slab has a free slot. NULL where it is not so. */
enum { TRACING = WATCH_TRACE | WATCH_TRACED };
inline_always void *take_traced(size_t size_bytes)
{
    struct heap *heap = thread_heap;
    bool only_traced = (load_relaxed(&heap_watch) | TRACING) == TRACING;
    if (config_hardened || unlikely(!only_traced || heap == &no_heap || size_bytes > SMALL_MOST) ||
        (config_packed && size_bytes <= PACKED_BYTES))
        return NULL;
    return slab_pop(heap->current[small_class(size_bytes)]);
}

static no_inline void *allocate_followed(size_t size_bytes, size_t alignment_bytes, bool zeroed)
{
    void *small = take_traced(size_bytes);
    return likely(small != NULL) ? heap_trace_block(small, size_bytes, alignment_bytes, zeroed)
                                 : allocate_otherwise_followed(size_bytes, alignment_bytes, zeroed);
}

/* What most slow calls are: the current slab has nothing left, nobody watches, and it is not for
 * packed slabs, now or soon. Of at most SMALL_MOST bytes. NULL when memory is out, or where it is
 * not so. */
inline_always void *take_next(size_t size_bytes)
{
    struct heap *heap = thread_heap;
    if (config_hardened || unlikely(heap_is_watched() || heap == &no_heap))
        return NULL;
    if (config_packed && size_bytes <= PACKED_BYTES)
        return NULL;
    unsigned class = heap->small_class[size_bytes];
    return likely(class < CLASS_COUNT) ? heap_take(heap, class) : NULL;
}

static no_inline void *allocate_otherwise(size_t size_bytes)
{
    return is_followed() ? allocate_followed(size_bytes, 1, false) : allocate_any(size_bytes);
}

void *malloc_not_at_hand(size_t size_bytes)
{
    void *block = size_bytes <= SMALL_MOST ? take_next(size_bytes) : NULL;
    return likely(block != NULL) ? block : allocate_otherwise(size_bytes);
}

void *malloc_slow(size_t size_bytes) { return malloc_at_hand(size_bytes, malloc_not_at_hand); }

static no_inline void *allocate_untraced(size_t size_bytes) { return allocate_any(size_bytes); }

void *malloc_slow_untraced(size_t size_bytes)
{
    return malloc_at_hand(size_bytes, allocate_untraced);
}

static no_inline void *allocate_zeroed(size_t size_bytes)
{
    return is_followed() ? allocate_followed(size_bytes, 1, true) : allocate_any(size_bytes);
}

/* Of at most MEDIUM_MOST bytes. */
static no_inline void *malloc_slow_zeroed(size_t size_bytes)
{
    if (size_bytes <= SMALL_MOST || heap_is_watched())
        return allocate_zeroed(size_bytes);
    return malloc_medium(size_bytes, allocate_zeroed);
}

static no_inline void *malloc_slow_at_16(size_t size_bytes)
{
    return is_followed() ? allocate_followed(size_bytes, 16, false) : allocate_any(size_bytes);
}

void *heap_allocate_zeroed(size_t size_bytes)
{
    if (size_bytes <= MEDIUM_MOST) {
        void *block = malloc_fast(size_bytes, malloc_slow_zeroed);
        return block && !config_zero_freed ? memset(block, 0, size_bytes) : block;
    }
    bool kept;
    struct span *span = allocate_large(size_bytes, PAGE_BYTES, &kept);
    if (span == NULL)
        return NULL;
    if (kept) /* the pages do not know that it was written */
        memset(span->base, 0, size_bytes);
    else
        pages_clear(span, size_bytes);
    return traced(span->base, size_bytes, 1, true);
}

/* Beyond the alignment of packed blocks, which are aligned to their size. */
static void *allocate_at_16(size_t size_bytes)
{
    size_t least = config_packed ? larger_of(size_bytes, PACKED_BYTES + 1) : size_bytes;
    if (heap_is_watched() && least != size_bytes) { /* who watches has to know what was asked for */
        void *block = by_site(size_bytes, 16);
        if (block == NULL)
            block = allocate_class(small_class(least), size_bytes, 16);
        return traced(block, size_bytes, 16, false);
    }
    return malloc_fast(least, malloc_slow_at_16);
}

void *heap_allocate_aligned(size_t size_bytes, size_t alignment_bytes)
{
    if (alignment_bytes <= 16)
        return alignment_bytes > PACKED_BYTES ? allocate_at_16(size_bytes)
                                              : malloc_fast(size_bytes, malloc_slow);
    void *void_block = size_bytes == 0 ? allocate_void(alignment_bytes) : NULL;
    if (void_block)
        return void_block;
    unsigned class = class_of_request(size_bytes, alignment_bytes);
    void *block = by_site(size_bytes, alignment_bytes);
    if (block == NULL && class < CLASS_COUNT) {
        block = allocate_class(class, size_bytes, alignment_bytes);
    } else if (block == NULL) {
        block = allocate_filled(size_bytes, alignment_bytes);
    }
    return traced(block, size_bytes, alignment_bytes, false);
}

size_t heap_good_size(size_t size_bytes)
{
    heap_start(); /* for the table */
    if (config_packed && size_bytes <= PACKED_BYTES)
        return PACKED_BYTES;
    if (size_bytes <= MEDIUM_MOST)
        return smaller_of(size_classes[class_of_request(size_bytes, 1)].size_bytes - CANARY_BYTES,
                          MEDIUM_MOST);
    return size_bytes > PTRDIFF_MAX - os_page_size() ? size_bytes
                                                     : align_up(size_bytes, os_page_size());
}
