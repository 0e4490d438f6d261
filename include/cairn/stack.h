/* Stack allocator: memory that ends in the reverse order of its allocation, one frame at a time.
 *
 * A push opens a frame, allocations go to the newest frame, and the pop of the frame's mark ends
 * all of them at once. Frames may be nested as deep as memory lasts.
 *
 * Use a stack for the temporary memory of a function, a request or a parser. For the stack that
 * each thread already has, and frames that end with a C block, use cairn/scope.h. Do not use a
 * stack for blocks that must outlive the frame in which they were allocated.
 *
 * Example:
 *
 *     #include <cairn/stack.h>
 *
 *     int with_numbers(size_t count, int (*work)(int *numbers, size_t count))
 *     {
 *         cairn_stack *stack = cairn_stack_new(NULL);
 *         if (stack == NULL)
 *             return -1;
 *         cairn_mark mark = cairn_stack_push(stack);
 *         int *numbers = cairn_stack_alloc_array(stack, count, sizeof *numbers, _Alignof(int));
 *         int result = numbers != NULL ? work(numbers, count) : -1;
 *         cairn_stack_pop(stack, mark); // ends the numbers
 *         cairn_stack_delete(stack);
 *         return result;
 *     }
 *
 * Algorithm: a position moves through a chain of memory blocks: 64 KiB first, then ranges of
 * reserved address space, each eight times as large as the previous one, that are made usable from
 * their start upwards as needed. Mark and release dates from the Burroughs machines; Hanson,
 * "Fast allocation and deallocation of memory based on object lifetimes", 1990, describes this
 * form.
 *
 * Memory: a frame takes 16 bytes, a block its size rounded up to a multiple of 8. Memory that the
 * stack did not reach for half a second returns to the system, even while an outer frame is open.
 * The clock is read by one push in 256 and whenever the stack grows or shrinks by a range.
 *
 * Threads: a stack belongs to the thread that made it or adopted it last, its owner. Only the owner
 * may call functions of the stack. A child of fork owns the stacks of the forking thread.
 *
 * Failure: functions that allocate return NULL with errno ENOMEM and change nothing; EINVAL if an
 * alignment is no power of two.
 *
 * Cost: about a nanosecond for an allocation, two for a frame, inline.
 *
 * Caveats:
 *  - Misuse ends the process with one line (docs/reference/MESSAGES.md) in all builds: a pop
 *    without its push, an allocation in a sealed frame, a realloc of an outer frame's block, use by
 *    another thread, use after the deletion as long as no other stack has taken the place.
 *  - Threads are identified by their thread pointer: a new thread that has the thread pointer of an
 *    ended one is taken for it.
 *  - Writes outside of blocks and uses of ended frames are found in debug builds and under
 *    AddressSanitizer or Valgrind only.
 *  - A signal handler may push, pop and allocate only on a stack of its own, made before the signal
 *    by the interrupted thread, over a buffer and with `fixed`.
 *  - After fork, the stacks of other threads are unchanged in the child. The child may adopt and
 *    delete stacks that their owners were not using at the moment of the fork.
 *  - After a longjmp or an exception that leaves frames open, the next pop of an outer frame ends
 *    the inner ones, too.
 *  - Functions of the program that a stack calls (cairn_stack_defer, `out_of_memory`) must return,
 *    without longjmp or an exception.
 *  - An idle stack keeps its memory until cairn_stack_trim.
 */
#ifndef CAIRN_STACK_H
#define CAIRN_STACK_H

#include <stdarg.h>

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A frame, to be passed to its pop. All zero: the push failed. */
typedef struct cairn_mark {
    struct cairn_stack_frame *frame;
    uint64_t serial;
} cairn_mark;

/* A stack. */
typedef struct cairn_stack cairn_stack;

