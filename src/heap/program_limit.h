/* The limit of a first-class heap: whoever takes pages for it asks first. */
#ifndef CAIRN_HEAP_PROGRAM_LIMIT_H
#define CAIRN_HEAP_PROGRAM_LIMIT_H

#include "heap/program_state.h"

/* Adds to held_bytes what is going to be taken, if the limit allows it. Gives back what the heap
 * keeps without need, if it does not at first. No lock held. */
bool program_reserve(struct program_heap *program, size_t bytes);

/* Around a change of the block's length, of any large block: false when the limit does not allow so
 * many pages. What the first counts, the second corrects. */
bool program_begin_resize(struct span *span, size_t pages, size_t *counted_pages);
void program_end_resize(struct span *span, size_t counted_pages);

/* Gives back what it keeps without need. Any thread. */
void program_trim(struct program_heap *program);

#endif
