/* The making and the end of a FIFO, what is read of it, and its form as an allocator: see
 * cairn/fifo.h. */
#include "frame/fifo_state.h"

#include <errno.h>

/* Other threads that free read it, so it is atomic. */
static void set_owner(struct fifo *fifo, void *owner)
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
    struct fifo *fifo = cell_take(CELL_FIFO);
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
    set_owner(fifo, fifo->owner);
    return &fifo->head;
}

api void cairn_fifo_adopt(cairn_fifo *head)
{
    struct fifo *fifo = fifo_of(head);
    if (load_relaxed(&fifo->owner) == NULL)
        fifo_die_not_owned(fifo);
    if (fifo->closed && fifo->any_thread_free)
        die("fifo \"%s\": adoption after close", fifo->name);
    set_owner(fifo, __builtin_thread_pointer());
}

api size_t cairn_fifo_trim(cairn_fifo *head, size_t keep_bytes)
{
    struct fifo *fifo = fifo_of(head);
    fifo_check_open(fifo, "trim");
    if (fifo->any_thread_free)
        fifo_collect(fifo);
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
    /* Frees take the slow path from now on, where the end is noticed. */
    set_owner(fifo, fifo->owner);
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
        fifo_collect(fifo); /* what others freed counts as such */
    *stats = (cairn_fifo_stats){
        .segment_bytes = fifo->busy_bytes,
        .spare_bytes = fifo->spare.count * SEGMENT_BYTES,
    };
    for (const struct fifo_group *group = fifo->groups; group; group = group->next) {
        stats->reserved_bytes += group->reserved;
        stats->returned_bytes += group_returned_bytes(group);
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
    fifo_check_open(fifo_of(context), "allocation");
    return fifo_resize_in_place(fifo_of(context), pointer, old_size, new_size) ? pointer : NULL;
}

static void allocator_free(void *context, void *pointer, size_t size)
{
    (void)size;
    cairn_fifo_free(context, pointer);
}

api cairn_allocator cairn_fifo_allocator(cairn_fifo *fifo)
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
    if (load_relaxed(&fifo_of(fifo)->owner) == NULL)
        fifo_die_not_owned(fifo_of(fifo));
    return (cairn_allocator){fifo,
                                    fifo_of(fifo)->any_thread_free ? &any_thread : &own_thread};
}
