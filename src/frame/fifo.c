/* The FIFO's objects: allocation, resizing and end; frees by other threads; the checks of checked
 * FIFOs; the public functions. cairn/fifo.h describes what they do; structure, invariants and
 * protocol are in fifo_state.h. Memory is in fifo_pages.c.
 *
 * A checked FIFO puts each object between a header, which distinguishes live objects from dead
 * ones, and a canary.
 */
#include "frame/fifo_state.h"

#include "base/test_delay.h"
#include "os/memory.h"
#include "os/process.h"

#include <errno.h>
#include <string.h>

struct checked_header {
    uint32_t offset; /* offset of the object in the plain one */
    uint32_t state;  /* atomic: LIVE; QUEUED by another thread's free; or DEAD */
    size_t size;
    void *link; /* the next object that was freed, while QUEUED */
    uint64_t unused;
};

static_check(sizeof(struct checked_header) == FIFO_HEADER_BYTES, "right before the object");

enum {
    LIVE = 0x11feca00,
    QUEUED = 0x7feeca00,
    DEAD = 0xdeadca,
    CANARY_BYTE = 0xca,
    DEAD_BYTE = 0xdd
};

void *fifo_checked_lay(void *plain, size_t size, size_t align)
{
    size_t offset = larger_of(align, FIFO_HEADER_BYTES);
    char *object = (char *)plain + offset;
    mark_undefined(plain, fifo_checked_bytes(size, align));
    struct checked_header *header = (struct checked_header *)(void *)object - 1;
    *header = (struct checked_header){.offset = (uint32_t)offset, .state = LIVE, .size = size};
    memset(object + size, CANARY_BYTE, FIFO_CANARY_BYTES);
    mark_inaccessible(header, sizeof *header);
    mark_inaccessible(object + size, FIFO_CANARY_BYTES);
    return object;
}

/* Ends the process when the program wrote past the end of an object. */
static void fifo_verify_canary(struct fifo *fifo, void *pointer,
                               const struct checked_header *header)
{
    const unsigned char *canary = (unsigned char *)pointer + header->size;
    mark_defined(canary, FIFO_CANARY_BYTES);
    for (size_t i = 0; i < FIFO_CANARY_BYTES; i++)
        if (canary[i] != CANARY_BYTE)
            die("fifo \"%s\": write past the end of %p (%zu-byte object)", fifo->name, pointer,
                header->size);
}

/* Changes the state of an object from `expected` to `next`. Ends the process when another state
 * shows misuse.
 * Returns: the header. */
static struct checked_header *fifo_claim(struct fifo *fifo, void *pointer, uint32_t expected,
                                         uint32_t next)
{
    struct checked_header *header = (struct checked_header *)pointer - 1;
    mark_defined(header, sizeof *header);
    uint32_t state = exchange_acq_rel(&header->state, next);
    if (state == DEAD || (state == QUEUED && expected == LIVE))
        die("fifo \"%s\": double free of %p", fifo->name, pointer);
    if (state != LIVE && state != QUEUED)
        die("fifo \"%s\": free of %p, which is not an object of it", fifo->name, pointer);
    return header;
}

void **fifo_checked_queue(struct fifo *fifo, void *pointer)
{
    return &fifo_claim(fifo, pointer, LIVE, QUEUED)->link;
}

void **fifo_checked_link(void *pointer) { return &((struct checked_header *)pointer - 1)->link; }

void *fifo_checked_end(struct fifo *fifo, void *pointer, bool queued)
{
    struct checked_header *header = fifo_claim(fifo, pointer, queued ? QUEUED : LIVE, DEAD);
    fifo_verify_canary(fifo, pointer, header);
    void *plain = (char *)pointer - header->offset;
    size_t size = header->size;
    mark_undefined(pointer, size);
    memset(pointer, DEAD_BYTE, size);
    mark_inaccessible(pointer, size + FIFO_CANARY_BYTES);
    mark_inaccessible(header, sizeof *header);
    return plain;
}

