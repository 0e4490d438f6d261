/* Pages: runs of whole pages, with a cache of free ones between the program and the system.
 *
 * Use page runs for buffers, page caches and allocators of the program's own: they do the work of
 * mmap and munmap, without a system call as long as the cache has pages, and know which memory
 * already reads zero. For blocks below a page, use cairn_malloc (cairn/heap.h); to map a file, use
 * mmap.
 *
 * Example:
 *
 *     #include <cairn/pages.h>
 *
 *     int with_buffer(void (*work)(char *buffer, size_t size))
 *     {
 *         enum { SIZE = 1 << 16 };
 *         char *buffer = cairn_pages_map(SIZE, 4096, CAIRN_PAGES_ZERO);
 *         if (buffer == NULL)
 *             return -1;
 *         work(buffer, SIZE);
 *         return cairn_pages_unmap(buffer, SIZE);
 *     }
 *
 * Sizes are in bytes, rounded up to whole pages of the system; a page has at least 4096 bytes.
 *
 * Memory: free pages return to the system by the rules of the heap: above a cap, and after some
 * time (docs/reference/OPTIONS.md). Runs of 32 MiB or more are mappings of their own.
 *
 * Algorithm: two-level bins of free runs with boundary tags (TLSF: Masmano, Ripoll, Crespo and
 * Real, ECRTS 2004), in the page layer that the heap uses, too. A few single pages are kept in
 * front of it, taken and returned by an atomic exchange.
 *
 * Threads: any thread may call any function at any time, but two threads must not unmap or remap
 * parts of one run at the same time. A child of fork has all runs.
 *
 * Failure: functions that map return NULL with errno ENOMEM and change nothing.
 *
 * Cost: some tens of nanoseconds for a cached page, about twice that for other runs.
 *
 * Caveats:
 *  - No signal handler may call a function of this header.
 *  - Misuse, such as unmapping a range that is not mapped, ends the process with one line
 *    (docs/reference/MESSAGES.md).
 *  - A block of cairn_pages_allocator takes at least one whole page.
 */
#ifndef CAIRN_PAGES_H
#define CAIRN_PAGES_H

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of cairn_pages_map and cairn_pages_remap. */
enum {
    CAIRN_PAGES_ZERO = 1 << 0,     /* all bytes read zero; free of cost where they already do */
    CAIRN_PAGES_HUGE = 1 << 1,     /* request huge pages from the system */
    CAIRN_PAGES_POPULATE = 1 << 2, /* back the pages with memory now, not at the first access */
};

/* Maps a readable and writable run of at least `size` bytes at a multiple of `align` bytes, a power
 * of two; alignments below a page count as a page.
 * Returns: the run; NULL with errno ENOMEM; NULL with EINVAL for a wrong alignment or an unknown
 * flag. */
CAIRN_API CAIRN_NODISCARD void *cairn_pages_map(size_t size, size_t align,
                                                unsigned flags) CAIRN_NOEXCEPT;

/* Unmaps the pages of a range of `size` bytes. The range may be part of a run or span adjacent
 * runs. It begins at the start of a page and ends at the end of a page or of a run; any other range
 * is misuse, for the call would also unmap bytes outside it. NULL is ignored.
 * Returns: 0; ENOMEM if a run had to be divided and there was no memory to record that; then the
 * rest of the range is still mapped. */
CAIRN_API int cairn_pages_unmap(void *pointer, size_t size) CAIRN_NOEXCEPT;

/* Changes the size of a range from `old_size` to `new_size` bytes, at a multiple of `align` bytes,
 * and moves it if necessary, with its contents. The range is one that cairn_pages_unmap accepts.
 * `flags` apply to the new pages, and to all pages of a range that was copied. With `pointer` NULL
 * it maps.
 * Returns: the range; NULL with errno ENOMEM or EINVAL, then the old range is unchanged. */
CAIRN_API CAIRN_NODISCARD void *cairn_pages_remap(void *pointer, size_t old_size, size_t new_size,
                                                  size_t align, unsigned flags) CAIRN_NOEXCEPT;

/* Returns free pages to the system and keeps `keep_bytes` of them.
 * Returns: true if any page was returned. */
CAIRN_API bool cairn_pages_purge(size_t keep_bytes) CAIRN_NOEXCEPT;

/* Makes a cairn_allocator (cairn/allocator.h) each of whose blocks is a run of whole pages. The
 * cairn_allocator is valid until the process ends. */
CAIRN_API CAIRN_NODISCARD cairn_allocator cairn_pages_allocator(void) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
