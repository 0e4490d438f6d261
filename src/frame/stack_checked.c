/* Checked stacks: what debug builds, AddressSanitizer and Valgrind see of a stack's blocks. See
 * stack_state.h.
 *
 * Each block lies between canaries: before it a header that links it to the block before and holds
 * its size, behind it at least 16 bytes. Both are verified when the block ends or is resized. Ended
 * memory is filled, marked inaccessible to the checkers, and in debug builds its whole pages lose
 * their access rights, so that a dangling pointer faults. Nothing here is fast.
 */
#include "frame/stack_state.h"

#include <string.h>

struct stack_checked_block {
    uint64_t canary;
    struct stack_checked_block *before;
    size_t size;
    uint64_t canary_at_end; /* right before the block */
};

enum { CANARY_BYTES = 16, CANARY_BYTE = 0xca, DEAD_BYTE = 0xdd };
static const uint64_t CANARY = 0xcacacacacacacaca;

static inline char *contents(struct stack_checked_block *header) { return (char *)(header + 1); }

static inline size_t tail_bytes(size_t size) { return align_up(size + CANARY_BYTES, 16) - size; }

/* Canaries and marks of a block of a new size. */
static void lay(struct stack_checked_block *header, size_t size)
{
    header->size = size;
    memset(contents(header) + size, CANARY_BYTE, tail_bytes(size));
    mark_inaccessible(contents(header) + size, tail_bytes(size));
}

void *stack_checked_alloc(struct stack *stack, size_t size, size_t align)
{
    enum { HEADER_BYTES = sizeof(struct stack_checked_block) };
    align = larger_of(align, 16);
    if (size > PTRDIFF_MAX / 2 || align > PTRDIFF_MAX / 4)
        return NULL;
    size_t total = HEADER_BYTES + align + size + tail_bytes(size);
    if (stack->current == NULL || stack_position(stack) + total > block_end(stack->current))
        if (!stack_make_room(stack, total, 16))
            return NULL;
    uintptr_t start = align_up(stack_position(stack) + HEADER_BYTES, align);
    struct stack_checked_block *header = (struct stack_checked_block *)start - 1;
    mark_undefined(header, HEADER_BYTES + size + tail_bytes(size));
    *header = (struct stack_checked_block){
        .canary = CANARY, .before = stack->newest, .canary_at_end = CANARY};
    stack->newest = header;
    lay(header, size);
    mark_inaccessible(header, HEADER_BYTES);
    stack_set_position(stack, start + size + tail_bytes(size));
    return contents(header);
}

static void verify(const struct stack *stack, struct stack_checked_block *header)
{
    mark_defined(header, sizeof *header);
    const char *block = contents(header);
    if (header->canary != CANARY || header->canary_at_end != CANARY)
        die("stack \"%s\": write before the start of %p", stack->name, block);
    mark_defined(block + header->size, tail_bytes(header->size));
    for (size_t i = 0; i < tail_bytes(header->size); i++)
        if ((unsigned char)block[header->size + i] != CANARY_BYTE)
            die("stack \"%s\": write past the end of %p (%zu-byte block)", stack->name, block,
                header->size);
}

void *stack_checked_resize(struct stack *stack, void *pointer, size_t old_size, size_t new_size)
{
    struct stack_checked_block *header = (struct stack_checked_block *)pointer - 1;
    verify(stack, header);
    if (header->size != old_size)
        die("stack \"%s\": realloc of %p with old size %zu (%zu-byte block)", stack->name, pointer,
            old_size, header->size);
    bool newest = header == stack->newest && !stack->sealed &&
                  (uintptr_t)pointer + old_size + tail_bytes(old_size) == stack_position(stack);
    bool fits = new_size <= old_size;
    if (newest && !fits && new_size <= PTRDIFF_MAX / 2) {
        struct stack_block *block = stack->current;
        fits = (uintptr_t)pointer + new_size + tail_bytes(new_size) <= block_end(block);
    }
    if (fits) {
        size_t larger = larger_of(old_size, new_size);
        mark_undefined((char *)pointer + smaller_of(old_size, new_size),
                       larger - smaller_of(old_size, new_size));
        mark_undefined((char *)pointer + new_size, tail_bytes(new_size));
        if (newest)
            stack_set_position(stack, (uintptr_t)pointer + new_size + tail_bytes(new_size));
        lay(header, new_size);
    } else {
        lay(header, old_size);
    }
    mark_inaccessible(header, sizeof *header);
    return fits ? pointer : NULL;
}

/* Fills a range of a block that has ended and takes the access away. */
static void bury(struct stack_block *block, uintptr_t from, uintptr_t to)
{
    if (from >= to)
        return;
    mark_undefined((void *)from, to - from);
    memset((void *)from, DEAD_BYTE, to - from);
    mark_inaccessible((void *)from, to - from);
    uintptr_t whole = align_up(from, os_page_size());
    uintptr_t end = (uintptr_t)block->base + block->committed;
    if (!config_debug || block->borrowed || whole >= to ||
        os_protect((void *)whole, end - whole, OS_NONE) != 0)
        return;
    block->committed = whole - (uintptr_t)block->base; /* comes back when the limit rises again */
    block->resident = smaller_of(block->resident, block->committed);
    block->limit = smaller_of(block->limit, block->committed);
}

void stack_checked_end(struct stack *stack, uintptr_t frame)
{
    struct stack_block *block = stack->current;
    uintptr_t above = stack_position(stack);
    for (;;) {
        bool last = block_holds(block, frame);
        while (stack->newest && block_holds(block, (uintptr_t)stack->newest) &&
               (!last || (uintptr_t)stack->newest >= frame)) {
            verify(stack, stack->newest);
            stack->newest = stack->newest->before;
        }
        bury(block, last ? frame : (uintptr_t)block->base, above);
        if (last)
            return;
        block = block->older;
        above = block->left_at;
    }
}
