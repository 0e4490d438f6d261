/* TLSF: two-level segregated fit, the operations on blocks.
 *
 * Algorithm: M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a New Dynamic Memory Allocator for
 * Real-Time Systems", ECRTS 2004. Free blocks are kept by size class in lists (tlsf_list.h); two
 * bitmaps find the next class that has one (tlsf_map.h). A block that is larger than asked is split
 * at once, and a freed one merged at once with its free neighbours on both sides, which boundary
 * tags find (tlsf_block.h). So there is no loop whose length depends on the heap.
 *
 * Other than there: before a larger class is searched, the first few blocks of the request's own
 * class are looked at, for above 1 KiB a class holds several sizes. That keeps large blocks whole.
 *
 * Invariants: tlsf_block.h. Threading: one thread at a time. Not here: regions and set-up
 * (tlsf_region.c), other forms of allocation (tlsf_forms.c), looking at a heap (tlsf_inspect.c),
 * memory from the system (mapped_tlsf.c), locking (shared_tlsf.c). All files tlsf*.c do without
 * libc and system calls.
 */
#include "region/tlsf.h"

#include "region/tlsf_fault.h"
#include "region/tlsf_host.h"
#include "region/tlsf_list.h"

/* A block that was given out, seen from its pointer. */
struct used {
    place at;
    uint64_t word;
    size_t size_bytes;
    struct block *behind; /* the next block, whose word is sound */
    place region_first;   /* of its region */
};

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

/* Puts a block into use that was free up to its end (and is in no list): what it does not need
 * becomes a free block of its own. `flags` is PREVIOUS_FREE or 0. */
inline_always void occupy(struct cairn_tlsf *heap, place at, size_t size_bytes, size_t needed_bytes,
                          unsigned flags)
{
    size_t rest = size_bytes - needed_bytes;
    if (rest >= BLOCK_LEAST_BYTES) {
        size_bytes = needed_bytes;
        list_link(heap, at + (place)needed_bytes, rest);
    } else {
        block_at(heap, at + (place)size_bytes)->word &= ~(uint64_t)BLOCK_PREVIOUS_FREE;
    }
    block_at(heap, at)->word = word_of(at, size_bytes, flags);
}

/* The free block in front of one whose word says that there is one. */
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

/* Makes a block free, merged with its neighbours. */
inline_always void release(struct cairn_tlsf *heap, const struct used *used)
{
    place at = used->at;
    size_t size = used->size_bytes;
    struct block *behind = used->behind;
    place end = at + (place)size;
    heap->free_bytes += size;
    if (used->word & BLOCK_PREVIOUS_FREE) {
        size_t previous;
        /* inside of a block from now on: see tlsf_block.h */
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

/* Takes a free block of at least that size out of its list. 0 when there is none. */
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

/* Counts a block that was put into use; its memory. */
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

/* What lies in front of the aligned place becomes a free block, so it is nothing or at least as
 * large as the least one. */
static size_t lead_before(const struct cairn_tlsf *heap, place at, size_t align)
{
    uintptr_t memory = (uintptr_t)block_memory(block_at(heap, at));
    size_t lead = align_up(memory, align) - memory;
    return lead == TLSF_GRAIN_BYTES ? lead + align : lead;
}

static void *allocate_aligned(struct cairn_tlsf *heap, size_t size, size_t align)
{
    size_t most = heap->largest_bytes - BLOCK_WORD_BYTES;
    if (unlikely(size > most || align > most || size + align + TLSF_GRAIN_BYTES > most))
        return NULL;
    size_t needed = block_size_for(size);
    size_t found;
    place at = take(heap, needed + align + TLSF_GRAIN_BYTES, &found);
    if (unlikely(at == 0))
        return NULL;
    size_t lead = lead_before(heap, at, align);
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

static void shrink(struct cairn_tlsf *heap, const struct used *used, size_t needed_bytes)
{
    size_t rest = used->size_bytes - needed_bytes;
    if (rest < BLOCK_LEAST_BYTES)
        return;
    place tail = used->at + (place)needed_bytes;
    block_at(heap, used->at)->word =
        word_of(used->at, needed_bytes, (unsigned)used->word & BLOCK_PREVIOUS_FREE);
    block_at(heap, tail)->word = word_of(tail, rest, 0);
    release(heap, &(struct used){tail, word_of(tail, rest, 0), rest, used->behind, tail});
}

/* In place, shrinking or growing into the free block behind. */
static bool resize(struct cairn_tlsf *heap, const struct used *used, size_t needed_bytes)
{
    if (needed_bytes <= used->size_bytes) {
        shrink(heap, used, needed_bytes);
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

/* Grows into the free block in front, and the one behind, by moving the content down: for when no
 * other block is large enough. NULL when these are not, either. */
static cold void *slide(struct cairn_tlsf *heap, const struct used *used, size_t needed_bytes)
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
    block->word |= BLOCK_FREE; /* inside of a block from now on */
    void *memory = block_memory(block_at(heap, at));
    __builtin_memmove(memory, block_memory(block), used->size_bytes - BLOCK_WORD_BYTES);
    occupy(heap, at, all, needed_bytes, 0);
    if (!behind_free && all - needed_bytes >= BLOCK_LEAST_BYTES)
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
    return possible && resize(heap, &used, block_size_for(size)) ? pointer : NULL;
}

static void *reallocate(struct cairn_tlsf *heap, void *pointer, size_t size)
{
    struct used used = used_block(heap, pointer, "realloc");
    if (size > heap->largest_bytes - BLOCK_WORD_BYTES)
        return NULL;
    size_t needed = block_size_for(size);
    if (resize(heap, &used, needed))
        return pointer;
    size_t found;
    place at = take(heap, needed, &found);
    if (at == 0)
        return slide(heap, &used, needed);
    occupy(heap, at, found, needed, 0);
    void *memory = give_out(heap, at);
    __builtin_memcpy(memory, pointer, used.size_bytes - BLOCK_WORD_BYTES);
    cairn_tlsf_free(heap, pointer);
    return memory;
}

void *tlsf_request_meet(struct cairn_tlsf *heap, const struct tlsf_request *request)
{
    if (request->pointer != NULL)
        return reallocate(heap, request->pointer, request->size_bytes);
    if (request->align_bytes > TLSF_GRAIN_BYTES)
        return allocate_aligned(heap, request->size_bytes, request->align_bytes);
    return allocate(heap, request->size_bytes);
}

bool tlsf_may_try_again(const struct cairn_tlsf *heap, size_t size_bytes)
{
    return heap->out_of_memory != NULL && size_bytes <= heap->largest_bytes - BLOCK_WORD_BYTES &&
           heap->out_of_memory(heap->out_of_memory_context, size_bytes);
}

cold void *tlsf_request_again(struct cairn_tlsf *heap, void *pointer, size_t size, size_t align)
{
    struct tlsf_request request = {pointer, size, align};
    void *memory = NULL;
    while (memory == NULL && tlsf_may_try_again(heap, size))
        memory = tlsf_request_meet(heap, &request);
    if (memory == NULL)
        tlsf_note_no_memory();
    return memory;
}

api size_t cairn_tlsf_usable(const struct cairn_tlsf *heap, const void *pointer)
{
    if (pointer == NULL)
        return 0;
    return used_block(heap, pointer, "usable size").size_bytes - BLOCK_WORD_BYTES;
}
