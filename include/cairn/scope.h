/* Scopes: memory that ends with the enclosing block of C or C++, from a stack of the thread.
 *
 * Every thread has a stack (cairn/stack.h), made at its first use and deleted at the end of the
 * thread. CAIRN_SCOPE (short: t_scope) opens a frame on it that ends with the enclosing block,
 * however the block is left: by return, break or goto; in C++, and in C compiled with -fexceptions,
 * by an exception as well.
 *
 * Use a scope for strings, arrays and objects that a function needs until it returns. Do not use a
 * scope for blocks that must outlive the scope, or in a coroutine that may continue on another
 * thread.
 *
 * Example:
 *
 *     #include <cairn/scope.h>
 *     #include <stdio.h>
 *
 *     static char *t_greeting(const char *name) // returns memory of the scope of its caller
 *     {
 *         return t_printf("hello %s", name);
 *     }
 *
 *     int answer(FILE *stream, const char *name, size_t count)
 *     {
 *         t_scope;
 *         char *line = t_greeting(name);
 *         int *ranks = t_new(int, count);
 *         if (line == NULL || ranks == NULL)
 *             return -1;
 *         return fprintf(stream, "%s: %zu ranks\n", line, count);
 *     } // line and ranks end here
 *
 * Names: each name that begins with t_ is short for the name that begins with cairn_scope_: t_alloc
 * for cairn_scope_alloc, and t_scope for CAIRN_SCOPE. A program that needs the short names for
 * itself defines CAIRN_NO_SHORT_NAMES before it includes this header.
 *
 * Convention: a function that returns memory of the frame of its caller, or allocates in that
 * frame, has a name that begins with t_. Every other function opens a t_scope before it calls such
 * a function. `python3 PREFIX/share/cairn/check_t_scope.py FOLDER` finds functions that do neither.
 * A call without a t_scope allocates until the thread ends; when half a MiB has piled up in this
 * way, one line on stderr reports it, once in a process.
 *
 * Threads: each thread uses its own stack, without a lock. A child of fork has the stack of the
 * forking thread; the stacks of other threads stay in memory unused.
 *
 * Failure: functions that allocate return NULL with errno ENOMEM. If a t_scope cannot open its
 * frame, its allocations belong to the enclosing frame.
 *
 * Cost: about two nanoseconds for a scope and one for an allocation, inline.
 *
 * Caveats:
 *  - No signal handler may call a function of this header.
 *  - A frame belongs to one scope: a coroutine or fiber that changes threads must not keep a frame
 *    open while it does.
 *  - After a longjmp over scopes, the end of an outer scope ends the inner ones, too.
 *  - Misuse is reported as for every stack (cairn/stack.h).
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

/* Finds the stack of the calling thread, for the functions of cairn/stack.h. The library deletes it
 * at the end of the thread; the program must not delete it, and no other thread can adopt it.
 * Returns: the stack, or NULL with errno ENOMEM. */
CAIRN_API cairn_stack *cairn_thread_stack(void) CAIRN_NOEXCEPT;

/* Opens a frame that cairn_scope_pop ends. CAIRN_SCOPE is easier to use correctly.
 * Returns: the mark for its pop; all zero with errno ENOMEM if it could not open the frame. */
static inline cairn_mark cairn_scope_push(void) CAIRN_NOEXCEPT;

/* Ends the frame of `mark` and all frames above it. */
static inline void cairn_scope_pop(cairn_mark mark) CAIRN_NOEXCEPT;

/* Opens a frame that ends with the enclosing block. Write it like a declaration: CAIRN_SCOPE; */
#define CAIRN_SCOPE                                                                                \
    __attribute__((cleanup(cairn_scope_end), unused)) cairn_mark CAIRN_SCOPE_NAME(__COUNTER__) =   \
        cairn_scope_push()

/* Registers `function` to be called with `context` when the newest frame ends: see
 * cairn_stack_defer.
 * Returns: 0; ENOMEM; EINVAL if `function` is NULL. */
