/* The stack's inside: see cairn/stack.h for what it does. Internal to frame/.
 *
 * Position and limit of the public head are 0 while the stack is disarmed, that is sealed or
 * checked: then every inline function takes its slow path, and the true position is
 * `held_position`. So sealing and checking cost nothing when they are off.
 *
 * Invariants (stack_verify): in a block, limit <= resident <= committed <= reserved, all multiples
 * of 4096; blocks older than the current one are left at `left_at` <= limit; the position lies in
 * the current block, at most at its limit; records lie in rising order of age within a block; the
 * base frame is the last of the chain of records.
 *
 * Threading: everything is the owner thread's.
 */
#ifndef CAIRN_FRAME_STACK_STATE_H
#define CAIRN_FRAME_STACK_STATE_H

#include "cairn/stack.h"
#include "frame/frame.h"

/* Flags in a record's serial. A flagged record is no inline pop's business. */
#define SERIAL_POP_SLOWLY                                                                          \
    ((uint64_t)1 << 63) /* sealed, checked, or the stack has left the record's block */
#define SERIAL_BELOW_SEALED ((uint64_t)1 << 62) /* the frame below is sealed */
#define SERIAL_FLAGS        (SERIAL_POP_SLOWLY | SERIAL_BELOW_SEALED)

enum { STACK_GRANULE = 8 }; /* of positions and sizes */

struct stack_block {
    struct stack_block *older; /* owner; also the first word of a free descriptor */
    struct stack_block *newer; /* owner: in use after this one, or spare */
    char *base;                /* const while in use */
    size_t reserved;           /* const while in use: bytes of address space */
    size_t committed;          /* owner: bytes readable and writable, from base */
    size_t resident;           /* owner: bytes that may have memory, from base */
    size_t limit;              /* owner: bytes used at most since the interval began, in steps */
    uintptr_t left_at;         /* owner: position when a newer block was entered */
    struct span *span; /* const while in use: of the page layer; NULL for a reserved range */
};

struct stack_checked_block;

struct stack {
    cairn_stack own;               /* first; the head of every stack but the threads' */
    cairn_stack *head;             /* const: `own`, or the thread's cairn_thread_stack_head */
    struct cairn_stack_frame base; /* owner: the record below the first frame; in no mark */
    struct stack_block *first;     /* owner: oldest block, NULL before the first allocation */
    struct stack_block *current;   /* owner: block of the position */
    uintptr_t held_position;       /* owner: the position while disarmed */
    size_t max_bytes;              /* const: a multiple of 4096; SIZE_MAX for none */
    size_t
        first_reserve; /* const: bytes of the first block when it is a range; 0: a run of pages */
    uint64_t interval_start_ms;         /* owner */
    struct stack_checked_block *newest; /* owner, checked stacks: newest block */
    bool sealed;                        /* owner: the newest frame is sealed */
    bool checked;                       /* const: canaries, marks, dead frames inaccessible */
    char name[FRAME_NAME_BYTES];        /* const */
};

static_check(sizeof(struct stack) <= CELL_BYTES, "a stack is one descriptor");
static_check(sizeof(struct stack_block) <= CELL_BYTES, "so is a block");
static_check(CAIRN_STACK_INLINE_ALIGN == PAGE_BYTES,
             "limits are multiples of the page map's pages");

inline_always bool stack_disarmed(const struct stack *stack)
{
    return stack->sealed || stack->checked;
}

inline_always uintptr_t stack_position(const struct stack *stack)
{
    return stack_disarmed(stack) ? stack->held_position : stack->head->position;
}

inline_always uintptr_t block_end(const struct stack_block *block)
{
    return (uintptr_t)block->base + block->limit;
}

inline_always bool block_holds(const struct stack_block *block, uintptr_t address)
{
    return address - (uintptr_t)block->base < block->reserved;
}

/* A new stack, with that head; with NULL, its own. NULL when memory is out, with errno. */
struct stack *stack_make(const cairn_stack_options *options, cairn_stack *head);

/* Moves the position within the current block, and the inline limit with it. */
void stack_set_position(struct stack *stack, uintptr_t position);

/* Makes room for `size` bytes aligned to `align` at the position, which may move to another block.
 * False when memory is out or the maximum reached; nothing has changed then. */
bool stack_make_room(struct stack *stack, size_t size, size_t align);

/* Gives back what was not reached for an interval, when one has passed. And now, all unused but
 * `keep`. */
void stack_tick(struct stack *stack);
size_t stack_give_back(struct stack *stack, size_t keep);
void stack_free_blocks(struct stack *stack);

/* Checked stacks. A block between canaries; the room for it; the end of all blocks above `frame`.
 */
void *stack_checked_alloc(struct stack *stack, size_t size, size_t align);
void *stack_checked_resize(struct stack *stack, void *pointer, size_t old_size, size_t new_size);
void stack_checked_end(struct stack *stack, uintptr_t frame);

void stack_verify(const struct stack *stack);

#endif
