/* realloc, usable size, sized free: what starts from a block that exists. */
#include "heap/canary.h"
#include "heap/checked.h"
#include "heap/frozen.h"
#include "heap/harden.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/packed_words.h"
#include "os/os.h"

#include <string.h>

static size_t span_block_bytes(const struct span *span)
{
    bool in_bytes = span_is_slab(span) || span->tag == SPAN_GUARDED;
    return in_bytes ? span->size_bytes : (size_t)span->pages << PAGE_SHIFT;
}

/* What the program may use of it. */
static size_t usable_bytes(struct span *span, const void *block)
{
    return config_canaries && span_is_slab(span) ? harden_size(span, block)
                                                 : span_block_bytes(span);
}

/* Whether a slab's block serves a request of so many bytes: one of its class, and a medium block
 * any that fills three quarters of it. With canaries only its class: what is behind the
 * request is guarded. */
static bool slab_suits(const struct span *slab, size_t size_bytes)
{
    if (slab_is_packed(slab))
        return size_bytes <= PACKED_BYTES;
    if (config_canaries || size_bytes <= SMALL_MAX)
        return size_bytes <= MEDIUM_MOST &&
               class_of_size(size_bytes + CANARY_BYTES) == slab_class(slab);
    return size_bytes <= slab->size_bytes && size_bytes > slab->size_bytes / 4 * 3;
}

/* What a block that has to move asks for: one that grows to a medium one gets a quarter more at
 * least, from a page on an eighth, so that a buffer that grows step by step is copied seldom.
 * Sampled blocks end where they are said to end. */
static size_t moved_bytes(size_t old_bytes, size_t size_bytes)
{
    bool grows = size_bytes > old_bytes && size_bytes > SMALL_MAX && size_bytes < MEDIUM_MOST;
    if (!grows || config_canaries || heap_is_sampling())
        return size_bytes;
    size_t more = old_bytes / (old_bytes < PAGE_BYTES ? 4 : 8);
    return larger_of(size_bytes, smaller_of(old_bytes + more, (size_t)MEDIUM_MOST));
}

/* The end of a block that has moved. Where another thread freed it meanwhile, its memory may have
 * come back as the new one, which this free would take away. */
inline_always void free_moved(void *pointer, size_t block_bytes, const void *block)
{
    if (unlikely(block == pointer))
        refuse_free_block(pointer, block_bytes, "free");
    else
        free_fast(pointer);
}

/* To a new block of its own span, from a large one: neither needs copying through the other's
 * memory twice. */
static struct span *copy_large(struct span *old, size_t size_bytes)
{
    struct span *fresh = large_allocate_growing(size_bytes);
    if (fresh)
        pages_move_bytes(fresh, old, smaller_of((size_t)old->pages << PAGE_SHIFT, size_bytes));
    return fresh;
}

/* Nobody else chooses where it is. NULL: another block will do. */
static void *allocate_to_grow(size_t size_bytes)
{
    if (heap_is_watched() || thread_heap == &no_heap)
        return NULL;
    struct span *span = size_bytes > MEDIUM_MOST ? large_allocate_growing(size_bytes)
                                                 : large_allocate_with_room(size_bytes);
    return span ? span->base : NULL;
}

/* For a block that has to move. */
static no_inline void *allocate_moved(size_t old_bytes, size_t size_bytes)
{
    void *block = NULL;
    if (config_growth && size_bytes > GROWTH_LEAST_BYTES && size_bytes > old_bytes)
        block = allocate_to_grow(size_bytes);
    return block ? block : malloc_fast(moved_bytes(old_bytes, size_bytes), malloc_slow_untraced);
}

static no_inline void *move(void *pointer, size_t old_bytes, size_t size_bytes, size_t block_bytes)
{
    void *block = allocate_moved(old_bytes, size_bytes);
    if (block == NULL)
        return NULL;
    memcpy(block, pointer, smaller_of(old_bytes, size_bytes));
    free_moved(pointer, block_bytes, block);
    return block;
}

