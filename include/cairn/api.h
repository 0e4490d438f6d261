/* What all of Cairn's headers share: the version, and the attributes of their declarations.
 *
 * One convention holds in all of them:
 *  - cairn_<noun>_new makes, cairn_<noun>_delete ends at once: 0, or EBUSY when something that it
 *    cannot end is still out (the header says what), and then nothing happened. Where objects may
 *    outlive their allocator's use (FIFO, ring), cairn_<noun>_close ends it with the last of them.
 *  - Every end (delete, close, free, put, release) ignores NULL and keeps errno.
 *  - Contents are undefined unless the name ends in _zero.
 *  - Arguments: the allocator, the block with its old size, count, size, alignment, flags. Only
 *    functions with a name of libc's have libc's order.
 *  - Sizes are bytes; names of numbers end in their unit (_bytes, _ms) where it is not plain.
 *  - Statistics are cairn_<noun>_stats, filled by cairn_<noun>_read_stats.
 *  - Failure is NULL with errno ENOMEM or EINVAL, never an exception; misuse dies with one line.
 *  - Each header says which thread may call what, and what a signal handler may.
 */
#ifndef CAIRN_API_H
#define CAIRN_API_H

#define CAIRN_VERSION_MAJOR 0
#define CAIRN_VERSION_MINOR 2
#define CAIRN_VERSION_PATCH 0

/* One number that grows with the version, for #if; and the version as text. */
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

/* After the parameters of every function that calls nothing of the program's. */
#ifdef __cplusplus
#define CAIRN_NOEXCEPT noexcept
#else
#define CAIRN_NOEXCEPT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is loaded, as CAIRN_VERSION. Any thread, signal handlers too. */
CAIRN_API const char *cairn_version(void) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
