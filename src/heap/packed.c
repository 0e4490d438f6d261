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
 * Its own bit, when that was claimed already, is in C alone.
 * No slab is forgotten: a free that finds QUEUED set at (3) comes before (e), so (f) sees its word;
 * else it posts. All of these are sequentially consistent.
 * No slab goes under somebody's feet: it is given back by exchanging the post word, QUEUED clear,
 * for 0, and (3) exchanges it likewise, so only one of them succeeds; while it is QUEUED it stays.
 * Whoever is late at (2) or (3) may then find another slab in the same header. But headers stay
 * readable, and one with a cold area of this size only ever serves packed slabs: a late (2) sets a
 * summary bit too many, a late (3) finds another owner and stops, or makes a heap look at a slab of
 * its own once more.
 */
#include "heap/packed.h"

#include "base/check.h"
#include "base/test_delay.h"
#include "heap/checked.h"
#include "heap/remote.h"

#include <string.h>

enum { PATIENCE_WORDS = 8 }; /* with free blocks, before a slab that had none is gone back to */

static uint64_t *summary_of(struct span *slab, size_t word)
{
    return &slab_remote(slab)->words[word / 64];
}

static uint64_t bit_of(size_t index) { return (uint64_t)1 << index % 64; }

static char *word_start(const struct span *slab, size_t word)
{
    return slab->base + word * 64 * PACKED_BYTES;
}

/* Words in use that may have free blocks, of 64 of them from `first` on. Who compares them with the
 * limit reads that once: another thread may see two values of it. */
static uint64_t ready_words(struct span *slab, size_t first, size_t limit)
{
    uint64_t known = limit >= first + 64 ? UINT64_MAX : limit > first ? bit_of(limit) - 1 : 0;
    return load_seq_cst(summary_of(slab, first)) & known;
}

static size_t count_ready(struct span *slab, size_t limit)
{
    size_t ready = 0;
    for (size_t first = 0; first < PACKED_WORDS; first += 64)
        ready += count_bits(ready_words(slab, first, limit));
    return ready;
}

static bool all_free(const struct span *slab)
{
    for (size_t word = 0; word < load_relaxed(&slab->limit); word++)
        if (load_seq_cst(packed_word(slab, word)) != UINT64_MAX)
            return false;
    return true;
}

/* Allocating. */

bool packed_turn_on(struct heap *heap)
{
    if (heap->smallest_slabs < PACKED_FROM_SLABS || packed_is_off())
        return false;
    memset(heap->small_class, CLASS_COUNT, PACKED_BYTES + 1); /* to the slow path */
    return heap->packed.on = true;
}

/* False when no block of it is free. */
static bool claim(struct span *slab, size_t word)
{
    struct remote *remote = slab_remote(slab);
    uint32_t serial = remote->serial;
    store_relaxed(&remote->serial, serial + 1);
    store_release(&slab->claimed_at, word_start(slab, word));
    fetch_and_seq_cst(summary_of(slab, word), ~bit_of(word));
    test_delay();
    uint64_t bits = load_seq_cst(packed_word(slab, word));
    do
        store_release(&slab->claimed, bits);
    while (bits != 0 && !compare_swap_seq_cst(packed_word(slab, word), &bits,
                                              (uint64_t)0)); /* acquire: pairs with (1) */
    store_release(&remote->serial, serial + 2);
    test_delay();
    if (load_seq_cst(packed_word(slab, word)) != 0)
        fetch_or_seq_cst(summary_of(slab, word), bit_of(word));
    return bits != 0;
}

/* The serial number tells that all three are of one time between claims; the acquires pair with the
 * releases in claim(). The word is looked at first: until the next claim, a bit of it does not turn
 * up among the claimed ones. */
struct packed_bits packed_bits_of(const struct span *slab, const void *block)
{
    size_t index = (size_t)((const char *)block - slab->base) / PACKED_BYTES;
    for (;; pause_processor()) {
        uint32_t serial = load_acquire(&slab_remote(slab)->serial);
        uint64_t word = load_acquire(packed_word(slab, index / 64));
        bool here = load_acquire(&slab->claimed_at) == word_start(slab, index / 64);
        uint64_t claimed = load_acquire(&slab->claimed);
        if (load_relaxed(&slab_remote(slab)->serial) == serial && serial % 2 == 0)
            return (struct packed_bits){(word & bit_of(index)) != 0,
                                        here && (claimed & bit_of(index)) != 0};
    }
}

/* Two frees at the same instant, found when the block was in two places already. */
static _Noreturn cold void die_twice(const void *block)
{
    die("double free of %p (%u-byte block)", block, (unsigned)PACKED_BYTES);
}

/* From here on it is not allocated from: no word is claimed. A time of its own for packed_bits_of,
 * which would else see bits in both places. */
