/* The mailboxes of a heap: slabs in which other threads have freed (remote.c says how they come
 * into them). All of it is the holder's. */
#ifndef CAIRN_HEAP_MAILBOX_H
#define CAIRN_HEAP_MAILBOX_H

#include "heap/thread_heap.h"

/* Collects from all slabs in the mailboxes, or in one. */
void heap_drain(struct heap *heap);
void heap_drain_mailbox(struct heap *heap, unsigned mailbox);

/* Empties the mailboxes without looking at the slabs, none of which is used on. */
void heap_forget_mail(struct heap *heap);

/* In the child of a fork, once, before its heap takes a new slab: what other threads of the parent
 * freed of its blocks is put into the mailboxes. */
void heap_look_after_fork(struct heap *heap);

/* Moves remotely freed slots into the list, or in hardened builds into quarantine. Returns how many
 * are in the list. */
unsigned slab_collect(struct span *slab);

#endif
