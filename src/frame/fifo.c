/* The FIFO's allocation and resizing, and what its inline functions leave over: see cairn/fifo.h
 * for what it does, fifo_state.h for its invariants. */
#include "frame/fifo_state.h"

#include <string.h>

static void begin_page(struct fifo *fifo, uintptr_t at)
{
    group_at(at)->head.live[page_index(at)] = CURRENT_BIAS;
    fifo->head.made = 0;
    fifo_set_position(fifo, at, align_down(at, PAGE_BYTES) + PAGE_BYTES);
}

/* The page being filled gets its true count. */
static void leave_page(struct fifo *fifo)
{
    struct fifo_segment *segment = fifo->current;
    uintptr_t page_start = fifo->held_limit - PAGE_BYTES;
    int32_t *live = &group_at(page_start)->head.live[page_index(page_start)];
    *live -= CURRENT_BIAS - (int32_t)fifo->head.made;
    if (unlikely(*live < 0))
        die("fifo \"%s\": more frees than objects in the page of %p", fifo->name,
            (void *)page_start);
    if (*live > 0)
        segment->live_pages++;
}

/* Ends the filling of the current segment, whose last page was left. */
static void retire(struct fifo *fifo)
{
    struct fifo_segment *segment = fifo->current;
    fifo->current = NULL;
    fifo_set_position(fifo, 0, 0);
    segment->state = SEGMENT_RETIRED;
    if (segment->live_pages == 0)
        segment_give(fifo, segment);
    else
        segment_was_filled(fifo, segment);
}

/* The object begins in the current page and ends in a later one of its segment. */
static void cross(struct fifo *fifo, uintptr_t start, uintptr_t end)
{
    struct fifo_group *group = group_at(start);
    fifo->head.made++;
    leave_page(fifo);
    size_t first = page_index(start);
    size_t last = page_index(end - 1);
    for (size_t page = first + 1; page <= last; page++) {
        group->head.live[page] = 0;
        group->back[page] = (uint8_t)(page - first);
    }
    if (end == segment_end(fifo->current)) {
        retire(fifo);
        return;
    }
    if (end % PAGE_BYTES == 0)
        group->back[page_index(end)] = 0;
    begin_page(fifo, end);
}

/* Whether every object of the current segment is freed, those in the page being filled too. */
static bool nothing_lives_in_current(const struct fifo *fifo)
{
    uintptr_t page_start = fifo->held_limit - PAGE_BYTES;
    return fifo->current->live_pages == 0 &&
           group_at(page_start)->head.live[page_index(page_start)] ==
               CURRENT_BIAS - (int32_t)fifo->head.made;
}

/* Where the next object that does not fit into the current page may start: in a later page, in the
 * same segment again when that is empty, or in another. False when memory is out. */
static bool move_on(struct fifo *fifo, uintptr_t start, size_t size)
{
    struct fifo_segment *segment = fifo->current;
    bool fits = segment && start + size <= segment_end(segment);
    struct fifo_segment *next = NULL;
    bool rewinds = segment && !fits && nothing_lives_in_current(fifo) && !fifo->checked;
    if (!fits && !rewinds && (next = segment_take(fifo)) == NULL)
        return false;
    if (segment)
        leave_page(fifo);
    if (rewinds) {
        memset(&group_of(segment)->back[segment_index(segment) * SEGMENT_PAGES], 0, SEGMENT_PAGES);
        begin_page(fifo, segment_start(segment));
    } else if (fits) {
        group_of(segment)->back[page_index(start)] = 0;
        begin_page(fifo, start);
    } else {
        if (segment)
            retire(fifo);
        fifo->current = next;
        begin_page(fifo, segment_start(next));
    }
    return true;
}

static void *alloc_small(struct fifo *fifo, size_t size, size_t align)
{
    for (;;) {
        uintptr_t start = align_up(fifo_position(fifo), align);
        uintptr_t end = start + size;
        if (fifo->current && end <= fifo->held_limit) {
            fifo->head.made++;
            fifo_set_position(fifo, end, fifo->held_limit);
            return (void *)start;
        }
        if (fifo->current && start < fifo->held_limit && end <= segment_end(fifo->current)) {
            cross(fifo, start, end);
            return (void *)start;
        }
        if (!move_on(fifo, start, size))
            return NULL;
    }
}

void fifo_stop_filling(struct fifo *fifo)
{
    if (fifo->any_thread_free)
        fifo_collect(fifo);
    if (fifo->current) {
        leave_page(fifo);
        retire(fifo);
    }
    run_leave(fifo);
}

