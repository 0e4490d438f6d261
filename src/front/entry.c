/* The slow parts of the entry points: see entry.h. No state. */
#include "front/entry.h"

#include "base/bits.h"
#include "front/out_of_memory.h"
#include "os/memory.h"
#include "watch/watch.h"

#include <errno.h>

/* References that make a static program link the constructor, the early resolver and the
 * description for readers outside: a member of an archive is linked only if it is named. */
extern const char front_is_linked;
extern void (*const front_early)(void);
extern const struct library_layout library_layout; /* for readers outside: base/layout.h */
__attribute__((used)) static const void *const linked[] = {&front_is_linked, &front_early,
                                                           &library_layout};

void *entry_no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void entry_restart_background(void)
{
    int error = errno;
    background_restart();
    errno = error;
}

/* Serves a malloc that needs a search, and calls the program's function when memory is out. Not
 * inline, so that the usual path saves no registers. */
static no_inline void *entry_malloc_uncached_retried(size_t size_bytes)
{
    void *block = malloc_uncached(size_bytes);
    for (int tries = 0; unlikely(block == NULL) && memory_asked_of_process(size_bytes, &tries);)
        block = malloc_slow(size_bytes);
    entry_pay_background();
    return likely(block != NULL) ? block : entry_no_memory();
}

void *entry_malloc_slow(size_t size_bytes)
{
    return malloc_cached(size_bytes, entry_malloc_uncached_retried);
}

void *entry_calloc_slow(size_t size_bytes)
{
    void *block = heap_allocate_zeroed(size_bytes);
    for (int tries = 0; unlikely(block == NULL) && memory_asked_of_process(size_bytes, &tries);)
        block = heap_allocate_zeroed(size_bytes);
    entry_pay_background();
    return likely(block != NULL) ? block : entry_no_memory();
}

/* Tries a realloc again as long as the program's function makes memory free. */
static no_inline void *entry_realloc_failed(void *pointer, size_t size_bytes)
{
    void *block = NULL;
    for (int tries = 0; block == NULL && memory_asked_of_process(size_bytes, &tries);)
        block = heap_resize(pointer, size_bytes);
    return block ? block : entry_no_memory();
}

void *entry_realloc(void *pointer, size_t size_bytes)
{
    if (unlikely(pointer == NULL))
        return entry_malloc(size_bytes);
    if (unlikely(size_bytes == 0)) {
        entry_free(pointer);
        return NULL;
    }
    return heap_resize_or(pointer, size_bytes, entry_realloc_failed);
}

void *entry_reallocarray(void *pointer, size_t count, size_t size_bytes)
{
    size_t total;
    if (unlikely(__builtin_mul_overflow(count, size_bytes, &total)))
        return entry_no_memory();
    return entry_realloc(pointer, total);
}

/* Allocates an aligned block, and calls the program's function when memory is out.
 *
 * Returns: NULL without errno. */
static void *entry_allocate_aligned(size_t size_bytes, size_t alignment_bytes)
{
    void *block = heap_allocate_aligned(size_bytes, alignment_bytes);
    for (int tries = 0; unlikely(block == NULL) && memory_asked_of_process(size_bytes, &tries);)
        block = heap_allocate_aligned(size_bytes, alignment_bytes);
    entry_pay_background();
    return block;
}

int entry_posix_memalign(void **result, size_t alignment_bytes, size_t size_bytes)
{
    if (!is_power_of_two(alignment_bytes) || alignment_bytes % sizeof(void *) != 0)
        return EINVAL;
    void *block = entry_allocate_aligned(size_bytes, alignment_bytes);
    if (block == NULL)
        return ENOMEM;
    *result = block;
    return 0;
}

/* Sets errno to EINVAL and returns NULL. */
static cold void *entry_invalid(void)
{
    errno = EINVAL;
    return NULL;
}

void *entry_aligned_alloc(size_t alignment_bytes, size_t size_bytes)
{
    if (unlikely(!is_power_of_two(alignment_bytes)))
        return entry_invalid();
    return entry_memalign(alignment_bytes, size_bytes);
}

/* Rounds an alignment that is no power of two up to one, as glibc does. */
void *entry_memalign(size_t alignment_bytes, size_t size_bytes)
{
    if (unlikely(alignment_bytes > SIZE_MAX / 2 + 1))
        return entry_invalid();
    if (unlikely(alignment_bytes == 0))
        alignment_bytes = 1;
    if (unlikely(!is_power_of_two(alignment_bytes)))
        alignment_bytes = (size_t)2 << highest_bit(alignment_bytes);
    void *block = entry_allocate_aligned(size_bytes, alignment_bytes);
    return likely(block != NULL) ? block : entry_no_memory();
}

void *entry_valloc(size_t size_bytes)
{
    heap_start(); /* for the page size */
    return entry_memalign(os_page_size(), size_bytes);
}

void *entry_pvalloc(size_t size_bytes)
{
    heap_start();
    size_t page = os_page_size();
    if (size_bytes > SIZE_MAX - page)
        return entry_no_memory();
    return entry_memalign(page, align_up(larger_of(size_bytes, 1), page));
}

size_t entry_usable_size(void *pointer) { return heap_usable_size(pointer); }
