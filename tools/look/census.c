// Counts a heap: by class, by thread heap and by kind of span, and its free memory.
#include "look.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 20, LOGS = 48, ROWS = 257 };

struct class_row {
    uint64_t slabs, kept, bytes, resident, counts[SLOT_STATES];
    uint64_t sparse_slabs, sparse_bytes, sparse_live; // slabs that are at most one eighth full
    uint64_t idle_bytes; // pages without a live block, in slabs that are not kept
};

struct heap_row {
    uint64_t address, slabs, bytes, live, live_bytes, remote, remote_bytes, large_bytes;
    bool listed;
};

struct kind_row {
    uint64_t count, bytes, resident, dirty_bytes, largest;
    uint64_t log_count[LOGS], log_bytes[LOGS]; // by the highest bit of the length
};

struct large_block {
    uint64_t address, bytes;
};

static struct class_row classes[ROWS];
static struct kind_row kinds[SPAN_KINDS];
static struct heap_row *heaps;
static size_t heap_count, heaps_most;
static struct large_block largest[LARGEST];
static size_t largest_count;
static uint64_t guarded[2], guarded_bytes[2]; // freed, live
static bool *is_metadata;                     // by the number of the mapping
static bool each_span;                        // print a line for each span

static void note_metadata(const struct look *look, uint64_t address)
{
    const struct mapping *mapping = mapping_of(look->target, address);
    if (mapping && is_metadata)
        is_metadata[mapping - look->target->mappings] = true;
}

// Returns the row of a heap. The search is linear: heaps are few, and slabs of one heap come in
// runs.
static struct heap_row *heap_row_of(struct look *look, uint64_t address)
{
    static size_t last;
    if (last < heap_count && heaps[last].address == address)
        return &heaps[last];
    spend(look->target, heap_count);
    for (last = 0; last < heap_count; last++)
        if (heaps[last].address == address)
            return &heaps[last];
    heaps = with_room(heaps, heap_count, &heaps_most, sizeof *heaps);
    heaps[heap_count] = (struct heap_row){.address = address};
    last = heap_count++;
    return &heaps[last];
}

static uint64_t idle_bytes_of(const struct span_view *slab, const struct slab_slots *slots)
{
    uint64_t idle = slab->bytes, page_end = 0; // the end of the last page with a live block
    for (uint64_t i = 0; i < slots->count; i++) {
        if (slots->states[i] != SLOT_IS_LIVE)
            continue;
        uint64_t first = i * slots->size_bytes / 4096 * 4096;
        uint64_t end = ((i + 1) * slots->size_bytes + 4095) / 4096 * 4096;
        first = first < page_end ? page_end : first;
        if (end > first)
            idle -= end - first;
        page_end = end > page_end ? end : page_end;
    }
    return idle;
}

static void see_slab(struct look *look, const struct span_view *slab, struct span_use *use)
{
    static struct slab_slots slots;
    struct class_row *row =
        &classes[slab->packed ? look->library->heap.class_count : slab->size_class];
    if (!read_slots(look, slab, &slots))
        return;
    bool is_void =
        slab->size_class == look->library->heap.zero_size_class; // the class has no memory
    uint64_t bytes = is_void ? 0 : slab->bytes;
    use->size_bytes = is_void ? 0 : slots.size_bytes;
    use->slots = slots.count;
    use->live = slots.counts[SLOT_IS_LIVE];
    use->live_bytes = use->live * use->size_bytes;
    if (!count_resident(look->target, slab->start, bytes, &use->resident_bytes))
        use->resident_bytes = 0;
    row->slabs++;
    row->kept += slab->owner == 0;
    row->bytes += bytes;
    row->resident += use->resident_bytes;
    for (int i = 0; i < SLOT_STATES; i++)
        row->counts[i] += slots.counts[i];
    note_metadata(look, slab->side);
    if (slab->owner == 0)
        return;
    if (use->live * 8 <= slots.count) {
        row->sparse_slabs++;
        row->sparse_bytes += bytes;
        row->sparse_live += use->live;
    }
    use->idle_bytes = is_void ? 0 : idle_bytes_of(slab, &slots);
    row->idle_bytes += use->idle_bytes;
    struct heap_row *heap = heap_row_of(look, slab->heap);
    heap->slabs++;
    heap->bytes += bytes;
    heap->live += use->live;
    heap->live_bytes += use->live_bytes;
    heap->remote += slots.counts[SLOT_IS_REMOTE];
    heap->remote_bytes += slots.counts[SLOT_IS_REMOTE] * slots.size_bytes;
}