void fifo_checked_verify(struct fifo *fifo, void *pointer, size_t size)
{
    struct checked_header *header = fifo_claim(fifo, pointer, LIVE, LIVE);
    fifo_verify_canary(fifo, pointer, header);
    if (header->size != larger_of(size, 1))
        die("fifo \"%s\": realloc of %p with old size %zu (%zu-byte object)", fifo->name, pointer,
            size, header->size);
    mark_inaccessible((char *)pointer + header->size, FIFO_CANARY_BYTES);
    mark_inaccessible(header, sizeof *header);
}

static cold no_return void fifo_die_of_double_free(const struct fifo *fifo,
                                                   const struct fifo_group *group,
                                                   const void *pointer)
{
    if (group->large == 0 && segment_at((uintptr_t)pointer)->state != SEGMENT_RUN)
        fifo_die_surplus(fifo, pointer);
    die("fifo \"%s\": double free of %p", fifo->name, pointer);
}

/* Ends an object whose page's live count has become 0 or less. */
static void fifo_end_page(struct fifo *fifo, void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    struct fifo_group *group = group_at(address);
    if (unlikely(group->head.live[page_index(address)] < 0) && run_object_holds(group, address))
        fifo_die_foreign(fifo, pointer);
    if (unlikely(group->head.live[page_index(address)] < 0))
        fifo_die_of_double_free(fifo, group, pointer);
    if (group->large) {
        if (group->large != address)
            fifo_die_foreign(fifo, pointer);
        large_object_end(fifo, group);
        return;
    }
    struct fifo_segment *segment = segment_at(address);
    if (segment->state == SEGMENT_RUN) {
        if (address % PAGE_BYTES != 0)
            fifo_die_foreign(fifo, pointer);
        run_object_end(fifo, group, page_index(address));
        return;
    }
    segment->live_pages--;
    if (segment->state == SEGMENT_RETIRED && segment->live_pages == 0)
        segment_give(fifo, segment);
    else if (segment->state == SEGMENT_RETIRED)
        segment_pages_died(fifo, segment, page_index(address), page_index(address) + 1);
}

api void cairn_fifo_end_page(cairn_fifo *head, void *pointer)
{
    struct fifo *fifo = fifo_of(head);
    fifo_end_page(fifo, pointer);
    fifo_verify(fifo);
}

struct fifo_group *fifo_find_group(const struct fifo *fifo, uintptr_t address)
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
    /* the group's header is not in this part of the mapping */
    if (unlikely(address % GROUP_BYTES == 0)) {
        struct fifo_group *group = fifo_find_group(fifo, address);
        if (group == NULL || group->large != address)
            fifo_die_foreign(fifo, pointer);
        large_object_end(fifo, group);
        return;
    }
    struct fifo_group *group = group_at(address);
    if (unlikely(!group_is_of(group, fifo)))
        fifo_die_foreign(fifo, pointer);
    if (--group->head.live[page_index(address)] <= 0)
        fifo_end_page(fifo, pointer);
}

void fifo_destroy(struct fifo *fifo)
{
    fifo_free_groups(fifo);
    store_relaxed(&fifo->owner, (void *)NULL);
    store_relaxed(&fifo->head.owner, (void *)NULL);
    fifo->head.position = 0;
    fifo->head.limit = 0;
    descriptor_give(DESCRIPTOR_FIFO, fifo);
}

static void **fifo_link_of(struct fifo *fifo, void *pointer, bool queues)
{
    if (likely(!fifo->checked))
        return pointer;
    return queues ? fifo_checked_queue(fifo, pointer) : fifo_checked_link(pointer);
}

/* Ends the objects that other threads freed until now.
 * Threads: the drainer only. */
static void fifo_drain(struct fifo *fifo)
{
    void *pointer =
        exchange_acq_rel(&fifo->remote, (void *)NULL); /* acquire: pairs with the push */
    while (pointer) {
        void *next = load_relaxed(fifo_link_of(fifo, pointer, false));
        fifo_end_object(fifo, pointer, true);
        pointer = next;
    }
}

void fifo_leave(struct fifo *fifo)
{
    void *none;
    do {
        fifo_drain(fifo);
        test_delay();
        if (fifo->busy == 0) {
            fifo_destroy(fifo);
            return;
        }
        none = NULL;
        /* release: pairs with the push of the next drainer */
    } while (!compare_swap_acq_rel(&fifo->remote, &none, REMOTE_IDLE));
}

