/* The blocks of a stack: where its memory comes from and when it goes back. See cairn/stack.h and
 * stack_state.h.
 *
 * A block grows from its start in steps of an eighth, so that a growing stack looks here seldom and
 * has little memory that it does not use. Steps of a large stack are faulted in at once: page
 * faults one by one cost more than all else.
 *
 * Memory goes back by what was reached: `limit` rises with use and falls to the position when an
 * interval ends; what lay above it through a whole interval was not needed and goes. So too in the
 * blocks that the stack has left for a newer one: `left_at` is their position. Trim does the same
 * at once.
 *
 * Below each range lies a page that nobody uses: so no block of the stack, nor of anybody else,
 * ends where a range begins, and a position says by itself which block it ends.
 *
 * The caller's buffer is a block like others, the oldest one, but nothing of it is committed, given
 * back or protected here.
 */
#include "frame/stack_state.h"

enum {
    FIRST_BYTES = 64 << 10,
    SMALLEST_RANGE_BYTES = 1 << 20,
    LARGEST_RANGE_BYTES = 1 << 30, /* unless one allocation needs more */
    RANGE_GROWTH = 8,
    LEAST_STEP = 16 << 10,
    MOST_STEP = 4 << 20,
    POPULATE_FROM = 1 << 20, /* a block of this size is likely to be used to the end of its step */
};

static struct stack_block *block_of_pages(void)
{
    struct span *span = run_take(FIRST_BYTES, PAGE_BYTES);
    struct stack_block *block = span ? cell_take(CELL_STACK_BLOCK) : NULL;
    if (block) {
        size_t bytes = run_bytes(span);
        *block = (struct stack_block){
            .base = span->base, .reserved = bytes, .committed = bytes, .span = span};
    } else if (span) {
        run_give(span);
    }
    return block;
}

/* As large as wanted, where the address space allows. */
static struct stack_block *block_of_range(size_t wanted, size_t needed, const char *name)
{
    size_t granule = os_page_size();
    needed = align_up(needed, granule);
    wanted = align_up(larger_of(wanted, needed), granule);
    struct stack_block *block = cell_take(CELL_STACK_BLOCK);
    if (block == NULL)
        return NULL;
    char *start = os_reserve(granule + wanted);
    while (start == NULL && wanted > needed) {
        wanted = larger_of(align_up(wanted / 4, granule), needed);
        start = os_reserve(granule + wanted);
    }
    if (start == NULL) {
        cell_give(CELL_STACK_BLOCK, block);
        return NULL;
    }
    os_name(start, granule + wanted, name);
    *block = (struct stack_block){.base = start + granule, .reserved = wanted};
    return block;
}

bool stack_borrow(struct stack *stack, void *buffer, size_t buffer_bytes)
{
    uintptr_t base = align_up((uintptr_t)buffer, STACK_GRANULE);
    uintptr_t end =
        ((uintptr_t)buffer + buffer_bytes) & ~(uintptr_t)(CAIRN_STACK_LIMIT_GRANULE - 1);
    struct stack_block *block = cell_take(CELL_STACK_BLOCK);
    if (block == NULL)
        return false;
    size_t bytes = end - base;
    *block = (struct stack_block){.base = (char *)base,
                                  .reserved = bytes,
                                  .committed = bytes,
                                  .resident = bytes,
                                  .limit = bytes,
                                  .borrowed = true};
    if (stack->checked)
        mark_inaccessible(block->base, bytes);
    stack->first = stack->current = block;
    stack_set_position(stack, base);
    return true;
}

static void block_free(struct stack_block *block)
{
    if (block->borrowed) {
        mark_undefined(block->base, block->reserved);
    } else if (block->span) {
        if (block->committed < block->reserved) /* a checked stack took the access away */
            (void)os_protect(block->base, block->reserved, OS_WRITE);
        run_give(block->span);
    } else {
        size_t granule = os_page_size();
        mark_defined(block->base, block->reserved);
        os_unmap(block->base - granule, granule + block->reserved);
    }
    cell_give(CELL_STACK_BLOCK, block);
}

