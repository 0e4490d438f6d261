/* libc's names. The whole family must come from one object, or a program would mix two heaps.
 *
 * __libc_malloc and kin are glibc's internal names, which some programs and preloaded libraries
 * call past the public ones.
 */
#include "base/libc.h"
#include "cairn/heap.h"
#include "front/entry.h"

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

api void *reallocarray(void *pointer, size_t count, size_t size)
{
    return entry_reallocarray(pointer, count, size);
}
api void free_sized(void *pointer, size_t size) { entry_free_sized(pointer, size, 1); }

api void free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    entry_free_sized(pointer, size, alignment);
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
