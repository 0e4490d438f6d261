/* The program's functions for the whole process, of include/cairn/callbacks.h, and their calls: see
 * out_of_memory.h. */
#include "front/out_of_memory.h"

#include "base/callback.h"
#include "base/check.h"
#include "base/host.h"
#include "cairn/callbacks.h"
#include "cairn/private_heap.h"

#include <errno.h>

static_check((int)OUT_OF_MEMORY_TRIES == CAIRN_PRIVATE_HEAP_TRIES &&
                 (int)OUT_OF_MEMORY_TRIES == CAIRN_OUT_OF_MEMORY_TRIES,
             "as the headers say");

static thread_local_word bool asking; /* owner thread: it is within such a function */

static struct callback of_process; /* its function is that of a memory_asker */

/* Sets errno to ENOMEM for TLSF, which does not use errno itself: see base/host.h. */
cold void host_note_no_memory(void) { errno = ENOMEM; }

/* Sets errno to EINVAL for TLSF, which does not use errno itself: see base/host.h. */
cold void host_note_invalid(void) { errno = EINVAL; }

bool memory_asked(const struct memory_asker *asker, size_t size_bytes, int *tries)
{
    if (asker->function == NULL || asking || size_bytes > PTRDIFF_MAX ||
        (*tries)++ == OUT_OF_MEMORY_TRIES)
        return false;
    asking = true;
    bool again = asker->function(asker->context, size_bytes);
    asking = false;
    return again;
}

bool memory_asked_of_process(size_t size_bytes, int *tries)
{
    struct callback_pair pair = callback_read(&of_process);
    const struct memory_asker asker = {(bool (*)(void *, size_t))pair.function, pair.context};
    return memory_asked(&asker, size_bytes, tries);
}

api void cairn_set_out_of_memory(bool (*out_of_memory)(void *context, size_t size), void *context)
{
    callback_set(&of_process, (callback_function *)out_of_memory, context);
}

api void cairn_set_error_function(cairn_line_function *on_error, void *context)
{
    report_to(REPORT_ERROR, on_error, context);
}

api void cairn_set_log_function(cairn_line_function *on_log, void *context)
{
    report_to(REPORT_LOG, on_log, context);
}
