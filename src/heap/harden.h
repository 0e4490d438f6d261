/* Hardening of slab blocks: canaries, zeroed and checked memory, random order, quarantine.
 *
 * Behind the bytes that were asked for stands a canary, and the block's last word is one too, with
 * the number of bytes between (the slack) in its upper 16 bits:
 *
 *   | asked for ......... | canary | not looked at | canary ^ slack << 48 |
 *                          `------------ slack -----´
 *
 * Where the slack is below 8 bytes, the last word covers the rest of the first canary. So whatever
 * runs over by one byte damages a canary, and the exact size is known when the block is freed,
 * resized or asked for its size. A canary is its address times one secret number, xor another,
 * forced odd, so that a string's terminator damages it too.
 *
 * A block that is freed is zeroed, canaries included, and marked in its link byte. It waits in the
 * heap's quarantine until another freed block takes its place, chosen at random; only then it
 * enters its slab's list, in front or behind the first by a random bit. When it is handed out it
 * must still be zero. So in full builds every free block of a slab is zero, and so is a fresh slab.
 *
 * Threading: as in slab.h. Whoever frees a block checks it, then marks it as freed, then zeroes it:
 * else a second free at the same instant would take zeroes for an overflow, and it would zero what
 * was handed out again meanwhile. The quarantine is the holder's.
 */
#ifndef CAIRN_HEAP_HARDEN_H
#define CAIRN_HEAP_HARDEN_H

#include "heap/thread_heap.h"

/* Dies unless the program's block is as it was handed out. Whoever frees it calls this first. */
void harden_check(struct span *slab, unsigned slot);
/* Zeroes a block that is freed. Without the check where another thread may have stopped in the
 * middle of the block's life: see fork. */
void harden_wipe(struct span *slab, unsigned slot);

/* A free block becomes the program's: dies when it was written since. Not NULL. */
void *harden_hand_out(void *block, size_t size_bytes);

/* What the program asked for; dies when the canaries are damaged. */
size_t harden_size(struct span *slab, const void *block);
/* The block is resized in place. */
void harden_set_size(struct span *slab, void *block, size_t size_bytes);

/* Links all slots of a new slab in random order, the pages and those of each. The holder's. */
void harden_shuffle(struct heap *heap, struct span *slab);

void harden_seed(struct heap *heap);

#endif
