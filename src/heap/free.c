/* The slow half of free, and the fast paths of hardened builds: free.h. */
#include "heap/free.h"

#include "heap/harden.h"
#include "heap/hooks.h"
#include "heap/large.h"
#include "heap/lifecycle.h"
#include "heap/misuse_report.h"
#include "heap/packed.h"
#include "heap/quarantine.h"
#include "heap/refill.h"
#include "heap/remote.h"
#include "heap/slab_lists.h"
#include "heap/thread_heap.h"

enum { DRAIN_FREES = 4 };

void free_foreign(void *pointer) { report_bad_pointer(pointer, "free"); }

/* Handles an expired count, and drains DRAIN_FREES slabs of mailboxes once in as many calls: a
 * thread that only frees has no other occasion. They are few, so that no single free takes long: a
 * slab costs about 150 ns. */
static no_inline void free_count_expired(struct heap *heap, struct span *slab)
{
    heap_count_expired(heap, slab);
    if (++heap->attended % DRAIN_FREES == 0)
        (void)heap_drain_some(heap, DRAIN_FREES);
    heap_note_call(heap);
}

/* The usual case is a cycle of one medium block: its slab becomes empty, and stays current. */
void free_attend(struct span *slab)
{
    struct heap *heap = thread_heap;
    if (likely(slab == heap->emptied))
        heap_note_call(heap);
    else
        free_count_expired(heap, slab);
}

/* Frees a block of this thread's slab whose link byte says PROFILED: reports the free to the hooks,
 * then does the steps of the fast path. */
static void free_profiled(struct span *slab, unsigned slot)
{
    char *block = slab_block(slab, slot);
    free_hooked(slab, block);
    if (config_hardened) {
        harden_free(block); /* its link byte says LIVE now */
    } else if (unlikely(load_relaxed(slab_link(slab, slot)) != LINK_LIVE)) {
        report_bad_pointer(block, "free");
    } else {
        slab_push(slab, slot);
        if (--slab_hot(slab)->frees_to_attention == 0)
            free_attend(slab);
    }
}

/* The pointer is computed from the slot number by the inverse of slab_slot, which is exact for
 * every address in the slab. This saves the fast path a register. */
void free_reject(uint32_t slot, struct span *slab)
{
    if (unlikely(!span_is_slab(slab)))
        /* NULL, freed by an IFUNC resolver of the program before this library's thread-local word
         * has its value. */
        return;
    slab_hot(slab)->top = slab_block(slab, slab_hot(slab)->head);
    if (slot < load_relaxed(&slab->fresh_slot) &&
        load_relaxed(slab_link(slab, slot)) == LINK_PROFILED) {
        free_profiled(slab, slot);
        return;
    }
    unsigned twos = lowest_bit(slab->size_bytes);
    unsigned lost = INVERSE_SHIFT - twos;
    uint32_t product = (uint32_t)rotate_right_32(slot, 32 - INVERSE_SHIFT);
    int32_t offset = (int32_t)(product * (slab->size_bytes >> twos)) >> lost;
    report_bad_pointer(slab->base + offset, "free");
}

/* Posts a slab of which this thread has marked a block. If the owner's thread has ended, this
 * thread's heap reclaims the slab instead; later frees of its blocks are local. Otherwise the slab
 * may be given back already, and only its `mail_state` is read. Counts as a slow call, because a
 * thread that only frees blocks of other threads makes no other. */
static no_inline void free_post_slab(struct heap *heap, struct span *slab)
{
    bool reclaimed =
        unlikely(load_relaxed(&heap->state) == HEAP_ORPHAN) && heap_reclaim(heap, slab);
    if (!reclaimed && unlikely(!remote_post(heap, slab)))
        return;
    if (unlikely(thread_heap == &no_heap))
        pages_tick();
    else
        heap_note_call(thread_heap);
}

/* Frees a block of another heap's slab that could not be marked at once. `link` is the value that
 * its link byte had. */
static no_inline void free_remote_rare(void *pointer, struct span *slab, uint8_t link)
{
    struct heap *heap = slab_heap(slab);
    if (unlikely(heap == NULL)) { /* the slab is being given back */
        report_bad_pointer(pointer, "free");
        return;
    }
    bool is_marked = slab_is_packed(slab) ? packed_free(pointer, heap, slab)
                                          : remote_free(pointer, heap, slab, link);
    if (is_marked)
        free_post_slab(heap, slab);
}

/* Frees a pointer that is in no slab: NULL, a guarded block, or a large block whose run
 * large_free_short does not keep. Other pointers are reported. */
