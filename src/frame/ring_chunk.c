/* The chunks of a ring: the concurrent half, and where their memory comes from and goes. The
 * protocol and the argument for it stand in ring_state.h.
 */
#include "frame/ring_state.h"

#include "base/test_delay.h"

#include <string.h>

enum { POPULATE_FROM = 1 << 20, DEAD_BYTE = 0xdd };

void chunk_restart(struct ring_chunk *chunk, uint32_t issued)
{
    for (size_t i = 0; i < (issued + 63) / 64; i++)
        store_relaxed(&chunk->words[i], UINT64_MAX);
    store_relaxed(&chunk->unfinished, (uint32_t)CHUNK_WORDS + 1);
    store_relaxed(&chunk->spill_index, (uint32_t)NO_FRAME);
    store_relaxed(&chunk->retained, (uint32_t)0);
    store_relaxed(&chunk->generation, chunk->generation + 1);
}

bool chunk_is_clear(const struct ring_chunk *chunk, uint32_t issued)
{
    uint32_t full = issued / 64;
    uint64_t given = ((uint64_t)1 << issued % 64) - 1;
    /* acquire: pairs with the releases that cleared and counted */
    return load_acquire(&chunk->unfinished) == CHUNK_WORDS + 1 - full &&
           (given == 0 || (load_acquire(&chunk->words[full]) & given) == 0);
}

/* Returns the chunk's memory and descriptor. */
static void chunk_free(struct ring_chunk *chunk)
{
    run_give(chunk->span);
    chunk->span = NULL;
    store_relaxed(&chunk->generation, chunk->generation + 1);
    cell_give(CELL_RING_CHUNK, chunk);
}

void chunk_keep(struct ring *ring, struct ring_chunk *chunk)
{
    if (ring->checked) {
        mark_undefined(chunk->span->base, chunk_bytes(chunk));
        memset(chunk->span->base, DEAD_BYTE, chunk_bytes(chunk));
        mark_inaccessible(chunk->span->base, chunk_bytes(chunk));
    }
    ring->out_bytes -= chunk_bytes(chunk);
    ring->out_count--;
    ring->spare_bytes += chunk_bytes(chunk);
    chunk->next = ring->spare;
    ring->spare = chunk;
}

/* The ring's end, when the last chunk is counted. */
static void count_remaining(struct ring *ring, intptr_t change)
{
    if (fetch_add_acq_rel(&ring->remaining, change) + change == 0)
        cell_give(CELL_RING, ring);
}

/* Any thread: the chunk has come to its end and is this thread's. */
static void chunk_return(struct ring_chunk *chunk)
{
    struct ring *ring = chunk->ring;
    struct ring_chunk *head = load_acquire(&ring->returned); /* pairs with ring_close */
    do {
        test_delay();
        if (head == CHUNKS_CLOSED) {
            chunk_free(chunk);
            count_remaining(ring, -1);
            return;
        }
        store_relaxed(&chunk->next, head);
        /* release: pairs with the owner's exchange */
    } while (!compare_swap_acq_rel(&ring->returned, &head, chunk));
}

void chunk_clear_frame(struct ring_chunk *chunk, uint32_t index)
{
    uint64_t bit = (uint64_t)1 << index % 64;
    uint64_t before = fetch_and_acq_rel(&chunk->words[index / 64], ~bit);
    if (unlikely((before & bit) == 0))
        die("ring: frame %u of chunk %p is released already", index, (void *)chunk);
    if (before == bit)
        test_delay();
    if (before == bit && fetch_sub_acq_rel(&chunk->unfinished, (uint32_t)1) == 1)
        chunk_return(chunk);
}

void chunk_retire(struct ring *ring, struct ring_chunk *chunk, uint32_t issued)
{
    uint32_t full = issued / 64;
    uint64_t given = ((uint64_t)1 << issued % 64) - 1;
    uint32_t clear = 1 + CHUNK_WORDS - full; /* the owner's one, and the words never given out of */
    if (given != 0) {
        uint64_t before = fetch_and_acq_rel(&chunk->words[full], given);
        clear -=
            (before & given) != 0; /* else its releases are all done, and it is clear by this */
    }
    test_delay();
    if (fetch_sub_acq_rel(&chunk->unfinished, clear) == clear)
        chunk_keep(ring, chunk);
}

