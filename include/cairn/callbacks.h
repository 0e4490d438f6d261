/* What Cairn asks of the program, and tells it: functions of the program's, for the whole process.
 *
 *     static bool drop_caches(void *cache, size_t size) { return cache_shrink(cache, size) > 0; }
 *     …
 *     cairn_set_out_of_memory(drop_caches, &cache);
 *
 * Set them early, before there are threads: one that is set while others allocate or are reported
 * may be called with the context of the one before. NULL as function: none, as at the start. A
 * child of fork has them too.
 *
 * Cost: none until one is called.
 */
#ifndef CAIRN_CALLBACKS_H
#define CAIRN_CALLBACKS_H

#include <stdbool.h>
#include <stddef.h>

#include <cairn/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From now on the function is called when a function of cairn/heap.h, or libc's of that name, has
 * no memory for a block of `size` bytes: true to try again, after it freed some. It is called
 * without a lock, in the thread that asks, and may call everything; it must return (no longjmp, no
 * exception), and not free a block that is being reallocated. A request asks at most
 * CAIRN_OUT_OF_MEMORY_TRIES times; one that the function itself makes does not ask, nor does one
 * that no heap could hold. Not asked: operator new, which has std::set_new_handler, and the
 * allocators beside the heap; first-class heaps have a function of their own (cairn/heaps.h). */
CAIRN_API void cairn_set_out_of_memory(bool (*out_of_memory)(void *context, size_t size),
                                       void *context) CAIRN_NOEXCEPT;
enum { CAIRN_OUT_OF_MEMORY_TRIES = 16 };

/* A line as Cairn writes it, "cairn: …", ended by 0 and without a line end; valid during the call.
 */
typedef void cairn_line_function(void *context, const char *line, size_t length);

/* From now on `on_error` is called with each line that reports a fault of the program
 * (docs/MESSAGES.md), after it was written to stderr or `report_file`: then the process ends, or
 * after a wrong free it goes on, if on_error says so (docs/OPTIONS.md). For a crash reporter or a
 * log: the last word of the process.
 *
 * It is called in the midst of whatever found the fault: in any thread, also in a signal handler,
 * also while Cairn holds a lock. So it does only what a signal handler may, calls no function of
 * Cairn's, and must return. A fault within it is not told to it. */
CAIRN_API void cairn_set_error_function(cairn_line_function *on_error,
                                        void *context) CAIRN_NOEXCEPT;

/* From now on `on_log` gets all other lines (options that are not understood, those of `verbose`,
 * cairn_malloc_stats), in place of stderr and `report_file`. The same holds for it. */
CAIRN_API void cairn_set_log_function(cairn_line_function *on_log, void *context) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