static void unclaim(struct span *slab)
{
    struct remote *remote = slab_remote(slab);
    uint32_t serial = remote->serial;
    store_relaxed(&remote->serial, serial + 1);
    if (slab->claimed != 0) {
        size_t word = (size_t)(slab->claimed_at - slab->base) / PACKED_BYTES / 64;
        uint64_t old = fetch_or_seq_cst(packed_word(slab, word), slab->claimed);
        if (unlikely((old & slab->claimed) != 0)) /* its freer was not yet there to see it */
            die_twice(slab->claimed_at + lowest_bit(old & slab->claimed) * PACKED_BYTES);
        test_delay();
        fetch_or_seq_cst(summary_of(slab, word), bit_of(word));
        store_release(&slab->claimed, (uint64_t)0);
    }
    store_release(&slab->claimed_at, NULL);
    store_relaxed(&remote->of_packed.given, (uint64_t)0);
    store_relaxed(&remote->of_packed.looked, (uint64_t)0);
    store_release(&remote->serial, serial + 2);
}

/* Of a slab with nothing claimed: a word with free blocks, or one never used. */
static bool claim_next(struct span *slab)
{
    size_t limit = load_relaxed(&slab->limit);
    for (size_t first = 0; first < PACKED_WORDS; first += 64)
        for (uint64_t ready = ready_words(slab, first, limit); ready != 0; ready &= ready - 1)
            if (claim(slab, first + lowest_bit(ready)))
                return true;
    if (limit == PACKED_WORDS)
        return false;
    store_relaxed(packed_word(slab, limit), UINT64_MAX);
    store_relaxed(&slab->limit, (uint64_t)limit + 1);
    return claim(slab, limit);
}

static struct span *make(struct heap *heap)
{
    struct span *slab = pages_take_slab(PACKED_CLASS);
    if (slab == NULL)
        return NULL;
    for (size_t word = 0; word < PACKED_WORDS; word += 64)
        store_relaxed(summary_of(slab, word), (uint64_t)0);
    store_relaxed(&slab->limit, (uint64_t)0);
    store_relaxed(&slab->claimed, (uint64_t)0);
    store_relaxed(&slab->claimed_at, NULL);
    slab->size_bytes = PACKED_BYTES;
    slab->head = LINK_END;
    slab->capacity = 1;
    remote_open(heap, slab);
    store_release(&slab->owner,
                  (uintptr_t)heap | OWNER_PACKED); /* pairs with load_acquire of who looks at it */
    return slab;
}

static struct span *refill(struct heap *heap)
{
    if (unlikely(heap->look_after_fork))
        heap_look_after_fork(heap);
    if (load_relaxed(&heap->mailbox) != NULL)
        heap_drain(heap);
    struct bin *bin = &heap->packed.bin;
    struct span *slab = bin->first;
    if (slab) {
        bin_remove(bin, slab);
        return slab;
    }
    heaps_tick();
    slab = make(heap);
    if (unlikely(slab == NULL) && heaps_empty_run_caches())
        slab = make(heap);
    return slab;
}

/* Current no more before the mailbox is emptied: what was freed since its words were looked at is
 * told once, and has to be attended to. */
static void wait(struct packed *packed)
{
    struct span *slab = packed->slab;
    unclaim(slab);
    slab->next = slab;
    slab->until = PATIENCE_WORDS;
    packed->slab = NULL;
    test_delay();
}

bool packed_advance(struct heap *heap)
{
    struct packed *packed = &heap->packed;
    while (packed->slab == NULL || !claim_next(packed->slab)) {
        if (packed->slab)
            wait(packed);
        packed->slab = refill(heap);
        if (packed->slab == NULL)
            return false;
    }
    return true;
}

/* Attending. */

/* Of the list, and empty. What is queued meanwhile comes back by the mailbox. */
static void retire(struct heap *heap, struct span *slab)
{
    test_delay();
    if (!remote_close(heap, slab))
        return;
    store_relaxed(&slab->owner, (uintptr_t)0);
    bin_remove(&heap->packed.bin, slab);
    pages_give_slab(slab);
}

void packed_attend(struct heap *heap, struct span *slab)
{
    if (slab == heap->packed.slab)
        return;
    size_t limit = load_relaxed(&slab->limit);
    size_t ready = count_ready(slab, limit);
    if (slab_is_waiting(slab)) {
        if (ready < PATIENCE_WORDS)
            return;
        bin_append(&heap->packed.bin, slab);
    }
    if (ready == limit && all_free(slab))
        retire(heap, slab);
}

