/* Pages that leave their arena for good, for metadata when the system gives nothing more. */
#ifndef CAIRN_PAGE_STEAL_H
#define CAIRN_PAGE_STEAL_H

#include "base/compiler.h"

/* Between fences, zero. NULL when no arena has them, or while the page lock is frozen. No lock
 * held. */
char *fenced_steal(size_t size_bytes);

#endif
