/* Growth of the arenas: more pages for the bins. */
#ifndef CAIRN_PAGE_GROW_H
#define CAIRN_PAGE_GROW_H

#include "base/compiler.h"

/* Commits more of an arena, at least `pages` of it undivided; no lock held. False when memory is
 * out. */
bool pages_grow(size_t pages);

#endif
