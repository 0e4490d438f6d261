/* The general heap under its cairn_ names: include/cairn/heap.h, stats.h and profile.h document
 * these functions. These functions check arguments, set errno, and convert the heap's statistics to
 * the public forms and those of glibc. No state.
 *
 * Threads: any. */
#include "base/bits.h"
#include "base/check.h"
#include "base/libc.h"
#include "cairn/heap.h"
#include "cairn/profile.h"
#include "cairn/stats.h"
#include "front/entry.h"
#include "front/out_of_memory.h"
#include "os/memory.h"
#include "watch/watch.h"

#include <errno.h>
#include <limits.h>

api const char *cairn_version(void) { return CAIRN_VERSION; }

api void *cairn_malloc(size_t size) { return entry_malloc(size); }
api void cairn_free(void *pointer) { entry_free(pointer); }
api void *cairn_calloc(size_t count, size_t size) { return entry_calloc(count, size); }
api void *cairn_realloc(void *pointer, size_t size) { return entry_realloc(pointer, size); }

api void *cairn_reallocarray(void *pointer, size_t count, size_t size)
{
    return entry_reallocarray(pointer, count, size);
}

api void cairn_free_sized(void *pointer, size_t size) { entry_free_sized(pointer, size, 1); }

api void cairn_free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    entry_free_sized(pointer, size, alignment);
}

api int cairn_posix_memalign(void **result, size_t alignment, size_t size)
{
    return entry_posix_memalign(result, alignment, size);
}

api void *cairn_aligned_alloc(size_t alignment, size_t size)
{
    return entry_aligned_alloc(alignment, size);
}
api void *cairn_memalign(size_t alignment, size_t size) { return entry_memalign(alignment, size); }
api void *cairn_valloc(size_t size) { return entry_valloc(size); }
api void *cairn_pvalloc(size_t size) { return entry_pvalloc(size); }
api size_t cairn_malloc_usable_size(void *pointer) { return entry_usable_size(pointer); }
api int cairn_malloc_trim(size_t keep) { return heap_release(keep); }

api struct cairn_mallinfo2 cairn_mallinfo2(void)
{
    struct heap_stats stats;
    heap_read_stats(&stats);
    size_t outside = stats.pages.huge_bytes + stats.guarded_bytes;
    /* Other threads continue during the count, so one sum may be older than the other. */
    size_t in_arenas = stats.live_bytes - smaller_of(stats.live_bytes, outside);
    in_arenas = smaller_of(in_arenas, stats.pages.committed_bytes);
    return (struct cairn_mallinfo2){
        .arena = stats.pages.committed_bytes,
        .hblks = stats.pages.huge_count + stats.guarded_blocks,
        .hblkhd = outside,
        .uordblks = in_arenas,
        .fordblks = stats.pages.committed_bytes - in_arenas,
        .keepcost = stats.pages.dirty_bytes,
    };
}

/* Returns a number as an int, at most INT_MAX. */
static int api_to_int(size_t value) { return value > INT_MAX ? INT_MAX : (int)value; }

api struct cairn_mallinfo cairn_mallinfo(void)
{
    struct cairn_mallinfo2 info = cairn_mallinfo2();
    return (struct cairn_mallinfo){
        .arena = api_to_int(info.arena),
        .hblks = api_to_int(info.hblks),
        .hblkhd = api_to_int(info.hblkhd),
        .uordblks = api_to_int(info.uordblks),
        .fordblks = api_to_int(info.fordblks),
        .keepcost = api_to_int(info.keepcost),
    };
}

api int cairn_mallopt(int parameter, int value)
{
    static const int known[] = {M_MXFAST,         M_TRIM_THRESHOLD, M_TOP_PAD,
                                M_MMAP_THRESHOLD, M_MMAP_MAX,       M_CHECK_ACTION,
                                M_PERTURB,        M_ARENA_TEST,     M_ARENA_MAX};
    (void)value;
    for (size_t i = 0; i < countof(known); i++)
        if (parameter == known[i])
            return 1;
    return 0;
}

