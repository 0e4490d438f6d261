/* Remote frees: see remote.h. Each takes one atomic operation on the block's link byte; the first
 * one since the slab was collected also posts the slab to the owner's mailbox.
 *
 * Protocol. L is the block's link byte, P is the slab's `mail_state`, M is the mailbox for the slab
 * in its heap. P is the heap, with QUEUED while the slab is in M or about to be; it is 0 while no
 * heap has the slab.
 *
 *   free:    (1) L: LIVE -> REMOTE by compare-and-swap. If that fails, the block is a sample, which
 *                first becomes LIVE, or this is a double free. In full hardened builds
 *                LIVE -> TAKEN, the block is wiped, TAKEN -> REMOTE
 *            (2) P: heap -> heap, QUEUED by compare-and-swap, unless it is QUEUED or 0. The heap is
 *                the one that P names at this moment
 *            (3) the thread that did (2) pushes the slab to M
 *   drain:   (a) takes all slabs of M
 *            (b) for each slab of them, P = heap
 *            (c) each L of the slab that says REMOTE becomes a listed slot
 *   retire:  (d) the slab is empty: P: heap -> 0 by compare-and-swap. If that fails, the slab stays
 *   reclaim: (e) the holder of two heaps, one of an ended thread: P: that heap -> its own heap by
 *                compare-and-swap. If that fails, the slab stays
 *            (f) the owner word becomes its own heap
 *            (g) the thread has marked a block of the slab: instead of (2) and (3) it does (c)
 *
 * Steps (1), (2), (b) and (e) and the loads of (c) are sequentially consistent.
 *
 * No double free passes if one free comes after the other: from the first free until the block is
 * handed out again, L does not say LIVE, neither to the owner's test nor to (1). Of two frees at
 * the same instant by other threads, one fails at (1). If one of the two is the owner's, and (1)
 * falls between its test of L and its store, then the store removes the mark. The block was then
 * freed once and is in the list once, and the second free is not reported.
 *
 * The first free may give the slab back while the second one is on its way to (1). The second one
 * has read the slot before it found the heap still in the owner word, and finds the link of a slot
 * that is listed. Or the header serves another slab by then, and the block of that slot is freed
 * instead. A second free that is late by these few instructions cannot be distinguished from the
 * free of a block that was handed out again.
 *
 * No free is lost. A free that finds QUEUED at (2) does so before the next (b), so its (1) comes
 * before the (c) after that. All other frees post or reclaim.
 *
 * No slab is retired or reclaimed during a push: from (2) to (b) it is QUEUED, and (d) and (e)
 * fail. So its class, which (3) reads, stays.
 *
 * A free at the time of (e): its (1) may come before the loads of (c) in (g); then its block is
 * collected there. Otherwise its read of P at (2) comes after (e), and finds the new heap. The
 * owner word that it read decides nothing else: heaps are never given back, and both are of this
 * process.
 *
 * A free that is late at (2): once L says REMOTE, another thread's post may make the owner collect
 * the block and retire the slab. Headers and their cold areas never serve anything else, so P is
 * still the `mail_state` of a header. If it is 0, the late thread has nothing to post. Otherwise it
 * names the heap that has the header's slab now, and that heap visits a slab of its own once more
 * than it needs. So no mailbox is drained while a slab is open and neither current nor listed: the
 * drain would retire it. A private heap may end with blocks in use, so a late free of its block
 * posts to no other heap, and no other late free posts to it.
 *
 * Fork: P holds the number of the process in which it became QUEUED, and is not QUEUED in any other
 * process. The child's mailboxes are empty. The blocks that the parent's other threads had freed
 * are looked for when their heap needs a slab: see heap_look_after_fork.
 *
 * Slabs of inherited heaps have no owner that collects: thread_heap.h has their protocol. */
#include "heap/remote.h"

#include "heap/harden.h"
#include "heap/hooks.h"
#include "heap/misuse_report.h"

#define MAIL_HEAP_MASK ((((uintptr_t)1 << MAIL_PROCESS_SHIFT) - 1) & ~(uintptr_t)63)

