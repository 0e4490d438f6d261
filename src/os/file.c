/* Files, files that are written as memory, descriptors that the program may close, sockets and
 * events: see file.h.
 *
 * In debug builds each kernel call that changes a file is shown to the watcher first, so that tests
 * record what a run does to its files and can let any part of it fail.
 *
 * Data that is written as memory stays in the file however the process ends. The disk space of the
 * file is allocated before, so that no store ends in SIGBUS.
 *
 * Daemons close all numbers that they do not know, and shells give numbers to files of their own.
 * So the identity of the file is checked before each use of a descriptor that has to stay valid.
 *
 * The only state is the watcher.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_OFD_SETLK, fallocate's and rename's flags, struct ucred, ppoll */
#endif
#include "os/file.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "os/kernel.h"
#include "os/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES_MAX = 4096, RENAME_NEVER_OVER = 1, START_WRITING = 2 };

static os_file_watcher *watcher; /* const while files are used */

void os_file_watch(os_file_watcher *function) { watcher = function; }

/* Shows a call to fault injection and to the watcher.
 * Returns: 0, or a negative errno if the call has to fail. */
static int os_watch(enum os_file_call call, int file, uint64_t offset, const void *data,
                    size_t *size)
{
    int error;
    if (fault_strikes(&error))
        return error;
    return config_debug && watcher ? watcher(call, file, offset, data, size) : 0;
}

int os_file_open(const char *path, enum os_file_mode mode)
{
    enum { NEW = O_CREAT | O_EXCL };
    static const int flags[] = {O_RDONLY,     O_RDWR,           O_RDWR | O_CREAT,
                                O_RDWR | NEW, O_RDWR | O_CREAT, O_RDWR | NEW};
    int permissions = mode >= OS_FILE_CREATE_SECRET ? 0600 : 0666; /* minus the process's umask */
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
        used = (size_t)length - 1; /* the length includes the final 0 */
        if (to[0] != '/')
            return -ENOENT; /* the folder is not visible to this process */
    }
    used += format_text(to + used, capacity_bytes - used, "%s%s", path[0] == '/' ? "" : "/", path);
    return used + 1 >= capacity_bytes ? -ENAMETOOLONG : (int)used; /* maybe truncated */
}

