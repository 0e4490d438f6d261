/* The ring's frames: see cairn/ring.h for what they do, ring_state.h for how they end. */
#include "frame/ring_state.h"

#include <errno.h>

enum { LOOK_LEAST_BYTES = 4 << 10, LOOK_MOST_BYTES = 64 << 10, CHECKED_GAP_BYTES = 16 };

static inline struct ring *ring_of(const cairn_ring *head)
{
    return (struct ring *)(uintptr_t)head;
}

static _Noreturn cold void die_not_owned(const struct ring *ring)
{
    if (load_relaxed(&ring->head.owner) == NULL)
        die("ring \"%s\": used after its end", ring->name);
    die("ring \"%s\": used by a thread that does not own it", ring->name);
}

static inline void check_owner(const struct ring *ring)
{
    if (unlikely(load_relaxed(&ring->head.owner) != __builtin_thread_pointer()))
        die_not_owned(ring);
}

static void check_not_ended(const struct ring *ring)
{
    if (unlikely(load_relaxed(&ring->head.owner) == NULL))
        die_not_owned(ring);
}

static inline uintptr_t chunk_end(const struct ring_chunk *chunk)
{
    return chunk_base(chunk) + chunk_bytes(chunk);
}

static inline uintptr_t position(const struct ring *ring)
{
    return ring->open && !ring->checked ? ring->head.position : ring->held_position;
}

static inline void set_position(struct ring *ring, uintptr_t at)
{
    bool armed = ring->open && !ring->checked;
    ring->held_position = at;
    ring->head.position = armed ? at : 0;
    ring->head.limit = armed ? chunk_end(ring->current) : 0;
}

api cairn_ring *cairn_ring_new(const cairn_ring_options *options)
{
    static const cairn_ring_options defaults = {0};
    options = options ? options : &defaults;
    if (options->max_bytes != 0 && options->max_bytes < CHUNK_LEAST_BYTES)
        return frame_invalid();
    os_init();
    struct ring *ring = cell_take(CELL_RING);
    if (ring == NULL)
        return frame_no_memory();
    *ring = (struct ring){
        .head.owner = __builtin_thread_pointer(),
        .max_bytes = options->max_bytes ? options->max_bytes : SIZE_MAX,
        .interval_start_ms = os_now_ms(),
        .look_step = LOOK_LEAST_BYTES,
        .out_of_memory = options->out_of_memory,
        .out_of_memory_context = options->out_of_memory_context,
        .checked = frame_checked(),
    };
    frame_copy_name(ring->name, options->name, "ring");
    return &ring->head;
}

api void cairn_ring_adopt(cairn_ring *head)
{
    check_not_ended(ring_of(head));
    store_relaxed(&head->owner, __builtin_thread_pointer());
}

/* Asks the program after a failure; true: try again. Nothing that can never be is asked for. */
static bool ask_for_memory(const struct ring *ring, size_t size)
{
    return size <= ring->max_bytes &&
           frame_try_again(ring->out_of_memory, ring->out_of_memory_context, size);
}

/* The current chunk again from its start, when all its frames are released: every few KiB while
 * that succeeds, for then they stay in cache; seldom when it fails, for then other threads write
 * what it reads. */
static bool try_restart(struct ring *ring)
{
    struct ring_chunk *chunk = ring->current;
    bool clear = ring->issued > 0 && chunk_is_clear(chunk, ring->issued);
    ring->look_step = clear ? LOOK_LEAST_BYTES : smaller_of(2 * ring->look_step, LOOK_MOST_BYTES);
    if (clear) {
        if (ring->checked)
            mark_inaccessible(chunk->span->base, chunk_bytes(chunk));
        chunk_restart(chunk, ring->issued);
        ring->issued = 0;
        ring->held_position = chunk_base(chunk);
    }
    ring->look_at = smaller_of(ring->held_position + ring->look_step, chunk_end(chunk));
    return clear;
}

/* A chunk with a frame to give out. False when memory is out. */
static no_inline bool prepare(struct ring *ring)
{
    struct ring_chunk *chunk = ring->current;
    ring_tick(ring);
    if (chunk && (try_restart(ring) ||
                  (ring->issued < CHUNK_FRAMES && ring->held_position < chunk_end(chunk))))
        return true;
    chunk = chunk_take(ring, 1);
    if (chunk == NULL)
        return false;
    if (ring->current)
        chunk_retire(ring, ring->current, ring->issued);
    ring->current = chunk;
    ring->issued = 0;
    ring->held_position = chunk_base(chunk);
    ring->look_at = smaller_of(ring->held_position + ring->look_step, chunk_end(chunk));
    return true;
}

/* Whether the current chunk has no frame to give out, or is to be looked at. Without a chunk
 * position and look_at are 0. */
static inline bool needs_chunk(const struct ring *ring)
{
    return ring->held_position >= ring->look_at || ring->issued == CHUNK_FRAMES;
}

