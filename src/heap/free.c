/* The slow half of free: blocks of other threads, large ones, counts that ran out. */
#include "heap/free.h"

#include "heap/frozen.h"
#include "heap/harden.h"
#include "heap/heap_life.h"
#include "heap/large.h"
#include "heap/mailbox.h"
#include "heap/packed.h"
#include "heap/quarantine.h"
#include "heap/refuse.h"
#include "heap/remote.h"
#include "heap/sampling.h"
#include "heap/slab_lists.h"
#include "heap/tick.h"
#include "heap/tracing.h"

enum { POST_TURNS = 16, DRAIN_TURNS = 64 };

void free_foreign(void *pointer) { refuse_pointer(pointer, "free"); }

/* A thread that only frees gets to its mailboxes here, now and then: the longer they wait, the more
 * frees a slab's visit collects. */
static no_inline void attend_slab(struct heap *heap, struct span *slab)
{
    heap_attend_slab(heap, slab);
    if (++heap->attended % DRAIN_TURNS == 0)
        heap_drain(heap);
}

void free_attend(struct span *slab)
{
    if (unlikely(!slab_goes_in_cycles(slab)))
        attend_slab(thread_heap, slab);
}

/* An own block that has a mark: when that is gone, the rest of what the fast path does. */
static void free_marked(struct span *slab, unsigned slot)
{
    heap_forget_marked_slot(slab, slot);
    if (unlikely(load_relaxed(slab_link(slab, slot)) != LINK_LIVE)) {
        refuse_freed(slab_block(slab, slot), slab, "free");
    } else if (config_hardened) {
        harden_check(slab, slot);
        quarantine_mark(slab, slot);
        harden_wipe(slab, slot);
        quarantine_retain(thread_heap, slab, slot);
    } else {
        slab_push(slab, slot);
        if (--slab_own(slab)->until == 0)
            free_attend(slab);
    }
}

/* Undoes slab_slot as far as the arithmetic allows: exact for every address in the slab. */
void free_reject(uint32_t slot, struct span *slab)
{
    if (unlikely(!span_is_slab(slab)))
        return; /* NULL, from a program's IFUNC resolver, before this library's thread-local word
                   has its value */
    slab_own(slab)->top = slab_block(slab, slab_own(slab)->head);
    if (slot < load_relaxed(&slab->limit) && load_relaxed(slab_link(slab, slot)) == LINK_PROFILED) {
        free_marked(slab, slot);
        return;
    }
    unsigned twos = lowest_bit(slab->size_bytes);
    unsigned lost = INVERSE_SHIFT - twos;
    uint32_t product = (uint32_t)rotate_right_32(slot, 32 - INVERSE_SHIFT);
    int32_t offset = (int32_t)(product * (slab->size_bytes >> twos)) >> lost;
    refuse_pointer(slab->base + offset, "free");
}

/* A slab was posted to that heap. A thread that only frees other threads' blocks asks here what is
 * due by age, now and then. */
static void posted(struct heap *to, unsigned mailbox)
{
    heap_tend_after_post(to, mailbox);
    struct heap *heap = thread_heap;
    if (heap == &no_heap || ++heap->posts % POST_TURNS == 0)
        heaps_tick();
}

static no_inline void post(struct heap *heap, struct span *slab)
{
    unsigned mailbox = remote_post(heap, slab);
    if (likely(mailbox != NOT_POSTED))
        posted(heap, mailbox);
}

/* A block of another heap's slab that was not marked: what its link byte said. */
static no_inline void free_unmarked(void *pointer, struct span *slab, uint8_t link)
{
    struct heap *heap = slab_heap(slab);
    if (unlikely(heap == NULL)) { /* the slab is just being given back */
        refuse_pointer(pointer, "free");
        return;
    }
    unsigned mailbox = slab_is_packed(slab) ? packed_free(pointer, heap, slab)
                                            : remote_free(pointer, heap, slab, link);
    if (mailbox != NOT_POSTED)
        posted(heap, mailbox);
}

/* NULL, a large block whose run is not just kept, a sampled one, or none of ours. */
static no_inline void free_otherwise(void *pointer, struct span *span)
{
    if (likely(pointer == NULL))
        return;
    if (span->tag == SPAN_GUARDED) {
        if (unlikely(span->until != 0) && pointer == span->base)
            heap_forget_marked_span(span);
        heap_sampler->free(pointer, span);
        return;
    }
    if (unlikely(!large_is_in_use(span) || span->base != pointer))
        refuse_pointer(pointer, "free");
    else if (unlikely(!large_free(span, pointer)))
        refuse("free", "double free of %p (its memory is free)", pointer);
}

/* Most blocks of slabs come here from another thread's heap, which knows already that the slab was
 * posted: one atomic operation, and no call. If it begins in the middle of a line it takes up to a
 * third longer. */
cache_aligned void free_slow(void *pointer, struct span *span)
{
    if (unlikely(!span_is_slab(span))) {
        if (unlikely(!large_free_short(pointer, span)))
            free_otherwise(pointer, span);
        return;
    }
    uint8_t link = LINK_LIVE;
    if (unlikely(slab_is_packed(span))) {
        free_unmarked(pointer, span, link);
        return;
    }
    struct remote_place place = remote_place_of(span, pointer);
    struct heap *heap = slab_heap(span);
    if (unlikely(heap == NULL || !remote_needs_no_look(&place, heap) ||
                 !remote_mark(span, place.slot, &link)))
        free_unmarked(pointer, span, link);
    else if (!remote_is_posted(heap, span))
        post(heap, span);
}
