/* The slow half of free: blocks of other threads, large ones, counts that ran out. */
#include "heap/checked.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/packed.h"
#include "heap/remote.h"

enum { POST_TURNS = 16 };

void free_foreign(void *pointer) { refuse_pointer(pointer, "free"); }

/* Undoes slab_slot as far as the arithmetic allows: exact for every address in the slab. */
void free_reject(uint32_t slot, struct span *slab)
{
    if (unlikely(!span_is_slab(slab)))
        return; /* NULL, from a program's IFUNC resolver, before this library's thread-local word
                   has its value */
    slab->top = slab_block(slab, slab->head);
    if (slot < load_relaxed(&slab->limit) && load_relaxed(slab_link(slab, slot)) == LINK_PROFILED) {
        heap_profile_forget_slot(slab, slot);
        free_fast(slab_block(slab, slot));
        return;
    }
    unsigned twos = lowest_bit(slab->size_bytes);
    unsigned lost = INVERSE_SHIFT - twos;
    uint32_t product = (uint32_t)rotate_right_32(slot, 32 - INVERSE_SHIFT);
    int32_t offset = (int32_t)(product * (slab->size_bytes >> twos)) >> lost;
    refuse_pointer(slab->base + offset, "free");
}

/* A thread that only frees gets to its mailbox here. */
void free_attend(struct span *slab)
{
    heap_attend(thread_heap, slab);
    if (load_relaxed(&thread_heap->mailbox) != NULL)
        heap_drain(thread_heap);
}

/* A thread that only frees other threads' blocks asks here what is due by age, now and then. */
static void posted(void)
{
    struct heap *heap = thread_heap;
    if (heap == &no_heap || ++heap->posts % POST_TURNS == 0)
        heaps_tick();
}

void free_slow(void *pointer, struct span *span)
{
    if (likely(span_is_slab(span))) {
        struct heap *heap = slab_heap(span);
        if (unlikely(heap == NULL))
            refuse_pointer(pointer, "free"); /* the slab is just being given back */
        else if (slab_is_packed(span))
            packed_free(pointer, heap, span);
        else if (remote_free(pointer, heap, span))
            posted();
        return;
    }
    if (likely(pointer == NULL))
        return;
    if (span->tag == SPAN_GUARDED) {
        if (unlikely(span->until != 0) && pointer == span->base)
            heap_profile_forget_span(span);
        heap_sampler->free(pointer, span);
        return;
    }
    if (unlikely((span->tag != SPAN_LARGE && span->tag != SPAN_HUGE) || span->base != pointer))
        refuse_pointer(pointer, "free");
    else if (unlikely(!large_free(span)))
        refuse("free", "double free of %p (its memory is free)", pointer);
}
