/* Blocks of the persistent heap: TLSF over the mapped data, growth, and pages that are dead.
 *
 * TLSF's structure and headers lie in the mapping and hold offsets only, so they are committed,
 * aborted and moved with the blocks, and need no log of their own. It has one region, which grows
 * at its end with the file.
 *
 * A dead page lies wholly within one free block, away from its header, links and boundary tag:
 * nothing in it matters, so a commit leaves it out. A page is found dead when a block is freed that
 * touches it or a neighbouring page, and it is alive again as soon as an allocation or a resize
 * reaches it. This is memory of the open heap only: after an open or an abort no page counts as
 * dead, but none is dirty, either. The tail of a block that shrinks counts as alive. Memory that
 * was allocated and not yet written has undefined contents, after a crash maybe others.
 *
 * Threading: heap->lock.
 */
#include "os/os.h"
#include "region/persist_heap.h"
#include "region/tlsf_region.h"

#include "base/check.h"

#include <errno.h>

enum { GROWTH_STEP_BYTES = 65536, GROWTH_SHARE = 4 };

#define LARGEST_BYTES (BLOCK_MOST_BYTES)

int persist_set_up(struct cairn_persist *heap)
{
    struct persist_state *state = persist_state_of(heap);
    size_t size = heap->mapped_bytes - PERSIST_STATE_BYTES;
    struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    if (cairn_tlsf_init_for(tlsf, size, LARGEST_BYTES) != tlsf)
        return -EINVAL;
    *state = (struct persist_state){.magic = PERSIST_STATE_MAGIC, .size_bytes = heap->mapped_bytes};
    return 0;
}

static int grow(struct cairn_persist *heap, size_t size_bytes)
{
    struct persist_state *state = persist_state_of(heap);
    size_bytes = align_up(size_bytes, GROWTH_STEP_BYTES);
    int error = -persist_refusal(heap);
    if (error == 0 && size_bytes > heap->mapped_bytes)
        error = space_extend(heap, size_bytes);
    if (error != 0)
        return error;
    tlsf_extend(persist_tlsf_of(heap), size_bytes - state->size_bytes);
    state->size_bytes = size_bytes;
    return 0;
}

/* By a quarter, or what is missing, or what there is. */
static int grow_for(struct cairn_persist *heap, size_t size, size_t align)
{
    if (size > heap->capacity_bytes || align > heap->capacity_bytes)
        return -ENOMEM;
    size_t before = persist_state_of(heap)->size_bytes;
    size_t needed = size + align + 2 * BLOCK_LEAST_BYTES;
    size_t missing = needed - smaller_of(needed, tlsf_free_at_end(persist_tlsf_of(heap)));
    /* The size class rounds up: a block of just that size might not be looked at. */
    size_t wanted = larger_of(missing + needed / TLSF_SECOND_LEVELS, before / GROWTH_SHARE);
    size_t most = heap->capacity_bytes - before;
    if (missing > most || most == 0)
        return -ENOMEM;
    return grow(heap, before + smaller_of(wanted, most));
}

static void set_alive(struct cairn_persist *heap, uintptr_t start, uintptr_t end)
{
    size_t first = (start - (uintptr_t)heap->base) / heap->page_bytes;
    size_t last =
        smaller_of((end - (uintptr_t)heap->base) / heap->page_bytes, persist_pages(heap) - 1);
    if (last - first > 1 || bit_is_set(heap->dead, first) || bit_is_set(heap->dead, last))
        bitmap_clear(heap->dead, first, last - first + 1);
}

/* A block was made or grown: its pages, and those of the header behind and the boundary tag in
 * front of it. */
static void note_used(struct cairn_persist *heap, const void *block)
{
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    uintptr_t start = (uintptr_t)block - BLOCK_WORD_BYTES;
    size_t size = word_size(block_at(tlsf, place_of(tlsf, (const void *)start))->word);
    set_alive(heap, start - BLOCK_WORD_BYTES, start + size + BLOCK_LEAST_BYTES);
}

