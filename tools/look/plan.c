// Computes the memory that a purge (heap_release) by a thread without a heap would return now, by
// its source, and the memory that would remain. For a process, resident pages count; for a core
// file, which does not record residence, pages that may be resident.
//
// A free run is returned as a whole if one of its pages may be nonzero, together with the parts of
// the page map that describe only this run. In an arena with huge pages (src/page/arena.h) a run
// that reads as zero is returned too if a page of it is resident: a huge page is resident as a
// whole. Runs and empty slabs in the caches of threads are returned, and slabs without a live block
// in heaps that no thread holds: those of ended threads, and private heaps.
//
// Of slabs that a running thread does not allocate from, and of all slabs of ended threads, pages
// without a live block are returned. Of the other slabs only pages whose blocks were freed by other
// threads and not collected by the owner are returned, also blocks that another thread has
// borrowed. When the purge divides a huge page, Linux 6.12 and later return its pages of
// zeros, too; they are counted among what remains.
#include "look.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum action {
    GIVES_FREE_RUNS,
    GIVES_KEPT_RUNS,
    GIVES_KEPT_SLABS,
    GIVES_EMPTY_SLABS,
    GIVES_PRIVATE_SLABS,
    GIVES_SLAB_PAGES,
    GIVES_REVOKED,
    GIVES_PAGE_MAP,
    ACTIONS
};

enum stay {
    STAYS_LIVE_PAGES,
    STAYS_CURRENT,
    STAYS_PRIVATE,
    STAYS_INHERITED,
    STAYS_LARGE,
    STAYS_HUGE,
    STAYS_RUNS,
    STAYS_CLEAN,
    STAYS_GUARDED,
    STAYS
};

struct sum {
    uint64_t count, bytes;
};

struct heap_row {
    uint64_t address;
    const char *owner;
    struct sum kept, gives, idle; // pages without a live block that remain
};

struct kept_place {
    uint64_t header;
    size_t heap;
};

static struct sum actions[ACTIONS], stays[STAYS];
static struct heap_row *heaps;
static size_t heap_count, heaps_most;
static struct kept_place *kept;
static size_t kept_count, kept_most;
static struct {
    uint64_t start, end; // adjacent free runs, merged
    struct sum clean;    // runs that read as zero now
    bool dirty;
} run;
static struct arena_row {
    uint64_t start, end;
    bool asked; // for huge pages
} *arenas;
static size_t arena_count, arenas_most;

static void add(struct sum *sum, uint64_t bytes)
{
    sum->count += bytes != 0;
    sum->bytes += bytes;
}

static struct heap_row *row_of(struct look *look, uint64_t heap)
{
    static size_t last;
    if (last < heap_count && heaps[last].address == heap)
        return &heaps[last];
    spend(look->target, heap_count);
    for (last = 0; last < heap_count; last++)
        if (heaps[last].address == heap)
            return &heaps[last];
    heaps = with_room(heaps, heap_count, &heaps_most, sizeof *heaps);
    heaps[heap_count] = (struct heap_row){.address = heap, .owner = heap_owner(look, heap)};
    return &heaps[heap_count++];
}

static bool is_known(struct look *look, uint64_t heap)
{
    spend(look->target, heap_count);
    for (size_t i = 0; i < heap_count; i++)
        if (heaps[i].address == heap)
            return true;
    return false;
}

static void list_kept(struct look *look, const struct span_view *span, void *context)
{
    const size_t *heap = context;
    (void)look;
    kept = with_room(kept, kept_count, &kept_most, sizeof *kept);
    kept[kept_count++] = (struct kept_place){span->header, *heap};
}

// Lists a heap and the runs in its cache.
static bool list_heap(struct look *look, uint64_t heap, void *context)
{
    (void)context;
    if (is_known(look, heap))
        return false;
    size_t number = (size_t)(row_of(look, heap) - heaps);
    walk_kept(look, heap, list_kept, &number);
    return true;
}

static int by_header(const void *left, const void *right)
{
    const struct kept_place *a = left, *b = right;
    return a->header < b->header ? -1 : a->header > b->header;
}

static void add_to_keeper(uint64_t header, uint64_t bytes)
{
    const struct kept_place wanted = {header, 0};
    const struct kept_place *place =
        kept_count ? bsearch(&wanted, kept, kept_count, sizeof *kept, by_header) : NULL;
    if (place)
        add(&heaps[place->heap].kept, bytes);
}

static void list_arenas(struct look *look)
{
    const struct page_layout *page = &look->library->page;
    uint64_t count = 0;
    (void)read_small(look->target, address_of(page->arena_count), &count, sizeof count);
    for (uint64_t i = 0; i < count && i < page->arena_limit; i++) {
        uint64_t arena, base, pages, begun;
        if (!read_small(look->target, address_of(page->arenas) + 8 * i, &arena, 8) ||
            !read_field(look->target, arena, page->arena_base, &base) ||
            !read_field(look->target, arena, page->arena_pages, &pages) ||
            !read_field(look->target, arena, page->arena_begun, &begun))
            continue;
        arenas = with_room(arenas, arena_count, &arenas_most, sizeof *arenas);
        arenas[arena_count++] =
            (struct arena_row){base, base + (pages << page->page_shift), begun != 0};
    }
}

