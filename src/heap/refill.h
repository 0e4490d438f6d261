/* Refilling a heap: a size class whose current slab is exhausted gets another one. Also giving back
 * the memory that a heap keeps without need.
 *
 * The next slab is one of the class's list, one that the heap's mailboxes empty or refill, one kept
 * in the run cache, or a new one. Before another slab of blocks up to 4 KiB is made, blocks are
 * borrowed from other heaps (see below). Work that is due by age is done before pages are taken.
 *
 * Locking: heap held, for all functions.
 */
#ifndef CAIRN_HEAP_REFILL_H
#define CAIRN_HEAP_REFILL_H

#include "heap/thread_heap.h"

/* Takes a block of the class, whose current slab has none: a borrowed block, or a block of the next
 * slab.
 * Returns: NULL when out of memory, or when a private heap has no slab with room. */
void *heap_take_slow(struct heap *heap, unsigned size_class);

/* Takes a block of the class's current slab. The count of a medium slab stays exact while the slab
 * is current, so that an empty one is noticed.
 * Returns: NULL when the slab has none. */
inline_always void *heap_take_current(struct heap *heap, unsigned size_class)
{
    struct span *slab = heap->current[size_class];
    void *block = slab_pop(slab);
    if (likely(block != NULL) && !class_is_small(size_class))
        slab_hot(slab)->frees_to_attention++;
    return block;
}

/* Takes a block of the class that is not guarded.
 * Returns: NULL when out of memory, or when a private heap has no slab with room. */
inline_always void *heap_take(struct heap *heap, unsigned size_class)
{
    void *block = heap_take_current(heap, size_class);
    return likely(block != NULL) ? block : heap_take_slow(heap, size_class);
}

/* Makes the class's next slab current: one with a free block, or one that was never used.
 * Returns: NULL when out of memory, or when a private heap has no slab with room. */
struct span *heap_refill(struct heap *heap, unsigned size_class);

/* Gives back all memory that the heap keeps without need.
 * Cost: grows with the slabs in its mailboxes. */
void heap_trim(struct heap *heap);

/* Prepares the heap of a thread that ends: puts its current slabs aside, which retires the empty
 * ones, and gives back what the heap keeps for its next need. With `keeps_cheap`, small slabs that
 * hold little stay current, because the next thread is likely to need them.
 * Cost: constant. */
void heap_park(struct heap *heap, bool keeps_cheap);

/* Checks the heap, with assertions. Does nothing in builds without config_debug. */
void heap_verify(struct heap *heap);

/* Draining the mailboxes of a heap. A mailbox holds slabs in which other threads have freed blocks;
 * remote.c has the protocol by which they are posted.
 *
 * Draining takes all slabs of a mailbox, opens each one for further posts, and collects it: its
 * remotely freed slots enter the list of free slots. The count of free slots may then change the
 * slab's state (slab.h). */

/* Whether any mailbox holds a slab, as remote_has_mail says it of each.
 * Threads: any. */
bool heap_has_mail(const struct heap *heap);

/* Collects all slabs in the mailboxes. */
void heap_drain(struct heap *heap);

/* Collects up to 64 slabs of one mailbox, also those that sweeps looked at; the others stay. */
void heap_drain_mailbox(struct heap *heap, unsigned mailbox);

/* Collects up to 64 slabs of all mailboxes; the others stay in theirs.
 * Returns: true if fewer than 64 were collected, so that no slab is left. */
bool heap_drain_some(struct heap *heap);
/* Collects up to 4 slabs of all mailboxes. Usually takes less than a microsecond. */
void heap_drain_few(struct heap *heap);

/* Empties the mailboxes of a private heap that ends. The slabs in the mailboxes are opened but not
 * collected, since none of them is used any more. */
void heap_forget_mail(struct heap *heap);

/* Empties the mailboxes in the child of a fork, since their posts are the parent's. The slabs that
 * they held have to be looked for, and so do slabs in which other threads of the parent freed
 * blocks without a post. Nothing has to be looked for if the parent had no other thread and the
 * mailboxes are empty. */
void heap_lose_mail(struct heap *heap);

/* The spans that one refill looks at after a fork. */
enum { LOOK_SPANS = 64 };

/* Looks at the next `spans` spans for slabs of the heap with blocks that other threads freed before
 * a fork, and posts them. Called before the heap takes a new slab, while look_after_fork is set. */
void heap_look_after_fork(struct heap *heap, size_t spans);

/* Moves remotely freed slots into the list of free slots, or in hardened builds into quarantine.
 * Returns: the number of slots that entered the list; 0 in hardened builds, where the quarantine
 * counts them. */
unsigned slab_collect(struct span *slab);

/* Moves a slab from the heap of an ended thread to the calling thread's, as heap_move_slab does,
 * and returns the first heap. Then collects the slab, which may be retired, and drains its mailbox.
 * Returns: false if the slab was not moved.
 * Locking: both heaps held; then only `to`. */
bool heap_take_over(struct heap *from, struct heap *to, struct span *slab);

/* Borrowing: blocks that a thread takes from other threads' slabs.
 *
 * A remote free marks its block and leaves it to the owner, which collects it when it allocates
 * next. Where threads take turns, as under the lock of an interpreter, owners wait: each thread
 * would make slabs for its turn while the blocks that it frees wait for other threads. The memory
 * of the process would be its live memory times the number of its threads. So if threads take
 * turns, a thread that would make another slab of a small class first looks into the mailboxes that
 * other heaps have for that class. Threads that run at the same time rarely do so
 * (refill_is_in_turn), and a thread that has run alone for a second makes slabs of its own first
 * (refill_is_alone). From a slab found there it takes the slots that say REMOTE. These slots say
 * BORROWED from then on, and the thread hands them out before it takes a slab. The slab stays its
 * owner's, and a borrowed block is freed like every other block of that slab.
 *
 * No other thread hands out or collects such a slot. The slab was taken out of the mailbox, so no
 * other thread drains it until it is returned. The owner of the mailbox may still be draining it
 * since an earlier time; an odd `drains` shows that, and then nothing is borrowed (lifecycle.c has
 * the argument). A slot that says BORROWED is in no list, and only the borrower changes its link
 * byte.
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
 * Nothing is borrowed in hardened builds, for private heaps, or while blocks are guarded, profiled
 * or traced. The heap is the calling thread's. */

/* Takes a borrowed block of the class from the heap's supply.
 * Returns: NULL if the supply is empty. */
void *borrow_take(struct heap *heap, unsigned size_class);

/* Borrows blocks of a small class. Where it comes to the heap of a thread that has ended, it moves
 * a slab with free slots to the calling thread's heap instead.
 * Returns: true if the supply has a block now.
 * Cost: at most 64 looks at heaps, at up to eight slabs each; each slab, and each heap without such
 * slabs, is looked at once. At most 64 slabs of ended threads are drained, of all heaps. */
bool borrow_fill(struct heap *heap, unsigned size_class);

/* Gives all borrowed blocks back to the heaps that own their slabs. */
void borrow_return(struct heap *heap);

#endif