static void note_largest(const struct span_view *span)
{
    size_t place = largest_count < LARGEST ? largest_count++ : LARGEST - 1;
    if (largest[place].bytes > span->bytes)
        return;
    for (; place > 0 && largest[place - 1].bytes < span->bytes; place--)
        largest[place] = largest[place - 1];
    largest[place] = (struct large_block){span->start, span->bytes};
}

static void see(struct look *look, const struct span_view *span, void *context)
{
    (void)context;
    struct kind_row *row = &kinds[span->kind];
    struct span_use use = {0};
    note_metadata(look, span->header);
    row->count++;
    row->bytes += span->bytes;
    row->dirty_bytes += span->dirty_pages << look->library->page.page_shift;
    row->largest = span->bytes > row->largest ? span->bytes : row->largest;
    for (int log = 0; log < LOGS; log++)
        if (span->bytes >> log == 1) {
            row->log_count[log]++;
            row->log_bytes[log] += span->bytes;
        }
    if (span->kind == SPAN_IS_SLAB)
        see_slab(look, span, &use);
    else if (count_resident(look->target, span->start, span->bytes, &use.resident_bytes))
        row->resident += use.resident_bytes;
    if (each_span)
        print_map_line(look, span, &use);
    if (span->kind != SPAN_IS_LARGE && span->kind != SPAN_IS_HUGE)
        return;
    note_largest(span);
    if (span->heap != 0) { // a block of a private heap
        struct heap_row *heap = heap_row_of(look, span->heap);
        heap->live++;
        heap->live_bytes += span->bytes;
        heap->large_bytes += span->bytes;
    }
}

static void see_guarded(struct look *look, uint64_t block, uint64_t bytes, bool live, void *context)
{
    (void)look, (void)block, (void)context;
    guarded[live]++;
    guarded_bytes[live] += bytes;
}

static void print_resident(const struct look *look, uint64_t bytes)
{
    if (look->target->residence >= 0)
        printf("\tresident_bytes=%" PRIu64, bytes);
    putchar('\n');
}

static void print_classes(struct look *look)
{
    const struct library *library = look->library;
    for (uint32_t i = 0; i <= library->heap.class_count; i++) {
        const struct class_row *row = &classes[i];
        bool packed = i == library->heap.class_count, is_void = i == library->heap.zero_size_class;
        uint64_t size = is_void ? 0 : packed ? library->heap.packed_bytes : library->class_bytes[i];
        if (row->slabs == 0)
            continue;
        uint64_t slots = 0;
        for (int j = 0; j < SLOT_STATES; j++)
            slots += row->counts[j];
        printf("class\tindex=%u\tpacked=%d\tsize_bytes=%" PRIu64 "\tslabs=%" PRIu64
               "\tkept_slabs=%" PRIu64 "\tslab_bytes=%" PRIu64 "\tslots=%" PRIu64 "\tlive=%" PRIu64
               "\tfree=%" PRIu64 "\tremote=%" PRIu64 "\tquarantined=%" PRIu64 "\tunused=%" PRIu64
               "\tlive_bytes=%" PRIu64 "\tsparse_slabs=%" PRIu64 "\tsparse_bytes=%" PRIu64
               "\tsparse_live=%" PRIu64 "\tidle_bytes=%" PRIu64,
               i, packed, size, row->slabs, row->kept, row->bytes, slots, row->counts[SLOT_IS_LIVE],
               row->counts[SLOT_IS_FREE] + row->counts[SLOT_IS_BORROWED],
               row->counts[SLOT_IS_REMOTE], row->counts[SLOT_IS_QUARANTINED],
               row->counts[SLOT_IS_UNUSED], row->counts[SLOT_IS_LIVE] * size, row->sparse_slabs,
               row->sparse_bytes, row->sparse_live, row->idle_bytes);
        print_resident(look, row->resident);
    }
}

