/* TLSF: two-level segregated fit. The operations on blocks, and the regions of a heap.
 *
 * Algorithm: M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a New Dynamic Memory Allocator for
 * Real-Time Systems", ECRTS 2004. Lists hold the free blocks by size class, and two bitmaps find
 * the next class that has one. A block that is larger than the request is divided at once. A freed
 * block is merged at once with its free neighbours on both sides, which boundary tags find. So no
 * loop depends on the size of the heap.
 *
 * Difference: before it searches a larger class, an allocation looks at the first few blocks of the
 * request's own class, because a class above 1 KiB holds several sizes. This keeps large blocks
 * whole.
 *
 * Regions: a region is a header, the blocks, and an end word. A region begins as one free block,
 * and is one again when all its blocks are freed. The first region is behind the heap structure in
 * the same memory and is never removed. Regions do not merge, even if they are adjacent, because
 * each has its own end word. add, remove, tlsf_inspect.c and, with several regions, the search for
 * the region of a pointer walk the list of regions; allocation does not.
 *
 * Growth: tlsf_extend makes the end word of a single region a block and frees it, so it merges with
 * the free block in front of it. tlsf_cut shortens the free block at the end.
 *
 * The invariants are in tlsf.h. Not here: inspection (tlsf_inspect.c), locks and memory from
 * the system (hosted_tlsf.c). The files tlsf*.c use neither libc nor system calls.
 *
 * Threads: one at a time in a heap.
 */
#include "region/tlsf.h"

#include "base/check.h"
#include "base/host.h"

/* The search for a region, and the functions that end the process. No state.
 *
 * A block in front is the most frequent cause of a damaged header, so these functions walk the
 * region from its start up to the damage, at any cost. The size of a freed block is not known: its
 * header has the size of all the free memory that begins there.
 */

bool region_search(const struct cairn_tlsf *heap, place at, struct bounds *bounds)
{
    for (place region = heap->regions; region != 0; region = region_at(heap, region)->next) {
        place first = region_first(region);
        size_t size_bytes = region_at(heap, region)->size_bytes;
        if ((uint64_t)(at - first) <= size_bytes) {
            *bounds = (struct bounds){first, first + (place)size_bytes};
            return true;
        }
    }
    return false;
}

/* Searches a region for the first damaged header, up to the one at `at`.
 * Returns: the block that ends there, in use or free; 0 when all headers are sound, or when the
 *     first header of the region is damaged. */
static place tlsf_block_before_damage(const struct cairn_tlsf *heap, const struct bounds *region,
                                      place at)
{
    place before = 0;
    for (place next = region->first; next <= at;) {
        uint64_t word = block_at(heap, next)->word;
        size_t size = word_size(word);
        if (!word_is_block(word, next))
            return before;
        if (size < BLOCK_MIN_BYTES || size > (size_t)(region->end - next))
            return 0; /* the end word, or an overwritten size */
        before = next;
        next += (place)size;
    }
    return 0;
}

/* Ends the process with a message about the overrun block, if the header at `at` or one in front of
 * it is damaged. Returns otherwise. */
static void tlsf_die_of_damage_before(const struct cairn_tlsf *heap, const struct bounds *region,
                                      place at)
{
    place before = tlsf_block_before_damage(heap, region, at);
    if (before == 0)
        return;
    if (!word_is_free(block_at(heap, before)->word))
        die_of_overrun(heap, before);
    die_of_boundary_tag(heap, before + (place)word_size(block_at(heap, before)->word));
}

cold no_return void die_of_pointer(const struct cairn_tlsf *heap, const void *pointer,
                                   const char *verb)
{
    place at = place_of(heap, pointer) - BLOCK_WORD_BYTES;
    struct bounds bounds;
    if (region_of(heap, at, &bounds)) {
        bool is_free = word_matches(block_at(heap, at)->word, at, BLOCK_FREE, BLOCK_FREE);
        if (is_free && verb[0] == 'f')
            die("TLSF double free of %p", pointer);
        if (is_free)
            die("TLSF %s of freed block %p", verb, pointer);
        tlsf_die_of_damage_before(heap, &bounds, at);
    }
    die("TLSF %s of %p, which is not a block of heap %p", verb, pointer, (const void *)heap);
}

