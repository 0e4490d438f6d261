/* The ring: its chunks, whose frames any thread may release, and its frames. cairn/ring.h describes
 * what a ring does; the protocol and the argument for it are in ring.h. */
#include "frame/ring.h"

#include "base/test_delay.h"
#include "os/memory.h"
#include "os/process.h"

#include <errno.h>
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
    /* acquire: pairs with the releases that cleared the bits and counted the words */
    return load_acquire(&chunk->unfinished) == CHUNK_WORDS + 1 - full &&
           (given == 0 || (load_acquire(&chunk->words[full]) & given) == 0);
}

/* Returns the memory and the descriptor of a chunk. */
static void ring_chunk_free(struct ring_chunk *chunk)
{
    run_give(chunk->span);
    chunk->span = NULL;
    store_relaxed(&chunk->generation, chunk->generation + 1);
    descriptor_give(DESCRIPTOR_RING_CHUNK, chunk);
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

/* Changes `remaining`, and ends the ring when it becomes 0. */
static void ring_count_remaining(struct ring *ring, intptr_t change)
{
    /* pairs with this operation in other threads, all of which are done before the last one */
    if (fetch_add_acq_rel(&ring->remaining, change) + change == 0)
        descriptor_give(DESCRIPTOR_RING, ring);
}

/* Returns a finished chunk, which belongs to the calling thread.
 * Threads: any. */
static void ring_chunk_return(struct ring_chunk *chunk)
{
    struct ring *ring = chunk->ring;
    struct ring_chunk *head = load_acquire(&ring->returned); /* pairs with ring_close */
    do {
        test_delay();
        if (head == CHUNKS_CLOSED) {
            ring_chunk_free(chunk);
            ring_count_remaining(ring, -1);
            return;
        }
        store_relaxed(&chunk->next, head);
        /* release: pairs with the owner's exchange */
    } while (!compare_swap_acq_rel(&ring->returned, &head, chunk));
}

void chunk_clear_frame(struct ring_chunk *chunk, uint32_t index)
{
    uint64_t bit = (uint64_t)1 << index % 64;
    /* release: pairs with chunk_is_clear, and with the last release of the word */
    uint64_t before = fetch_and_acq_rel(&chunk->words[index / 64], ~bit);
    if (unlikely((before & bit) == 0))
        die("ring: frame %u of chunk %p is released already", index, (void *)chunk);
    if (before == bit)
        test_delay();
    if (before == bit && fetch_sub_acq_rel(&chunk->unfinished, (uint32_t)1) == 1)
        ring_chunk_return(chunk);
}

void chunk_retire(struct ring *ring, struct ring_chunk *chunk, uint32_t issued)
{
    uint32_t full = issued / 64;
    uint64_t given = ((uint64_t)1 << issued % 64) - 1;
    /* the owner's 1, and the words of which no bit was given out */
    uint32_t clear = 1 + CHUNK_WORDS - full;
    if (given != 0) {
        uint64_t before = fetch_and_acq_rel(&chunk->words[full], given);
        clear -=
            /* otherwise its releases are done, and the operation above has cleared its last bits */
            (before & given) != 0;
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
        ring_chunk_free(chunk);
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

/* Takes a spare chunk with space for `needed` bytes.
 * Returns: NULL when none is suitable, or when the maximum would be exceeded. */
static struct ring_chunk *ring_take_spare(struct ring *ring, size_t needed)
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

/* Makes a chunk.
 * Returns: NULL when out of memory, or when the maximum is reached. */
static struct ring_chunk *ring_make_chunk(struct ring *ring, size_t bytes)
{
    if (bytes > ring->max_bytes || ring->out_bytes > ring->max_bytes - bytes)
        return NULL;
    struct ring_chunk *chunk = descriptor_take(DESCRIPTOR_RING_CHUNK);
    if (chunk == NULL)
        return NULL;
    if (chunk->retains == NULL)
        chunk->retains = meta_take(META_COLD, CHUNK_FRAMES * sizeof *chunk->retains);
    chunk->span = chunk->retains ? run_take(bytes, PAGE_BYTES) : NULL;
    if (chunk->span == NULL) {
        descriptor_give(DESCRIPTOR_RING_CHUNK, chunk);
        return NULL;
    }
    chunk->ring = ring;
    if (chunk->span->zero &&
        /* if this fails, each page becomes resident at its first access */
        ring->out_bytes >= POPULATE_FROM)
        (void)os_populate(chunk->span->base, chunk_bytes(chunk));
    return chunk;
}

struct ring_chunk *chunk_take(struct ring *ring, size_t needed)
{
    ring_collect(ring);
    ring_tick(ring);
    if (needed > PTRDIFF_MAX / 2)
        return NULL;
    struct ring_chunk *chunk = ring_take_spare(ring, needed);
    size_t bytes = CHUNK_MIN_BYTES;
    while (bytes < CHUNK_MAX_BYTES && bytes < ring->out_bytes / 8)
        bytes *= 2;
    if (chunk == NULL)
        chunk = ring_make_chunk(ring, larger_of(bytes, needed));
    if (chunk == NULL && needed < bytes)
        chunk = ring_make_chunk(ring, larger_of(needed, CHUNK_MIN_BYTES));
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
    /* release: a thread that finds it closed sees the ring as it is now */
    struct ring_chunk *chunk = exchange_acq_rel(&ring->returned, CHUNKS_CLOSED);
    for (struct ring_chunk *next; chunk; chunk = next) {
        next = load_relaxed(&chunk->next);
        chunk_keep(ring, chunk);
    }
    ring_give_back(ring, 0);
    test_delay();
    ring_count_remaining(ring, (intptr_t)ring->out_count);
}

enum { LOOK_MIN_BYTES = 4 << 10, LOOK_MAX_BYTES = 64 << 10, CHECKED_GAP_BYTES = 16 };

static inline struct ring *ring_of(const cairn_ring *head)
{
    return (struct ring *)(uintptr_t)head;
}

static _Noreturn cold void ring_die_not_owned(const struct ring *ring)
{
    if (load_relaxed(&ring->head.owner) == NULL)
        die("ring \"%s\": used after its end", ring->name);
    die("ring \"%s\": used by a thread that does not own it", ring->name);
}

static inline void ring_check_owner(const struct ring *ring)
{
    if (unlikely(load_relaxed(&ring->head.owner) != __builtin_thread_pointer()))
        ring_die_not_owned(ring);
}

static void ring_check_not_ended(const struct ring *ring)
{
    if (unlikely(load_relaxed(&ring->head.owner) == NULL))
        ring_die_not_owned(ring);
}

static inline uintptr_t ring_chunk_end(const struct ring_chunk *chunk)
{
    return chunk_base(chunk) + chunk_bytes(chunk);
}

static inline uintptr_t ring_position(const struct ring *ring)
{
    return ring->open && !ring->checked ? ring->head.position : ring->held_position;
}

static inline void ring_set_position(struct ring *ring, uintptr_t at)
{
    bool armed = ring->open && !ring->checked;
    ring->held_position = at;
    ring->head.position = armed ? at : 0;
    ring->head.limit = armed ? ring_chunk_end(ring->current) : 0;
}

api cairn_ring *cairn_ring_new(const cairn_ring_options *options)
{
    static const cairn_ring_options defaults = {0};
    options = options ? options : &defaults;
    if (options->max_bytes != 0 && options->max_bytes < CHUNK_MIN_BYTES)
        return frame_invalid();
    os_init();
    struct ring *ring = descriptor_take(DESCRIPTOR_RING);
    if (ring == NULL)
        return frame_no_memory();
    *ring = (struct ring){
        .head.owner = __builtin_thread_pointer(),
        .max_bytes = options->max_bytes ? options->max_bytes : SIZE_MAX,
        .interval_start_ms = os_now_ms(),
        .look_step = LOOK_MIN_BYTES,
        .out_of_memory = options->out_of_memory,
        .out_of_memory_context = options->out_of_memory_context,
        .checked = frame_checked(),
    };
    frame_copy_name(ring->name, options->name, "ring");
    return &ring->head;
}

api void cairn_ring_adopt(cairn_ring *head)
{
    ring_check_not_ended(ring_of(head));
    store_relaxed(&head->owner, __builtin_thread_pointer());
}

/* Calls the program's out-of-memory function, except for a size that can never be allocated.
 * Returns: true to try again. */
static bool ring_ask_for_memory(const struct ring *ring, size_t size)
{
    return size <= ring->max_bytes &&
           frame_try_again(ring->out_of_memory, ring->out_of_memory_context, size);
}

/* Sets the position from which on a restart of the current chunk is tried next. */
static void ring_look_later(struct ring *ring)
{
    ring->look_at =
        smaller_of(ring->held_position + ring->look_step, ring_chunk_end(ring->current));
}

/* Continues at the start of the current chunk when all its frames are released. The
 * restart is tried every few KiB while it succeeds, because then the frames stay in the cache. The
 * restart is tried rarely while it fails, because then it reads memory that other threads write. */
static bool ring_try_restart(struct ring *ring)
{
    struct ring_chunk *chunk = ring->current;
    bool clear = ring->issued > 0 && chunk_is_clear(chunk, ring->issued);
    ring->look_step = clear ? LOOK_MIN_BYTES : smaller_of(2 * ring->look_step, LOOK_MAX_BYTES);
    if (clear) {
        if (ring->checked)
            mark_inaccessible(chunk->span->base, chunk_bytes(chunk));
        chunk_restart(chunk, ring->issued);
        ring->issued = 0;
        ring->held_position = chunk_base(chunk);
    }
    ring_look_later(ring);
    return clear;
}

/* Prepares a chunk that has a frame to give out.
 * Returns: false when out of memory. */
static no_inline bool ring_prepare(struct ring *ring)
{
    struct ring_chunk *chunk = ring->current;
    ring_tick(ring);
    if (chunk && (ring_try_restart(ring) ||
                  (ring->issued < CHUNK_FRAMES && ring->held_position < ring_chunk_end(chunk))))
        return true;
    chunk = chunk_take(ring, 1);
    if (chunk == NULL)
        return false;
    if (ring->current)
        chunk_retire(ring, ring->current, ring->issued);
    ring->current = chunk;
    ring->issued = 0;
    ring->held_position = chunk_base(chunk);
    ring_look_later(ring);
    return true;
}

/* Whether the current chunk has no frame to give out, or a restart of it must be tried. Without a
 * chunk the position and look_at are 0. */
static inline bool ring_needs_chunk(const struct ring *ring)
{
    return ring->held_position >= ring->look_at || ring->issued == CHUNK_FRAMES;
}

api cairn_frame cairn_ring_open(cairn_ring *head)
{
    struct ring *ring = ring_of(head);
    ring_check_owner(ring);
    if (unlikely(ring->open))
        die("ring \"%s\": open while a frame is open", ring->name);
    while (unlikely(ring_needs_chunk(ring)) && !ring_prepare(ring))
        if (!ring_ask_for_memory(ring, CHUNK_MIN_BYTES)) {
            frame_no_memory();
            return (cairn_frame){0};
        }
    struct ring_chunk *chunk = ring->current;
    ring->first = chunk;
    ring->open_index = ring->issued++;
    ring->open_position = ring->held_position;
    ring->opened++;
    ring->marked = false;
    ring->open = true;
    ring_set_position(ring, ring->held_position);
    return (cairn_frame){chunk, ring->open_index, load_relaxed(&chunk->generation)};
}

/* Retires the chunks that the open frame has left. */
static no_inline void ring_retire_passed(struct ring *ring)
{
    uint32_t issued = ring->open_index + 1;
    for (struct ring_chunk *chunk = ring->first, *next; chunk != ring->current; chunk = next) {
        next = chunk->spill;
        /* this does not finish it, because the frame is not released */
        chunk_retire(ring, chunk, issued);
        issued = 1;
    }
}

static inline void ring_check_opened(const struct ring *ring, const char *operation)
{
    ring_check_owner(ring);
    if (unlikely(!ring->open))
        die("ring \"%s\": %s while no frame is open", ring->name, operation);
}

api cairn_frame cairn_ring_seal(cairn_ring *head)
{
    struct ring *ring = ring_of(head);
    ring_check_opened(ring, "seal");
    uintptr_t at = ring_position(ring);
    struct ring_chunk *first = ring->first;
    uint32_t generation = load_relaxed(&first->generation);
    /* only when checked: other threads write to these words */
    if (unlikely(ring->checked) &&
        (load_relaxed(&first->words[ring->open_index / 64]) >> ring->open_index % 64 & 1) == 0)
        die("ring \"%s\": seal of a frame that is released already", ring->name);
    if (unlikely(first != ring->current))
        ring_retire_passed(ring);
    ring->sealed++;
    ring->open = false;
    ring->held_position = at;
    ring->head.position = 0;
    ring->head.limit = 0;
    return (cairn_frame){first, ring->open_index, generation};
}

/* Continues the open frame in another chunk.
 * Returns: false when out of memory. */
static bool ring_spill(struct ring *ring, size_t needed)
{
    struct ring_chunk *chunk = ring->current;
    struct ring_chunk *next = chunk_take(ring, needed);
    if (next == NULL)
        return false;
    chunk->spill = next;
    chunk->spill_generation = load_relaxed(&next->generation);
    store_relaxed(&chunk->spill_index, chunk == ring->first ? ring->open_index : 0);
    ring->current = next;
    ring->issued = 1;
    ring_set_position(ring, chunk_base(next));
    ring_look_later(ring);
    return true;
}

/* Lets the open frame, which has no block and no checkpoint, begin at the start of its chunk, where
 * no other frame lives, with memory for `needed` bytes. So the maximum does not count the memory of
 * released frames.
 * Returns: false when that gives no more space than before. */
static bool ring_begin_anew(struct ring *ring, size_t needed)
{
    struct ring_chunk *chunk = ring->current;
    if (ring->first != chunk || ring->marked || ring_position(ring) != ring->open_position ||
        !chunk_is_clear(chunk, ring->open_index))
        return false;
    if (chunk_bytes(chunk) < needed) {
        size_t others = ring->out_bytes - chunk_bytes(chunk);
        bool fits = needed <= ring->max_bytes && others <= ring->max_bytes - needed;
        struct span *span = fits ? run_take(needed, PAGE_BYTES) : NULL;
        if (span == NULL)
            return false;
        run_give(chunk->span);
        chunk->span = span;
        ring->out_bytes = others + chunk_bytes(chunk);
    } else if (ring->open_position == chunk_base(chunk)) {
        return false;
    }
    ring->open_position = chunk_base(chunk);
    ring_set_position(ring, chunk_base(chunk));
    ring_look_later(ring);
    if (ring->checked)
        mark_inaccessible(chunk->span->base, chunk_bytes(chunk));
    return true;
}

api void *cairn_ring_alloc_slow(cairn_ring *head, size_t size, size_t align)
{
    struct ring *ring = ring_of(head);
    ring_check_opened(ring, "allocation");
    if (unlikely(!is_power_of_two(align)))
        return frame_invalid();
    if (unlikely(size > PTRDIFF_MAX / 4 || align > PTRDIFF_MAX / 4))
        return frame_no_memory();
    size_t asked = larger_of(size, 1);
    size = align_up(asked + (ring->checked ? CHECKED_GAP_BYTES : 0), RING_GRANULE);
    align = larger_of(align, RING_GRANULE);
    uintptr_t start = align_up(ring_position(ring), align);
    while (start + size > ring_chunk_end(ring->current)) {
        size_t needed = size + (align > PAGE_BYTES ? align : 0);
        if (!ring_spill(ring, needed) && !ring_begin_anew(ring, needed) &&
            !ring_ask_for_memory(ring, needed))
            return frame_no_memory();
        start = align_up(ring_position(ring), align);
    }
    if (ring->checked)
        mark_undefined((void *)start, asked);
    ring_set_position(ring, start + size);
    return (void *)start;
}

/* Releases one extra hold of a frame.
 * Returns: false when there is none. */
static bool ring_give_extra_hold(struct ring_chunk *chunk, uint32_t index)
{
    uint32_t *extra = &chunk->retains[index];
    uint32_t holds =
        /* pairs with other threads' releases of holds: the last one sees everything before them */
        load_acquire(extra);
    while (holds > 0)
        if (compare_swap_acq_rel(extra, &holds, holds - 1))
            return true;
    return false;
}

static inline struct ring_chunk *ring_check_frame(cairn_frame frame, const char *operation)
{
    struct ring_chunk *chunk = frame.chunk;
    if (unlikely(load_relaxed(&chunk->generation) != frame.generation))
        die("ring: %s of frame %u of chunk %p, which is released already", operation, frame.index,
            frame.chunk);
    return chunk;
}

api void cairn_ring_retain(cairn_frame frame, unsigned more)
{
    if (unlikely(frame.chunk == NULL))
        return;
    struct ring_chunk *chunk = ring_check_frame(frame, "retain");
    fetch_add_relaxed(&chunk->retains[frame.index], more);
    /* a thread that receives one of these holds sees both stores */
    store_relaxed(&chunk->retained, (uint32_t)1);
}

api void cairn_ring_release(cairn_frame frame)
{
    if (unlikely(frame.chunk == NULL))
        return;
    struct ring_chunk *chunk = ring_check_frame(frame, "release");
    if (unlikely(load_relaxed(&chunk->retained) != 0) && ring_give_extra_hold(chunk, frame.index))
        return;
    uint32_t index = frame.index;
    while (unlikely(load_relaxed(&chunk->spill_index) == index)) {
        /* read first, because the chunk may then belong to another thread */
        struct ring_chunk *next = chunk->spill;
        uint32_t generation = chunk->spill_generation;
        chunk_clear_frame(chunk, index);
        chunk = ring_check_frame((cairn_frame){next, 0, generation}, "release");
        index = 0;
    }
    chunk_clear_frame(chunk, index);
}

api cairn_checkpoint cairn_ring_checkpoint(const cairn_ring *head)
{
    struct ring *ring = ring_of(head);
    ring_check_owner(ring);
    ring->marked = true;
    return (cairn_checkpoint){
        .chunk = ring->open ? ring->current : NULL,
        .position = ring_position(ring),
        .sealed = ring->sealed,
        .opened = ring->opened,
        .open = ring->open,
    };
}

/* Makes a chunk of the open frame the current one again, and the chunks after it spare. */
static void ring_cut_after(struct ring *ring, struct ring_chunk *last)
{
    for (struct ring_chunk *chunk = last, *next; chunk != ring->current; chunk = next) {
        next = chunk->spill;
        if (chunk != last)
            chunk_keep(ring, chunk);
    }
    if (ring->current != last)
        chunk_keep(ring, ring->current);
    store_relaxed(&last->spill_index, (uint32_t)NO_FRAME);
    ring->current = last;
    ring->look_at = ring_chunk_end(last);
    ring->issued = last == ring->first ? ring->open_index + 1 : 1;
}

/* Whether the open frame uses a chunk. */
static bool ring_in_open_frame(const struct ring *ring, const struct ring_chunk *wanted)
{
    for (const struct ring_chunk *chunk = ring->first; chunk != ring->current; chunk = chunk->spill)
        if (chunk == wanted)
            return true;
    return ring->current == wanted;
}

/* Checked rings: makes the current chunk inaccessible from an address on. */
static void ring_bury(struct ring *ring, uintptr_t from)
{
    if (ring->checked)
        mark_inaccessible((void *)from, ring_chunk_end(ring->current) - from);
}

api int cairn_ring_rewind(cairn_ring *head, cairn_checkpoint checkpoint)
{
    struct ring *ring = ring_of(head);
    ring_check_owner(ring);
    if (ring->sealed != checkpoint.sealed)
        return EBUSY;
    if (!checkpoint.open) {
        if (ring->open) {
            ring_cut_after(ring, ring->first);
            /* The next frame gets this frame's number, but not its holds. */
            store_relaxed(&ring->first->retains[ring->open_index], (uint32_t)0);
            ring->issued = ring->open_index;
            ring->open = false;
            ring_set_position(ring, ring->open_position);
            ring_bury(ring, ring->open_position);
        }
        return 0;
    }
    bool there = ring->open && ring->opened == checkpoint.opened &&
                 ring_in_open_frame(ring, checkpoint.chunk) &&
                 (checkpoint.chunk != ring->current || checkpoint.position <= ring_position(ring));
    if (!there)
        die("ring \"%s\": rewind to a checkpoint that is undone", ring->name);
    ring_cut_after(ring, checkpoint.chunk);
    ring_set_position(ring, checkpoint.position);
    ring_bury(ring, checkpoint.position);
    return 0;
}

api size_t cairn_ring_trim(cairn_ring *head, size_t keep_bytes)
{
    struct ring *ring = ring_of(head);
    ring_check_owner(ring);
    ring_collect(ring);
    return ring_give_back(ring, keep_bytes);
}

/* Ends the ring with the last chunk that is in use. */
static void ring_end(struct ring *ring)
{
    if (ring->current)
        chunk_retire(ring, ring->current, ring->issued);
    ring->current = NULL;
    ring->issued = 0;
    store_relaxed(&ring->head.owner, (void *)NULL);
    ring_close(ring);
}

api int cairn_ring_delete(cairn_ring *head)
{
    if (head == NULL)
        return 0;
    struct ring *ring = ring_of(head);
    ring_check_owner(ring);
    ring_collect(ring);
    const struct ring_chunk *current = ring->current;
    bool released = current ? ring->out_count == 1 && chunk_is_clear(current, ring->issued)
                            : ring->out_count == 0;
    if (ring->open || !released)
        return EBUSY;
    ring_end(ring);
    return 0;
}

api void cairn_ring_close(cairn_ring *head)
{
    if (head == NULL)
        return;
    struct ring *ring = ring_of(head);
    ring_check_owner(ring);
    if (ring->open)
        die("ring \"%s\": closed while a frame is open", ring->name);
    ring_end(ring);
}

api void cairn_ring_read_stats(const cairn_ring *head, cairn_ring_stats *stats)
{
    struct ring *ring = ring_of(head);
    ring_check_owner(ring);
    ring_collect(ring); /* chunks whose frames are released do not count */
    *stats = (cairn_ring_stats){
        .chunk_bytes = ring->out_bytes,
        .spare_bytes = ring->spare_bytes,
        .sealed = ring->sealed,
        .chunks = ring->out_count,
    };
}

static void *ring_allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    if (pointer == NULL)
        return NULL;
    struct ring *ring = ring_of(context);
    ring_check_opened(ring, "resize");
    if (ring->checked)
        return new_size <= old_size ? pointer : NULL;
    if (old_size > PTRDIFF_MAX / 4 || new_size > PTRDIFF_MAX / 4)
        return NULL;
    uintptr_t start = (uintptr_t)pointer;
    size_t new_rounded = align_up(larger_of(new_size, 1), RING_GRANULE);
    if (start + align_up(larger_of(old_size, 1), RING_GRANULE) != ring_position(ring))
        return new_size <= old_size ? pointer : NULL;
    if (new_rounded > ring_chunk_end(ring->current) - start)
        return NULL;
    ring_set_position(ring, start + new_rounded);
    return pointer;
}

static void *ring_allocator_alloc(void *context, size_t size, size_t align)
{
    return cairn_ring_alloc_slow(context, size, align);
}

/* Does nothing: the memory of a container in a frame ends with the frame.
 * Threads: any. */
static void ring_allocator_free(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)pointer;
    (void)size;
}

api cairn_allocator cairn_ring_allocator(cairn_ring *ring)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = ring_allocator_alloc,
        .resize = ring_allocator_resize,
        .free = ring_allocator_free,
        .capabilities = CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER,
        .name = "ring",
    };
    ring_check_not_ended(ring_of(ring));
    return (cairn_allocator){ring, &operations};
}
