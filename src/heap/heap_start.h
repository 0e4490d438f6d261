/* The start of the heap layer and of those below. */
#ifndef CAIRN_HEAP_HEAP_START_H
#define CAIRN_HEAP_HEAP_START_H

/* Before the first block; idempotent, any thread. */
void heap_start(void);

#endif
