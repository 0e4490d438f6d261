/* Packed slabs, see packed.h.
 *
 * Protocol and its argument. Let W be a word, S the slab's summary bit of it, C the claimed bits.
 *   claim:  C is 0. (a) claimed_at = W's first block   (b) clear S   (c) C = W's bits, W = 0, until
 *           W has not changed in between: by compare-and-swap   (d) W not 0 again: set S
 *   free:   the holder, of a block of the claimed word: sets its bit in C. All others:
 *           (1) old = OR(W, bit); set before: a double free; so if it is set in both, W and C
 *           (2) old == 0: set S; the holder looks then whether W is all free by now
 *           (3) old == 0, or W is all free now and so may be the slab: unless QUEUED, set it and
 *               push the slab
 *   attend: (e) clear QUEUED after popping the slab   (f) look at summary and words
 * QUEUED is that of the post word, see remote.c.
 * No free block is lost: S follows W, for a free whose (1) comes before (d) is seen there, and one
 * whose (1) comes after finds 0 and sets S after (b). S may be set for a word without free blocks,
 * when (2) comes late: the holder looks at W before it believes it.
 * No double free is lost: who frees a block that is free finds its bit in W, or comes after the
 * swap of (c), which C was written before, and finds it there, unless it is handed out meanwhile.
 * Its own bit, when that was claimed already, is in C alone. The holder, who alone claims, looks at
 * both before he does (1); in a process of one thread without a locked instruction (base/alone.h).
 * No slab is forgotten: a free that finds QUEUED set at (3) comes before (e), so (f) sees its word;
 * else it posts. All of these are sequentially consistent.
 * No slab goes under somebody's feet: it is given back by exchanging the post word, QUEUED clear,
 * for 0, and (3) exchanges it likewise, so only one of them succeeds; while it is QUEUED it stays.
 * Whoever is late at (2) or (3) may then find another slab in the same header. But headers stay
 * readable, and one with a cold area of this size only ever serves packed slabs: a late (2) sets a
 * summary bit too many, a late (3) finds another owner and stops, or makes a heap look at a slab of
 * its own once more. What a free looks at after (1) is like that, and by atomic accesses: the
 * word's first block and the limit it reads before, while its block is in use and so the slab is
 * there: where a second free gives the slab back meanwhile, whoever read them finds another owner
 * after that. A limit that has grown since is no loss: fewer words have to be free for it to post.
 * And where claimed_at is that first block, the header is of a packed slab at this place again.
 */
#include "heap/packed.h"

#include "base/alone.h"
#include "base/check.h"
#include "base/test_delay.h"
#include "heap/checked.h"
#include "heap/frozen.h"
#include "heap/refuse.h"
#include "heap/remote.h"

/* Attending. */

/* Of the list, and empty. What is queued meanwhile comes back by the mailbox. */
static void retire(struct heap *heap, struct span *slab)
{
    test_delay();
    if (!remote_close(heap, slab))
        return;
    store_relaxed(&slab->owner, (uintptr_t)0);
    bin_remove(&heap->packed.bin, slab);
    pages_give_swept_slab(slab, slab_count_given(slab));
}

void packed_attend(struct heap *heap, struct span *slab)
{
    if (slab == heap->packed.slab)
        return;
    size_t limit = load_relaxed(&slab->limit);
    size_t ready = packed_count_ready(slab, limit);
    if (slab_is_waiting(slab)) {
        if (ready < PACKED_PATIENCE_WORDS)
            return;
        bin_append(&heap->packed.bin, slab);
    }
    if (ready == limit && packed_all_free(slab))
        retire(heap, slab);
}

void packed_trim(struct heap *heap)
{
    struct packed *packed = &heap->packed;
    if (packed->slab) {
        packed_unclaim(packed->slab);
        bin_append(&packed->bin, packed->slab);
    }
    packed->slab = NULL;
    for (struct span *slab = packed->bin.first, *next; slab; slab = next) {
        next = slab->next;
        packed_attend(heap, slab);
    }
}

/* Freeing. */

/* (2), (3) */
static no_inline unsigned tell(struct heap *heap, struct span *slab, size_t word, uint64_t old,
                               size_t limit)
{
    test_delay();
    if (old == 0)
        fetch_or_seq_cst(packed_summary(slab, word), packed_bit(word));
    if (heap == thread_heap) {
        /* Others may have freed the rest of the word before (2), and taken the slab for not empty.
         */
        bool due = old != 0 || load_seq_cst(packed_word(slab, word)) == UINT64_MAX;
        if (old == 0 && slab_is_waiting(slab) && --slab_own(slab)->until == 0)
            due = true;
        if (due)
            packed_attend(heap, slab);
        return NOT_POSTED;
    }
    if (old != 0 && packed_count_ready(slab, limit) != limit)
        return NOT_POSTED; /* not empty, and nothing new */
    test_delay();
    return remote_post(heap, slab);
}

/* Its bits began anew: none is free. Once all are, whoever takes the owner word away gives the
 * pages back, see retire_frozen in remote.c. */
