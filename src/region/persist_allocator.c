/* The persistent heap's memory: its address space, its growth, its blocks and its named roots.
 *
 * Address space. The whole capacity is reserved once, so the heap grows in place. The file's data
 * are mapped privately at its start. The address of a new heap is drawn from a range that Linux
 * leaves free on x86-64 and aarch64, so it is free the next time too. With ThreadSanitizer, which
 * restricts the addresses of a program, the kernel chooses.
 *
 * Growth extends the file first, durable, then the header, which promises this length, then the
 * mapping. So a file that is shorter than its header says was cut by something else.
 *
 * Blocks come from TLSF over the mapped data. TLSF's structure and headers are in the mapping and
 * hold offsets only. So they are committed, aborted and moved together with the blocks, and need no
 * log of their own. TLSF has one region, which grows at its end with the file.
 *
 * Dead pages. A dead page is completely within one free block, and contains neither its header, nor
 * its links, nor its boundary tag. Its contents do not matter, except that no header in it may look
 * like that of a block in use, so most commits omit it (persist_to_log).
 * A page is found dead when a block is freed that is on this page or on an adjacent one. The page
 * is alive again when an allocation or a resize reaches it. This is known for the open heap only:
 * after an open or an abort no page counts as dead, but none is dirty either. The tail of a block
 * that shrinks counts as alive. Memory that was allocated and not yet written has undefined
 * contents, which may be different after a crash.
 *
 * Roots are a list of blocks of the heap, newest first. A damaged list ends where it leads out of
 * the heap.
 *
 * Threads: all functions need heap->lock; the public ones take it.
 */
#include "base/atomic.h"
#include "base/check.h"
#include "os/file.h"
#include "os/memory.h"
#include "os/process.h"
#include "region/persist_heap.h"
#include "region/tlsf.h"

#include <errno.h>

enum { SPACE_TRIES = 16, SPACE_STEP_BITS = 36 };

/* An address between 16 and 64 TiB, a multiple of 64 GiB. */
static uintptr_t persist_draw_address(void)
{
    return ((uintptr_t)1 << 44) + ((os_entropy() % 768) << SPACE_STEP_BITS);
}

static void *persist_reserve_somewhere(size_t size_bytes)
{
    for (int i = 0; i < SPACE_TRIES && !config_tsan; i++) {
        void *drawn = (void *)persist_draw_address();
        if (os_reserve_at(drawn, size_bytes))
            return drawn;
    }
    return os_reserve(size_bytes);
}

int space_reserve(struct cairn_persist *heap, uintptr_t wanted, bool demanded)
{
    void *found = NULL;
    if (wanted != 0 && os_reserve_at((void *)wanted, heap->capacity_bytes))
        found = (void *)wanted;
    if (found == NULL && demanded)
        return -EADDRNOTAVAIL;
    if (found == NULL)
        found = persist_reserve_somewhere(heap->capacity_bytes);
    if (found == NULL)
        return -ENOMEM;
    heap->base = found;
    heap->moved = wanted != 0 && (uintptr_t)found != wanted;
    return 0;
}

int space_map(struct cairn_persist *heap, size_t data_bytes)
{
    size_t from = heap->mapped_bytes;
    int error = os_file_map(heap->file, PERSIST_DATA_OFFSET + from, heap->base + from,
                            data_bytes - from, OS_WRITE);
    if (error != 0)
        return error;
    /* the handler of SIGSEGV reads it without the lock */
    store_relaxed(&heap->mapped_bytes, data_bytes);
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return 0;
    error = dirty_watch(heap, from, data_bytes);
    if (error != 0)
        store_relaxed(&heap->mapped_bytes, from);
    return error;
}

/* Extends the file and the header, both durable.
 * Locking: lock and header_lock held. */
static int persist_extend_file(struct cairn_persist *heap, size_t data_bytes)
{
    int error = os_file_truncate(heap->file, PERSIST_DATA_OFFSET + data_bytes);
    if (error != 0)
        return error;
    struct persist_header header = heap->header;
    header.data_bytes = data_bytes;
    error = os_file_sync(heap->file);
    if (error == 0)
        error = header_write(heap->file, &header);
    heap->file_error = error;
    if (error == 0)
        heap->header = header;
    return error;
}