cold no_return void die_of_overrun(const struct cairn_tlsf *heap, place at)
{
    struct block *block = block_at(heap, at);
    struct bounds bounds;
    if (region_of(heap, at, &bounds) && word_size(block->word) > (size_t)(bounds.end - at))
        die("TLSF block %p: its header was written to", block_memory(block));
    die("TLSF block %p (%zu-byte block) was overrun: the header behind it is gone",
        block_memory(block), word_size(block->word) - BLOCK_WORD_BYTES);
}

cold no_return void die_of_free_block(const struct cairn_tlsf *heap, place at)
{
    struct bounds bounds;
    if (region_of(heap, at, &bounds) && !word_is_block(block_at(heap, at)->word, at))
        tlsf_die_of_damage_before(heap, &bounds, at);
    die("TLSF free block %p was written to", block_memory(block_at(heap, at)));
}

cold no_return void die_of_boundary_tag(const struct cairn_tlsf *heap, place at)
{
    die("TLSF free memory in front of block %p was written to", block_memory(block_at(heap, at)));
}

cold no_return void die_of_damage(const struct cairn_tlsf *heap, place at)
{
    die("TLSF heap %p is damaged at %p", (const void *)heap, block_memory(block_at(heap, at)));
}

/* A block in use, found from its pointer. */
struct used {
    place at;
    uint64_t word;
    size_t size_bytes;
    struct block *behind; /* the next block; its word is sound */
    place region_first;   /* the first block of its region */
};

/* Finds the block of a pointer that the program gave to `verb`. Ends the process when there is
 * none, or when it was overrun. */
inline_always struct used used_block(const struct cairn_tlsf *heap, const void *pointer,
                                     const char *verb)
{
    struct used used = {.at = place_of(heap, pointer) - BLOCK_WORD_BYTES};
    struct bounds region;
    if (unlikely(!region_of(heap, used.at, &region)))
        die_of_pointer(heap, pointer, verb);
    used.region_first = region.first;
    used.word = block_at(heap, used.at)->word;
    if (unlikely(!word_matches(used.word, used.at, 0, BLOCK_FREE | BLOCK_END)))
        die_of_pointer(heap, pointer, verb);
    used.size_bytes = word_size(used.word);
    place end = used.at + (place)used.size_bytes;
    used.behind = block_at(heap, end);
    if (unlikely(end > region.end || !word_is_block(used.behind->word, end)))
        die_of_overrun(heap, used.at);
    return used;
}

inline_always void count_taken(struct cairn_tlsf *heap, size_t size_bytes)
{
    heap->free_bytes -= size_bytes;
    if (heap->free_bytes < heap->least_free_bytes)
        heap->least_free_bytes = heap->free_bytes;
}

/* Puts a block into use whose memory is free up to its end and in no list. The memory that it does
 * not need becomes a free block, if it is large enough for one. `flags` is BLOCK_PREVIOUS_FREE or
 * 0. */
inline_always void occupy(struct cairn_tlsf *heap, place at, size_t size_bytes, size_t needed_bytes,
                          unsigned flags)
{
    size_t rest = size_bytes - needed_bytes;
    if (rest >= BLOCK_MIN_BYTES) {
        size_bytes = needed_bytes;
        list_link(heap, at + (place)needed_bytes, rest);
    } else {
        block_at(heap, at + (place)size_bytes)->word &= ~(uint64_t)BLOCK_PREVIOUS_FREE;
    }
    block_at(heap, at)->word = word_of(at, size_bytes, flags);
}

/* The free block in front of a block whose word has BLOCK_PREVIOUS_FREE. The boundary tag of the
 * free block and its header are checked. */
inline_always place previous_of(struct cairn_tlsf *heap, const struct used *used,
                                size_t *size_bytes)
{
    place at = used->at;
    *size_bytes = *block_footer(block_at(heap, at));
    place previous = at - (place)*size_bytes;
    if (unlikely(*size_bytes > (size_t)(at - used->region_first) ||
                 *size_bytes % TLSF_GRAIN_BYTES != 0 ||
                 !word_matches(block_at(heap, previous)->word, previous, BLOCK_FREE, BLOCK_FREE) ||
                 word_size(block_at(heap, previous)->word) != *size_bytes))
        die_of_boundary_tag(heap, at);
    return previous;
}

