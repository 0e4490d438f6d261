/* The stack's inside: see cairn/stack.h for what it does. Internal to frame/.
 *
 * Position and limit of the public head are 0 while the stack is disarmed, that is sealed or
 * checked: then every inline function takes its slow path, and the true position is
 * `held_position`. So sealing and checking cost nothing when they are off.
 *
 * Invariants (stack_verify): in a block, limit <= resident <= committed <= reserved, all multiples
 * of 4096 but for the caller's buffer, where all four are equal; every block's end by its limit is
 * a multiple of CAIRN_STACK_LIMIT_GRANULE; blocks older than the current one are left at `left_at`
 * <= limit; the position lies in the current block, at most at its limit; no two blocks touch;
 * records lie in rising order of age within a block; the base frame is the last of the chain of
 * records; hooks are those of open frames, the newest first.
 *
 * Threading: everything is the owner thread's.
 */
#ifndef CAIRN_FRAME_STACK_STATE_H
#define CAIRN_FRAME_STACK_STATE_H

#include "cairn/stack.h"
#include "frame/frame.h"

/* Flags in a record's serial. A flagged record is no inline pop's business. */
#define SERIAL_POP_SLOWLY                                                                          \
    ((uint64_t)1 << 63) /* sealed, checked, with hooks, or the stack has left the record's block   \
                         */
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
    bool borrowed;     /* const while in use: the caller's buffer */
};

/* A function to be called when a frame ends; lies in the stack itself. Const once made. */
struct stack_hook {
    struct stack_hook *older; /* of this frame or of one below */
    uint64_t serial;          /* of its frame, without flags; 0 for the base */
    void (*function)(void *context);
    void *context;
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
    size_t reserve_bytes;     /* const: of the first block of our own when it is a range, else 0 */
    struct stack_hook *hooks; /* owner: of open frames, newest first */
    bool (*out_of_memory)(void *context, size_t size_bytes); /* const */
    void *out_of_memory_context;                             /* const */
    uint64_t interval_start_ms;                              /* owner */
    struct stack_checked_block *newest; /* owner, checked stacks: newest block */
    bool sealed;                        /* owner: the newest frame is sealed */
    bool fixed;                         /* const: never more than the caller's buffer */
    bool checked;                       /* const: canaries, marks, dead frames inaccessible */
    char name[FRAME_NAME_BYTES];        /* const */
};

static_check(sizeof(struct stack) <= CELL_BYTES, "a stack is one descriptor");
static_check(sizeof(struct stack_block) <= CELL_BYTES, "so is a block");
static_check(PAGE_BYTES % CAIRN_STACK_LIMIT_GRANULE == 0, "limits of our own blocks are of pages");

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

/* Dies unless the calling thread owns the stack. */
no_return void stack_die_of_owner(const cairn_stack *head) cold;
no_return void stack_die_sealed(const struct stack *stack) cold;
inline_always struct stack *stack_of(const cairn_stack *head)
{
    if (unlikely(head->owner != __builtin_thread_pointer()))
        stack_die_of_owner(head);
    return head->inside;
}

/* A new stack, with that head; with NULL, its own. NULL when memory is out, with errno. And its
 * end. */
struct stack *stack_make(const cairn_stack_options *options, cairn_stack *head);
void stack_end(struct stack *stack);

/* Moves the position within the current block, and the inline limit with it. */
void stack_set_position(struct stack *stack, uintptr_t position);

/* Room at the position, which may move to another block; the block is the caller's to lay. 0 when
 * memory is out or the maximum reached; nothing has changed then. */
uintptr_t stack_room(struct stack *stack, size_t size, size_t align);

/* Whether the program has made memory free, so that one should try again. */
bool stack_try_again(const struct stack *stack, size_t size);

/* Calls and forgets the hooks of all frames from that serial on. */
void stack_run_hooks(struct stack *stack, uint64_t serial);

/* Makes room for `size` bytes aligned to `align` at the position: in the current block only; or,
 * the position may move to another. Both numbers are at most PTRDIFF_MAX / 2. False when memory is
 * out or the maximum reached; position and block have not changed then. */
bool stack_grow(struct stack *stack, size_t size, size_t align);
bool stack_make_room(struct stack *stack, size_t size, size_t align);

/* Gives back what was not reached for an interval, when one has passed. And now, all unused but
 * `keep`. */
void stack_tick(struct stack *stack);
size_t stack_give_back(struct stack *stack, size_t keep);

/* The caller's buffer becomes the first block; it holds a line at least. */
bool stack_borrow(struct stack *stack, void *buffer, size_t buffer_bytes);
void stack_free_blocks(struct stack *stack);

/* Checked stacks. A block between canaries; the room for it; the end of all blocks above `frame`.
 */
void *stack_checked_alloc(struct stack *stack, size_t size, size_t align);
void *stack_checked_resize(struct stack *stack, void *pointer, size_t old_size, size_t new_size);
void stack_checked_end(struct stack *stack, uintptr_t frame);

void stack_verify(const struct stack *stack);

#endif
