/* Frees of blocks that belong to another thread's heap. */
#ifndef CAIRN_HEAP_REMOTE_H
#define CAIRN_HEAP_REMOTE_H

#include "heap/thread_heap.h"

/* Into which mailbox of its heap a slab was posted, or that it was not. */
enum { NOT_POSTED = MAILBOXES };

/* Dies unless `pointer` is a block in use of `slab`, which is `heap`'s. Returns whether the slab
 * was posted, and where. Any thread, lock-free. */
unsigned remote_free(void *pointer, struct heap *heap, struct span *slab);

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
