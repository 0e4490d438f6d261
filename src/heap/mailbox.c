/* Emptying mailboxes: see mailbox.h. */
#include "heap/mailbox.h"

#include "base/test_delay.h"
#include "heap/packed.h"
#include "heap/profiling.h"
#include "heap/quarantine.h"
#include "heap/remote.h"
#include "heap/slab_lists.h"

/* Acquire: what the freeing thread did with the block comes before. */
static void collect_slot(struct span *slab, unsigned slot)
{
    (void)load_acquire(slab_link(slab, slot)); /* pairs with (1) of remote.c */
    if (config_hardened) {
        quarantine_mark(slab, slot);
        quarantine_retain(slab_heap(slab), slab, slot); /* counts it when it leaves quarantine */
    } else {
        slab_push(slab, slot);
    }
}

/* Without quarantine, a hardened build gives a slab back with its last block. Then it may be
 * another heap's already. */
static bool is_gone(const struct heap *heap, const struct span *slab)
{
    return config_hardened && slab_heap(slab) != heap;
}

unsigned slab_collect(struct span *slab)
{
    const struct heap *heap = slab_heap(slab);
    unsigned limit = (unsigned)load_relaxed(&slab->limit);
    unsigned collected = 0;
    for (unsigned first = 1; first < limit; first += LINKS_A_WORD)
        for (uint64_t found = slab_remote_links(slab, first); found != 0; found &= found - 1) {
            collect_slot(slab, first + lowest_bit(found) / 8);
            collected++;
            if (is_gone(heap, slab))
                return 0;
        }
    return config_hardened ? 0 : collected;
}

static void collect(struct heap *heap, struct span *slab)
{
    unsigned collected = slab_collect(slab);
    if (is_gone(heap, slab))
        return;
    if (heap->current[slab_class(slab)] == slab) {
        if (class_is_small(slab_class(slab))) {
            if (heap_is_watched())
                heap_profile_collect(heap, slab_class(slab), collected);
        } else if (collected != 0 &&
                   (slab_own(slab)->until = (uint8_t)(slab_own(slab)->until - collected)) == 0) {
            heap_attend(heap, slab);
        }
    } else if (slab_is_waiting(slab)) {
        unsigned freed = slab_patience(slab) - (unsigned)slab_own(slab)->until + collected;
        if (freed < slab_patience(slab))
            slab_own(slab)->until = (uint8_t)(slab_own(slab)->until - collected);
        else
            heap_list_slab(heap, slab, slab->capacity - freed);
    } else {
        slab_own(slab)->until = (uint8_t)(slab_own(slab)->until - collected);
        if (slab_own(slab)->until == 0)
            heap_retire_listed(heap, slab);
    }
}

void heap_drain_mailbox(struct heap *heap, unsigned mailbox)
{
    if (!remote_has_mail(heap, mailbox))
        return;
    store_relaxed(&heap->drains, heap->drains + 1); /* odd from here on: see heap_sweep.c */
    struct span *slab = remote_take_mail(heap, mailbox);
    while (slab) {
        struct span *next = slab->mail_next;
        test_delay();
        remote_open(heap, slab); /* (b): a free that is missed from here on posts again */
        test_delay();
        if (slab_is_packed(slab))
            packed_attend(heap, slab);
        else
            collect(heap, slab);
        slab = next;
    }
    store_release(&heap->drains, heap->drains + 1); /* pairs with sweep_mail */
}

void heap_drain(struct heap *heap)
{
    for (unsigned mailbox = 0; mailbox < MAILBOXES; mailbox++)
        heap_drain_mailbox(heap, mailbox);
}

void heap_forget_mail(struct heap *heap)
{
    for (unsigned mailbox = 0; mailbox < MAILBOXES; mailbox++) {
        struct span *slab = remote_take_mail(heap, mailbox);
        for (struct span *next; slab; slab = next) {
            next = slab->mail_next;
            remote_open(heap, slab);
        }
    }
}

/* Other threads of the parent may have stopped anywhere within a free, and their posts are lost. */
static bool look_visit(struct span *span, char *start, void *context)
{
    (void)start;
    struct heap *heap = context;
    if (!span_is_slab(span) || slab_heap(span) != heap)
        return true;
    if (slab_is_packed(span))
        packed_after_fork(heap, span);
    else if (slab_has_remote(span))
        (void)remote_post(heap, span);
    return true;
}

void heap_look_after_fork(struct heap *heap)
{
    heap->look_after_fork = false;
    pages_each(look_visit, heap);
}
