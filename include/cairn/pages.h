/* Pages: runs of whole pages, with a cache of free ones in front of the system.
 *
 * For buffers, page caches and other allocators: what mmap and munmap do, without a system call
 * while the cache lasts, and with knowledge of which memory reads zero already.
 *
 *     char *buffer = cairn_pages_map(65536, 4096, CAIRN_PAGES_ZERO);
 *     …
 *     cairn_pages_unmap(buffer, 65536);
 *
 * Algorithm: two-level bins of free runs with boundary tags (TLSF: Masmano, Ripoll, Crespo and
 * Real, ECRTS 2004), the same page layer that the general heap stands on; single pages in a few
 * shared places in front of it, taken and put by an atomic exchange. Runs from 32 MiB are mappings
 * of their own.
 *
 * Sizes are in bytes, rounded up to whole pages of the system; a page is at least 4096 bytes. Freed
 * memory goes back to the system by the rules of the heap: above a cap, and after a while
 * (docs/OPTIONS.md).
 *
 * Threads: any, at any time. A signal handler may call none of this. Fork: the child has all runs
 * of the parent.
 *
 * Failure: NULL with errno ENOMEM, and everything stays as it was. Misuse, such as an unmap of what
 * is not mapped, dies with one line (docs/MESSAGES-frame.md). Cost: a cached page some tens of
 * nanoseconds, other runs about twice that.
 */
#ifndef CAIRN_PAGES_H
#define CAIRN_PAGES_H

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CAIRN_PAGES_ZERO = 1 << 0,     /* all bytes read zero; costs nothing where they do anyway */
    CAIRN_PAGES_HUGE = 1 << 1,     /* to be backed by huge pages, where the system can */
    CAIRN_PAGES_POPULATE = 1 << 2, /* with memory now, not at the first touch */
};

/* A run of at least `size` bytes at a multiple of `align`, a power of two; below a page counts as a
 * page. Readable and writable. EINVAL for an alignment that is no power of two. */
CAIRN_API CAIRN_NODISCARD void *cairn_pages_map(size_t size, size_t align,
                                                unsigned flags) CAIRN_NOEXCEPT;

/* Ends the pages that hold the range, which may be any part of one run, or of several that lie side
 * by side. 0; or ENOMEM when a run had to be cut and there was no memory to note that: then the
 * rest of the range is still mapped. NULL gives 0. */
CAIRN_API int cairn_pages_unmap(void *pointer, size_t size) CAIRN_NOEXCEPT;

/* The range at a new size and a multiple of `align`, with its contents, moved where it has to be;
 * `flags` are for what is new, all of it when it moved by copying. NULL as `pointer` maps. */
CAIRN_API CAIRN_NODISCARD void *cairn_pages_remap(void *pointer, size_t old_size, size_t new_size,
                                                  size_t align, unsigned flags) CAIRN_NOEXCEPT;

/* Gives free pages back to the system, but for `keep_bytes`; whether some went. */
CAIRN_API bool cairn_pages_purge(size_t keep_bytes) CAIRN_NOEXCEPT;

CAIRN_API CAIRN_NODISCARD cairn_allocator cairn_pages_allocator(void) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
