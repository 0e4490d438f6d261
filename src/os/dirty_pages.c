/* Scans for written pages: see dirty_pages.h.
 *
 * Sources: Documentation/admin-guide/mm/pagemap.rst and userfaultfd.rst of Linux. A page of a
 * private mapping is the file's until it is written. Then it is a copy: present or swapped out, and
 * no file page. With asynchronous write-protection by userfaultfd, the scan protects the pages that
 * it finds, in one step with the check. So each write is either found now or by the next scan. A
 * page that was never protected counts as written, so no page has to be protected in advance. A
 * marker of a protected page without memory counts as swapped, not as written.
 *
 * A scan for written pages only (OS_SCAN_AGAIN) makes the kernel check one mark in each entry of
 * the page tables, which is several times faster. Empty entries count as written there, so they get
 * their markers first, by OS_SCAN_EMPTY. That scan matches only empty entries, in one step with the
 * check, so it never protects a page that was written in between.
 *
 * No state. The constants are those of linux/fs.h and linux/userfaultfd.h of Linux 6.7, repeated
 * here because older headers lack them.
 */
/* first: one of its fields has the name of a macro of compiler.h, `api` */
#include <linux/userfaultfd.h>

#include "base/bits.h"
#include "os/dirty_pages.h"
#include "os/file.h"
#include "os/kernel.h"
#include "os/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

enum {
    PAGE_WRITTEN = 1 << 1,
    PAGE_FILE = 1 << 2,
    PAGE_PRESENT = 1 << 3,
    PAGE_SWAPPED = 1 << 4,
    SCAN_PROTECT_FOUND = 1 << 0,
    SCAN_CHECK_WATCHED = 1 << 1,
    FEATURE_PROTECT_ASYNC = 1 << 15,
    USER_MODE_ONLY = 1,
};

struct scan {
    uint64_t size;
    uint64_t flags;
    uint64_t start;
    uint64_t end;
    uint64_t walk_end;
    uint64_t ranges;
    uint64_t capacity;
    uint64_t most_pages;
    uint64_t inverted;
    uint64_t all_of;
    uint64_t any_of;
    uint64_t returned;
};

static_check(sizeof(struct scan) == 96 && sizeof(struct os_page_range) == 24, "the kernel's");

static long os_scan_call(void) { return (long)_IOWR('f', 16, struct scan); }

int os_userfault_open(void)
{
    int error;
    if (fault_strikes(&error))
        return error;
    long file =
        kernel_call(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY, 0, 0, 0, 0, 0);
    if (kernel_failed(file))
        return (int)file;
    struct uffdio_api wanted = {UFFD_API, FEATURE_PROTECT_ASYNC, 0};
    long result = kernel_call(SYS_ioctl, file, (long)UFFDIO_API, (long)&wanted, 0, 0, 0);
    if (!kernel_failed(result))
        return (int)file;
    os_file_close((int)file);
    return (int)result;
}

int os_userfault_watch(int userfault, void *start, size_t size_bytes)
{
    int error;
    if (fault_strikes(&error))
        return error;
    struct uffdio_register range = {.range = {(uintptr_t)start, size_bytes},
                                    .mode = UFFDIO_REGISTER_MODE_WP};
    long result = kernel_call(SYS_ioctl, userfault, (long)UFFDIO_REGISTER, (long)&range, 0, 0, 0);
    return kernel_result(result);
}

int os_pagemap_open(void) { return os_file_open("/proc/self/pagemap", OS_FILE_READ); }

/* The parameters of each kind of scan. The categories of a range are the bits `returned` that it
 * has. */
struct question {
    uint64_t flags;
    uint64_t inverted;
    uint64_t all_of;
    uint64_t any_of;
    uint64_t returned;
};

static const struct question questions[] = {
    [OS_SCAN_COPIES] = {.inverted = PAGE_FILE,
                        .all_of = PAGE_FILE,
                        .any_of = PAGE_PRESENT | PAGE_SWAPPED,
                        .returned = PAGE_PRESENT},
    [OS_SCAN_FIRST] = {.flags = SCAN_PROTECT_FOUND | SCAN_CHECK_WATCHED,
                       .all_of = PAGE_WRITTEN,
                       .any_of = PAGE_PRESENT | PAGE_SWAPPED,
                       .returned = PAGE_FILE},
    [OS_SCAN_EMPTY] = {.flags = SCAN_PROTECT_FOUND | SCAN_CHECK_WATCHED,
                       .inverted = PAGE_PRESENT | PAGE_SWAPPED,
                       .all_of = PAGE_PRESENT | PAGE_SWAPPED,
                       .returned = PAGE_PRESENT},
    [OS_SCAN_AGAIN] = {.flags = SCAN_PROTECT_FOUND | SCAN_CHECK_WATCHED,
                       .all_of = PAGE_WRITTEN,
                       .returned = PAGE_WRITTEN},
};

static_check((int)OS_PAGE_OF_FILE == (int)PAGE_FILE, "the kernel's");

int os_pagemap_scan(int pagemap, uintptr_t *from, uintptr_t end, enum os_scan kind,
                    struct os_page_range *ranges, unsigned capacity)
{
    int error;
    if (fault_strikes(&error))
        return error;
    const struct question *question = &questions[kind];
    struct scan scan = {
        .size = sizeof scan,
        .flags = question->flags,
        .start = *from,
        .end = end,
        .ranges = (uintptr_t)ranges,
        .capacity = capacity,
        .inverted = question->inverted,
        .all_of = question->all_of,
        .any_of = question->any_of,
        .returned = question->returned,
    };
    long found;
    do
        found = kernel_call(SYS_ioctl, pagemap, os_scan_call(), (long)&scan, 0, 0, 0);
    while (found == -EINTR);
    if (!kernel_failed(found))
        *from = scan.walk_end;
    return (int)found;
}

int os_pagemap_read(int pagemap, uintptr_t *from, uintptr_t end, struct os_page_range *ranges,
                    unsigned capacity)
{
    enum { STEP = 512, ENTRY_FILE = 61, ENTRY_SWAPPED = 62, ENTRY_PRESENT = 63 };
    uint64_t entries[STEP];
    size_t page = os_page_size();
    unsigned found = 0;
    while (*from < end && found + STEP / 2 + 1 <= capacity) {
        size_t count = smaller_of((end - *from) / page, STEP);
        int error =
            os_file_read(pagemap, entries, count * sizeof *entries, *from / page * sizeof *entries);
        if (error != 0)
            return error;
        for (size_t i = 0; i < count; i++) {
            bool copied = (entries[i] >> ENTRY_SWAPPED & 3) != 0 && !(entries[i] >> ENTRY_FILE & 1);
            uint64_t at = *from + i * page;
            if (copied && found > 0 && ranges[found - 1].end == at)
                ranges[found - 1].end = at + page;
            else if (copied)
                ranges[found++] = (struct os_page_range){at, at + page, 0};
        }
        *from += count * page;
    }
    return (int)found;
}