/* Options of cairn_stack_new. All zero: a stack that grows without a limit. */
typedef struct cairn_stack_options {
    size_t reserve_bytes; /* address space of the first range, so that the whole stack is
                             contiguous; 0: 64 KiB, growing */
    size_t max_bytes;     /* most memory that the stack may hold, rounded up to whole pages, the
                             buffer not counted; 0: no limit */
    const char *name;     /* for messages, at most 23 bytes are kept; NULL: "stack" */

    /* Memory of the caller that the stack uses first: at least 128 bytes at any address. The buffer
     * must exist as long as the stack and is never returned to the system. With `fixed` the stack
     * never takes other memory. */
    void *buffer;
    size_t buffer_bytes;
    bool fixed;

    /* Called when a request of `size_bytes` finds no memory; NULL: none. The function returns true
     * to try again after it has freed memory. The only function of this stack that it may
     * call is cairn_stack_trim. */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *out_of_memory_context;
} cairn_stack_options;

/* Statistics of one stack. */
typedef struct cairn_stack_stats {
    size_t used_bytes;     /* in frames, including alignment gaps and unused ends of ranges */
    size_t resident_bytes; /* upper bound of memory in use, the caller's buffer included */
    size_t reserved_bytes; /* address space, the caller's buffer included */
    size_t blocks;         /* ranges of memory */
    size_t frames;         /* open frames */
} cairn_stack_stats;

/* Creates a stack that the calling thread owns. `options` may be NULL.
 * Returns: the stack; NULL with errno ENOMEM; NULL with EINVAL for a buffer that is too small or
 * `fixed` without a buffer. */
CAIRN_API CAIRN_NODISCARD cairn_stack *
cairn_stack_new(const cairn_stack_options *options) CAIRN_NOEXCEPT;

/* Ends the stack with all its frames. NULL is ignored.
 * Returns: 0; EBUSY for a thread's own stack (cairn/scope.h), which ends with its thread; then
 * nothing has changed. */