/* Makes a block free and merges it with its free neighbours. */
inline_always void release(struct cairn_tlsf *heap, const struct used *used)
{
    place at = used->at;
    size_t size = used->size_bytes;
    struct block *behind = used->behind;
    place end = at + (place)size;
    heap->free_bytes += size;
    if (used->word & BLOCK_PREVIOUS_FREE) {
        size_t previous;
        /* a former word inside a block says FREE: see tlsf.h */
        block_at(heap, at)->word = used->word | BLOCK_FREE;
        at = previous_of(heap, used, &previous);
        list_unlink(heap, at, previous);
        size += previous;
    }
    uint64_t next = behind->word;
    if (word_is_free(next)) {
        list_unlink(heap, end, word_size(next));
        size += word_size(next);
    } else {
        behind->word = next | BLOCK_PREVIOUS_FREE;
    }
    list_link(heap, at, size);
}

/* Removes a free block of at least `size_bytes` from its list.
 * Returns: its place, with its size in *found_bytes; 0 when there is none. */
inline_always place take(struct cairn_tlsf *heap, size_t size_bytes, size_t *found_bytes)
{
    place at = list_find(heap, size_bytes);
    if (unlikely(at == 0))
        return 0;
    *found_bytes = list_size(heap, at);
    if (unlikely(*found_bytes < size_bytes))
        die_of_free_block(heap, at);
    list_unlink(heap, at, *found_bytes);
    return at;
}

/* Counts a block that was put into use.
 * Returns: its memory. */
inline_always void *give_out(struct cairn_tlsf *heap, place at)
{
    struct block *block = block_at(heap, at);
    heap->used_blocks++;
    count_taken(heap, word_size(block->word));
    return block_memory(block);
}

inline_always void *allocate(struct cairn_tlsf *heap, size_t size)
{
    if (unlikely(size > heap->largest_bytes - BLOCK_WORD_BYTES))
        return NULL;
    size_t needed = block_size_for(size);
    size_t found;
    place at = take(heap, needed, &found);
    if (unlikely(at == 0))
        return NULL;
    occupy(heap, at, found, needed, 0);
    return give_out(heap, at);
}

api void *cairn_tlsf_alloc(struct cairn_tlsf *heap, size_t size)
{
    void *memory = allocate(heap, size);
    if (likely(memory != NULL))
        return memory;
    return tlsf_request_again(heap, NULL, size, TLSF_GRAIN_BYTES);
}

/* The distance from a free block to the first block behind it with aligned memory. The memory in
 * between becomes a free block, so the distance is 0 or at least BLOCK_MIN_BYTES. */
static size_t tlsf_lead_before(const struct cairn_tlsf *heap, place at, size_t align)
{
    uintptr_t memory = (uintptr_t)block_memory(block_at(heap, at));
    size_t lead = align_up(memory, align) - memory;
    return lead == TLSF_GRAIN_BYTES ? lead + align : lead;
}

/* Whether a region could hold an aligned block. */
static bool tlsf_may_align(const struct cairn_tlsf *heap, size_t size, size_t align)
{
    size_t most = heap->largest_bytes - BLOCK_WORD_BYTES;
    return size <= most && align <= most && size + align + TLSF_GRAIN_BYTES <= most;
}

static void *tlsf_allocate_aligned(struct cairn_tlsf *heap, size_t size, size_t align)
{
    if (unlikely(!tlsf_may_align(heap, size, align)))
        return NULL;
    size_t needed = block_size_for(size);
    size_t found;
    place at = take(heap, needed + align + TLSF_GRAIN_BYTES, &found);
    if (unlikely(at == 0))
        return NULL;
    size_t lead = tlsf_lead_before(heap, at, align);
    if (lead != 0)
        list_link(heap, at, lead);
    at += (place)lead;
    occupy(heap, at, found - lead, needed, lead != 0 ? BLOCK_PREVIOUS_FREE : 0);
    return give_out(heap, at);
}

api void cairn_tlsf_free(struct cairn_tlsf *heap, void *pointer)
{
    if (unlikely(pointer == NULL))
        return;
    struct used used = used_block(heap, pointer, "free");
    heap->used_blocks--;
    release(heap, &used);
}

/* Cuts the end of a block off, if it is large enough for a block, and frees it. */
static void tlsf_shrink(struct cairn_tlsf *heap, const struct used *used, size_t needed_bytes)
{
    size_t rest = used->size_bytes - needed_bytes;
    if (rest < BLOCK_MIN_BYTES)
        return;
    place tail = used->at + (place)needed_bytes;
    block_at(heap, used->at)->word =
        word_of(used->at, needed_bytes, (unsigned)used->word & BLOCK_PREVIOUS_FREE);
    block_at(heap, tail)->word = word_of(tail, rest, 0);
    release(heap, &(struct used){tail, word_of(tail, rest, 0), rest, used->behind, tail});
}

