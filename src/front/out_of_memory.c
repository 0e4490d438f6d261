/* The functions of the program's for the whole process: see include/cairn/callbacks.h and
 * out_of_memory.h. */
#include "front/out_of_memory.h"

#include "base/atomic.h"
#include "base/check.h"
#include "cairn/callbacks.h"
#include "cairn/heaps.h"

static_check((int)OUT_OF_MEMORY_TRIES == CAIRN_HEAP_TRIES &&
                 (int)OUT_OF_MEMORY_TRIES == CAIRN_OUT_OF_MEMORY_TRIES,
             "as the headers say");

static thread_local_word bool asking; /* this thread is within such a function */

static struct memory_asker of_process; /* atomic: the context is written first */

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
    struct memory_asker asker = {.function = load_acquire(&of_process.function)}; /* pairs with
                                                                                     the release */
    asker.context = load_relaxed(&of_process.context);
    return memory_asked(&asker, size_bytes, tries);
}

api void cairn_set_out_of_memory(bool (*out_of_memory)(void *context, size_t size), void *context)
{
    store_relaxed(&of_process.context, context);
    store_release(&of_process.function, out_of_memory); /* pairs with the acquire above */
}

api void cairn_set_error_function(cairn_line_function *on_error, void *context)
{
    report_to(REPORT_ERROR, on_error, context);
}

api void cairn_set_log_function(cairn_line_function *on_log, void *context)
{
    report_to(REPORT_LOG, on_log, context);
}