void stack_free_blocks(struct stack *stack)
{
    for (struct stack_block *block = stack->first, *newer; block; block = newer) {
        newer = block->newer;
        block_free(block);
    }
    stack->first = stack->current = NULL;
}

/* Takes a spare block out of the chain. */
static void drop_spare(struct stack *stack, struct stack_block *block)
{
    if (block->older)
        block->older->newer = block->newer;
    else
        stack->first = block->newer;
    if (block->newer)
        block->newer->older = block->older;
    block_free(block);
}

/* Gives back the memory of a block from `keep` bytes on. Returns how much that was. */
static size_t block_purge(struct stack_block *block, size_t keep)
{
    keep = align_up(keep, os_page_size());
    if (block->borrowed || keep >= block->resident ||
        os_purge(block->base + keep, block->resident - keep) != 0)
        return 0;
    size_t purged = block->resident - keep;
    block->resident = keep;
    block->limit = smaller_of(block->limit, keep);
    return purged;
}

/* The memory of a block in use from its position on, but for *keep bytes, which are taken off. */
static size_t purge_above(struct stack_block *block, uintptr_t position, size_t *keep)
{
    if (block->borrowed)
        return 0;
    size_t used =
        smaller_of(align_up(position - (uintptr_t)block->base, os_page_size()), block->resident);
    size_t kept = smaller_of(*keep, block->resident - used);
    *keep -= kept;
    return block_purge(block, used + kept);
}

/* Gives back all unused memory but `keep` bytes, and nothing of `spared`. */
static size_t give_back(struct stack *stack, size_t keep, const struct stack_block *spared)
{
    size_t given = 0;
    struct stack_block *current = stack->current;
    if (current && current != spared)
        given += purge_above(current, stack_position(stack), &keep);
    for (struct stack_block *spare = current ? current->newer : stack->first, *newer; spare;
         spare = newer) {
        newer = spare->newer;
        size_t kept = smaller_of(keep, spare->resident);
        if (spare == spared)
            continue;
        keep -= kept;
        if (kept == 0) {
            given += spare->resident;
            drop_spare(stack, spare);
        } else {
            given += block_purge(spare, kept);
        }
    }
    for (struct stack_block *older = current ? current->older : NULL; older; older = older->older)
        if (older != spared)
            given += purge_above(older, older->left_at, &keep);
    stack_set_position(stack, stack_position(stack));
    return given;
}

size_t stack_give_back(struct stack *stack, size_t keep) { return give_back(stack, keep, NULL); }

static size_t resident_beside(const struct stack *stack, const struct stack_block *block)
{
    size_t bytes = 0;
    for (const struct stack_block *other = stack->first; other; other = other->newer)
        bytes += other == block || other->borrowed ? 0 : other->resident;
    return bytes;
}

/* How many bytes the block may come to without the stack holding more than its maximum. */
static size_t most_bytes(struct stack *stack, const struct stack_block *block, size_t needed)
{
    if (stack->max_bytes == SIZE_MAX)
        return block->reserved;
    size_t others = resident_beside(stack, block);
    if (needed > stack->max_bytes - smaller_of(others, stack->max_bytes)) {
        give_back(stack, 0, block);
        others = resident_beside(stack, block);
    }
    size_t most = larger_of(stack->max_bytes - smaller_of(others, stack->max_bytes),
                            block->resident); /* which are counted already */
    return smaller_of(most, block->reserved);
}

/* Raises a block's limit to at least `needed` bytes. False when it ends before, or memory or the
 * maximum does. */
static bool block_raise(struct stack *stack, struct stack_block *block, size_t needed)
{
    if (needed <= block->limit)
        return true;
    if (needed > block->reserved)
        return false;
    size_t most = most_bytes(stack, block, needed);
    if (needed > most)
        return false;
    size_t step = smaller_of(larger_of(block->limit / 8, LEAST_STEP), MOST_STEP);
    size_t target =
        smaller_of(align_up(larger_of(needed, block->limit + step), os_page_size()), most);
    if (target > block->committed) {
        char *from = block->base + block->committed;
        if (os_commit(from, target - block->committed) != 0) {
            target = align_up(needed, os_page_size());
            if (target > block->committed && os_commit(from, target - block->committed) != 0)
                return false;
        }
        block->committed = larger_of(block->committed, target);
    }
    if (target > block->resident) {
        if (target >= POPULATE_FROM) /* refused, the pages come one by one */
            (void)os_populate(block->base + block->resident, target - block->resident);
        block->resident = target;
    }
    if (stack->checked)
        mark_inaccessible(block->base + block->limit, target - block->limit);
    block->limit = target;
    return true;
}

