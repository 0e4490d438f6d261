// Reads the state of each slot of a slab (src/heap/slab.h), and the guarded blocks
// (src/watch/guards.h).
#include "look.h"

#include <string.h>

enum { SIDE_MAX = 64 + 512 * 8 };

bool heap_is_inherited(struct look *look, uint64_t heap)
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
    bool is_inherited = heap_is_inherited(look, heap);
    if (!read_field(look->target, heap, layout->heap_state, &state))
        return "unknown";
    return state == layout->state_unused    ? "unused"
           : is_inherited                   ? "inherited"
           : state == layout->state_active  ? "alive"
           : state == layout->state_orphan  ? "ended"
           : state == layout->state_busy    ? "borrowed"
           : state == layout->state_private ? "private"
                                            : "unknown";
}

void walk_heaps(struct look *look, heap_seen *seen, void *context)
{
    uint64_t heap = 0;
    (void)read_small(look->target, address_of(look->library->heap.all_heaps), &heap, 8);
    for (size_t i = 0; heap != 0 && i < HEAPS_MOST && seen(look, heap, context); i++) {
        spend(look->target, STEPS_OF_WORD);
        if (!read_field(look->target, heap, look->library->heap.heap_next, &heap))
            return;
    }
}

static enum slot_state state_of(const struct heap_layout *heap, unsigned char link)
{
    if (link == heap->link_live || link == heap->link_profiled)
        return SLOT_IS_LIVE;
    if (link == heap->link_remote)
        return SLOT_IS_REMOTE;
    if (link == heap->link_borrowed)
        return SLOT_IS_BORROWED;
    return link == heap->link_quarantined ? SLOT_IS_QUARANTINED : SLOT_IS_FREE;
}

static bool read_plain(struct look *look, const struct span_view *slab, struct slab_slots *slots)
{
    const struct heap_layout *heap = &look->library->heap;
    unsigned char cold[SIDE_MAX];
    uint64_t capacity = look->library->class_capacity[slab->size_class];
    slots->size_bytes = look->library->class_bytes[slab->size_class];
    slots->count = capacity;
    size_t bytes = heap->links_at + 1 + (size_t)capacity;
    if (slab->owner == 0 || slab->limit <= 1) { // kept for later, or just made
        memset(slots->states, slab->owner == 0 ? SLOT_IS_FREE : SLOT_IS_UNUSED, capacity);
    } else {
        if (bytes > sizeof cold || !read_small(look->target, slab->side, cold, bytes))
            return false;
        const unsigned char *links = cold + heap->links_at;
        for (uint64_t slot = 1; slot <= capacity; slot++) {
            enum slot_state state =
                slot < slab->limit ? state_of(heap, links[slot]) : SLOT_IS_UNUSED;
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
    uint64_t limit = slab->limit != 0 ? slab->limit - 1 : 0;
    limit = limit < heap->packed_words ? limit : heap->packed_words;
    slots->size_bytes = heap->packed_bytes;
    slots->count = (uint64_t)heap->packed_words * 64;
    if (slots->count > SLOTS_MOST ||
        !read_small(look->target, slab->side + heap->packed_words_at, words, limit * 8))
        return false;
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
    spend(look->target, slots->count);
    if (!read)
        look->unreadable++;
    return read;
}

// Adds a slot to its pages, of which there may be several.
static void add_slot(struct slab_pages *pages, uint64_t start, uint64_t end, enum slot_state state)
{
    for (uint64_t at = start; at < end;) {
        struct slab_page *page = &pages->pages[at / SLAB_PAGE_BYTES];
        uint64_t page_end = (at / SLAB_PAGE_BYTES + 1) * SLAB_PAGE_BYTES;
        uint64_t piece = (page_end < end ? page_end : end) - at;
        if (state == SLOT_IS_LIVE)
            page->live_bytes = (uint16_t)(page->live_bytes + piece);
        at += piece;
    }
}

void read_slab_pages(struct look *look, const struct span_view *slab,
                     const struct slab_slots *slots, struct slab_pages *pages)
{
    uint64_t used = slab->limit - (slab->limit != 0);
    uint64_t used_bytes = used * slots->size_bytes * (slab->packed ? 64 : 1);
    pages->count = slab->bytes / SLAB_PAGE_BYTES;
    pages->resident_bytes = 0;
    if (pages->count > SLAB_PAGES_MAX || slots->count * slots->size_bytes > slab->bytes)
        pages->count = 0;
    for (uint64_t i = 0; i < pages->count; i++) {
        uint64_t start = i * SLAB_PAGE_BYTES, resident;
        bool known = count_resident(look->target, slab->start + start, SLAB_PAGE_BYTES, &resident);
        bool is_there = known ? resident != 0 : start < used_bytes;
        pages->pages[i] = (struct slab_page){.resident = is_there};
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
    return read_field(look->target, slab->cold_area, heap->cold_use, &use) &&
           (use & heap->use_mask) == heap->use_aside;
}

void walk_guarded(struct look *look, guarded_seen *seen, void *context)
{
    const struct guarded_layout *guarded = &look->library->guarded;
    const struct page_layout *page = &look->library->page;
    uint64_t pool = address_of(guarded->pool), slots = 0, start = 0, places = 0;
    if (!read_field(look->target, pool, guarded->pool_slots, &slots) ||
        !read_field(look->target, pool, guarded->pool_start, &start) || start == 0 ||
        !read_field(look->target, pool, guarded->pool_slot_bytes, &places))
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
        if (state != guarded->state_live && turn == 0)
            continue;
        uint64_t offset = block - (start + i * places); // in the pages of the slot
        if (offset < places && bytes <= places - offset)
            seen(look, block, bytes, state == guarded->state_live, context);
        else
            look->torn++;
    }
}
