/* The stack's slow paths and its life: see cairn/stack.h for what it does, stack_state.h for its
 * invariants. */
#include "frame/stack_state.h"

#include <string.h>

static inline struct stack *stack_of(const cairn_stack *head) { return head->inside; }

static inline void check_owner(const struct stack *stack)
{
    if (unlikely(stack->head->owner != __builtin_thread_pointer()))
        die("stack \"%s\": used by a thread that does not own it", stack->name);
}

void stack_set_position(struct stack *stack, uintptr_t position)
{
    bool disarmed = stack_disarmed(stack) || stack->current == NULL;
    stack->held_position = position;
    stack->head->position = disarmed ? 0 : position;
    stack->head->limit = disarmed ? 0 : block_end(stack->current);
}

void stack_verify(const struct stack *stack)
{
    if (!config_debug)
        return;
    for (struct stack_block *block = stack->first; block; block = block->newer) {
        check_internal(block->limit <= block->resident && block->resident <= block->committed);
        check_internal(block->committed <= block->reserved && block->limit % PAGE_BYTES == 0);
        check_internal(block->newer == NULL || block->newer->older == block);
        if (block == stack->current)
            break;
        /* Without a current block all are spare. A block may be left without anything in it. */
        check_internal(stack->current == NULL || (block->left_at >= (uintptr_t)block->base &&
                                                  block->left_at <= block_end(block)));
    }
    if (stack->current == NULL)
        return;
    uintptr_t position = stack_position(stack);
    check_internal(position >= (uintptr_t)stack->current->base &&
                   position <= block_end(stack->current));
    const struct stack_block *block = stack->current;
    uintptr_t above = position;
    for (const struct cairn_stack_frame *frame = stack->head->frame; frame != &stack->base;
         frame = frame->previous) {
        while (!block_holds(block, (uintptr_t)frame)) {
            block = block->older;
            check_internal(block != NULL);
            above = block->left_at;
        }
        check_internal((uintptr_t)frame < above);
        above = (uintptr_t)frame;
    }
}

struct stack *stack_make(const cairn_stack_options *options, cairn_stack *head)
{
    static const cairn_stack_options defaults = {0};
    options = options ? options : &defaults;
    os_init();
    size_t most = options->max_bytes;
    if (most > PTRDIFF_MAX || options->reserve > PTRDIFF_MAX)
        return frame_no_memory();
    struct stack *stack = cell_take(CELL_STACK);
    if (stack == NULL)
        return frame_no_memory();
    *stack = (struct stack){
        .head = head ? head : &stack->own,
        .base = {.serial = SERIAL_POP_SLOWLY},
        .max_bytes = most ? align_up(most, os_page_size()) : SIZE_MAX,
        .first_reserve = options->reserve,
        .interval_start_ms = os_now_ms(),
        .checked = frame_checked(),
    };
    *stack->head =
        (cairn_stack){.frame = &stack->base, .owner = __builtin_thread_pointer(), .inside = stack};
    frame_copy_name(stack->name, options->name, "stack");
    return stack;
}

api cairn_stack *cairn_stack_new(const cairn_stack_options *options)
{
    struct stack *stack = stack_make(options, NULL);
    return stack ? stack->head : NULL;
}

/* Ends what lies above `start`, which is in the current block: everything newer is ended already.
 */
static void end_from(struct stack *stack, uintptr_t start)
{
    if (stack->checked)
        stack_checked_end(stack, start);
    struct stack_block *block = stack->current;
    while (!block_holds(block, start))
        block = block->older;
    stack->current = block; /* the newer ones are spare now */
}

api void cairn_stack_reset(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    check_owner(stack);
    stack->head->frame = &stack->base;
    stack->base.serial = SERIAL_POP_SLOWLY;
    stack->sealed = false;
    if (stack->first == NULL)
        return;
    if (stack->current)
        end_from(stack, (uintptr_t)stack->first->base);
    stack_set_position(stack, (uintptr_t)stack->first->base);
    stack_tick(stack);
    stack_verify(stack);
}

api void cairn_stack_delete(cairn_stack *head)
{
    if (head == NULL)
        return;
    struct stack *stack = stack_of(head);
    check_owner(stack);
    if (stack->checked && stack->current)
        stack_checked_end(stack, (uintptr_t)stack->first->base);
    stack_free_blocks(stack);
    *stack->head = (cairn_stack){.inside = stack}; /* a use after this finds no owner */
    cell_give(CELL_STACK, stack);
}

