/* The FIFO's slow paths and its life: see cairn/fifo.h for what it does, fifo_state.h for its
 * invariants. */
#include "frame/fifo_state.h"

#include <errno.h>
#include <string.h>

static inline struct fifo *fifo_of(const cairn_fifo *head)
{
    return (struct fifo *)(uintptr_t)head;
}

static inline void check_owner(const struct fifo *fifo)
{
    if (unlikely(fifo->owner != __builtin_thread_pointer()))
        die("fifo \"%s\": used by a thread that does not own it", fifo->name);
}

static void check_open(const struct fifo *fifo)
{
    check_owner(fifo);
    if (unlikely(fifo->closed))
        die("fifo \"%s\": allocation after close", fifo->name);
}

static inline bool disarmed(const struct fifo *fifo) { return fifo->checked || fifo->closed; }

static uintptr_t position(const struct fifo *fifo)
{
    return disarmed(fifo) ? fifo->held_position : fifo->head.position;
}

static void set_position(struct fifo *fifo, uintptr_t at, uintptr_t limit)
{
    fifo->held_position = at;
    fifo->held_limit = limit;
    fifo->head.position = disarmed(fifo) ? 0 : at;
    fifo->head.limit = disarmed(fifo) ? 0 : limit;
}

/* Other threads that free read it, so it is atomic. */
static void set_owner(struct fifo *fifo, void *owner)
{
    store_relaxed(&fifo->owner, owner);
    store_relaxed(&fifo->head.owner, disarmed(fifo) ? NULL : owner);
}

static void verify_segment(const struct fifo *fifo, const struct fifo_group *group, size_t index)
{
    const struct fifo_segment *segment = &group->segments[index];
    bool is_free = segment->state == SEGMENT_SPARE || segment->state == SEGMENT_EMPTY;
    check_internal(is_free == ((group->free_mask >> index & 1) != 0));
    unsigned live = 0;
    for (size_t page = index * SEGMENT_PAGES; page < (index + 1) * SEGMENT_PAGES; page++)
        live += group->head.live[page] > 0;
    if (segment->state == SEGMENT_CURRENT)
        check_internal(segment == fifo->current && live == segment->live_pages + 1u);
    else if (segment->state == SEGMENT_RETIRED)
        check_internal(live == segment->live_pages && live != 0);
    else if (is_free)
        check_internal(live == 0);
}

void fifo_verify(const struct fifo *fifo)
{
    if (!config_debug)
        return;
    size_t busy = 0;
    size_t groups = 0;
    for (const struct fifo_group *group = fifo->groups; group; group = group->next) {
        check_internal(group_is_of(group, fifo));
        groups++;
        busy += group->large ? 1 : group->busy;
        check_internal(group->large != 0 ||
                       group->busy == GROUP_SEGMENTS - count_bits(group->free_mask));
        for (size_t i = 0; i < GROUP_SEGMENTS && group->large == 0; i++)
            verify_segment(fifo, group, i);
    }
    check_internal(busy == fifo->busy && groups == fifo->group_count);
}

api cairn_fifo *cairn_fifo_new(const cairn_fifo_options *options)
{
    static const cairn_fifo_options defaults = {0};
    options = options ? options : &defaults;
    os_init();
    struct fifo *fifo = cell_take(CELL_FIFO);
    if (fifo == NULL)
        return frame_no_memory();
    *fifo = (struct fifo){
        .owner = __builtin_thread_pointer(),
        .max_bytes = options->max_bytes ? options->max_bytes : SIZE_MAX,
        .interval_start_ms = os_now_ms(),
        .pending = 1,
        .any_thread_free = options->any_thread_free,
        .checked = frame_checked(),
    };
    fifo_remote_start(fifo);
    frame_copy_name(fifo->name, options->name, "fifo");
    set_owner(fifo, fifo->owner);
    return &fifo->head;
}

api void cairn_fifo_adopt(cairn_fifo *head)
{
    set_owner(fifo_of(head), __builtin_thread_pointer());
}

/* Pages. */