// Returns: the arena that contains the address, or NULL.
static const struct arena_row *arena_of(struct look *look, uint64_t address)
{
    static size_t last;
    if (last < arena_count && address - arenas[last].start < arenas[last].end - arenas[last].start)
        return &arenas[last];
    spend(look->target, arena_count);
    for (last = 0; last < arena_count; last++)
        if (address - arenas[last].start < arenas[last].end - arenas[last].start)
            return &arenas[last];
    return NULL;
}

static void end_run(struct look *look)
{
    const struct arena_row *arena = arena_of(look, run.start);
    bool goes = run.dirty || (run.clean.bytes != 0 && arena != NULL && arena->asked);
    struct sum *sum = goes ? &actions[GIVES_FREE_RUNS] : &stays[STAYS_CLEAN];
    sum->count += run.clean.count;
    sum->bytes += run.clean.bytes;
    if (goes)
        add(&actions[GIVES_PAGE_MAP], entries_resident(look, run.start, run.end - run.start));
    run.dirty = false;
    run.clean = (struct sum){0, 0};
    run.start = run.end = 0;
}

// Adds a span that the purge makes a free run, merged with adjacent free runs of its arena.
static void see_free(struct look *look, const struct span_view *span, bool dirty)
{
    if (span->start != run.end || arena_of(look, span->start) != arena_of(look, run.start)) {
        end_run(look);
        run.start = span->start;
    }
    run.end = span->start + span->bytes;
    run.dirty |= dirty;
}

static uint64_t resident_of(struct look *look, const struct span_view *span, uint64_t otherwise)
{
    uint64_t resident;
    return count_resident(look->target, span->start, span->bytes, &resident) ? resident : otherwise;
}

static bool is_in_use(const struct slab_slots *slots) { return slots->counts[SLOT_IS_LIVE] != 0; }

// Returns: the reason why the pages of a slab without a live block remain; STAYS when they are
// returned.
static enum stay stay_of(const char *owner, bool aside)
{
    if (strcmp(owner, "inherited") == 0)
        return STAYS_INHERITED;
    if (strcmp(owner, "private") == 0)
        return STAYS_PRIVATE;
    return strcmp(owner, "ended") == 0 || aside ? STAYS : STAYS_CURRENT;
}

static void see_pages(struct look *look, const struct span_view *slab, struct slab_pages *pages)
{
    struct heap_row *row = row_of(look, slab->heap);
    enum stay stay = stay_of(row->owner, slab_is_aside(look, slab));
    for (uint64_t i = 0; i < pages->count; i++) {
        const struct slab_page *page = &pages->pages[i];
        if (!page->resident)
            continue;
        if (page->live_bytes != 0) {
            add(&stays[STAYS_LIVE_PAGES], SLAB_PAGE_BYTES);
        } else if (stay == STAYS) {
            add(&actions[GIVES_SLAB_PAGES], SLAB_PAGE_BYTES);
            add(&row->gives, SLAB_PAGE_BYTES);
        } else {
            add(&stays[stay], SLAB_PAGE_BYTES);
            add(&row->idle, SLAB_PAGE_BYTES);
        }
    }
}

static void see_slab(struct look *look, const struct span_view *slab)
{
    static struct slab_slots slots;
    static struct slab_pages pages;
    if (slab->size_class == look->library->heap.zero_size_class && !slab->packed)
        return; // the class has no memory
    if (!read_slots(look, slab, &slots))
        return;
    read_slab_pages(look, slab, &slots, &pages);
    if (slab->owner == 0) {
        add(&actions[GIVES_KEPT_SLABS], pages.resident_bytes);
        add_to_keeper(slab->header, pages.resident_bytes);
        see_free(look, slab, true);
        return;
    }
    note_pins(look, slab, &slots, &pages);
    struct heap_row *row = row_of(look, slab->heap);
    bool is_private = strcmp(row->owner, "private") == 0;
    if (!is_in_use(&slots) && (is_private || strcmp(row->owner, "ended") == 0)) {
        add(&actions[is_private ? GIVES_PRIVATE_SLABS : GIVES_EMPTY_SLABS], pages.resident_bytes);
        add(&row->gives, pages.resident_bytes);
        see_free(look, slab, true);
        return;
    }
    see_pages(look, slab, &pages);
}

