/* The stack's structure, and the functions that its files share. cairn/stack.h describes what a
 * stack does.
 *
 * Files, from the bottom: stack_block.c (blocks of memory), stack.c (frames, allocations, checks,
 * the public functions, the stack of each thread).
 *
 * Position and limit of the public head are 0 while the stack is disarmed, which means sealed or
 * checked. Then every inline function takes its slow path, and `held_position` holds the position.
 * So sealing and checking cost nothing when they are not used.
 *
 * Invariants (stack_verify):
 *   a block: limit <= resident <= committed <= reserved, all multiples of 4096; in the caller's
 *       buffer all four are equal
 *   the end of a block by its limit is a multiple of CAIRN_STACK_LIMIT_GRANULE
 *   blocks older than the current one have left_at <= limit
 *   the position is in the current block, at most at its limit; no two blocks touch
 *   the records of frames in a block are in ascending order, the newest last
 *   the base frame is the last of the chain of records
 *   hooks belong to open frames, the newest first
 *
 * Threads: the owner only.
 */
#ifndef CAIRN_FRAME_STACK_BLOCK_H
#define CAIRN_FRAME_STACK_BLOCK_H

#include "cairn/stack.h"
#include "frame/frame.h"

/* Flags in a record's serial. The inline pop leaves a record with a flag to the slow path. */
#define SERIAL_POP_SLOWLY                                                                          \
    ((uint64_t)1 << 63) /* sealed, checked, with hooks, or left for another block */
#define SERIAL_BELOW_SEALED ((uint64_t)1 << 62) /* the frame below is sealed */
#define SERIAL_FLAGS        (SERIAL_POP_SLOWLY | SERIAL_BELOW_SEALED)

enum { STACK_GRANULE = 8 }; /* of positions and sizes */

struct stack_block {
    struct stack_block *older; /* owner: next older block; the first word of a free descriptor */
    struct stack_block *newer; /* owner: next newer block, in use or spare */
    char *base;                /* const while in use */
    size_t reserved;           /* const while in use: bytes of address space */
    size_t committed;          /* owner: readable and writable bytes, from base */
    size_t resident;           /* owner: bytes that may be resident, from base */
    /* owner: bytes in steps, at least the maximum in use since the interval began */
    size_t limit;
    uintptr_t left_at; /* owner: the position when a newer block was entered */
    struct span *span; /* const while in use: run of the page layer; NULL for a reserved range */
    bool borrowed;     /* const while in use: the caller's buffer */
};

/* A function to be called when a frame ends. The description is in the stack itself, and const once
 * made. */
struct stack_hook {
    struct stack_hook *older; /* of this frame or of one below */
    uint64_t serial;          /* of its frame, without flags; 0 for the base */
    void (*function)(void *context);
    void *context;
};

struct stack_checked_block;

struct stack {
    /* head of every stack except those of threads; must be the first field */
    cairn_stack own;
    /* const after init: `own`, or the thread's cairn_thread_stack_head */
    cairn_stack *head;
    struct cairn_stack_frame base; /* owner: the record below the first frame; no mark has it */
    struct stack_block *first;     /* owner: oldest block; NULL before the first allocation */
    struct stack_block *current;   /* owner: the block of the position */
    uintptr_t held_position;       /* owner: the position while disarmed */
    /* const after init: a multiple of the page size; SIZE_MAX: none */
    size_t max_bytes;
    /* const after init: size of the first range; 0: the first block is a run of pages */
    size_t reserve_bytes;
    struct stack_hook *hooks; /* owner: of open frames, newest first */
    bool (*out_of_memory)(void *context, size_t size_bytes); /* const after init; NULL: none */
    void *out_of_memory_context;                             /* const after init */
    uint64_t interval_start_ms;                              /* owner */
    struct stack_checked_block *newest; /* owner, checked stacks: the newest block */
    bool sealed;                        /* owner: the newest frame is sealed */
    bool fixed;                         /* const after init: only the caller's buffer is used */
    /* const after init: canaries, marks, ended frames inaccessible */
    bool checked;
    char name[FRAME_NAME_BYTES]; /* const after init */
};

