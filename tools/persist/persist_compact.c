// compact: another file with the same blocks at the same places, that then takes the heap's place.
//
// Blocks stay where they are: pointers lead to them, and only the program knows which. What goes is
// the log, which is brought to the file, the free block at the file's end, and the disk space of
// pages that lie within other free blocks: they become holes. The heap grows into them again as its
// program allocates.
//
// Steps: the heap's file is locked against every other user; it and its logs are copied under names
// of their own; the copy is opened, which recovers it, walked, trimmed and closed; it is shortened,
// made durable and locked, renamed over the heap, and the old logs are removed. Until the rename
// nothing of the heap has changed; after it the logs do not matter, since the new header does not
// ask for them. At last the old file is emptied: who had opened it, but came too late for its lock,
// finds no heap there, where it would have written to a file without a name.
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
#include "region/tlsf_region.h"

enum { NAMES = 3, NAME_BYTES = PATH_MAX + 64, LENGTH_BYTES = 65536 /* what open expects */ };

// The heap's file and its logs, and the copies of them.
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

// Copies what is no hole.
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
                return put < 0 ? errno : EIO; // it was cut meanwhile
            at += put;
        }
    }
    return at >= size || errno == ENXIO ? 0 : errno;
}

static void copy(int from, const char *name, const struct stat *status)
{
    int to = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to < 0)
        give_up("a new file beside it cannot be made", errno);
    int error = copy_data(from, to, status->st_size);
    if (error == 0 && (fchown(to, status->st_uid, status->st_gid) != 0 ||
                       fchmod(to, status->st_mode & 07777) != 0))
        give_up("its owner and mode cannot be given to a new file", errno);
    if (close(to) != 0 && error == 0)
        error = errno;
    if (error != 0)
        give_up("the copy cannot be written", error);
}

// The bytes that the logs take of the disk.
static uint64_t copy_logs(void)
{
    uint64_t bytes = 0;
    for (int i = 1; i < NAMES; i++) {
        struct stat status;
        int log = open(old_names[i], O_RDONLY | O_CLOEXEC);
        if (log < 0 && errno == ENOENT)
            continue;
        if (log < 0 || fstat(log, &status) != 0)
            give_up("its log cannot be opened", errno);
        copy(log, new_names[i], &status);
        bytes += (uint64_t)status.st_blocks * 512;
        close(log);
    }
    return bytes;
}

// At the address of the last time, or not at all: else plain pointers in it would lead nowhere.
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
        give_up("the copy cannot be written", error != 0 ? error : closed);
}

// The free block at the end goes, but for what TLSF keeps in it. The copy is closed and nobody
// else's: were it half done, it would be removed.
static void shorten_copy(int file)
{
    struct persist_header header;
    const char *why = NULL;
    int error = header_read(file, &header, &why);
    void *data = error != 0 ? MAP_FAILED
                            : mmap(NULL, header.data_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                   file, PERSIST_DATA_OFFSET);
    if (data == MAP_FAILED)
        give_up("the copy cannot be shortened", error != 0 ? -error : errno);
    struct persist_state *state = data;
    struct cairn_tlsf *tlsf = (void *)((char *)data + PERSIST_STATE_BYTES);
    if (state->magic != PERSIST_STATE_MAGIC)
        return; // nothing was committed yet
    size_t spare = tlsf_free_at_end(tlsf);
    size_t cut =
        spare <= BLOCK_LEAST_BYTES ? 0 : align_down(spare - BLOCK_LEAST_BYTES, LENGTH_BYTES);
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
        give_up("the copy cannot be shortened", error);
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
        (void)fsync(folder); // without it a power loss may bring the old file back, whole
        close(folder);
    }
}

// The copy takes the heap's place. It is locked, so that its next user comes after the old logs
// have gone.
static void replace(int old, int new)
{
    if (fsync(new) != 0 || rename(new_names[0], old_names[0]) != 0)
        give_up("the new file cannot take its place", errno);
    sync_folder();
    for (int i = 1; i < NAMES; i++)
        (void)unlink(old_names[i]);
    struct stat status;
    if (fstat(old, &status) == 0 && status.st_nlink == 0 && ftruncate(old, 0) != 0)
        return; // nobody can open it any more
}

static void set_names(const char *path)
{
    char *real = realpath(path, NULL);
    if (!real)
        fail("its path cannot be followed", errno);
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
        fail("has further names (hard links), which would keep the old file", 0);
    int error = lock_whole(file);
    if (error == EAGAIN || error == EACCES)
        fail("the heap is in use by another process", 0);
    if (error != 0)
        fail("cannot be locked", error);
    struct persist_header header;
    const char *why = NULL;
    error = header_read(file, &header, &why);
    if (error == -ENOTSUP) // not worth a copy
        fail(why, 0);
    if (fstat(file, status) != 0)
        fail("cannot be looked at", errno);
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
        give_up("the copy cannot be opened", errno);
    shorten_copy(new);
    if (fsync(new) != 0 || fstat(new, &after) != 0)
        give_up("the copy cannot be written", errno);
    uint64_t is = (uint64_t)after.st_blocks * 512;
    bool smaller = is < was || after.st_size < before.st_size;
    if (smaller)
        replace(old, new);
    printf("file_bytes\t%jd\ndisk_bytes_before\t%ju\ndisk_bytes\t%ju\nreplaced\t%d\n",
           (intmax_t)(smaller ? after.st_size : before.st_size), (uintmax_t)was,
           (uintmax_t)(smaller ? is : was), smaller);
    return 0;
}
