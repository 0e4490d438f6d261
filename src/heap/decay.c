/* Free pages inside slabs, the sweep of a heap's lists, and the calls for work that is due by age:
 * see decay.h. */
#include "heap/decay.h"

#include "base/bits.h"
#include "base/test_delay.h"
#include "heap/remote.h"

/* SWEEP_MIN_PAGES: a sweep begins when a heap has grown by this number of pages or by an eighth.
 * LOOKS_MIN, LOOKS_MAX: the limits of `looks_max`. LOOKS_A_GIFT: one slab in this number has to
 * give pages for `looks_max` to grow. */
enum { SWEEP_MIN_PAGES = 512, LOOKS_MIN = 16384, LOOKS_MAX = 1 << 20, LOOKS_A_GIFT = 32 };
static const uint64_t GIVEN = 1 << 9;    /* in `looked`: all free pages were purged */
static const uint64_t WAITING = 1 << 10; /* in `looked`: and the slab was FULL then */

/* A bit for each page from `first` to `last`. */
static uint64_t sweep_pages_between(size_t first, size_t last)
{
    return (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
}

/* The free pages of a packed slab. The bits of the slab do not say which thread freed a block. */
static uint64_t sweep_packed_free_pages(const struct span *slab)
{
    enum { WORDS_A_PAGE = PAGE_BYTES / PACKED_SLOT_BYTES };
    uint64_t free = 0;
    size_t words =
        (size_t)smaller_of(load_relaxed(&slab->fresh_slot), (uint64_t)PACKED_SLOTS + 1) - 1;
    for (size_t word = 0; word < PACKED_SLOTS; word++) {
        if (word % WORDS_A_PAGE == 0)
            free |= (uint64_t)1 << word / WORDS_A_PAGE;
        if (word < words && load_acquire(packed_word(slab, word)) != UINT64_MAX)
            free &= ~((uint64_t)1 << word / WORDS_A_PAGE); /* pairs with packed_free */
    }
    return free;
}

/* slab_free_pages of a slab that was seen to have this class. */
static uint64_t sweep_free_pages_of(const struct span *slab, unsigned class,
                                    enum slab_unused unused)
{
    if (class_is_packed(class))
        return unused == SLOTS_NOT_USED ? sweep_packed_free_pages(slab) : 0;
    const struct size_class *shape = &size_classes[class];
    uint64_t free = sweep_pages_between(0, shape->pages - 1);
    unsigned limit = (unsigned)smaller_of(load_relaxed(&slab->fresh_slot), shape->capacity + 1u);
    for (unsigned slot = 1; slot <= shape->capacity && free != 0; slot++) {
        if (slot >= limit && unused == SLOTS_NOT_USED)
            break;
        uint8_t link = load_seq_cst(slab_link(slab, slot)); /* pairs with (1) of remote.c */
        bool in_use = link_shows_use(link) || (!config_hardened && link == LINK_BORROWED);
        if (unused == SLOTS_NOT_USED ? in_use : link != LINK_REMOTE) {
            size_t end = (size_t)slot * shape->size_bytes;
            free &= ~sweep_pages_between((end - shape->size_bytes) >> PAGE_SHIFT,
                                         (end - 1) >> PAGE_SHIFT);
        }
    }
    return free;
}

uint64_t slab_free_pages(const struct span *slab, enum slab_unused unused)
{
    return sweep_free_pages_of(slab, slab_class(slab), unused);
}

/* Counts the free pages of a huge page: those of its slabs, and those of no span. Other threads
 * continue meanwhile, so the number may be wrong; heap_count_slab says why no other memory is read.
 */
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
        else if (span != last && class_is_swept(tag - SPAN_SLAB))
            free += count_bits(sweep_free_pages_of(span, tag - SPAN_SLAB, SLOTS_NOT_USED));
        last = span;
    }
    return free;
}

bool slab_keeps_huge_page(const struct span *slab)
{
    const char *start = slab_start(slab);
    size_t pages = size_classes[slab_class(slab)].pages;
    return pages_keep_huge_page(start, sweep_count_free) ||
           pages_keep_huge_page(start + (pages << PAGE_SHIFT) - 1, sweep_count_free);
}

/* The state of a slab that is aside, as `looked` stores it. The owner changes it with each block of
 * the slab that it frees or collects, maybe during this call. */
