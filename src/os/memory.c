/* Address space and memory: mmap and its kin. See os.h for the contract. No state but the page
 * size and the counters. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MREMAP_FIXED */
#endif
#include "base/atomic.h"
#include "base/bits.h"
#include "os/kernel.h"
#include "os/os.h"

#include <errno.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA           0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

static size_t page_size_bytes = 4096; /* atomic: os_init writes what the kernel says */

uint64_t os_calls[OS_CALL_KINDS];

static void count_call(enum os_call call) { fetch_add_relaxed(&os_calls[call], (uint64_t)1); }

size_t os_page_size(void) { return load_relaxed(&page_size_bytes); }

void os_init(void)
{
    size_t size = getauxval(AT_PAGESZ);
    if (is_power_of_two(size) && size >= 4096)
        store_relaxed(&page_size_bytes, size);
}

/* ThreadSanitizer takes what threads did at an address before it was unmapped for races with what
 * is done there now. So it must see a mapping's call; and it is told that what is unmapped, or
 * moves, comes before what a moved or grown mapping holds. */
static uint32_t unmapped; /* atomic, counts; with ThreadSanitizer only */

static void note_unmapped(void)
{
    if (config_tsan)
        fetch_add_acq_rel(&unmapped, (uint32_t)1); /* pairs with heed_unmapped */
}

static void heed_unmapped(void)
{
    if (config_tsan)
        (void)load_acquire(&unmapped); /* pairs with note_unmapped */
}

static void *map_seen(void *hint, size_t size_bytes, int protection, int flags)
{
    int saved = errno;
    void *start = mmap(hint, size_bytes, protection, flags, -1, 0);
    errno = saved;
    return start == MAP_FAILED ? NULL : start;
}

static void *map(void *hint, size_t size_bytes, int protection, int flags)
{
    int error;
    count_call(OS_CALL_MAP);
    if (fault_strikes(&error))
        return NULL;
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    if (config_tsan)
        return map_seen(hint, size_bytes, protection, flags);
    long result = kernel_call(SYS_mmap, (long)hint, (long)size_bytes, protection, flags, -1, 0);
    return kernel_failed(result) ? NULL : (void *)result;
}

void *os_reserve(size_t size_bytes) { return map(NULL, size_bytes, PROT_NONE, MAP_NORESERVE); }

void *os_reserve_near(void *hint, size_t size_bytes)
{
    return map(hint, size_bytes, PROT_NONE, MAP_NORESERVE);
}

/* A kernel before 4.17 takes the address for a wish. */
bool os_reserve_at(void *start, size_t size_bytes)
{
    void *place = map(start, size_bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED_NOREPLACE);
    if (place && place != start)
        (void)os_unmap(place, size_bytes);
    return place == start;
}

void *os_map(size_t size_bytes) { return map(NULL, size_bytes, PROT_READ | PROT_WRITE, 0); }

static int call_on_range(long number, void *start, size_t size_bytes, long third)
{
    int error;
    count_call(number == SYS_mprotect ? OS_CALL_PROTECT
               : number == SYS_munmap ? OS_CALL_UNMAP
                                      : OS_CALL_ADVISE);
    if (fault_strikes(&error))
        return error;
    return (int)kernel_call(number, (long)start, (long)size_bytes, third, 0, 0, 0);
}

int os_commit(void *start, size_t size_bytes) { return os_protect(start, size_bytes, OS_WRITE); }

int os_protect(void *start, size_t size_bytes, enum os_access access)
{
    int reading = access == OS_READ ? PROT_READ : PROT_NONE;
    return call_on_range(SYS_mprotect, start, size_bytes,
                         access == OS_WRITE ? PROT_READ | PROT_WRITE : reading);
}

int os_unmap(void *start, size_t size_bytes)
{
    note_unmapped();
    return call_on_range(SYS_munmap, start, size_bytes, 0);
}

int os_purge(void *start, size_t size_bytes)
{
    return call_on_range(SYS_madvise, start, size_bytes, MADV_DONTNEED);
}