void packed_trim(struct heap *heap)
{
    struct packed *packed = &heap->packed;
    if (packed->slab) {
        unclaim(packed->slab);
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
static no_inline void tell(struct heap *heap, struct span *slab, size_t word, uint64_t old)
{
    test_delay();
    if (old == 0)
        fetch_or_seq_cst(summary_of(slab, word), bit_of(word));
    if (heap == thread_heap) {
        /* Others may have freed the rest of the word before (2), and taken the slab for not empty.
         */
        bool due = old != 0 || load_seq_cst(packed_word(slab, word)) == UINT64_MAX;
        if (old == 0 && slab_is_waiting(slab) && --slab->until == 0)
            due = true;
        if (due)
            packed_attend(heap, slab);
        return;
    }
    size_t limit = load_relaxed(&slab->limit);
    if (old != 0 && count_ready(slab, limit) != limit)
        return; /* not empty, and nothing new */
    test_delay();
    remote_post(heap, slab);
}

/* Its bits began anew: none is free. Once all are, whoever takes the owner word away gives the
 * pages back, see retire_frozen in remote.c. */
static no_inline void free_frozen(void *pointer, struct heap *heap, struct span *slab)
{
    slab_begin_frozen(slab);
    size_t index = checked_packed(pointer, slab, "free");
    if (unlikely(index == INDEX_REFUSED))
        return;
    uint64_t old = fetch_or_seq_cst(packed_word(slab, index / 64), bit_of(index));
    if (unlikely((old & bit_of(index)) != 0)) {
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

void packed_free(void *pointer, struct heap *heap, struct span *slab)
{
    if (unlikely(heap->generation != heap_generation)) {
        free_frozen(pointer, heap, slab);
        return;
    }
    size_t offset = (size_t)((char *)pointer - slab->base);
    size_t index = offset / PACKED_BYTES;
    size_t word = index / 64;
    if (unlikely(offset % PACKED_BYTES != 0 || word >= load_relaxed(&slab->limit)) &&
        checked_packed(pointer, slab, "free") == INDEX_REFUSED) /* says what is wrong */
        return;
    bool claimed = load_relaxed(&slab->claimed_at) == word_start(slab, word);
    if (claimed && heap == thread_heap) {
        if (unlikely(((slab->claimed | load_relaxed(packed_word(slab, word))) & bit_of(index)) !=
                     0))
            refuse_freed(pointer, slab, "free");
        else
            store_relaxed(&slab->claimed, slab->claimed | bit_of(index));
        return;
    }
    /* One that is claimed is found below, too, but too late to refuse it. */
    if (unlikely(claimed && (load_relaxed(&slab->claimed) & bit_of(index)) != 0) &&
        checked_packed(pointer, slab, "free") == INDEX_REFUSED)
        return;
    uint64_t old = fetch_or_seq_cst(packed_word(slab, word), bit_of(index));
    if (unlikely((old & bit_of(index)) != 0)) {
        refuse_freed(pointer, slab, "free");
        return;
    }
    if (unlikely(load_relaxed(&slab->claimed_at) == word_start(slab, word) &&
                 (load_relaxed(&slab->claimed) & bit_of(index)) != 0)) {
        struct packed_bits bits = packed_bits_of(slab, pointer);
        if (bits.in_word && bits.in_claim)
            die_twice(pointer);
    }
    if (unlikely(old == 0 || (old | bit_of(index)) == UINT64_MAX))
        tell(heap, slab, word, old);
}

/* Fork, statistics, verifier. */

void packed_after_fork(struct heap *heap, struct span *slab)
{
    for (size_t word = 0; word < load_relaxed(&slab->limit); word++)
        if (load_relaxed(packed_word(slab, word)) != 0 &&
            (load_relaxed(summary_of(slab, word)) & bit_of(word)) == 0)
            fetch_or_seq_cst(summary_of(slab, word), bit_of(word));
    remote_post(heap, slab);
}

size_t packed_live(const struct span *slab)
{
    size_t limit = smaller_of(load_relaxed(&slab->limit), (uint64_t)PACKED_WORDS);
    size_t live = limit * 64;
    for (size_t word = 0; word < limit; word++)
        live -= count_bits(load_relaxed(packed_word(slab, word)));
    return live - smaller_of(live, count_bits(load_relaxed(&slab->claimed)));
}

void packed_verify(struct heap *heap)
{
    struct span *prev = NULL;
    for (struct span *slab = heap->packed.bin.first; slab; prev = slab, slab = slab->next) {
        check_internal(*slab_prev(slab) == prev && slab_is_packed(slab) &&
                       slab_heap(slab) == heap && slab != heap->packed.slab);
        check_internal(slab->limit <= PACKED_WORDS && slab->size_bytes == PACKED_BYTES);
    }
    check_internal(heap->packed.bin.last == prev);
    check_internal(heap->packed.slab == NULL || slab_heap(heap->packed.slab) == heap);
}