/* Resizes a block in place: it shrinks, or grows into the free block behind it.
 * Returns: false when it cannot grow; nothing has changed then. */
static bool tlsf_resize_block(struct cairn_tlsf *heap, const struct used *used, size_t needed_bytes)
{
    if (needed_bytes <= used->size_bytes) {
        tlsf_shrink(heap, used, needed_bytes);
        return true;
    }
    uint64_t behind = used->behind->word;
    size_t both = used->size_bytes + word_size(behind);
    if (!word_is_free(behind) || both < needed_bytes)
        return false;
    list_unlink(heap, place_of(heap, used->behind), word_size(behind));
    occupy(heap, used->at, both, needed_bytes, (unsigned)used->word & BLOCK_PREVIOUS_FREE);
    count_taken(heap, word_size(block_at(heap, used->at)->word) - used->size_bytes);
    return true;
}

/* Grows a block into the free block in front of it, and the one behind, and moves its contents
 * down. This is the last resort when no free block is large enough.
 * Returns: the new memory; NULL when the neighbours are not large enough either. */
static cold void *tlsf_slide(struct cairn_tlsf *heap, const struct used *used, size_t needed_bytes)
{
    if (!(used->word & BLOCK_PREVIOUS_FREE))
        return NULL;
    struct block *block = block_at(heap, used->at);
    size_t previous;
    place at = previous_of(heap, used, &previous);
    bool behind_free = word_is_free(used->behind->word);
    size_t behind = behind_free ? word_size(used->behind->word) : 0;
    size_t all = previous + used->size_bytes + behind;
    if (all < needed_bytes)
        return NULL;
    list_unlink(heap, at, previous);
    if (behind_free)
        list_unlink(heap, place_of(heap, used->behind), behind);
    block->word |= BLOCK_FREE; /* a former word inside a block says FREE: see tlsf.h */
    void *memory = block_memory(block_at(heap, at));
    __builtin_memmove(memory, block_memory(block), used->size_bytes - BLOCK_WORD_BYTES);
    occupy(heap, at, all, needed_bytes, 0);
    if (!behind_free && all - needed_bytes >= BLOCK_MIN_BYTES)
        used->behind->word |= BLOCK_PREVIOUS_FREE;
    heap->free_bytes += used->size_bytes;
    count_taken(heap, word_size(block_at(heap, at)->word));
    return memory;
}

api void *cairn_tlsf_resize(struct cairn_tlsf *heap, void *pointer, size_t size)
{
    if (pointer == NULL)
        return NULL;
    struct used used = used_block(heap, pointer, "resize");
    bool possible = size <= heap->largest_bytes - BLOCK_WORD_BYTES;
    return possible && tlsf_resize_block(heap, &used, block_size_for(size)) ? pointer : NULL;
}

static void *tlsf_reallocate(struct cairn_tlsf *heap, void *pointer, size_t size)
{
    struct used used = used_block(heap, pointer, "realloc");
    if (size > heap->largest_bytes - BLOCK_WORD_BYTES)
        return NULL;
    size_t needed = block_size_for(size);
    if (tlsf_resize_block(heap, &used, needed))
        return pointer;
    size_t found;
    place at = take(heap, needed, &found);
    if (at == 0)
        return tlsf_slide(heap, &used, needed);
    occupy(heap, at, found, needed, 0);
    void *memory = give_out(heap, at);
    __builtin_memcpy(memory, pointer, used.size_bytes - BLOCK_WORD_BYTES);
    cairn_tlsf_free(heap, pointer);
    return memory;
}

void *tlsf_request_meet(struct cairn_tlsf *heap, const struct tlsf_request *request)
{
    if (request->pointer != NULL)
        return tlsf_reallocate(heap, request->pointer, request->size_bytes);
    if (request->align_bytes > TLSF_GRAIN_BYTES)
        return tlsf_allocate_aligned(heap, request->size_bytes, request->align_bytes);
    return allocate(heap, request->size_bytes);
}

bool tlsf_may_try_again(const struct cairn_tlsf *heap, const struct tlsf_request *request)
{
    bool is_possible = request->align_bytes > TLSF_GRAIN_BYTES
                           ? tlsf_may_align(heap, request->size_bytes, request->align_bytes)
                           : request->size_bytes <= heap->largest_bytes - BLOCK_WORD_BYTES;
    return heap->out_of_memory != NULL && is_possible &&
           heap->out_of_memory(heap->out_of_memory_context, request->size_bytes);
}

