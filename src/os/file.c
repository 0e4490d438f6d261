/* Files: see os.h. Each kernel call that changes a file is shown to the watcher first, in debug
 * builds, so that tests record what a run does to its files, and make any part of it fail.
 *
 * No state but the watcher, which is set while nothing else runs.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_OFD_SETLK, fallocate's and rename's flags */
#endif
#include "base/bits.h"
#include "base/check.h"
#include "os/kernel.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { PATH_MOST = 4096, RENAME_NEVER_OVER = 1, START_WRITING = 2 };

static os_file_watcher *watcher; /* const while files are used */

void os_file_watch(os_file_watcher *function) { watcher = function; }

static int watch(enum os_file_call call, int file, uint64_t offset, const void *data, size_t *size)
{
    int error;
    if (fault_strikes(&error))
        return error;
    return config_debug && watcher ? watcher(call, file, offset, data, size) : 0;
}

static int result_of(long result) { return kernel_failed(result) ? (int)result : 0; }

int os_file_open(const char *path, enum os_file_mode mode)
{
    enum { NEW = O_CREAT | O_EXCL };
    static const int flags[] = {O_RDONLY,     O_RDWR,           O_RDWR | O_CREAT,
                                O_RDWR | NEW, O_RDWR | O_CREAT, O_RDWR | NEW};
    int permissions = mode >= OS_FILE_CREATE_SECRET ? 0600 : 0666; /* less the process's mask */
    int error;
    if (fault_strikes(&error))
        return error;
    return (int)kernel_call(SYS_openat, AT_FDCWD, (long)path, flags[mode] | O_CLOEXEC, permissions,
                            0, 0);
}

void os_file_close(int file)
{
    if (file >= 0)
        kernel_call(SYS_close, file, 0, 0, 0, 0, 0);
}

int os_file_path(int file, char *path, size_t capacity_bytes)
{
    char link[32];
    (void)format_text(link, sizeof link, "/proc/self/fd/%d", file);
    long length = kernel_call(SYS_readlinkat, AT_FDCWD, (long)link, (long)path,
                              (long)capacity_bytes - 1, 0, 0);
    if (kernel_failed(length))
        return (int)length;
    path[length] = '\0';
    return (size_t)length == capacity_bytes - 1 ? -ENAMETOOLONG : (int)length;
}

int os_path_absolute(const char *path, char *to, size_t capacity_bytes)
{
    char target[1];
    if (!kernel_failed(kernel_call(SYS_readlinkat, AT_FDCWD, (long)path, (long)target,
                                   (long)sizeof target, 0, 0)))
        return -ELOOP;
    size_t used = 0;
    if (path[0] != '/') {
        long length = kernel_call(SYS_getcwd, (long)to, (long)capacity_bytes, 0, 0, 0, 0);
        if (kernel_failed(length))
            return length == -ERANGE ? -ENAMETOOLONG : (int)length;
        used = (size_t)length - 1; /* it counts the final 0 */
        if (to[0] != '/')
            return -ENOENT; /* a folder that this process does not see */
    }
    used += format_text(to + used, capacity_bytes - used, "%s%s", path[0] == '/' ? "" : "/", path);
    return used + 1 >= capacity_bytes ? -ENAMETOOLONG : (int)used; /* maybe cut */
}