bool remote_move(struct heap *from, struct heap *to, struct span *slab)
{
    uintptr_t seen = load_seq_cst(&slab->mail_state);
    while (seen != remote_queued(from) && (seen & MAIL_HEAP_MASK) == (uintptr_t)from)
        if (compare_swap_if_threaded(&slab->mail_state, &seen, (uintptr_t)to))
            return true;
    return false;
}

void remote_push_mail(struct heap *heap, unsigned mailbox, struct span *slab)
{
    struct span **top = &heap->mailboxes[mailbox];
    struct span *first = load_relaxed(top);
    do /* release: pairs with remote_take_mail */
        slab->mail_next = first;
    while (!compare_swap_seq_cst(top, &first, slab));
}

bool remote_post(struct heap *heap, struct span *slab)
{
    test_delay();
    uintptr_t seen = load_seq_cst(&slab->mail_state);
    for (;;) {
        struct heap *to = (struct heap *)(seen & MAIL_HEAP_MASK);
        if (to == NULL || seen == remote_queued(to) ||
            (to != heap && (to->private_heap != NULL || heap->private_heap != NULL)))
            return false;
        if (compare_swap_seq_cst(&slab->mail_state, &seen, remote_queued(to))) {
            test_delay();
            remote_push_mail(to, remote_mailbox(slab_class(slab)), slab); /* (3) */
            return true;
        }
    }
}

struct span *remote_take_mail(struct heap *heap, unsigned mailbox)
{
    if (load_relaxed(&heap->mailboxes[mailbox]) == NULL)
        return NULL;
    /* Pairs with remote_push_mail and remote_return_mail. */
    return exchange_acquire(&heap->mailboxes[mailbox], (struct span *)NULL);
}

void remote_return_mail(struct heap *heap, unsigned mailbox, struct span *first)
{
    struct span **top = &heap->mailboxes[mailbox];
    for (struct span *newer = NULL; !compare_swap_seq_cst(top, &newer, first); newer = NULL) {
        /* Few slabs were pushed meanwhile. Pairs with remote_push_mail. */
        newer = exchange_acquire(top, (struct span *)NULL);
        struct span *last = newer;
        while (last && last->mail_next)
            last = last->mail_next;
        if (last) {
            last->mail_next = first;
            first = newer;
        }
    }
}

/* Step (1) in builds that zero freed blocks. If the second swap fails, the owner's test and store
 * were around the first one, and another thread may have the block by now. */
static bool remote_mark_wiped(struct span *slab, unsigned slot)
{
    uint8_t link = LINK_LIVE;
    if (unlikely(!compare_swap_acq_rel(slab_link(slab, slot), &link, (uint8_t)LINK_TAKEN)))
        return false;
    harden_wipe(slab, slot);
    link = LINK_TAKEN;
    return compare_swap_seq_cst(slab_link(slab, slot), &link, (uint8_t)LINK_REMOTE);
}

bool remote_free(void *pointer, struct heap *heap, struct span *slab, uint8_t link)
{
    if (unlikely(!link_shows_use(link))) { /* whatever its value is by now */
        report_bad_pointer(pointer, "free");
        return false;
    }
    unsigned slot = checked_slot(pointer, slab, "free"); /* reports the fault */
    if (unlikely(slot == SLOT_INVALID))
        return false;
    struct heap *now = slab_heap(slab);
    if (unlikely(now != heap)) {
        if (now != NULL) /* its owner has ended, and another thread has reclaimed the slab */
            return remote_free(pointer, now, slab, LINK_LIVE);
        /* Another free gave the slab back, so `pointer` is no block. */
        report_bad_pointer(pointer, "free");
        return false;
    }
    if (unlikely(load_relaxed(slab_link(slab, slot)) == LINK_PROFILED))
        free_hooked(slab, slab_block(slab, slot)); /* removes the mark */
    if (config_hardened)
        (void)harden_size(slab, pointer); /* checks the canaries */
    if (unlikely(!(config_zero_freed ? remote_mark_wiped(slab, slot)
                                     : remote_mark(slab, slot, &link)))) {
        report_bad_pointer(pointer, "free");
        return false;
    }
    if (likely(heap->generation == heap_generation))
        return true;
    slab_retire_inherited(heap, slab); /* it has no owner that collects */
    return false;
}