static void *alloc_plain(struct fifo *fifo, size_t size, size_t align)
{
    if (size > PTRDIFF_MAX)
        return NULL;
    size = align_up(size, FIFO_GRANULE);
    align = larger_of(align, FIFO_GRANULE);
    if (likely(size <= SMALL_OBJECT_BYTES && align <= PAGE_BYTES))
        return alloc_small(fifo, size, align);
    if (size > RUN_OBJECT_BYTES || align > PAGE_BYTES)
        return large_object_make(fifo, size, align);
    return run_object_make(fifo, size);
}

/* The same for checked FIFOs. */
static void *alloc_checked(struct fifo *fifo, size_t size, size_t align)
{
    if (size > PTRDIFF_MAX / 2 || align > GROUP_BYTES)
        return NULL;
    void *plain =
        alloc_plain(fifo, fifo_checked_bytes(size, align), larger_of(align, FIFO_HEADER_BYTES));
    return plain ? fifo_checked_lay(plain, size, align) : NULL;
}

/* Asks the program after a failure; true: try again. Nothing that can never be is asked for. */
static bool ask_for_memory(const struct fifo *fifo, size_t size, size_t align)
{
    return size <= smaller_of(fifo->max_bytes, PTRDIFF_MAX / 2) && align <= GROUP_BYTES &&
           frame_try_again(fifo->out_of_memory, fifo->out_of_memory_context, size);
}

api void *cairn_fifo_alloc_slow(cairn_fifo *head, size_t size, size_t align)
{
    struct fifo *fifo = fifo_of(head);
    fifo_check_open(fifo, "allocation");
    if (unlikely(!is_power_of_two(align)))
        return frame_invalid();
    size = larger_of(size, 1);
    void *object;
    do {
        if (fifo->any_thread_free)
            fifo_collect(fifo);
        object = unlikely(fifo->checked) ? alloc_checked(fifo, size, align)
                                         : alloc_plain(fifo, size, align);
    } while (unlikely(object == NULL) && ask_for_memory(fifo, size, align));
    fifo_verify(fifo);
    return object ? object : frame_no_memory();
}

api void cairn_fifo_free_slow(cairn_fifo *head, void *pointer)
{
    struct fifo *fifo = fifo_of(head);
    if (pointer == NULL)
        return;
    const void *owner = load_relaxed(&fifo->owner);
    bool own = owner == __builtin_thread_pointer();
    if (owner != NULL && fifo->any_thread_free && (!own || fifo->closed)) {
        fifo_free_remotely(fifo, pointer);
        return;
    }
    fifo_check_owner(fifo);
    if (fifo->checked && fifo_find_group(fifo, (uintptr_t)pointer) == NULL)
        fifo_die_foreign(fifo, pointer);
    fifo_end_object(fifo, pointer, false);
    fifo_verify(fifo);
    if (fifo->closed && fifo->busy == 0)
        fifo_destroy(fifo);
}

bool fifo_resize_in_place(struct fifo *fifo, void *pointer, size_t old_size, size_t new_size)
{
    uintptr_t address = (uintptr_t)pointer;
    if (fifo->checked)
        fifo_checked_verify(fifo, pointer, old_size);
    if (fifo->checked || new_size > PTRDIFF_MAX)
        return false; /* moves, so that stale pointers show */
    old_size = align_up(larger_of(old_size, 1), FIFO_GRANULE);
    new_size = align_up(larger_of(new_size, 1), FIFO_GRANULE);
    if (old_size > SMALL_OBJECT_BYTES)
        return new_size <= old_size && new_size > SMALL_OBJECT_BYTES;
    if (address + old_size == fifo_position(fifo) && address >= fifo->held_limit - PAGE_BYTES &&
        new_size <= fifo->held_limit - address) {
        fifo_set_position(fifo, address + new_size, fifo->held_limit);
        return true;
    }
    return new_size <= old_size;
}

api void *cairn_fifo_realloc(cairn_fifo *head, void *pointer, size_t old_size, size_t new_size,
                             size_t align)
{
    struct fifo *fifo = fifo_of(head);
    if (pointer == NULL)
        return cairn_fifo_alloc_slow(head, new_size, align);
    fifo_check_open(fifo, "allocation");
    if (!is_power_of_two(align))
        return frame_invalid();
    if (fifo_resize_in_place(fifo, pointer, old_size, new_size))
        return pointer;
    void *moved = cairn_fifo_alloc_slow(head, new_size, align);
    if (moved) {
        memcpy(moved, pointer, smaller_of(old_size, new_size));
        cairn_fifo_free(head, pointer);
    }
    return moved;
}