/* The block is about to be freed: which pages are dead then, of those at its place. */
static void note_freed(struct cairn_persist *heap, const void *block)
{
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    place at = place_of(tlsf, block) - BLOCK_WORD_BYTES;
    if (!place_is_within(tlsf, at) || !word_matches(block_at(tlsf, at)->word, at, 0, BLOCK_FREE))
        return; /* misuse, which free reports */
    place end = at + (place)word_size(block_at(tlsf, at)->word);
    place low = at - (place)heap->page_bytes;
    place high = end + (place)heap->page_bytes;
    if (!place_is_within(tlsf, end))
        return;
    if (block_at(tlsf, at)->word & BLOCK_PREVIOUS_FREE)
        at -= (place)*block_footer(block_at(tlsf, at));
    if (word_is_free(block_at(tlsf, end)->word))
        end += (place)word_size(block_at(tlsf, end)->word);
    place base = place_of(tlsf, heap->base);
    place first = larger_place(at + (place)sizeof(struct block), low) - base;
    place last = smaller_place(end - BLOCK_WORD_BYTES, high) - base;
    size_t first_page = align_up((size_t)first, heap->page_bytes) / heap->page_bytes;
    size_t end_page = (size_t)last / heap->page_bytes;
    if (first_page < end_page)
        bitmap_set(heap->dead, first_page, end_page - first_page);
}

void *persist_allocate(struct cairn_persist *heap, size_t size, size_t align)
{
    int saved = errno;
    void *block = cairn_tlsf_alloc_aligned(persist_tlsf_of(heap), size, align);
    if (block == NULL && is_power_of_two(align) && grow_for(heap, size, align) == 0)
        block = cairn_tlsf_alloc_aligned(persist_tlsf_of(heap), size, align);
    if (block == NULL) {
        errno = is_power_of_two(align) ? ENOMEM : EINVAL;
        return NULL;
    }
    errno = saved;
    note_used(heap, block);
    return block;
}

void persist_free(struct cairn_persist *heap, void *block)
{
    note_freed(heap, block);
    cairn_tlsf_free(persist_tlsf_of(heap), block);
}

static void *allocate(void *context, size_t size, size_t align)
{
    struct cairn_persist *heap = context;
    if (heap->flags & CAIRN_PERSIST_READ_ONLY) {
        errno = is_power_of_two(align) ? ENOMEM : EINVAL;
        return NULL;
    }
    fork_lock_acquire(&heap->lock);
    void *block = persist_allocate(heap, larger_of(size, 1), align);
    fork_lock_release(&heap->lock);
    return block;
}

static void *resize(void *context, void *block, size_t old_size, size_t new_size)
{
    struct cairn_persist *heap = context;
    (void)old_size;
    if (block == NULL || (heap->flags & CAIRN_PERSIST_READ_ONLY))
        return NULL;
    fork_lock_acquire(&heap->lock);
    void *resized = cairn_tlsf_resize(persist_tlsf_of(heap), block, larger_of(new_size, 1));
    if (resized != NULL)
        note_used(heap, resized);
    fork_lock_release(&heap->lock);
    return resized;
}

static void free_block(void *context, void *block, size_t size)
{
    struct cairn_persist *heap = context;
    (void)size;
    if (block == NULL)
        return;
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        die("persist free of %p in a heap that is open for reading only", block);
    fork_lock_acquire(&heap->lock);
    persist_free(heap, block);
    fork_lock_release(&heap->lock);
}

api cairn_allocator cairn_persist_allocator(struct cairn_persist *heap)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = allocate,
        .resize = resize,
        .free = free_block,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER |
                        CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "persist",
    };
    return (cairn_allocator){heap, &operations};
}

api int cairn_persist_grow(struct cairn_persist *heap, size_t size)
{
    fork_lock_acquire(&heap->lock);
    int error = -persist_refusal(heap);
    if (error == 0 && size > heap->capacity_bytes)
        error = -ENOMEM;
    if (error == 0 && size > persist_state_of(heap)->size_bytes)
        error = grow(heap, size);
    fork_lock_release(&heap->lock);
    return -error;
}