void fifo_free_remotely(struct fifo *fifo, void *pointer)
{
    if (unlikely((uintptr_t)pointer % GROUP_BYTES != 0 &&
                 !group_is_of(group_at((uintptr_t)pointer), fifo)))
        fifo_die_foreign(fifo, pointer);
    void **link = fifo_link_of(fifo, pointer, true);
    void *head = load_relaxed(&fifo->remote);
    do {
        store_relaxed(link, head == REMOTE_IDLE ? NULL : head);
        test_delay();
        /* release: pairs with the exchange of the drainer, which also reads the link; acquire:
         * pairs with the drainer that left REMOTE_IDLE */
    } while (!compare_swap_acq_rel(&fifo->remote, &head, pointer));
    test_delay();
    if (head == REMOTE_IDLE)
        fifo_leave(fifo);
}

void fifo_collect(struct fifo *fifo)
{
    if (unlikely(load_relaxed(&fifo->remote) != NULL))
        fifo_drain(fifo);
}

/* Begins to fill the page of `at`, from there on. */
static void fifo_begin_page(struct fifo *fifo, uintptr_t at)
{
    group_at(at)->head.live[page_index(at)] = CURRENT_BIAS;
    fifo->head.made = 0;
    fifo_set_position(fifo, at, align_down(at, PAGE_BYTES) + PAGE_BYTES);
}

/* Replaces the bias in the live count of the page being filled. */
static void fifo_leave_page(struct fifo *fifo)
{
    struct fifo_segment *segment = fifo->current;
    uintptr_t page_start = fifo->held_limit - PAGE_BYTES;
    int32_t *live = &group_at(page_start)->head.live[page_index(page_start)];
    *live -= CURRENT_BIAS - (int32_t)fifo->head.made;
    if (unlikely(*live < 0))
        fifo_die_surplus(fifo, (void *)page_start);
    if (*live > 0)
        segment->live_pages++;
}

/* Stops filling the current segment, whose last page was left. */
static void fifo_retire(struct fifo *fifo)
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

/* Makes an object that begins in the current page and ends in a later one of its segment. */
static void fifo_cross(struct fifo *fifo, uintptr_t start, uintptr_t end)
{
    struct fifo_group *group = group_at(start);
    fifo->head.made++;
    fifo_leave_page(fifo);
    size_t first = page_index(start);
    size_t last = page_index(end - 1);
    for (size_t page = first + 1; page <= last; page++) {
        group->head.live[page] = 0;
        group->back[page] = (uint8_t)(page - first);
    }
    if (end == segment_end(fifo->current)) {
        fifo_retire(fifo);
        return;
    }
    if (end % PAGE_BYTES == 0)
        group->back[page_index(end)] = 0;
    fifo_begin_page(fifo, end);
}

/* Whether all objects of the current segment are freed, those in the page being filled too. */
static bool fifo_nothing_lives_in_current(const struct fifo *fifo)
{
    uintptr_t page_start = fifo->held_limit - PAGE_BYTES;
    return fifo->current->live_pages == 0 &&
           group_at(page_start)->head.live[page_index(page_start)] ==
               CURRENT_BIAS - (int32_t)fifo->head.made;
}

/* Moves the position for an object that does not fit into the current page: to a later page, to the
 * start of the segment when that is empty, or to another segment.
 * Returns: false when out of memory. */
static bool fifo_move_on(struct fifo *fifo, uintptr_t start, size_t size)
{
    struct fifo_segment *segment = fifo->current;
    bool fits = segment && start + size <= segment_end(segment);
    struct fifo_segment *next = NULL;
    bool rewinds = segment && !fits && fifo_nothing_lives_in_current(fifo) && !fifo->checked;
    if (!fits && !rewinds && (next = segment_take(fifo)) == NULL)
        return false;
    if (segment)
        fifo_leave_page(fifo);
    if (rewinds) {
        memset(&group_of(segment)->back[segment_index(segment) * SEGMENT_PAGES], 0, SEGMENT_PAGES);
        fifo_begin_page(fifo, segment_start(segment));
    } else if (fits) {
        group_of(segment)->back[page_index(start)] = 0;
        fifo_begin_page(fifo, start);
    } else {
        if (segment)
            fifo_retire(fifo);
        fifo->current = next;
        fifo_begin_page(fifo, segment_start(next));
    }
    return true;
}