int space_extend(struct cairn_persist *heap, size_t data_bytes)
{
    if (data_bytes > heap->capacity_bytes)
        return -ENOMEM;
    fork_lock_acquire(&heap->header_lock);
    int error = heap->file_error;
    if (error == 0 && data_bytes > heap->header.data_bytes)
        error = persist_extend_file(heap, data_bytes);
    fork_lock_release(&heap->header_lock);
    return error != 0 ? error : space_map(heap, data_bytes);
}

enum { GROWTH_STEP_BYTES = 65536, GROWTH_SHARE = 4 };

#define LARGEST_BYTES (BLOCK_MAX_BYTES)

bool persist_is_new(const struct cairn_persist *heap)
{
    return heap->written == 0 && persist_state_of(heap)->magic == 0;
}

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

api int cairn_persist_abort(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    int error = -persist_refusal(heap);
    if (error == 0)
        error = persist_restore_all(heap);
    if (error == 0 && persist_is_new(heap))
        error = persist_set_up(heap);
    fork_lock_release(&heap->lock);
    return -error;
}

/* Grows the heap to size_bytes, rounded up to GROWTH_STEP_BYTES.
 * Locking: lock held. */
static int persist_grow(struct cairn_persist *heap, size_t size_bytes)
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

/* Grows the heap by a quarter, by more if the request needs more, or by the rest of the capacity if
 * that is less. If the system refuses, by as much as the request needs.
 * Locking: lock held. */
static int persist_grow_for(struct cairn_persist *heap, size_t size, size_t align)
{
    if (size > heap->capacity_bytes || align > heap->capacity_bytes)
        return -ENOMEM;
    size_t before = persist_state_of(heap)->size_bytes;
    size_t needed = size + align + 2 * BLOCK_MIN_BYTES;
    size_t missing = needed - smaller_of(needed, tlsf_free_at_end(persist_tlsf_of(heap)));
    /* The size class rounds up, so TLSF might not look at a block of exactly this size. */
    size_t most = heap->capacity_bytes - before;
    size_t least = smaller_of(missing + needed / TLSF_SECOND_LEVELS, most);
    size_t wanted = larger_of(least, smaller_of(before / GROWTH_SHARE, most));
    if (missing > most || most == 0)
        return -ENOMEM;
    int error = persist_grow(heap, before + wanted);
    return error != 0 && wanted > least ? persist_grow(heap, before + least) : error;
}

/* Marks the pages of [start, end] as not dead. */
static void persist_set_alive(struct cairn_persist *heap, uintptr_t start, uintptr_t end)
{
    size_t first = (start - (uintptr_t)heap->base) / heap->page_bytes;
    size_t last =
        smaller_of((end - (uintptr_t)heap->base) / heap->page_bytes, persist_pages(heap) - 1);
    if (last - first > 1 || bit_is_set(heap->dead, first) || bit_is_set(heap->dead, last))
        bitmap_clear(heap->dead, first, last - first + 1);
}

/* Marks the pages of a new or grown block as not dead, also those of the header behind it and of
 * the boundary tag in front of it. */
static void persist_note_used(struct cairn_persist *heap, const void *block)
{
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    uintptr_t start = (uintptr_t)block - BLOCK_WORD_BYTES;
    size_t size = word_size(block_at(tlsf, place_of(tlsf, (const void *)start))->word);
    persist_set_alive(heap, start - BLOCK_WORD_BYTES, start + size + BLOCK_MIN_BYTES);
}

/* Marks pages as dead of a block that is about to be freed, together with its free neighbours. */
static void persist_note_freed(struct cairn_persist *heap, const void *block)
{
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    place at = place_of(tlsf, block) - BLOCK_WORD_BYTES;
    if (!place_is_within(tlsf, at) || !word_matches(block_at(tlsf, at)->word, at, 0, BLOCK_FREE))
        return; /* misuse, which the free reports */
    place end = at + (place)word_size(block_at(tlsf, at)->word);
    place base = place_of(tlsf, heap->base);
    bitmap_set(heap->freed, (size_t)(at - base) / heap->page_bytes, 1);
    place low = at - (place)heap->page_bytes;
    place high = end + (place)heap->page_bytes;
    if (!place_is_within(tlsf, end))
        return;
    if (block_at(tlsf, at)->word & BLOCK_PREVIOUS_FREE)
        at -= (place)*block_footer(block_at(tlsf, at));
    if (word_is_free(block_at(tlsf, end)->word))
        end += (place)word_size(block_at(tlsf, end)->word);
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
    if (block == NULL && is_power_of_two(align) && persist_grow_for(heap, size, align) == 0)
        block = cairn_tlsf_alloc_aligned(persist_tlsf_of(heap), size, align);
    if (block == NULL) {
        errno = is_power_of_two(align) ? ENOMEM : EINVAL;
        return NULL;
    }
    errno = saved;
    persist_note_used(heap, block);
    return block;
}

