/* Giving back free pages inside slabs: see heap_sweep.h. A free block holds nothing of ours, so a
 * page without a block in use is nobody's; it reads zero when it is handed out next.
 *
 * Two ways make sure that no block of such a page is handed out meanwhile, by a thread that knows
 * nothing of it and takes no lock.
 *   A slab that is aside: its use word says PURGED meanwhile, so its owner does not make it current
 * (slab.h), and blocks are handed out of current slabs only. It may free blocks of it: that makes
 * more of it free, not less.
 *   A slab that was in a mailbox of its heap: who took it out gives back pages on which every slot
 * says REMOTE, also while it is current. Only who collects changes such a mark. The next time that
 * is who takes the slab out of the mailbox, and it is in our hands, and QUEUED, so nobody puts it
 * there again or retires it (remote.c). But the holder may still be collecting since the time
 * before: it opened the post word, and the slab was posted again at once. Then `drains` is odd:
 * that was written before the post word was opened, so we see it, or what was written when all was
 * collected. The owner may miss the slab for a moment, as if its blocks were freed a little later.
 *
 * What the last user of a block did comes before: the free that marked it is read with acquire, or
 * was the owner's, whose late stores would only bring a page of nothing back.
 *
 * `given` spares the system what it has: it knows the pages of a slab that went since it was put
 * aside. They do not count for the limits (page/bound.h) until the slab becomes current. What was
 * given back of one that is current is not in it, and counts on: a slab a class.
 *
 * What has changed between two looks is left alone by all but sweep_all: so what is empty longest
 * goes first, and what is busy stays. A slab with pages that went moves to the end of its list, to
 * be used again last.
 *
 * Packed slabs: packed_sweep.c. Not swept: void ones, and those of first-class heaps, which have a
 * lock of their own and can end with blocks in use: their use word never says ASIDE.
 */
#include "heap/heap_sweep.h"

#include "base/test_delay.h"
#include "heap/heap_life.h"
#include "heap/heap_slabs.h"
#include "heap/remote.h"
#include "heap/slab_sweep.h"

static bool sweep_mailbox(struct heap *heap, unsigned mailbox)
{
    bool any = false;
    for (struct span *slab = remote_take_mail(heap, mailbox), *next; slab; slab = next) {
        next = slab->mail_next;
        if (class_is_swept(slab_class(slab))) {
            if (slab_try_use(slab, SLAB_PURGED)) {
                any = slab_purge_aside(slab) || any;
                (void)slab_end_purge(slab);                    /* it is posted in any case */
            } else if (load_acquire(&heap->drains) % 2 == 0) { /* pairs with heap_drain */
                (void)pages_purge_marked(slab_start(slab), slab_free_pages(slab, SLOTS_ALL_REMOTE));
            }
        }
        test_delay();
        remote_return_mail(heap, slab);
        heap_tend_after_post(heap, mailbox);
    }
    return any;
}

static bool sweep_mail(struct heap *heap)
{
    bool any = false;
    for (unsigned mailbox = 0; mailbox < MAILBOXES; mailbox++)
        any = sweep_mailbox(heap, mailbox) || any;
    return any;
}

static void sweep_other(struct heap *heap, void *context)
{
    (void)context;
    if (heap == thread_heap || heap->program != NULL)
        return;
    if (heap_try_hold(heap)) {
        if (heap->left_ready)
            heap_trim(heap);
        sweep_heap(heap);
        heap_return(heap);
        return;
    }
    uint32_t drains = load_relaxed(&heap->drains);
    bool idle = heap->drained == drains;
    heap->drained = drains;
    if (idle)
        (void)sweep_mail(heap);
}

/* By one thread at a time: to return an orphan may ask again what is due. */
static uint32_t sweeper; /* atomic: of which process, plus 1; 0: none */

void sweep_others(void)
{
    uint32_t seen = load_relaxed(&sweeper);
    uint32_t own = heap_generation + 1;
    if (seen == own || !compare_swap_acq_rel(&sweeper, &seen, own))
        return;
    heaps_each(sweep_other, NULL);
    store_release(&sweeper, (uint32_t)0); /* pairs with the compare-and-swap above */
}

static void trim_other(struct heap *heap, void *context)
{
    bool *any = context;
    if (heap == thread_heap || heap->program != NULL)
        return;
    if (heap_try_hold(heap)) {
        heap_trim(heap);
        heap_return(heap);
    } else {
        *any = sweep_mail(heap) || *any;
    }
}

/* The slab may be given back, or be another one, until its use word says PURGED. Headers and their
 * cold areas serve nothing else. Those of a parent process are frozen, and left alone. */
static bool sweep_visit(struct span *span, char *start, void *context)
{
    (void)start;
    bool *any = context;
    unsigned class = load_relaxed(&span->tag) - (unsigned)SPAN_SLAB;
    uintptr_t owner = load_acquire(&span->owner); /* pairs with slab_make */
    struct heap *heap = (struct heap *)(owner & OWNER_HEAP_MASK);
    if (!class_is_swept(class) || heap == NULL || heap->generation != heap_generation ||
        !slab_try_use(span, SLAB_PURGED))
        return true;
    *any = slab_purge_aside(span) || *any;
    bool emptied = slab_end_purge(span);
    /* From then on its owner may give it back himself: it is no heap's, and nobody's to tell. */
    if (emptied && (heap = slab_heap(span)) != NULL) {
        unsigned mailbox = remote_post(heap, span);
        if (mailbox != NOT_POSTED)
            heap_tend_after_post(heap, mailbox);
    }
    return true;
}

struct idle {
    uint64_t since_ms;
    bool all;
};

static void look_idle(struct heap *heap, void *context)
{
    struct idle *idle = context;
    if (heap->program == NULL && load_relaxed(&heap->swept_ms) >= idle->since_ms)
        idle->all = false;
}

static bool sweep_idle_visit(struct span *span, char *start, void *context)
{
    const struct idle *idle = context;
    struct heap *heap = (struct heap *)(load_acquire(&span->owner) & OWNER_HEAP_MASK);
    bool any = false;
    /* Heaps are never unmapped, so a stale owner is read in vain at worst. */
    if (heap == NULL || heap->program != NULL || load_relaxed(&heap->swept_ms) >= idle->since_ms)
        return true;
    return sweep_visit(span, start, &any);
}

bool sweep_idle(uint64_t since_ms)
{
    struct idle idle = {since_ms, true};
    heaps_each(look_idle, &idle);
    pages_each_slab(sweep_idle_visit, &idle);
    return idle.all;
}

bool sweep_all(void)
{
    bool any = false;
    heaps_each(trim_other, &any);
    pages_each_slab(sweep_visit, &any);
    return any;
}