int os_file_lock(int file, bool exclusive)
{
    int error;
    if (fault_strikes(&error))
        return error;
    struct flock lock = {.l_type = exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
    error = kernel_result(kernel_call(SYS_fcntl, file, F_OFD_SETLK, (long)&lock, 0, 0, 0));
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

/* Above the limit the kernel would end the process by SIGXFSZ, also for a write within the file. */
int64_t os_file_size_limit(void)
{
    struct rlimit limit;
    long result = kernel_call(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit, 0, 0);
    bool has = !kernel_failed(result) && limit.rlim_cur <= INT64_MAX;
    return has ? (int64_t)limit.rlim_cur : -1;
}

static bool os_is_beyond_limit(uint64_t size_bytes)
{
    int64_t limit = os_file_size_limit();
    return limit >= 0 && size_bytes > (uint64_t)limit;
}

/* One kernel call, which may transfer fewer bytes. */
typedef long transfer(int file, char *at, size_t size_bytes, uint64_t offset);

static long os_read_some(int file, char *at, size_t size_bytes, uint64_t offset)
{
    int error;
    if (fault_strikes(&error))
        return error;
    return kernel_call(SYS_pread64, file, (long)at, (long)size_bytes, (long)offset, 0, 0);
}

static long os_write_some(int file, char *at, size_t size_bytes, uint64_t offset)
{
    int error = os_watch(OS_CALL_WRITE, file, offset, at, &size_bytes);
    if (error != 0)
        return error;
    return kernel_call(SYS_pwrite64, file, (long)at, (long)size_bytes, (long)offset, 0, 0);
}

/* Transfers all bytes. If a call transfers none, the error is `none`. */
static int os_transfer_all(transfer *some, int none, int file, char *at, size_t size_bytes,
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
    return os_transfer_all(os_read_some, -ENODATA, file, to, size_bytes, offset);
}

int os_file_write(int file, const void *from, size_t size_bytes, uint64_t offset)
{
    if (os_is_beyond_limit(offset + size_bytes))
        return -EFBIG;
    return os_transfer_all(os_write_some, -EIO, file, (char *)(uintptr_t)from, size_bytes, offset);
}

/* Makes a call that changes a file, again while signals interrupt it. `at` is for the watcher. */
static long os_change(enum os_file_call call, uint64_t at, long number, int file, long b, long c,
                      long d)
{
    long result;
    do {
        size_t unused = 0;
        result = os_watch(call, file, at, NULL, &unused);
        if (result == 0)
            result = kernel_call(number, file, b, c, d, 0, 0);
    } while (result == -EINTR);
    return result;
}

int os_file_truncate(int file, uint64_t size_bytes)
{
    if (os_is_beyond_limit(size_bytes))
        return -EFBIG;
    return kernel_result(
        os_change(OS_CALL_TRUNCATE, size_bytes, SYS_ftruncate, file, (long)size_bytes, 0, 0));
}

int os_file_extend(int file, uint64_t size_bytes)
{
    if (os_is_beyond_limit(size_bytes))
        return -EFBIG;
    long result =
        os_change(OS_CALL_EXTEND, size_bytes, SYS_fallocate, file, 0, 0, (long)size_bytes);
    return result == -EOPNOTSUPP ? os_file_truncate(file, size_bytes) : kernel_result(result);
}

/* Allocates or releases the disk space of a range inside a file. */
static long os_allocate(enum os_file_call call, int file, int how, uint64_t offset,
                        uint64_t size_bytes)
{
    long result;
    do {
        size_t size = size_bytes;
        result = os_watch(call, file, offset, NULL, &size);
        if (result == 0)
            result = kernel_call(SYS_fallocate, file, how | FALLOC_FL_KEEP_SIZE, (long)offset,
                                 (long)size_bytes, 0, 0);
    } while (result == -EINTR);
    return result;
}

int os_file_reserve(int file, uint64_t offset, uint64_t size_bytes)
{
    long result = os_allocate(OS_CALL_RESERVE, file, 0, offset, size_bytes);
    return result == -EOPNOTSUPP ? 0 : kernel_result(result);
}

int os_file_punch(int file, uint64_t offset, uint64_t size_bytes)
{
    return kernel_result(
        os_allocate(OS_CALL_PUNCH, file, FALLOC_FL_PUNCH_HOLE, offset, size_bytes));
}

int os_file_sync(int file)
{
    return kernel_result(os_change(OS_CALL_SYNC, 0, SYS_fdatasync, file, 0, 0, 0));
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
    return kernel_result(
        kernel_call(SYS_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, RENAME_NEVER_OVER, 0));
}

int os_file_remove(const char *path)
{
    return kernel_result(kernel_call(SYS_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0));
}

int os_directory_sync(const char *path)
{
    char directory[PATH_BYTES_MAX] = ".";
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
    int error = kernel_result(kernel_call(SYS_fsync, file, 0, 0, 0, 0, 0));
    os_file_close(file);
    return error;
}

int os_file_map(int file, uint64_t offset, void *at, size_t size_bytes, enum os_access access)
{
    static const int protections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    int error;
    if (fault_strikes(&error))
        return error;
    return kernel_result(kernel_call(SYS_mmap, (long)at, (long)size_bytes, protections[access],
                                     MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, (long)offset));
}

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { ZEROS_BYTES = 4096 };

/* Allocates disk space by writing zeros, where the file system has no call for it. The range
 * must not contain data. */
static int os_write_zeros(int file, uint64_t offset, size_t size_bytes)
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
        return os_write_zeros(file, offset, size_bytes);
    return kernel_result(result);
}

/* With ThreadSanitizer the mapping is made by a call that it sees, because earlier accesses at
 * this address are over. */
void *os_file_share(int file, uint64_t offset, size_t size_bytes)
{
    int error;
    if (fault_strikes(&error))
        return NULL;
    size_t lead = (size_t)offset % os_page_size();
    offset -= lead;
    size_bytes += lead;
    if (config_tsan) {
        int saved = errno;
        void *seen =
            mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)offset);
        errno = saved;
        return seen == MAP_FAILED ? NULL : (char *)seen + lead;
    }
    long result = kernel_call(SYS_mmap, 0, (long)size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                              file, (long)offset);
    return kernel_failed(result) ? NULL : (char *)result + lead;
}

