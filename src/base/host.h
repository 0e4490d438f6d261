/* What base/ needs of the system, as a contract that os/ fulfils: base/ itself makes no system
 * call. */
#ifndef CAIRN_BASE_HOST_H
#define CAIRN_BASE_HOST_H

#include "base/compiler.h"

void host_write_error(const char *text, size_t length_bytes); /* stderr, best effort, errno kept */
void host_wait(uint32_t *word, uint32_t seen);    /* returns when *word != seen, or at any time */
void host_wake(uint32_t *word, uint32_t waiters); /* wakes at most so many */
no_return void host_abort(void);

#endif
