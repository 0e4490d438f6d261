/* Remote free: a free of a block whose slab another thread's heap owns. One atomic operation on the
 * block's link byte; the first one since the slab was collected also tells the owner.
 *
 * Protocol. Let L be the block's link byte, P the slab's post word, M its mailbox in its heap. P is
 * the heap, with QUEUED while the slab is in M or about to be; 0 while no heap has the slab.
 */
/* clang-format off */
/*   free:    (1) L: LIVE -> REMOTE by compare-and-swap; where that fails: a sample, which becomes
 *                LIVE first, or a double free. In full hardened builds LIVE -> TAKEN, the block
 *                is wiped, TAKEN -> REMOTE
 *            (2) P: heap -> heap, QUEUED by compare-and-swap, unless it is QUEUED or another heap's
 *            (3) who did (2): pushes the slab to M
 *            (4) and then sees to a heap without a thread: heap_tend_after_post, the caller's
 *   drain:   (a) takes all of M
 *            (b) for each slab of it, P = heap
 *            (c) each L of the slab that says REMOTE goes to the list of free slots
 *   retire:  (d) the slab is empty: P: heap -> 0 by compare-and-swap; where that fails, it stays
 */
/* clang-format on */
/* (1), (2), (b) and the loads of (c) are sequentially consistent.
 *
 * No double free passes, if one free comes after the other: from the first until the block is
 * handed out again L does not say LIVE, neither to the owner's test nor to (1). Of two frees at the
 * same instant by other threads one fails at (1). If one of the two is the owner's and (1) falls
 * between its test of L and its store, then the store takes the mark away: the block was freed
 * once, is in the list once, and nobody reports the second free.
 *
 * Where the first free gives the slab back while the second is on its way to (1), that has read the
 * slot before it found the heap still there, and finds the link of a slot that is listed; or the
 * header serves another slab by then, and the block of that slot is taken for freed. So late, by a
 * few instructions, no second free is told from that of a block which was handed out again.
 *
 * No free is lost: one that finds QUEUED at (2) does so before the (b) to come, so its (1) comes
 * before that (c). All others post.
 *
 * No slab goes under a push: from (2) to (b) it is QUEUED, and (d) fails.
 *
 * Late at (2): once L says REMOTE, somebody else's post may bring the owner to collect the block
 * and retire the slab. Headers and their cold areas serve nothing else ever, so P is still the post
 * word of a header. It is 0, or of another heap, and the late one has nothing to tell; or of this
 * heap again, which then looks at a slab of its own once more than it needs.
 *
 * Fork: P holds the number of the process in which it became QUEUED, and is not QUEUED in any
 * other. The child's mailbox is empty; what the parent's other threads had freed is looked for when
 * its heap needs a slab, see heap_look_after_fork.
 */
#include "heap/remote.h"

#include "base/test_delay.h"
#include "heap/checked.h"
#include "heap/frozen.h"
#include "heap/harden.h"
#include "heap/refuse.h"
#include "heap/tracing.h"

#define POST_HEAP_MASK ((((uintptr_t)1 << POST_PROCESS_SHIFT) - 1) & ~(uintptr_t)63)

void remote_open(struct heap *heap, struct span *slab)
{
    store_seq_cst(&slab->post, (uintptr_t)heap);
}

/* Another word for a post word of the heap that is not QUEUED; whether it was one. */
static bool exchange_post(struct heap *heap, struct span *slab, uintptr_t word)
{
    uintptr_t *post = &slab->post;
    uintptr_t is_queued = remote_queued(heap);
    uintptr_t seen = load_seq_cst(post);
    while (seen != is_queued && (seen & POST_HEAP_MASK) == (uintptr_t)heap)
        if (compare_swap_seq_cst(post, &seen, word))
            return true;
    return false;
}

bool remote_close(struct heap *heap, struct span *slab) { return exchange_post(heap, slab, 0); }

