/* Draining mailboxes, and finding posts that a fork lost: see mailbox.h. */
#include "heap/mailbox.h"

#include "base/bits.h"
#include "base/test_delay.h"
#include "heap/hooks.h"
#include "heap/profiling.h"
#include "heap/quarantine.h"
#include "heap/remote.h"
#include "heap/slab_lists.h"

/* Whether the slab was retired, and may be another heap's already. A light hardened build has no
 * quarantine and retires a slab when its last slot is collected. */
static bool mailbox_is_gone(const struct heap *heap, const struct span *slab)
{
    return config_hardened && slab_heap(slab) != heap;
}

/* The quarantine subtracts from frees_to_attention when the block leaves quarantine. Acquire: the
 * accesses of the freeing thread to the block happen before. */
unsigned slab_collect(struct span *slab)
{
    struct heap *heap = slab_heap(slab);
    unsigned limit = (unsigned)load_relaxed(&slab->fresh_slot);
    unsigned collected = 0;
    for (unsigned first = 1; first < limit; first += LINKS_A_WORD)
        for (uint64_t found = slab_remote_links(slab, first); found != 0; found &= found - 1) {
            unsigned slot = first + lowest_bit(found) / 8;
            (void)load_acquire(slab_link(slab, slot)); /* pairs with (1) of remote.c */
            collected++;
            if (!config_hardened) {
                slab_push(slab, slot);
                continue;
            }
            quarantine_mark(slab, slot);
            quarantine_retain(heap, slab, slot);
            if (mailbox_is_gone(heap, slab))
                return 0;
        }
    return config_hardened ? 0 : collected;
}

/* Collects a slab of a mailbox, and changes its state if its number of free slots says so. */
static void mailbox_collect(struct heap *heap, struct span *slab)
{
    if (slab_is_packed(slab)) { /* its free blocks need no collecting */
        if (heap->current[PACKED_CLASS] != slab)
            heap_count_expired(heap, slab);
        return;
    }
    unsigned collected = slab_collect(slab);
    if (mailbox_is_gone(heap, slab))
        return;
    unsigned class = slab_class(slab);
    uint8_t *count = &slab_hot(slab)->frees_to_attention;
    bool is_current = heap->current[class] == slab;
    if (is_current && class_is_small(class)) {
        if (heap_is_hooked())
            heap_profile_collect(heap, class, collected);
    } else if (!is_current && slab_is_waiting(slab) && collected >= *count) {
        unsigned freed = slab_relist_after(slab) - (unsigned)*count + collected;
        heap_list_slab(heap, slab, slab->capacity - freed);
    } else {
        *count = (uint8_t)(*count - collected);
        if (*count == 0) /* maybe since before the post */
            heap_count_expired(heap, slab);
    }
}

/* Drains one mailbox, as mailbox_drain_pair does. */
static size_t mailbox_drain(struct heap *heap, unsigned mailbox, size_t slabs)
{
    /* Relaxed: a push that happens before the look is never missed, and a slab that the look misses
     * stays for the next one. The acquire of remote_take_mail orders what follows. */
    if (slabs == 0 || load_relaxed(&heap->mailboxes[mailbox]) == NULL)
        return slabs;
    store_relaxed(&heap->drains, heap->drains + 1); /* odd from now on: see borrow.h */
    struct span *slab = remote_take_mail(heap, mailbox);
    for (; slab && slabs != 0; slabs--) {
        struct span *next = slab->mail_next;
        test_delay();
        remote_reopen(heap, slab); /* (b): a free that is missed from now on posts again */
        test_delay();
        mailbox_collect(heap, slab);
        slab = next;
    }
    if (slab)
        remote_return_mail(heap, mailbox, slab);
    store_release(&heap->drains, heap->drains + 1); /* pairs with borrow_of_slab */
    return slabs;
}

