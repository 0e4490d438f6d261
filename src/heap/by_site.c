/* Blocks by site: see by_site.h. */
#include "heap/by_site.h"

#include "heap/profiling.h"

static site_group_find *find_group; /* atomic: written before WATCH_SITES is set */

void heap_serve_sites(site_group_find *find)
{
    store_relaxed(&find_group, find);
    heap_arm_all();
    fetch_or_acq_rel(&heap_watch, (uint32_t)WATCH_SITES); /* pairs with the load of who asks */
}

void *heap_allocate_by_site(size_t size_bytes, size_t alignment_bytes)
{
    struct heap *heap = thread_heap;
    if (heap == &no_heap || heap->finds_site || size_bytes == 0 || size_bytes > MEDIUM_MOST)
        return NULL;
    heap->finds_site = true;
    struct program_heap *group = load_relaxed(&find_group)();
    heap->finds_site = false;
    void *block = group ? program_try_allocate(group, size_bytes, alignment_bytes) : NULL;
    if (block && (load_acquire(&heap_watch) & (WATCH_PROFILE | WATCH_PROFILED)) != 0)
        heap_profile_take(heap, class_of_request(size_bytes, alignment_bytes), block, size_bytes,
                          true);
    return block;
}
