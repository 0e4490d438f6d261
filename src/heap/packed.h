/* Packed slabs: blocks of 8 bytes side by side, for a heap that holds many.
 *
 * A request of at most 8 bytes is usually a block of the smallest class: 16 bytes, a link byte and
 * its share of a header. A list of a million 8-byte nodes would take twice its memory. So once a
 * heap has 4 MiB of the smallest class, such requests are served from slabs that keep one bit a
 * block, in the header's cold area: set while the block is free. 1.8 % beside the payload.
 *
 * Words of 64 bits are taken into use one after another; `limit` counts them, and those behind are
 * not looked at. The word that the holder of the heap allocates from is claimed: its bits are moved
 * to the header, where he takes and sets them without atomic operations. So a block is free when
 * its bit is set in its word, or in `claimed` if `claimed_at` is its word's first block. Other bits
 * are set by any thread, and nobody clears them but who claims. A summary, in place of the remote
 * words, has a bit for each word that may have free blocks. See packed.c for the argument.
 *
 * The slab is current, or in the heap's list (it has free blocks), or waits (it had none) until
 * several words have some. Fields of the header, beside those that all slabs have: these;
 * `size_bytes`; `capacity` 1; `until`, while it waits: words in which the holder has yet to free
 * until it looks; the owner word with OWNER_PACKED, so that no fast path takes its blocks.
 */
#ifndef CAIRN_HEAP_PACKED_H
#define CAIRN_HEAP_PACKED_H

#include "heap/packed_words.h"
#include "heap/thread_heap.h"

/* Dies unless `pointer` is a block in use of `slab`, which is `heap`'s. Returns whether the slab
 * was posted, and where, as remote_free. Any thread, lock-free. */
unsigned packed_free(void *pointer, struct heap *heap, struct span *slab);

/* A slab of the mailbox: blocks of it were freed. The holder's. */
void packed_attend(struct heap *heap, struct span *slab);

/* Gives back what is empty. The holder's. */
void packed_trim(struct heap *heap);

/* In the child of a fork: a slab of the thread's own heap, which other threads may have been
 * freeing to. Into the mailbox. */
void packed_after_fork(struct heap *heap, struct span *slab);

void packed_verify(struct heap *heap);

#endif
