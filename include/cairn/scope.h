/* The thread's own stack, and frames that end with a C scope.
 *
 *     static char *greeting(const char *name)   // returns memory of the caller's scope: t_greeting
 *
 *     void answer(struct connection *connection)
 *     {
 *         t_scope;
 *         char *line = t_printf("hello %s\n", connection->name);
 *         int *ranks = t_new(int, connection->count);
 *         …
 *     }   // both end here, whichever way the scope is left
 *
 * Each t_… name here is short for one that begins with cairn_scope_, which is always there: t_alloc
 * for cairn_scope_alloc, and t_scope for CAIRN_SCOPE. A program that needs the short names for
 * itself defines CAIRN_NO_SHORT_NAMES before it includes this header.
 *
 * Every thread has a stack (cairn/stack.h), made at its first use and given back at its end.
 * t_scope opens a frame on it that ends with the enclosing block: on return, break, goto, and in
 * C++ (and in C compiled with -fexceptions) when an exception passes. After a longjmp over scopes
 * the end of an outer one ends the inner ones.
 *
 * The convention: a function that returns memory of its caller's frame, or allocates in it, is
 * itself named t_…; every other function that calls one opens a t_scope first. dev/check_t_scope.py
 * finds functions that do neither.
 *
 * A frame belongs to one scope: a coroutine or fiber that changes threads must not keep one open
 * meanwhile.
 *
 * Contents are undefined unless the name ends in _zero.
 *
 * Failure: NULL with errno ENOMEM. A t_scope that could not open its frame lets allocations go to
 * the enclosing one. Cost: a frame about two nanoseconds, an allocation about one, inline.
 *
 * Threads: each its own, no lock. A signal handler may call nothing here. Fork: the child has the
 * forking thread's stack as it was; those of the others stay in memory unused.
 */
#ifndef CAIRN_SCOPE_H
#define CAIRN_SCOPE_H

