/* Guard pages between the parts of the address space, and where those parts lie.
 *
 * A fence is a page without permissions. In every build one stands before and behind each arena,
 * each range of metadata and each leaf of the page map, so that a linear overflow of a block,
 * whatever its length, ends before it reaches any of them. Reserved with what they enclose, they
 * cost no system call; where that is without permissions, too, not even a mapping of the kernel's.
 * Where the kernel refuses to protect pages, there are no fences. In hardened builds they stand
 * within arenas, too: see grow.c.
 *
 * Threading: any thread, no lock held.
 */
#ifndef CAIRN_PAGE_FENCE_H
#define CAIRN_PAGE_FENCE_H

#include "base/compiler.h"

/* Addresses without permissions; NULL when there are none. `anywhere`: at a random place, in
 * hardened builds. */
char *fenced_reserve(size_t size_bytes, bool anywhere);

/* Readable and writable, zero. NULL when memory is out. */
char *fenced_map(size_t size_bytes);

/* What either has given. */
void fenced_unmap(char *start, size_t size_bytes);

/* Pages of one fence within an arena, 0 in builds without. */
size_t fence_pages(void);

#endif