cold void *tlsf_request_again(struct cairn_tlsf *heap, void *pointer, size_t size, size_t align)
{
    struct tlsf_request request = {pointer, size, align};
    void *memory = NULL;
    while (memory == NULL && tlsf_may_try_again(heap, &request))
        memory = tlsf_request_meet(heap, &request);
    if (memory == NULL)
        host_note_no_memory();
    return memory;
}

api size_t cairn_tlsf_usable(const struct cairn_tlsf *heap, const void *pointer)
{
    if (pointer == NULL)
        return 0;
    return used_block(heap, pointer, "usable size").size_bytes - BLOCK_WORD_BYTES;
}

enum { HEAP_ALIGNMENT_BYTES = 64 };

static_check(sizeof(struct region) + BLOCK_WORD_BYTES == CAIRN_TLSF_REGION_OVERHEAD_BYTES &&
                 (int)BLOCK_WORD_BYTES == (int)CAIRN_TLSF_BLOCK_OVERHEAD_BYTES &&
                 BLOCK_MIN_BYTES - BLOCK_WORD_BYTES == CAIRN_TLSF_BLOCK_MIN_BYTES &&
                 (int)TLSF_GRAIN_BYTES == (int)CAIRN_TLSF_ALIGNMENT_BYTES,
             "the header says so");
static_check(TLSF_EINVAL > 0 && TLSF_EBUSY > 0 && TLSF_EFBIG > 0, "error numbers are positive");

/* Fits a region into `size_bytes` of memory from *start on, and sets *start to its aligned header.
 * Returns: the size of its first block; 0 when the memory is too small for one. */
static size_t tlsf_region_fit(uintptr_t *start, size_t size_bytes)
{
    uintptr_t first = align_up(*start, TLSF_GRAIN_BYTES);
    size_t lost = first - *start + sizeof(struct region) + BLOCK_WORD_BYTES;
    *start = first;
    if (size_bytes < lost || size_bytes - lost < BLOCK_MIN_BYTES)
        return 0;
    return align_down(size_bytes - lost, TLSF_GRAIN_BYTES);
}

/* Extends low and extent_bytes so that they include a region's words. */
static void tlsf_cover(struct cairn_tlsf *heap, place first, place end)
{
    place high = larger_place(heap->low + (place)heap->extent_bytes, end + BLOCK_WORD_BYTES);
    heap->low = smaller_place(heap->low, first);
    heap->extent_bytes = (uint64_t)(high - heap->low);
}

/* Adds a region with one free block to the heap. The memory of the region is aligned. */
static void tlsf_region_enter(struct cairn_tlsf *heap, struct region *region, size_t block_bytes)
{
    place at = place_of(heap, region);
    *region = (struct region){.next = heap->regions, .size_bytes = block_bytes};
    heap->regions = at;
    heap->region_count++;
    heap->total_bytes += block_bytes;
    heap->free_bytes += block_bytes;
    place first = region_first(at);
    place end = first + (place)block_bytes;
    block_at(heap, end)->word = word_of(end, 0, BLOCK_END | BLOCK_PREVIOUS_FREE);
    list_link(heap, first, block_bytes);
    tlsf_cover(heap, first, end);
}

/* The size of the heap structure with the heads of `levels` first levels. */
static size_t tlsf_heap_bytes(unsigned levels)
{
    return sizeof(struct cairn_tlsf) + levels * TLSF_SECOND_LEVELS * sizeof(place);
}

/* The size of the largest block for which `levels` first levels have a head. */
static size_t tlsf_largest_within(unsigned levels)
{
    return tlsf_class_floor(levels * TLSF_SECOND_LEVELS) - TLSF_GRAIN_BYTES;
}

/* The number of first levels of a heap in `size_bytes` of memory, which include the heap
 * structure. */
static unsigned tlsf_levels_for(size_t size_bytes, size_t largest_region)
{
    unsigned levels = 1;
    while (levels < TLSF_FIRST_LEVELS_MAX &&
           (tlsf_largest_within(levels) < largest_region ||
            tlsf_largest_within(levels) + tlsf_heap_bytes(levels) < size_bytes))
        levels++;
    return levels;
}