/* A block of a slab of this thread's; but what another thread freed may have been collected since,
 * and the slab be another heap's. */
static no_inline void *move_own(const struct span *slab, void *pointer, size_t old_bytes,
                                size_t size_bytes, heap_resize_failed *failed)
{
    size_t block_bytes = config_canaries ? slab->size_bytes : old_bytes;
    void *block = size_bytes <= SMALL_MAX ? malloc_fast(size_bytes, malloc_slow_untraced)
                                          : allocate_moved(old_bytes, size_bytes);
    if (block == NULL)
        return failed(pointer, size_bytes);
    memcpy(block, pointer, smaller_of(old_bytes, size_bytes));
    free_moved(pointer, block_bytes, block);
    return block;
}

/* A first-class heap's block stays in it, one of a group of sites where it can. */
static void *allocate_within(struct program_heap *program, size_t size_bytes)
{
    if (!program->options.of_sites)
        return program_allocate(program, size_bytes, 1);
    void *block = program_try_allocate(program, size_bytes, 1);
    return block ? block : malloc_fast(size_bytes, malloc_slow_untraced);
}

static void *move_within(struct program_heap *program, void *pointer, size_t old_bytes,
                         size_t size_bytes, size_t block_bytes)
{
    void *block = allocate_within(program, size_bytes);
    if (block == NULL)
        return NULL;
    memcpy(block, pointer, smaller_of(old_bytes, size_bytes));
    free_moved(pointer, block_bytes, block);
    return block;
}

/* A block of another length is another one to the profiler. */
static no_inline void *resize_watched(struct span *span, size_t size_bytes, bool may_move)
{
    size_t pages = span->pages;
    struct span_sample held = heap_profile_hold(span);
    void *block = may_move                                  ? large_resize(span, size_bytes)
                  : large_resize_in_place(span, size_bytes) ? span->base
                                                            : NULL;
    if (span->pages == pages)
        heap_profile_resume(span, held);
    else if (span_program(span) == NULL)
        heap_profile_resized(heap_at_hand(), span, held, size_bytes);
    return block;
}

static void *resize_held(struct span *span, size_t size_bytes)
{
    return heap_is_watched() ? resize_watched(span, size_bytes, true)
                             : large_resize(span, size_bytes);
}

/* What another thread freed since it was looked at. */
static void hold(struct span *span, const void *pointer, const char *operation)
{
    if (unlikely(!large_hold(span, pointer)))
        refuse_pointer(pointer, operation);
}

/* Its pages are another's as soon as it is freed, so nobody may free it meanwhile. */
static void *resize_large(struct span *span, void *pointer, size_t size_bytes)
{
    hold(span, pointer, "realloc");
    void *block = resize_held(span, size_bytes);
    bool moves = block == NULL && size_bytes > MEDIUM_MOST && size_bytes <= PTRDIFF_MAX &&
                 span_program(span) == NULL;
    struct span *fresh = moves ? copy_large(span, size_bytes) : NULL;
    large_let_go(span);
    if (fresh == NULL)
        return block;
    free_fast(pointer);
    if (heap_is_watched())
        heap_profile_large(heap_at_hand(), fresh, size_bytes);
    return fresh->base;
}

static bool resize_large_in_place(struct span *span, const void *pointer, size_t size_bytes)
{
    hold(span, pointer, "resize");
    bool stays = heap_is_watched() ? resize_watched(span, size_bytes, false) != NULL
                                   : large_resize_in_place(span, size_bytes);
    large_let_go(span);
    return stays;
}

/* What another thread freed since it was looked at, and gave back, has none. */
static size_t block_bytes_of(const struct span *span, const void *pointer)
{
    size_t block_bytes = span_block_bytes(span);
    if (unlikely(page_map_find(pointer) != span || load_relaxed(&span->tag) < SPAN_LARGE))
        refuse_pointer(pointer, "realloc");
    return block_bytes;
}