static void see(struct look *look, const struct span_view *span, void *context)
{
    unsigned shift = look->library->page.page_shift;
    uint64_t dirty_bytes = span->dirty_pages << shift;
    uint64_t resident =
        span->kind == SPAN_IS_SLAB
            ? 0
            : resident_of(look, span,
                          span->kind == SPAN_IS_FREE || span->kind == SPAN_IS_REVOKED
                              ? dirty_bytes
                              : span->bytes);
    (void)context;
    if (span->kind == SPAN_IS_SLAB) {
        see_slab(look, span);
    } else if (span->kind == SPAN_IS_FREE) {
        see_free(look, span, dirty_bytes != 0);
        add(dirty_bytes != 0 ? &actions[GIVES_FREE_RUNS] : &run.clean, resident);
    } else if (span->kind == SPAN_IS_KEPT) {
        add(&actions[GIVES_KEPT_RUNS], resident);
        add_to_keeper(span->header, resident);
        see_free(look, span, true);
    } else if (span->kind == SPAN_IS_REVOKED) {
        add(&actions[GIVES_REVOKED], resident);
    } else {
        add(&stays[span->kind == SPAN_IS_LARGE  ? STAYS_LARGE
                   : span->kind == SPAN_IS_HUGE ? STAYS_HUGE
                                                : STAYS_RUNS],
            resident);
    }
}

static void see_guarded(struct look *look, uint64_t block, uint64_t bytes, bool live, void *context)
{
    uint64_t page = look->target->page_bytes, resident;
    uint64_t start = block / page * page;
    (void)context;
    if (!count_resident(look->target, start, block + (bytes ? bytes : 1) - start, &resident))
        resident = live ? (block + bytes - start + page - 1) / page * page : 0;
    add(&stays[STAYS_GUARDED], resident);
}

static void print_sums(void)
{
    static const char *const gives[ACTIONS] = {
        [GIVES_FREE_RUNS] = "free_runs",   [GIVES_KEPT_RUNS] = "kept_blocks",
        [GIVES_KEPT_SLABS] = "kept_slabs", [GIVES_EMPTY_SLABS] = "empty_slabs",
        [GIVES_PRIVATE_SLABS] = "heaps",   [GIVES_SLAB_PAGES] = "slab_pages",
        [GIVES_REVOKED] = "revoked",       [GIVES_PAGE_MAP] = "page_map",
    };
    static const char *const words[STAYS] = {
        [STAYS_LIVE_PAGES] = "live_pages",
        [STAYS_CURRENT] = "current",
        [STAYS_PRIVATE] = "heaps",
        [STAYS_INHERITED] = "inherited",
        [STAYS_LARGE] = "large",
        [STAYS_HUGE] = "huge",
        [STAYS_RUNS] = "runs",
        [STAYS_CLEAN] = "clean_runs",
        [STAYS_GUARDED] = "guarded",
    };
    for (int i = 0; i < ACTIONS; i++)
        printf("action\tname=%s\tcount=%" PRIu64 "\tbytes=%" PRIu64 "\n", gives[i],
               actions[i].count, actions[i].bytes);
    for (int i = 0; i < STAYS; i++)
        printf("stay\tname=%s\tcount=%" PRIu64 "\tbytes=%" PRIu64 "\n", words[i], stays[i].count,
               stays[i].bytes);
}

// Prints the control socket that the process serves.
static void print_socket(struct look *look)
{
    const struct library_layout *root = &look->library->root;
    uint64_t place = address_of(root->control_place), owner = 0;
    char path[128] = "";
    size_t most = root->control_path.bytes < sizeof path ? root->control_path.bytes : 0;
    (void)read_field(look->target, place, root->control_owner, &owner);
    if (owner == 0 || !read_small(look->target, place + root->control_path.offset, path, most))
        return;
    path[sizeof path - 1] = '\0';
    for (char *at = path; *at != '\0'; at++)
        if ((unsigned char)*at < ' ')
            return;
    printf("socket\towner=%" PRIu64 "\tpath=%s\n", owner, path);
}

void plan(struct look *look)
{
    list_arenas(look);
    walk_heaps(look, list_heap, NULL);
    sort(kept, kept_count, sizeof *kept, by_header);
    walk_spans(look, see, NULL);
    end_run(look);
    walk_guarded(look, see_guarded, NULL);
    print_target(look);
    print_socket(look);
    print_sums();
    for (size_t i = 0; i < heap_count; i++)
        if (heaps[i].kept.bytes + heaps[i].gives.bytes + heaps[i].idle.bytes != 0)
            printf("heap\taddress=%#" PRIx64 "\towner=%s\tkept_bytes=%" PRIu64
                   "\tgives_bytes=%" PRIu64 "\tidle_bytes=%" PRIu64 "\n",
                   heaps[i].address, heaps[i].owner, heaps[i].kept.bytes, heaps[i].gives.bytes,
                   heaps[i].idle.bytes);
    print_pins(look);
    printf("doubts\ttorn=%" PRIu64 "\tunreadable=%" PRIu64 "\tmeasured=%d\n", look->torn,
           look->unreadable, look->target->residence >= 0);
}