static_check(sizeof(struct stack) <= DESCRIPTOR_BYTES_MAX, "a stack is one descriptor");
static_check(sizeof(struct stack_block) <= DESCRIPTOR_BYTES_MAX, "so is a block");
static_check(PAGE_BYTES % CAIRN_STACK_LIMIT_GRANULE == 0, "limits of our own blocks are of pages");

/* Whether the head has zeros, so that inline functions take their slow paths. */
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

/* Ends the process: the calling thread does not own the stack, or the stack has ended. */
no_return void stack_die_of_owner(const cairn_stack *head) cold;

/* Ends the process: an allocation in a sealed frame. */
no_return void stack_die_sealed(const struct stack *stack) cold;

/* The stack of a head. Ends the process unless the calling thread owns it. */
inline_always struct stack *stack_of(const cairn_stack *head)
{
    if (unlikely(head->owner != __builtin_thread_pointer()))
        stack_die_of_owner(head);
    return head->inside;
}

/* Makes a stack with the given head; NULL: with its own.
 * Returns: NULL with errno set when out of memory or when the options are invalid. */
struct stack *stack_make(const cairn_stack_options *options, cairn_stack *head);

/* Calls the hooks of a stack and ends it. */
void stack_end(struct stack *stack);

/* Sets the position within the current block, and the head's limit. */
void stack_set_position(struct stack *stack, uintptr_t position);

/* Makes room for a block at the position, which may move to another block of memory. The caller of
 * stack_room then sets the position.
 * Returns: the address; 0 when out of memory or when the maximum is reached, and then nothing has
 *     changed. */
uintptr_t stack_room(struct stack *stack, size_t size, size_t align);

/* Calls the program's out-of-memory function.
 * Returns: true to try again. */
bool stack_try_again(const struct stack *stack, size_t size);

/* Calls and removes the hooks of all frames from a serial on. */
void stack_run_hooks(struct stack *stack, uint64_t serial);

/* Makes room for `size` bytes aligned to `align` at the position, in the current block only. Both
 * numbers are at most PTRDIFF_MAX / 2.
 * Returns: false when it does not fit, when out of memory, or when the maximum is reached; position
 *     and block are unchanged then. */
bool stack_grow(struct stack *stack, size_t size, size_t align);

/* Makes room for `size` bytes aligned to `align` at the position, which may move to another block.
 * Both numbers are at most PTRDIFF_MAX / 2.
 * Returns: false when out of memory, or when the maximum is reached; position and block are
 *     unchanged then. */
bool stack_make_room(struct stack *stack, size_t size, size_t align);

/* Returns the memory that was not used during an interval, when one has passed. */
void stack_tick(struct stack *stack);

/* Returns all unused memory except `keep` bytes.
 * Returns: the number of bytes. */
size_t stack_give_back(struct stack *stack, size_t keep);

/* Makes the caller's buffer the first block. The buffer has at least 2 * CAIRN_STACK_LIMIT_GRANULE
 * bytes.
 * Returns: false when out of memory. */
bool stack_borrow(struct stack *stack, void *buffer, size_t buffer_bytes);

/* Frees all blocks. */
void stack_free_blocks(struct stack *stack);

/* Allocates a block between canaries in a checked stack.
 * Returns: NULL when out of memory. */
void *stack_checked_alloc(struct stack *stack, size_t size, size_t align);

/* Verifies a block of a checked stack and resizes it in place.
 * Returns: NULL when it does not fit. */
void *stack_checked_resize(struct stack *stack, void *pointer, size_t old_size, size_t new_size);

/* Verifies and ends all blocks of a checked stack above `frame`. */
void stack_checked_end(struct stack *stack, uintptr_t frame);

/* Debug builds: verifies the invariants. */
void stack_verify(const struct stack *stack);

#endif
