/* The bump allocator for metadata: see meta.h.
 *
 * A chunk's cursor moves by an atomic add alone; whoever moves it past the end brings a new chunk,
 * and the rest of the old one is lost. Chunks of both kinds come from ranges: reserved between
 * fences, the longer the more metadata there is, and made accessible chunk by chunk from their
 * start. So few mappings hold many chunks, and a process that does little reserves little.
 *
 * When the system gives no more mappings, pages that lie free in an arena serve as chunks, fenced,
 * so that freed memory can be used again while a limit is reached.
 */
#include "page/meta.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/os.h"
#include "page/fence.h"
#include "page/span.h"

struct chunk {
    char *start;       /* const after init */
    size_t size_bytes; /* const after init */
    size_t used_bytes; /* atomic: may exceed the size */
};

/* Rows of lines for the small pieces of some threads: the next one's address, in its low bits how
 * many are left, an even number below 64 at first. Exchanged as one word, so any thread may take
 * from any row. */
enum { LINE_BYTES = 64, PAIR_BYTES = 2 * LINE_BYTES, ROWS = 8, HOT_LINES = 8, COLD_LINES = 62 };

/* What ranges and chunks are measured in: a page, where pages are large. */
enum {
    UNIT_BYTES = 64 << 10,
    CHUNK_MOST = META_CHUNK_BYTES / UNIT_BYTES,
    RANGE_LEAST = META_KINDS,
    RANGE_MOST = 1024,
    UNITS_MASK = PAGE_BYTES - 1,
};
static_check(RANGE_MOST <= UNITS_MASK, "they are counted in an address's low bits");

static uintptr_t rows[META_KINDS][ROWS]; /* atomic */
static struct chunk *chunks[META_KINDS]; /* atomic: the current one */
size_t meta_total_bytes;

static char *(*last_resort)(size_t size_bytes); /* atomic: NULL before meta_start */

/* atomic: where the current range is not used yet, in the low bits how many units from there.
 * Exchanged as one word; no value comes twice. */
static uintptr_t range;

/* A new range of at least so many units in the place of `seen`, which another thread may have
 * replaced first. False when memory is out. */
static bool renew_range(uintptr_t seen, size_t least)
{
    size_t as_much_again = load_relaxed(&meta_total_bytes) / UNIT_BYTES;
    size_t units = smaller_of(larger_of(as_much_again, RANGE_LEAST), RANGE_MOST);
    for (units = larger_of(units, least);; units = larger_of(units / 4, least)) {
        char *start = fenced_reserve(units * UNIT_BYTES, false);
        if (start == NULL && units > least)
            continue;
        if (start == NULL)
            return false;
        os_name(start, units * UNIT_BYTES, "cairn: metadata");
        if (!compare_swap_acq_rel(&range, &seen, (uintptr_t)start + units))
            fenced_unmap(start, units * UNIT_BYTES);
        return true;
    }
}

/* Up to `units`, at least `least`, of the current range or of a new one. Accessible before they are
 * taken, so that none is lost to a refusal; two threads may do that to the same ones. */
static char *take_of_range(size_t units, size_t least, size_t *size_bytes)
{
    uintptr_t seen = load_relaxed(&range);
    for (;;) {
        size_t left = seen & UNITS_MASK;
        if (left < least) {
            if (!renew_range(seen, least))
                return NULL;
            seen = load_relaxed(&range);
            continue;
        }
        size_t taken = smaller_of(left, units);
        char *start = (char *)align_down(seen, PAGE_BYTES);
        *size_bytes = taken * UNIT_BYTES;
        if (os_commit(start, *size_bytes) != 0)
            return NULL;
        if (compare_swap_acq_rel(&range, &seen, seen + *size_bytes - taken))
            return start;
    }
}

static char *steal(size_t size_bytes)
{
    char *(*resort)(size_t) = load_acquire(&last_resort); /* pairs with meta_start */
    return resort ? resort(size_bytes) : NULL;
}

/* At least `least` bytes, as many as there are. Pages of an arena never go back to it, so they too
 * are taken many at a time: single ones would divide it for good. */
static char *map_chunk(size_t least, size_t *size_bytes)
{
    size_t units = align_up(least, UNIT_BYTES) / UNIT_BYTES;
    size_t eighth = load_relaxed(&meta_total_bytes) / UNIT_BYTES / 8;
    size_t wanted = larger_of(smaller_of(eighth, CHUNK_MOST), units);
    char *start = units <= RANGE_MOST ? take_of_range(wanted, units, size_bytes) : NULL;
    if (start)
        return start;
    least = align_up(least, larger_of(os_page_size(), PAGE_BYTES));
    size_t size = larger_of(UNIT_BYTES, least);
    for (;; size = larger_of(align_down(size / 8, os_page_size()), least)) {
        *size_bytes = size;
        start = fenced_map(size);
        if (start == NULL)
            start = steal(size);
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
        fetch_add_relaxed(&meta_total_bytes, fresh->size_bytes);
        if (compare_swap_acq_rel(&chunks[kind], &chunk, fresh))
            chunk = fresh;
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
    size_t whole = kind == META_COLD ? COLD_LINES : HOT_LINES;
    char *fresh = lines <= whole / 2 ? meta_take(kind, whole * LINE_BYTES) : NULL;
    if (fresh == NULL)
        return meta_take(kind, size_bytes);
    /* The rest of the row before is lost; ours, when another thread was first. */
    (void)compare_swap_acq_rel(row, &next, (uintptr_t)fresh + lines * LINE_BYTES + whole - lines);
    return fresh;
}

void meta_start(char *(*steal_pages)(size_t size_bytes))
{
    store_release(&last_resort, steal_pages); /* pairs with steal */
}

void meta_forget_chunks(void)
{
    store_relaxed(&range, (uintptr_t)0);
    for (int kind = 0; kind < META_KINDS; kind++) {
        store_relaxed(&chunks[kind], (struct chunk *)NULL);
        for (int i = 0; i < ROWS; i++)
            store_relaxed(&rows[kind][i], (uintptr_t)0);
    }
}

size_t meta_bytes(void) { return load_relaxed(&meta_total_bytes); }