/* (3). Afterwards the slab may be anybody's. */
static unsigned mail(struct heap *heap, struct span *slab)
{
    unsigned mailbox = remote_mailbox(slab_class(slab));
    struct span **top = &heap->mailboxes[mailbox];
    struct span *first = load_relaxed(top);
    do
        slab->mail_next = first;
    while (!compare_swap_seq_cst(top, &first, slab)); /* release: pairs with remote_take_mail */
    return mailbox;
}

unsigned remote_post(struct heap *heap, struct span *slab)
{
    test_delay();
    if (!exchange_post(heap, slab, remote_queued(heap)))
        return NOT_POSTED;
    test_delay();
    return mail(heap, slab);
}

struct span *remote_take_mail(struct heap *heap, unsigned mailbox)
{
    if (load_relaxed(&heap->mailboxes[mailbox]) == NULL)
        return NULL;
    return exchange_acquire(&heap->mailboxes[mailbox], (struct span *)NULL); /* pairs with mail() */
}

void remote_lose_mail(struct heap *heap)
{
    for (unsigned mailbox = 0; mailbox < MAILBOXES; mailbox++)
        store_relaxed(&heap->mailboxes[mailbox], (struct span *)NULL);
}

void remote_return_mail(struct heap *heap, struct span *slab) { (void)mail(heap, slab); }

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

inline_always void forget_sample(struct span *slab, unsigned slot)
{
    if (unlikely(load_relaxed(slab_link(slab, slot)) == LINK_PROFILED))
        heap_forget_marked_slot(slab, slot);
}

static no_inline void free_frozen(void *pointer, struct heap *heap, struct span *slab)
{
    slab_begin_frozen(slab);
    unsigned slot = checked_slot(pointer, slab, "free");
    if (unlikely(slot == SLOT_REFUSED))
        return;
    forget_sample(slab, slot);
    if (config_hardened)
        harden_wipe(slab, slot);
    uint64_t bit = slab_frozen_bit(slot);
    if (unlikely(!slab_set_frozen(heap, slab, slab_frozen_word(slab, slot), bit)))
        refuse_freed(pointer, slab, "free");
    else
        retire_frozen(heap, slab);
}

/* (1) where freed blocks are zeroed. If the second swap fails, the owner's test and store were
 * around the first one, and the block may be somebody else's by now. */
static bool mark_wiped(struct span *slab, unsigned slot)
{
    uint8_t link = LINK_LIVE;
    if (unlikely(!compare_swap_acq_rel(slab_link(slab, slot), &link, (uint8_t)LINK_TAKEN)))
        return false;
    harden_wipe(slab, slot);
    link = LINK_TAKEN;
    return compare_swap_seq_cst(slab_link(slab, slot), &link, (uint8_t)LINK_REMOTE);
}

unsigned remote_free(void *pointer, struct heap *heap, struct span *slab, uint8_t link)
{
    if (unlikely(heap->generation != heap_generation)) {
        free_frozen(pointer, heap, slab);
        return NOT_POSTED;
    }
    if (unlikely(!link_shows_use(link))) { /* whatever it says by now */
        refuse_freed(pointer, slab, "free");
        return NOT_POSTED;
    }
    unsigned slot = checked_slot(pointer, slab, "free"); /* says what is wrong */
    if (unlikely(slot == SLOT_REFUSED))
        return NOT_POSTED;
    if (unlikely(slab_heap(slab) != heap)) { /* another free gave it back, so that is no slot */
        refuse_pointer(pointer, "free");
        return NOT_POSTED;
    }
    forget_sample(slab, slot);
    if (config_hardened)
        harden_check(slab, slot);
    if (unlikely(!(config_zero_freed ? mark_wiped(slab, slot) : remote_mark(slab, slot, &link)))) {
        refuse_freed(pointer, slab, "free");
        return NOT_POSTED;
    }
    return remote_post(heap, slab);
}