void ring_collect(struct ring *ring)
{
    if (load_relaxed(&ring->returned) == NULL)
        return;
    struct ring_chunk *chunk =
        exchange_acq_rel(&ring->returned, (struct ring_chunk *)NULL); /* pairs with the push */
    for (struct ring_chunk *next; chunk; chunk = next) {
        next = load_relaxed(&chunk->next);
        chunk_keep(ring, chunk);
    }
}

size_t ring_give_back(struct ring *ring, size_t keep_bytes)
{
    size_t kept = 0;
    size_t given = 0;
    struct ring_chunk **link = &ring->spare;
    while (*link) {
        struct ring_chunk *chunk = *link;
        if (kept + chunk_bytes(chunk) <= keep_bytes) {
            kept += chunk_bytes(chunk);
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        given += chunk_bytes(chunk);
        chunk_free(chunk);
    }
    ring->spare_bytes = kept;
    ring->spare_low = smaller_of(ring->spare_low, kept);
    return given;
}

void ring_tick(struct ring *ring)
{
    if (likely(!frame_interval_over(&ring->interval_start_ms)))
        return;
    ring_give_back(ring, ring->spare_bytes - ring->spare_low);
    ring->spare_low = ring->spare_bytes;
}

static struct ring_chunk *take_spare(struct ring *ring, size_t needed)
{
    enum { LOOKED_AT = 8 };
    struct ring_chunk **link = &ring->spare;
    for (int i = 0; i < LOOKED_AT && *link; i++, link = &(*link)->next) {
        struct ring_chunk *chunk = *link;
        if (chunk_bytes(chunk) < needed)
            continue;
        if (ring->out_bytes + chunk_bytes(chunk) > ring->max_bytes)
            return NULL;
        *link = chunk->next;
        ring->spare_bytes -= chunk_bytes(chunk);
        ring->spare_low = smaller_of(ring->spare_low, ring->spare_bytes);
        return chunk;
    }
    return NULL;
}

static struct ring_chunk *make_chunk(struct ring *ring, size_t bytes)
{
    if (bytes > ring->max_bytes || ring->out_bytes > ring->max_bytes - bytes)
        return NULL;
    struct ring_chunk *chunk = cell_take(CELL_RING_CHUNK);
    if (chunk == NULL)
        return NULL;
    if (chunk->retains == NULL)
        chunk->retains = meta_take(META_COLD, CHUNK_FRAMES * sizeof *chunk->retains);
    chunk->span = chunk->retains ? run_take(bytes, PAGE_BYTES) : NULL;
    if (chunk->span == NULL) {
        cell_give(CELL_RING_CHUNK, chunk);
        return NULL;
    }
    chunk->ring = ring;
    if (chunk->span->zero &&
        ring->out_bytes >= POPULATE_FROM) /* refused, the pages come one by one */
        (void)os_populate(chunk->span->base, chunk_bytes(chunk));
    return chunk;
}

struct ring_chunk *chunk_take(struct ring *ring, size_t needed)
{
    ring_collect(ring);
    ring_tick(ring);
    if (needed > PTRDIFF_MAX / 2)
        return NULL;
    struct ring_chunk *chunk = take_spare(ring, needed);
    size_t bytes = CHUNK_LEAST_BYTES;
    while (bytes < CHUNK_MOST_BYTES && bytes < ring->out_bytes / 8)
        bytes *= 2;
    if (chunk == NULL)
        chunk = make_chunk(ring, larger_of(bytes, needed));
    if (chunk == NULL && needed < bytes)
        chunk = make_chunk(ring, larger_of(needed, CHUNK_LEAST_BYTES));
    if (chunk == NULL)
        return NULL;
    ring->out_bytes += chunk_bytes(chunk);
    ring->out_count++;
    chunk_restart(chunk, CHUNK_FRAMES);
    if (ring->checked)
        mark_inaccessible(chunk->span->base, chunk_bytes(chunk));
    return chunk;
}

void ring_close(struct ring *ring)
{
    ring_collect(ring);
    /* release: who finds it closed finds the ring as it is now */
    struct ring_chunk *chunk = exchange_acq_rel(&ring->returned, CHUNKS_CLOSED);
    for (struct ring_chunk *next; chunk; chunk = next) {
        next = load_relaxed(&chunk->next);
        chunk_keep(ring, chunk);
    }
    ring_give_back(ring, 0);
    test_delay();
    count_remaining(ring, (intptr_t)ring->out_count);
}