api cairn_frame cairn_ring_open(cairn_ring *head)
{
    struct ring *ring = ring_of(head);
    check_owner(ring);
    if (unlikely(ring->open))
        die("ring \"%s\": open while a frame is open", ring->name);
    while (unlikely(needs_chunk(ring)) && !prepare(ring))
        if (!ask_for_memory(ring, CHUNK_LEAST_BYTES)) {
            frame_no_memory();
            return (cairn_frame){0};
        }
    struct ring_chunk *chunk = ring->current;
    ring->first = chunk;
    ring->open_index = ring->issued++;
    ring->open_position = ring->held_position;
    ring->opened++;
    ring->open = true;
    set_position(ring, ring->held_position);
    return (cairn_frame){chunk, ring->open_index, load_relaxed(&chunk->generation)};
}

/* The chunks that the frame has left are filled no more. */
static no_inline void retire_passed(struct ring *ring)
{
    uint32_t issued = ring->open_index + 1;
    for (struct ring_chunk *chunk = ring->first, *next; chunk != ring->current; chunk = next) {
        next = chunk->spill;
        chunk_retire(ring, chunk, issued); /* not its end: the frame is not released */
        issued = 1;
    }
}

static inline void check_opened(const struct ring *ring, const char *operation)
{
    check_owner(ring);
    if (unlikely(!ring->open))
        die("ring \"%s\": %s while no frame is open", ring->name, operation);
}

api cairn_frame cairn_ring_seal(cairn_ring *head)
{
    struct ring *ring = ring_of(head);
    check_opened(ring, "seal");
    uintptr_t at = position(ring);
    struct ring_chunk *first = ring->first;
    uint32_t generation = load_relaxed(&first->generation);
    if (unlikely(first != ring->current))
        retire_passed(ring);
    ring->sealed++;
    ring->open = false;
    ring->held_position = at;
    ring->head.position = 0;
    ring->head.limit = 0;
    return (cairn_frame){first, ring->open_index, generation};
}

/* The open frame goes on in another chunk. False when memory is out. */
static bool spill(struct ring *ring, size_t needed)
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
    ring->look_at = chunk_base(next) + smaller_of(ring->look_step, chunk_bytes(next));
    set_position(ring, chunk_base(next));
    return true;
}

api void *cairn_ring_alloc_slow(cairn_ring *head, size_t size, size_t align)
{
    struct ring *ring = ring_of(head);
    check_opened(ring, "allocation");
    if (unlikely(!is_power_of_two(align)))
        return frame_invalid();
    if (unlikely(size > PTRDIFF_MAX / 4 || align > PTRDIFF_MAX / 4))
        return frame_no_memory();
    size_t asked = larger_of(size, 1);
    size = align_up(asked + (ring->checked ? CHECKED_GAP_BYTES : 0), RING_GRANULE);
    align = larger_of(align, RING_GRANULE);
    uintptr_t start = align_up(position(ring), align);
    while (start + size > chunk_end(ring->current)) {
        size_t needed = size + (align > PAGE_BYTES ? align : 0);
        if (!spill(ring, needed) && !ask_for_memory(ring, needed))
            return frame_no_memory();
        start = align_up(position(ring), align);
    }
    if (ring->checked)
        mark_undefined((void *)start, asked);
    set_position(ring, start + size);
    return (void *)start;
}

/* Gives one extra hold up, if there is one. */
static bool give_extra_hold(struct ring_chunk *chunk, uint32_t index)
{
    uint32_t *extra = &chunk->retains[index];
    uint32_t holds =
        load_acquire(extra); /* pairs with the release of a hold: the last sees all before */
    while (holds > 0)
        if (compare_swap_acq_rel(extra, &holds, holds - 1))
            return true;
    return false;
}

static inline struct ring_chunk *check_frame(cairn_frame frame, const char *operation)
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
    struct ring_chunk *chunk = check_frame(frame, "retain");
    fetch_add_relaxed(&chunk->retains[frame.index], more);
    store_relaxed(&chunk->retained, (uint32_t)1); /* whoever gets a hold by this sees both */
}

api void cairn_ring_release(cairn_frame frame)
{
    if (unlikely(frame.chunk == NULL))
        return;
    struct ring_chunk *chunk = check_frame(frame, "release");
    if (unlikely(load_relaxed(&chunk->retained) != 0) && give_extra_hold(chunk, frame.index))
        return;
    uint32_t index = frame.index;
    while (unlikely(load_relaxed(&chunk->spill_index) == index)) {
        struct ring_chunk *next = chunk->spill; /* before the chunk can become another's */
        uint32_t generation = chunk->spill_generation;
        chunk_clear_frame(chunk, index);
        chunk = check_frame((cairn_frame){next, 0, generation}, "release");
        index = 0;
    }
    chunk_clear_frame(chunk, index);
}

