/* The walk over slabs, and purging the free pages of one: see sweep.h. */
#include "heap/sweep.h"

#include "base/bits.h"
#include "base/test_delay.h"
#include "heap/remote.h"

enum {
    WALK_STEPS = 16 * SWEEP_WORK, /* the spans that a walk looks at */
    KEEP_BELOW =
        (HUGE_PAGE_BYTES >> PAGE_SHIFT) / 4, /* a huge page with fewer free pages stays whole */
};

/* The state of a slab that is aside, which changes with each free of one of its blocks. In `looked`
 * there is a word more about the last sweep. */
enum { FULL = 1 << 8, GIVEN = 1 << 9, REFUSED = 1 << 10, REMOTE_SHIFT = 16 };

struct sweep {
    bool all;            /* slabs that have changed just now give their pages, too */
    bool huge_page_kept; /* whether the huge page that was looked at last is left whole */
    uintptr_t huge_page;
    size_t purged_pages;
    /* Slabs at PURGED with only free pages, next to one another in one huge page. If they were
     * purged one by one, the kernel would first divide the huge page and then take its parts. */
    char *group;
    size_t group_pages;
    uint32_t group_process; /* number of the process in which the first slab was added */
};

/* A bit for each page from `first` to `last`. */
static uint64_t sweep_pages_between(size_t first, size_t last)
{
    return (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
}

static uint64_t sweep_all_pages(unsigned class)
{
    return sweep_pages_between(0, size_classes[class].pages - (size_t)1);
}

/* The pages of a slab that contain only parts of slots which are free, or which other threads freed
 * and no thread has collected or borrowed. The slab was seen to have this class; it may become
 * another one during a call for sweep_count_free. */
not_instrumented static no_inline uint64_t sweep_free_pages(const struct span *slab, unsigned class)
{
    enum { WORDS_A_PAGE = PAGE_BYTES / PACKED_SLOT_BYTES };
    const struct slab_shape *shape = &size_classes[class];
    uint64_t free = sweep_all_pages(class);
    if (class_is_packed(class)) {
        for (size_t word = packed_words(slab); word-- > 0;)
            if (load_acquire(packed_word(slab, word)) != UINT64_MAX) /* pairs with packed_free */
                free &= ~((uint64_t)1 << word / WORDS_A_PAGE);
        return free;
    }
    unsigned limit = (unsigned)smaller_of(load_relaxed(&slab->fresh_slot), shape->capacity + 1u);
    for (unsigned slot = 1; slot < limit && free != 0; slot++) {
        uint8_t link = load_seq_cst(slab_link(slab, slot)); /* pairs with (1) of remote.c */
        if (!link_shows_use(link) && (config_hardened || link != LINK_BORROWED))
            continue;
        size_t end = (size_t)slot * shape->size_bytes;
        free &=
            ~sweep_pages_between((end - shape->size_bytes) >> PAGE_SHIFT, (end - 1) >> PAGE_SHIFT);
    }
    return free;
}

/* Counts the free pages of a huge page: those of its slabs, and those of no span. Other threads
 * continue, so the number may be wrong; heap_count_slab says why no other memory is read. */
static size_t sweep_count_free(const char *huge_page)
{
    size_t free = 0;
    const struct span *last = page_map_find(huge_page - 1);
    for (const char *page = huge_page; page < huge_page + HUGE_PAGE_BYTES; page += PAGE_BYTES) {
        const struct span *span = page_map_find(page);
        unsigned tag = load_relaxed(&span->tag);
        if (tag <= SPAN_MOVING)
            free++;
        else if (tag < SPAN_SLAB)
            page += (larger_of(load_relaxed(&span->pages), 1u) - (size_t)1) << PAGE_SHIFT;
        else if (span != last && !class_is_zero_size(tag - SPAN_SLAB))
            free += count_bits(sweep_free_pages(span, tag - SPAN_SLAB));
        last = span;
    }
    return free;
}

static bool sweep_keeps_huge_page(struct sweep *sweep, const char *address)
{
    uintptr_t huge_page = align_down((uintptr_t)address, HUGE_PAGE_BYTES);
    if (sweep->huge_page != huge_page) {
        sweep->huge_page = huge_page;
        sweep->huge_page_kept =
            pages_in_huge_page(address) && sweep_count_free((const char *)huge_page) < KEEP_BELOW;
    }
    return sweep->huge_page_kept;
}

/* The state of a slab that is aside: the owner's count, and the number of slots in which others
 * have freed blocks since, or of blocks not in use in a packed slab. All of it may change during
 * this call, and the slab may become another one. */
not_instrumented static no_inline uint64_t sweep_state(const struct span *slab)
{
    uint64_t state =
        slab_hot(slab)->frees_to_attention | (slab_is_waiting(slab) ? (uint64_t)FULL : 0);
    if ((load_relaxed(&slab->mail_state) & MAIL_QUEUED) == 0)
        return state;
    uint64_t remote =
        slab_is_packed(slab) ? PACKED_SLOTS * 64 - packed_live(slab) : slab_remote(slab);
    return state | remote << REMOTE_SHIFT;
}

/* Whether the sweep should purge the slab of the heap: it has not changed since the walk before, or
 * waits in a mailbox of a heap that drains none, and it has not given its pages since. Where the
 * system refused pages, only a trim tries again. In hardened builds a trim looks at every slab,
 * because blocks enter quarantine without a change of the state. */
static bool sweep_is_due(const struct sweep *sweep, const struct heap *heap, struct span *slab)
{
    uint64_t *looked = &slab_cold(slab)->swept.looked;
    uint64_t before = load_relaxed(looked);
    uint64_t now = sweep_state(slab);
    if (sweep->all)
        return config_hardened || before != (now | GIVEN);
    if (before == (now | GIVEN) || before == (now | REFUSED))
        return false;
    store_relaxed(looked, now);
    return before == now || (heap->drains_never && now >> REMOTE_SHIFT != 0);
}

/* Notes that pages of the slab were purged, and that it has no other free page. `state` was read
 * before the look at the links, so that a block that is freed during the purge counts as a change
 * of the slab. */
static void sweep_note(struct span *slab, uint64_t pages, uint64_t state, bool refused)
{
    uint64_t *given = &slab_cold(slab)->swept.given;
    pages_note_swept(count_bits(pages));
    store_relaxed(given, load_relaxed(given) | pages);
    store_relaxed(&slab_cold(slab)->swept.looked, state | (refused ? REFUSED : GIVEN));
}

/* The free pages of a slab at PURGED that are whole pages of the system and not purged yet. */
static uint64_t sweep_pages_to_purge(const struct span *slab)
{
    uint64_t free = sweep_free_pages(slab, slab_class(slab));
    return pages_whole_marked(slab_start(slab), free) &
           ~load_relaxed(&slab_cold(slab)->swept.given);
}

/* Purges these pages of a slab at PURGED, whose state was `state`.
 * Returns: the number of purged pages. */
static unsigned sweep_purge(struct span *slab, uint64_t pages, uint64_t state)
{
    uint32_t process = heap_generation;
    test_delay();
    uint64_t went = pages_purge_marked(slab_start(slab), pages);
    if (heap_generation == process) /* else a signal handler forked, and the words changed use */
        sweep_note(slab, went, state, went != pages);
    return count_bits(went);
}

unsigned slab_purge_aside(struct span *slab)
{
    uint64_t state = sweep_state(slab);
    return sweep_purge(slab, sweep_pages_to_purge(slab), state);
}

/* Ends the purge of a slab. One that ran empty meanwhile is posted, unless no heap has it any more:
 * the owner may give it back once the use word has changed. */
static void sweep_end_slab(struct span *slab)
{
    struct heap *heap = slab_end_purge(slab) ? slab_heap(slab) : NULL;
    if (heap)
        (void)remote_post(heap, slab);
}

static const char *sweep_group_end(const struct sweep *sweep)
{
    return sweep->group + (sweep->group_pages << PAGE_SHIFT);
}

/* Purges the group, which has no slabs afterwards. The system refuses all of a range with one
 * locked page; then the slabs are purged one by one. The state of a slab is read after the purge:
 * no block of it is in use, so each change was a collection of blocks that were free before. */
static void sweep_end_group(struct sweep *sweep)
{
    if (sweep->group_pages == 0)
        return;
    char *at = sweep->group;
    const char *end = sweep_group_end(sweep);
    test_delay();
    bool purged = pages_purge_part(at, sweep->group_pages) == sweep->group_pages;
    sweep->group_pages = 0;
    while (at != end && sweep->group_process == heap_generation) { /* as in sweep_purge */
        struct span *slab = page_map_find(at);
        unsigned class = slab_class(slab);
        if (purged)
            sweep_note(slab, sweep_all_pages(class), sweep_state(slab), false);
        sweep->purged_pages += purged ? size_classes[class].pages : slab_purge_aside(slab);
        at += (size_t)size_classes[class].pages << PAGE_SHIFT;
        sweep_end_slab(slab);
    }
}

/* Adds a slab with only free pages to the group, or begins another group with it. */
static void sweep_add(struct sweep *sweep, const struct span *slab)
{
    char *start = slab_start(slab);
    char *end = start + ((size_t)size_classes[slab_class(slab)].pages << PAGE_SHIFT);
    uintptr_t last = align_down((uintptr_t)end - 1, HUGE_PAGE_BYTES);
    if (sweep->group_pages == 0 || start != sweep_group_end(sweep) ||
        align_down((uintptr_t)sweep->group, HUGE_PAGE_BYTES) != last) {
        sweep_end_group(sweep);
        sweep->group = start;
        sweep->group_process = heap_generation;
    }
    sweep->group_pages += size_classes[slab_class(slab)].pages;
}

/* For pages_each_part: sweeps a slab, which may be given back or reused until it says PURGED. */
static void sweep_visit(struct span *slab, char *start, void *context)
{
    struct sweep *sweep = context;
    unsigned class = load_relaxed(&slab->tag) - (unsigned)SPAN_SLAB;
    const struct heap *heap = slab_heap(slab);
    if (class >= CLASS_COUNT || class_is_zero_size(class) || heap == NULL ||
        heap->generation != heap_generation || !slab_is_aside(slab) ||
        !sweep_is_due(sweep, heap, slab))
        return;
    const char *last = start + ((size_t)size_classes[class].pages << PAGE_SHIFT) - 1;
    if (!sweep->all && (sweep_keeps_huge_page(sweep, start) || sweep_keeps_huge_page(sweep, last)))
        return;
    if (!slab_try_use(slab, SLAB_PURGED))
        return;
    uint64_t state = sweep_state(slab);
    uint64_t pages = sweep_pages_to_purge(slab);
    if (pages == sweep_all_pages(slab_class(slab))) {
        sweep_add(sweep, slab);
        return;
    }
    sweep->purged_pages += sweep_purge(slab, pages, state);
    sweep_end_slab(slab);
}

/* The walk. Threads: the one that makes the visit of lifecycle.c. */
static struct {
    size_t at;   /* where it continues, for pages_each_part */
    size_t left; /* steps; 0 when it is over */
} cache_aligned walk;

void sweep_begin(void) { walk.left = pages_are_huge() ? 0 : WALK_STEPS; }

bool sweep_walk(long work)
{
    struct sweep sweep = {.all = false};
    while (walk.left != 0 && work > 0) {
        size_t purged = sweep.purged_pages;
        bool over = pages_each_part(&walk.at, SWEEP_PART, sweep_visit, &sweep);
        walk.left = over ? 0 : walk.left - SWEEP_PART;
        if (over)
            walk.at = 0;
        work -= SWEEP_PART + SWEEP_PAGE_WORK * (long)(sweep.purged_pages - purged);
    }
    sweep_end_group(&sweep);
    return walk.left != 0;
}

seldom_called bool sweep_slabs(void)
{
    struct sweep sweep = {.all = true};
    size_t at = 0;
    (void)pages_each_part(&at, SIZE_MAX, sweep_visit, &sweep);
    sweep_end_group(&sweep);
    return sweep.purged_pages != 0;
}
