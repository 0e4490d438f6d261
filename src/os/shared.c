/* Files that are written as memory: see os.h. What is written stays in the file however the process
 * ends, and its room on the disk is there before, so that no store ends in SIGBUS.
 *
 * No state. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create's flags */
#endif
#include "base/bits.h"
#include "os/kernel.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { ZEROS_BYTES = 4096 };

static int write_zeros(int file, uint64_t offset, size_t size_bytes)
{
    static const char zeros[ZEROS_BYTES];
    int error = 0;
    for (size_t done = 0; done < size_bytes && error == 0; done += ZEROS_BYTES)
        error =
            os_file_write(file, zeros, smaller_of(size_bytes - done, ZEROS_BYTES), offset + done);
    return error;
}

int os_file_allot(int file, uint64_t offset, size_t size_bytes)
{
    int error;
    if (fault_strikes(&error))
        return error;
    int64_t limit = os_file_size_limit();
    if (limit >= 0 && offset + size_bytes > (uint64_t)limit)
        return -EFBIG;
    long result;
    do
        result = kernel_call(SYS_fallocate, file, 0, (long)offset, (long)size_bytes, 0, 0);
    while (result == -EINTR);
    if (result == -EOPNOTSUPP)
        return write_zeros(file, offset, size_bytes);
    return kernel_failed(result) ? (int)result : 0;
}

/* With ThreadSanitizer by a call that it sees: what threads did at the address before is over. */
void *os_file_share(int file, uint64_t offset, size_t size_bytes)
{
    int error;
    if (fault_strikes(&error))
        return NULL;
    if (config_tsan) {
        int saved = errno;
        void *seen =
            mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)offset);
        errno = saved;
        return seen == MAP_FAILED ? NULL : seen;
    }
    long result = kernel_call(SYS_mmap, 0, (long)size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                              file, (long)offset);
    return kernel_failed(result) ? NULL : (void *)result;
}

int os_file_identify(int file, struct os_file_identity *identity)
{
    struct stat status;
    long result = kernel_call(SYS_fstat, file, (long)&status, 0, 0, 0, 0);
    if (kernel_failed(result))
        return (int)result;
    identity->device = status.st_dev;
    identity->number = status.st_ino;
    return 0;
}

int os_file_move_up(int file)
{
    enum { FIRST = 500, SECOND = 10 }; /* away from what programs number themselves */
    long copy = kernel_call(SYS_fcntl, file, F_DUPFD_CLOEXEC, FIRST, 0, 0, 0);
    if (copy == -EINVAL) /* beyond the limit of descriptors */
        copy = kernel_call(SYS_fcntl, file, F_DUPFD_CLOEXEC, SECOND, 0, 0, 0);
    if (kernel_failed(copy))
        return file;
    os_file_close(file);
    return (int)copy;
}

int os_file_in_memory(const char *name)
{
    return (int)kernel_call(SYS_memfd_create, (long)name, 1 /* MFD_CLOEXEC */, 0, 0, 0, 0);
}

int os_wipe_in_children(void *start, size_t size_bytes)
{
    long result = kernel_call(SYS_madvise, (long)start, (long)size_bytes, MADV_WIPEONFORK, 0, 0, 0);
    return kernel_failed(result) ? (int)result : 0;
}

uint64_t os_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* through the vDSO; cannot fail for this clock */
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t os_date_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec;
}

uint64_t os_ticks(void)
{
    uint64_t ticks;
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    ticks = (uint64_t)high << 32 | low;
#else
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
#endif
    return ticks;
}

uint64_t os_ticks_in_us(unsigned microseconds)
{
    uint64_t per_second = 2500000000; /* x86 does not say; about */
#if !defined(__x86_64__)
    __asm__("mrs %0, cntfrq_el0" : "=r"(per_second));
#endif
    return per_second / 1000000 * microseconds;
}