/* The words are those of cairn/stats.h and of the tool `cairn stats`. */
void entry_report_stats(const char *who)
{
    cairn_heap_stats stats;
    cairn_heap_read_stats(&stats);
    report("%sallocated %zu bytes in %zu blocks, large %zu bytes in %zu blocks", who,
           stats.allocated_bytes, stats.allocated_blocks, stats.large_bytes, stats.large_blocks);
    report("%sactive %zu bytes, dirty %zu, mapped %zu, retained %zu, metadata %zu", who,
           stats.active_bytes, stats.dirty_bytes, stats.mapped_bytes, stats.retained_bytes,
           stats.metadata_bytes);
    report("%spurged %zu bytes in %zu purges, thread heaps %zu", who, (size_t)stats.purged_bytes,
           (size_t)stats.purges, stats.thread_heaps);
    size_t wrong_frees = heap_count_wrong_frees();
    if (wrong_frees != 0)
        report("%s%zu wrong frees refused", who, wrong_frees);
}

api void cairn_malloc_stats(void) { entry_report_stats(""); }

/* Writes glibc's elements, whose readers look for `system` and `total`, and elements of Cairn next
 * to them. */
api int cairn_malloc_info(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    struct heap_stats stats;
    heap_read_stats(&stats);
    size_t outside = stats.pages.huge_bytes + stats.guarded_bytes;
    size_t system = stats.pages.committed_bytes + outside;
    size_t reserved = stats.pages.reserved_bytes + outside;
    int written =
        fprintf(stream,
                "<malloc version=\"1\">\n"
                "<heaps count=\"%zu\"/>\n"
                "<blocks count=\"%zu\" size=\"%zu\"/>\n"
                "<large count=\"%zu\" size=\"%zu\"/>\n"
                "<slabs size=\"%zu\"/>\n"
                "<purged size=\"%zu\"/>\n"
                "<metadata size=\"%zu\"/>\n"
                "<total type=\"rest\" count=\"0\" size=\"%zu\"/>\n"
                "<total type=\"dirty\" count=\"0\" size=\"%zu\"/>\n"
                "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n"
                "<system type=\"current\" size=\"%zu\"/>\n"
                "<aspace type=\"total\" size=\"%zu\"/>\n"
                "<aspace type=\"mprotect\" size=\"%zu\"/>\n"
                "</malloc>\n",
                stats.heaps, stats.live_blocks, stats.live_bytes, stats.large_blocks,
                stats.large_bytes, stats.slab_bytes, stats.pages.purged_bytes,
                stats.pages.meta_bytes, stats.pages.free_bytes, stats.pages.dirty_bytes,
                stats.pages.huge_count + stats.guarded_blocks, outside, system, reserved, system);
    return written < 0 ? -1 : 0;
}

/* Returns how many system calls of a kind were made. */
static uint64_t api_calls(enum os_call call) { return load_relaxed(&os_calls[call]); }

void stats_read(cairn_heap_stats *stats)
{
    struct heap_stats heap;
    heap_start();
    heap_read_stats(&heap);
    const struct page_stats *pages = &heap.pages;
    size_t clean = pages->free_bytes - smaller_of(pages->free_bytes, pages->dirty_bytes);
    *stats = (cairn_heap_stats){
        .allocated_bytes = heap.live_bytes,
        .allocated_blocks = heap.live_blocks,
        .large_bytes = heap.large_bytes,
        .large_blocks = heap.large_blocks,
        .guarded_bytes = heap.guarded_bytes,
        .guarded_blocks = heap.guarded_blocks,
        .active_bytes = heap.slab_bytes + heap.large_bytes + heap.guarded_bytes,
        .slab_bytes = heap.slab_bytes,
        .free_bytes = pages->free_bytes,
        .dirty_bytes = pages->dirty_bytes,
        .mapped_bytes = pages->committed_bytes + pages->huge_bytes + heap.guarded_bytes,
        .retained_bytes = pages->reserved_bytes -
                          smaller_of(pages->reserved_bytes, pages->committed_bytes) + clean,
        .metadata_bytes = pages->meta_bytes,
        .thread_heaps = heap.heaps,
        .purged_bytes = pages->purged_bytes,
        .purges = pages->purges,
        .map_calls = api_calls(OS_CALL_MAP),
        .protect_calls = api_calls(OS_CALL_PROTECT),
        .unmap_calls = api_calls(OS_CALL_UNMAP),
        .advise_calls = api_calls(OS_CALL_ADVISE),
        .remap_calls = api_calls(OS_CALL_REMAP),
    };
}

