/* The parts that all headers of Cairn share: the version, and the attributes of their declarations.
 *
 * Programs need not include this header: every other header does.
 *
 * Conventions of all headers:
 *  - cairn_<noun>_new creates an object and cairn_<noun>_delete ends it at once. Delete returns 0,
 *    or EBUSY and changes nothing if something prevents the end (the header says what). Where
 *    blocks may outlive the use of their allocator (FIFO, ring), cairn_<noun>_close ends it with
 *    the last of them.
 *  - Every function that ends something (delete, close, free, put, release) ignores NULL and keeps
 *    errno.
 *  - Contents of new memory are undefined unless the name ends in _zero.
 *  - Arguments come in this order: the allocator, the block with its old size, count, size,
 *    alignment, flags. Functions that have the name of a libc function have its order.
 *  - Sizes are in bytes. Names of numbers end in their unit (_bytes, _ms) where it is not plain.
 *  - cairn_<noun>_read_stats fills a struct cairn_<noun>_stats.
 *  - Failure is NULL with errno ENOMEM or EINVAL, never an exception. Misuse ends the process with
 *    one line on stderr (docs/reference/MESSAGES.md).
 *  - Each header says which threads may call a function, and what a signal handler may call.
 *
 * Example:
 *
 *     #include <cairn/api.h>
 *     #include <stdio.h>
 *
 *     #if CAIRN_VERSION_NUMBER < 10000 // 1.0.0
 *     #error "this program needs Cairn 1.0"
 *     #endif
 *
 *     void print_version(void)
 *     {
 *         printf("built with %s, runs on %s\n", CAIRN_VERSION, cairn_version());
 *     }
 */
#ifndef CAIRN_API_H
#define CAIRN_API_H

#define CAIRN_VERSION_MAJOR 1
#define CAIRN_VERSION_MINOR 0
#define CAIRN_VERSION_PATCH 0

/* CAIRN_VERSION_NUMBER is one number that grows with the version, for use in #if: 10000 times major
 * plus 100 times minor plus patch. CAIRN_VERSION is the version as text. */
#define CAIRN_VERSION_NUMBER                                                                       \
    (CAIRN_VERSION_MAJOR * 10000 + CAIRN_VERSION_MINOR * 100 + CAIRN_VERSION_PATCH)
#define CAIRN_VERSION_TEXT(major, minor, patch) #major "." #minor "." #patch
#define CAIRN_VERSION_EXPAND(major, minor, patch) CAIRN_VERSION_TEXT(major, minor, patch)
#define CAIRN_VERSION                                                                              \
    CAIRN_VERSION_EXPAND(CAIRN_VERSION_MAJOR, CAIRN_VERSION_MINOR, CAIRN_VERSION_PATCH)

#ifdef __cplusplus
static_assert(sizeof(void *) == 8, "Cairn needs 64-bit addresses: this is a 32-bit build.");
#else
_Static_assert(sizeof(void *) == 8, "Cairn needs 64-bit addresses: this is a 32-bit build.");
#endif

#define CAIRN_API       __attribute__((visibility("default")))
#define CAIRN_NODISCARD __attribute__((warn_unused_result))

/* Follows the parameters of every function that calls no function of the program. */
#ifdef __cplusplus
#define CAIRN_NOEXCEPT noexcept
#else
#define CAIRN_NOEXCEPT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the version of the loaded library, in the form of CAIRN_VERSION.
 * Returns: a constant string.
 * Threads: any thread, and signal handlers. */
CAIRN_API const char *cairn_version(void) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