static void add_kept(struct look *look, const struct span_view *span, void *context)
{
    uint64_t *bytes = context;
    (void)look;
    *bytes += span->bytes < (uint64_t)1 << 32 ? span->bytes : 0;
}

// Returns: the bytes of the empty slabs and freed runs that the heap keeps.
static uint64_t kept_of(struct look *look, uint64_t heap)
{
    uint64_t bytes = 0;
    walk_kept(look, heap, add_kept, &bytes);
    return bytes;
}

// Returns: whether other threads freed blocks of the heap that it has not collected.
static bool has_mail(struct look *look, uint64_t heap)
{
    struct layout_field place = look->library->heap.heap_mailboxes;
    uint64_t mailboxes[64];
    if (place.bytes > sizeof mailboxes ||
        !read_small(look->target, heap + place.offset, mailboxes, place.bytes))
        return false;
    for (size_t i = 0; i < place.bytes / sizeof *mailboxes; i++)
        if (mailboxes[i] != 0)
            return true;
    return false;
}

static bool list_heap(struct look *look, uint64_t heap, void *context)
{
    (void)context;
    struct heap_row *row = heap_row_of(look, heap);
    if (row->listed)
        return false;
    row->listed = true;
    note_metadata(look, heap);
    return true;
}

static void print_heaps(struct look *look)
{
    for (size_t i = 0; i < heap_count; i++) {
        const struct heap_row *row = &heaps[i];
        const char *words = heap_owner(look, row->address);
        if (strcmp(words, "unused") == 0)
            continue;
        printf("heap\taddress=%#" PRIx64 "\towner=%s\tslabs=%" PRIu64 "\tslab_bytes=%" PRIu64
               "\tlive=%" PRIu64 "\tlive_bytes=%" PRIu64 "\tremote=%" PRIu64
               "\tremote_bytes=%" PRIu64 "\tlarge_bytes=%" PRIu64 "\tkept_bytes=%" PRIu64
               "\tmail=%d\n",
               row->address, words, row->slabs, row->bytes, row->live, row->live_bytes, row->remote,
               row->remote_bytes, row->large_bytes, kept_of(look, row->address),
               has_mail(look, row->address));
    }
}

static void print_kinds(struct look *look)
{
    for (int i = 0; i < SPAN_KINDS; i++) {
        if (i == SPAN_IS_SLAB || i == SPAN_IS_GUARDED)
            continue;
        printf("kind\tname=%s\tcount=%" PRIu64 "\tbytes=%" PRIu64 "\tdirty_bytes=%" PRIu64
               "\tlargest_bytes=%" PRIu64,
               span_kind_name((enum span_kind)i), kinds[i].count, kinds[i].bytes,
               kinds[i].dirty_bytes, kinds[i].largest);
        print_resident(look, kinds[i].resident);
        for (int log = 0; log < LOGS; log++)
            if (kinds[i].log_count[log] != 0)
                printf("length\tname=%s\tfrom_bytes=%" PRIu64 "\tcount=%" PRIu64 "\tbytes=%" PRIu64
                       "\n",
                       span_kind_name((enum span_kind)i), (uint64_t)1 << log,
                       kinds[i].log_count[log], kinds[i].log_bytes[log]);
    }
    for (size_t i = 0; i < largest_count; i++)
        printf("largest\taddress=%#" PRIx64 "\tbytes=%" PRIu64 "\n", largest[i].address,
               largest[i].bytes);
    printf("guarded\tlive=%" PRIu64 "\tlive_bytes=%" PRIu64 "\tfreed=%" PRIu64 "\n", guarded[1],
           guarded_bytes[1], guarded[0]);
}

static uint64_t state_field(struct look *look, struct layout_field place)
{
    uint64_t value;
    (void)read_field(look->target, address_of(look->library->page.state), place, &value);
    return value;
}

