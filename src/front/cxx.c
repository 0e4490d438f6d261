/* C++'s operators new and delete, in C under their mangled names (Itanium C++ ABI, section 5.1), so
 * that a C program needs no C++ library.
 *
 * The two functions of the C++ library that a failing new needs are found when the program has one:
 * the weak references are null otherwise. Compiled with -fexceptions, for the handler may throw
 * through these frames.
 */
#include "base/check.h"
#include "front/entry.h"

/* std::get_new_handler(), std::__throw_bad_alloc() */
typedef void new_handler(void);
extern new_handler *get_new_handler(void) __asm__("_ZSt15get_new_handlerv") __attribute__((weak));
extern void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

/* In nothrow.cc: false when the handler threw. */
bool call_handler(new_handler *handler) __asm__("cairn_internal_call_handler");

struct nothrow; /* std::nothrow_t */

/* [new.delete.single]: call the handler and try again, until there is none. */
static cold void *new_failing(size_t size, size_t alignment, bool throws)
{
    for (;;) {
        new_handler *handler = get_new_handler ? get_new_handler() : NULL;
        if (handler == NULL)
            break;
        if (throws)
            handler();
        else if (!call_handler(handler))
            return NULL;
        void *block = heap_allocate_aligned(size, alignment);
        if (block)
            return block;
    }
    if (throws && throw_bad_alloc)
        throw_bad_alloc();
    if (throws)
        die("out of memory in operator new of %zu bytes, and no std::bad_alloc to throw", size);
    return NULL;
}

static no_inline void *new_slow(size_t size)
{
    void *block = malloc_slow(size);
    return likely(block != NULL) ? block : new_failing(size, 1, true);
}

static no_inline void *new_slow_nothrow(size_t size)
{
    void *block = malloc_slow(size);
    return likely(block != NULL) ? block : new_failing(size, 1, false);
}

static void *new_aligned(size_t size, size_t alignment, bool throws)
{
    void *block = heap_allocate_aligned(size, alignment);
    return likely(block != NULL) ? block : new_failing(size, alignment, throws);
}

#define define_new(single, array, parameters, body)                                                \
    void *single parameters __asm__(#single);                                                      \
    void *array parameters __asm__(#array);                                                        \
    api void *single parameters { return body; }                                                   \
    api void *array parameters { return body; }

#define define_delete(single, array, parameters, body)                                             \
    void single parameters __asm__(#single);                                                       \
    void array parameters __asm__(#array);                                                         \
    api void single parameters { body; }                                                           \
    api void array parameters { body; }

#define unused __attribute__((unused))

/* A table for the eye; the formatter takes each line for the body of the one before. */
/* clang-format off */
define_new(_Znwm, _Znam, (size_t size), malloc_fast(size, new_slow))
define_new(_ZnwmRKSt9nothrow_t, _ZnamRKSt9nothrow_t,
           (size_t size, unused const struct nothrow *tag), malloc_fast(size, new_slow_nothrow))
define_new(_ZnwmSt11align_val_t, _ZnamSt11align_val_t,
           (size_t size, size_t alignment), new_aligned(size, alignment, true))
define_new(_ZnwmSt11align_val_tRKSt9nothrow_t, _ZnamSt11align_val_tRKSt9nothrow_t,
           (size_t size, size_t alignment, unused const struct nothrow *tag),
           new_aligned(size, alignment, false))

define_delete(_ZdlPv, _ZdaPv, (void *pointer), entry_free(pointer))
define_delete(_ZdlPvRKSt9nothrow_t, _ZdaPvRKSt9nothrow_t,
              (void *pointer, unused const struct nothrow *tag), entry_free(pointer))
define_delete(_ZdlPvm, _ZdaPvm,
              (void *pointer, size_t size), free_sized_fast(pointer, size, 1, free_sized_slow))
define_delete(_ZdlPvSt11align_val_t, _ZdaPvSt11align_val_t,
              (void *pointer, unused size_t alignment), entry_free(pointer))
define_delete(_ZdlPvmSt11align_val_t, _ZdaPvmSt11align_val_t,
              (void *pointer, size_t size, size_t alignment),
              entry_free_sized(pointer, size, alignment))
define_delete(_ZdlPvSt11align_val_tRKSt9nothrow_t, _ZdaPvSt11align_val_tRKSt9nothrow_t,
              (void *pointer, unused size_t alignment, unused const struct nothrow *tag),
              entry_free(pointer))
