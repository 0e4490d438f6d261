/* The malloc family under the names of libc. The whole family must come from one object, or a
 * program would mix two heaps.
 *
 * Names such as __libc_malloc are internal names of glibc. Some programs and preloaded libraries
 * call them instead of the public ones.
 *
 * Threads: any. */
#include "base/libc.h"
#include "cairn/heap.h"
#include "front/entry.h"
#include "front/replaced.h"

#include <stdlib.h>

#define alias_of(name) __attribute__((alias(#name), visibility("default"))) copy_attributes(name)

static_check(sizeof(struct mallinfo2) == sizeof(struct cairn_mallinfo2), "one layout, two names");
static_check(sizeof(struct mallinfo) == sizeof(struct cairn_mallinfo), "one layout, two names");

void free_sized(void *pointer, size_t size);
void free_aligned_sized(void *pointer, size_t alignment, size_t size);
void *reallocarray(void *pointer, size_t count, size_t size);

api void *malloc(size_t size) { return entry_malloc(size); }
api void free(void *pointer) { entry_free(pointer); }
api void *calloc(size_t count, size_t size) { return entry_calloc(count, size); }
api void *realloc(void *pointer, size_t size) { return entry_realloc(pointer, size); }

/* Calls the realloc that the process has: a program may define realloc, but not reallocarray. */
api void *reallocarray(void *pointer, size_t count, size_t size)
{
    size_t total;
    if (unlikely(__builtin_mul_overflow(count, size, &total)))
        return entry_no_memory();
    return process_libc.realloc(pointer, total);
}

/* Whether the free of the process is this library's. */
static bool libc_free_is_own(void);

/* Calls the free that the process has: a program may define free, but not free_sized. */
api void free_sized(void *pointer, size_t size)
{
    if (likely(libc_free_is_own()))
        entry_free_sized(pointer, size, 1);
    else
        process_libc.free(pointer);
}

/* Calls the free that the process has: a program may define free, but not free_aligned_sized. */
api void free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    if (likely(libc_free_is_own()))
        entry_free_sized(pointer, size, alignment);
    else
        process_libc.free(pointer);
}

api int posix_memalign(void **result, size_t alignment, size_t size)
{
    return entry_posix_memalign(result, alignment, size);
}

api void *memalign(size_t alignment, size_t size) { return entry_memalign(alignment, size); }
api void *aligned_alloc(size_t alignment, size_t size)
{
    return entry_aligned_alloc(alignment, size);
}
api void *valloc(size_t size) { return entry_valloc(size); }
api void *pvalloc(size_t size) { return entry_pvalloc(size); }
api size_t malloc_usable_size(void *pointer) { return entry_usable_size(pointer); }

api int malloc_trim(size_t keep) { return cairn_malloc_trim(keep); }
api int mallopt(int parameter, int value) { return cairn_mallopt(parameter, value); }
api void malloc_stats(void) { cairn_malloc_stats(); }
api int malloc_info(int options, FILE *stream) { return cairn_malloc_info(options, stream); }

api struct mallinfo2 mallinfo2(void)
{
    union {
        struct cairn_mallinfo2 ours;
        struct mallinfo2 theirs;
    } info = {.ours = cairn_mallinfo2()};
    return info.theirs;
}

api struct mallinfo mallinfo(void)
{
    union {
        struct cairn_mallinfo ours;
        struct mallinfo theirs;
    } info = {.ours = cairn_mallinfo()};
    return info.theirs;
}

void *__libc_malloc(size_t size) alias_of(malloc);
void __libc_free(void *pointer) alias_of(free);
void *__libc_calloc(size_t count, size_t size) alias_of(calloc);
void *__libc_realloc(void *pointer, size_t size) alias_of(realloc);
void *__libc_memalign(size_t alignment, size_t size) alias_of(memalign);
void *__libc_valloc(size_t size) alias_of(valloc);
void *__libc_pvalloc(size_t size) alias_of(pvalloc);
int __posix_memalign(void **result, size_t alignment, size_t size) alias_of(posix_memalign);

static void *libc_own_malloc(size_t size) __attribute__((alias("malloc"))) copy_attributes(malloc);
static void libc_own_free(void *pointer) __attribute__((alias("free"))) copy_attributes(free);
static void *libc_own_realloc(void *pointer, size_t size) __attribute__((alias("realloc")))
copy_attributes(realloc);
static void *libc_own_aligned_alloc(size_t alignment, size_t size)
    __attribute__((alias("aligned_alloc"))) copy_attributes(aligned_alloc);

const struct libc_functions libc_own = {
    .malloc = libc_own_malloc,
    .free = libc_own_free,
    .realloc = libc_own_realloc,
    .aligned_alloc = libc_own_aligned_alloc,
};

static bool libc_free_is_own(void) { return process_libc.free == libc_own_free; }