static no_inline void free_otherwise(void *pointer, struct span *span)
{
    if (likely(pointer == NULL))
        return;
    if (span->tag == SPAN_GUARDED) {
        if (unlikely(span->mark != 0) && pointer == span->base)
            free_hooked(span, pointer);
        heap_hooks.guard->free(pointer, span);
        return;
    }
    if (unlikely(!large_is_in_use(span) || span->base != pointer))
        report_bad_pointer(pointer, "free");
    else if (unlikely(!large_free(span, pointer)))
        report_misuse("free", "double free of %p (its memory is free)", pointer);
}

/* The usual case is a block of another heap's slab that is posted already. Such a free takes one
 * atomic operation and no call. The function is aligned to a cache line because it is slower if it
 * begins in the middle of one. */
cache_aligned void free_slow(void *pointer, struct span *span)
{
    if (unlikely(!span_is_slab(span))) {
        if (unlikely(!large_free_short(pointer, span)))
            free_otherwise(pointer, span);
        return;
    }
    uint8_t link = LINK_LIVE;
    if (unlikely(slab_is_packed(span))) {
        free_remote_rare(pointer, span, link);
        return;
    }
    struct remote_place place = remote_place_of(span, pointer);
    struct heap *heap = slab_heap(span);
    if (unlikely(heap == NULL || !remote_needs_no_look(&place, heap) ||
                 !remote_mark(span, place.slot, &link)))
        free_remote_rare(pointer, span, link);
    else if (!remote_is_posted(heap, span))
        free_post_slab(heap, span);
}

void *harden_malloc(size_t size_bytes, void *(*slow)(size_t))
{
    if (unlikely(size_bytes > SMALL_REQUEST_MAX))
        return slow(size_bytes);
    struct heap *heap = thread_heap;
    struct span *slab = heap->current[heap->small_class[size_bytes + CANARY_BYTES]];
    size_t slot = slab_hot(slab)->head;
    if (unlikely(slot == LINK_END))
        return slow(size_bytes);
    void *block = slab_pop_first(slab, slot);
    if (config_zero_freed)
        __builtin_prefetch(slab_hot(slab)->top, 1); /* the next malloc checks that it reads zero */
    return harden_hand_out_at(block, slab->size_bytes, size_bytes, true);
}

void *harden_malloc_medium(struct span *slab, size_t size_bytes)
{
    void *block = slab_pop(slab);
    if (unlikely(block == NULL))
        return NULL;
    slab_hot(slab)->frees_to_attention++;
    return harden_hand_out_at(block, slab->size_bytes, size_bytes, false);
}

/* Longer blocks are cleared by memset, in a function of its own, so that the usual free has no
 * stack frame. */
enum { CLEARED_IN_LINE = 256 };

static no_inline void free_quarantine_long(struct span *slab, char *block, unsigned slot)
{
    memset(block, 0, slab->size_bytes);
    quarantine_retain(thread_heap, slab, slot);
}

/* Frees a block of this thread's slab, whose canaries have been checked. */
inline_always void free_quarantine(struct span *slab, char *block, unsigned slot)
{
    size_t size_bytes = slab->size_bytes;
    quarantine_mark(slab, slot);
    if (config_zero_freed && size_bytes > CLEARED_IN_LINE) {
        free_quarantine_long(slab, block, slot);
        return;
    }
    if (config_zero_freed)
        block_clear(block, size_bytes);
    else
        block_spoil(block);
    quarantine_retain(thread_heap, slab, slot);
}

void harden_free(void *pointer)
{
    if (unlikely(!page_map_reaches((uintptr_t)pointer))) {
        free_foreign(pointer);
        return;
    }
    struct span *slab = page_map_find(pointer);
    if (unlikely(load_relaxed(&slab->owner) != (uintptr_t)thread_heap)) {
        free_slow(pointer, slab);
        return;
    }
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (unlikely(slot >= load_relaxed(&slab->fresh_slot) ||
                 load_relaxed(slab_link(slab, slot)) != LINK_LIVE)) {
        free_reject(slot, slab);
        return;
    }
    if (unlikely(slab_is_zero_size(slab))) {
        quarantine_mark(slab, slot);
        quarantine_retain(thread_heap, slab, slot);
        return;
    }
    (void)harden_slack(slab, pointer);
    free_quarantine(slab, pointer, slot);
}

void harden_free_sized(void *pointer, struct span *slab, size_t size_bytes, size_t alignment_bytes,
                       void (*slow)(void *, size_t, size_t))
{
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (unlikely(slab_is_zero_size(slab) || !slab_shows_live(slab, slot) ||
                 !canary_shows(pointer, slab->size_bytes, size_bytes))) {
        slow(pointer, size_bytes, alignment_bytes); /* another size, or damaged canaries */
        return;
    }
    free_quarantine(slab, pointer, slot);
}