CAIRN_API int cairn_stack_delete(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Ends all frames and all blocks, those allocated before the first push as well. The stack keeps
 * its memory for later allocations; cairn_stack_trim returns it to the system. */
CAIRN_API void cairn_stack_reset(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Registers `function` to be called with `context` when the newest frame ends: by its pop, the pop
 * of an outer frame, a reset, a delete, or the end of the thread whose own stack it is. The end of
 * the process does not call `function`. Functions are called in reverse order of registration;
 * blocks allocated before the registration still exist then. Without an open frame the function
 * belongs to the stack as a whole. Registering a function in a sealed frame is misuse.
 * Returns: 0; ENOMEM; EINVAL if `function` is NULL.
 * Cost: 32 bytes of the frame; the pop of this frame is no longer inline. */
CAIRN_API CAIRN_NODISCARD int cairn_stack_defer(cairn_stack *stack, void (*function)(void *context),
                                                void *context) CAIRN_NOEXCEPT;

/* Forbids allocations in the newest frame until it is unsealed. New frames may be pushed above a
 * sealed frame and used. */
CAIRN_API void cairn_stack_seal(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Allows allocations in the newest frame again. */
CAIRN_API void cairn_stack_unseal(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Returns unused memory to the system and keeps `keep_bytes` of it.
 * Returns: the number of bytes returned to the system. */
CAIRN_API size_t cairn_stack_trim(cairn_stack *stack, size_t keep_bytes) CAIRN_NOEXCEPT;

/* Makes the calling thread the owner of the stack. The previous owner must have stopped using it,
 * and the program must order the two, as a queue or a mutex does. A thread's own stack
 * (cairn/scope.h) cannot be adopted. */
CAIRN_API void cairn_stack_adopt(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Fills *stats. */
CAIRN_API void cairn_stack_read_stats(const cairn_stack *stack,
                                      cairn_stack_stats *stats) CAIRN_NOEXCEPT;

/* Makes a cairn_allocator (cairn/allocator.h) that allocates in the newest frame. The free of this
 * cairn_allocator does nothing, and its resize changes the newest block only. The cairn_allocator
 * is valid until the stack is deleted. */
CAIRN_API cairn_allocator cairn_stack_allocator(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Formats a string as printf does, in the newest frame.
 * Returns: the string; NULL with errno ENOMEM or the error of vsnprintf for a wrong format. */
CAIRN_API CAIRN_NODISCARD char *cairn_stack_printf(cairn_stack *stack, const char *format,
                                                   ...) CAIRN_NOEXCEPT
    __attribute__((format(printf, 2, 3)));

/* Formats a string as vprintf does, in the newest frame.
 * Returns: the string; NULL with errno ENOMEM or the error of vsnprintf for a wrong format. */
CAIRN_API CAIRN_NODISCARD char *cairn_stack_vprintf(cairn_stack *stack, const char *format,
                                                    va_list arguments) CAIRN_NOEXCEPT
    __attribute__((format(printf, 2, 0)));

/* Opens a frame.
 * Returns: the mark for its pop. When memory is out the mark is all zero and errno is ENOMEM: then
 * allocations go to the previous frame, and the pop of the mark does nothing.
 * Cost: about a nanosecond, inline. */
static inline cairn_mark cairn_stack_push(cairn_stack *stack) CAIRN_NOEXCEPT;

/* Ends the frame of `mark` and all frames above it.
 * Cost: about a nanosecond, inline. */
static inline void cairn_stack_pop(cairn_stack *stack, cairn_mark mark) CAIRN_NOEXCEPT;

/* Allocates a block of `size` bytes in the newest frame at a multiple of `align` bytes, a power of
 * two, with undefined contents. A size of 0 counts as 1.
 * Returns: the block, or NULL with errno ENOMEM or EINVAL.
 * Cost: about a nanosecond; inline if `align` is a constant. */
static inline void *cairn_stack_alloc(cairn_stack *stack, size_t size, size_t align) CAIRN_NOEXCEPT;

/* Allocates a block of `size` bytes in the newest frame at a multiple of `align` bytes and sets it
 * to 0.
 * Returns: the block, or NULL with errno ENOMEM or EINVAL. */
static inline void *cairn_stack_alloc_zero(cairn_stack *stack, size_t size,
                                           size_t align) CAIRN_NOEXCEPT;

/* Allocates an array of `count` elements of `size` bytes each in the newest frame, at a multiple of
 * `align` bytes, with undefined contents.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
static inline void *cairn_stack_alloc_array(cairn_stack *stack, size_t count, size_t size,
                                            size_t align) CAIRN_NOEXCEPT;

/* Allocates an array of `count` elements of `size` bytes each in the newest frame, at a multiple of
 * `align` bytes, and sets it to 0.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
static inline void *cairn_stack_alloc_array_zero(cairn_stack *stack, size_t count, size_t size,
                                                 size_t align) CAIRN_NOEXCEPT;

/* Changes the size of a block of the newest frame from `old_size` to `new_size` bytes: in place if
 * it is the newest block or shrinks, else by moving it. `align` is the alignment of the block. With
 * `pointer` NULL it allocates.
 * Returns: the block, or NULL with errno ENOMEM; then the old block is unchanged. */
CAIRN_NODISCARD static inline void *cairn_stack_realloc(cairn_stack *stack, void *pointer,
                                                        size_t old_size, size_t new_size,
                                                        size_t align) CAIRN_NOEXCEPT;

/* Copies `size` bytes from `from` to the newest frame, at a multiple of `align` bytes.
 * Returns: the copy, or NULL with errno ENOMEM or EINVAL. */
CAIRN_NODISCARD static inline void *cairn_stack_dup(cairn_stack *stack, const void *from,
                                                    size_t size, size_t align) CAIRN_NOEXCEPT;

/* Copies a string to the newest frame.
 * Returns: the copy, or NULL with errno ENOMEM. */
CAIRN_NODISCARD static inline char *cairn_stack_strdup(cairn_stack *stack,
                                                       const char *string) CAIRN_NOEXCEPT;

/* Copies at most `most` bytes of a string to the newest frame and appends a zero.
 * Returns: the copy, or NULL with errno ENOMEM. */
CAIRN_NODISCARD static inline char *cairn_stack_strndup(cairn_stack *stack, const char *string,
                                                        size_t most) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#include <cairn/detail/stack.h> /* the bodies of the inline functions */
#endif
