/* Files, files that are written as memory, descriptors that the program may close, and Unix sockets
 * and events for the control socket.
 *
 * A function that opens a file returns a descriptor. Unless its comment says otherwise, the
 * others return 0; all return a negative errno on failure. Reads and writes are complete or
 * fail: interrupted and short calls are continued. memory.h has the contract of all functions in
 * os/.
 */
#ifndef CAIRN_OS_FILE_H
#define CAIRN_OS_FILE_H

#include "base/compiler.h"
#include "os/memory.h"

/* How to open a file. CREATE makes it if it does not exist; NEW fails with -EEXIST if it exists.
 * SECRET: only the user may access a file that is made. */
enum os_file_mode {
    OS_FILE_READ,
    OS_FILE_WRITE,
    OS_FILE_CREATE,
    OS_FILE_NEW,
    OS_FILE_CREATE_SECRET,
    OS_FILE_NEW_SECRET,
};

/* Opens a file; the descriptor is closed by exec. */
int os_file_open(const char *path, enum os_file_mode mode);

/* Closes a descriptor; a negative one is ignored. */
void os_file_close(int file);

/* The absolute path of an open file, from /proc.
 * Returns: its length or a negative errno. */
int os_file_path(int file, char *path, size_t capacity_bytes);

/* The absolute path of a name, where /proc is not mounted.
 * Returns: its length or a negative errno; -ELOOP for a symbolic link. */
int os_path_absolute(const char *path, char *to, size_t capacity_bytes);

/* Locks a file until it is closed, for this open file description.
 * Returns: 0 or a negative errno; -EBUSY when another one has locked it. */
int os_file_lock(int file, bool exclusive);

/* Whether the file has no name any more: it was removed, or another file was renamed to its
 * name. */
bool os_file_is_nameless(int file);

/* The size of a file in bytes, or a negative errno. */
int64_t os_file_size(int file);

/* Reads from a file.
 * Returns: 0 or a negative errno; -ENODATA when the file is too short. */
int os_file_read(int file, void *to, size_t size_bytes, uint64_t offset);

/* Writes to a file.
 * Returns: 0 or a negative errno; -EFBIG above the process's limit for files. */
int os_file_write(int file, const void *from, size_t size_bytes, uint64_t offset);

/* Sets the size of a file. Added bytes read zero. */
int os_file_truncate(int file, uint64_t size_bytes);

/* Makes a file at least `size_bytes` long and allocates its space on the disk. Where the file
 * system cannot allocate, only the size is set. */
int os_file_extend(int file, uint64_t size_bytes);

/* Allocates disk space for a range inside a file, whose content stays. Where the file system cannot
 * allocate, nothing happens. */
int os_file_reserve(int file, uint64_t offset, uint64_t size_bytes);

/* Makes a hole in a file: the range reads zero and has no space on the disk. The size stays. */
int os_file_punch(int file, uint64_t offset, uint64_t size_bytes);

/* Waits until the content of a file is on the disk (fdatasync). */
int os_file_sync(int file);

/* Makes reads of the first `size_bytes` (0: of all) return the content of the disk, as far as
 * the kernel can. Data that a killed program left in memory is written; data that a failed
 * write-back left there is dropped. */
int os_file_settle(int file, uint64_t size_bytes);

/* Starts to write a range to the disk and does not wait. */
void os_file_start_writing(int file, uint64_t offset, uint64_t size_bytes);

/* Renames a file.
 * Returns: 0 or a negative errno; -EEXIST when the new name exists. */
int os_file_rename(const char *from, const char *to);

/* Removes a file. */
int os_file_remove(const char *path);

/* Waits until the directory of the file `path` is on the disk. */
int os_directory_sync(const char *path);

/* Maps private pages of a file at `at`, in place of the mapping there. */
int os_file_map(int file, uint64_t offset, void *at, size_t size_bytes, enum os_access access);

/* Allocates disk space for a range of a file that will be written as memory. Makes the file
 * longer if necessary and never shorter. */
int os_file_allot(int file, uint64_t offset, size_t size_bytes);

/* Maps a range of a file as shared memory, after os_file_allot. It may begin within a system page.
 * Returns: NULL when out of memory or refused. */
void *os_file_share(int file, uint64_t offset, size_t size_bytes);

