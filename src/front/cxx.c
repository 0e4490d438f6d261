/* The operators new and delete of C++, written in C under their mangled names (Itanium C++ ABI,
 * section 5.1), so that a C program needs no C++ library.
 *
 * A program may replace some of them, or malloc and free. Then the others call the replaced ones,
 * as [new.delete] requires: nothrow and array forms call the plain and single ones, sized delete
 * calls the unsized one, and the plain ones call malloc, aligned_alloc and free. If nothing is
 * replaced, each form has its own fast path at no additional cost: the bounds of sizes and
 * addresses that a fast path serves are variables. The bounds are 0 until the first call has found
 * that nothing is replaced.
 *
 * The operators are replaceable: a static program that defines some of them links with the
 * archive.
 *
 * A failing new needs two functions of the C++ library. The references to them are weak, and null
 * in a program without that library. This file is compiled with -fexceptions, because the handler
 * may throw through these frames.
 *
 * Threads: any. */
#include "base/check.h"
#include "front/entry.h"
#include "front/replaced.h"

/* std::get_new_handler() and std::__throw_bad_alloc(). */
typedef void new_handler(void);
extern new_handler *get_new_handler(void) __asm__("_ZSt15get_new_handlerv") __attribute__((weak));
extern void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

/* Calls a new handler, in nothrow.cc.
 *
 * Returns: false if it threw. */
bool call_handler(new_handler *handler) __asm__("cairn_internal_call_handler");

/* Calls an operator new, in nothrow.cc.
 *
 * Returns: NULL if it threw. */
void *call_new(void *(*operator)(size_t), size_t size) __asm__("cairn_internal_call_new");

/* Calls an aligned operator new, in nothrow.cc.
 *
 * Returns: NULL if it threw. */
void *call_new_aligned(void *(*operator)(size_t, size_t), size_t size,
                       size_t alignment) __asm__("cairn_internal_call_new_aligned");

struct nothrow; /* std::nothrow_t */

/* The fast paths serve sizes below `sizes`, and addresses in the first `regions` regions. Both are
 * 0 or at their maximum. Atomic, relaxed: all threads that set them store equal values. */
static struct {
    size_t sizes;
    size_t regions;
} served;

/* Whether the program has replaced a function. If not, turns the fast paths on. */
static cold bool cxx_calls_program(void)
{
    if (!replaced_nothing())
        return true;
    store_relaxed(&served.sizes, (size_t)SMALL_REQUEST_MAX + 1);
    store_relaxed(&served.regions, (size_t)REGION_COUNT);
    return false;
}

/* Whether aligned blocks are the program's: it has an aligned_alloc. Otherwise they are the
 * library's, because the program's free would not know blocks of another aligned_alloc. A static
 * program that defines malloc always gets the library's, because nothing shows whether its
 * aligned_alloc is its own or that of libc. */
static bool cxx_aligned_is_program(void)
{
    return &libc_own != NULL && process_libc.aligned_alloc != libc_own.aligned_alloc;
}