static void begin_page(struct fifo *fifo, uintptr_t at)
{
    group_at(at)->head.live[page_index(at)] = CURRENT_BIAS;
    fifo->head.made = 0;
    set_position(fifo, at, align_down(at, PAGE_BYTES) + PAGE_BYTES);
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
    set_position(fifo, 0, 0);
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

/* Where the next object that does not fit into the current page may start: in a later page, in the
 * same segment again when that is empty, or in another. False when memory is out. */
static bool move_on(struct fifo *fifo, uintptr_t start, size_t size)
{
    struct fifo_segment *segment = fifo->current;
    bool fits = segment && start + size <= segment_end(segment);
    struct fifo_segment *next = NULL;
    if (!fits) {
        bool rewinds = segment && segment->live_pages == 0 && !fifo->checked &&
                       group_of(segment)->head.live[page_index(fifo->held_limit - 1)] ==
                           CURRENT_BIAS - (int32_t)fifo->head.made;
        if (!rewinds && (next = segment_take(fifo)) == NULL)
            return false;
    }
    if (segment)
        leave_page(fifo);
    if (segment && segment->live_pages == 0 && !fifo->checked && next == NULL) {
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
        uintptr_t start = align_up(position(fifo), align);
        uintptr_t end = start + size;
        if (fifo->current && end <= fifo->held_limit) {
            fifo->head.made++;
            set_position(fifo, end, fifo->held_limit);
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
    struct fifo_segment *run = segment_take_run(fifo, (size + SEGMENT_BYTES - 1) / SEGMENT_BYTES);
    if (run == NULL)
        return NULL;
    group_of(run)->head.live[page_index(segment_start(run))] = 1;
    return (void *)segment_start(run);
}

api void *cairn_fifo_alloc_slow(cairn_fifo *head, size_t size, size_t align)
{
    struct fifo *fifo = fifo_of(head);
    check_open(fifo);
    if (unlikely(!is_power_of_two(align)))
        return frame_invalid();
    if (fifo->any_thread_free)
        fifo_collect(fifo);
    size = larger_of(size, 1);
    void *object;
    if (unlikely(fifo->checked)) {
        bool sane = size <= PTRDIFF_MAX / 2 && align <= GROUP_BYTES;
        object = sane ? alloc_plain(fifo, fifo_checked_bytes(size, align),
                                    larger_of(align, FIFO_HEADER_BYTES))
                      : NULL;
        object = object ? fifo_checked_lay(object, size, align) : NULL;
    } else {
        object = alloc_plain(fifo, size, align);
    }
    fifo_verify(fifo);
    return object ? object : frame_no_memory();
}

static void finish_if_over(struct fifo *fifo)
{
    if (fifo->closed && fifo->busy == 0 && !fifo->any_thread_free)
        fifo_destroy(fifo);
}

static _Noreturn cold void die_foreign(const struct fifo *fifo, const void *pointer)
{
    die("fifo \"%s\": free of %p, which is not an object of it", fifo->name, pointer);
}

/* The count of the object's page has gone down to 0, or below. */
static void end_page(struct fifo *fifo, void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    struct fifo_group *group = group_at(address);
    if (unlikely(group->head.live[page_index(address)] < 0))
        die("fifo \"%s\": double free of %p", fifo->name, pointer);
    if (group->large) {
        if (group->large != address)
            die_foreign(fifo, pointer);
        large_object_end(fifo, group);
        return;
    }
    struct fifo_segment *segment = segment_at(address);
    if (segment->state == SEGMENT_RUN) {
        if (address != segment_start(segment))
            die_foreign(fifo, pointer);
        segment_give(fifo, segment);
        return;
    }
    segment->live_pages--;
    if (segment->state == SEGMENT_RETIRED && segment->live_pages == 0)
        segment_give(fifo, segment);
    else if (segment->state == SEGMENT_RETIRED)
        segment_page_died(fifo, segment, page_index(address));
}

api void cairn_fifo_end_page(cairn_fifo *head, void *pointer)
{
    struct fifo *fifo = fifo_of(head);
    end_page(fifo, pointer);
    fifo_verify(fifo);
}

/* A group of this FIFO, by search: for pointers whose group must not be read before it is known. */
static struct fifo_group *find_group(const struct fifo *fifo, uintptr_t address)
{
    for (struct fifo_group *group = fifo->groups; group; group = group->next)
        if (address - (uintptr_t)group < group->reserved)
            return group;
    return NULL;
}

void fifo_end_object(struct fifo *fifo, void *pointer, bool queued)
{
    if (fifo->checked)
        pointer = fifo_checked_end(fifo, pointer, queued);
    uintptr_t address = (uintptr_t)pointer;
    if (unlikely(address % GROUP_BYTES == 0)) { /* the group's header lies before */
        struct fifo_group *group = find_group(fifo, address);
        if (group == NULL || group->large != address)
            die_foreign(fifo, pointer);
        large_object_end(fifo, group);
        return;
    }
    struct fifo_group *group = group_at(address);
    if (unlikely(!group_is_of(group, fifo)))
        die_foreign(fifo, pointer);
    if (--group->head.live[page_index(address)] <= 0)
        end_page(fifo, pointer);
}

api void cairn_fifo_free_slow(cairn_fifo *head, void *pointer)
{
    struct fifo *fifo = fifo_of(head);
    if (pointer == NULL)
        return;
    bool own = load_relaxed(&fifo->owner) == __builtin_thread_pointer();
    if (fifo->any_thread_free && (!own || fifo->closed)) {
        fifo_free_remotely(fifo, pointer);
        return;
    }
    check_owner(fifo);
    if (fifo->checked && find_group(fifo, (uintptr_t)pointer) == NULL)
        die_foreign(fifo, pointer);
    fifo_end_object(fifo, pointer, false);
    fifo_verify(fifo);
    finish_if_over(fifo);
}

/* In place: the newest object in its page, or into what its segments or mapping have anyway. */
static bool resize_in_place(struct fifo *fifo, void *pointer, size_t old_size, size_t new_size)
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
    if (address + old_size == position(fifo) && address >= fifo->held_limit - PAGE_BYTES &&
        new_size <= fifo->held_limit - address) {
        set_position(fifo, address + new_size, fifo->held_limit);
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
    check_open(fifo);
    if (!is_power_of_two(align))
        return frame_invalid();
    if (resize_in_place(fifo, pointer, old_size, new_size))
        return pointer;
    void *moved = cairn_fifo_alloc_slow(head, new_size, align);
    if (moved) {
        memcpy(moved, pointer, smaller_of(old_size, new_size));
        cairn_fifo_free(head, pointer);
    }
    return moved;
}

api size_t cairn_fifo_trim(cairn_fifo *head, size_t keep)
{
    struct fifo *fifo = fifo_of(head);
    check_owner(fifo);
    if (fifo->any_thread_free)
        fifo_collect(fifo);
    size_t given = fifo_give_back(fifo, keep);
    fifo_verify(fifo);
    return given;
}

void fifo_destroy(struct fifo *fifo)
{
    fifo_free_groups(fifo);
    fifo->owner = NULL;
    cell_give(CELL_FIFO, fifo);
}

/* Leaves the current segment, so that it is free when nothing in it lives. */
static void stop_filling(struct fifo *fifo)
{
    if (fifo->any_thread_free)
        fifo_collect(fifo);
    if (fifo->current) {
        leave_page(fifo);
        retire(fifo);
    }
}

api int cairn_fifo_delete(cairn_fifo *head)
{
    if (head == NULL)
        return 0;
    struct fifo *fifo = fifo_of(head);
    check_owner(fifo);
    stop_filling(fifo);
    if (fifo->busy != 0)
        return EBUSY;
    fifo_destroy(fifo);
    return 0;
}

api void cairn_fifo_close(cairn_fifo *head)
{
    if (head == NULL)
        return;
    struct fifo *fifo = fifo_of(head);
    check_open(fifo);
    stop_filling(fifo);
    fifo_give_back(fifo, 0);
    fifo->closed = true;
    set_position(fifo, 0, 0);
    set_owner(fifo,
              fifo->owner); /* frees take the slow path from now on, where the end is noticed */
    if (fifo->any_thread_free)
        fifo_hand_over(fifo);
    else
        finish_if_over(fifo);
}

api void cairn_fifo_read_stats(const cairn_fifo *head, cairn_fifo_stats *stats)
{
    const struct fifo *fifo = fifo_of(head);
    *stats = (cairn_fifo_stats){
        .segment_bytes = fifo->busy_bytes,
        .spare_bytes = fifo->spare.count * SEGMENT_BYTES,
    };
    for (const struct fifo_group *group = fifo->groups; group; group = group->next) {
        stats->reserved_bytes += group->reserved;
        for (size_t page = 0; page < CAIRN_FIFO_PAGES && group->large == 0; page++) {
            const struct fifo_segment *segment = &group->segments[page / SEGMENT_PAGES];
            bool returned = segment->state == SEGMENT_RETIRED && segment->returned;
            stats->returned_bytes += returned && group->head.live[page] == 0 ? PAGE_BYTES : 0;
        }
    }
}

static void *allocator_alloc(void *context, size_t size, size_t align)
{
    return cairn_fifo_alloc_slow(context, size, align);
}

static void *allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    if (pointer == NULL)
        return NULL;
    check_open(fifo_of(context));
    return resize_in_place(fifo_of(context), pointer, old_size, new_size) ? pointer : NULL;
}

static void allocator_free(void *context, void *pointer, size_t size)
{
    (void)size;
    cairn_fifo_free(context, pointer);
}

api struct cairn_allocator cairn_fifo_allocator(cairn_fifo *fifo)
{
    static const struct cairn_allocator_operations own_thread = {
        .alloc = allocator_alloc,
        .resize = allocator_resize,
        .free = allocator_free,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE,
        .name = "fifo",
    };
    static const struct cairn_allocator_operations any_thread = {
        .alloc = allocator_alloc,
        .resize = allocator_resize,
        .free = allocator_free,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_ANY_THREAD_FREE,
        .name = "fifo",
    };
    return (struct cairn_allocator){fifo,
                                    fifo_of(fifo)->any_thread_free ? &any_thread : &own_thread};
}
