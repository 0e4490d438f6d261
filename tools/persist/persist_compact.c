// The command compact makes another file with equal blocks at equal places, and replaces the heap
// by it.
//
// Blocks keep their places, because only the program knows the pointers to them. Compacting removes
// the log, whose commits are written to the file, the free block at the end of the file, and the
// disk space of pages within other free blocks, which become holes. The heap grows into the holes
// again as its program allocates.
//
// Steps: the heap's file is locked against all other users. The file and its logs are copied under
// names of their own. The copy is opened, which recovers it, checked, trimmed and closed. The copy
// is shortened, made durable, locked and renamed over the heap, and the old logs are removed. Until
// the rename the heap is unchanged. After it the logs do not matter, because the new header does
// not refer to them. Finally the old file is emptied: a program that had opened it but locks it too
// late then finds no heap, instead of writing to a file without a name.
#define _GNU_SOURCE // F_OFD_SETLK, SEEK_DATA
#include "persist_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "region/persist_heap.h"
#include "region/tlsf.h"

enum { NAMES = 3, NAME_BYTES = PATH_MAX + 64, LENGTH_BYTES = 65536 };

// The paths of the heap's file and its logs, and of their copies.
static char old_names[NAMES][NAME_BYTES];
static char new_names[NAMES][NAME_BYTES];

static void remove_copies(void)
{
    for (int i = 0; i < NAMES; i++)
        if (new_names[i][0])
            (void)unlink(new_names[i]);
}

static void on_end(int number)
{
    remove_copies();
    _exit(128 + number);
}

static noreturn void give_up(const char *sentence, int error)
{
    remove_copies();
    fail(sentence, error);
}

// Copies the data of a file and skips its holes. Returns: 0 or an errno.
static int copy_data(int from, int to, off_t size)
{
    static char buffer[1 << 20];
    off_t at = 0;
    if (ftruncate(to, size) != 0)
        return errno;
    while ((at = lseek(from, at, SEEK_DATA)) >= 0 && at < size) {
        off_t end = lseek(from, at, SEEK_HOLE);
        if (end < 0)
            return errno;
        while (at < end) {
            size_t wanted = end - at < (off_t)sizeof buffer ? (size_t)(end - at) : sizeof buffer;
            ssize_t got = pread(from, buffer, wanted, at);
            ssize_t put = got > 0 ? pwrite(to, buffer, (size_t)got, at) : got;
            if (put <= 0)
                return put < 0 ? errno : EIO; // the file was truncated meanwhile
            at += put;
        }
    }
    return at >= size || errno == ENXIO ? 0 : errno;
}

static void copy(int from, const char *name, const struct stat *status)
{
    int to = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to < 0)
        give_up("cannot create a file for the copy in its folder", errno);
    int error = copy_data(from, to, status->st_size);
    if (error == 0 && (fchown(to, status->st_uid, status->st_gid) != 0 ||
                       fchmod(to, status->st_mode & 07777) != 0))
        give_up("cannot give the copy the heap's owner and mode", errno);
    if (close(to) != 0 && error == 0)
        error = errno;
    if (error != 0)
        give_up("cannot write the copy", error);
}

// Copies the logs. Returns: their disk space in bytes.
static uint64_t copy_logs(void)
{
    uint64_t bytes = 0;
    for (int i = 1; i < NAMES; i++) {
        struct stat status;
        int log = open(old_names[i], O_RDONLY | O_CLOEXEC);
        if (log < 0 && errno == ENOENT)
            continue;
        if (log < 0 || fstat(log, &status) != 0)
            give_up("cannot open its log", errno);
        copy(log, new_names[i], &status);
        bytes += (uint64_t)status.st_blocks * 512;
        close(log);
    }
    return bytes;
}

// Opens the copy at the heap's last address, or fails: elsewhere the plain pointers in it would be
// invalid.
static void recover_copy(const char **finding)
{
    cairn_persist *heap =
        open_heap(new_names[0], CAIRN_PERSIST_FIXED | CAIRN_PERSIST_CHECK, finding);
    if (!heap)
        return;
    struct cairn_persist_stats stats;
    cairn_persist_read_stats(heap, &stats);
    int error = stats.last_commit == 0 ? 0 : cairn_persist_trim(heap);
    int closed = cairn_persist_close(heap);
    if (error != 0 || closed != 0)
        give_up("cannot write the copy", error != 0 ? error : closed);
}