static no_inline void *resize_any(void *pointer, size_t size_bytes)
{
    struct span *span = checked_span(pointer, "realloc");
    size_t block_bytes = block_bytes_of(span, pointer);
    size_t old_bytes = usable_bytes(span, pointer); /* checks canaries, where there are any */
    struct program_heap *program = span_program(span);
    if (span_is_slab(span)) {
        if (slab_suits(span, size_bytes)) {
            if (config_canaries)
                harden_set_size(span, pointer, size_bytes);
            return pointer;
        }
    } else if (span->tag != SPAN_GUARDED && large_serves(span, size_bytes)) {
        void *block = resize_large(span, pointer, size_bytes);
        if (block || size_bytes > PTRDIFF_MAX || (size_bytes > MEDIUM_MOST && program == NULL))
            return block;
    }
    return program ? move_within(program, pointer, old_bytes, size_bytes, block_bytes)
                   : move(pointer, old_bytes, size_bytes, block_bytes);
}

/* The mark of a large block is written by whoever holds it: once it is freed, the word is the page
 * layer's. NULL: it is none. */
static struct span *hold_mark(const void *block)
{
    struct span *span = page_map_find(block);
    if (span_is_slab(span) || span->tag == SPAN_GUARDED)
        return NULL;
    hold(span, block, "realloc");
    return span;
}

static struct span_sample begin_traced(void *block)
{
    struct span *large = hold_mark(block);
    struct span_sample held = heap_trace_resize_begin(block);
    if (large)
        large_let_go(large);
    return held;
}

/* Nobody but this thread knows of one that has moved. */
static void end_traced(void *block, void *now, size_t size_bytes, struct span_sample held)
{
    struct span *large = now == NULL || now == block ? hold_mark(block) : NULL;
    heap_trace_resize_end(block, now, size_bytes, held);
    if (large)
        large_let_go(large);
}

static no_inline void *resize_traced(void *pointer, size_t size_bytes)
{
    struct span *span = checked_span(pointer, "realloc");
    if (span_own_program(span) != NULL)
        return resize_any(pointer, size_bytes);
    if (span_is_slab(span) && slab_suits(span, size_bytes)) {
        heap_trace_resized(pointer, size_bytes);
        return resize_any(pointer, size_bytes);
    }
    struct span_sample held = begin_traced(pointer);
    void *block = resize_any(pointer, size_bytes);
    end_traced(pointer, block, size_bytes, held);
    return block;
}

static no_inline void *resize_slow(void *pointer, size_t size_bytes, heap_resize_failed *failed)
{
    void *block =
        heap_is_traced() ? resize_traced(pointer, size_bytes) : resize_any(pointer, size_bytes);
    return likely(block != NULL) ? block : failed(pointer, size_bytes);
}

/* A live block in a slab of this thread's, told as free_own tells it: without a call. Of no packed
 * or void slab and no profiled block, which have to be looked at otherwise. */
inline_always bool is_own(const struct span *slab, const void *pointer)
{
    return likely(load_relaxed(&slab->owner) == (uintptr_t)thread_heap) &&
           likely(slab_shows_live(slab, (unsigned)slab_slot(slab, pointer))) && !slab_is_void(slab);
}

/* What the program may use of such a block. */
inline_always size_t own_bytes(const struct span *slab, const void *block)
{
    return config_canaries ? slab->size_bytes - CANARY_BYTES - harden_slack(slab, block)
                           : slab->size_bytes;
}

/* As slab_suits, of a slab of this thread's. The heap's table has the class of a small size at hand
 * but for armed classes, which it leads elsewhere: then the answer comes the other way. */
inline_always bool own_slab_suits(const struct span *slab, size_t size_bytes)
{
    unsigned class = size_bytes <= SMALL_MOST ? thread_heap->small_class[size_bytes + CANARY_BYTES]
                                              : CLASS_COUNT;
    return likely(class < CLASS_COUNT) ? class == slab_class(slab) : slab_suits(slab, size_bytes);
}