static struct stack_block *new_block(struct stack *stack, size_t needed)
{
    struct stack_block *last = stack->current;
    size_t last_bytes = last && !last->borrowed ? last->reserved : 0;
    struct stack_block *block = NULL;
    if (stack->fixed)
        return NULL;
    if (last_bytes == 0 && stack->reserve_bytes != 0)
        block = block_of_range(stack->reserve_bytes, needed, stack->name);
    else if (last_bytes == 0 && needed <= FIRST_BYTES)
        block = block_of_pages();
    else
        block = block_of_range(
            larger_of(smaller_of(last_bytes, LARGEST_RANGE_BYTES / RANGE_GROWTH) * RANGE_GROWTH,
                      SMALLEST_RANGE_BYTES),
            needed, stack->name);
    if (block == NULL)
        return NULL;
    block->older = last;
    if (last) {
        block->newer = last->newer;
        last->newer = block;
    } else {
        block->newer = stack->first;
        stack->first = block;
    }
    if (block->newer)
        block->newer->older = block;
    return block;
}

/* The next block with room for `needed` bytes: a spare one, or a new one. */
static struct stack_block *next_block(struct stack *stack, size_t needed)
{
    struct stack_block *spare = stack->current ? stack->current->newer : stack->first;
    if (spare && spare->reserved >= needed)
        return spare;
    struct stack_block *block = new_block(stack, needed);
    if (block && spare && spare->reserved < block->reserved)
        drop_spare(stack, spare); /* it would only be passed over again */
    return block;
}

bool stack_grow(struct stack *stack, size_t size, size_t align)
{
    struct stack_block *block = stack->current;
    if (block == NULL)
        return false;
    size_t end = align_up(stack_position(stack), align) + size - (uintptr_t)block->base;
    if (!block_raise(stack, block, end))
        return false;
    stack_set_position(stack, stack_position(stack));
    return true;
}

bool stack_make_room(struct stack *stack, size_t size, size_t align)
{
    stack_tick(stack);
    if (stack_grow(stack, size, align))
        return true;
    size_t needed = size + (align > PAGE_BYTES ? align : 0);
    struct stack_block *block = next_block(stack, needed);
    if (block == NULL || !block_raise(stack, block, needed))
        return false; /* a block stays as a spare */
    if (stack->current)
        stack->current->left_at = stack_position(stack);
    stack->head->frame->serial |= SERIAL_POP_SLOWLY; /* its pop has to find the way back */
    stack->current = block;
    stack_set_position(stack, (uintptr_t)block->base);
    return true;
}

/* An interval has ended for a block in use. */
static void settle(struct stack_block *block, uintptr_t position)
{
    if (block->borrowed)
        return;
    block_purge(block, block->limit);
    block->limit = align_up(position - (uintptr_t)block->base, os_page_size());
}

/* What lies above the limits was not needed in the interval that has ended. */
static void end_interval(struct stack *stack)
{
    struct stack_block *block = stack->current;
    settle(block, stack_position(stack));
    for (struct stack_block *older = block->older; older; older = older->older)
        settle(older, older->left_at);
    for (struct stack_block *spare = block->newer, *newer; spare; spare = newer) {
        newer = spare->newer;
        if (spare->limit == 0)
            drop_spare(stack, spare);
        else
            block_purge(spare, spare->limit);
    }
    for (struct stack_block *spare = block->newer; spare; spare = spare->newer)
        spare->limit = 0;
    stack_set_position(stack, stack_position(stack));
}

void stack_tick(struct stack *stack)
{
    if (frame_interval_over(&stack->interval_start_ms) && stack->current)
        end_interval(stack);
}
