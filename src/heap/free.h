/* The slow half of free, for the fast paths. */
#ifndef CAIRN_HEAP_FREE_H
#define CAIRN_HEAP_FREE_H

#include "page/page.h"

void free_slow(void *pointer,
               struct span *span);   /* another thread's block, a large one, or none of ours */
void free_foreign(void *pointer);    /* misuse: no address of ours, dies */
void free_attend(struct span *slab); /* the slab's count of frees ran out */
void free_reject(uint32_t slot,
                 struct span *slab); /* misuse: dies; `slot` as slab_slot computed it */

#endif
