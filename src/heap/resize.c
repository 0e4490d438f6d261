/* realloc, resize in place, usable size and sized free: the functions that start from a block that
 * exists. Most calls end in the first steps of heap_resize_or or heap_usable_size, which need no
 * call; the remaining calls check the pointer first (misuse_report.h).
 * Threads: the caller owns the block. Another thread that frees it at the same time commits misuse,
 * which is reported where it is noticed: a large block is locked (large_lock) while its span
 * changes. */
#include "heap/harden.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/misuse_report.h"
#include "heap/thread_heap.h"
#include "os/memory.h"

#include <string.h>

/* Whether the block is in no slab and has a lock. */
static bool resize_is_large(const struct span *span)
{
    return !span_is_slab(span) && span->tag != SPAN_GUARDED;
}

/* The size of the block at the start of the span, with the bytes behind the request. */
static size_t resize_span_block_bytes(const struct span *span)
{
    return resize_is_large(span) ? (size_t)span->pages << PAGE_SHIFT : span->size_bytes;
}

/* The bytes of the block that the program may use. Checks canaries in hardened builds. */
static size_t resize_usable_bytes(struct span *span, const void *block)
{
    return config_canaries && span_is_slab(span) ? harden_size(span, block)
                                                 : resize_span_block_bytes(span);
}

/* Whether a slab's block may keep its slot with another size: a small block if its class is
 * unchanged, a medium block if at least three quarters of it are filled. With canaries the class
 * must be unchanged for all blocks, because the bytes behind the request are guarded. */
static bool resize_slab_suits(const struct span *slab, size_t size_bytes)
{
    if (slab_is_packed(slab))
        return size_bytes <= PACKED_BYTES;
    if (config_canaries || size_bytes <= SMALL_BLOCK_MAX)
        return size_bytes <= MEDIUM_REQUEST_MAX &&
               class_of_size(size_bytes + CANARY_BYTES) == slab_class(slab);
    return size_bytes <= slab->size_bytes && size_bytes > slab->size_bytes / 4 * 3;
}

/* The size to request for a block that has to move. A block that grows to a medium size gets three
 * sixteenths more than it had, from a page on an eighth, so that a buffer that grows step by step
 * is rarely copied. Rounding up to a class adds up to an eighth; the block is still filled to three
 * quarters, as resize_slab_suits requires. A guarded block gets the requested size. */
static size_t resize_moved_bytes(size_t old_bytes, size_t size_bytes)
{
    bool grows =
        size_bytes > old_bytes && size_bytes > SMALL_BLOCK_MAX && size_bytes < MEDIUM_REQUEST_MAX;
    if (!grows || config_canaries || heap_is_guarding())
        return size_bytes;
    size_t more = old_bytes < PAGE_BYTES ? old_bytes / 16 * 3 : old_bytes / 8;
    return larger_of(size_bytes, smaller_of(old_bytes + more, (size_t)MEDIUM_REQUEST_MAX));
}

/* Frees the old block after a move. If another thread freed it meanwhile, its memory may have
 * become the new block, which this free would take away; that is reported instead. */
inline_always void resize_free_old(void *pointer, size_t block_bytes, const void *block)
{
    if (unlikely(block == pointer))
        report_free_block(pointer, block_bytes, "free");
    else
        free_fast(pointer);
}

/* Locks a large block. Dies if another thread has freed or locked it. */
static void resize_lock(struct span *span, const void *pointer, const char *operation)
{
    if (unlikely(!large_lock(span, pointer)))
        report_bad_pointer(pointer, operation);
}

/* Ends the mark of a traced block that is freed next. Only the thread that holds the lock may write
 * that of a large block: after a free the field belongs to the page layer. */
static seldom_called void resize_end_mark(void *pointer)
{
    struct span *span = page_map_find(pointer);
    bool is_large = resize_is_large(span);
    if (is_large)
        resize_lock(span, pointer, "realloc");
    hooks_end_mark(span, pointer);
    if (is_large)
        large_unlock(span);
}

/* Moves a block within its private heap, or within the general heap if `private_heap` is NULL. The
 * free is a part of a traced resize. */
inline_always void *resize_move(struct private_heap *private_heap, void *pointer, size_t old_bytes,
                                size_t size_bytes, size_t block_bytes, bool is_traced)
{
    void *block =
        private_heap ? private_heap_alloc(private_heap, size_bytes, 1)
                     : malloc_fast(resize_moved_bytes(old_bytes, size_bytes), malloc_slow_untraced);
    if (block == NULL)
        return NULL;
    memcpy(block, pointer, smaller_of(old_bytes, size_bytes));
    if (unlikely(is_traced))
        resize_end_mark(pointer);
    resize_free_old(pointer, block_bytes, block);
    return block;
}

