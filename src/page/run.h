/* Runs of pages for the allocators beside the heap, marked SPAN_RUN, so that the heap's free takes
 * none of them for a block. Threading: any thread.
 */
#ifndef CAIRN_PAGE_RUN_H
#define CAIRN_PAGE_RUN_H

#include "page/span.h"

/* Readable and writable, contents undefined; whole pages of the system's. NULL when memory is out.
 */
struct span *run_take(size_t size_bytes, size_t alignment_bytes);

/* Also makes it accessible again to a memory checker that was told otherwise. */
void run_give(struct span *span);

inline_always size_t run_bytes(const struct span *span)
{
    return (size_t)span->pages << PAGE_SHIFT;
}

#endif
