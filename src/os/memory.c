/* Address space and memory: see memory.h. The state is the page size, the counters of calls, and
 * the facts about purging and naming that the kernel has shown. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MREMAP_FIXED */
#endif
#include "os/memory.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "os/kernel.h"

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

static size_t page_size_bytes = 4096; /* atomic: written by os_init */

uint64_t os_calls[OS_CALL_PLACES] cache_aligned;
static_check(OS_CALL_KINDS <= OS_CALL_PLACES && sizeof os_calls == 64, "a line of their own");

static void os_count_call(enum os_call call) { fetch_add_relaxed(&os_calls[call], (uint64_t)1); }

size_t os_page_size(void) { return load_relaxed(&page_size_bytes); }

at_process_start void os_init(void)
{
    size_t size = getauxval(AT_PAGESZ);
    if (is_power_of_two(size) && size >= 4096)
        store_relaxed(&page_size_bytes, size);
}

/* ThreadSanitizer reports accesses before an unmap as races with accesses to a new mapping at
 * that address. So it must see the call of a new mapping. For moved and grown mappings, which it
 * does not see, this counter orders the unmap or move before accesses to the mapping. */
static uint32_t unmapped; /* atomic: number of unmaps and moves, with ThreadSanitizer only */

static void os_note_unmapped(void)
{
    if (config_tsan)
        fetch_add_acq_rel(&unmapped, (uint32_t)1); /* release: pairs with os_heed_unmapped */
}

static void os_heed_unmapped(void)
{
    if (config_tsan)
        (void)load_acquire(&unmapped); /* acquire: pairs with os_note_unmapped */
}

/* Calls mmap through libc, so that ThreadSanitizer sees it; keeps errno. */
static void *os_map_seen(void *hint, size_t size_bytes, int protection, int flags)
{
    int saved = errno;
    void *start = mmap(hint, size_bytes, protection, flags, -1, 0);
    errno = saved;
    return start == MAP_FAILED ? NULL : start;
}

static void *os_mmap(void *hint, size_t size_bytes, int protection, int flags)
{
    int error;
    os_count_call(OS_CALL_MAP);
    if (fault_strikes(&error))
        return NULL;
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    if (config_tsan)
        return os_map_seen(hint, size_bytes, protection, flags);
    long result = kernel_call(SYS_mmap, (long)hint, (long)size_bytes, protection, flags, -1, 0);
    return kernel_failed(result) ? NULL : (void *)result;
}

void *os_reserve(size_t size_bytes) { return os_mmap(NULL, size_bytes, PROT_NONE, MAP_NORESERVE); }

void *os_reserve_near(void *hint, size_t size_bytes)
{
    return os_mmap(hint, size_bytes, PROT_NONE, MAP_NORESERVE);
}

/* A kernel before 4.17 treats the address as a hint. */
bool os_reserve_at(void *start, size_t size_bytes)
{
    void *place = os_mmap(start, size_bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED_NOREPLACE);
    if (place && place != start)
        (void)os_unmap(place, size_bytes);
    return place == start;
}

void *os_map(size_t size_bytes) { return os_mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, 0); }

