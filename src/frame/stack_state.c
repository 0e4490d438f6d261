/* The state of a stack: its owner, its position, its invariants. See stack_state.h. */
#include "frame/stack_state.h"

/* A descriptor keeps what it was given back with. */
void stack_die_of_owner(const cairn_stack *head)
{
    const struct stack *stack = head->inside;
    if (head->owner == NULL)
        die("stack \"%s\": used after its delete", stack->name);
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
        check_internal(block->committed <= block->reserved &&
                       block_end(block) % CAIRN_STACK_LIMIT_GRANULE == 0);
        check_internal(block->borrowed ? block->limit == block->reserved
                                       : block->limit % PAGE_BYTES == 0);
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
    uint64_t newest = stack->head->frame->serial & ~SERIAL_FLAGS;
    for (const struct stack_hook *hook = stack->hooks; hook; hook = hook->older) {
        check_internal(hook->serial <= newest);
        newest = hook->serial;
    }
}
