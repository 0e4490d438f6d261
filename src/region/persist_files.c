/* The persistent heap's files: made, opened, locked, and put away.
 *
 * A new heap's file is made under a name of its own, durable, and then renamed, never over another
 * one: so a file with the heap's name is always a whole heap. The logs are made by every open that
 * finds the heap closed, and removed by close; while the header says PERSIST_LOGGING they belong to
 * the heap and must be there. All that is done under the lock on the heap's file.
 *
 * What is opened for writing is settled first: headers and log are judged as the disk has them.
 * What a killed program left in memory alone would else be taken for durable; recovery would write
 * parts of a commit into the data that a power loss then takes from the log.
 */
#include "region/persist_files.h"
#include "base/check.h"
#include "os/os.h"

#include <errno.h>

enum { SUFFIX_MOST = 32 };

/* path + suffix; false when it is too long. */
static bool join(char *to, const char *path, const char *suffix)
{
    size_t length = format_text(to, PERSIST_PATH_MOST + SUFFIX_MOST, "%s%s", path, suffix);
    return length < PERSIST_PATH_MOST;
}

static void number_suffix(char *suffix, unsigned index)
{
    (void)format_text(suffix, SUFFIX_MOST, ".log%u", index);
}

/* The whole content of a new heap's file: headers, then nothing. */
static int fill_new(int file, size_t data_bytes)
{
    struct persist_header header = {.magic = PERSIST_MAGIC,
                                    .version = PERSIST_VERSION,
                                    .page_bytes = (uint32_t)os_page_size(),
                                    .byte_order = PERSIST_BYTE_ORDER,
                                    .identity = os_entropy(),
                                    .data_bytes = data_bytes,
                                    .log_use = PERSIST_CLOSED};
    int error = os_file_truncate(file, PERSIST_DATA_OFFSET + data_bytes);
    for (unsigned i = 0; error == 0 && i < 2; i++)
        error = header_write(file, &header);
    return error;
}

static int create(const char *path, size_t data_bytes)
{
    char fresh[PERSIST_PATH_MOST + SUFFIX_MOST];
    char suffix[SUFFIX_MOST];
    uint64_t random = os_entropy();
    (void)format_text(suffix, sizeof suffix, ".%x%x.new", (unsigned)(random >> 32),
                      (unsigned)random);
    if (!join(fresh, path, suffix))
        return -ENAMETOOLONG;
    int file = os_file_open(fresh, OS_FILE_NEW);
    if (file < 0)
        return file;
    int error = fill_new(file, data_bytes);
    os_file_close(file);
    if (error == 0)
        error = os_file_rename(fresh, path);
    if (error != 0) {
        (void)os_file_remove(fresh);
        return error == -EEXIST ? 0 : error; /* somebody else was faster */
    }
    return os_directory_sync(path);
}

static int open_locked(const char *path, const struct cairn_persist_options *options,
                       size_t data_bytes)
{
    bool reading = (options->flags & CAIRN_PERSIST_READ_ONLY) != 0;
    enum os_file_mode mode = reading ? OS_FILE_READ : OS_FILE_WRITE;
    int file = os_file_open(path, mode);
    if (file == -ENOENT && (options->flags & CAIRN_PERSIST_CREATE) && !reading) {
        int error = create(path, data_bytes);
        file = error != 0 ? error : os_file_open(path, mode);
    }
    int error = file >= 0 ? os_file_lock(file, !reading) : file;
    if (error == 0 && !reading)
        error = os_file_settle(file, PERSIST_DATA_OFFSET);
    if (error != 0) {
        os_file_close(file);
        return error;
    }
    return file;
}

int files_open(const char *path, const struct cairn_persist_options *options, size_t data_bytes)
{
    for (;;) {
        int file = open_locked(path, options, data_bytes);
        if (file < 0 || !os_file_is_nameless(file))
            return file;
        os_file_close(file); /* `cairn persist compact` put another one in its place meanwhile */
    }
}

static int open_log(struct cairn_persist *heap, unsigned index, enum os_file_mode mode)
{
    char name[PERSIST_PATH_MOST + SUFFIX_MOST];
    char suffix[SUFFIX_MOST];
    number_suffix(suffix, index);
    if (!join(name, heap->path, suffix))
        return -ENAMETOOLONG;
    struct segment *segment = &heap->segments[index];
    segment->file = os_file_open(name, mode);
    if (segment->file < 0)
        return segment->file;
    int error = mode == OS_FILE_CREATE  ? os_file_truncate(segment->file, 0)
                : mode == OS_FILE_WRITE ? os_file_settle(segment->file, 0)
                                        : 0;
    int64_t size = error == 0 ? os_file_size(segment->file) : error;
    segment->room = size > 0 ? (uint64_t)size : 0;
    return size < 0 ? (int)size : 0;
}

int files_open_logs(struct cairn_persist *heap, const char **why)
{
    bool reading = (heap->flags & CAIRN_PERSIST_READ_ONLY) != 0;
    bool expected = heap->header.log_use == PERSIST_LOGGING;
    if (reading && !expected)
        return 0;
    enum os_file_mode mode = reading ? OS_FILE_READ : expected ? OS_FILE_WRITE : OS_FILE_CREATE;
    for (unsigned i = 0; i < 2; i++) {
        int error = open_log(heap, i, mode);
        if (error == -ENOENT && expected) {
            *why = "the heap's log is missing";
            return -EBADMSG;
        }
        if (error != 0)
            return error;
    }
    return expected ? 0 : os_directory_sync(heap->path);
}

void files_remove_logs(const struct cairn_persist *heap)
{
    char name[PERSIST_PATH_MOST + SUFFIX_MOST];
    char suffix[SUFFIX_MOST];
    for (unsigned i = 0; i < 2; i++) {
        number_suffix(suffix, i);
        if (join(name, heap->path, suffix))
            (void)os_file_remove(name);
    }
}

void files_close(struct cairn_persist *heap)
{
    os_file_close(heap->segments[0].file);
    os_file_close(heap->segments[1].file);
    os_file_close(heap->file); /* last: with it the lock goes */
    heap->file = heap->segments[0].file = heap->segments[1].file = -1;
}
