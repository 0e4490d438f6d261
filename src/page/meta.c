/* The bump allocator for metadata: see meta.h. */
#include "page/meta.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "os/os.h"

/* A chunk is aligned to its size, so the cursor alone tells where its chunk ends; a cursor at a multiple of the chunk
 * size stands for an exhausted chunk. */
static uintptr_t cursors[META_KINDS]; /* atomic: next free byte; 0 before the first chunk */
static size_t total_bytes;            /* atomic */

static char *map_chunk(void)
{
    char *start = os_reserve(2 * META_CHUNK_BYTES);
    if (start == NULL)
        return NULL;
    char *chunk = (char *)align_up((uintptr_t)start, META_CHUNK_BYTES);
    size_t before = (size_t)(chunk - start);
    if (before > 0)
        os_unmap(start, before);
    if (before < META_CHUNK_BYTES)
        os_unmap(chunk + META_CHUNK_BYTES, META_CHUNK_BYTES - before);
    if (os_commit(chunk, META_CHUNK_BYTES) == 0) {
        os_name(chunk, META_CHUNK_BYTES, "cairn: metadata");
        fetch_add_relaxed(&total_bytes, (size_t)META_CHUNK_BYTES);
        return chunk;
    }
    os_unmap(chunk, META_CHUNK_BYTES);
    return NULL;
}

void *meta_take(enum meta_kind kind, size_t size_bytes)
{
    size_bytes = align_up(size_bytes, 64);
    check_internal(size_bytes <= META_CHUNK_BYTES);
    uintptr_t cursor = load_acquire(&cursors[kind]);
    for (;;) {
        uintptr_t room = -cursor % META_CHUNK_BYTES;
        if (size_bytes <= room) {
            if (compare_swap_acq_rel(&cursors[kind], &cursor, cursor + size_bytes))
                return (void *)cursor;
            continue;
        }
        char *chunk = map_chunk();
        if (chunk == NULL)
            return NULL;
        if (compare_swap_acq_rel(&cursors[kind], &cursor, (uintptr_t)chunk + size_bytes))
            return chunk;
        os_unmap(chunk, META_CHUNK_BYTES); /* another thread brought one meanwhile */
        fetch_sub_relaxed(&total_bytes, (size_t)META_CHUNK_BYTES);
    }
}

size_t meta_bytes(void) { return load_relaxed(&total_bytes); }