/* Makes the segments spare that wait for the next objects and have none.
 * Returns: whether there were any. */
static bool fifo_leave_empty(struct fifo *fifo)
{
    size_t busy = fifo->busy;
    if (fifo->current && fifo_nothing_lives_in_current(fifo)) {
        fifo_leave_page(fifo);
        fifo_retire(fifo);
    }
    if (fifo->run && fifo->run->live_pages == 0)
        run_leave(fifo);
    return fifo->busy != busy;
}

static void *fifo_alloc_small(struct fifo *fifo, size_t size, size_t align)
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
            fifo_cross(fifo, start, end);
            return (void *)start;
        }
        if (!fifo_move_on(fifo, start, size))
            return NULL;
    }
}

void fifo_stop_filling(struct fifo *fifo)
{
    if (fifo->any_thread_free)
        fifo_collect(fifo);
    if (fifo->current) {
        fifo_leave_page(fifo);
        fifo_retire(fifo);
    }
    run_leave(fifo);
}

static void *fifo_alloc_plain(struct fifo *fifo, size_t size, size_t align)
{
    if (size > PTRDIFF_MAX)
        return NULL;
    size = align_up(size, FIFO_GRANULE);
    align = larger_of(align, FIFO_GRANULE);
    if (likely(size <= SMALL_OBJECT_BYTES && align <= PAGE_BYTES))
        return fifo_alloc_small(fifo, size, align);
    if (size > RUN_OBJECT_BYTES || align > PAGE_BYTES)
        return large_object_make(fifo, size, align);
    return run_object_make(fifo, size);
}

/* Makes an object in a checked FIFO.
 * Returns: NULL when out of memory. */
static void *fifo_alloc_checked(struct fifo *fifo, size_t size, size_t align)
{
    if (size > PTRDIFF_MAX / 2 || align > GROUP_BYTES)
        return NULL;
    void *plain = fifo_alloc_plain(fifo, fifo_checked_bytes(size, align),
                                   larger_of(align, FIFO_HEADER_BYTES));
    return plain ? fifo_checked_lay(plain, size, align) : NULL;
}

/* Calls the program's out-of-memory function, except for an object that can never be made.
 * Returns: true to try again. */
static bool fifo_ask_for_memory(const struct fifo *fifo, size_t size, size_t align)
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
        object = unlikely(fifo->checked) ? fifo_alloc_checked(fifo, size, align)
                                         : fifo_alloc_plain(fifo, size, align);
    } while (unlikely(object == NULL) &&
             (fifo_leave_empty(fifo) || fifo_ask_for_memory(fifo, size, align)));
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
        return false; /* the object moves, so that the use of an old pointer shows */
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

/* Sets the owner. The fields are atomic, because freeing threads read them. */
static void fifo_set_owner(struct fifo *fifo, void *owner)
{
    store_relaxed(&fifo->owner, owner);
    store_relaxed(&fifo->head.owner, fifo_disarmed(fifo) ? NULL : owner);
}

api cairn_fifo *cairn_fifo_new(const cairn_fifo_options *options)
{
    static const cairn_fifo_options defaults = {0};
    options = options ? options : &defaults;
    if (options->max_bytes != 0 && options->max_bytes < SEGMENT_BYTES)
        return frame_invalid();
    os_init();
    struct fifo *fifo = descriptor_take(DESCRIPTOR_FIFO);
    if (fifo == NULL)
        return frame_no_memory();
    *fifo = (struct fifo){
        .owner = __builtin_thread_pointer(),
        .max_bytes = options->max_bytes ? options->max_bytes : SIZE_MAX,
        .interval_start_ms = os_now_ms(),
        .out_of_memory = options->out_of_memory,
        .out_of_memory_context = options->out_of_memory_context,
        .any_thread_free = options->any_thread_free,
        .checked = frame_checked(),
    };
    frame_copy_name(fifo->name, options->name, "fifo");
    fifo_set_owner(fifo, fifo->owner);
    return &fifo->head;
}