/* One call: a new mapping over the old one. */
int os_trap(void *start, size_t size_bytes)
{
    return map(start, size_bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED) ? 0 : -ENOMEM;
}

int os_populate(void *start, size_t size_bytes)
{
    return call_on_range(SYS_madvise, start, size_bytes, MADV_POPULATE_WRITE);
}

int os_huge_pages(void *start, size_t size_bytes, bool wanted)
{
    return call_on_range(SYS_madvise, start, size_bytes, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

/* The kernel has no call for it, but it cannot age a part of a huge page. */
int os_divide_huge_page(void *start, size_t size_bytes)
{
    return call_on_range(SYS_madvise, start, size_bytes, MADV_COLD);
}

static long remap(void *start, size_t old_bytes, size_t new_bytes, long flags, void *destination)
{
    int error;
    count_call(OS_CALL_REMAP);
    if (fault_strikes(&error))
        return error;
    note_unmapped();
    long result = kernel_call(SYS_mremap, (long)start, (long)old_bytes, (long)new_bytes, flags,
                              (long)destination, 0);
    heed_unmapped();
    return result;
}

int os_resize(void *start, size_t old_bytes, size_t new_bytes)
{
    long result = remap(start, old_bytes, new_bytes, 0, NULL);
    return kernel_failed(result) ? (int)result : 0;
}

void *os_move(void *start, size_t old_bytes, size_t new_bytes)
{
    long result = remap(start, old_bytes, new_bytes, MREMAP_MAYMOVE, NULL);
    return kernel_failed(result) ? NULL : (void *)result;
}

static enum os_moved move_onto(void *start, size_t size_bytes, long flags, void *destination)
{
    flags |= MREMAP_MAYMOVE | MREMAP_FIXED;
    long result = remap(start, size_bytes, size_bytes, flags, destination);
    if (!kernel_failed(result))
        return OS_MOVED;
    bool untouched = result == -EPERM || result == -EINVAL || result == -ENOSYS;
    return untouched || os_reserve_at(destination, size_bytes) ? OS_KEPT : OS_LOST;
}

/* The kernel unmaps the destination before it looks at everything. What it looks at afterwards is
 * whether the memory may grow, which it does not here, and whether it is one mapping: so we ask for
 * that first. */
enum os_moved os_move_onto(void *start, size_t size_bytes, void *destination)
{
    if (os_resize(start, size_bytes, size_bytes) != 0)
        return OS_KEPT;
    return move_onto(start, size_bytes, 0, destination);
}

/* What is more than one mapping is refused late here: the destination may be lost, which is rare,
 * and costs less than asking each time. */
enum os_moved os_move_leaving(void *start, size_t size_bytes, void *destination)
{
    return move_onto(start, size_bytes, MREMAP_DONTUNMAP, destination);
}

size_t os_resident(void *start, size_t size_bytes)
{
    enum { STEP_PAGES = 2048 };
    unsigned char resident[STEP_PAGES];
    size_t page = os_page_size();
    size_t pages = 0;
    for (size_t done = 0; done < size_bytes; done += STEP_PAGES * page) {
        size_t step = smaller_of(size_bytes - done, STEP_PAGES * page);
        if (call_on_range(SYS_mincore, (char *)start + done, step, (long)resident) != 0)
            break;
        for (size_t i = 0; i < step / page; i++)
            pages += resident[i] & 1;
    }
    return pages * page;
}

/* rt_sigprocmask reads the word before it refuses what it is asked to do with it. */
bool os_is_readable(const void *word)
{
    enum { NOTHING_KNOWN = -1, SET_BYTES = 8 };
    return kernel_call(SYS_rt_sigprocmask, NOTHING_KNOWN, (long)word, 0, SET_BYTES, 0, 0) ==
           -EINVAL;
}

void os_name(void *start, size_t size_bytes, const char *name)
{
    kernel_call(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, (long)start, (long)size_bytes,
                (long)name, 0);
}
