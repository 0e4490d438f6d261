/* Stack allocator: memory that ends in the reverse order of its making, a frame at a time.
 *
 * A push opens a frame, allocations go to the newest frame, the pop of its mark ends them all at
 * once. Allocation moves a position and compares it with a limit, inline; blocks lie side by side.
 * Frames nest as deep as memory lasts.
 *
 *     cairn_stack *stack = cairn_stack_new(NULL);
 *     cairn_mark mark = cairn_stack_push(stack);
 *     int *numbers = cairn_stack_alloc_array(stack, count, sizeof *numbers, _Alignof(int));
 *     …
 *     cairn_stack_pop(stack, mark);
 *     cairn_stack_delete(stack);
 *
 * For the current thread's own stack and frames that end with a C scope see cairn/scope.h.
 *
 * Algorithm: a bump pointer over a chain of blocks: 64 KiB first, then ranges of reserved address
 * space, each eight times the last, that are made usable from their start upwards as they are
 * needed. Mark and release is as old as the Burroughs machines; Hanson, "Fast allocation and
 * deallocation of memory based on object lifetimes", 1990, has it in this form.
 *
 * Memory: a frame costs 16 bytes, a block its size rounded up to a multiple of 8. What the stack
 * did not reach for half a second goes back to the system, also while an outer frame lives on; a
 * push in 256 looks at the clock, and so does whatever grows or shrinks the stack by a step.
 * cairn_stack_trim gives back at once. An idle stack keeps what it has.
 *
 * Threads: a stack belongs to the thread that made it, or adopted it last. Only that thread may use
 * it, in every function; a thread is known by its thread pointer, so one that took an ended one's
 * place passes for it.
 *
 * A signal handler may push, pop and allocate on a stack of its own, made before by the thread that
 * it interrupts, over a buffer and `fixed`; nothing else.
 *
 * Fork: the child's thread owns the stacks that it owned in the parent. Those of other threads stay
 * as they were; the child may adopt and delete them if their owners were not using them at the time
 * of the fork. longjmp and exceptions over frames: the next pop of an outer frame ends the inner
 * ones, too.
 *
 * The program's functions that a stack calls, those of cairn_stack_defer and `out_of_memory`, must
 * return: no longjmp, no exception.
 *
 * Failure: NULL with errno ENOMEM, and everything stays as it was. EINVAL for an alignment that is
 * no power of two. Misuse dies with one line (docs/MESSAGES-frame.md), always: a pop without its
 * push, an allocation while sealed, a realloc of an outer frame's block, use by a thread that does
 * not own the stack, use after its delete (until another stack takes its place). Debug builds, and
 * every build under AddressSanitizer or Valgrind, also find writes outside of blocks and uses of
 * ended frames.
 */
#ifndef CAIRN_STACK_H
#define CAIRN_STACK_H

#include <stdarg.h>

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A frame's record, at its start. `serial` is unique, its highest two bits are the library's. */
struct cairn_stack_frame {
    struct cairn_stack_frame *previous;
    uint64_t serial;
};

/* A frame, for its pop. All zero: the push failed. */
typedef struct cairn_mark {
    struct cairn_stack_frame *frame;
    uint64_t serial;
} cairn_mark;

/* The part of a stack that the inline functions work on; not for other use. Owner thread writes all
 * of it. */
typedef struct cairn_stack {
    uintptr_t position; /* next free byte, a multiple of 8; 0 while every allocation takes the slow
                           path */
    uintptr_t limit; /* of inline allocation, a multiple of CAIRN_STACK_LIMIT_GRANULE; 0 likewise */
    struct cairn_stack_frame *frame; /* the newest */
    void *owner;                     /* its thread pointer */
    uint64_t serial;                 /* of the newest frame ever */
    void *inside;                    /* const: the library's part */
} cairn_stack;

