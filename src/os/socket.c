/* Unix sockets, events and waiting for them: what the control socket needs of the system. See os.h.
 * No state. Descriptors are closed by exec and never block.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* struct ucred, ppoll */
#endif
#include "base/text.h"
#include "os/kernel.h"
#include "os/os.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

_Static_assert(OS_SOCKET_PATH_MOST < sizeof(((struct sockaddr_un *)0)->sun_path), "with its end");

static int result_of(long result) { return kernel_failed(result) ? (int)result : 0; }

static void close_file(int file) { kernel_call(SYS_close, file, 0, 0, 0, 0, 0); }

static int new_socket(void)
{
    int error;
    if (fault_strikes(&error))
        return error;
    return (int)kernel_call(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0,
                            0, 0);
}

/* False: the path does not fit. */
static bool address_of(const char *path, struct sockaddr_un *address)
{
    size_t length = text_length(path);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length > OS_SOCKET_PATH_MOST)
        return false;
    memcpy(address->sun_path, path, length + 1);
    return true;
}

/* Whether the path is a socket that nobody serves any more. */
static bool is_left_over(const struct sockaddr_un *address)
{
    struct stat status;
    long error = kernel_call(SYS_newfstatat, -100 /* AT_FDCWD */, (long)address->sun_path,
                             (long)&status, 0x100 /* AT_SYMLINK_NOFOLLOW */, 0, 0);
    if (kernel_failed(error) || !S_ISSOCK(status.st_mode))
        return false;
    int file = new_socket();
    if (file < 0)
        return false;
    error = kernel_call(SYS_connect, file, (long)address, (long)sizeof *address, 0, 0, 0);
    close_file(file);
    return error == -ECONNREFUSED;
}

int os_socket_listen(const char *path)
{
    struct sockaddr_un address;
    if (!address_of(path, &address))
        return -ENAMETOOLONG;
    int file = new_socket();
    if (file < 0)
        return file;
    /* The file gets the socket's mode, less the umask: never more, at no time. */
    (void)kernel_call(SYS_fchmod, file, 0600, 0, 0, 0, 0);
    long bound = kernel_call(SYS_bind, file, (long)&address, (long)sizeof address, 0, 0, 0);
    if (bound == -EADDRINUSE && is_left_over(&address) && os_file_remove(path) == 0)
        bound = kernel_call(SYS_bind, file, (long)&address, (long)sizeof address, 0, 0, 0);
    int error = result_of(bound);
    if (error == 0)
        error = result_of(kernel_call(SYS_listen, file, OS_SOCKET_WAITING, 0, 0, 0, 0));
    if (error == 0)
        return file;
    close_file(file);
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
    close_file((int)file);
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
    /* Connected to itself, by the name that the kernel finds; nobody else can send to it then. */
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    socklen_t size = sizeof own;
    error =
        result_of(kernel_call(SYS_bind, event, (long)&own, (long)sizeof own.sun_family, 0, 0, 0));
    if (error == 0)
        error = result_of(kernel_call(SYS_getsockname, event, (long)&own, (long)&size, 0, 0, 0));
    if (error == 0)
        error = result_of(kernel_call(SYS_connect, event, (long)&own, (long)size, 0, 0, 0));
    if (error == 0)
        return (int)event;
    close_file((int)event);
    return error;
}

/* Where there is no room for one more, it is set. */
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
    struct pollfd files[OS_WAIT_MOST];
    struct timespec time = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
    for (unsigned i = 0; i < count && i < OS_WAIT_MOST; i++)
        files[i] = (struct pollfd){
            .fd = entries[i].file,
            .events = (short)((entries[i].reads ? POLLIN : 0) | (entries[i].writes ? POLLOUT : 0)),
        };
    long ready = kernel_call(SYS_ppoll, (long)files, count, (long)&time, 0, 0, 0);
    for (unsigned i = 0; i < count && i < OS_WAIT_MOST; i++)
        entries[i].ready = ready > 0 && files[i].revents != 0;
}
