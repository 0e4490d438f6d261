/* Borrowing: blocks that a thread takes from other threads' slabs.
 *
 * Where threads take turns, owners wait before they collect, and each thread would make slabs for
 * its turn (decision 38). So a thread that would make another slab first looks into the mailboxes
 * that other heaps have for the class. From a slab found there it takes the slots that say REMOTE.
 * These slots say BORROWED from then on, and the thread hands them out before it takes a slab. The
 * slab stays its owner's, and a borrowed block is freed like every other block of that slab.
 *
 * No other thread hands out or collects such a slot. The slab was taken out of the mailbox, so no
 * other thread drains it until it is returned, and it is QUEUED, so no other thread pushes it again
 * or retires it (remote.c). The owner may still be collecting it since an earlier drain, in which
 * it opened the slab, or since it reclaimed the slab, and the slab was posted again at once. Then
 * `drains` is odd, and nothing is borrowed: the odd value was written before the slab was opened or
 * moved, so the borrower reads that value, or the one that was written when all was collected. A
 * slot that says BORROWED is in no list, and only the borrower changes its link byte.
 *
 * The pages of a borrowed block are not purged. Sweeps count a slot that says BORROWED as in use. A
 * slab that is aside says PURGED while its link bytes change, so no other thread sweeps it. A
 * current slab says CURRENT before and after they change; otherwise the slots say REMOTE again. A
 * sweep that begins later finds the slots borrowed, because changes to and from PURGED, and the
 * accesses to the link bytes and to the use word here, are sequentially consistent. A sweep that
 * has ended took the content of free blocks only.
 *
 * A second free of a borrowed block is reported until the block is handed out again. The owner and
 * another thread may free one block at the same instant. If that thread's mark falls between the
 * owner's test of the link byte and its store, the block may be borrowed and handed out twice.
 *
 * Nothing is borrowed in hardened builds, for private heaps, or while a hook is on.
 *
 * The supply. The blocks of one class are used by the thread that has their lock; no thread waits
 * for it. The owner hands out blocks and borrows; any other thread gives all of them back, when the
 * owner has borrowed nothing for one to two decay intervals, or in a trim.
 *
 * Fork. The child gives its supply back before it uses it. Blocks of its own slabs that other
 * threads had borrowed are found when it looks for lost posts (heap_look_after_fork); its heap
 * lends nothing before that is complete.
 * Locking: heap held, for all functions without another tag. */
#ifndef CAIRN_HEAP_BORROW_H
#define CAIRN_HEAP_BORROW_H

#include "heap/thread_heap.h"

/* Whether the heap should borrow before it makes a slab of the class: see borrow.c. */
bool borrow_is_due(struct heap *heap, unsigned size_class);

/* Takes a borrowed block of the class from the heap's supply.
 * Returns: NULL if the supply is empty. */
void *borrow_take(struct heap *heap, unsigned size_class);

/* Borrows blocks of the class. Where it comes to the heap of a thread that has ended, it moves
 * a slab with free slots to the calling thread's heap instead.
 * Returns: true if the supply has a block now.
 * Cost: at most 64 looks at heaps, at up to eight slabs each. At most 64 slabs of ended threads are
 * drained, of all heaps. */
bool borrow_fill(struct heap *heap, unsigned size_class);

/* Gives all borrowed blocks back to the heaps that own their slabs. Threads: any. */
void borrow_return(struct heap *heap);

/* Does that if the heap has borrowed nothing since the call before the last one.
 * Threads: one at a time. */
void borrow_age(struct heap *heap);

#endif