void os_file_unshare(void *start, size_t size_bytes)
{
    size_t lead = (uintptr_t)start % os_page_size();
    (void)os_unmap((char *)start - lead, lead + size_bytes);
}

int os_file_identify(int file, struct os_file_identity *identity)
{
    struct stat status = {0};
    long result = kernel_call(SYS_fstat, file, (long)&status, 0, 0, 0, 0);
    *identity = (struct os_file_identity){status.st_dev, status.st_ino};
    return kernel_result(result);
}

static bool os_file_is_same(const struct os_file_identity *one,
                            const struct os_file_identity *other)
{
    return one->device == other->device && one->number == other->number;
}

int os_path_identify(const char *path, struct os_file_identity *identity)
{
    struct stat status = {0};
    long result =
        kernel_call(SYS_newfstatat, AT_FDCWD, (long)path, (long)&status, AT_SYMLINK_NOFOLLOW, 0, 0);
    *identity = (struct os_file_identity){status.st_dev, status.st_ino};
    return kernel_result(result);
}

bool os_path_is(const char *path, const struct os_file_identity *identity)
{
    struct os_file_identity now;
    return os_path_identify(path, &now) == 0 && os_file_is_same(&now, identity);
}

int os_file_move_up(int file)
{
    enum { FIRST = 500, SECOND = 10 }; /* above the numbers that programs usually choose */
    long copy = kernel_call(SYS_fcntl, file, F_DUPFD_CLOEXEC, FIRST, 0, 0, 0);
    if (copy == -EINVAL) /* above the limit of descriptors */
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

int os_file_own(struct os_own_file *own, int file)
{
    if (file < 0)
        return file;
    file = os_file_move_up(file);
    int error = os_file_identify(file, &own->identity);
    if (error != 0)
        os_file_close(file);
    store_relaxed(&own->number, error != 0 ? -1 : file);
    return error;
}

bool os_file_is_own(const struct os_own_file *own)
{
    struct os_file_identity now;
    int file = load_relaxed(&own->number);
    return file >= 0 && os_file_identify(file, &now) == 0 && os_file_is_same(&now, &own->identity);
}

int os_file_own_number(struct os_own_file *own)
{
    if (load_relaxed(&own->number) >= 0 && !os_file_is_own(own))
        store_relaxed(&own->number, -1);
    return load_relaxed(&own->number);
}

void os_file_close_own(struct os_own_file *own)
{
    int file = os_file_own_number(own);
    store_relaxed(&own->number,
                  -1); /* first, so that a fork in between leaves the child nothing to close */
    os_file_close(file);
}

static_check(OS_SOCKET_PATH_MAX < sizeof(((struct sockaddr_un *)0)->sun_path), "with its end");

static int os_new_socket(void)
{
    int error;
    if (fault_strikes(&error))
        return error;
    return (int)kernel_call(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0,
                            0, 0);
}

/* Makes the address of a path.
 * Returns: false when the path is too long. */
static bool os_address_of(const char *path, struct sockaddr_un *address)
{
    size_t length = text_length(path);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length > OS_SOCKET_PATH_MAX)
        return false;
    memcpy(address->sun_path, path, length + 1);
    return true;
}

/* Whether the path is a socket that no process serves. */
static bool os_is_left_over(const struct sockaddr_un *address)
{
    struct stat status;
    long error = kernel_call(SYS_newfstatat, AT_FDCWD, (long)address->sun_path, (long)&status,
                             AT_SYMLINK_NOFOLLOW, 0, 0);
    if (kernel_failed(error) || !S_ISSOCK(status.st_mode))
        return false;
    int file = os_new_socket();
    if (file < 0)
        return false;
    error = kernel_call(SYS_connect, file, (long)address, (long)sizeof *address, 0, 0, 0);
    os_file_close(file);
    return error == -ECONNREFUSED;
}

