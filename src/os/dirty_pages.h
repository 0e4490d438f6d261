/* Which pages of a private file mapping the process has written, as the kernel knows it.
 *
 * A page was written if it is a copy, or, where userfaultfd watches it, if it was written since it
 * was last found.
 *
 * Threads: any; a mapping is scanned by one thread at a time.
 */
#ifndef CAIRN_OS_DIRTY_PAGES_H
#define CAIRN_OS_DIRTY_PAGES_H

#include "base/compiler.h"

/* A range of addresses that a scan found. `categories` are bits of the kernel. */
struct os_page_range {
    uint64_t start;
    uint64_t end;
    uint64_t categories;
};

/* Opens a userfaultfd with asynchronous write-protection.
 * Returns: a descriptor or a negative errno, for instance where the kernel lacks it or forbids
 * it. */
int os_userfault_open(void);

/* Lets userfaultfd watch a range of addresses.
 * Returns: 0 or a negative errno. */
int os_userfault_watch(int userfault, void *start, size_t size_bytes);

/* Opens the file of the kernel that scans read.
 * Returns: a descriptor or a negative errno. */
int os_pagemap_open(void);

/* Kinds of scans. All except OS_SCAN_COPIES write-protect the pages that they find, so that a
 * page is found again only after another write. */
enum os_scan {
    OS_SCAN_COPIES, /* finds copied pages */
    OS_SCAN_FIRST,  /* finds written pages, and says which are still the file's: OS_PAGE_OF_FILE */
    OS_SCAN_EMPTY,  /* finds addresses without a page; allocates page tables */
    /* finds written pages, fast; also empty ones that neither OS_SCAN_FIRST nor OS_SCAN_EMPTY
     * has visited */
    OS_SCAN_AGAIN,
};
enum { OS_PAGE_OF_FILE = 1 << 2 }; /* a category that OS_SCAN_FIRST reports */
/* Scans from `*from` to `end`, until `capacity` ranges are found. `*from` gets the address where
 * the next call continues.
 * Returns: the number of ranges, or a negative errno. */
int os_pagemap_scan(int pagemap, uintptr_t *from, uintptr_t end, enum os_scan kind,
                    struct os_page_range *ranges, unsigned capacity);

/* Finds copied pages like OS_SCAN_COPIES, on kernels before 6.7. `*from` gets the address where the
 * next call continues.
 * Returns: the number of ranges, or a negative errno. */
int os_pagemap_read(int pagemap, uintptr_t *from, uintptr_t end, struct os_page_range *ranges,
                    unsigned capacity);

#endif
