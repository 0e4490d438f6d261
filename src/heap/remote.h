/* Frees of blocks that belong to another thread's heap. */
#ifndef CAIRN_HEAP_REMOTE_H
#define CAIRN_HEAP_REMOTE_H

#include "base/test_delay.h"
#include "heap/thread_heap.h"

/* Into which mailbox of its heap a slab was posted, or that it was not. */
enum { NOT_POSTED = MAILBOXES };

/* In the upper bits of a post word that is QUEUED, the process. A process that many forks down
 * takes an old post for a new one; then a slab's frees wait until its heap needs a slab. */
enum { POST_QUEUED = 1, POST_PROCESS_SHIFT = 48 };

inline_always uintptr_t remote_queued(const struct heap *heap)
{
    return (uintptr_t)heap | POST_QUEUED | (uintptr_t)heap_generation << POST_PROCESS_SHIFT;
}

/* (1) of remote.c: whether it was done; else what the link byte said instead of LIVE. */
inline_always bool remote_mark(struct span *slab, unsigned slot, uint8_t *link)
{
    *link = LINK_LIVE;
    return compare_swap_seq_cst(slab_link(slab, slot), link, (uint8_t)LINK_REMOTE);
}

/* Which slot a block has, read before the slab's owner: another free of the block may give the slab
 * back, and then the header says something else. Its links do not say LIVE then. */
struct remote_place {
    unsigned slot;
    uint64_t limit;
};
inline_always struct remote_place remote_place_of(const struct span *slab, const void *pointer)
{
    struct remote_place place = {(unsigned)slab_slot(slab, pointer), load_acquire(&slab->limit)};
    keep_in_register(place.slot);
    return place;
}

/* Whether remote_mark may be done at once, by the place and the owner that were read in this order.
 * Then remote_post has to follow, unless remote_is_posted; where it was not done remote_free, with
 * what the link byte said. That is not read first: where another processor has its line, this would
 * fetch it twice, to read it and then to write it. */
inline_always bool remote_needs_no_look(const struct remote_place *place, const struct heap *heap)
{
    return !config_hardened && likely(heap->generation == heap_generation) &&
           likely(place->slot < place->limit);
}

/* Whether the first half of (2) finds nothing to do. */
inline_always bool remote_is_posted(const struct heap *heap, const struct span *slab)
{
    test_delay();
    return load_seq_cst(&slab->post) == remote_queued(heap);
}

/* The rest, with what the link byte said, LIVE where nobody has looked. Dies unless `pointer` is a
 * block in use of `slab`, which is `heap`'s. Returns whether the slab was posted, and where. Any
 * thread, lock-free. */
unsigned remote_free(void *pointer, struct heap *heap, struct span *slab, uint8_t link);

/* The slab is the heap's, which hears of remote frees in it: at its making, and before they are
 * collected. The holder's. */
void remote_open(struct heap *heap, struct span *slab);

/* It is nobody's: false, and then it stays open, while it is in the mailbox or about to be. The
 * holder's. */
bool remote_close(struct heap *heap, struct span *slab);

/* Into the mailbox of its heap, unless it is there; then NOT_POSTED. Any thread, which then asks
 * heap_tend_after_post if it does not hold the heap: so after remote_free, and remote_return_mail.
 */
unsigned remote_post(struct heap *heap, struct span *slab);

/* Where the slabs of a class are posted. */
inline_always unsigned remote_mailbox(unsigned size_class) { return size_class % MAILBOXES; }

/* Whether the mailbox has something. Sequentially consistent: see heap_life.c. */
inline_always bool remote_has_mail(const struct heap *heap, unsigned mailbox)
{
    return load_seq_cst(&heap->mailboxes[mailbox]) != NULL;
}

/* All of a mailbox, linked by `mail_next`: the caller's, who drains it, or looks at it and gives
 * it back slab by slab; until then no slab of it is retired or collected. Any thread. */
struct span *remote_take_mail(struct heap *heap, unsigned mailbox);
void remote_return_mail(struct heap *heap, struct span *slab);

/* In the child of a fork: its posts are of the parent. */
void remote_lose_mail(struct heap *heap);

#endif