#include <cairn/stack.h>

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
#define CAIRN_ALIGNOF alignof
extern "C" {
#else
#define CAIRN_ALIGNOF _Alignof
#endif

/* This thread's stack: lies here itself, not behind a pointer, so that a loop of allocations needs
 * no load to find it. Before its first use every operation takes the slow path. Written by the
 * functions of cairn/stack.h only. */
CAIRN_API extern __thread cairn_stack cairn_thread_stack_head
    __attribute__((tls_model("initial-exec")));

/* This thread's stack, for the functions of cairn/stack.h; NULL with ENOMEM. The library deletes it
 * at the thread's end; nobody else may, nor may another thread adopt it. */
CAIRN_API cairn_stack *cairn_thread_stack(void) CAIRN_NOEXCEPT;

/* The slow halves of the functions below. */
CAIRN_API cairn_mark cairn_thread_stack_push(void) CAIRN_NOEXCEPT;
CAIRN_API void *cairn_thread_stack_alloc(size_t size, size_t align) CAIRN_NOEXCEPT;
CAIRN_API void *cairn_thread_stack_realloc(void *pointer, size_t old_size, size_t new_size,
                                           size_t align) CAIRN_NOEXCEPT;

/* Opens a frame until cairn_scope_pop; prefer CAIRN_SCOPE. */
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

/* For CAIRN_SCOPE. */
static inline void cairn_scope_end(cairn_mark *mark) CAIRN_NOEXCEPT { cairn_scope_pop(*mark); }

#define CAIRN_SCOPE_JOIN(a, b)   a##b
#define CAIRN_SCOPE_NAME(number) CAIRN_SCOPE_JOIN(cairn_scope_, number)

/* A declaration: opens a frame that ends with the enclosing block. */
#define CAIRN_SCOPE                                                                                \
    __attribute__((cleanup(cairn_scope_end), unused)) cairn_mark CAIRN_SCOPE_NAME(__COUNTER__) =   \
        cairn_scope_push()

/* Has `function` called with `context` at the end of the newest frame: see cairn_stack_defer. */
CAIRN_API CAIRN_NODISCARD int cairn_scope_defer(void (*function)(void *context),
                                                void *context) CAIRN_NOEXCEPT;

/* `size` bytes in the newest frame at a multiple of `align`. */
static inline void *cairn_scope_alloc_aligned(size_t size, size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_stack_alloc_inline(&cairn_thread_stack_head, size, align);
    if (__builtin_expect(block != NULL, 1))
        return block;
    return cairn_thread_stack_alloc(size, align);
}

/* The same, aligned for every type. */
static inline void *cairn_scope_alloc(size_t size) CAIRN_NOEXCEPT
{
    return cairn_scope_alloc_aligned(size, CAIRN_ALIGNOF(max_align_t));
}

static inline void *cairn_scope_alloc_zero(size_t size) CAIRN_NOEXCEPT
{
    void *block = cairn_scope_alloc(size);
    return block ? __builtin_memset(block, 0, size) : block;
}

/* `count` elements of `size` bytes; an overflowing product fails. */
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

/* An array of `count` values of a type, not set; and all zero. */
#define cairn_scope_new(type, count)                                                               \
    ((type *)cairn_scope_alloc_array((count), sizeof(type), CAIRN_ALIGNOF(type)))
#define cairn_scope_new_zero(type, count)                                                          \
    ((type *)cairn_scope_alloc_array_zero((count), sizeof(type), CAIRN_ALIGNOF(type)))

/* The block, of the newest frame, at a new size: in place where it is the newest, else moved. For
 * blocks of cairn_scope_alloc and types of no larger alignment. NULL as `pointer` allocates. */
CAIRN_NODISCARD static inline void *cairn_scope_realloc(void *pointer, size_t old_size,
                                                        size_t new_size) CAIRN_NOEXCEPT
{
    return cairn_thread_stack_realloc(pointer, old_size, new_size, CAIRN_ALIGNOF(max_align_t));
}

/* A copy of `size` bytes, of a string, and of its first `most` bytes. */
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

/* What printf would write, as a string in the newest frame: see cairn_stack_printf. */
CAIRN_API char *cairn_scope_printf(const char *format, ...) CAIRN_NOEXCEPT
    __attribute__((format(printf, 1, 2)));
CAIRN_API char *cairn_scope_vprintf(const char *format, va_list arguments) CAIRN_NOEXCEPT
    __attribute__((format(printf, 1, 0)));

#ifndef CAIRN_NO_SHORT_NAMES

#define t_scope CAIRN_SCOPE

static inline cairn_mark t_push(void) CAIRN_NOEXCEPT { return cairn_scope_push(); }
static inline void t_pop(cairn_mark mark) CAIRN_NOEXCEPT { cairn_scope_pop(mark); }

CAIRN_NODISCARD static inline int t_defer(void (*function)(void *context),
                                          void *context) CAIRN_NOEXCEPT
{
    return cairn_scope_defer(function, context);
}

static inline void *t_alloc(size_t size) CAIRN_NOEXCEPT { return cairn_scope_alloc(size); }
static inline void *t_alloc_zero(size_t size) CAIRN_NOEXCEPT
{
    return cairn_scope_alloc_zero(size);
}

static inline void *t_alloc_aligned(size_t size, size_t align) CAIRN_NOEXCEPT
{
    return cairn_scope_alloc_aligned(size, align);
}

static inline void *t_alloc_array(size_t count, size_t size, size_t align) CAIRN_NOEXCEPT
{
    return cairn_scope_alloc_array(count, size, align);
}

static inline void *t_alloc_array_zero(size_t count, size_t size, size_t align) CAIRN_NOEXCEPT
{
    return cairn_scope_alloc_array_zero(count, size, align);
}

#define t_new(type, count)      cairn_scope_new(type, count)
#define t_new_zero(type, count) cairn_scope_new_zero(type, count)

CAIRN_NODISCARD static inline void *t_realloc(void *pointer, size_t old_size,
                                              size_t new_size) CAIRN_NOEXCEPT
{
    return cairn_scope_realloc(pointer, old_size, new_size);
}

static inline void *t_dup(const void *from, size_t size) CAIRN_NOEXCEPT
{
    return cairn_scope_dup(from, size);
}

static inline char *t_strdup(const char *string) CAIRN_NOEXCEPT
{
    return cairn_scope_strdup(string);
}

static inline char *t_strndup(const char *string, size_t most) CAIRN_NOEXCEPT
{
    return cairn_scope_strndup(string, most);
}

#define t_printf(...)                cairn_scope_printf(__VA_ARGS__)
#define t_vprintf(format, arguments) cairn_scope_vprintf(format, arguments)

#endif /* CAIRN_NO_SHORT_NAMES */

#ifdef __cplusplus
}
#endif
#endif