api struct cairn_tlsf *cairn_tlsf_init_for(void *memory, size_t size, size_t largest_region)
{
    uintptr_t given = (uintptr_t)memory;
    uintptr_t start = align_up(given, HEAP_ALIGNMENT_BYTES);
    unsigned levels = tlsf_levels_for(size, largest_region);
    size_t lost = start - given + tlsf_heap_bytes(levels);
    uintptr_t region = given + lost;
    size_t block_bytes = size > lost ? tlsf_region_fit(&region, size - lost) : 0;
    if (memory == NULL || block_bytes == 0 || block_bytes > tlsf_largest_within(levels)) {
        host_note_invalid();
        return NULL;
    }
    struct cairn_tlsf *heap = (struct cairn_tlsf *)start;
    for (uint64_t *word = (uint64_t *)heap; word < (uint64_t *)region; word++)
        *word = 0;
    heap->magic = TLSF_MAGIC;
    heap->levels = levels;
    heap->largest_bytes = tlsf_largest_within(levels);
    heap->low = region_first(place_of(heap, (void *)region));
    tlsf_region_enter(heap, (struct region *)region, block_bytes);
    heap->least_free_bytes = heap->free_bytes;
    return heap;
}

api struct cairn_tlsf *cairn_tlsf_init(void *memory, size_t size)
{
    return cairn_tlsf_init_for(memory, size, 0);
}

api size_t cairn_tlsf_control_bytes(size_t size, size_t largest_region)
{
    return tlsf_heap_bytes(tlsf_levels_for(size, largest_region));
}

/* cairn_tlsf_init chooses this number of levels or fewer. With fewer the heap structure is smaller,
 * and more memory remains for the blocks. */
api size_t cairn_tlsf_bytes_for(size_t capacity)
{
    enum { REGION_BYTES = CAIRN_TLSF_REGION_OVERHEAD_BYTES };
    if (capacity > BLOCK_MAX_BYTES - REGION_BYTES - BLOCK_WORD_BYTES)
        return 0;
    size_t region_bytes = block_size_for(capacity) + REGION_BYTES;
    unsigned levels = 1;
    while (tlsf_largest_within(levels) < region_bytes)
        levels++;
    return tlsf_heap_bytes(levels) + region_bytes;
}

static bool tlsf_overlaps(const struct cairn_tlsf *heap, uintptr_t start, size_t size_bytes)
{
    uintptr_t own = (uintptr_t)heap;
    if (start < own + tlsf_heap_bytes(heap->levels) && own < start + size_bytes)
        return true;
    for (place at = heap->regions; at != 0; at = region_at(heap, at)->next) {
        uintptr_t other = own + (uintptr_t)at;
        size_t other_bytes = sizeof(struct region) + region_at(heap, at)->size_bytes;
        if (start < other + other_bytes + BLOCK_WORD_BYTES && other < start + size_bytes)
            return true;
    }
    return false;
}

api int cairn_tlsf_add(struct cairn_tlsf *heap, void *memory, size_t size)
{
    uintptr_t start = (uintptr_t)memory;
    if (memory == NULL || size > UINTPTR_MAX - start || tlsf_overlaps(heap, start, size))
        return TLSF_EINVAL;
    size_t block_bytes = tlsf_region_fit(&start, size);
    if (block_bytes == 0)
        return TLSF_EINVAL;
    if (block_bytes > heap->largest_bytes)
        return TLSF_EFBIG;
    tlsf_region_enter(heap, (struct region *)start, block_bytes);
    return 0;
}

/* Computes low and extent_bytes again, after a region was removed. */
static void tlsf_cover_all(struct cairn_tlsf *heap)
{
    heap->low = region_first(heap->regions);
    heap->extent_bytes = 0;
    for (place at = heap->regions; at != 0; at = region_at(heap, at)->next)
        tlsf_cover(heap, region_first(at),
                   region_first(at) + (place)region_at(heap, at)->size_bytes);
}