/* A large block of no first-class heap keeps its pages. */
inline_always bool is_large_and_stays(const struct span *span, const void *pointer,
                                      size_t size_bytes)
{
    return !config_guarded_blocks && span->tag == SPAN_LARGE && span->base == pointer &&
           large_serves(span, size_bytes) && size_bytes <= PTRDIFF_MAX &&
           large_pages(size_bytes) == span->pages && load_relaxed(&span->owner) == 0 &&
           !heap_is_watched();
}

/* First what needs no call. */
void *heap_resize_or(void *pointer, size_t size_bytes, heap_resize_failed *failed)
{
    struct span *slab = page_map_find(pointer);
    if (!is_own(slab, pointer))
        return is_large_and_stays(slab, pointer, size_bytes)
                   ? pointer
                   : resize_slow(pointer, size_bytes, failed);
    size_t old_bytes = own_bytes(slab, pointer); /* checks canaries, where there are any */
    if (own_slab_suits(slab, size_bytes)) {
        if (config_canaries)
            canary_place(pointer, slab->size_bytes, size_bytes);
        return pointer;
    }
    if (heap_is_traced())
        return resize_slow(pointer, size_bytes, failed);
    return move_own(slab, pointer, old_bytes, size_bytes, failed);
}

static void *give_none(void *pointer, size_t size_bytes)
{
    (void)pointer;
    (void)size_bytes;
    return NULL;
}

void *heap_resize(void *pointer, size_t size_bytes)
{
    return heap_resize_or(pointer, size_bytes, give_none);
}

static bool resize_in_place(void *pointer, size_t size_bytes)
{
    struct span *span = checked_span(pointer, "resize");
    (void)usable_bytes(span, pointer); /* checks canaries, where there are any */
    if (!span_is_slab(span))
        return span->tag != SPAN_GUARDED && large_serves(span, size_bytes) &&
               resize_large_in_place(span, pointer, size_bytes);
    if (!slab_suits(span, size_bytes))
        return false;
    if (config_canaries)
        harden_set_size(span, pointer, size_bytes);
    return true;
}

/* Where heap_resize would leave it, but for what it moves by page tables. */
bool heap_resize_in_place(void *pointer, size_t size_bytes)
{
    bool stays = resize_in_place(pointer, size_bytes);
    if (heap_is_traced() && stays && span_own_program(page_map_find(pointer)) == NULL)
        heap_trace_resized(pointer, size_bytes);
    return stays;
}

/* For what the compiler must not take for a store to memory that nobody reads. */
static void wipe(void *start, size_t bytes)
{
    memset(start, 0, bytes);
    __asm__ volatile("" : : "r"(start) : "memory");
}

/* Whether it has the size now. What a large block would give up goes to others, and once it is
 * wiped nothing may fail: so it shrinks within a page only. */