api void cairn_fifo_adopt(cairn_fifo *head)
{
    struct fifo *fifo = fifo_of(head);
    if (load_relaxed(&fifo->owner) == NULL)
        fifo_die_not_owned(fifo);
    if (fifo->closed && fifo->any_thread_free)
        die("fifo \"%s\": adoption after close", fifo->name);
    fifo_set_owner(fifo, __builtin_thread_pointer());
}

/* Ends the process when more objects of the page being filled were freed than made. A free does not
 * check this before the page is left. */
static void fifo_check_filled_page(const struct fifo *fifo)
{
    if (fifo->current == NULL)
        return;
    uintptr_t page_start = fifo->held_limit - PAGE_BYTES;
    int32_t live = group_at(page_start)->head.live[page_index(page_start)];
    if (live < CURRENT_BIAS - (int32_t)fifo->head.made)
        fifo_die_surplus(fifo, (void *)page_start);
}

api size_t cairn_fifo_trim(cairn_fifo *head, size_t keep_bytes)
{
    struct fifo *fifo = fifo_of(head);
    fifo_check_open(fifo, "trim");
    if (fifo->any_thread_free)
        fifo_collect(fifo);
    fifo_check_filled_page(fifo);
    (void)fifo_leave_empty(fifo);
    size_t given = fifo_give_back(fifo, keep_bytes);
    fifo_verify(fifo);
    return given;
}

api int cairn_fifo_delete(cairn_fifo *head)
{
    if (head == NULL)
        return 0;
    struct fifo *fifo = fifo_of(head);
    fifo_check_open(fifo, "delete");
    fifo_stop_filling(fifo);
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
    fifo_check_open(fifo, "close");
    fifo_stop_filling(fifo);
    fifo_give_back(fifo, 0);
    fifo->closed = true;
    fifo_set_position(fifo, 0, 0);
    /* From now on frees take the slow path, which notices the end. */
    fifo_set_owner(fifo, fifo->owner);
    if (fifo->any_thread_free)
        fifo_leave(fifo);
    else if (fifo->busy == 0)
        fifo_destroy(fifo);
}

api void cairn_fifo_read_stats(const cairn_fifo *head, cairn_fifo_stats *stats)
{
    struct fifo *fifo = fifo_of(head);
    fifo_check_open(fifo, "statistics");
    if (fifo->any_thread_free)
        fifo_collect(fifo); /* objects that other threads freed do not count */
    fifo_check_filled_page(fifo);
    *stats = (cairn_fifo_stats){
        .segment_bytes = fifo->busy_bytes,
        .spare_bytes = fifo->spare.count * SEGMENT_BYTES,
    };
    for (const struct fifo_group *group = fifo->groups; group; group = group->next) {
        stats->reserved_bytes += group->reserved;
        stats->returned_bytes += group_returned_bytes(group);
    }
}

static void *fifo_allocator_alloc(void *context, size_t size, size_t align)
{
    return cairn_fifo_alloc_slow(context, size, align);
}

static void *fifo_allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    if (pointer == NULL)
        return NULL;
    fifo_check_open(fifo_of(context), "allocation");
    return fifo_resize_in_place(fifo_of(context), pointer, old_size, new_size) ? pointer : NULL;
}

static void fifo_allocator_free(void *context, void *pointer, size_t size)
{
    (void)size;
    cairn_fifo_free(context, pointer);
}

api cairn_allocator cairn_fifo_allocator(cairn_fifo *fifo)
{
    static const struct cairn_allocator_operations own_thread = {
        .alloc = fifo_allocator_alloc,
        .resize = fifo_allocator_resize,
        .free = fifo_allocator_free,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE,
        .name = "fifo",
    };
    static const struct cairn_allocator_operations any_thread = {
        .alloc = fifo_allocator_alloc,
        .resize = fifo_allocator_resize,
        .free = fifo_allocator_free,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_ANY_THREAD_FREE,
        .name = "fifo",
    };
    if (load_relaxed(&fifo_of(fifo)->owner) == NULL)
        fifo_die_not_owned(fifo_of(fifo));
    return (cairn_allocator){fifo, fifo_of(fifo)->any_thread_free ? &any_thread : &own_thread};
}