void persist_free(struct cairn_persist *heap, void *block)
{
    persist_note_freed(heap, block);
    cairn_tlsf_free(persist_tlsf_of(heap), block);
}

static void *persist_allocator_alloc(void *context, size_t size, size_t align)
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

static void *persist_allocator_resize(void *context, void *block, size_t old_size, size_t new_size)
{
    struct cairn_persist *heap = context;
    (void)old_size;
    if (block == NULL || (heap->flags & CAIRN_PERSIST_READ_ONLY))
        return NULL;
    fork_lock_acquire(&heap->lock);
    void *resized = cairn_tlsf_resize(persist_tlsf_of(heap), block, larger_of(new_size, 1));
    if (resized != NULL)
        persist_note_used(heap, resized);
    fork_lock_release(&heap->lock);
    return resized;
}

static void persist_allocator_free(void *context, void *block, size_t size)
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
        .alloc = persist_allocator_alloc,
        .resize = persist_allocator_resize,
        .free = persist_allocator_free,
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
        error = persist_grow(heap, size);
    fork_lock_release(&heap->lock);
    return -error;
}

enum { ROOT_ALIGN_BYTES = 16 };

static bool persist_is_inside(const struct cairn_persist *heap, const void *address,
                              size_t size_bytes)
{
    uintptr_t offset = (uintptr_t)address - (uintptr_t)heap->base;
    return offset <= heap->mapped_bytes && heap->mapped_bytes - offset >= size_bytes;
}

/* The root to which a link leads; NULL at the end, or when the link is damaged. */
static struct persist_root *persist_follow(const struct cairn_persist *heap,
                                           const cairn_offset *link)
{
    struct persist_root *root = cairn_offset_get(link);
    bool sound = root != NULL && (uintptr_t)root % ROOT_ALIGN_BYTES == 0 &&
                 persist_is_inside(heap, root, sizeof *root) &&
                 root->name_bytes <= PERSIST_NAME_MAX &&
                 persist_is_inside(heap, root, sizeof *root + root->name_bytes + 1);
    return sound ? root : NULL;
}

static size_t persist_length_of(const char *name)
{
    size_t length = 0;
    while (length <= PERSIST_NAME_MAX && name[length] != '\0')
        length++;
    return length;
}

/* The link to the root with a name, or the last link of the list. */
static cairn_offset *persist_find(const struct cairn_persist *heap, const char *name)
{
    struct persist_state *state = persist_state_of(heap);
    size_t length = persist_length_of(name);
    cairn_offset *link = &state->roots;
    struct persist_root *root;
    for (uint64_t left = state->root_count; left > 0; left--, link = &root->next) {
        root = persist_follow(heap, link);
        if (root == NULL ||
            (root->name_bytes == length && __builtin_memcmp(root->name, name, length) == 0))
            break;
    }
    return link;
}

static int persist_add(struct cairn_persist *heap, const char *name, const void *block)
{
    size_t length = persist_length_of(name);
    struct persist_root *root = persist_allocate(heap, sizeof *root + length + 1, ROOT_ALIGN_BYTES);
    if (root == NULL)
        return ENOMEM;
    struct persist_state *state = persist_state_of(heap);
    root->name_bytes = length;
    __builtin_memcpy(root->name, name, length);
    root->name[length] = '\0';
    cairn_offset_set(&root->block, block);
    cairn_offset_set(&root->next, cairn_offset_get(&state->roots));
    cairn_offset_set(&state->roots, root);
    state->root_count++;
    return 0;
}

