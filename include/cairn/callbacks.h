/* Functions of the program that Cairn calls: when memory is out, and for each line that it writes.
 *
 * Use callbacks to drop caches before an allocation fails, to pass Cairn's messages to a log, and
 * to record the last message before the process ends. Each is set for the whole process.
 *
 * Do not use cairn_set_out_of_memory to make room in a private heap that has reached its limit: the
 * options of cairn_private_heap_new (cairn/private_heap.h) have a function for that.
 *
 * Example:
 *
 *     #include <cairn/callbacks.h>
 *     #include <stdlib.h>
 *
 *     struct cache {
 *         void *pages[64];
 *         size_t count;
 *     };
 *
 *     static bool drop_a_page(void *context, size_t size)
 *     {
 *         struct cache *cache = context;
 *         (void)size;
 *         if (cache->count == 0)
 *             return false;                 // the allocation fails
 *         free(cache->pages[--cache->count]);
 *         return true;                      // try again
 *     }
 *
 *     void start(struct cache *cache)
 *     {
 *         cairn_set_out_of_memory(drop_a_page, cache);
 *     }
 *
 * Threads: set the functions before the program starts threads. If one is replaced while other
 * threads allocate, the new function may be called with the old context or the reverse. A child of
 * fork keeps the functions.
 *
 * Failure: none. To remove a function, set NULL.
 *
 * Cost: none until a function is called.
 */
#ifndef CAIRN_CALLBACKS_H
#define CAIRN_CALLBACKS_H

#include <stdbool.h>
#include <stddef.h>

#include <cairn/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the function that is called with `context` when a function of cairn/heap.h, or the libc
 * function of that name in libcairn-malloc, has no memory for a block of `size` bytes. The function
 * returns true to try again after it has freed memory, false to let the request fail.
 *  - The function runs in the requesting thread, without a lock, and may call any function.
 *  - The function must return, without longjmp or an exception, and must not free a block that is
 *    being reallocated.
 *  - One request calls the function at most CAIRN_OUT_OF_MEMORY_TRIES times. Requests that the
 *    function makes itself and requests of more than PTRDIFF_MAX bytes do not call it.
 *  - operator new does not call the function: C++ has std::set_new_handler. The allocators of the
 *    other headers have functions of their own. */
CAIRN_API void cairn_set_out_of_memory(bool (*out_of_memory)(void *context, size_t size),
                                       void *context) CAIRN_NOEXCEPT;
enum { CAIRN_OUT_OF_MEMORY_TRIES = 16 };

/* A function that receives one line as Cairn writes it: "cairn: …", `length` bytes and a
 * terminating zero, without a newline. The line is valid during the call only. */
typedef void cairn_line_function(void *context, const char *line, size_t length);

/* Sets the function that receives each line that reports misuse (docs/reference/MESSAGES.md), after
 * the line was written to stderr or `report_file`. After the call the process ends, or continues
 * with the option on_error:report (docs/reference/OPTIONS.md). Use the function for crash reports.
 *  - It is called in the thread that found the misuse: possibly in a signal handler, possibly
 *    with a lock of Cairn held. So it may only do what a signal handler may, must not call Cairn,
 *    and must return.
 *  - Misuse that happens within the function is not passed to it. */
CAIRN_API void cairn_set_error_function(cairn_line_function *on_error,
                                        void *context) CAIRN_NOEXCEPT;

/* Sets the function that receives all other lines in place of stderr and `report_file`: options
 * that are not understood, the lines of the option `verbose`, and those of cairn_malloc_stats.
 *  - It is called in any thread, possibly with a lock of Cairn held. So it may only do what a
 * signal handler may, must not call Cairn, and must return. */
CAIRN_API void cairn_set_log_function(cairn_line_function *on_log, void *context) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
