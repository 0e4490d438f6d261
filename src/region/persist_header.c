/* The persistent heap's twin headers.
 *
 * A header is one sector, written in turn to two places 32 KiB apart, each time followed by an
 * fdatasync: a write that is cut spoils the older of the two only. Reading takes the sound one with
 * the higher turn. One that is not sound while the other is, is what a crash leaves behind: the
 * next write replaces it. If it was damaged otherwise the log tells: see log_end.later.
 */
#include "base/checksum.h"
#include "os/os.h"
#include "region/persist_heap.h"

#include <errno.h>

static uint64_t header_sum(const struct persist_header *header)
{
    return checksum_of(header, offsetof(struct persist_header, checksum), PERSIST_MAGIC);
}

static bool is_sound(const struct persist_header *header)
{
    return header->magic == PERSIST_MAGIC && header->checksum == header_sum(header);
}

static const char *foreign(const struct persist_header *header)
{
    if (header->byte_order != PERSIST_BYTE_ORDER)
        return "the heap was written by a machine of another byte order";
    if (header->version != PERSIST_VERSION)
        return "the heap's format is of a version that this library does not know";
    if (header->page_bytes != os_page_size())
        return "the heap was written by a machine with another page size";
    return NULL;
}

int header_read(int file, struct persist_header *header, const char **why)
{
    struct persist_header twins[2];
    int64_t size = os_file_size(file);
    if (size < 0)
        return (int)size;
    if (size < PERSIST_DATA_OFFSET) {
        *why = "the file is too short for a heap";
        return -ENOTSUP;
    }
    for (unsigned i = 0; i < 2; i++) {
        int error = os_file_read(file, &twins[i], sizeof twins[i],
                                 (uint64_t)i * PERSIST_HEADER_SPACING_BYTES);
        if (error != 0)
            return error;
    }
    bool sound[2] = {is_sound(&twins[0]), is_sound(&twins[1])};
    if (!sound[0] && !sound[1]) {
        bool ours = twins[0].magic == PERSIST_MAGIC || twins[1].magic == PERSIST_MAGIC;
        *why = ours ? "both headers of the heap are damaged" : "the file is not a heap";
        return ours ? -EBADMSG : -ENOTSUP;
    }
    unsigned newer = sound[1] && (!sound[0] || twins[1].turn > twins[0].turn);
    *header = twins[newer];
    *why = foreign(header);
    if (*why)
        return -ENOTSUP;
    if (header->data_bytes > (uint64_t)size - PERSIST_DATA_OFFSET) {
        *why = "the heap's file is shorter than it was";
        return -EBADMSG;
    }
    return 0;
}

int header_write(int file, struct persist_header *header)
{
    header->turn++;
    header->checksum = header_sum(header);
    int error = os_file_write(file, header, sizeof *header,
                              header->turn % 2 * PERSIST_HEADER_SPACING_BYTES);
    return error != 0 ? error : os_file_sync(file);
}