static int persist_set(struct cairn_persist *heap, const char *name, const void *block)
{
    struct persist_root *root = persist_follow(heap, persist_find(heap, name));
    if (root == NULL)
        return persist_add(heap, name, block);
    cairn_offset_set(&root->block, block);
    return 0;
}

api int cairn_persist_set_root(struct cairn_persist *heap, const char *name, void *block)
{
    size_t length = persist_length_of(name);
    if (length == 0 || length > PERSIST_NAME_MAX ||
        (block != NULL && !persist_is_inside(heap, block, 1)))
        return EINVAL;
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return EROFS;
    int saved = errno;
    fork_lock_acquire(&heap->lock);
    int error = persist_set(heap, name, block);
    fork_lock_release(&heap->lock);
    errno = saved;
    return error;
}

api void *cairn_persist_get_root(struct cairn_persist *heap, const char *name)
{
    fork_lock_acquire(&heap->lock);
    const struct persist_root *root = persist_follow(heap, persist_find(heap, name));
    void *block = root ? cairn_offset_get(&root->block) : NULL;
    fork_lock_release(&heap->lock);
    return block;
}

api int cairn_persist_remove_root(struct cairn_persist *heap, const char *name)
{
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return EROFS;
    fork_lock_acquire(&heap->lock);
    cairn_offset *link = persist_find(heap, name);
    struct persist_root *root = persist_follow(heap, link);
    if (root != NULL) {
        cairn_offset_set(link, cairn_offset_get(&root->next));
        persist_free(heap, root);
        persist_state_of(heap)->root_count--;
    }
    fork_lock_release(&heap->lock);
    return root != NULL ? 0 : ENOENT;
}

api void cairn_persist_walk_roots(struct cairn_persist *heap, cairn_persist_visit *visit,
                                  void *context)
{
    fork_lock_acquire(&heap->lock);
    const cairn_offset *link = &persist_state_of(heap)->roots;
    for (uint64_t left = persist_state_of(heap)->root_count; left > 0; left--) {
        const struct persist_root *root = persist_follow(heap, link);
        if (root == NULL || !visit(root->name, cairn_offset_get(&root->block), context))
            break;
        link = &root->next;
    }
    fork_lock_release(&heap->lock);
}

/* Whether an address is a block of TLSF in use. */
static bool persist_is_block(const struct cairn_persist *heap, const void *address)
{
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    place at = place_of(tlsf, address) - BLOCK_WORD_BYTES;
    return place_is_within(tlsf, at) &&
           word_matches(block_at(tlsf, at)->word, at, 0, BLOCK_FREE | BLOCK_END);
}

const char *persist_check_roots(const struct cairn_persist *heap)
{
    const cairn_offset *link = &persist_state_of(heap)->roots;
    for (uint64_t left = persist_state_of(heap)->root_count; left > 0; left--) {
        const struct persist_root *root = persist_follow(heap, link);
        if (root == NULL || !persist_is_block(heap, root) || root->name_bytes == 0 ||
            root->name[root->name_bytes] != '\0')
            return "the list of roots is broken";
        const void *block = cairn_offset_get(&root->block);
        if (block != NULL && !persist_is_inside(heap, block, 1))
            return "a root leads out of the heap";
        link = &root->next;
    }
    return link->distance == 0 ? NULL : "the roots are not those counted";
}

/* Inspection of the persistent heap: the check of every open, the full check, and the statistics.
 *
 * The check of every open compares each field that allocation uses without checking it with its
 * valid values in a heap of that size. TLSF checks blocks, links and tags whenever it uses them.
 *
 * Threads: any; cairn_persist_check, cairn_persist_read_stats and cairn_persist_count_dirty take
 *     the heap's lock.
 */

/* Whether each list of free blocks that is marked begins within the heap, and no other is used. */
static bool persist_lists_are_sound(const struct cairn_tlsf *tlsf)
{
    uint64_t first = tlsf->first;
    for (unsigned class = 0; class < TLSF_CLASSES_MAX; class ++) {
        uint32_t second = tlsf->second[class / TLSF_SECOND_LEVELS];
        place head = tlsf->head[class];
        if ((second >> class % TLSF_SECOND_LEVELS & 1) != (head != 0) ||
            (head != 0 && !place_is_within(tlsf, head)) ||
            (first >> class / TLSF_SECOND_LEVELS & 1) != (second != 0))
            return false;
    }
    return first >> TLSF_FIRST_LEVELS_MAX == 0;
}

