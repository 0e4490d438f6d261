/* What TLSF's core asks of its host, where that has a libc: see tlsf_host.h. No state but errno. */
#include "region/tlsf_host.h"

#include "base/compiler.h"

#include <errno.h>

cold void tlsf_note_no_memory(void) { errno = ENOMEM; }
cold void tlsf_note_invalid(void) { errno = EINVAL; }