/* Moves a block of a slab that this thread owned when the resize began. If another thread has freed
 * the block meanwhile, it may have been collected, and the slab may belong to another heap; so the
 * sizes are read before. */
static no_inline void *resize_move_own(const struct span *slab, void *pointer, size_t old_bytes,
                                       size_t size_bytes, heap_resize_failed *failed)
{
    void *block = resize_move(NULL, pointer, old_bytes, size_bytes, slab->size_bytes, false);
    return likely(block != NULL) ? block : failed(pointer, size_bytes);
}

/* Resizes a locked large block. For the profiler a block of another length is another block.
 * Locking: large_lock held. */
static no_inline void *resize_locked(struct span *span, size_t size_bytes, bool may_move)
{
    if (likely(!heap_is_hooked()))
        return large_resize(span, size_bytes, may_move);
    size_t pages = span->pages;
    void *sample = hooks_hold_sample(span);
    void *block = large_resize(span, size_bytes, may_move);
    bool stays = span->pages == pages;
    hooks_release_sample(span, sample, stays);
    if (!stays && span_private_heap(span) == NULL) {
        if (!heap_is_traced()) /* the tracer has the same mark */
            span->mark = 0;
        heap_profile_large(heap_at_hand(), span, size_bytes);
    }
    return block;
}

/* Resizes a large block. The old block stays locked while it is copied, because its pages become
 * another block's as soon as it is freed. Its memory is purged during the copy (pages_move_bytes).
 * Locking: none held. */
static void *resize_large(struct span *span, void *pointer, size_t size_bytes, bool is_traced)
{
    resize_lock(span, pointer, "realloc");
    void *block = resize_locked(span, size_bytes, true);
    bool moves = block == NULL && size_bytes <= PTRDIFF_MAX && span_private_heap(span) == NULL;
    struct span *fresh = moves ? large_allocate_growing(size_bytes) : NULL;
    if (fresh)
        pages_move_bytes(fresh, span, smaller_of((size_t)span->pages << PAGE_SHIFT, size_bytes));
    if (is_traced && fresh)
        hooks_end_mark(span, pointer);
    else if (is_traced) /* the block may be older than the trace */
        hooks_mark(span, pointer);
    large_unlock(span);
    if (fresh == NULL)
        return block;
    free_fast(pointer);
    if (heap_is_hooked())
        heap_profile_large(heap_at_hand(), fresh, size_bytes);
    return fresh->base;
}

/* The size of the block. Dies if another thread has freed the block since checked_span and its span
 * was given back. */
static size_t resize_block_bytes_of(const struct span *span, const void *pointer)
{
    size_t block_bytes = resize_span_block_bytes(span);
    if (unlikely(page_map_find(pointer) != span || load_relaxed(&span->tag) < SPAN_LARGE))
        report_bad_pointer(pointer, "realloc");
    return block_bytes;
}

/* Resizes any block. The tracer does not see blocks of private heaps. */
static no_inline void *resize_slow(void *pointer, size_t size_bytes, heap_resize_failed *failed)
{
    struct span *span = checked_span(pointer, "realloc");
    size_t block_bytes = resize_block_bytes_of(span, pointer);
    size_t old_bytes = resize_usable_bytes(span, pointer); /* checks the canaries */
    struct private_heap *private_heap = span_private_heap(span);
    bool is_traced = heap_is_traced() && private_heap == NULL;
    if (span_is_slab(span) && resize_slab_suits(span, size_bytes)) {
        if (config_canaries)
            canary_place(pointer, span->size_bytes, size_bytes);
        if (is_traced)
            hooks_resize_stays(pointer, size_bytes);
        return pointer;
    }
    if (is_traced)
        hooks_resize_begin(pointer);
    bool is_large = resize_is_large(span) && size_bytes > MEDIUM_REQUEST_MAX;
    void *block = is_large ? resize_large(span, pointer, size_bytes, is_traced) : NULL;
    if (block == NULL && (!is_large || private_heap))
        block = resize_move(private_heap, pointer, old_bytes, size_bytes, block_bytes, is_traced);
    if (is_traced)
        hooks_resize_end(pointer, block, size_bytes);
    return likely(block != NULL) ? block : failed(pointer, size_bytes);
}

