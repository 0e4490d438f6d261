/* The bump allocator for metadata: see meta.h.
 *
 * A chunk's cursor moves by an atomic add alone; whoever moves it past the end brings a new chunk,
 * and the rest of the old one is lost. When the system gives no more mappings, pages that lie free
 * in an arena serve as chunks, so that freed memory can be used again while a limit is reached.
 */
#include "page/meta.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/os.h"
#include "page/state.h"

struct chunk {
    char *start;       /* const after init */
    size_t size_bytes; /* const after init */
    size_t used_bytes; /* atomic: may exceed the size */
};

/* Rows of lines for the small pieces of some threads: the next one's address, in its low bits how
 * many are left, an even number below 64 at first. Exchanged as one word, so any thread may take
 * from any row. */
enum { LINE_BYTES = 64, PAIR_BYTES = 2 * LINE_BYTES, ROWS = 8 };
static const size_t row_lines[META_KINDS] = {[META_HOT] = 8, [META_COLD] = 62};

static uintptr_t rows[META_KINDS][ROWS]; /* atomic */
static struct chunk *chunks[META_KINDS]; /* atomic: the current one */
static size_t total_bytes;               /* atomic */

/* At least `least` bytes, as many as there are. Pages of an arena never go back to it, so they too
 * are taken many at a time: single ones would divide it for good. */
static char *map_chunk(size_t least, size_t *size_bytes)
{
    least = align_up(least, larger_of(os_page_size(), PAGE_BYTES));
    for (size_t size = larger_of(META_CHUNK_BYTES, least);; size = larger_of(size / 8, least)) {
        *size_bytes = size;
        char *start = fenced_map(align_up(size, os_page_size()));
        if (start)
            os_name(start, size, "cairn: metadata");
        else
            start = pages_steal(size >> PAGE_SHIFT);
        if (start || size <= least)
            return start;
    }
}

/* The hot chunk's descriptor is its first pair of lines; the cold one's must not touch cold memory.
 */
static struct chunk *make_chunk(enum meta_kind kind, size_t least)
{
    struct chunk *chunk = kind == META_COLD ? meta_take(META_HOT, sizeof *chunk) : NULL;
    if (kind == META_COLD && chunk == NULL)
        return NULL;
    size_t size_bytes;
    char *start = map_chunk(kind == META_HOT ? least + PAIR_BYTES : least, &size_bytes);
    if (start == NULL)
        return NULL;
    size_t used = 0;
    if (kind == META_HOT) {
        chunk = (struct chunk *)(void *)start;
        used = PAIR_BYTES;
    }
    *chunk = (struct chunk){start, size_bytes, used};
    return chunk;
}

void *meta_take(enum meta_kind kind, size_t size_bytes)
{
    size_bytes = align_up(size_bytes, PAIR_BYTES);
    struct chunk *chunk = load_acquire(&chunks[kind]); /* pairs with the publication below */
    for (;;) {
        if (chunk) {
            size_t at = fetch_add_relaxed(&chunk->used_bytes, size_bytes);
            if (at + size_bytes <= chunk->size_bytes)
                return chunk->start + at;
        }
        struct chunk *fresh = make_chunk(kind, size_bytes);
        if (fresh == NULL)
            return NULL;
        if (compare_swap_acq_rel(&chunks[kind], &chunk, fresh)) {
            fetch_add_relaxed(&total_bytes, fresh->size_bytes);
            chunk = fresh;
        }
        /* else another thread brought one meanwhile; ours is lost, at most once for each of its
         * chunks */
    }
}

void *meta_take_near(enum meta_kind kind, size_t size_bytes)
{
    uintptr_t lines = align_up(size_bytes, LINE_BYTES) / LINE_BYTES;
    uintptr_t *row = &rows[kind][(thread_identity() >> PAGE_SHIFT) % ROWS];
    uintptr_t next = load_relaxed(row);
    while (next % LINE_BYTES >= lines)
        if (compare_swap_acq_rel(row, &next, next + lines * LINE_BYTES - lines))
            return (void *)align_down(next, LINE_BYTES);
    size_t whole = row_lines[kind];
    char *fresh = lines <= whole / 2 ? meta_take(kind, whole * LINE_BYTES) : NULL;
    if (fresh == NULL)
        return meta_take(kind, size_bytes);
    /* The rest of the row before is lost; ours, when another thread was first. */
    (void)compare_swap_acq_rel(row, &next, (uintptr_t)fresh + lines * LINE_BYTES + whole - lines);
    return fresh;
}

void meta_forget_chunks(void)
{
    for (int kind = 0; kind < META_KINDS; kind++) {
        store_relaxed(&chunks[kind], (struct chunk *)NULL);
        for (int i = 0; i < ROWS; i++)
            store_relaxed(&rows[kind][i], (uintptr_t)0);
    }
}

size_t meta_bytes(void) { return load_relaxed(&total_bytes); }
