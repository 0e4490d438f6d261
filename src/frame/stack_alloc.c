/* Blocks on the stack: the slow halves of alloc and realloc, hooks, and the stack as an allocator.
 * See cairn/stack.h and stack_state.h. */
#include "frame/stack_state.h"

#include <errno.h>
#include <string.h>

uintptr_t stack_room(struct stack *stack, size_t size, size_t align)
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

bool stack_try_again(const struct stack *stack, size_t size)
{
    return frame_try_again(stack->out_of_memory, stack->out_of_memory_context, size);
}

void stack_die_sealed(const struct stack *stack)
{
    die("stack \"%s\": allocation while sealed", stack->name);
}

/* A block, or NULL when memory is out. */
static void *take(struct stack *stack, size_t size, size_t align)
{
    if (unlikely(stack->checked))
        return stack_checked_alloc(stack, size, align);
    size = align_up(size, STACK_GRANULE);
    uintptr_t start = stack_room(stack, size, larger_of(align, STACK_GRANULE));
    if (likely(start != 0))
        stack_set_position(stack, start + size);
    return (void *)start;
}

api void *cairn_stack_alloc_slow(cairn_stack *head, size_t size, size_t align)
{
    struct stack *stack = stack_of(head);
    if (unlikely(stack->sealed))
        stack_die_sealed(stack);
    if (unlikely(!is_power_of_two(align)))
        return frame_invalid();
    size = larger_of(size, 1);
    if (unlikely(size > PTRDIFF_MAX / 2 || align > PTRDIFF_MAX / 4))
        return frame_no_memory(); /* so that no sum overflows */
    void *block = take(stack, size, align);
    while (unlikely(block == NULL) && stack_try_again(stack, size))
        block = take(stack, size, align);
    return likely(block != NULL) ? block : frame_no_memory();
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

/* The block at a new size where it lies, or NULL, and then everything is as it was. */
static void *resize(struct stack *stack, void *pointer, size_t old_size, size_t new_size)
{
    if (unlikely(stack->sealed))
        stack_die_sealed(stack);
    check_frame_of(stack, pointer);
    old_size = larger_of(old_size, 1);
    new_size = larger_of(new_size, 1);
    if (old_size > PTRDIFF_MAX / 2 || new_size > PTRDIFF_MAX / 2)
        return NULL;
    if (stack->checked)
        return stack_checked_resize(stack, pointer, old_size, new_size);
    old_size = align_up(old_size, STACK_GRANULE);
    new_size = align_up(new_size, STACK_GRANULE);
    uintptr_t start = (uintptr_t)pointer;
    if (start + old_size != stack_position(stack))
        return new_size <= old_size ? pointer : NULL;
    if (new_size > old_size && !stack_grow(stack, new_size - old_size, STACK_GRANULE))
        return NULL;
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

api int cairn_stack_defer(cairn_stack *head, void (*function)(void *context), void *context)
{
    if (function == NULL)
        return EINVAL;
    struct stack_hook *hook =
        cairn_stack_alloc_slow(head, sizeof *hook, _Alignof(struct stack_hook));
    if (hook == NULL)
        return ENOMEM;
    struct stack *stack = head->inside;
    struct cairn_stack_frame *frame = stack->head->frame;
    *hook = (struct stack_hook){stack->hooks, frame->serial & ~SERIAL_FLAGS, function, context};
    frame->serial |= SERIAL_POP_SLOWLY;
    stack->hooks = hook;
    return 0;
}

void stack_run_hooks(struct stack *stack, uint64_t serial)
{
    while (stack->hooks && stack->hooks->serial >= serial) {
        const struct stack_hook *hook = stack->hooks;
        stack->hooks = hook->older; /* first: the function may defer another */
        hook->function(hook->context);
    }
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
    (void)size;
    if (pointer)
        (void)stack_of(context);
}

api cairn_allocator cairn_stack_allocator(cairn_stack *stack)
{
    (void)stack_of(stack);
    static const struct cairn_allocator_operations operations = {
        .alloc = allocator_alloc,
        .resize = allocator_resize,
        .free = allocator_free,
        .capabilities = CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER,
        .name = "stack",
    };
    return (cairn_allocator){stack, &operations};
}