api void cairn_heap_read_stats(cairn_heap_stats *stats) { stats_read(stats); }

api size_t cairn_heap_read_class_stats(cairn_heap_class_stats *rows, size_t count)
{
    heap_start();
    return heap_read_classes(rows, rows ? count : 0);
}

api size_t cairn_heap_read_thread_stats(cairn_heap_thread_stats *rows, size_t count)
{
    heap_start();
    return heap_read_threads(rows, rows ? count : 0);
}

int cairn_profile_start(size_t interval_bytes) { return -profile_start(interval_bytes, 0); }

void cairn_profile_stop(void) { profile_stop(); }

void cairn_profile_reset(void) { profile_reset(); }

int cairn_profile_dump(const char *path) { return -profile_dump(path, "call"); }

void cairn_profile_read_stats(cairn_profile_stats *stats) { profile_read(stats); }

api size_t cairn_good_size(size_t size) { return heap_good_size(size); }

api void *cairn_malloc_at_least(size_t size, size_t *usable)
{
    size_t good = heap_good_size(size);
    void *block = entry_malloc(good);
    *usable = block ? good : 0;
    return block;
}

api void *cairn_resize(void *pointer, size_t size)
{
    return pointer && heap_resize_in_place(pointer, larger_of(size, 1)) ? pointer : NULL;
}

/* Sets errno and returns NULL. */
static cold void *api_failed(int error)
{
    errno = error;
    return NULL;
}

api void *cairn_recallocarray(void *pointer, size_t old_count, size_t count, size_t size)
{
    size_t total, old;
    if (__builtin_mul_overflow(count, size, &total))
        return api_failed(ENOMEM);
    if (pointer == NULL)
        return entry_calloc(count, size);
    if (__builtin_mul_overflow(old_count, size, &old) || old > heap_usable_size(pointer))
        return api_failed(EINVAL);
    void *block = heap_resize_zeroed(pointer, old, total);
    for (int tries = 0; block == NULL && memory_asked_of_process(total, &tries);)
        block = heap_resize_zeroed(pointer, old, total);
    return block ? block : api_failed(ENOMEM);
}

api size_t cairn_malloc_batch(size_t count, size_t size, void **blocks)
{
    size_t taken = heap_allocate_batch(count, size, blocks);
    for (int tries = 0; taken < count && memory_asked_of_process(size, &tries);)
        taken += heap_allocate_batch(count - taken, size, blocks + taken);
    if (unlikely(taken < count))
        errno = ENOMEM;
    return taken;
}

api void cairn_free_batch(size_t count, void *const *blocks) { heap_free_batch(count, blocks); }

api void cairn_thread_idle(void) { heap_idle(); }

/* The operation `alloc` of cairn_heap_allocator. */
static void *heap_allocator_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    if (unlikely(!is_power_of_two(align))) {
        errno = EINVAL;
        return NULL;
    }
    size = larger_of(size, 1); /* malloc(0) may give a block without memory */
    /* A block of more than 8 bytes is aligned to 16, a smaller one to 8. */
    if (likely(align <= 8 || (align <= 16 && size > 8)))
        return entry_malloc(size);
    return entry_memalign(align, size);
}

/* The operation `resize` of cairn_heap_allocator: it succeeds within the usable size of the block.
 * A resize fails if more than half of the block would be unused, so that a realloc moves the block
 * and the rest serves other requests. */
static void *heap_allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    (void)context;
    (void)old_size;
    size_t usable = entry_usable_size(pointer);
    return new_size <= usable && new_size >= usable / 2 ? pointer : NULL;
}

/* The operation `free` of cairn_heap_allocator. */
static void heap_allocator_free(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)size;
    entry_free(pointer);
}

api cairn_allocator cairn_heap_allocator(void)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = heap_allocator_alloc,
        .resize = heap_allocator_resize,
        .free = heap_allocator_free,
        .capabilities =
            CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "heap",
    };
    return (cairn_allocator){NULL, &operations};
}