/* Unmaps what os_file_share returned. */
void os_file_unshare(void *start, size_t size_bytes);

/* The largest file that this process may write, in bytes; -1 for no limit. */
int64_t os_file_size_limit(void);

/* The identity of a file: its device and its inode number. */
struct os_file_identity {
    uint64_t device, number;
};

/* Reads the identity of an open file. */
int os_file_identify(int file, struct os_file_identity *identity);
/* Reads the identity of the file that has a name; of a symbolic link itself. */
int os_path_identify(const char *path, struct os_file_identity *identity);
/* Whether the file that has a name is that one. */
bool os_path_is(const char *path, const struct os_file_identity *identity);

/* Moves a descriptor to a high number, which programs rarely close.
 * Returns: the new descriptor, or the old one where that fails. */
int os_file_move_up(int file);

/* Makes a file in memory that has no path (memfd). */
int os_file_in_memory(const char *name);

/* A descriptor of the library in a program that may close any number and use it again. The number
 * still belongs to the library while os_file_is_own is true.
 * Threads: one thread uses it; others may call os_file_is_own. */
struct os_own_file {
    int number;                       /* atomic: descriptor, -1 for none */
    struct os_file_identity identity; /* using thread: identity of the file */
};

/* Records a new descriptor after moving it up; closes it on failure. */
int os_file_own(struct os_own_file *own, int file);

/* Whether the number still refers to the recorded file. */
bool os_file_is_own(const struct os_own_file *own);

/* The descriptor; -1 if it no longer refers to the recorded file. */
int os_file_own_number(struct os_own_file *own);

/* Closes the descriptor if it still refers to the recorded file. */
void os_file_close_own(struct os_own_file *own);

/* A watcher for tests (debug builds). The watcher is called before each kernel call that changes a
 * file, and may shorten a write by `*size_bytes` or refuse the call by a negative errno. */
enum os_file_call {
    OS_CALL_WRITE,
    OS_CALL_TRUNCATE,
    OS_CALL_EXTEND,
    OS_CALL_RESERVE,
    OS_CALL_PUNCH,
    OS_CALL_SYNC
};
typedef int os_file_watcher(enum os_file_call call, int file, uint64_t offset, const void *data,
                            size_t *size_bytes);

/* Sets the watcher, NULL for none, while no other thread uses files. */
void os_file_watch(os_file_watcher *watcher);

/* Sockets are streams. Descriptors of sockets and events never block, and are closed by exec. */

/* The longest path of a socket, and the number of connections that may wait. */
enum { OS_SOCKET_PATH_MAX = 100, OS_SOCKET_WAITING = 16 };

/* Makes a listening socket: a file of mode 0600. A socket file that no process serves is replaced.
 * Returns: a descriptor or a negative errno; -EADDRINUSE when another process serves the path. */
int os_socket_listen(const char *path);

/* Accepts a connection of this user or of root.
 * Returns: a descriptor or a negative errno; -EPERM for another user, -EAGAIN when none waits. */
int os_socket_accept(int listener);

/* Receives bytes.
 * Returns: their number, 0 at the peer's end, or a negative errno; -EAGAIN when there are none
 * yet. */
int os_socket_receive(int socket, void *to, size_t capacity_bytes);

/* Sends bytes.
 * Returns: the number of bytes sent, or a negative errno; -EAGAIN when the peer has to read
 * first. */
int os_socket_send(int socket, const void *from, size_t size_bytes);

/* Makes an event: a descriptor that is readable while the event is set. The event is a socket, so
 * that setting and clearing it has no effect on a file that has taken its number.
 * Returns: a descriptor or a negative errno. */
int os_event_make(void);

/* Sets an event. */
void os_event_set(int event);

/* Clears an event. */
void os_event_clear(int event);

enum { OS_WAIT_MAX = 16 };

/* A descriptor to wait for. */
struct os_wait {
    int file;
    bool reads, writes; /* caller: what to wait for */
    bool ready; /* os_wait_for: it is ready, or has failed, which the next call on it shows */
};

/* Waits until one of the descriptors is ready, or until the timeout, and sets `ready` in each
 * entry. At most OS_WAIT_MAX entries. */
void os_wait_for(struct os_wait *entries, unsigned count, unsigned timeout_ms);

#endif