static int os_call_on_range(long number, void *start, size_t size_bytes, long third)
{
    int error;
    os_count_call(number == SYS_mprotect ? OS_CALL_PROTECT
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
    return os_call_on_range(SYS_mprotect, start, size_bytes,
                            access == OS_WRITE ? PROT_READ | PROT_WRITE : reading);
}

int os_unmap(void *start, size_t size_bytes)
{
    os_note_unmapped();
    int error = os_call_on_range(SYS_munmap, start, size_bytes, 0);
    if (unlikely(error != 0))
        (void)os_purge(start, size_bytes);
    return error;
}

/* Some emulators of user programs accept MADV_DONTNEED without effect, so the first purge tries
 * the call on a page of its own, after jemalloc (pages.c, madvise_MADV_DONTNEED_zeros_pages). If
 * there is no page for that, the memory is purged, but os_purge returns an error, so that no
 * caller relies on zeros. */
enum { PURGE_UNKNOWN, PURGE_CLEARS, PURGE_DOES_NOTHING };
static uint8_t purge_effect; /* atomic: const once it is known */

static not_instrumented cold uint8_t os_try_purge(void)
{
    size_t page = os_page_size();
    long start = kernel_call(SYS_mmap, 0, (long)page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (kernel_failed(start))
        return PURGE_UNKNOWN;
    volatile char *byte = (volatile char *)start;
    *byte = 1;
    bool succeeded = kernel_call(SYS_madvise, start, (long)page, MADV_DONTNEED, 0, 0, 0) == 0;
    uint8_t effect = succeeded && *byte != 0 ? PURGE_DOES_NOTHING : PURGE_CLEARS;
    (void)kernel_call(SYS_munmap, start, (long)page, 0, 0, 0, 0);
    store_relaxed(&purge_effect, effect);
    return effect;
}

int os_purge(void *start, size_t size_bytes)
{
    uint8_t effect = load_relaxed(&purge_effect);
    if (unlikely(effect != PURGE_CLEARS))
        effect = effect == PURGE_UNKNOWN ? os_try_purge() : effect;
    if (unlikely(effect == PURGE_DOES_NOTHING))
        return -EOPNOTSUPP;
    int error = os_call_on_range(SYS_madvise, start, size_bytes, MADV_DONTNEED);
    return effect == PURGE_UNKNOWN && error == 0 ? -EAGAIN : error;
}

/* One call: maps over the old mapping. */
int os_trap(void *start, size_t size_bytes)
{
    return os_mmap(start, size_bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED) ? 0 : -ENOMEM;
}

int os_populate(void *start, size_t size_bytes)
{
    size_t lead = (uintptr_t)start % os_page_size();
    return os_call_on_range(SYS_madvise, (char *)start - lead, lead + size_bytes,
                            MADV_POPULATE_WRITE);
}

int os_huge_pages(void *start, size_t size_bytes, bool wanted)
{
    return os_call_on_range(SYS_madvise, start, size_bytes,
                            wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

/* The kernel has no call for this. The kernel cannot mark a part of a huge page as cold without
 * dividing it. */
int os_divide_huge_page(void *start, size_t size_bytes)
{
    return os_call_on_range(SYS_madvise, start, size_bytes, MADV_COLD);
}

static long os_remap(void *start, size_t old_bytes, size_t new_bytes, long flags, void *destination)
{
    int error;
    os_count_call(OS_CALL_REMAP);
    if (fault_strikes(&error))
        return error;
    os_note_unmapped();
    long result = kernel_call(SYS_mremap, (long)start, (long)old_bytes, (long)new_bytes, flags,
                              (long)destination, 0);
    os_heed_unmapped();
    return result;
}

int os_resize(void *start, size_t old_bytes, size_t new_bytes)
{
    long result = os_remap(start, old_bytes, new_bytes, 0, NULL);
    return kernel_result(result);
}

void *os_move(void *start, size_t old_bytes, size_t new_bytes)
{
    long result = os_remap(start, old_bytes, new_bytes, MREMAP_MAYMOVE, NULL);
    return kernel_failed(result) ? NULL : (void *)result;
}

static enum os_moved os_remap_onto(void *start, size_t size_bytes, long flags, void *destination)
{
    flags |= MREMAP_MAYMOVE | MREMAP_FIXED;
    long result = os_remap(start, size_bytes, size_bytes, flags, destination);
    if (!kernel_failed(result))
        return OS_MOVED;
    bool untouched = result == -EPERM || result == -EINVAL || result == -ENOSYS;
    return untouched || os_reserve_at(destination, size_bytes) ? OS_KEPT : OS_LOST;
}

/* The kernel unmaps the destination before it has checked everything. The later checks are
 * whether the memory may grow, which it does not here, and whether it is one mapping. os_resize
 * to the same size fails in the latter case, without an effect on the destination. */
enum os_moved os_move_onto(void *start, size_t size_bytes, void *destination)
{
    if (os_resize(start, size_bytes, size_bytes) != 0)
        return OS_KEPT;
    return os_remap_onto(start, size_bytes, 0, destination);
}

/* The kernel refuses a range of several mappings after it has unmapped the destination, which
 * may be lost then. This is rare, and costs less than a check at each call. */
enum os_moved os_move_leaving(void *start, size_t size_bytes, void *destination)
{
    return os_remap_onto(start, size_bytes, MREMAP_DONTUNMAP, destination);
}

/* rt_sigprocmask reads the word before it rejects the invalid operation. */
bool os_is_readable(const void *word)
{
    enum { NOTHING_KNOWN = -1, SET_BYTES = 8 };
    return kernel_call(SYS_rt_sigprocmask, NOTHING_KNOWN, (long)word, 0, SET_BYTES, 0, 0) ==
           -EINVAL;
}

static bool naming_ended; /* atomic: never false again once it is true */

void os_name(void *start, size_t size_bytes, const char *name)
{
    if (load_relaxed(&naming_ended))
        return;
    if (kernel_call(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, (long)start, (long)size_bytes,
                    (long)name, 0) != 0)
        os_end_naming();
}

at_process_start void os_end_naming(void) { store_relaxed(&naming_ended, true); }

int os_wipe_in_children(void *start, size_t size_bytes)
{
    long result = kernel_call(SYS_madvise, (long)start, (long)size_bytes, MADV_WIPEONFORK, 0, 0, 0);
    return kernel_result(result);
}