int os_file_lock(int file, bool exclusive)
{
    int error;
    if (fault_strikes(&error))
        return error;
    struct flock lock = {.l_type = exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
    error = result_of(kernel_call(SYS_fcntl, file, F_OFD_SETLK, (long)&lock, 0, 0, 0));
    return error == -EAGAIN || error == -EACCES ? -EBUSY : error;
}

bool os_file_is_nameless(int file)
{
    struct stat status;
    long result = kernel_call(SYS_fstat, file, (long)&status, 0, 0, 0, 0);
    return !kernel_failed(result) && status.st_nlink == 0;
}

int64_t os_file_size(int file)
{
    int error;
    if (fault_strikes(&error))
        return error;
    return kernel_call(SYS_lseek, file, 0, SEEK_END, 0, 0, 0);
}

/* A limit on the size of files would end the process by SIGXFSZ, also of a write within the file.
 */
int64_t os_file_size_limit(void)
{
    struct rlimit limit;
    long result = kernel_call(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit, 0, 0);
    bool has = !kernel_failed(result) && limit.rlim_cur <= INT64_MAX;
    return has ? (int64_t)limit.rlim_cur : -1;
}

static bool is_beyond_limit(uint64_t size_bytes)
{
    int64_t limit = os_file_size_limit();
    return limit >= 0 && size_bytes > (uint64_t)limit;
}

/* One kernel call; may do less than it is asked for. */
typedef long transfer(int file, char *at, size_t size_bytes, uint64_t offset);

static long read_some(int file, char *at, size_t size_bytes, uint64_t offset)
{
    int error;
    if (fault_strikes(&error))
        return error;
    return kernel_call(SYS_pread64, file, (long)at, (long)size_bytes, (long)offset, 0, 0);
}

static long write_some(int file, char *at, size_t size_bytes, uint64_t offset)
{
    int error = watch(OS_CALL_WRITE, file, offset, at, &size_bytes);
    if (error != 0)
        return error;
    return kernel_call(SYS_pwrite64, file, (long)at, (long)size_bytes, (long)offset, 0, 0);
}

/* All of it; a call that does nothing is the error `none`. */
static int transfer_all(transfer *some, int none, int file, char *at, size_t size_bytes,
                        uint64_t offset)
{
    while (size_bytes > 0) {
        long done = some(file, at, size_bytes, offset);
        if (done == -EINTR)
            continue;
        if (done <= 0)
            return done == 0 ? none : (int)done;
        at += done;
        offset += (uint64_t)done;
        size_bytes -= (size_t)done;
    }
    return 0;
}

int os_file_read(int file, void *to, size_t size_bytes, uint64_t offset)
{
    return transfer_all(read_some, -ENODATA, file, to, size_bytes, offset);
}

int os_file_write(int file, const void *from, size_t size_bytes, uint64_t offset)
{
    if (is_beyond_limit(offset + size_bytes))
        return -EFBIG;
    return transfer_all(write_some, -EIO, file, (char *)(uintptr_t)from, size_bytes, offset);
}

int os_file_truncate(int file, uint64_t size_bytes)
{
    if (is_beyond_limit(size_bytes))
        return -EFBIG;
    long result;
    do {
        size_t unused = 0;
        result = watch(OS_CALL_TRUNCATE, file, size_bytes, NULL, &unused);
        if (result == 0)
            result = kernel_call(SYS_ftruncate, file, (long)size_bytes, 0, 0, 0, 0);
    } while (result == -EINTR);
    return result_of(result);
}

int os_file_extend(int file, uint64_t size_bytes)
{
    if (is_beyond_limit(size_bytes))
        return -EFBIG;
    long result;
    do {
        size_t unused = 0;
        result = watch(OS_CALL_EXTEND, file, size_bytes, NULL, &unused);
        if (result == 0)
            result = kernel_call(SYS_fallocate, file, 0, 0, (long)size_bytes, 0, 0);
    } while (result == -EINTR);
    return result == -EOPNOTSUPP ? os_file_truncate(file, size_bytes) : result_of(result);
}

int os_file_punch(int file, uint64_t offset, uint64_t size_bytes)
{
    size_t size = size_bytes;
    int error = watch(OS_CALL_PUNCH, file, offset, NULL, &size);
    if (error != 0)
        return error;
    return result_of(kernel_call(SYS_fallocate, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 (long)offset, (long)size_bytes, 0, 0));
}

int os_file_sync(int file)
{
    long result;
    do {
        size_t unused = 0;
        result = watch(OS_CALL_SYNC, file, 0, NULL, &unused);
        if (result == 0)
            result = kernel_call(SYS_fdatasync, file, 0, 0, 0, 0, 0);
    } while (result == -EINTR);
    return result_of(result);
}

int os_file_settle(int file, uint64_t size_bytes)
{
    int error = os_file_sync(file);
    if (error == 0)
        kernel_call(SYS_fadvise64, file, 0, (long)size_bytes, POSIX_FADV_DONTNEED, 0, 0);
    return error;
}

void os_file_start_writing(int file, uint64_t offset, uint64_t size_bytes)
{
    kernel_call(SYS_sync_file_range, file, (long)offset, (long)size_bytes, START_WRITING, 0, 0);
}

int os_file_rename(const char *from, const char *to)
{
    int error;
    if (fault_strikes(&error))
        return error;
    return result_of(
        kernel_call(SYS_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, RENAME_NEVER_OVER, 0));
}

int os_file_remove(const char *path)
{
    return result_of(kernel_call(SYS_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0));
}

int os_directory_sync(const char *path)
{
    char directory[PATH_MOST] = ".";
    size_t end = 0;
    for (size_t i = 0; path[i]; i++) {
        if (i + 1 >= sizeof directory)
            return -ENAMETOOLONG;
        if (path[i] == '/')
            end = i + 1;
    }
    for (size_t i = 0; i < end; i++)
        directory[i] = path[i];
    directory[larger_of(end, 1)] = '\0';
    int file = os_file_open(directory, OS_FILE_READ);
    if (file < 0)
        return file;
    int error = result_of(kernel_call(SYS_fsync, file, 0, 0, 0, 0, 0));
    os_file_close(file);
    return error;
}

int os_file_map(int file, uint64_t offset, void *at, size_t size_bytes, enum os_access access)
{
    static const int protections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    int error;
    if (fault_strikes(&error))
        return error;
    return result_of(kernel_call(SYS_mmap, (long)at, (long)size_bytes, protections[access],
                                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, (long)offset));
}
