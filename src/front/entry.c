/* Entry points: arguments and errno. See entry.h; no state. */
#include "front/entry.h"

#include "base/bits.h"
#include "front/out_of_memory.h"
#include "os/os.h"
#include "watch/watch.h"

#include <errno.h>

/* A static program must get the constructor with the entry points: an archive's member is linked
 * only when named. */
extern const char front_is_linked;
extern void (*const front_early)(void);
extern const struct library_layout library_layout; /* for readers outside, base/layout.h */
__attribute__((used)) static const void *const linked[] = {&front_is_linked, &front_early,
                                                           &library_layout};

void *entry_no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* Here nothing is half done: what is called may allocate. */
static cold void restart_background(void)
{
    int error = errno;
    background_restart();
    errno = error;
}

/* Apart: the usual way needs no registers saved. */
static no_inline void *malloc_slow_retried(size_t size_bytes)
{
    void *block = malloc_not_at_hand(size_bytes);
    for (int tries = 0; unlikely(block == NULL) && memory_asked_of_process(size_bytes, &tries);)
        block = malloc_slow(size_bytes);
    if (unlikely(load_relaxed(&background_is_owed)))
        restart_background();
    return likely(block != NULL) ? block : entry_no_memory();
}

void *entry_malloc_slow(size_t size_bytes)
{
    return malloc_at_hand(size_bytes, malloc_slow_retried);
}

void *entry_calloc_slow(size_t size_bytes)
{
    void *block = heap_allocate_zeroed(size_bytes);
    for (int tries = 0; unlikely(block == NULL) && memory_asked_of_process(size_bytes, &tries);)
        block = heap_allocate_zeroed(size_bytes);
    return likely(block != NULL) ? block : entry_no_memory();
}

static no_inline void *realloc_failed(void *pointer, size_t size_bytes)
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
    return heap_resize_or(pointer, size_bytes, realloc_failed);
}

void *entry_reallocarray(void *pointer, size_t count, size_t size_bytes)
{
    size_t total;
    if (unlikely(__builtin_mul_overflow(count, size_bytes, &total)))
        return entry_no_memory();
    return entry_realloc(pointer, total);
}

static void *allocate_aligned(size_t size_bytes, size_t alignment_bytes)
{
    void *block = heap_allocate_aligned(size_bytes, alignment_bytes);
    for (int tries = 0; unlikely(block == NULL) && memory_asked_of_process(size_bytes, &tries);)
        block = heap_allocate_aligned(size_bytes, alignment_bytes);
    return block;
}

int entry_posix_memalign(void **result, size_t alignment_bytes, size_t size_bytes)
{
    if (!is_power_of_two(alignment_bytes) || alignment_bytes % sizeof(void *) != 0)
        return EINVAL;
    void *block = allocate_aligned(size_bytes, alignment_bytes);
    if (block == NULL)
        return ENOMEM;
    *result = block;
    return 0;
}

static cold void *invalid(void)
{
    errno = EINVAL;
    return NULL;
}

void *entry_aligned_alloc(size_t alignment_bytes, size_t size_bytes)
{
    if (unlikely(!is_power_of_two(alignment_bytes)))
        return invalid();
    return entry_memalign(alignment_bytes, size_bytes);
}

/* As glibc's, which rounds up what is no power of two. */
void *entry_memalign(size_t alignment_bytes, size_t size_bytes)
{
    if (unlikely(alignment_bytes > SIZE_MAX / 2 + 1))
        return invalid();
    if (unlikely(alignment_bytes == 0))
        alignment_bytes = 1;
    if (unlikely(!is_power_of_two(alignment_bytes)))
        alignment_bytes = (size_t)2 << highest_bit(alignment_bytes);
    void *block = allocate_aligned(size_bytes, alignment_bytes);
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
