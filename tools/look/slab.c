// The state of each slot of a slab (src/heap/slab.h, packed.h), and the sampled blocks
// (src/watch/guarded_slots.h).
#include "look.h"

#include <string.h>

enum { COLD_MOST = 64 + 512 * 8, REMOTE_MOST = 64, REMOTE_WORDS_MOST = 8 };

bool heap_is_frozen(struct look *look, uint64_t heap)
{
    uint64_t generation;
    return heap != 0 &&
           read_field(look->target, heap, look->library->heap.heap_generation_field, &generation) &&
           generation != look->library->generation;
}

const char *heap_owner(struct look *look, uint64_t heap)
{
    const struct heap_layout *layout = &look->library->heap;
    uint64_t state;
    bool is_frozen = heap_is_frozen(look, heap);
    if (!read_field(look->target, heap, layout->heap_state, &state))
        return "unknown";
    return state == layout->state_unused    ? "unused"
           : is_frozen                      ? "frozen"
           : state == layout->state_active  ? "alive"
           : state == layout->state_orphan  ? "ended"
           : state == layout->state_busy    ? "borrowed"
           : state == layout->state_posted  ? "borrowed"
           : state == layout->state_program ? "program"
                                            : "unknown";
}

void walk_heaps(struct look *look, heap_seen *seen, void *context)
{
    uint64_t heap = 0;
    (void)read_small(look->target, address_of(look->library->heap.all_heaps), &heap, 8);
    for (size_t i = 0; heap != 0 && i < HEAPS_MOST && seen(look, heap, context); i++)
        if (!read_field(look->target, heap, look->library->heap.heap_next, &heap))
            return;
}

// What this process has freed of a slab whose heap is frozen, a bit a slot; none, else.
static void read_frozen(struct look *look, const struct span_view *slab, uint64_t *words)
{
    const struct heap_layout *heap = &look->library->heap;
    memset(words, 0, REMOTE_WORDS_MOST * sizeof *words);
    unsigned char remote[REMOTE_MOST];
    if (look->library->generation == 0 || !heap_is_frozen(look, slab->heap) ||
        !read_small(look->target, slab->remote, remote, heap->remote_bytes) ||
        field(remote, heap->remote_generation) != look->library->generation ||
        heap->remote_words.bytes > REMOTE_WORDS_MOST * sizeof *words)
        return;
    memcpy(words, remote + heap->remote_words.offset, heap->remote_words.bytes);
}

static enum slot_state state_of(const struct heap_layout *heap, unsigned char link)
{
    if (link == heap->link_live || link == heap->link_profiled)
        return SLOT_IS_LIVE;
    if (link == heap->link_remote)
        return SLOT_IS_REMOTE;
    return link == heap->link_quarantined ? SLOT_IS_QUARANTINED : SLOT_IS_FREE;
}

static bool read_plain(struct look *look, const struct span_view *slab, struct slab_slots *slots)
{
    const struct heap_layout *heap = &look->library->heap;
    unsigned char cold[COLD_MOST];
    uint64_t frozen[REMOTE_WORDS_MOST];
    uint64_t capacity = look->library->class_capacity[slab->size_class];
    slots->size_bytes = look->library->class_bytes[slab->size_class];
    slots->count = capacity;
    size_t bytes = heap->links_at + 1 + (size_t)capacity;
    if (slab->owner == 0 || slab->limit <= 1) { // kept for later, or just made
        memset(slots->states, slab->owner == 0 ? SLOT_IS_FREE : SLOT_IS_UNUSED, capacity);
    } else {
        if (bytes > sizeof cold || !read_small(look->target, slab->cold, cold, bytes))
            return false;
        read_frozen(look, slab, frozen);
        const unsigned char *links = cold + heap->links_at;
        for (uint64_t slot = 1; slot <= capacity; slot++) {
            enum slot_state state =
                slot < slab->limit ? state_of(heap, links[slot]) : SLOT_IS_UNUSED;
            if (frozen[(slot - 1) / 64] >> (slot - 1) % 64 & 1)
                state = SLOT_IS_FREE;
            slots->states[slot - 1] = (unsigned char)state;
        }
    }
    for (uint64_t i = 0; i < capacity; i++)
        slots->counts[slots->states[i]]++;
    return true;
}