api int cairn_tlsf_remove(struct cairn_tlsf *heap, void *memory)
{
    place wanted = place_of(heap, (void *)align_up((uintptr_t)memory, TLSF_GRAIN_BYTES));
    place *link = &heap->regions;
    while (*link != 0 && *link != wanted)
        link = &region_at(heap, *link)->next;
    if (*link == 0 || region_at(heap, wanted)->next == 0)
        return TLSF_EINVAL; /* the first region is the last of the list */
    struct region *region = region_at(heap, wanted);
    place first = region_first(wanted);
    uint64_t word = block_at(heap, first)->word;
    if (!word_is_free(word) || word_size(word) != region->size_bytes)
        return TLSF_EBUSY;
    list_unlink(heap, first, list_size(heap, first));
    *link = region->next;
    heap->region_count--;
    heap->total_bytes -= region->size_bytes;
    heap->free_bytes -= region->size_bytes;
    heap->least_free_bytes = smaller_of(heap->least_free_bytes, heap->free_bytes);
    tlsf_cover_all(heap);
    return 0;
}

/* The place of the end word of a heap of one region. */
static place tlsf_end_of(const struct cairn_tlsf *heap)
{
    return region_first(heap->regions) + (place)region_at(heap, heap->regions)->size_bytes;
}

void tlsf_extend(struct cairn_tlsf *heap, size_t size_bytes)
{
    struct region *region = region_at(heap, heap->regions);
    place end = tlsf_end_of(heap);
    place new_end = end + (place)size_bytes;
    unsigned flags = (unsigned)block_at(heap, end)->word & BLOCK_PREVIOUS_FREE;
    block_at(heap, new_end)->word = word_of(new_end, 0, BLOCK_END);
    block_at(heap, end)->word = word_of(end, size_bytes, flags);
    region->size_bytes += size_bytes;
    heap->total_bytes += size_bytes;
    heap->extent_bytes += size_bytes;
    heap->used_blocks++;
    cairn_tlsf_free(heap, block_memory(block_at(heap, end)));
}

size_t tlsf_free_at_end(const struct cairn_tlsf *heap)
{
    struct block *end = block_at(heap, tlsf_end_of(heap));
    return end->word & BLOCK_PREVIOUS_FREE ? *block_footer(end) : 0;
}

void tlsf_cut(struct cairn_tlsf *heap, size_t size_bytes)
{
    place end = tlsf_end_of(heap);
    place new_end = end - (place)size_bytes;
    size_t before = tlsf_free_at_end(heap);
    place at = end - (place)before;
    list_unlink(heap, at, before);
    list_link(heap, at, before - size_bytes);
    block_at(heap, new_end)->word = word_of(new_end, 0, BLOCK_END | BLOCK_PREVIOUS_FREE);
    region_at(heap, heap->regions)->size_bytes -= size_bytes;
    heap->total_bytes -= size_bytes;
    heap->extent_bytes -= size_bytes;
    heap->free_bytes -= size_bytes;
    if (heap->free_bytes < heap->least_free_bytes)
        heap->least_free_bytes = heap->free_bytes;
}

static void *tlsf_get_or_resize(struct cairn_tlsf *heap, void *pointer, size_t size, size_t align)
{
    struct tlsf_request request = {pointer, size, align};
    void *memory = tlsf_request_meet(heap, &request);
    return likely(memory != NULL) ? memory : tlsf_request_again(heap, pointer, size, align);
}

api void cairn_tlsf_set_out_of_memory(struct cairn_tlsf *heap,
                                      bool (*out_of_memory)(void *context, size_t size_bytes),
                                      void *context)
{
    heap->out_of_memory = out_of_memory;
    heap->out_of_memory_context = context;
}

api void *cairn_tlsf_alloc_zero(struct cairn_tlsf *heap, size_t size)
{
    void *memory = cairn_tlsf_alloc(heap, size);
    return memory != NULL ? __builtin_memset(memory, 0, size) : NULL;
}

api void *cairn_tlsf_alloc_array(struct cairn_tlsf *heap, size_t count, size_t size)
{
    return cairn_tlsf_alloc(heap, tlsf_total_of(count, size));
}

api void *cairn_tlsf_alloc_array_zero(struct cairn_tlsf *heap, size_t count, size_t size)
{
    return cairn_tlsf_alloc_zero(heap, tlsf_total_of(count, size));
}

api void *cairn_tlsf_alloc_aligned(struct cairn_tlsf *heap, size_t size, size_t align)
{
    if (unlikely(!is_power_of_two(align))) {
        host_note_invalid();
        return NULL;
    }
    return tlsf_get_or_resize(heap, NULL, size, align);
}

api void *cairn_tlsf_realloc(struct cairn_tlsf *heap, void *pointer, size_t size)
{
    return tlsf_get_or_resize(heap, pointer, size, TLSF_GRAIN_BYTES);
}