api void cairn_stack_adopt(cairn_stack *head) { head->owner = __builtin_thread_pointer(); }

api void cairn_stack_seal(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    check_owner(stack);
    uintptr_t position = stack_position(stack);
    stack->sealed = true;
    stack->head->frame->serial |= SERIAL_POP_SLOWLY;
    stack_set_position(stack, position);
}

api void cairn_stack_unseal(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    check_owner(stack);
    uintptr_t position = stack_position(stack);
    stack->sealed = false;
    stack_set_position(stack, position);
}

/* Room at the position, found or made; the block is the caller's to lay. 0 when memory is out. */
static uintptr_t room(struct stack *stack, size_t size, size_t align)
{
    for (;;) {
        uintptr_t start = align_up(stack_position(stack), align);
        if (stack->current && start >= stack_position(stack) &&
            start + size <= block_end(stack->current))
            return start;
        if (!stack_make_room(stack, size, align))
            return 0;
    }
}

api cairn_mark cairn_stack_push_slow(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    check_owner(stack);
    stack_tick(stack);
    uintptr_t start = room(stack, sizeof(struct cairn_stack_frame), sizeof(void *));
    if (start == 0) {
        frame_no_memory();
        return (cairn_mark){0};
    }
    uint64_t serial = ++stack->head->serial;
    uint64_t flags = (stack->sealed ? SERIAL_FLAGS : 0) | (stack->checked ? SERIAL_POP_SLOWLY : 0);
    struct cairn_stack_frame *frame = (struct cairn_stack_frame *)start;
    mark_defined(frame, stack->checked ? sizeof *frame : 0);
    frame->previous = stack->head->frame;
    frame->serial = serial | flags;
    stack->head->frame = frame;
    stack->sealed = false;
    stack_set_position(stack, start + sizeof *frame);
    stack_verify(stack);
    return (cairn_mark){frame, serial};
}

/* How many frames lie above the mark's, which must be open. */
static size_t frames_above(const struct stack *stack, cairn_mark mark)
{
    if (stack->head->frame == &stack->base)
        die("stack \"%s\": pop without a push", stack->name);
    size_t above = 0;
    for (const struct cairn_stack_frame *frame = stack->head->frame; frame != &stack->base;
         frame = frame->previous) {
        if (frame == mark.frame && (frame->serial & ~SERIAL_FLAGS) == mark.serial)
            return above;
        above++;
    }
    die("stack \"%s\": pop with a mark that is not open", stack->name);
}

api void cairn_stack_pop_slow(cairn_stack *head, cairn_mark mark)
{
    struct stack *stack = stack_of(head);
    if (mark.frame == NULL)
        return; /* its push failed */
    check_owner(stack);
    size_t above = frames_above(stack, mark);
    if (unlikely(above > 0) && stack->checked)
        report("stack \"%s\": pop of an outer frame ends %zu inner ones", stack->name, above);
    struct cairn_stack_frame *below = mark.frame->previous;
    bool below_sealed = (mark.frame->serial & SERIAL_BELOW_SEALED) != 0;
    end_from(stack, (uintptr_t)mark.frame);
    stack->head->frame = below;
    stack->sealed = below_sealed;
    stack_set_position(stack, (uintptr_t)mark.frame);
    stack_tick(stack);
    stack_verify(stack);
}

api void *cairn_stack_alloc_slow(cairn_stack *head, size_t size, size_t align)
{
    struct stack *stack = stack_of(head);
    check_owner(stack);
    if (unlikely(stack->sealed))
        die("stack \"%s\": allocation while sealed", stack->name);
    if (unlikely(!is_power_of_two(align)))
        return frame_invalid();
    size = larger_of(size, 1);
    if (unlikely(size > PTRDIFF_MAX / 2 || align > PTRDIFF_MAX / 2))
        return frame_no_memory(); /* so that the sums below do not overflow */
    if (unlikely(stack->checked)) {
        void *block = stack_checked_alloc(stack, size, align);
        return block ? block : frame_no_memory();
    }
    size = align_up(size, STACK_GRANULE);
    uintptr_t start = room(stack, size, larger_of(align, STACK_GRANULE));
    if (unlikely(start == 0))
        return frame_no_memory();
    stack_set_position(stack, start + size);
    return (void *)start;
}