static bool read_packed(struct look *look, const struct span_view *slab, struct slab_slots *slots)
{
    const struct heap_layout *heap = &look->library->heap;
    uint64_t words[512];
    uint64_t limit = slab->limit < heap->packed_words ? slab->limit : heap->packed_words;
    slots->size_bytes = heap->packed_bytes;
    slots->count = (uint64_t)heap->packed_words * 64;
    uint64_t claimed_at;
    if (slots->count > SLOTS_MOST ||
        !read_field(look->target, slab->cold, heap->own_claimed_at, &claimed_at) ||
        !read_small(look->target, slab->cold + heap->packed_words_at, words, limit * 8))
        return false;
    uint64_t claimed_word = (claimed_at - slab->start) / heap->packed_bytes / 64;
    if (claimed_at != 0 && claimed_word < limit)
        words[claimed_word] |= slab->claimed; // free, in the hands of its thread
    for (uint64_t i = 0; i < slots->count; i++) {
        enum slot_state state = i / 64 >= limit               ? SLOT_IS_UNUSED
                                : words[i / 64] >> i % 64 & 1 ? SLOT_IS_FREE
                                                              : SLOT_IS_LIVE;
        if (slab->owner == 0)
            state = SLOT_IS_FREE;
        slots->states[i] = (unsigned char)state;
        slots->counts[state]++;
    }
    return true;
}

bool read_slots(struct look *look, const struct span_view *slab, struct slab_slots *slots)
{
    memset(slots->counts, 0, sizeof slots->counts);
    bool read = slab->packed ? read_packed(look, slab, slots) : read_plain(look, slab, slots);
    if (!read)
        look->unreadable++;
    return read;
}

// A slot may lie on several pages. A page without any counts as one whose slots are all the same.
static void add_slot(struct slab_pages *pages, uint64_t start, uint64_t end, enum slot_state state)
{
    for (uint64_t at = start; at < end;) {
        struct slab_page *page = &pages->pages[at / SLAB_PAGE_BYTES];
        uint64_t page_end = (at / SLAB_PAGE_BYTES + 1) * SLAB_PAGE_BYTES;
        uint64_t piece = (page_end < end ? page_end : end) - at;
        if (state == SLOT_IS_LIVE)
            page->live_bytes = (uint16_t)(page->live_bytes + piece);
        page->all_remote &= state == SLOT_IS_REMOTE;
        at += piece;
    }
}

void read_slab_pages(struct look *look, const struct span_view *slab,
                     const struct slab_slots *slots, struct slab_pages *pages)
{
    uint64_t used = slab->packed ? slab->limit * 64 : slab->limit - (slab->limit != 0);
    uint64_t used_bytes = used * slots->size_bytes;
    pages->count = slab->bytes / SLAB_PAGE_BYTES;
    pages->resident_bytes = 0;
    if (pages->count > SLAB_PAGES_MOST || slots->count * slots->size_bytes > slab->bytes)
        pages->count = 0;
    for (uint64_t i = 0; i < pages->count; i++) {
        uint64_t start = i * SLAB_PAGE_BYTES, resident;
        bool known = count_resident(look->target, slab->start + start, SLAB_PAGE_BYTES, &resident);
        bool is_there = known ? resident != 0 : start < used_bytes;
        pages->pages[i] = (struct slab_page){.resident = is_there, .all_remote = true};
        pages->resident_bytes += is_there ? SLAB_PAGE_BYTES : 0;
    }
    for (uint64_t i = 0; i < slots->count && pages->count != 0; i++)
        add_slot(pages, i * slots->size_bytes, (i + 1) * slots->size_bytes,
                 (enum slot_state)slots->states[i]);
}

bool slab_is_aside(struct look *look, const struct span_view *slab)
{
    const struct heap_layout *heap = &look->library->heap;
    uint64_t use;
    return read_field(look->target, slab->remote, heap->remote_use, &use) &&
           (use & heap->use_mask) == heap->use_aside;
}

void walk_guarded(struct look *look, guarded_seen *seen, void *context)
{
    const struct guarded_layout *guarded = &look->library->guarded;
    const struct page_layout *page = &look->library->page;
    uint64_t pool = address_of(guarded->pool), slots = 0, start = 0;
    if (!read_field(look->target, pool, guarded->pool_slots, &slots) ||
        !read_field(look->target, pool, guarded->pool_start, &start) || start == 0)
        return;
    for (uint64_t i = 0; i < guarded->slot_count; i++) {
        uint64_t slot = slots + i * guarded->slot_bytes, state, turn, block, bytes;
        if (!read_field(look->target, slot, guarded->slot_state, &state) ||
            !read_field(look->target, slot, guarded->slot_turn, &turn) ||
            !read_field(look->target, slot, page->span_base, &block) ||
            !read_field(look->target, slot, page->span_size_bytes, &bytes)) {
            look->unreadable++;
            return;
        }
        if (state == guarded->state_live || turn != 0)
            seen(look, block, bytes, state == guarded->state_live, context);
    }
}
