/* Draining the mailboxes of a heap, and what a fork lost of them: see the protocol in remote.c. To
 * collect a slab may change its state (slab.h).
 * Locking: heap held, for all functions without another tag. */
#ifndef CAIRN_HEAP_MAILBOX_H
#define CAIRN_HEAP_MAILBOX_H

#include "heap/thread_heap.h"

/* The slabs, spans or heaps that one call looks at, where there is no other number. */
enum { DRAIN_SLABS = 64 };

/* Collects up to `slabs` slabs of all mailboxes; the others stay in theirs.
 * Returns: true if fewer were collected, so that no slab is left. */
bool heap_drain_some(struct heap *heap, size_t slabs);

inline_always void heap_drain(struct heap *heap) { (void)heap_drain_some(heap, SIZE_MAX); }

/* Empties the mailboxes of a private heap that ends. Their slabs are opened and not collected. */
void heap_forget_mail(struct heap *heap);

/* Empties the mailboxes in the child of a fork, since their posts are the parent's. The slabs that
 * they held have to be looked for, and so do slabs in which other threads of the parent freed
 * blocks without a post. */
void heap_lose_mail(struct heap *heap);

/* Looks at the next `spans` spans for slabs of the heap with blocks that other threads freed before
 * a fork, and posts them. Called before the heap takes a new slab, while look_after_fork is set. */
void heap_look_after_fork(struct heap *heap, size_t spans);

/* Moves remotely freed slots into the list of free slots, or in hardened builds into quarantine.
 * Returns: the number of slots; 0 in hardened builds, where the quarantine counts them. */
unsigned slab_collect(struct span *slab);

/* Moves a slab from the heap of an ended thread to the calling thread's, as heap_move_slab does,
 * and returns the first heap. Then collects the slab, which may be retired, and drains its mailbox.
 * Returns: false if the slab was not moved.
 * Locking: both heaps held; then only `to`. */
bool heap_take_over(struct heap *from, struct heap *to, struct span *slab);

/* Drains a mailbox and the one of its slabs that borrowers looked at, of at most `slabs` slabs.
 * Returns: the part of `slabs` that was not used. */
size_t mailbox_drain_pair(struct heap *heap, unsigned mailbox, size_t slabs);

#endif