/* Whether the pointer is a LIVE block of this thread's slabs, by the test of free_own and without a
 * call. False for packed, zero-size and marked blocks, which take the slow path. */
inline_always bool resize_is_own(const struct span *slab, const void *pointer)
{
    return likely(load_relaxed(&slab->owner) == (uintptr_t)thread_heap) &&
           likely(slab_shows_live(slab, (unsigned)slab_slot(slab, pointer))) &&
           !slab_is_zero_size(slab);
}

/* The bytes that the program may use of a block for which resize_is_own holds. */
inline_always size_t resize_own_bytes(const struct span *slab, const void *block)
{
    return config_canaries ? slab->size_bytes - CANARY_BYTES - harden_slack(slab, block)
                           : slab->size_bytes;
}

/* Does what resize_slab_suits does, for a slab of this thread's heap. The heap's table has the
 * class of a small size; for a diverted class it has CLASS_COUNT, and resize_slab_suits decides. */
inline_always bool resize_own_slab_suits(const struct span *slab, size_t size_bytes)
{
    unsigned class = size_bytes <= SMALL_REQUEST_MAX
                         ? thread_heap->small_class[size_bytes + CANARY_BYTES]
                         : CLASS_COUNT;
    return likely(class < CLASS_COUNT) ? class == slab_class(slab)
                                       : resize_slab_suits(slab, size_bytes);
}

/* Whether the pointer is a large block of no private heap that keeps its number of pages. */
inline_always bool resize_large_stays(const struct span *span, const void *pointer,
                                      size_t size_bytes)
{
    return !config_guarded_blocks && span->tag == SPAN_LARGE && span->base == pointer &&
           size_bytes > MEDIUM_REQUEST_MAX && size_bytes <= PTRDIFF_MAX &&
           large_suits(span, size_bytes) && load_relaxed(&span->owner) == 0 && !heap_is_hooked();
}

/* The cases without a call come first. */
void *heap_resize_or(void *pointer, size_t size_bytes, heap_resize_failed *failed)
{
    struct span *slab = page_map_find(pointer);
    if (!resize_is_own(slab, pointer))
        return resize_large_stays(slab, pointer, size_bytes)
                   ? pointer
                   : resize_slow(pointer, size_bytes, failed);
    size_t old_bytes = resize_own_bytes(slab, pointer); /* checks the canaries */
    if (resize_own_slab_suits(slab, size_bytes)) {
        if (config_canaries)
            canary_place(pointer, slab->size_bytes, size_bytes);
        return pointer;
    }
    if (heap_is_traced())
        return resize_slow(pointer, size_bytes, failed);
    return resize_move_own(slab, pointer, old_bytes, size_bytes, failed);
}

static void *resize_give_none(void *pointer, size_t size_bytes)
{
    (void)pointer;
    (void)size_bytes;
    return NULL;
}

void *heap_resize(void *pointer, size_t size_bytes)
{
    return heap_resize_or(pointer, size_bytes, resize_give_none);
}

/* A block can stay where heap_resize would leave it, except for mappings that heap_resize moves by
 * page tables. */
bool heap_resize_in_place(void *pointer, size_t size_bytes)
{
    struct span *span = checked_span(pointer, "resize");
    (void)resize_usable_bytes(span, pointer); /* checks the canaries */
    bool stays = false;
    if (span_is_slab(span)) {
        stays = resize_slab_suits(span, size_bytes);
        if (config_canaries && stays)
            canary_place(pointer, span->size_bytes, size_bytes);
    } else if (resize_is_large(span) && size_bytes > MEDIUM_REQUEST_MAX) {
        resize_lock(span, pointer, "resize");
        stays = resize_locked(span, size_bytes, false) != NULL;
        large_unlock(span);
    }
    if (heap_is_traced() && stays && span_private_heap(span) == NULL)
        hooks_resize_stays(pointer, size_bytes);
    return stays;
}

/* Clears memory that is not read again. The empty assembly keeps the compiler from removing it. */
static void resize_wipe(void *start, size_t bytes)
{
    memset(start, 0, bytes);
    __asm__ volatile("" : : "r"(start) : "memory");
}

/* Resizes a block in place and clears the bytes that it gains or gives up. Pages that a large block
 * gives up become another block's, and nothing may fail after they were cleared. So a large block
 * shrinks only within its last page. Returns: whether the block has the size now. */
