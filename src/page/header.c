/* Headers, and runs outside all arenas: huge blocks, and whatever is taken while the page lock is
 * frozen for a fork.
 *
 * A header keeps its cold area for ever, so headers are recycled by its size. They lie densely: one
 * that was never used has cost no memory. But those made for one thread lie together: processors
 * fetch lines in pairs, and two threads would take each other's.
 */
#include "base/atomic.h"
#include "base/bits.h"
#include "os/os.h"
#include "page/state.h"

struct span *header_pop(unsigned cold_64)
{
    struct span *span = pages_state.headers[cold_64];
    if (span)
        pages_state.headers[cold_64] = span->next;
    return span;
}

void header_push(struct span *span)
{
    store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
    span->next = pages_state.headers[span->cold_64];
    pages_state.headers[span->cold_64] = span;
}

/* Places for headers in a row: the next one's address, in its low bits how many are left. Exchanged
 * as one word, so any thread may take from any row. */
enum { ROWS = 8, ROW_HEADERS = 8 };

static uintptr_t rows[ROWS]; /* atomic */

static struct span *header_place(void)
{
    enum { BYTES = sizeof(struct span) };
    uintptr_t *row = &rows[((uintptr_t)__builtin_thread_pointer() >> PAGE_SHIFT) % ROWS];
    uintptr_t next = load_relaxed(row);
    while (next % BYTES != 0)
        if (compare_swap_acq_rel(row, &next, next + BYTES - 1))
            return (struct span *)align_down(next, BYTES);
    char *fresh = meta_take(META_HOT, ROW_HEADERS * BYTES);
    if (fresh == NULL)
        return meta_take(META_HOT, BYTES);
    /* When another thread was first, the others of ours are lost, 448 bytes. */
    (void)compare_swap_acq_rel(row, &next, (uintptr_t)fresh + BYTES + ROW_HEADERS - 1);
    return (struct span *)(void *)fresh;
}

struct span *header_make(unsigned cold_64)
{
    struct span *span = header_place();
    if (span == NULL)
        return NULL;
    if (cold_64 != 0 && (span->links = meta_take(META_COLD, (size_t)cold_64 * 64)) == NULL)
        return NULL; /* the header is lost: one cache line, when memory is out */
    span->cold_64 = (uint8_t)cold_64;
    store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
    return span;
}

struct span *header_take(unsigned cold_64)
{
    struct span *span = NULL;
    if (lock_acquire(&pages_state.lock)) {
        span = header_pop(cold_64);
        lock_release(&pages_state.lock);
    }
    return span ? span : header_make(cold_64);
}

/* Maps with any alignment by cutting an aligned piece out of a larger reservation. */
static char *map_aligned(size_t size_bytes, size_t alignment_bytes)
{
    if (alignment_bytes <= os_page_size())
        return os_map(size_bytes);
    char *start = os_reserve(size_bytes + alignment_bytes);
    if (start == NULL)
        return NULL;
    char *run = (char *)align_up((uintptr_t)start, alignment_bytes);
    size_t lead = (size_t)(run - start);
    bool failed = os_commit(run, size_bytes) != 0;
    if (failed) {
        os_unmap(start, size_bytes + alignment_bytes);
        return NULL;
    }
    if (lead > 0)
        os_unmap(start, lead);
    if (alignment_bytes - lead > 0)
        os_unmap(run + size_bytes, alignment_bytes - lead);
    return run;
}

struct span *detached_take(size_t pages, size_t alignment_bytes, unsigned cold_64)
{
    size_t bytes = align_up(pages << PAGE_SHIFT, os_page_size());
    struct span *span = cold_64 == 0 ? header_take(0) : header_make(cold_64);
    if (span == NULL)
        return NULL;
    char *run = map_aligned(bytes, alignment_bytes);
    if (run && page_map_cover(run, bytes) != 0) {
        os_unmap(run, bytes);
        run = NULL;
    }
    span->pages = run ? (uint32_t)pages : 0;
    span->dirty_pages = 0;
    span->base = run;
    if (run)
        return span;
    defer(span);
    return NULL;
}

void detached_give(struct span *span)
{
    os_unmap(span->base, align_up((size_t)span->pages << PAGE_SHIFT, os_page_size()));
    span->pages = 0;
    defer(span);
}