static bool resize_zeroed_in_place(struct span *span, char *block, size_t old_bytes,
                                   size_t size_bytes)
{
    if (size_bytes == 0)
        return false;
    if (size_bytes < old_bytes) {
        bool stays = span_is_slab(span)
                         ? slab_suits(span, size_bytes)
                         : span->tag != SPAN_GUARDED && size_bytes > MEDIUM_MOST &&
                               align_up(size_bytes, os_page_size()) == span_block_bytes(span);
        if (!stays)
            return false;
        wipe(block + size_bytes, old_bytes - size_bytes);
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
    size_t block_bytes = block_bytes_of(span, pointer);
    if (resize_zeroed_in_place(span, pointer, old_bytes, size_bytes))
        return pointer;
    struct program_heap *program = span_program(span);
    bool is_traced = heap_is_traced() && span_own_program(span) == NULL;
    void *block = program ? allocate_within(program, size_bytes)
                          : malloc_fast(size_bytes, malloc_slow_untraced);
    if (block == NULL)
        return NULL;
    size_t kept = smaller_of(old_bytes, size_bytes);
    memcpy(block, pointer, kept);
    memset((char *)block + kept, 0, size_bytes - kept);
    if (likely(block != pointer)) /* see free_moved */
        wipe(pointer, old_bytes);
    struct span_sample held = {NULL, 0};
    if (is_traced)
        held = begin_traced(pointer);
    free_moved(pointer, block_bytes, block);
    if (is_traced)
        end_traced(pointer, block, size_bytes, held);
    return block;
}

static no_inline size_t usable_size_slow(const void *pointer)
{
    return pointer ? usable_bytes(checked_span(pointer, "malloc_usable_size"), pointer) : 0;
}

/* Whatever checked_span would find in order, without its calls: a large block, or one of a slab of
 * another thread's, but of none that a fork has ended. */
static no_inline size_t usable_size_of_other(const struct span *span, const void *pointer)
{
    if (span->tag == SPAN_LARGE && span->base == pointer)
        return (size_t)span->pages << PAGE_SHIFT;
    if (!config_canaries && span_is_slab(span) && !slab_is_packed(span) && !slab_is_frozen(span) &&
        slab_shows_live(span, (unsigned)slab_slot(span, pointer)))
        return span->size_bytes;
    return usable_size_slow(pointer);
}

size_t heap_usable_size(const void *pointer)
{
    struct span *span = page_map_find(pointer);
    return is_own(span, pointer) ? own_bytes(span, pointer) : usable_size_of_other(span, pointer);
}

/* Hardened builds know what a slab's block was asked with. Not of a thread that a fork has ended:
 * what the fork copied of the block may be older than the pointer to it. */
static bool has_exact_size(struct span *slab, const void *block, size_t size_bytes)
{
    if (!config_canaries || slab_is_frozen(slab))
        return true;
    (void)checked_slot(block, slab, "free");
    return harden_size(slab, block) == size_bytes;
}

static no_inline void free_sized_otherwise(void *pointer, size_t size_bytes, size_t alignment_bytes)
{
    struct span *span = page_map_find(pointer);
    bool matches;
    if (span_is_slab(span) && slab_is_void(span))
        matches = size_bytes == 0 && alignment_bytes <= PAGE_BYTES;
    else if (span_is_slab(span) && slab_is_packed(span))
        matches = size_bytes <= PACKED_BYTES && alignment_bytes <= PACKED_BYTES;
    else if (span_is_slab(span))
        matches = (alignment_bytes <= 16
                       ? slab_suits(span, size_bytes)
                       : class_of_request(size_bytes, alignment_bytes) == slab_class(span)) &&
                  has_exact_size(span, pointer, size_bytes);
    else if (span->tag == SPAN_GUARDED)
        matches = size_bytes == span->size_bytes;
    else if (span->tag == SPAN_LARGE || span->tag == SPAN_HUGE)
        matches = (class_of_request(size_bytes, alignment_bytes) == CLASS_COUNT ||
                   large_is_short(span)) &&
                  large_matches(span, size_bytes);
    else
        matches = true; /* no block at all: free says so */
    if (likely(matches))
        free_fast(pointer);
    else if (checked_span(pointer, "free"))
        refuse("free", "free_sized of %p with size %zu (%zu-byte block)", pointer, size_bytes,
               span_block_bytes(span));
}

/* First what most traced blocks are. */
void free_sized_slow(void *pointer, size_t size_bytes, size_t alignment_bytes)
{
    const struct span *span = page_map_find(pointer);
    if (!config_hardened && alignment_bytes <= 16 && size_bytes <= SMALL_MOST &&
        span->tag == (uint8_t)(SPAN_SLAB + small_class(size_bytes)))
        free_fast(pointer);
    else
        free_sized_otherwise(pointer, size_bytes, alignment_bytes);
}

void heap_free_sized(void *pointer, size_t size_bytes, size_t alignment_bytes)
{
    free_sized_fast(pointer, size_bytes, alignment_bytes, free_sized_slow);
}