// Removes the free block at the end, except the part that TLSF needs. The copy is closed and has no
// other user; after a failure it is removed.
static void shorten_copy(int file)
{
    struct persist_header header;
    const char *why = NULL;
    int error = header_read(file, &header, &why);
    void *data = error != 0 ? MAP_FAILED
                            : mmap(NULL, header.data_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                   file, PERSIST_DATA_OFFSET);
    if (data == MAP_FAILED)
        give_up("cannot shorten the copy", error != 0 ? -error : errno);
    struct persist_state *state = data;
    struct cairn_tlsf *tlsf = (void *)((char *)data + PERSIST_STATE_BYTES);
    if (state->magic != PERSIST_STATE_MAGIC)
        return; // nothing was committed yet
    size_t spare = tlsf_free_at_end(tlsf);
    size_t cut = spare <= BLOCK_MIN_BYTES ? 0 : align_down(spare - BLOCK_MIN_BYTES, LENGTH_BYTES);
    if (cut > 0)
        tlsf_cut(tlsf, cut);
    state->size_bytes -= cut;
    size_t mapped = header.data_bytes;
    header.data_bytes = state->size_bytes;
    munmap(data, mapped);
    for (int i = 0; error == 0 && i < 2; i++)
        error = -header_write(file, &header);
    if (error == 0 && ftruncate(file, (off_t)(PERSIST_DATA_OFFSET + header.data_bytes)) != 0)
        error = errno;
    if (error != 0)
        give_up("cannot shorten the copy", error);
}

static int lock_whole(int file)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

static void sync_folder(void)
{
    char *slash = strrchr(old_names[0], '/');
    *slash = '\0';
    int folder = open(slash == old_names[0] ? "/" : old_names[0], O_RDONLY | O_CLOEXEC);
    *slash = '/';
    if (folder >= 0) {
        (void)fsync(folder); // without it a power loss may restore the whole old file
        close(folder);
    }
}

// Replaces the heap by the copy. The copy is locked, so its next user opens it after the old logs
// were removed.
static void replace(int old, int new)
{
    if (fsync(new) != 0 || rename(new_names[0], old_names[0]) != 0)
        give_up("cannot rename the copy over the heap", errno);
    sync_folder();
    for (int i = 1; i < NAMES; i++)
        (void)unlink(old_names[i]);
    struct stat status;
    if (fstat(old, &status) == 0 && status.st_nlink == 0 && ftruncate(old, 0) != 0)
        return; // no program can open it any more
}

static void set_names(const char *path)
{
    char *real = realpath(path, NULL);
    if (!real)
        fail("cannot resolve its path", errno);
    for (int i = 0; i < NAMES; i++) {
        char suffix[8] = "";
        if (i > 0)
            snprintf(suffix, sizeof suffix, ".log%d", i - 1);
        snprintf(old_names[i], NAME_BYTES, "%s%s", real, suffix);
        snprintf(new_names[i], NAME_BYTES, "%s.%ld.compact%s", real, (long)getpid(), suffix);
    }
    free(real);
}

static int open_locked(const char *path, struct stat *status)
{
    int file = open_file(path, O_RDWR, status);
    if (status->st_nlink > 1)
        fail("it has other names (hard links), which would keep the old file", 0);
    int error = lock_whole(file);
    if (error == EAGAIN || error == EACCES)
        fail("another process has the heap open", 0);
    if (error != 0)
        fail("cannot lock the heap", error);
    struct persist_header header;
    const char *why = NULL;
    error = header_read(file, &header, &why);
    if (error == -ENOTSUP) // known before the copy
        fail(why, 0);
    if (fstat(file, status) != 0)
        fail("cannot read its attributes", errno);
    return file;
}

int compact(const char *path)
{
    struct stat before, after;
    int old = open_locked(path, &before);
    set_names(path);
    for (size_t i = 0; i < 3; i++)
        signal((int[]){SIGINT, SIGTERM, SIGHUP}[i], on_end);
    atexit(remove_copies);
    copy(old, new_names[0], &before);
    uint64_t was = (uint64_t)before.st_blocks * 512 + copy_logs();
    const char *finding = NULL;
    recover_copy(&finding);
    if (finding) {
        printf("finding\t%s\n", finding);
        return STATUS_DAMAGED;
    }
    int new = open(new_names[0], O_RDWR | O_CLOEXEC);
    if (new < 0 || lock_whole(new) != 0)
        give_up("cannot open the copy", errno);
    shorten_copy(new);
    if (fsync(new) != 0 || fstat(new, &after) != 0)
        give_up("cannot write the copy", errno);
    uint64_t is = (uint64_t)after.st_blocks * 512;
    bool smaller = is < was || after.st_size < before.st_size;
    if (smaller)
        replace(old, new);
    printf("file_bytes\t%jd\ndisk_bytes_before\t%ju\ndisk_bytes\t%ju\nreplaced\t%d\n",
           (intmax_t)(smaller ? after.st_size : before.st_size), (uintmax_t)was,
           (uintmax_t)(smaller ? is : was), smaller);
    return 0;
}
