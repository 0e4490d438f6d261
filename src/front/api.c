/* The cairn_ names of the heap, and its statistics in glibc's forms. See include/cairn/heap.h. */
#include "cairn/heap.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/libc.h"
#include "front/entry.h"

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
    size_t outside = stats.pages.huge_bytes + stats.sampled_bytes;
    /* Other threads go on while it is counted: then one sum may be older than the other. */
    size_t in_arenas = stats.live_bytes - smaller_of(stats.live_bytes, outside);
    in_arenas = smaller_of(in_arenas, stats.pages.committed_bytes);
    return (struct cairn_mallinfo2){
        .arena = stats.pages.committed_bytes,
        .hblks = stats.pages.huge_count + stats.sampled_blocks,
        .hblkhd = outside,
        .uordblks = in_arenas,
        .fordblks = stats.pages.committed_bytes - in_arenas,
        .keepcost = stats.pages.dirty_bytes,
    };
}

static int to_int(size_t value) { return value > INT_MAX ? INT_MAX : (int)value; }

api struct cairn_mallinfo cairn_mallinfo(void)
{
    struct cairn_mallinfo2 info = cairn_mallinfo2();
    return (struct cairn_mallinfo){
        .arena = to_int(info.arena),
        .hblks = to_int(info.hblks),
        .hblkhd = to_int(info.hblkhd),
        .uordblks = to_int(info.uordblks),
        .fordblks = to_int(info.fordblks),
        .keepcost = to_int(info.keepcost),
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

void entry_report_stats(const char *who)
{
    struct heap_stats stats;
    heap_read_stats(&stats);
    report("%s%zu bytes in %zu blocks in use, %zu of them in %zu large blocks", who,
           stats.live_bytes, stats.live_blocks, stats.large_bytes, stats.large_blocks);
    report("%s%zu bytes reserved, %zu committed, %zu in slabs, %zu free, %zu of them not purged",
           who, stats.pages.reserved_bytes, stats.pages.committed_bytes, stats.slab_bytes,
           stats.pages.free_bytes, stats.pages.dirty_bytes);
    report("%s%zu bytes in %zu own mappings, %zu metadata, %zu purged so far, %zu thread heaps",
           who, stats.pages.huge_bytes, stats.pages.huge_count, stats.pages.meta_bytes,
           stats.pages.purged_bytes, stats.heaps);
    size_t wrong_frees = heap_count_wrong_frees();
    if (wrong_frees != 0)
        report("%s%zu wrong frees refused", who, wrong_frees);
}

api void cairn_malloc_stats(void) { entry_report_stats(""); }

/* glibc's elements, whose readers look for `system` and `total`, with ours beside them. */
api int cairn_malloc_info(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    struct heap_stats stats;
    heap_read_stats(&stats);
    size_t outside = stats.pages.huge_bytes + stats.sampled_bytes;
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
                stats.pages.huge_count + stats.sampled_blocks, outside, system, reserved, system);
    return written < 0 ? -1 : 0;
}
