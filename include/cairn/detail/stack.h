/* The inline half of cairn/stack.h: structures, and bodies of functions that it declares.
 *
 * Programs include cairn/stack.h and use no name that only this file declares. The compiler copies
 * the code and the layouts into programs, so they are part of the binary interface.
 */
#ifndef CAIRN_DETAIL_STACK_H
#define CAIRN_DETAIL_STACK_H

#include <cairn/stack.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The record at the start of a frame. `serial` is unique; its two highest bits belong to the
 * library. */
struct cairn_stack_frame {
    struct cairn_stack_frame *previous;
    uint64_t serial;
};

/* The part of a stack on which the inline functions work. Only the owner thread writes to it. */
struct cairn_stack {
    uintptr_t position; /* next free byte, a multiple of 8; 0 while every allocation takes the slow
                           path */
    uintptr_t limit; /* end of inline allocation, a multiple of CAIRN_STACK_LIMIT_GRANULE, or 0 */
    struct cairn_stack_frame *frame; /* the newest */
    void *owner;                     /* its thread pointer */
    uint64_t serial;                 /* of the newest frame ever */
    void *inside;                    /* const: the library's part */
};

/* The slow halves of the inline functions. */
CAIRN_API cairn_mark cairn_stack_push_slow(cairn_stack *stack) CAIRN_NOEXCEPT;
CAIRN_API void cairn_stack_pop_slow(cairn_stack *stack, cairn_mark mark) CAIRN_NOEXCEPT;
CAIRN_API void *cairn_stack_alloc_slow(cairn_stack *stack, size_t size,
                                       size_t align) CAIRN_NOEXCEPT;
CAIRN_API void *cairn_stack_realloc_slow(cairn_stack *stack, void *pointer, size_t old_size,
                                         size_t new_size, size_t align) CAIRN_NOEXCEPT;

/* The largest constant alignment for which an allocation is inline, the unit of limits, and the
 * number of pushes between two looks at the clock. */
#define CAIRN_STACK_INLINE_ALIGN  4096
#define CAIRN_STACK_LIMIT_GRANULE 64
#define CAIRN_STACK_PUSH_TICK     256

/* With gcc, the test for NULL of UndefinedBehaviorSanitizer reads the flags of the addition that
 * computes a thread-local address (cairn/scope.h). The linker may replace this addition by one
 * that sets no flags. */
#define CAIRN_STACK_NO_UBSAN __attribute__((no_sanitize("undefined")))

/* The inline half of push. The inline half does not check the owner.
 * Returns: true if it opened the frame. */
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

static inline cairn_mark cairn_stack_push(cairn_stack *stack) CAIRN_NOEXCEPT
{
    cairn_mark mark;
    if (__builtin_expect(
            stack->owner == __builtin_thread_pointer() && cairn_stack_push_inline(stack, &mark), 1))
        return mark;
    return cairn_stack_push_slow(stack);
}

/* The inline half of pop. The inline half does not check the owner.
 * Returns: true if it ended the frame. */
CAIRN_STACK_NO_UBSAN
static inline bool cairn_stack_pop_inline(cairn_stack *stack, cairn_mark mark) CAIRN_NOEXCEPT
{
    if (__builtin_expect(mark.frame != stack->frame || mark.frame->serial != mark.serial, 0))
        return false;
    stack->position = (uintptr_t)mark.frame;
    stack->frame = mark.frame->previous;
    return true;
}

static inline void cairn_stack_pop(cairn_stack *stack, cairn_mark mark) CAIRN_NOEXCEPT
{
    if (__builtin_expect(
            stack->owner != __builtin_thread_pointer() || !cairn_stack_pop_inline(stack, mark), 0))
        cairn_stack_pop_slow(stack, mark);
}

/* The inline half of alloc. The inline half does not check the owner.
 * Returns: the block, or NULL if the slow half has to allocate it. */
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

static inline void *cairn_stack_alloc(cairn_stack *stack, size_t size, size_t align) CAIRN_NOEXCEPT
{
    if (__builtin_expect(stack->owner == __builtin_thread_pointer(), 1)) {
        void *block = cairn_stack_alloc_inline(stack, size, align);
        if (__builtin_expect(block != NULL, 1))
            return block;
    }
    return cairn_stack_alloc_slow(stack, size, align);
}

static inline void *cairn_stack_alloc_zero(cairn_stack *stack, size_t size,
                                           size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_stack_alloc(stack, size, align);
    return block ? __builtin_memset(block, 0, size) : block;
}

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

static inline void *cairn_stack_realloc(cairn_stack *stack, void *pointer, size_t old_size,
                                        size_t new_size, size_t align) CAIRN_NOEXCEPT
{
    uintptr_t start = (uintptr_t)pointer;
    size_t old_rounded = (old_size + 7) & ~(size_t)7;
    size_t new_rounded = (new_size + 7) & ~(size_t)7;
    /* A sum that equals the position is that of the newest block, for no other ends there: below
     * every range of the stack there is a page that belongs to no range. */
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

static inline void *cairn_stack_dup(cairn_stack *stack, const void *from, size_t size,
                                    size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_stack_alloc(stack, size, align);
    return block ? __builtin_memcpy(block, from, size) : block;
}

static inline char *cairn_stack_strdup(cairn_stack *stack, const char *string) CAIRN_NOEXCEPT
{
    return (char *)cairn_stack_dup(stack, string, __builtin_strlen(string) + 1, 1);
}

static inline char *cairn_stack_strndup(cairn_stack *stack, const char *string,
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