not_instrumented static no_inline uint64_t sweep_swept_state(const struct span *slab)
{
    return slab_hot(slab)->frees_to_attention | (slab_is_waiting(slab) ? WAITING : 0);
}

bool slab_is_swept(const struct span *slab)
{
    if (config_hardened)
        return false; /* quarantine changes links before anything else */
    bool has_mail = (load_relaxed(&slab->mail_state) & MAIL_QUEUED) != 0;
    uint64_t looked = load_relaxed(&slab_cold(slab)->swept.looked);
    return !has_mail && looked == (sweep_swept_state(slab) | GIVEN);
}

/* A bit for each page of a slab of this class. */
static uint64_t sweep_all_pages(unsigned class)
{
    return sweep_pages_between(0, size_classes[class].pages - (size_t)1);
}

seldom_called bool purge_group_touches(const struct purge_group *group, const struct span *slab)
{
    unsigned class = load_relaxed(&slab->tag) - (unsigned)SPAN_SLAB;
    if (group->slabs == NULL || group->process != heap_generation || !class_is_swept(class))
        return false;
    const char *start = slab_start(slab);
    const char *end = start + ((size_t)size_classes[class].pages << PAGE_SHIFT);
    uintptr_t huge_page = align_down((uintptr_t)group->start, HUGE_PAGE_BYTES);
    return (end == group->start || start == group->start + (group->pages << PAGE_SHIFT)) &&
           (uintptr_t)start >= huge_page && (uintptr_t)end <= huge_page + HUGE_PAGE_BYTES;
}

/* Adds a slab to a group that has no slabs or that it touches. */
static void purge_group_add(struct purge_group *group, struct span *slab)
{
    char *start = slab_start(slab);
    if (group->slabs == NULL)
        *group = (struct purge_group){.start = start, .process = heap_generation};
    slab->mail_next = group->slabs;
    group->slabs = slab;
    group->pages += size_classes[slab_class(slab)].pages;
    if (start < group->start)
        group->start = start;
}

/* The state is read before the links, so that a block that is freed during the purge counts as a
 * change of the slab. */
unsigned slab_purge_aside(struct span *slab, struct purge_group *group)
{
    uint64_t *given = &slab_cold(slab)->swept.given;
    uint64_t state = sweep_swept_state(slab);
    uint64_t before = load_relaxed(given);
    uint64_t free = slab_free_pages(slab, SLOTS_NOT_USED);
    uint64_t pages = pages_whole_marked(slab_start(slab), free) & ~before;
    if (group && pages == sweep_all_pages(slab_class(slab))) {
        purge_group_add(group, slab);
        return 0;
    }
    uint32_t process = heap_generation;
    test_delay();
    uint64_t went = pages_purge_marked(slab_start(slab), pages);
    if (heap_generation == process) { /* else a signal handler forked, and the words changed use */
        pages_note_swept(count_bits(went));
        store_relaxed(given, before | went);
        if (went == pages)
            store_relaxed(&slab_cold(slab)->swept.looked, state | GIVEN);
    }
    return count_bits(went);
}

/* The state of a slab is read after the purge: no block of it is in use, so each change of the
 * state was a collection of blocks that were free before. */
seldom_called unsigned purge_group_purge(const struct purge_group *group)
{
    test_delay();
    bool purged = pages_purge_part(group->start, group->pages) == group->pages;
    unsigned pages = 0;
    for (struct span *slab = group->slabs, *next; slab; slab = next) {
        next = slab->mail_next;
        if (group->process != heap_generation)
            break; /* a signal handler forked, as in slab_purge_aside */
        if (!purged) { /* the system refuses all of a range with one locked page */
            pages += slab_purge_aside(slab, NULL);
        } else {
            uint64_t all = sweep_all_pages(slab_class(slab));
            pages_note_swept(count_bits(all));
            store_relaxed(&slab_cold(slab)->swept.given, all);
            store_relaxed(&slab_cold(slab)->swept.looked, sweep_swept_state(slab) | GIVEN);
            pages += count_bits(all);
        }
    }
    return pages;
}

/* Whether the slab has not changed since the look before, and has not given its pages since. Notes
 * the state for the next look. */