/* Dies unless the block is one of the newest frame. */
static void check_frame_of(const struct stack *stack, const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    uintptr_t frame = (uintptr_t)stack->head->frame;
    uintptr_t above = stack_position(stack);
    bool outer = false;
    for (const struct stack_block *block = stack->current; block; block = block->older) {
        bool holds_frame = stack->head->frame != &stack->base && block_holds(block, frame);
        if (block_holds(block, address) && address < above) {
            if (outer || (holds_frame && address < frame))
                die("stack \"%s\": realloc of %p, which is of an outer frame", stack->name,
                    pointer);
            return;
        }
        outer |= holds_frame;
        above = block->older ? block->older->left_at : 0;
    }
    die("stack \"%s\": realloc of %p, which is not in it", stack->name, pointer);
}

static void *resize(struct stack *stack, void *pointer, size_t old_size, size_t new_size)
{
    check_owner(stack);
    if (unlikely(stack->sealed))
        die("stack \"%s\": allocation while sealed", stack->name);
    check_frame_of(stack, pointer);
    old_size = larger_of(old_size, 1);
    new_size = larger_of(new_size, 1);
    if (old_size > PTRDIFF_MAX || new_size > PTRDIFF_MAX)
        return NULL;
    if (stack->checked)
        return stack_checked_resize(stack, pointer, old_size, new_size);
    old_size = align_up(old_size, STACK_GRANULE);
    new_size = align_up(new_size, STACK_GRANULE);
    uintptr_t start = (uintptr_t)pointer;
    if (start + old_size != stack_position(stack))
        return new_size <= old_size ? pointer : NULL;
    /* Only what its own block of the stack has: make_room could move the position to another. */
    struct stack_block *block = stack->current;
    if (new_size > block->reserved - (start - (uintptr_t)block->base))
        return NULL;
    if (new_size > old_size && !stack_make_room(stack, new_size - old_size, STACK_GRANULE))
        return NULL;
    if (stack->current != block) { /* the maximum stopped the growth in place */
        stack->current = block;
        stack_set_position(stack, start + old_size);
        return NULL;
    }
    stack_set_position(stack, start + new_size);
    return pointer;
}

api void *cairn_stack_realloc_slow(cairn_stack *head, void *pointer, size_t old_size,
                                   size_t new_size, size_t align)
{
    if (pointer == NULL)
        return cairn_stack_alloc_slow(head, new_size, align);
    if (!is_power_of_two(align))
        return frame_invalid();
    void *block = resize(stack_of(head), pointer, old_size, new_size);
    if (block)
        return block;
    block = cairn_stack_alloc_slow(head, new_size, align);
    if (block)
        memcpy(block, pointer, smaller_of(old_size, new_size));
    return block;
}

api size_t cairn_stack_trim(cairn_stack *head, size_t keep)
{
    struct stack *stack = stack_of(head);
    check_owner(stack);
    size_t given = stack_give_back(stack, keep);
    stack_verify(stack);
    return given;
}

api void cairn_stack_read_stats(const cairn_stack *head, cairn_stack_stats *stats)
{
    const struct stack *stack = stack_of(head);
    *stats = (cairn_stack_stats){0};
    bool used = stack->current != NULL;
    for (const struct stack_block *block = stack->first; block; block = block->newer) {
        uintptr_t base = (uintptr_t)block->base;
        if (used)
            stats->used_bytes +=
                (block == stack->current ? stack_position(stack) : block->left_at) - base;
        used = used && block != stack->current;
        stats->resident_bytes += block->resident;
        stats->reserved_bytes += block->reserved;
        stats->blocks++;
    }
    for (const struct cairn_stack_frame *frame = head->frame; frame != &stack->base;
         frame = frame->previous)
        stats->frames++;
}

static void *allocator_alloc(void *context, size_t size, size_t align)
{
    return cairn_stack_alloc_slow(context, size, align);
}

static void *allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    return pointer ? resize(stack_of(context), pointer, old_size, new_size) : NULL;
}

static void allocator_free(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)pointer;
    (void)size;
}

api struct cairn_allocator cairn_stack_allocator(cairn_stack *stack)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = allocator_alloc,
        .resize = allocator_resize,
        .free = allocator_free,
        .capabilities = CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER,
        .name = "stack",
    };
    return (struct cairn_allocator){stack, &operations};
}