/* Allocates an aligned block when the program has replaced a function. */
static cold void *cxx_program_malloc_aligned(size_t size, size_t alignment)
{
    if (!cxx_aligned_is_program())
        return heap_allocate_aligned(size, alignment);
    size_t rounded;
    if (__builtin_add_overflow(size, alignment - 1, &rounded))
        return NULL;
    rounded &= ~(alignment - 1);
    return process_libc.aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

/* Allocates a block when the program has replaced a function; alignment 1 for malloc. */
static void *cxx_program_malloc_any(size_t size, size_t alignment)
{
    return alignment == 1 ? process_libc.malloc(size) : cxx_program_malloc_aligned(size, alignment);
}

/* Calls the new handler and tries again until there is no handler ([new.delete.single]). Then
 * throws std::bad_alloc if `throws`.
 *
 * Returns: a block, or NULL if not `throws`. */
static cold void *cxx_new_failing(size_t size, size_t alignment, bool throws)
{
    void *(*take)(size_t, size_t) =
        cxx_calls_program() ? cxx_program_malloc_any : heap_allocate_aligned;
    for (;;) {
        new_handler *handler = get_new_handler ? get_new_handler() : NULL;
        if (handler == NULL)
            break;
        if (throws)
            handler();
        else if (!call_handler(handler))
            return NULL;
        void *block = take(size, alignment);
        if (block)
            return block;
    }
    if (throws && throw_bad_alloc)
        throw_bad_alloc();
    if (throws)
        die("out of memory in operator new of %zu bytes, and no std::bad_alloc to throw", size);
    return NULL;
}

/* Allocates a block of the library. */
static void *cxx_new_heap(size_t size, bool throws)
{
    void *block = malloc_slow(size);
    entry_pay_background();
    return likely(block != NULL) ? block : cxx_new_failing(size, 1, throws);
}

/* Allocates an aligned block of the library. */
static void *cxx_new_heap_aligned(size_t size, size_t alignment, bool throws)
{
    void *block = heap_allocate_aligned(size, alignment);
    entry_pay_background();
    return likely(block != NULL) ? block : cxx_new_failing(size, alignment, throws);
}

/* Allocates a block with the program's malloc. */
static cold void *cxx_new_program(size_t size)
{
    void *block = process_libc.malloc(size);
    return block ? block : cxx_new_failing(size, 1, true);
}

/* Allocates an aligned block when the program has replaced a function. */
static cold void *cxx_new_program_aligned(size_t size, size_t alignment)
{
    void *block = cxx_program_malloc_aligned(size, alignment);
    return block ? block : cxx_new_failing(size, alignment, true);
}

/* Frees an aligned block when the program has replaced a function. */
static cold void cxx_delete_program_aligned(void *pointer)
{
    if (cxx_aligned_is_program())
        process_libc.free(pointer);
    else
        entry_free(pointer);
}

/* Defines a slow path: `heap` if nothing is replaced, else `program`. The first call finds out in a
 * function of its own, so that later calls save no registers for it. */
#define define_slow(result, name, parameters, arguments, heap, program)                            \
    static cold result name##_first parameters { return cxx_calls_program() ? program : heap; }    \
    static result name parameters                                                                  \
    {                                                                                              \
        return unlikely(load_folded(&served.sizes) == 0) ? name##_first arguments : heap;          \
    }

/* The formatter would indent each line as the body of the one before. */
/* clang-format off */
define_slow(no_inline void *, new_slow, (size_t size), (size),
            cxx_new_heap(size, true), cxx_new_program(size))
define_slow(no_inline void *, new_array_slow, (size_t size), (size),
            cxx_new_heap(size, true), process_cxx.new_single(size))
define_slow(no_inline void *, new_nothrow_slow, (size_t size), (size),
            cxx_new_heap(size, false), call_new(process_cxx.new_single, size))
define_slow(no_inline void *, new_array_nothrow_slow, (size_t size), (size),
            cxx_new_heap(size, false), call_new(process_cxx.new_array, size))

define_slow(void *, new_aligned, (size_t size, size_t alignment), (size, alignment),
            cxx_new_heap_aligned(size, alignment, true), cxx_new_program_aligned(size, alignment))
define_slow(void *, new_array_aligned, (size_t size, size_t alignment), (size, alignment),
            cxx_new_heap_aligned(size, alignment, true),
            process_cxx.new_single_aligned(size, alignment))
define_slow(void *, new_aligned_nothrow, (size_t size, size_t alignment), (size, alignment),
            cxx_new_heap_aligned(size, alignment, false),
            call_new_aligned(process_cxx.new_single_aligned, size, alignment))
define_slow(void *, new_array_aligned_nothrow, (size_t size, size_t alignment), (size, alignment),
            cxx_new_heap_aligned(size, alignment, false),
            call_new_aligned(process_cxx.new_array_aligned, size, alignment))

/* The names of the paths of delete say which other form they are made of by [new.delete]. */
define_slow(no_inline void, delete_slow, (void *pointer), (pointer),
            entry_free(pointer), process_libc.free(pointer))
define_slow(no_inline void, by_single_slow, (void *pointer), (pointer),
            entry_free(pointer), process_cxx.delete_single(pointer))
define_slow(no_inline void, by_array_slow, (void *pointer), (pointer),
            entry_free(pointer), process_cxx.delete_array(pointer))
define_slow(no_inline void, by_single_sized_slow,
            (void *pointer, size_t size, size_t alignment), (pointer, size, alignment),
            free_sized_slow(pointer, size, alignment), process_cxx.delete_single(pointer))
define_slow(no_inline void, by_array_sized_slow,
            (void *pointer, size_t size, size_t alignment), (pointer, size, alignment),
            free_sized_slow(pointer, size, alignment), process_cxx.delete_array(pointer))
define_slow(void, delete_aligned, (void *pointer), (pointer),
            entry_free(pointer), cxx_delete_program_aligned(pointer))
define_slow(void, by_single_aligned, (void *pointer, size_t alignment), (pointer, alignment),
            entry_free(pointer), process_cxx.delete_single_aligned(pointer, alignment))
define_slow(void, by_array_aligned, (void *pointer, size_t alignment), (pointer, alignment),
            entry_free(pointer), process_cxx.delete_array_aligned(pointer, alignment))
define_slow(void, by_single_sized_aligned,
            (void *pointer, size_t size, size_t alignment), (pointer, size, alignment),
            entry_free_sized(pointer, size, alignment),
            process_cxx.delete_single_aligned(pointer, alignment))
define_slow(void, by_array_sized_aligned,
            (void *pointer, size_t size, size_t alignment), (pointer, size, alignment),
            entry_free_sized(pointer, size, alignment),
            process_cxx.delete_array_aligned(pointer, alignment))
/* clang-format on */

#define define_operator(result, name, parameters, body)                                            \
    result name parameters __asm__(#name);                                                         \
    api replaceable result name parameters { body; }

#define unused      __attribute__((unused))
#define nothrow_tag unused const struct nothrow *tag

#define new_fast(size, slow)       return malloc_fast_below(size, load_folded(&served.sizes), slow)
#define delete_fast(pointer, slow) free_fast_within(pointer, load_folded(&served.regions), slow)
#define delete_sized_fast(pointer, size, slow)                                                     \
    free_sized_fast(pointer, size, load_folded(&served.sizes), 1, slow)

    /* clang-format off */
define_operator(void *, _Znwm, (size_t size), new_fast(size, new_slow))
define_operator(void *, _Znam, (size_t size), new_fast(size, new_array_slow))
define_operator(void *, _ZnwmRKSt9nothrow_t, (size_t size, nothrow_tag),
                new_fast(size, new_nothrow_slow))
define_operator(void *, _ZnamRKSt9nothrow_t, (size_t size, nothrow_tag),
                new_fast(size, new_array_nothrow_slow))
define_operator(void *, _ZnwmSt11align_val_t, (size_t size, size_t alignment),
                return new_aligned(size, alignment))
define_operator(void *, _ZnamSt11align_val_t, (size_t size, size_t alignment),
                return new_array_aligned(size, alignment))
define_operator(void *, _ZnwmSt11align_val_tRKSt9nothrow_t,
                (size_t size, size_t alignment, nothrow_tag),
                return new_aligned_nothrow(size, alignment))
define_operator(void *, _ZnamSt11align_val_tRKSt9nothrow_t,
                (size_t size, size_t alignment, nothrow_tag),
                return new_array_aligned_nothrow(size, alignment))

define_operator(void, _ZdlPv, (void *pointer), delete_fast(pointer, delete_slow))
define_operator(void, _ZdaPv, (void *pointer), delete_fast(pointer, by_single_slow))
define_operator(void, _ZdlPvRKSt9nothrow_t, (void *pointer, nothrow_tag),
                delete_fast(pointer, by_single_slow))
define_operator(void, _ZdaPvRKSt9nothrow_t, (void *pointer, nothrow_tag),
                delete_fast(pointer, by_array_slow))
define_operator(void, _ZdlPvm, (void *pointer, size_t size),
                delete_sized_fast(pointer, size, by_single_sized_slow))
define_operator(void, _ZdaPvm, (void *pointer, size_t size),
                delete_sized_fast(pointer, size, by_array_sized_slow))
define_operator(void, _ZdlPvSt11align_val_t, (void *pointer, unused size_t alignment),
                delete_aligned(pointer))
define_operator(void, _ZdaPvSt11align_val_t, (void *pointer, size_t alignment),
                by_single_aligned(pointer, alignment))
define_operator(void, _ZdlPvmSt11align_val_t, (void *pointer, size_t size, size_t alignment),
                by_single_sized_aligned(pointer, size, alignment))
define_operator(void, _ZdaPvmSt11align_val_t, (void *pointer, size_t size, size_t alignment),
                by_array_sized_aligned(pointer, size, alignment))
define_operator(void, _ZdlPvSt11align_val_tRKSt9nothrow_t,
                (void *pointer, size_t alignment, nothrow_tag),
                by_single_aligned(pointer, alignment))
define_operator(void, _ZdaPvSt11align_val_tRKSt9nothrow_t,
                (void *pointer, size_t alignment, nothrow_tag),
                by_array_aligned(pointer, alignment))

/* Defines a second name of a function of this file, which a function of the program with the first
 * name does not replace. */
#define define_own(result, name, symbol, parameters)                                               \
    static result own_##name parameters __attribute__((alias(#symbol))) copy_attributes(symbol);
EACH_CXX_FUNCTION(define_own)

#define own_entry(result, name, symbol, parameters) .name = own_##name,
const struct cxx_functions cxx_own = {EACH_CXX_FUNCTION(own_entry)};
/* clang-format on */