/* Whether TLSF's structure is that of a heap of the state's size. */
static bool persist_tlsf_is_sound(const struct cairn_persist *heap)
{
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    unsigned levels = TLSF_FIRST_LEVELS_MAX;
    size_t own = sizeof *tlsf + levels * TLSF_SECOND_LEVELS * sizeof(place);
    place region = (place)align_up(own, TLSF_GRAIN_BYTES);
    size_t size = persist_state_of(heap)->size_bytes - PERSIST_STATE_BYTES;
    if (tlsf->magic != TLSF_MAGIC || tlsf->levels != levels || tlsf->regions != region ||
        tlsf->region_count != 1 || tlsf->mapped_bytes != 0 || tlsf->low != region_first(region) ||
        tlsf->largest_bytes + TLSF_GRAIN_BYTES != tlsf_class_floor(levels * TLSF_SECOND_LEVELS) ||
        tlsf->out_of_memory != NULL || tlsf->out_of_memory_context != NULL)
        return false;
    size_t blocks =
        align_down(size - (size_t)region_first(region) - BLOCK_WORD_BYTES, TLSF_GRAIN_BYTES);
    return region_at(tlsf, region)->size_bytes == blocks && tlsf->total_bytes == blocks &&
           tlsf->extent_bytes == blocks + BLOCK_WORD_BYTES && region_at(tlsf, region)->next == 0 &&
           tlsf->free_bytes <= blocks && persist_lists_are_sound(tlsf);
}

const char *persist_check_state(const struct cairn_persist *heap)
{
    const struct persist_state *state = persist_state_of(heap);
    if (state->magic != PERSIST_STATE_MAGIC)
        return "the heap's state is damaged";
    if (state->size_bytes > heap->mapped_bytes || state->size_bytes < PERSIST_DATA_OFFSET ||
        state->size_bytes % heap->page_bytes != 0)
        return "the heap's size is damaged";
    return persist_tlsf_is_sound(heap) ? NULL : "the heap's allocator is damaged";
}

api const char *cairn_persist_check(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    const char *fault = persist_check_state(heap);
    if (fault == NULL)
        fault = cairn_tlsf_check(persist_tlsf_of(heap));
    if (fault == NULL)
        fault = persist_check_roots(heap);
    fork_lock_release(&heap->lock);
    return fault;
}

static uint64_t persist_segment_bytes(const struct segment *segment)
{
    return segment->length < PERSIST_LOG_START ? 0 : segment->length - PERSIST_LOG_START;
}

api void cairn_persist_read_stats(struct cairn_persist *heap, struct cairn_persist_stats *stats)
{
    fork_lock_acquire(&heap->lock);
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    *stats = (struct cairn_persist_stats){
        .address = heap->base,
        .moved = heap->moved,
        .tracking = heap->tracker.way,
        .size_bytes = persist_state_of(heap)->size_bytes,
        .capacity_bytes = heap->capacity_bytes,
        .used_bytes = tlsf->total_bytes - tlsf->free_bytes,
        .free_bytes = tlsf->free_bytes,
        .used_blocks = tlsf->used_blocks,
        .last_commit = heap->written,
        .durable_commit = heap->durable,
        .recovered_commits = heap->recovered,
        .log_bytes =
            persist_segment_bytes(&heap->segments[0]) + persist_segment_bytes(&heap->segments[1]),
        .logged_pages = heap->logged_pages,
        .logged_bytes = heap->logged_bytes,
        .skipped_pages = heap->skipped_pages,
        .syncs = heap->syncs,
        .error = heap->error,
    };
    fork_lock_release(&heap->lock);
}

api int cairn_persist_count_dirty(struct cairn_persist *heap, size_t *pages)
{
    fork_lock_acquire(&heap->lock);
    int error = -persist_refusal(heap);
    if (error == 0)
        error = dirty_find(heap);
    *pages = 0;
    for (size_t i = 0; error == 0 && i < (persist_pages(heap) + 63) / 64; i++)
        *pages += count_bits(heap->dirty[i] & persist_to_log(heap, i));
    fork_lock_release(&heap->lock);
    return -error;
}
