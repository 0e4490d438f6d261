/* The blocks of a stack: their memory and its return to the system; and the stack's position,
 * invariants and owner. Structure and invariants are described in stack_block.h.
 *
 * A block grows from its start in steps of an eighth, so a growing stack rarely reaches this code
 * and has little memory that it does not use. The steps of a large stack are made resident at once,
 * because single page faults would cost more than everything else.
 *
 * Memory is returned by use: `limit` increases with use, and decreases to the position when an
 * interval ends. The memory above it was not needed during a whole interval, and is returned. This
 * is also done in blocks that the stack has left for a newer one, whose position is `left_at`. A
 * trim does it at once.
 *
 * Below each range is an unused page, and also below a run of pages behind the caller's buffer. So
 * no other block of memory ends where a newer one begins, and a position alone determines the block
 * that it ends.
 *
 * The caller's buffer is the oldest block, and is never committed, returned or protected here.
 *
 * Threads: the owner only.
 */
#include "frame/stack_block.h"

#include "os/memory.h"

/* A descriptor keeps its last contents, so the name of an ended stack can be read. */
void stack_die_of_owner(const cairn_stack *head)
{
    const struct stack *stack = head->inside;
    if (head->owner == NULL)
        die("stack \"%s\": used after cairn_stack_delete", stack->name);
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
        /* Without a current block all blocks are spare. A block may be left without any
         * contents. */
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

enum {
    FIRST_BYTES = 64 << 10,
    SMALLEST_RANGE_BYTES = 1 << 20,
    LARGEST_RANGE_BYTES = 1 << 30, /* unless one allocation needs more */
    RANGE_GROWTH = 8,
    UNSCOPED_BYTES_MAX = 512 << 10, /* in a thread's stack, without a report */
    MIN_STEP = 16 << 10,
    MAX_STEP = 4 << 20,
    /* size from which on a block is likely to be used to the end of its step */
    POPULATE_FROM = 1 << 20,
};

/* Makes a small block, a run of the page layer, whose first `unused` bytes, whole system pages,
 * stay unused. */
static struct stack_block *stack_block_of_pages(size_t unused)
{
    struct span *span = run_take(unused + FIRST_BYTES, PAGE_BYTES);
    struct stack_block *block = span ? descriptor_take(DESCRIPTOR_STACK_BLOCK) : NULL;
    if (block) {
        size_t bytes = run_bytes(span) - unused;
        *block = (struct stack_block){
            .base = span->base + unused, .reserved = bytes, .committed = bytes, .span = span};
    } else if (span) {
        run_give(span);
    }
    return block;
}

/* Makes a block of `wanted` bytes of address space, or less if there is less, but at least
 * `needed`. */
static struct stack_block *stack_block_of_range(size_t wanted, size_t needed)
{
    size_t granule = os_page_size();
    needed = align_up(needed, granule);
    wanted = align_up(larger_of(wanted, needed), granule);
    struct stack_block *block = descriptor_take(DESCRIPTOR_STACK_BLOCK);
    if (block == NULL)
        return NULL;
    char *start = os_reserve(granule + wanted);
    while (start == NULL && wanted > needed) {
        wanted = larger_of(align_up(wanted / 4, granule), needed);
        start = os_reserve(granule + wanted);
    }
    if (start == NULL) {
        descriptor_give(DESCRIPTOR_STACK_BLOCK, block);
        return NULL;
    }
    *block = (struct stack_block){.base = start + granule, .reserved = wanted};
    return block;
}

bool stack_borrow(struct stack *stack, void *buffer, size_t buffer_bytes)
{
    uintptr_t base = align_up((uintptr_t)buffer, STACK_GRANULE);
    uintptr_t end =
        ((uintptr_t)buffer + buffer_bytes) & ~(uintptr_t)(CAIRN_STACK_LIMIT_GRANULE - 1);
    struct stack_block *block = descriptor_take(DESCRIPTOR_STACK_BLOCK);
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

static void stack_block_free(struct stack_block *block)
{
    if (block->borrowed) {
        mark_undefined(block->base, block->reserved);
    } else if (block->span) {
        if (block->committed < block->reserved) /* a checked stack has made it inaccessible */
            (void)os_protect(block->base, block->reserved, OS_WRITE);
        run_give(block->span);
    } else {
        size_t granule = os_page_size();
        mark_defined(block->base, block->reserved);
        os_unmap(block->base - granule, granule + block->reserved);
    }
    descriptor_give(DESCRIPTOR_STACK_BLOCK, block);
}

void stack_free_blocks(struct stack *stack)
{
    for (struct stack_block *block = stack->first, *newer; block; block = newer) {
        newer = block->newer;
        stack_block_free(block);
    }
    stack->first = stack->current = NULL;
}

/* Removes a spare block from the chain and frees it. */
static void stack_drop_spare(struct stack *stack, struct stack_block *block)
{
    if (block->older)
        block->older->newer = block->newer;
    else
        stack->first = block->newer;
    if (block->newer)
        block->newer->older = block->older;
    stack_block_free(block);
}

/* Returns the memory of a block from `keep` bytes on.
 * Returns: the number of bytes. */
static size_t stack_block_purge(struct stack_block *block, size_t keep)
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

/* Returns the memory of a block in use from its position on, except *keep bytes, which are
 * subtracted from *keep.
 * Returns: the number of bytes. */
static size_t stack_purge_above(struct stack_block *block, uintptr_t position, size_t *keep)
{
    if (block->borrowed)
        return 0;
    size_t used =
        smaller_of(align_up(position - (uintptr_t)block->base, os_page_size()), block->resident);
    size_t kept = smaller_of(*keep, block->resident - used);
    *keep -= kept;
    return stack_block_purge(block, used + kept);
}

/* Returns all unused memory except `keep` bytes, and nothing of the block `spared`.
 * Returns: the number of bytes. */
static size_t stack_give_back_except(struct stack *stack, size_t keep,
                                     const struct stack_block *spared)
{
    size_t given = 0;
    struct stack_block *current = stack->current;
    if (current && current != spared)
        given += stack_purge_above(current, stack_position(stack), &keep);
    for (struct stack_block *spare = current ? current->newer : stack->first, *newer; spare;
         spare = newer) {
        newer = spare->newer;
        size_t kept = smaller_of(keep, spare->resident);
        if (spare == spared)
            continue;
        keep -= kept;
        if (kept == 0) {
            given += spare->resident;
            stack_drop_spare(stack, spare);
        } else {
            given += stack_block_purge(spare, kept);
        }
    }
    for (struct stack_block *older = current ? current->older : NULL; older; older = older->older)
        if (older != spared)
            given += stack_purge_above(older, older->left_at, &keep);
    stack_set_position(stack, stack_position(stack));
    return given;
}

size_t stack_give_back(struct stack *stack, size_t keep)
{
    return stack_give_back_except(stack, keep, NULL);
}

/* The resident bytes of all other blocks except the caller's buffer. */
static size_t stack_resident_beside(const struct stack *stack, const struct stack_block *block)
{
    size_t bytes = 0;
    for (const struct stack_block *other = stack->first; other; other = other->newer)
        bytes += other == block || other->borrowed ? 0 : other->resident;
    return bytes;
}

/* The number of bytes that the block may have without exceeding the stack's maximum. Returns unused
 * memory of other blocks if `needed` bytes would exceed it. */
static size_t stack_most_bytes(struct stack *stack, const struct stack_block *block, size_t needed)
{
    if (stack->max_bytes == SIZE_MAX)
        return block->reserved;
    size_t others = stack_resident_beside(stack, block);
    if (needed > stack->max_bytes - smaller_of(others, stack->max_bytes)) {
        stack_give_back_except(stack, 0, block);
        others = stack_resident_beside(stack, block);
    }
    size_t most = larger_of(stack->max_bytes - smaller_of(others, stack->max_bytes),
                            block->resident); /* these count already */
    return smaller_of(most, block->reserved);
}

/* Raises a block's limit to at least `needed` bytes.
 * Returns: false when the block is too short, when out of memory, or when the maximum is
 * reached. */
static bool stack_block_raise(struct stack *stack, struct stack_block *block, size_t needed)
{
    if (needed <= block->limit)
        return true;
    if (needed > block->reserved)
        return false;
    size_t most = stack_most_bytes(stack, block, needed);
    if (needed > most)
        return false;
    size_t step = smaller_of(larger_of(block->limit / 8, MIN_STEP), MAX_STEP);
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
        /* if this fails, each page becomes resident at its first access */
        if (target >= POPULATE_FROM)
            (void)os_populate(block->base + block->resident, target - block->resident);
        block->resident = target;
    }
    if (stack->checked)
        mark_inaccessible(block->base + block->limit, target - block->limit);
    block->limit = target;
    return true;
}

/* Makes a block behind the current one: a run of pages at first, then ranges of increasing size. */
static struct stack_block *stack_new_block(struct stack *stack, size_t needed)
{
    struct stack_block *last = stack->current;
    size_t last_bytes = last && !last->borrowed ? last->reserved : 0;
    struct stack_block *block = NULL;
    if (stack->fixed)
        return NULL;
    if (last_bytes == 0 && stack->reserve_bytes != 0)
        block = stack_block_of_range(stack->reserve_bytes, needed);
    else if (last_bytes == 0 && needed <= FIRST_BYTES)
        block = stack_block_of_pages(last ? os_page_size() : 0);
    else
        block = stack_block_of_range(
            larger_of(smaller_of(last_bytes, LARGEST_RANGE_BYTES / RANGE_GROWTH) * RANGE_GROWTH,
                      SMALLEST_RANGE_BYTES),
            needed);
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

/* The next block with room for `needed` bytes: a spare one or a new one. */
static struct stack_block *stack_next_block(struct stack *stack, size_t needed)
{
    struct stack_block *spare = stack->current ? stack->current->newer : stack->first;
    if (spare && spare->reserved >= needed)
        return spare;
    struct stack_block *block = stack_new_block(stack, needed);
    if (block && spare && spare->reserved < block->reserved)
        stack_drop_spare(stack, spare); /* it would be too short again the next time */
    return block;
}

/* Reports, once in a process, that a thread's stack has grown large although no frame is open:
 * everything in it stays until the thread ends. Such a program lacks a t_scope. `size`: the bytes
 * about to be allocated. */
static cold void stack_report_unscoped(const struct stack *stack, size_t size)
{
    static bool reported; /* atomic: never false again once it is true */
    bool is_of_thread = stack->head != &stack->own;
    if (!is_of_thread || stack->head->frame != &stack->base || load_relaxed(&reported))
        return;
    const struct stack_block *block = stack->current;
    size_t bytes = stack_position(stack) - (uintptr_t)block->base + size;
    for (block = block->older; block; block = block->older)
        bytes += block->left_at - (uintptr_t)block->base;
    if (bytes >= UNSCOPED_BYTES_MAX && !exchange_acq_rel(&reported, true))
        report("stack \"%s\": %zu bytes without a t_scope, which stay until the thread ends",
               stack->name, bytes);
}

bool stack_grow(struct stack *stack, size_t size, size_t align)
{
    struct stack_block *block = stack->current;
    if (block == NULL)
        return false;
    size_t end = align_up(stack_position(stack), align) + size - (uintptr_t)block->base;
    if (!stack_block_raise(stack, block, end))
        return false;
    stack_set_position(stack, stack_position(stack));
    stack_report_unscoped(stack, size);
    return true;
}

bool stack_make_room(struct stack *stack, size_t size, size_t align)
{
    stack_tick(stack);
    if (stack_grow(stack, size, align))
        return true;
    size_t needed = size + (align > PAGE_BYTES ? align : 0);
    struct stack_block *block = stack_next_block(stack, needed);
    if (block == NULL || !stack_block_raise(stack, block, needed))
        return false; /* a new block stays as a spare one */
    if (stack->current)
        stack->current->left_at = stack_position(stack);
    /* a pop of the frame must return to this block */
    stack->head->frame->serial |= SERIAL_POP_SLOWLY;
    stack->current = block;
    stack_set_position(stack, (uintptr_t)block->base);
    stack_report_unscoped(stack, size);
    return true;
}

/* Ends an interval for a block in use. */
static void stack_settle(struct stack_block *block, uintptr_t position)
{
    if (block->borrowed)
        return;
    stack_block_purge(block, block->limit);
    block->limit = align_up(position - (uintptr_t)block->base, os_page_size());
}

/* Ends an interval: returns the memory above the limits, which was not needed in it. */
static void stack_end_interval(struct stack *stack)
{
    struct stack_block *block = stack->current;
    stack_settle(block, stack_position(stack));
    for (struct stack_block *older = block->older; older; older = older->older)
        stack_settle(older, older->left_at);
    for (struct stack_block *spare = block->newer, *newer; spare; spare = newer) {
        newer = spare->newer;
        if (spare->limit == 0)
            stack_drop_spare(stack, spare);
        else
            stack_block_purge(spare, spare->limit);
    }
    for (struct stack_block *spare = block->newer; spare; spare = spare->newer)
        spare->limit = 0;
    stack_set_position(stack, stack_position(stack));
}

void stack_tick(struct stack *stack)
{
    if (frame_interval_over(&stack->interval_start_ms) && stack->current)
        stack_end_interval(stack);
}
