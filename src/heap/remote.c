/* Remote free: one atomic operation in the common case, a post to the owner for the first in a
 * word.
 *
 * Protocol. Let W be a word of the slab's remote bits, D the difference in the owner word.
 */
/* clang-format off */
/*   free:     (1) old = OR(W, bit)
 *             (2) if old == 0: D += 1 and set QUEUED, in one CAS
 *             (3) if it was not QUEUED: push the slab to the mailbox
 *   collect:  (a) clear QUEUED, after popping the slab
 *             (b) for each W != 0: bits = XCHG(W, 0)
 *             (c) D -= words with bits
 */
/* clang-format on */
/* No bit is lost: a free whose OR comes before (b) is in the exchanged bits, or in those of an
 * earlier free of the same word, which makes the post. One whose OR comes after (b) finds 0 and
 * posts; its CAS comes after (a), so it finds QUEUED clear, unless yet another post set it again
 * and pushes.
 *
 * No slab is retired under a poster: each turn of a W from zero adds exactly one to D, in (2), and
 * each exchange of bits takes exactly one away. So D == 0 only if every free that got past (1) with
 * old == 0 is also past (2). D may be negative for a while: collected, but (2) still to come.
 * QUEUED clear says that none stands before its push (3). Frees with old != 0 do not touch the slab
 * after (1); the block that they free keeps the slab from being empty until its bit is collected,
 * which is after (1).
 *
 * A double free is seen at once: by (1) when the bit is set, by the link byte when the owner has
 * the block in its list. Two frees of one block at the very same time, one of them the owner's, are
 * seen when the bit is collected.
 */
#include "heap/remote.h"

#include "base/check.h"
#include "base/test_delay.h"
#include "heap/checked.h"
#include "heap/harden.h"
#include "heap/packed.h"

/* (3) */
void remote_mail(struct heap *heap, struct span *slab)
{
    struct span *first = load_relaxed(&heap->mailbox);
    do
        slab_remote(slab)->mail_next = first;
    while (!compare_swap_seq_cst(&heap->mailbox, &first,
                                 slab)); /* release: pairs with the exchange in heap_drain */
    test_delay();
    /* The slab may be gone now; heaps never are. */
    if (unlikely(load_seq_cst(&heap->state) == HEAP_ORPHAN))
        heap_tend_orphan(heap);
}

/* (2) */
static void post(struct heap *heap, struct span *slab)
{
    test_delay();
    uintptr_t owner = load_relaxed(&slab->owner);
    while (!compare_swap_acq_rel(&slab->owner, &owner, (owner + OWNER_POST) | OWNER_QUEUED))
        pause_processor();
    test_delay();
    if ((owner & OWNER_QUEUED) == 0)
        remote_mail(heap, slab);
}

/* The remote words of a frozen slab begin anew in each process: what they held was another
 * process's. */
void slab_begin_frozen(struct span *slab)
{
    struct remote *remote = slab_remote(slab);
    uint64_t *words = slab_is_packed(slab) ? packed_word(slab, 0) : remote->words;
    size_t count = slab_is_packed(slab) ? (size_t)PACKED_WORDS : (size_t)REMOTE_WORDS;
    uint32_t busy = heap_generation | (uint32_t)1 << 31; /* a parent's says nothing here */
    uint32_t seen = load_acquire(&remote->generation);   /* pairs with the release below */
    while (seen != heap_generation) {
        if (seen != busy && compare_swap_acq_rel(&remote->generation, &seen, busy)) {
            for (size_t i = 0; i < count; i++)
                store_relaxed(&words[i], (uint64_t)0);
            store_release(&remote->generation, heap_generation);
        }
        seen = load_acquire(&remote->generation);
    }
}

/* A frozen slab has no owner to collect; once every slot was freed in this process its pages go
 * back. Whoever finds it so and takes the owner word away does it; the header stays readable for
 * those who come too late. The words are counted by atomic operations that change nothing: of two
 * threads that free the last slots of two words, loads could show each of them the other word as it
 * was before, and the slab would be nobody's. */
static void retire_frozen(struct heap *heap, struct span *slab)
{
    unsigned freed = 0;
    for (unsigned i = 0; i < REMOTE_WORDS; i++)
        freed += count_bits(fetch_add_acq_rel(&slab_remote(slab)->words[i], (uint64_t)0));
    uintptr_t owner = load_relaxed(&slab->owner);
    if (freed == slab->capacity && (owner & OWNER_HEAP_MASK) == (uintptr_t)heap &&
        compare_swap_acq_rel(&slab->owner, &owner, (uintptr_t)0))
        slab_retire(slab);
}

/* The block's bit; dies when it is set already. Returns what the word was before. A sum, because
 * the processor adds and tells what was there in one instruction, but ORs in a loop; as long as the
 * bit is clear they are the same. Pairs with the exchange in collect. */
inline_always uint64_t mark_freed(void *pointer, struct span *slab, unsigned slot)
{
    uint64_t *word = slab_remote_word(slab, slot);
    uint64_t bit = slab_remote_bit(slot);
    if (likely((load_relaxed(word) & bit) == 0)) {
        uint64_t old = fetch_add_acq_rel(word, bit);
        if (likely((old & bit) == 0))
            return old;
        fetch_sub_relaxed(word, bit); /* two at this very moment: the carry goes back */
    }
    die_freed(pointer, slab, "free");
}

static no_inline void free_frozen(void *pointer, struct heap *heap, struct span *slab)
{
    slab_begin_frozen(slab);
    unsigned slot = checked_slot(pointer, slab, "free");
    if (config_hardened)
        harden_take_back(slab, slot);
    mark_freed(pointer, slab, slot);
    retire_frozen(heap, slab);
}

void remote_free(void *pointer, struct heap *heap, struct span *slab)
{
    if (unlikely(heap->generation != heap_generation)) {
        free_frozen(pointer, heap, slab);
        return;
    }
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (unlikely(config_hardened || !slab_shows_live(slab, slot)))
        slot = checked_slot(pointer, slab, "free"); /* says what is wrong */
    if (config_hardened)
        harden_take_back(slab, slot);
    if (mark_freed(pointer, slab, slot) == 0)
        post(heap, slab);
}