// Returns: the sum of a field over all shards of the page layer.
static uint64_t shards_sum(struct look *look, struct layout_field place)
{
    enum { LIMIT = 4096 };
    const struct page_layout *page = &look->library->page;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < page->shard_limit && i < LIMIT; i++) {
        uint64_t value;
        (void)read_field(look->target, address_of(page->shards) + i * page->shard_bytes, place,
                         &value);
        sum += value;
    }
    return sum;
}

static uint64_t word_at(struct look *look, const void *pointer)
{
    uint64_t value;
    return read_small(look->target, address_of(pointer), &value, 8) ? value : 0;
}

// Returns: the resident bytes of the mappings with headers, links, heaps and the page map. Mappings
// of arenas are left out: arenas lend memory for metadata only when the system has none.
static uint64_t metadata_resident(struct look *look)
{
    const struct page_layout *page = &look->library->page;
    uint64_t count = word_at(look, page->arena_count);
    note_metadata(look, address_of(page->page_map) + page->map_root);
    for (uint64_t i = 0; i < count && i < page->arena_limit; i++) {
        uint64_t arena, base;
        if (!read_small(look->target, address_of(page->arenas) + 8 * i, &arena, 8) ||
            !read_field(look->target, arena, page->arena_base, &base))
            continue;
        note_metadata(look, arena);
        const struct mapping *mapping = mapping_of(look->target, base);
        if (mapping)
            is_metadata[mapping - look->target->mappings] = false;
    }
    return mappings_resident(look->target, is_metadata);
}

static void print_pages(struct look *look)
{
    const struct page_layout *page = &look->library->page;
    unsigned shift = page->page_shift;
    uint64_t kept = word_at(look, page->kept_outside_pages);
    printf("pages\treserved_bytes=%" PRIu64 "\tcommitted_bytes=%" PRIu64 "\tfree_bytes=%" PRIu64
           "\tdirty_bytes=%" PRIu64 "\thuge_bytes=%" PRIu64 "\thuge_count=%" PRIu64
           "\tpurged_bytes=%" PRIu64 "\tpurges=%" PRIu64 "\tmetadata_bytes=%" PRIu64
           "\tkept_outside_bytes=%" PRIu64,
           state_field(look, page->state_reserved_pages) << shift,
           state_field(look, page->state_committed_pages) << shift,
           shards_sum(look, page->shard_free_pages) << shift,
           shards_sum(look, page->shard_dirty_pages) << shift,
           state_field(look, page->state_huge_pages) << shift,
           state_field(look, page->state_huge_count),
           state_field(look, page->state_purged_pages) << shift,
           state_field(look, page->state_purges), word_at(look, page->meta_bytes), kept << shift);
    if (look->target->residence >= 0)
        printf("\tmetadata_resident_bytes=%" PRIu64, metadata_resident(look));
    putchar('\n');
}

static void print_system_calls(struct look *look)
{
    static const char *const names[] = {"map", "protect", "unmap", "advise", "remap"};
    uint64_t counts[sizeof names / sizeof *names] = {0};
    const struct library_layout *root = &look->library->root;
    size_t count = root->system_call_kinds < sizeof names / sizeof *names
                       ? root->system_call_kinds
                       : sizeof names / sizeof *names;
    (void)read_small(look->target, address_of(root->system_calls), counts, count * 8);
    printf("calls");
    for (size_t i = 0; i < count; i++)
        printf("\t%s=%" PRIu64, names[i], counts[i]);
    putchar('\n');
}

void census(struct look *look, bool each)
{
    each_span = each;
    is_metadata = take_memory(NULL, look->target->mapping_count + 1);
    memset(is_metadata, 0, look->target->mapping_count + 1);
    walk_spans(look, see, NULL);
    walk_guarded(look, see_guarded, NULL);
    walk_heaps(look, list_heap, NULL);
    print_target(look);
    print_classes(look);
    print_heaps(look);
    print_kinds(look);
    print_pages(look);
    print_system_calls(look);
    printf("doubts\ttorn=%" PRIu64 "\tunreadable=%" PRIu64 "\n", look->torn, look->unreadable);
}
