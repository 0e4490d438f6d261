/* Frees of blocks whose slab another thread's heap owns. remote.c has the protocol and the
 * arguments that it loses no free and no slab.
 * Threads: any, lock-free, unless a tag says otherwise; but only the owner calls remote_open,
 * remote_reopen and remote_move. */
#ifndef CAIRN_HEAP_REMOTE_H
#define CAIRN_HEAP_REMOTE_H

#include "base/alone.h"
#include "base/test_delay.h"
#include "heap/thread_heap.h"

/* The bit of `mail_state` that says QUEUED, and the place of the number of the process that set it.
 * A process whose number differs by a multiple of 2^16 takes an old post for a new one. The frees
 * of that slab then wait until its heap needs a slab. */
enum { MAIL_QUEUED = 1, MAIL_PROCESS_SHIFT = 48 };

/* The value of `mail_state` of a slab that is QUEUED for the heap in this process. */
inline_always uintptr_t remote_queued(const struct heap *heap)
{
    return (uintptr_t)heap | MAIL_QUEUED | (uintptr_t)heap_generation << MAIL_PROCESS_SHIFT;
}

/* Step (1) of remote.c: marks a block as freed by another thread.
 * Returns: false if the link byte does not say LIVE; then only `*link` changes, to its value. */
inline_always bool remote_mark(struct span *slab, unsigned slot, uint8_t *link)
{
    *link = LINK_LIVE;
    return compare_swap_seq_cst(slab_link(slab, slot), link, (uint8_t)LINK_REMOTE);
}

/* The slot of a block, and `fresh_slot` of its slab. Both are read before the slab's owner: another
 * free of the block may give the slab back, and then the header has other values. The links of the
 * slab do not say LIVE then. */
struct remote_place {
    unsigned slot;
    uint64_t limit;
};
inline_always struct remote_place remote_place_of(const struct span *slab, const void *pointer)
{
    struct remote_place place = {(unsigned)slab_slot(slab, pointer),
                                 load_acquire(&slab->fresh_slot)};
    keep_in_register(place.slot);
    return place;
}

/* Whether remote_mark may be the first access to the link byte, by the place and the owner's heap
 * that were read in this order. If remote_mark succeeds, remote_post or heap_reclaim must follow,
 * unless remote_is_posted. If it fails, remote_free must follow, with the value of the link byte.
 * The byte is not read first: if another processor has its cache line, the line would be fetched
 * twice, to be read and to be written. */
inline_always bool remote_needs_no_look(const struct remote_place *place, const struct heap *heap)
{
    return !config_hardened && likely(heap->generation == heap_generation) &&
           likely(place->slot < place->limit);
}

/* Whether step (2) of remote.c has nothing to do, because the slab is QUEUED for the heap. */
inline_always bool remote_is_posted(const struct heap *heap, const struct span *slab)
{
    test_delay();
    return load_seq_cst(&slab->mail_state) == remote_queued(heap);
}

/* Frees a block of a slab that was `heap`'s when the caller read its owner. `link` is the value of
 * the link byte, LIVE if the caller did not read it. Dies unless `pointer` is a block in use.
 * Returns: true if the block was marked; then remote_post or heap_reclaim must follow. */
bool remote_free(void *pointer, struct heap *heap, struct span *slab, uint8_t link);

/* Sets `mail_state` of a slab without a block in use to the heap. A store is enough, because there
 * is no free that it could hide. Release: pairs with remote_post. */
inline_always void remote_open(struct heap *heap, struct span *slab)
{
    store_release(&slab->mail_state, (uintptr_t)heap);
}

/* Sets `mail_state` to the heap, before the remote frees of the slab are collected: (b). */
inline_always void remote_reopen(struct heap *heap, struct span *slab)
{
    store_if_threaded(&slab->mail_state, (uintptr_t)heap);
}

/* Changes the heap that `mail_state` names: from now on, remote frees post the slab to `to`. With
 * NULL they post it nowhere, and the slab is retired next.
 * Returns: false if the slab is in a mailbox or about to be; then nothing has changed.
 * Locking: both heaps held. */
bool remote_move(struct heap *from, struct heap *to, struct span *slab);

/* Pushes the slab to a mailbox of its heap, which was `heap` when the caller read its owner.
 * Returns: false if the slab is in the mailbox already, or no heap has it any more. */
bool remote_post(struct heap *heap, struct span *slab);

inline_always unsigned remote_mailbox(unsigned size_class) { return size_class % MAILBOXES; }

/* Takes all slabs of a mailbox, linked by `mail_next`, or NULL. No other thread retires or collects
 * them until the caller has reopened them (remote_reopen) or returned them. */
struct span *remote_take_mail(struct heap *heap, unsigned mailbox);

/* Returns taken slabs to a mailbox. Afterwards another thread may collect and retire them. */
void remote_return_mail(struct heap *heap, unsigned mailbox, struct span *first);

/* Does that with one taken slab, or with a slab that was just QUEUED. */
void remote_push_mail(struct heap *heap, unsigned mailbox, struct span *slab);

#endif
