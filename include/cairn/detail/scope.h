/* The inline half of cairn/scope.h: structures, and bodies of functions that it declares.
 *
 * Programs include cairn/scope.h and use no name that only this file declares. The compiler copies
 * the code and the layouts into programs, so they are part of the binary interface.
 */
#ifndef CAIRN_DETAIL_SCOPE_H
#define CAIRN_DETAIL_SCOPE_H

#include <cairn/scope.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The stack of this thread. The variable is the structure itself, not a pointer to it, so that a
 * loop of allocations needs no load to find it. Until its first use every operation takes the
 * slow path. Only the functions of cairn/stack.h write to it. */
CAIRN_API extern __thread cairn_stack cairn_thread_stack_head
    __attribute__((tls_model("initial-exec")));

/* The slow halves of the functions below. */
CAIRN_API cairn_mark cairn_thread_stack_push(void) CAIRN_NOEXCEPT;
CAIRN_API void *cairn_thread_stack_alloc(size_t size, size_t align) CAIRN_NOEXCEPT;
CAIRN_API void *cairn_thread_stack_realloc(void *pointer, size_t old_size, size_t new_size,
                                           size_t align) CAIRN_NOEXCEPT;

static inline cairn_mark cairn_scope_push(void) CAIRN_NOEXCEPT
{
    cairn_mark mark;
    if (__builtin_expect(cairn_stack_push_inline(&cairn_thread_stack_head, &mark), 1))
        return mark;
    return cairn_thread_stack_push();
}

static inline void cairn_scope_pop(cairn_mark mark) CAIRN_NOEXCEPT
{
    if (__builtin_expect(!cairn_stack_pop_inline(&cairn_thread_stack_head, mark), 0))
        cairn_stack_pop_slow(&cairn_thread_stack_head, mark);
}

/* Ends the frame of a CAIRN_SCOPE. */
static inline void cairn_scope_end(cairn_mark *mark) CAIRN_NOEXCEPT { cairn_scope_pop(*mark); }

/* A name for each CAIRN_SCOPE. */
#define CAIRN_SCOPE_JOIN(a, b)   a##b
#define CAIRN_SCOPE_NAME(number) CAIRN_SCOPE_JOIN(cairn_scope_, number)

static inline void *cairn_scope_alloc_aligned(size_t size, size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_stack_alloc_inline(&cairn_thread_stack_head, size, align);
    if (__builtin_expect(block != NULL, 1))
        return block;
    return cairn_thread_stack_alloc(size, align);
}

static inline void *cairn_scope_alloc(size_t size) CAIRN_NOEXCEPT
{
    return cairn_scope_alloc_aligned(size, CAIRN_ALIGNOF(max_align_t));
}

static inline void *cairn_scope_alloc_zero(size_t size) CAIRN_NOEXCEPT
{
    void *block = cairn_scope_alloc(size);
    return block ? __builtin_memset(block, 0, size) : block;
}

static inline void *cairn_scope_alloc_array(size_t count, size_t size, size_t align) CAIRN_NOEXCEPT
{
    return cairn_scope_alloc_aligned(cairn_array_bytes(count, size), align);
}

static inline void *cairn_scope_alloc_array_zero(size_t count, size_t size,
                                                 size_t align) CAIRN_NOEXCEPT
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return cairn_scope_alloc_array(count, size, align); /* fails */
    void *block = cairn_scope_alloc_aligned(total, align);
    return block ? __builtin_memset(block, 0, total) : block;
}

static inline void *cairn_scope_realloc(void *pointer, size_t old_size,
                                        size_t new_size) CAIRN_NOEXCEPT
{
    return cairn_thread_stack_realloc(pointer, old_size, new_size, CAIRN_ALIGNOF(max_align_t));
}

static inline void *cairn_scope_dup(const void *from, size_t size) CAIRN_NOEXCEPT
{
    void *block = cairn_scope_alloc(size);
    return block ? __builtin_memcpy(block, from, size) : block;
}

static inline char *cairn_scope_strndup(const char *string, size_t most) CAIRN_NOEXCEPT
{
    size_t length = 0;
    while (length < most && string[length] != '\0')
        length++;
    char *copy = (char *)cairn_scope_alloc_aligned(length + 1, 1);
    if (copy != NULL) {
        __builtin_memcpy(copy, string, length);
        copy[length] = '\0';
    }
    return copy;
}

static inline char *cairn_scope_strdup(const char *string) CAIRN_NOEXCEPT
{
    size_t size = __builtin_strlen(string) + 1;
    char *copy = (char *)cairn_scope_alloc_aligned(size, 1);
    return copy ? (char *)__builtin_memcpy(copy, string, size) : copy;
}

#ifdef __cplusplus
}
#endif
#endif