typedef struct cairn_stack_options {
    size_t reserve_bytes; /* address space of the first block, so that all of the stack is one
                             piece; 0: 64 KiB, growing */
    size_t max_bytes;     /* most memory that the stack may hold, rounded up to whole pages, the
                             buffer not counted; 0: no limit */
    const char *name;     /* for messages, at most 23 bytes are kept; NULL: "stack" */

    /* Memory of the caller's that is used first, at least 128 bytes at any address. It must outlive
     * the stack, and is never given back to the system. With `fixed` there is never more than it.
     */
    void *buffer;
    size_t buffer_bytes;
    bool fixed;

    /* Called when a request of so many bytes found no memory; true means try again. It may free
     * what it likes, but of this stack it may only trim. NULL: none. */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *out_of_memory_context;
} cairn_stack_options;

typedef struct cairn_stack_stats {
    size_t used_bytes;     /* in frames, with what alignment and the ends of blocks took */
    size_t resident_bytes; /* of memory, at most, the caller's buffer with it */
    size_t reserved_bytes; /* of address space, likewise */
    size_t blocks;
    size_t frames; /* open ones */
} cairn_stack_stats;

/* A new stack, owned by the calling thread. NULL as `options` is all zero. NULL with ENOMEM; with
 * EINVAL for a buffer that is too small, and `fixed` without a buffer. */
CAIRN_API CAIRN_NODISCARD cairn_stack *
cairn_stack_new(const cairn_stack_options *options) CAIRN_NOEXCEPT;

/* Ends the stack with all its frames: 0; or EBUSY for a thread's own stack (cairn/scope.h), which
 * ends with its thread, and then nothing happened. NULL gives 0. */