static bool sweep_is_due(struct span *slab)
{
    uint64_t *looked = &slab_cold(slab)->swept.looked;
    uint64_t before = load_relaxed(looked);
    uint64_t now = slab_hot(slab)->frees_to_attention;
    if (before != (now | GIVEN))
        store_relaxed(looked, now);
    return before == now;
}

/* Looks at a slab of a list of the heap, and purges its free pages if that is due. A slab with
 * purged pages moves to the end of its list, to be used last.
 * Returns: the number of purged pages. */
static unsigned sweep_slab(struct heap *heap, struct span *slab)
{
    if (!sweep_is_due(slab) || slab_keeps_huge_page(slab) || !slab_try_use(slab, SLAB_PURGED))
        return 0;
    unsigned pages = slab_purge_aside(slab, NULL);
    if (pages != 0) {
        struct bin *bin = &heap->bins[slab_class(slab)];
        bin_remove(bin, slab);
        bin_append(bin, slab);
    }
    store_relaxed(&slab_cold(slab)->swept.looked, slab_hot(slab)->frees_to_attention | GIVEN);
    if (slab_end_purge(slab))
        (void)remote_post(heap, slab);
    return pages;
}

void sweep_begin(struct heap *heap)
{
    struct sweep *sweep = &heap->sweep;
    store_relaxed(&heap->swept_ms, pages_interval_ms());
    heap->sweep_pages = heap->slab_pages + larger_of(SWEEP_MIN_PAGES, heap->slab_pages / 8);
    if (pages_are_huge() || sweep->left != 0)
        return;
    pages_forget_dense();
    bool paid = (uint64_t)sweep->gave * LOOKS_A_GIFT >= sweep->looks_max;
    if (paid && sweep->looks_max < LOOKS_MAX)
        sweep->looks_max *= 2;
    else if (!paid)
        sweep->looks_max /= 2;
    if (sweep->looks_max < LOOKS_MIN)
        sweep->looks_max = LOOKS_MIN;
    sweep->left = sweep->looks_max;
    sweep->gave = 0;
    if (sweep->at == NULL && sweep->size_class == 0)
        sweep->at = heap->bins[0].first;
}

long sweep_lists(struct heap *heap, long work)
{
    struct sweep *sweep = &heap->sweep;
    while (sweep->left != 0 && work > 0) {
        struct span *slab = sweep->at;
        if (slab == NULL) {
            sweep->size_class = (sweep->size_class + 1) % SWEPT_CLASSES;
            if (sweep->size_class == 0)
                sweep->left = 0; /* the last list: the next pass begins with the first one */
            else
                sweep->at = heap->bins[sweep->size_class].first;
            continue;
        }
        sweep->at = slab->next;
        sweep->left--;
        unsigned pages = sweep_slab(heap, slab);
        sweep->gave += pages != 0;
        work -= 1 + SWEEP_PAGE_WORK * (long)pages;
    }
    return work;
}

static bool (*others_sweep)(void); /* const after the start */
static bool (*ended_trim)(void);   /* const after the start; NULL before */
static struct {
    bool are_due; /* atomic, relaxed: a visit to all heaps is not complete */
} cache_aligned others;

/* Does a part of the visit to all heaps, which the end of a decay interval starts. */
static void decay_visit_others(void)
{
    store_relaxed(&others.are_due, false);
    if (others_sweep())
        store_relaxed(&others.are_due, true);
}

void heaps_on_decay(bool (*sweep)(void), bool (*trim_ended)(void))
{
    others_sweep = sweep;
    ended_trim = trim_ended;
    pages_on_interval(decay_visit_others);
}

void heaps_decay(void)
{
    pages_tick();
    struct heap *own = thread_heap;
    if (own != &no_heap) {
        if (load_relaxed(&own->swept_ms) != pages_interval_ms())
            sweep_begin(own);
        if (own->sweep.left != 0)
            (void)sweep_lists(own, SWEEP_WORK);
    }
    if (unlikely(load_relaxed(&others.are_due)))
        decay_visit_others();
}

bool heaps_are_due(void) { return load_relaxed(&others.are_due) || thread_heap->sweep.left != 0; }

bool decay_trim_ended(void) { return ended_trim && ended_trim(); }

bool heaps_empty_run_caches(void)
{
    bool any = decay_trim_ended();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        any = (heap->private_heap == NULL && run_cache_empty(&heap->runs)) || any;
    return any;
}