CAIRN_API CAIRN_NODISCARD int cairn_scope_defer(void (*function)(void *context),
                                                void *context) CAIRN_NOEXCEPT;

/* Allocates a block of `size` bytes in the newest frame at a multiple of `align` bytes, a power of
 * two, with undefined contents. A size of 0 counts as 1.
 * Returns: the block, or NULL with errno ENOMEM or EINVAL. */
static inline void *cairn_scope_alloc_aligned(size_t size, size_t align) CAIRN_NOEXCEPT;

/* Allocates a block of `size` bytes in the newest frame, aligned for every type, with undefined
 * contents.
 * Returns: the block, or NULL with errno ENOMEM. */
static inline void *cairn_scope_alloc(size_t size) CAIRN_NOEXCEPT;

/* Allocates a block of `size` bytes in the newest frame, aligned for every type, and sets it to 0.
 * Returns: the block, or NULL with errno ENOMEM. */
static inline void *cairn_scope_alloc_zero(size_t size) CAIRN_NOEXCEPT;

/* Allocates an array of `count` elements of `size` bytes each in the newest frame, at a multiple of
 * `align` bytes, with undefined contents.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
static inline void *cairn_scope_alloc_array(size_t count, size_t size, size_t align) CAIRN_NOEXCEPT;

/* Allocates an array of `count` elements of `size` bytes each in the newest frame, at a multiple of
 * `align` bytes, and sets it to 0.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
static inline void *cairn_scope_alloc_array_zero(size_t count, size_t size,
                                                 size_t align) CAIRN_NOEXCEPT;

/* Allocates an array of `count` values of `type` in the newest frame. cairn_scope_new leaves them
 * undefined, cairn_scope_new_zero sets them to 0.
 * Returns: a pointer to `type`, or NULL with errno ENOMEM. */
#define cairn_scope_new(type, count)                                                               \
    ((type *)cairn_scope_alloc_array((count), sizeof(type), CAIRN_ALIGNOF(type)))
#define cairn_scope_new_zero(type, count)                                                          \
    ((type *)cairn_scope_alloc_array_zero((count), sizeof(type), CAIRN_ALIGNOF(type)))

/* Changes the size of a block of the newest frame from `old_size` to `new_size` bytes: in place if
 * it is the newest block or shrinks, else by moving it. The block must not need an alignment above
 * that of cairn_scope_alloc. With `pointer` NULL it allocates.
 * Returns: the block, or NULL with errno ENOMEM; then the old block is unchanged. */
CAIRN_NODISCARD static inline void *cairn_scope_realloc(void *pointer, size_t old_size,
                                                        size_t new_size) CAIRN_NOEXCEPT;

/* Copies `size` bytes to the newest frame, aligned for every type.
 * Returns: the copy, or NULL with errno ENOMEM. */
static inline void *cairn_scope_dup(const void *from, size_t size) CAIRN_NOEXCEPT;

/* Copies at most `most` bytes of a string to the newest frame and appends a zero.
 * Returns: the copy, or NULL with errno ENOMEM. */
static inline char *cairn_scope_strndup(const char *string, size_t most) CAIRN_NOEXCEPT;

/* Copies a string to the newest frame.
 * Returns: the copy, or NULL with errno ENOMEM. */
static inline char *cairn_scope_strdup(const char *string) CAIRN_NOEXCEPT;

/* Formats a string as printf does, in the newest frame.
 * Returns: the string; NULL with errno ENOMEM or the error of vsnprintf for a wrong format. */
CAIRN_API char *cairn_scope_printf(const char *format, ...) CAIRN_NOEXCEPT
    __attribute__((format(printf, 1, 2)));

/* Formats a string as vprintf does, in the newest frame.
 * Returns: the string; NULL with errno ENOMEM or the error of vsnprintf for a wrong format. */
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

#include <cairn/detail/scope.h> /* the bodies of the inline functions */
#endif