CAIRN_API int cairn_stack_delete(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Ends all frames and all blocks, those made before the first push too; the memory is kept as after
 * pops. */
CAIRN_API void cairn_stack_reset(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Has `function` called with `context` when the newest frame ends, by whatever ends it: its pop,
 * the pop of an outer frame, reset, delete, the end of a thread whose own stack it is; the end of
 * the process calls nothing. The last one deferred is called first, and what was allocated before
 * it was deferred is still there then. Before the first push it belongs to the stack as a whole. 0;
 * ENOMEM; EINVAL without a function. Costs 32 bytes of the frame, and the frame's pop is not inline
 * then. Not in a sealed frame. */
CAIRN_API CAIRN_NODISCARD int cairn_stack_defer(cairn_stack *stack, void (*function)(void *context),
                                                void *context) CAIRN_NOEXCEPT;

/* Nothing can be allocated in the newest frame until it is unsealed. New frames can be pushed above
 * it and used. */
CAIRN_API void cairn_stack_seal(cairn_stack *stack) CAIRN_NOEXCEPT;
CAIRN_API void cairn_stack_unseal(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Gives all unused memory but `keep_bytes` back to the system; returns how many bytes went. */
CAIRN_API size_t cairn_stack_trim(cairn_stack *stack, size_t keep_bytes) CAIRN_NOEXCEPT;

/* The calling thread owns the stack from now on. The last owner must have stopped using it before,
 * as seen through whatever handed the stack over. A thread's own stack stays with it. */
CAIRN_API void cairn_stack_adopt(cairn_stack *stack) CAIRN_NOEXCEPT;

CAIRN_API void cairn_stack_read_stats(const cairn_stack *stack,
                                      cairn_stack_stats *stats) CAIRN_NOEXCEPT;

/* alloc in the newest frame; free does nothing; resize of the newest block. */
CAIRN_API cairn_allocator cairn_stack_allocator(cairn_stack *stack) CAIRN_NOEXCEPT;

/* What printf would write, as a string in the newest frame. NULL with ENOMEM, or what vsnprintf
 * sets for a format that it refuses. */
CAIRN_API CAIRN_NODISCARD char *cairn_stack_printf(cairn_stack *stack, const char *format,
                                                   ...) CAIRN_NOEXCEPT
    __attribute__((format(printf, 2, 3)));
CAIRN_API CAIRN_NODISCARD char *cairn_stack_vprintf(cairn_stack *stack, const char *format,
                                                    va_list arguments) CAIRN_NOEXCEPT
    __attribute__((format(printf, 2, 0)));

/* The slow halves of the inline functions; complete in themselves. */
CAIRN_API cairn_mark cairn_stack_push_slow(cairn_stack *stack) CAIRN_NOEXCEPT;
CAIRN_API void cairn_stack_pop_slow(cairn_stack *stack, cairn_mark mark) CAIRN_NOEXCEPT;
CAIRN_API void *cairn_stack_alloc_slow(cairn_stack *stack, size_t size,
                                       size_t align) CAIRN_NOEXCEPT;
CAIRN_API void *cairn_stack_realloc_slow(cairn_stack *stack, void *pointer, size_t old_size,
                                         size_t new_size, size_t align) CAIRN_NOEXCEPT;

/* Alignments up to this, known at compile time, are for the inline path; limits are multiples of
 * this; one push in so many looks at the clock. */
#define CAIRN_STACK_INLINE_ALIGN  4096
#define CAIRN_STACK_LIMIT_GRANULE 64
#define CAIRN_STACK_PUSH_TICK     256

/* UndefinedBehaviorSanitizer's test for NULL in gcc reads the flags of the addition that makes a
 * thread-local address (cairn/scope.h); the linker may turn it into one that sets none. */
#define CAIRN_STACK_NO_UBSAN __attribute__((no_sanitize("undefined")))

/* The inline half of push: whether it could, without a look at the owner. */
CAIRN_STACK_NO_UBSAN
static inline bool cairn_stack_push_inline(cairn_stack *stack, cairn_mark *mark) CAIRN_NOEXCEPT
{
    uintptr_t start = stack->position;
    uint64_t serial = stack->serial + 1;
    if (__builtin_expect(sizeof(struct cairn_stack_frame) > stack->limit - start ||
                             serial % CAIRN_STACK_PUSH_TICK == 0,
                         0))
        return false;
    struct cairn_stack_frame *frame = (struct cairn_stack_frame *)start;
    frame->previous = stack->frame;
    frame->serial = serial;
    stack->frame = frame;
    stack->serial = serial;
    stack->position = start + sizeof(struct cairn_stack_frame);
    mark->frame = frame;
    mark->serial = serial;
    return true;
}

/* Opens a frame. When memory is out the mark is all zero and errno ENOMEM: allocations then go to
 * the frame before, and the pop of such a mark does nothing. */
static inline cairn_mark cairn_stack_push(cairn_stack *stack) CAIRN_NOEXCEPT
{
    cairn_mark mark;
    if (__builtin_expect(
            stack->owner == __builtin_thread_pointer() && cairn_stack_push_inline(stack, &mark), 1))
        return mark;
    return cairn_stack_push_slow(stack);
}

/* The inline half of pop: whether it could, without a look at the owner. */
CAIRN_STACK_NO_UBSAN
static inline bool cairn_stack_pop_inline(cairn_stack *stack, cairn_mark mark) CAIRN_NOEXCEPT
{
    if (__builtin_expect(mark.frame != stack->frame || mark.frame->serial != mark.serial, 0))
        return false;
    stack->position = (uintptr_t)mark.frame;
    stack->frame = mark.frame->previous;
    return true;
}

/* Ends the mark's frame and whatever is above it. */
static inline void cairn_stack_pop(cairn_stack *stack, cairn_mark mark) CAIRN_NOEXCEPT
{
    if (__builtin_expect(
            stack->owner != __builtin_thread_pointer() || !cairn_stack_pop_inline(stack, mark), 0))
        cairn_stack_pop_slow(stack, mark);
}

/* The inline half of alloc: the block, or NULL when it takes the slow half; without a look at the
 * owner. */
CAIRN_STACK_NO_UBSAN
static inline void *cairn_stack_alloc_inline(cairn_stack *stack, size_t size,
                                             size_t align) CAIRN_NOEXCEPT
{
    if (!__builtin_constant_p(align) || align > CAIRN_STACK_INLINE_ALIGN || align == 0 ||
        (align & (align - 1)) != 0)
        return NULL;
    uintptr_t start = stack->position; /* a multiple of 8 */
    if (align > 8)
        start = (start + align - 1) & ~(uintptr_t)(align - 1);
    size_t rounded = (size + 7) & ~(size_t)7;
    /* Position and limit are both 0, or the limit is not below `start`: of itself where it is a
     * multiple of `align`. */
    if (align > CAIRN_STACK_LIMIT_GRANULE && start > stack->limit)
        return NULL;
    if (__builtin_expect(rounded - 1 >= stack->limit - start, 0))
        return NULL;
    if (start == 0)
        __builtin_unreachable(); /* then the limit is 0, too: spares the callers' test for NULL */
    stack->position = start + rounded;
    return (void *)start;
}

/* A block in the newest frame; size 0 counts as 1. Contents are undefined. Alignment: any power of
 * two. About a nanosecond; inline when `align` is a constant. */
static inline void *cairn_stack_alloc(cairn_stack *stack, size_t size, size_t align) CAIRN_NOEXCEPT
{
    if (__builtin_expect(stack->owner == __builtin_thread_pointer(), 1)) {
        void *block = cairn_stack_alloc_inline(stack, size, align);
        if (__builtin_expect(block != NULL, 1))
            return block;
    }
    return cairn_stack_alloc_slow(stack, size, align);
}

/* The same, all zero. */
static inline void *cairn_stack_alloc_zero(cairn_stack *stack, size_t size,
                                           size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_stack_alloc(stack, size, align);
    return block ? __builtin_memset(block, 0, size) : block;
}

/* `count` elements of `size` bytes, contents undefined; a product that overflows fails with ENOMEM.
 */
static inline void *cairn_stack_alloc_array(cairn_stack *stack, size_t count, size_t size,
                                            size_t align) CAIRN_NOEXCEPT
{
    return cairn_stack_alloc(stack, cairn_array_bytes(count, size), align);
}

static inline void *cairn_stack_alloc_array_zero(cairn_stack *stack, size_t count, size_t size,
                                                 size_t align) CAIRN_NOEXCEPT
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return cairn_stack_alloc_array(stack, count, size, align); /* fails */
    void *block = cairn_stack_alloc(stack, total, align);
    return block ? __builtin_memset(block, 0, total) : block;
}

/* The block, which must be of the newest frame, at a new size: in place when it is the newest block
 * or shrinks, else moved. `align` is that of the block. NULL as `pointer` allocates. On failure the
 * block stays as it was. */
CAIRN_NODISCARD static inline void *cairn_stack_realloc(cairn_stack *stack, void *pointer,
                                                        size_t old_size, size_t new_size,
                                                        size_t align) CAIRN_NOEXCEPT
{
    uintptr_t start = (uintptr_t)pointer;
    size_t old_rounded = (old_size + 7) & ~(size_t)7;
    size_t new_rounded = (new_size + 7) & ~(size_t)7;
    /* A sum that equals the position is that of the newest block, for no other ends there: below
     * every range of the stack lies a page that is nobody's. */
    if (__builtin_expect(start + old_rounded == stack->position &&
                             start > (uintptr_t)stack->frame &&
                             new_rounded - 1 < stack->limit - start && old_rounded != 0 &&
                             stack->owner == __builtin_thread_pointer(),
                         1)) {
        stack->position = start + new_rounded;
        return pointer;
    }
    return cairn_stack_realloc_slow(stack, pointer, old_size, new_size, align);
}

/* A copy of `size` bytes; of a string; and of its first `most` bytes, ended by a zero. */
CAIRN_NODISCARD static inline void *cairn_stack_dup(cairn_stack *stack, const void *from,
                                                    size_t size, size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_stack_alloc(stack, size, align);
    return block ? __builtin_memcpy(block, from, size) : block;
}

CAIRN_NODISCARD static inline char *cairn_stack_strdup(cairn_stack *stack,
                                                       const char *string) CAIRN_NOEXCEPT
{
    return (char *)cairn_stack_dup(stack, string, __builtin_strlen(string) + 1, 1);
}

CAIRN_NODISCARD static inline char *cairn_stack_strndup(cairn_stack *stack, const char *string,
                                                        size_t most) CAIRN_NOEXCEPT
{
    size_t length = 0;
    while (length < most && string[length] != '\0')
        length++;
    char *copy = (char *)cairn_stack_alloc(stack, length + 1, 1);
    if (copy != NULL) {
        __builtin_memcpy(copy, string, length);
        copy[length] = '\0';
    }
    return copy;
}

#ifdef __cplusplus
}
#endif
#endif