api cairn_checkpoint cairn_ring_checkpoint(const cairn_ring *head)
{
    struct ring *ring = ring_of(head);
    check_owner(ring);
    return (cairn_checkpoint){
        .chunk = ring->open ? ring->current : NULL,
        .position = position(ring),
        .sealed = ring->sealed,
        .opened = ring->opened,
        .open = ring->open,
    };
}

/* Makes a chunk of the open frame the current one again; those after it are free. */
static void cut_after(struct ring *ring, struct ring_chunk *last)
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
    ring->look_at = chunk_end(last);
    ring->issued = last == ring->first ? ring->open_index + 1 : 1;
}

static bool in_open_frame(const struct ring *ring, const struct ring_chunk *wanted)
{
    for (const struct ring_chunk *chunk = ring->first; chunk != ring->current; chunk = chunk->spill)
        if (chunk == wanted)
            return true;
    return ring->current == wanted;
}

static void bury(struct ring *ring, uintptr_t from)
{
    if (ring->checked)
        mark_inaccessible((void *)from, chunk_end(ring->current) - from);
}

api int cairn_ring_rewind(cairn_ring *head, cairn_checkpoint checkpoint)
{
    struct ring *ring = ring_of(head);
    check_owner(ring);
    if (ring->sealed != checkpoint.sealed)
        return EBUSY;
    if (!checkpoint.open) {
        if (ring->open) {
            cut_after(ring, ring->first);
            /* The next frame has this one's number, and not its holds. */
            store_relaxed(&ring->first->retains[ring->open_index], (uint32_t)0);
            ring->issued = ring->open_index;
            ring->open = false;
            set_position(ring, ring->open_position);
            bury(ring, ring->open_position);
        }
        return 0;
    }
    bool there = ring->open && ring->opened == checkpoint.opened &&
                 in_open_frame(ring, checkpoint.chunk) &&
                 (checkpoint.chunk != ring->current || checkpoint.position <= position(ring));
    if (!there)
        die("ring \"%s\": rewind to a checkpoint that is undone", ring->name);
    cut_after(ring, checkpoint.chunk);
    set_position(ring, checkpoint.position);
    bury(ring, checkpoint.position);
    return 0;
}

api size_t cairn_ring_trim(cairn_ring *head, size_t keep_bytes)
{
    struct ring *ring = ring_of(head);
    check_owner(ring);
    ring_collect(ring);
    return ring_give_back(ring, keep_bytes);
}

/* Ends the ring with the last chunk that is out. */
static void end(struct ring *ring)
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
    check_owner(ring);
    ring_collect(ring);
    const struct ring_chunk *current = ring->current;
    bool released = current ? ring->out_count == 1 && chunk_is_clear(current, ring->issued)
                            : ring->out_count == 0;
    if (ring->open || !released)
        return EBUSY;
    end(ring);
    return 0;
}

api void cairn_ring_close(cairn_ring *head)
{
    if (head == NULL)
        return;
    struct ring *ring = ring_of(head);
    check_owner(ring);
    if (ring->open)
        die("ring \"%s\": closed while a frame is open", ring->name);
    end(ring);
}

api void cairn_ring_read_stats(const cairn_ring *head, cairn_ring_stats *stats)
{
    struct ring *ring = ring_of(head);
    check_owner(ring);
    ring_collect(ring); /* released chunks are counted as such */
    *stats = (cairn_ring_stats){
        .chunk_bytes = ring->out_bytes,
        .spare_bytes = ring->spare_bytes,
        .sealed = ring->sealed,
        .chunks = ring->out_count,
    };
}

static void *allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    if (pointer == NULL)
        return NULL;
    struct ring *ring = ring_of(context);
    check_opened(ring, "resize");
    if (ring->checked)
        return new_size <= old_size ? pointer : NULL;
    if (old_size > PTRDIFF_MAX / 4 || new_size > PTRDIFF_MAX / 4)
        return NULL;
    uintptr_t start = (uintptr_t)pointer;
    size_t new_rounded = align_up(larger_of(new_size, 1), RING_GRANULE);
    if (start + align_up(larger_of(old_size, 1), RING_GRANULE) != position(ring))
        return new_size <= old_size ? pointer : NULL;
    if (new_rounded > chunk_end(ring->current) - start)
        return NULL;
    set_position(ring, start + new_rounded);
    return pointer;
}

static void *allocator_alloc(void *context, size_t size, size_t align)
{
    return cairn_ring_alloc_slow(context, size, align);
}

/* Any thread: a container in a frame ends with its consumer. */
static void allocator_free(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)pointer;
    (void)size;
}

api cairn_allocator cairn_ring_allocator(cairn_ring *ring)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = allocator_alloc,
        .resize = allocator_resize,
        .free = allocator_free,
        .capabilities = CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER,
        .name = "ring",
    };
    check_not_ended(ring_of(ring));
    return (cairn_allocator){ring, &operations};
}
