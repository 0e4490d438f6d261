/* Address space and memory from the kernel: the calls of mmap, munmap, mprotect, madvise and
 * mremap.
 *
 * Only the folder os/ makes system calls. The folder calls the kernel directly, not through libc,
 * except where a file says so. Unless its comment says otherwise, a function of this folder does
 * not touch errno, is no cancellation point, takes no lock, and works before libc is ready and in a
 * signal handler. A function returns a pointer or NULL, or 0 or a negative errno. Sizes and
 * addresses of mappings are multiples of os_page_size().
 *
 * Threads: any.
 */
#ifndef CAIRN_OS_MEMORY_H
#define CAIRN_OS_MEMORY_H

#include "base/compiler.h"

/* Reads the page size from the kernel. May be called several times. */
void os_init(void);

/* The system's page size in bytes; 4096 before os_init. */
size_t os_page_size(void);

/* Reserves address space without memory and without permissions. */
void *os_reserve(size_t size_bytes);

/* Reserves address space like os_reserve, at `hint` if it is free, else anywhere. */
void *os_reserve_near(void *hint, size_t size_bytes);

/* Reserves address space like os_reserve, exactly at `start`.
 * Returns: false when another mapping is there. */
bool os_reserve_at(void *start, size_t size_bytes);

/* Makes reserved address space readable and writable; it reads zero. */
int os_commit(void *start, size_t size_bytes);

/* Maps memory that is readable, writable and zero. */
void *os_map(size_t size_bytes);

/* Resizes a mapping in place. */
int os_resize(void *start, size_t old_bytes, size_t new_bytes);

/* Moves a mapping to addresses that the kernel chooses, at another size.
 * Returns: NULL when refused; then nothing has changed. */
void *os_move(void *start, size_t old_bytes, size_t new_bytes);

/* Results of a move. OS_MOVED: the mapping has moved. OS_KEPT: it has not, and the destination
 * is reserved as before. OS_LOST: it has not, and the destination may belong to another mapping,
 * so it must not be touched or unmapped. */
enum os_moved { OS_MOVED, OS_KEPT, OS_LOST };

/* Moves a mapping onto a reservation of the caller, of the same size. The old addresses are
 * unmapped. */
enum os_moved os_move_onto(void *start, size_t size_bytes, void *destination);

/* Moves the memory of a mapping onto a reservation of the caller, of the same size. The old
 * addresses stay a mapping with their permissions and without memory. Kernels before 5.7 refuse. */
enum os_moved os_move_leaving(void *start, size_t size_bytes, void *destination);

/* Unmaps a range. The system refuses to cut a mapping where the process has as many as it may have
 * (vm.max_map_count). Then the range is purged, so that only its addresses are lost. */
int os_unmap(void *start, size_t size_bytes);

/* Purges a range: returns its memory to the system, so that it reads zero afterwards.
 * Returns: a negative errno also where the kernel's call succeeds without effect. */
int os_purge(void *start, size_t size_bytes);

/* Purges a range and removes all permissions; any access to it faults. */
int os_trap(void *start, size_t size_bytes);

/* Whether an aligned word can be read, without a fault if not. */
bool os_is_readable(const void *word);

/* Makes all pages that a range touches resident with one call, from Linux 5.14 on. */
int os_populate(void *start, size_t size_bytes);

/* Requests transparent huge pages for a range, or excludes it from them. */
int os_huge_pages(void *start, size_t size_bytes, bool wanted);

/* Divides the huge page that contains this range, which is a part of it, into small pages. */
int os_divide_huge_page(void *start, size_t size_bytes);
enum os_access { OS_NONE, OS_READ, OS_WRITE }; /* OS_WRITE: readable and writable */

/* Sets the permissions of a range. */
int os_protect(void *start, size_t size_bytes, enum os_access access);

/* Makes a range read zero in the children of fork. */
int os_wipe_in_children(void *start, size_t size_bytes);

/* Names a range in /proc/self/maps, where the kernel supports that. Does nothing after
 * os_end_naming or after the first refusal: a sandbox may kill the process for this call. */
void os_name(void *start, size_t size_bytes, const char *name);

/* Ends naming for ever. */
void os_end_naming(void);

/* Kinds of system calls for memory that are counted, by this process and those from which it was
 * forked. */
enum os_call {
    OS_CALL_MAP,     /* mmap */
    OS_CALL_PROTECT, /* mprotect */
    OS_CALL_UNMAP,   /* munmap */
    OS_CALL_ADVISE,  /* madvise */
    OS_CALL_REMAP,   /* mremap */
    OS_CALL_KINDS,
    OS_CALL_PLACES = 8, /* they fill a cache line */
};
/* atomic, by enum os_call: number of calls */
extern hidden_data uint64_t os_calls[OS_CALL_PLACES];

#endif