bool heap_take_over(struct heap *from, struct heap *to, struct span *slab)
{
    unsigned class = slab_class(slab);
    uint32_t drains = to->drains;
    /* Odd before another thread can post the slab to `to`: see borrow.h. */
    store_relaxed(&to->drains, drains + 1);
    bool moved = heap_move_slab(from, to, slab);
    heap_return(from);
    test_delay();
    if (moved)
        mailbox_collect(to, slab); /* may retire the slab */
    /* Pairs with borrow_of_slab. An equal value says that nothing was drained. */
    store_release(&to->drains, moved ? drains + 2 : drains);
    if (moved)
        (void)mailbox_drain_pair(to, remote_mailbox(class), DRAIN_SLABS);
    return moved;
}

size_t mailbox_drain_pair(struct heap *heap, unsigned mailbox, size_t slabs)
{
    slabs = mailbox_drain(heap, mailbox, slabs);
    return mailbox_drain(heap, mailbox_of_looked_at(mailbox), slabs);
}

/* Whether any mailbox holds a slab. Usually none does when a heap needs a new one, and a branch for
 * each mailbox would take most of the instructions of that. */
static bool mailbox_is_any_filled(const struct heap *heap)
{
    uintptr_t any = 0;
#pragma GCC unroll 16
    for (unsigned mailbox = 0; mailbox < ALL_MAILBOXES; mailbox++)
        any |= (uintptr_t)load_folded(&heap->mailboxes[mailbox]);
    return any != 0;
}

bool heap_drain_some(struct heap *heap, size_t slabs)
{
    if (likely(!mailbox_is_any_filled(heap)))
        return true;
    unsigned first = heap->attended; /* changes with each free that drains */
    for (unsigned i = 0; i < ALL_MAILBOXES; i++)
        slabs = mailbox_drain(heap, (first + i) % ALL_MAILBOXES, slabs);
    return slabs != 0;
}

void heap_forget_mail(struct heap *heap)
{
    for (unsigned mailbox = 0; mailbox < ALL_MAILBOXES; mailbox++) {
        struct span *slab = remote_take_mail(heap, mailbox);
        for (struct span *next; slab; slab = next) {
            next = slab->mail_next;
            remote_reopen(heap, slab);
        }
    }
}

/* In a slab of the heap, changes BORROWED to REMOTE: the threads of the parent that had borrowed
 * these blocks do not exist in this process. Nothing was borrowed of the heap since the fork. */
static void mailbox_take_back(struct span *slab)
{
    unsigned limit = (unsigned)load_relaxed(&slab->fresh_slot);
    for (unsigned slot = 1; !config_hardened && slot < limit; slot++)
        if (load_relaxed(slab_link(slab, slot)) == LINK_BORROWED)
            store_seq_cst(slab_link(slab, slot), (uint8_t)LINK_REMOTE);
}

/* Posts a slab of the heap with remotely freed blocks, or an empty one, which waited in a mailbox
 * to be retired. Packed slabs do not show remote frees, so each is posted. */
static void mailbox_look_visit(struct span *span, char *start, void *context)
{
    (void)start;
    struct heap *heap = context;
    if (!span_is_slab(span) || slab_heap(span) != heap)
        return;
    if (!slab_is_packed(span))
        mailbox_take_back(span);
    if (slab_is_packed(span) || slab_hot(span)->frees_to_attention == 0 || slab_remote(span) != 0)
        (void)remote_post(heap, span);
}

void heap_lose_mail(struct heap *heap)
{
    if (mailbox_is_any_filled(heap) || !pages_forked_alone())
        store_relaxed(&heap->look_after_fork, true);
    for (unsigned mailbox = 0; mailbox < ALL_MAILBOXES; mailbox++)
        store_relaxed(&heap->mailboxes[mailbox], (struct span *)NULL);
    heap->looked_at = 0;
}

void heap_look_after_fork(struct heap *heap, size_t spans)
{
    if (!pages_each_part(&heap->looked_at, spans, mailbox_look_visit, heap))
        return;
    pages_each_outside(mailbox_look_visit, heap);
    store_relaxed(&heap->look_after_fork, false);
}