static no_inline void free_frozen(void *pointer, struct heap *heap, struct span *slab)
{
    slab_begin_frozen(slab);
    size_t index = checked_packed(pointer, slab, "free");
    if (unlikely(index == INDEX_REFUSED))
        return;
    if (unlikely(!slab_set_frozen(heap, slab, packed_word(slab, index / 64), packed_bit(index)))) {
        refuse_freed(pointer, slab, "free");
        return;
    }
    for (size_t word = 0; word < PACKED_WORDS; word++)
        if (fetch_add_acq_rel(packed_word(slab, word), (uint64_t)0) != UINT64_MAX)
            return;
    uintptr_t owner = load_relaxed(&slab->owner);
    if ((owner & OWNER_HEAP_MASK) == (uintptr_t)heap &&
        compare_swap_acq_rel(&slab->owner, &owner, (uintptr_t)0))
        pages_give_slab(slab);
}

/* Of whatever thread, after a look at all that may be wrong. */
static no_inline unsigned free_checked(void *pointer, struct heap *heap, struct span *slab)
{
    if (unlikely(heap->generation != heap_generation)) {
        free_frozen(pointer, heap, slab);
        return NOT_POSTED;
    }
    size_t offset = (size_t)((char *)pointer - slab->base);
    size_t index = offset / PACKED_BYTES;
    size_t word = index / 64;
    size_t limit = load_acquire(&slab->limit);
    if (unlikely(slab_heap(slab) != heap)) { /* another free gave it back: that is no word */
        refuse_pointer(pointer, "free");
        return NOT_POSTED;
    }
    if (unlikely(offset % PACKED_BYTES != 0 || word >= limit) &&
        checked_packed(pointer, slab, "free") == INDEX_REFUSED) /* says what is wrong */
        return NOT_POSTED;
    const char *start = packed_word_start(slab, word);
    bool claimed = load_relaxed(&slab_own(slab)->claimed_at) == start;
    /* One that is claimed is found below, too, but too late to refuse it. */
    if (unlikely(claimed && (load_relaxed(&slab->claimed) & packed_bit(index)) != 0) &&
        checked_packed(pointer, slab, "free") == INDEX_REFUSED)
        return NOT_POSTED;
    uint64_t old = fetch_or_seq_cst(packed_word(slab, word), packed_bit(index));
    if (unlikely((old & packed_bit(index)) != 0)) {
        refuse_freed(pointer, slab, "free");
        return NOT_POSTED;
    }
    if (unlikely(load_relaxed(&slab_own(slab)->claimed_at) == start &&
                 (load_relaxed(&slab->claimed) & packed_bit(index)) != 0)) {
        struct packed_bits bits = packed_bits_at(slab, index, start);
        if (bits.in_word && bits.in_claim)
            packed_die_twice(pointer);
    }
    if (unlikely(old == 0 || (old | packed_bit(index)) == UINT64_MAX))
        return tell(heap, slab, word, old, limit);
    return NOT_POSTED;
}

/* As packed_free of a slab of this thread's, for a block in use; else false, and nothing is done.
 * No claim comes between. */
static bool free_held(const void *pointer, struct heap *heap, struct span *slab)
{
    size_t offset = (size_t)((const char *)pointer - slab->base);
    size_t index = offset / PACKED_BYTES;
    size_t word = index / 64;
    size_t limit = slab->limit;
    if (unlikely(offset % PACKED_BYTES != 0 || word >= limit))
        return false;
    uint64_t *bits = packed_word(slab, word);
    bool claimed = slab_own(slab)->claimed_at == packed_word_start(slab, word);
    uint64_t free = load_relaxed(bits) | (claimed ? slab->claimed : 0);
    if (unlikely((free & packed_bit(index)) != 0))
        return false;
    if (claimed) {
        store_relaxed(&slab->claimed, slab->claimed | packed_bit(index));
        return true;
    }
    uint64_t old = alone_or_fetch_or(bits, packed_bit(index));
    if (unlikely((old & packed_bit(index)) != 0))
        refuse_freed(pointer, slab, "free");
    else if (unlikely(old == 0 || (old | packed_bit(index)) == UINT64_MAX))
        (void)tell(heap, slab, word, old, limit);
    return true;
}

unsigned packed_free(void *pointer, struct heap *heap, struct span *slab)
{
    if (likely(heap == thread_heap && heap->generation == heap_generation) &&
        likely(free_held(pointer, heap, slab)))
        return NOT_POSTED;
    return free_checked(pointer, heap, slab);
}

/* Fork, verifier. */

void packed_after_fork(struct heap *heap, struct span *slab)
{
    for (size_t word = 0; word < load_relaxed(&slab->limit); word++)
        if (load_relaxed(packed_word(slab, word)) != 0 &&
            (load_relaxed(packed_summary(slab, word)) & packed_bit(word)) == 0)
            fetch_or_seq_cst(packed_summary(slab, word), packed_bit(word));
    (void)remote_post(heap, slab);
}

void packed_verify(struct heap *heap)
{
    struct span *prev = NULL;
    for (struct span *slab = heap->packed.bin.first; slab; prev = slab, slab = slab->next) {
        check_internal((prev == NULL || *slab_prev(slab) == prev) && slab_is_packed(slab) &&
                       slab_heap(slab) == heap && slab != heap->packed.slab);
        check_internal(slab->limit <= PACKED_WORDS && slab->size_bytes == PACKED_BYTES);
    }
    check_internal(heap->packed.bin.last == prev);
    check_internal(heap->packed.slab == NULL || (slab_heap(heap->packed.slab) == heap &&
                                                 slab_count_given(heap->packed.slab) == 0));
}