int os_socket_listen(const char *path)
{
    struct sockaddr_un address;
    if (!os_address_of(path, &address))
        return -ENAMETOOLONG;
    int file = os_new_socket();
    if (file < 0)
        return file;
    /* The file gets the mode of the socket minus the umask, so it never has more permissions
     * than that. */
    (void)kernel_call(SYS_fchmod, file, 0600, 0, 0, 0, 0);
    long bound = kernel_call(SYS_bind, file, (long)&address, (long)sizeof address, 0, 0, 0);
    if (bound == -EADDRINUSE && os_is_left_over(&address) && os_file_remove(path) == 0)
        bound = kernel_call(SYS_bind, file, (long)&address, (long)sizeof address, 0, 0, 0);
    int error = kernel_result(bound);
    if (error == 0)
        error = kernel_result(kernel_call(SYS_listen, file, OS_SOCKET_WAITING, 0, 0, 0, 0));
    if (error == 0)
        return file;
    os_file_close(file);
    return error;
}

int os_socket_accept(int listener)
{
    long file = kernel_call(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0);
    if (kernel_failed(file))
        return (int)file;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t size = sizeof peer;
    long own = kernel_call(SYS_geteuid, 0, 0, 0, 0, 0, 0);
    long known =
        kernel_call(SYS_getsockopt, file, SOL_SOCKET, SO_PEERCRED, (long)&peer, (long)&size, 0);
    if (!kernel_failed(known) && (peer.uid == 0 || peer.uid == (uid_t)own))
        return (int)file;
    os_file_close((int)file);
    return -EPERM;
}

int os_socket_receive(int socket, void *to, size_t capacity_bytes)
{
    long got =
        kernel_call(SYS_recvfrom, socket, (long)to, (long)capacity_bytes, MSG_DONTWAIT, 0, 0);
    return got == -EINTR ? -EAGAIN : (int)got;
}

int os_socket_send(int socket, const void *from, size_t size_bytes)
{
    long sent = kernel_call(SYS_sendto, socket, (long)from, (long)size_bytes,
                            MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
    return sent == -EINTR ? -EAGAIN : (int)sent;
}

int os_event_make(void)
{
    int error;
    if (fault_strikes(&error))
        return error;
    long event =
        kernel_call(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0, 0, 0);
    if (kernel_failed(event))
        return (int)event;
    /* The socket is connected to itself, by a name that the kernel chooses; so no other socket
     * can send to it. */
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    socklen_t size = sizeof own;
    error = kernel_result(
        kernel_call(SYS_bind, event, (long)&own, (long)sizeof own.sun_family, 0, 0, 0));
    if (error == 0)
        error =
            kernel_result(kernel_call(SYS_getsockname, event, (long)&own, (long)&size, 0, 0, 0));
    if (error == 0)
        error = kernel_result(kernel_call(SYS_connect, event, (long)&own, (long)size, 0, 0, 0));
    if (error == 0)
        return (int)event;
    os_file_close((int)event);
    return error;
}

/* If the buffer is full, the event is set already. */
void os_event_set(int event)
{
    char one = 1;
    (void)os_socket_send(event, &one, sizeof one);
}

void os_event_clear(int event)
{
    char one;
    while (os_socket_receive(event, &one, sizeof one) > 0)
        ;
}

void os_wait_for(struct os_wait *entries, unsigned count, unsigned timeout_ms)
{
    struct pollfd files[OS_WAIT_MAX];
    struct timespec time = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
    for (unsigned i = 0; i < count && i < OS_WAIT_MAX; i++)
        files[i] = (struct pollfd){
            .fd = entries[i].file,
            .events = (short)((entries[i].reads ? POLLIN : 0) | (entries[i].writes ? POLLOUT : 0)),
        };
    long ready = kernel_call(SYS_ppoll, (long)files, count, (long)&time, 0, 0, 0);
    for (unsigned i = 0; i < count && i < OS_WAIT_MAX; i++)
        entries[i].ready = ready > 0 && files[i].revents != 0;
}