static bool resize_zeroed_in_place(struct span *span, char *block, size_t old_bytes,
                                   size_t size_bytes)
{
    if (size_bytes == 0)
        return false;
    if (size_bytes < old_bytes) {
        bool stays =
            span_is_slab(span)
                ? resize_slab_suits(span, size_bytes)
                : resize_is_large(span) && size_bytes > MEDIUM_REQUEST_MAX &&
                      align_up(size_bytes, os_page_size()) == resize_span_block_bytes(span);
        if (!stays)
            return false;
        resize_wipe(block + size_bytes, old_bytes - size_bytes);
    }
    if (!heap_resize_in_place(block, size_bytes))
        return false;
    if (size_bytes > old_bytes)
        memset(block + old_bytes, 0, size_bytes - old_bytes);
    return true;
}

void *heap_resize_zeroed(void *pointer, size_t old_bytes, size_t size_bytes)
{
    struct span *span = checked_span(pointer, "realloc");
    size_t block_bytes = resize_block_bytes_of(span, pointer);
    if (resize_zeroed_in_place(span, pointer, old_bytes, size_bytes))
        return pointer;
    struct private_heap *private_heap = span_private_heap(span);
    bool is_traced = heap_is_traced() && private_heap == NULL;
    void *block = private_heap ? private_heap_alloc(private_heap, size_bytes, 1)
                               : malloc_fast(size_bytes, malloc_slow_untraced);
    if (block == NULL)
        return NULL;
    size_t kept = smaller_of(old_bytes, size_bytes);
    memcpy(block, pointer, kept);
    memset((char *)block + kept, 0, size_bytes - kept);
    if (likely(block != pointer)) /* resize_free_old reports that case */
        resize_wipe(pointer, old_bytes);
    if (is_traced) {
        hooks_resize_begin(pointer);
        resize_end_mark(pointer);
    }
    resize_free_old(pointer, block_bytes, block);
    if (is_traced)
        hooks_resize_end(pointer, block, size_bytes);
    return block;
}

static no_inline size_t resize_usable_size_slow(const void *pointer)
{
    return pointer ? resize_usable_bytes(checked_span(pointer, "malloc_usable_size"), pointer) : 0;
}

size_t heap_usable_size(const void *pointer)
{
    struct span *span = page_map_find(pointer);
    if (resize_is_own(span, pointer))
        return resize_own_bytes(span, pointer);
    if (span->tag == SPAN_LARGE && span->base == pointer)
        return (size_t)span->pages << PAGE_SHIFT;
    if (!config_canaries && span_is_slab(span) && !slab_is_packed(span) &&
        slab_shows_live(span, (unsigned)slab_slot(span, pointer)))
        return span->size_bytes;
    return resize_usable_size_slow(pointer);
}

/* Reports a free with a size that the block cannot have, unless there is no block. */
static no_inline void resize_report_size(const struct span *span, void *pointer, size_t size_bytes)
{
    if (checked_span(pointer, "free"))
        report_misuse("free", "sized free of %p with size %zu (%zu-byte block)", pointer,
                      size_bytes, resize_span_block_bytes(span));
}

void free_sized_slow(void *pointer, size_t size_bytes, size_t alignment_bytes)
{
    struct span *span = page_map_find(pointer);
    bool matches;
    if (span_is_slab(span) && slab_is_zero_size(span))
        matches = size_bytes == 0 && alignment_bytes <= PAGE_BYTES;
    else if (span_is_slab(span) && slab_is_packed(span))
        matches = size_bytes <= PACKED_BYTES && alignment_bytes <= PACKED_BYTES;
    else if (span_is_slab(span))
        matches = (alignment_bytes <= 16
                       ? resize_slab_suits(span, size_bytes)
                       : class_of_request(size_bytes, alignment_bytes) == slab_class(span)) &&
                  (!config_canaries || (checked_slot(pointer, span, "free") != SLOT_INVALID &&
                                        harden_size(span, pointer) == size_bytes));
    else if (span->tag == SPAN_GUARDED)
        matches = size_bytes == span->size_bytes;
    else if (span->tag == SPAN_LARGE || span->tag == SPAN_HUGE)
        matches = large_matches(span, size_bytes, alignment_bytes);
    else
        matches = true; /* no block: free reports it */
    if (likely(matches))
        free_fast(pointer);
    else
        resize_report_size(span, pointer, size_bytes);
}

void heap_free_sized(void *pointer, size_t size_bytes, size_t alignment_bytes)
{
    free_sized_fast(pointer, size_bytes, SMALL_REQUEST_MAX + 1, alignment_bytes, free_sized_slow);
}
