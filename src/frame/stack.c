/* The stack's life and its frames: see cairn/stack.h for what it does, stack_state.h for its
 * invariants. Blocks are stack_alloc.c. */
#include "frame/stack_state.h"

#include <errno.h>

static bool options_make_sense(const cairn_stack_options *options)
{
    if (options->buffer == NULL)
        return options->buffer_bytes == 0 && !options->fixed;
    uintptr_t start = (uintptr_t)options->buffer;
    return options->buffer_bytes >= 2 * CAIRN_STACK_LIMIT_GRANULE &&
           options->buffer_bytes <= PTRDIFF_MAX && start <= UINTPTR_MAX - options->buffer_bytes;
}

struct stack *stack_make(const cairn_stack_options *options, cairn_stack *head)
{
    static const cairn_stack_options defaults = {0};
    options = options ? options : &defaults;
    os_init();
    if (!options_make_sense(options))
        return frame_invalid();
    size_t most = options->max_bytes;
    if (most > PTRDIFF_MAX || options->reserve_bytes > PTRDIFF_MAX)
        return frame_no_memory();
    struct stack *stack = cell_take(CELL_STACK);
    if (stack == NULL)
        return frame_no_memory();
    *stack = (struct stack){
        .head = head ? head : &stack->own,
        .base = {.serial = SERIAL_POP_SLOWLY},
        .max_bytes = most ? align_up(most, os_page_size()) : SIZE_MAX,
        .reserve_bytes = options->reserve_bytes,
        .out_of_memory = options->out_of_memory,
        .out_of_memory_context = options->out_of_memory_context,
        .interval_start_ms = os_now_ms(),
        .fixed = options->fixed,
        .checked = frame_checked(),
    };
    *stack->head =
        (cairn_stack){.frame = &stack->base, .owner = __builtin_thread_pointer(), .inside = stack};
    frame_copy_name(stack->name, options->name, "stack");
    if (options->buffer && !stack_borrow(stack, options->buffer, options->buffer_bytes)) {
        stack_end(stack);
        return frame_no_memory();
    }
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
    stack_run_hooks(stack, 0);
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

void stack_end(struct stack *stack)
{
    stack_run_hooks(stack, 0);
    if (stack->checked && stack->current)
        stack_checked_end(stack, (uintptr_t)stack->first->base);
    stack_free_blocks(stack);
    *stack->head = (cairn_stack){.inside = stack}; /* a use after this finds no owner */
    cell_give(CELL_STACK, stack);
}

static bool is_threads_own(const struct stack *stack) { return stack->head != &stack->own; }

api int cairn_stack_delete(cairn_stack *head)
{
    if (head == NULL)
        return 0;
    struct stack *stack = stack_of(head);
    if (is_threads_own(stack))
        return EBUSY;
    stack_end(stack);
    return 0;
}

api void cairn_stack_adopt(cairn_stack *head)
{
    const struct stack *stack = head->inside;
    void *self = __builtin_thread_pointer();
    if (head->owner == self)
        return;
    if (head->owner == NULL)
        stack_die_of_owner(head);
    if (is_threads_own(stack))
        die("stack \"%s\": adopted, but it is a thread's own", stack->name);
    head->owner = self;
}

api void cairn_stack_seal(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    uintptr_t position = stack_position(stack);
    stack->sealed = true;
    stack->head->frame->serial |= SERIAL_POP_SLOWLY;
    stack_set_position(stack, position);
}

api void cairn_stack_unseal(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    uintptr_t position = stack_position(stack);
    stack->sealed = false;
    stack_set_position(stack, position);
}

/* Opens a frame. False when memory is out. */
static bool push(struct stack *stack, cairn_mark *mark)
{
    uintptr_t start = stack_room(stack, sizeof(struct cairn_stack_frame), sizeof(void *));
    if (start == 0)
        return false;
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
    *mark = (cairn_mark){frame, serial};
    return true;
}

api cairn_mark cairn_stack_push_slow(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    stack_tick(stack);
    cairn_mark mark = {0};
    while (unlikely(!push(stack, &mark))) {
        if (!stack_try_again(stack, sizeof(struct cairn_stack_frame))) {
            frame_no_memory();
            break;
        }
    }
    return mark;
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
    if (mark.frame == NULL)
        return; /* its push failed */
    struct stack *stack = stack_of(head);
    size_t above = frames_above(stack, mark);
    if (unlikely(above > 0) && stack->checked)
        report("stack \"%s\": pop of an outer frame ends %zu inner ones", stack->name, above);
    if (stack->hooks && stack->hooks->serial >= mark.serial) {
        stack_run_hooks(stack, mark.serial);
        (void)frames_above(stack, mark); /* unless a hook has ended it */
    }
    struct cairn_stack_frame *below = mark.frame->previous;
    bool below_sealed = (mark.frame->serial & SERIAL_BELOW_SEALED) != 0;
    end_from(stack, (uintptr_t)mark.frame);
    stack->head->frame = below;
    stack->sealed = below_sealed;
    stack_set_position(stack, (uintptr_t)mark.frame);
    stack_tick(stack);
    stack_verify(stack);
}

api size_t cairn_stack_trim(cairn_stack *head, size_t keep)
{
    struct stack *stack = stack_of(head);
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
