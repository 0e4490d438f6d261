/* The next slab, trimming and parking a heap, draining mailboxes, and borrowing: see refill.h. */
#include "heap/refill.h"

#include "base/alone.h"
#include "base/bits.h"
#include "base/test_delay.h"
#include "heap/decay.h"
#include "heap/hooks.h"
#include "heap/profiling.h"
#include "heap/quarantine.h"
#include "heap/remote.h"
#include "heap/slab_lists.h"
#include "os/memory.h"
#include "os/process.h"

/* A class's mailbox is drained when the class has no other slab, and at one of DRAIN_TURNS refills:
 * the longer it waits, the more frees one visit of a slab collects. All mailboxes are drained
 * before pages are taken, within the limits of heap_drain_some. */
enum { DRAIN_TURNS = 16 };

/* The work of the guards and the profiler when another slab with `free_slots` free slots has become
 * current. `freed` slots of the previous slab were freed since it was counted last. */
static no_inline void refill_refilled(struct heap *heap, unsigned class, unsigned freed,
                                      unsigned free_slots)
{
    if (heap_is_guarding() && heap->private_heap == NULL)
        heap_passed(heap, class, freed + free_slots);
    if (class_is_small(class))
        heap_profile_enter(heap, class, free_slots);
}

/* Faults in the pages of a new slab. In full hardened builds each block is read before it is
 * written, to check that it is zero; on a fresh page that makes two faults. So a class that has
 * filled a slab gets the pages of its next one at once. Not in a small heap, and not for long
 * blocks, which may be used in part only. */
static void refill_fault_in(const struct heap *heap, struct span *slab)
{
    enum { FROM_BYTES = 2 << 20, BLOCK_MAX = 8 << 10 };
    if (heap->slab_pages < FROM_BYTES >> PAGE_SHIFT || slab->size_bytes > BLOCK_MAX ||
        slab_is_zero_size(slab))
        return;
    uintptr_t start = align_down((uintptr_t)slab_start(slab), os_page_size());
    size_t bytes = (size_t)slab->capacity * slab->size_bytes;
    (void)os_populate((void *)start, align_down(bytes, os_page_size()));
}

/* Drains mailboxes, purges memory that is due, and sweeps if the heap has grown, before pages are
 * taken.
 * Locking: heap held, no other lock. */
static void refill_attend_all(struct heap *heap)
{
    (void)heap_drain_some(heap);
    heaps_decay();
    if (heap->slab_pages >= heap->sweep_pages) {
        sweep_begin(heap);
        (void)sweep_lists(heap, SWEEP_WORK);
    }
}

/* Takes an empty slab of the run cache, or makes one. `fills` says that the class has filled a
 * slab. Returns NULL for a private heap: its caller adds a slab after it has released the heap's
 * lock. */
static struct span *refill_take_empty(struct heap *heap, unsigned class, bool fills)
{
    if (unlikely(heap->private_heap != NULL)) {
        (void)heap_drain_some(heap);
        return NULL;
    }
    struct span *slab = run_cache_take_slab(&heap->runs, class);
    if (slab == NULL || run_cache_is_due(&heap->runs))
        refill_attend_all(heap);
    if (slab == NULL)
        slab = run_cache_take_slab(&heap->runs, class); /* a drained mailbox may have emptied one */
    if (slab) {
        remote_open(heap, slab);
        slab_set_owner(slab, heap);
        return slab;
    }
    (void)decay_trim_ended();
    slab = slab_make(heap, class);
    if (unlikely(slab == NULL) && heaps_empty_run_caches())
        slab = slab_make(heap, class);
    if (config_zero_freed && fills && slab)
        refill_fault_in(heap, slab);
    return slab;
}

/* The usual refill, in fewer instructions: the next slab of the list becomes current, the current
 * one was full, and nothing else is due. Returns NULL in all other cases; then nothing has changed.
 */
static struct span *refill_take_listed(struct heap *heap, unsigned class, bool *refused)
{
    struct bin *bin = &heap->bins[class];
    struct span *slab = bin->first;
    struct span *full = heap->current[class];
    if (slab == NULL || full == &empty_slab.header || (heap->turns + 1) % DRAIN_TURNS == 0 ||
        class_is_packed(class) || !slab_try_current(slab, refused))
        return NULL;
    heap->turns++;
    heap_unlist_first(heap, bin);
    slab_wait(full);
    slab_put_aside(full); /* slabs_aside stays: one slab comes, another one leaves */
    heap_make_current(heap, class, slab);
    return slab;
}

/* Finds the first slab of the list that no thread is purging and whose pages the hard limit admits,
 * and makes its use word CURRENT. Private heaps take the first slab. */
static struct span *refill_find_listed(const struct heap *heap, unsigned class, bool *refused)
{
    struct span *slab = heap->bins[class].first;
    while (slab && heap->private_heap == NULL && !slab_try_current(slab, refused))
        slab = slab->next;
    return slab;
}

struct span *heap_refill(struct heap *heap, unsigned class)
{
    bool refused = false;
    if (likely(!heap_is_hooked() && heap->private_heap == NULL)) {
        struct span *slab = refill_take_listed(heap, class, &refused);
        if (likely(slab != NULL))
            return slab;
    }
    struct bin *bin = &heap->bins[class];
    unsigned freed = 0; /* slots of a small slab that were freed since it was counted */
    if (heap_is_hooked() && class_is_small(class) && heap->current[class] != &empty_slab.header)
        freed =
            heap_profile_granted(heap, class) - slab_hot(heap->current[class])->frees_to_attention;
    bool fills = heap->current[class] != &empty_slab.header;
    heap_leave_current(heap, class);
    if (unlikely(heap->look_after_fork) && bin->first == NULL)
        heap_look_after_fork(heap, LOOK_SPANS);
    bool due = bin->first == NULL || ++heap->turns % DRAIN_TURNS == 0;
    struct span *slab = due ? NULL : refill_find_listed(heap, class, &refused);
    if (slab == NULL) {
        heap_drain_mailbox(heap, remote_mailbox(class));
        slab = refill_find_listed(heap, class, &refused);
    }
    if (slab) {
        heap_unlist(heap, slab);
        heap->slabs_aside--;
    } else {
        slab = refill_take_empty(heap, class, fills);
        if (slab == NULL)
            return NULL;
        slab_set_use(slab, SLAB_CURRENT);
        heap->slab_pages += size_classes[class].pages;
        heap->smallest_slabs += class == 0;
    }
    unsigned free_slots = slab->capacity - (unsigned)slab_hot(slab)->frees_to_attention;
    heap_make_current(heap, class, slab);
    if (heap_is_hooked())
        refill_refilled(heap, class, freed, free_slots);
    return slab;
}

/* How the threads run: the heap that came here last, when it came first without another one in
 * between, the number of times in a row that it came, and eight times the moving average of such
 * numbers. Until threads are seen to run at the same time they are taken to run in turn. All
 * fields: any thread, atomic; a race makes them slightly wrong. */
enum { ROW_MAX = 64, ROW_PART = 8, ALONE_MS = 1000, ALONE_PAGES = (64 << 20) >> PAGE_SHIFT };
static struct {
    const struct heap *heap;
    uint64_t since_ms;
    uint32_t row;
    uint32_t average;
    const struct heap *alone; /* heap that ran alone last, see refill_is_alone */
    size_t slab_pages;        /* its pages when it began to be that */
    size_t grown_pages;       /* the pages that it has made since, at most `left_pages` */
    size_t left_pages;
} rows = {.row = ROW_MAX, .average = ROW_MAX * ROW_PART, .left_pages = ALONE_PAGES};

/* Whether threads run in turn, so that the heap should borrow. Threads that run at the same time
 * come here alternately. If they borrowed, they would write the same cache lines as the owner and
 * one another, and each later free of the block would be a remote one. */
static bool refill_is_in_turn(const struct heap *heap)
{
    if (process_is_single_threaded())
        return false;
    uint32_t row = load_relaxed(&rows.row);
    uint32_t average = load_relaxed(&rows.average);
    if (load_relaxed(&rows.heap) != heap) {
        average += row - average / ROW_PART;
        store_relaxed(&rows.average, average);
        store_relaxed(&rows.heap, heap);
        store_relaxed(&rows.since_ms, os_now_ms());
        row = 0;
    }
    if (row < ROW_MAX)
        store_relaxed(&rows.row, ++row);
    return row == ROW_MAX || average >= ROW_MAX / 2 * ROW_PART;
}

/* Whether the heap that came here last should make a slab of the class instead of borrowing,
 * because it has run alone for some time. It would borrow the same blocks again and again, and each
 * free of them would be a remote one. Such slabs are limited to ALONE_PAGES for all heaps together,
 * because the slabs of the sleeping owners stay, and threads may take turns of seconds. */
static bool refill_is_alone(const struct heap *heap, unsigned class)
{
    if (pages_have_hard_limit() ||
        (int64_t)(os_now_ms() - load_relaxed(&rows.since_ms)) < ALONE_MS)
        return false;
    size_t pages = heap->slab_pages;
    size_t grown = load_relaxed(&rows.grown_pages);
    if (load_relaxed(&rows.alone) != heap) {
        size_t left = load_relaxed(&rows.left_pages);
        store_relaxed(&rows.left_pages, left - smaller_of(left, grown));
        store_relaxed(&rows.alone, heap);
        store_relaxed(&rows.slab_pages, pages);
        store_relaxed(&rows.grown_pages, (size_t)0);
    } else if (heap->lender == NULL) { /* no heap had blocks to lend, so the growth is its own */
        store_relaxed(&rows.slab_pages, pages - smaller_of(pages, grown));
    }
    if (heap->lender == NULL)
        return false;
    pages += size_classes[class].pages;
    grown = pages - smaller_of(pages, load_relaxed(&rows.slab_pages));
    if (grown > load_relaxed(&rows.left_pages))
        return false;
    if (grown > load_relaxed(&rows.grown_pages))
        store_relaxed(&rows.grown_pages, grown);
    return true;
}

/* The classes that borrow: of blocks up to 4 KiB. */
enum { BORROWED_CLASSES = SMALL_CLASSES + 16 };

/* Borrows a block before a slab is made, if the heap's own mailboxes hold no free slot of its
 * class. */
static void *refill_borrow(struct heap *heap, unsigned class)
{
    const struct bin *bin = &heap->bins[class];
    if (bin->first != NULL)
        return NULL;
    heap_drain_mailbox(heap, remote_mailbox(class));
    if (bin->first == NULL)
        (void)heap_drain_some(heap);
    void *block = heap_take_current(heap, class);
    if (block)
        return block;
    bool borrows = bin->first == NULL && refill_is_in_turn(heap) && !refill_is_alone(heap, class) &&
                   borrow_fill(heap, class);
    return borrows ? borrow_take(heap, class) : NULL;
}

void *heap_take_slow(struct heap *heap, unsigned class)
{
    bool borrows = class < BORROWED_CLASSES && heap->private_heap == NULL;
    if (borrows) {
        void *block = borrow_take(heap, class);
        if (block == NULL)
            block = refill_borrow(heap, class);
        if (block)
            return block;
    }
    if (unlikely(heap_refill(heap, class) == NULL)) { /* out of memory, or at the hard limit */
        if (!borrows)
            return NULL;
        if (borrow_fill(heap, class))
            return borrow_take(heap, class);
        bool reclaimed = heap->bins[class].first != NULL;
        if (!reclaimed || heap_refill(heap, class) == NULL)
            return NULL;
    }
    return heap_take_current(heap, class);
}

/* Whether a small slab should stay current, because making it again would cost more than it holds:
 * the slots that it has handed out are one page at most. */
static bool refill_is_cheap_to_keep(const struct span *slab)
{
    size_t handed_out = (size_t)load_relaxed(&slab->fresh_slot) - 1;
    return class_is_small(slab_class(slab)) && handed_out * slab->size_bytes <= PAGE_BYTES;
}

/* Prepares a heap for not being used for some time. LISTED slabs stay as they are: an empty one
 * that is in a mailbox is retired when it is collected. */
static void refill_park(struct heap *heap, bool keeps_cheap)
{
    heap->left_ready = keeps_cheap;
    borrow_return(heap);
    quarantine_flush(heap);
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        struct span *current = heap->current[class];
        if (current != &empty_slab.header && !(keeps_cheap && refill_is_cheap_to_keep(current)))
            heap_put_aside(heap, class);
    }
    heap_lower_spare(heap);
    run_cache_empty(&heap->runs);
    heap_verify(heap);
}

void heap_park(struct heap *heap, bool keeps_cheap)
{
    (void)heap_drain_some(heap);
    refill_park(heap, keeps_cheap);
}

/* Retires LISTED slabs that are empty. In the child of a fork the posts of the parent's other
 * threads are lost, so a slab that was in a mailbox when its last block was freed is not collected
 * there. */
static void refill_retire_empty(struct heap *heap)
{
    for (unsigned class = 0; class < CLASS_COUNT; class ++)
        for (struct span *slab = heap->bins[class].first, *next; slab; slab = next) {
            next = slab->next;
            if (slab_hot(slab)->frees_to_attention == 0)
                heap_retire_listed(heap, slab);
        }
}

void heap_trim(struct heap *heap)
{
    if (heap_generation != 0)
        refill_retire_empty(heap);
    if (heap->look_after_fork)
        heap_look_after_fork(heap, SIZE_MAX);
    heap_drain(heap);
    refill_park(heap, false);
}

void heap_verify(struct heap *heap)
{
    if (!config_debug)
        return;
    slab_lists_verify(heap);
    hooks_verify(heap);
}

/* Draining mailboxes, and finding posts that a fork lost. */

/* The slabs that one call collects. */
enum { DRAIN_SLABS = 64, DRAIN_FEW_SLABS = 4 };

/* Moves a slot that says REMOTE into the list or into quarantine. Acquire: the accesses of the
 * freeing thread to the block happen before this. */
static void mailbox_collect_slot(struct span *slab, unsigned slot)
{
    (void)load_acquire(slab_link(slab, slot)); /* pairs with (1) of remote.c */
    if (config_hardened) {
        quarantine_mark(slab, slot);
        /* The quarantine subtracts from frees_to_attention when the block leaves quarantine. */
        quarantine_retain(slab_heap(slab), slab, slot);
    } else {
        slab_push(slab, slot);
    }
}

/* Whether the slab was retired, and may be another heap's already. A light hardened build has no
 * quarantine and retires a slab when its last slot is collected. */
static bool mailbox_is_gone(const struct heap *heap, const struct span *slab)
{
    return config_hardened && slab_heap(slab) != heap;
}

unsigned slab_collect(struct span *slab)
{
    const struct heap *heap = slab_heap(slab);
    unsigned limit = (unsigned)load_relaxed(&slab->fresh_slot);
    unsigned collected = 0;
    for (unsigned first = 1; first < limit; first += LINKS_A_WORD)
        for (uint64_t found = slab_remote_links(slab, first); found != 0; found &= found - 1) {
            mailbox_collect_slot(slab, first + lowest_bit(found) / 8);
            collected++;
            if (mailbox_is_gone(heap, slab))
                return 0;
        }
    return config_hardened ? 0 : collected;
}

/* Collects a slab of a mailbox, and changes its state if its number of free slots says so. */
static void mailbox_collect(struct heap *heap, struct span *slab)
{
    if (slab_is_packed(slab)) { /* its free blocks need no collecting */
        if (heap->current[PACKED_CLASS] != slab)
            heap_recount_packed(heap, slab);
        return;
    }
    unsigned collected = slab_collect(slab);
    if (mailbox_is_gone(heap, slab))
        return;
    if (heap->current[slab_class(slab)] == slab) {
        if (class_is_small(slab_class(slab))) {
            if (heap_is_hooked())
                heap_profile_collect(heap, slab_class(slab), collected);
        } else if (collected != 0 &&
                   (slab_hot(slab)->frees_to_attention =
                        (uint8_t)(slab_hot(slab)->frees_to_attention - collected)) == 0) {
            heap_count_expired(heap, slab);
        }
    } else if (slab_is_waiting(slab)) {
        unsigned freed =
            slab_relist_after(slab) - (unsigned)slab_hot(slab)->frees_to_attention + collected;
        if (freed < slab_relist_after(slab))
            slab_hot(slab)->frees_to_attention =
                (uint8_t)(slab_hot(slab)->frees_to_attention - collected);
        else
            heap_list_slab(heap, slab, slab->capacity - freed);
    } else {
        slab_hot(slab)->frees_to_attention =
            (uint8_t)(slab_hot(slab)->frees_to_attention - collected);
        if (slab_hot(slab)->frees_to_attention == 0)
            heap_retire_listed(heap, slab);
    }
}

/* Drains a mailbox of at most `slabs` slabs.
 * Returns: the part of `slabs` that was not used. */
static size_t mailbox_drain(struct heap *heap, unsigned mailbox, size_t slabs)
{
    if (slabs == 0 || !remote_has_mail(heap, mailbox))
        return slabs;
    store_relaxed(&heap->drains, heap->drains + 1); /* odd from now on: see lifecycle.c */
    struct span *slab = remote_take_mail(heap, mailbox);
    for (; slab && slabs != 0; slabs--) {
        struct span *next = slab->mail_next;
        test_delay();
        remote_open(heap, slab); /* (b): a free that is missed from now on posts again */
        test_delay();
        mailbox_collect(heap, slab);
        slab = next;
    }
    if (slab)
        remote_return_mail(heap, mailbox, slab);
    store_release(&heap->drains, heap->drains + 1); /* pairs with sweep_mailed, borrow_of_slab */
    return slabs;
}

bool heap_take_over(struct heap *from, struct heap *to, struct span *slab)
{
    unsigned class = slab_class(slab);
    uint32_t drains = to->drains;
    /* Odd before another thread can post the slab to `to`: see lifecycle.c. */
    store_relaxed(&to->drains, drains + 1);
    bool moved = heap_move_slab(from, to, slab);
    heap_return(from);
    test_delay();
    if (moved)
        mailbox_collect(to, slab); /* may retire the slab */
    /* Pairs with sweep_mailed and borrow_of_slab. An equal value says that nothing was drained. */
    store_release(&to->drains, moved ? drains + 2 : drains);
    if (moved)
        heap_drain_mailbox(to, remote_mailbox(class));
    return moved;
}

/* Drains a mailbox and the one of its slabs that sweeps looked at, of at most `slabs` slabs.
 * Returns: the part of `slabs` that was not used. */
static size_t mailbox_drain_pair(struct heap *heap, unsigned mailbox, size_t slabs)
{
    slabs = mailbox_drain(heap, mailbox, slabs);
    return mailbox_drain(heap, mailbox_of_looked_at(mailbox), slabs);
}

void heap_drain_mailbox(struct heap *heap, unsigned mailbox)
{
    (void)mailbox_drain_pair(heap, mailbox, DRAIN_SLABS);
}

/* Usually no mailbox holds a slab when a heap needs a new one, and a test of each mailbox would
 * take most of the instructions of that. */
bool heap_has_mail(const struct heap *heap)
{
    uintptr_t any = 0;
#pragma GCC unroll 16
    for (unsigned mailbox = 0; mailbox < ALL_MAILBOXES; mailbox++)
        any |= (uintptr_t)load_folded(&heap->mailboxes[mailbox]);
    return any != 0;
}

/* Drains mailboxes of at most `slabs` slabs, in turn.
 * Returns: the part of `slabs` that was not used. */
static size_t mailbox_drain_all(struct heap *heap, size_t slabs)
{
    if (likely(!heap_has_mail(heap)))
        return slabs;
    unsigned first = heap->attended; /* changes with each free that drains */
    for (unsigned i = 0; i < ALL_MAILBOXES; i++)
        slabs = mailbox_drain(heap, (first + i) % ALL_MAILBOXES, slabs);
    return slabs;
}

bool heap_drain_some(struct heap *heap) { return mailbox_drain_all(heap, DRAIN_SLABS) != 0; }

void heap_drain_few(struct heap *heap) { (void)mailbox_drain_all(heap, DRAIN_FEW_SLABS); }

void heap_drain(struct heap *heap) { (void)mailbox_drain_all(heap, SIZE_MAX); }

void heap_forget_mail(struct heap *heap)
{
    for (unsigned mailbox = 0; mailbox < ALL_MAILBOXES; mailbox++) {
        struct span *slab = remote_take_mail(heap, mailbox);
        for (struct span *next; slab; slab = next) {
            next = slab->mail_next;
            remote_open(heap, slab);
        }
    }
}

/* Posts a slab of the heap with remotely freed blocks. Other threads of the parent may have stopped
 * anywhere within a free, and their posts are lost. Packed slabs do not show such frees, so each is
 * posted. */
static bool mailbox_look_visit(struct span *span, char *start, void *context)
{
    (void)start;
    struct heap *heap = context;
    if (!span_is_slab(span) || slab_heap(span) != heap)
        return true;
    if (slab_is_packed(span) || slab_remote(span) != 0)
        (void)remote_post(heap, span);
    return true;
}

void heap_lose_mail(struct heap *heap)
{
    bool has_mail = false;
    for (unsigned mailbox = 0; mailbox < ALL_MAILBOXES; mailbox++) {
        has_mail = has_mail || remote_has_mail(heap, mailbox);
        store_relaxed(&heap->mailboxes[mailbox], (struct span *)NULL);
    }
    heap->look_after_fork = heap->look_after_fork || has_mail || !pages_forked_alone();
    heap->looked_at = 0;
}

void heap_look_after_fork(struct heap *heap, size_t spans)
{
    heap->look_after_fork = !pages_each_part(&heap->looked_at, spans, mailbox_look_visit, heap);
}

/* The supply of borrowed blocks, an array for each class that borrows, and where they are taken. */

/* BORROW_MAX, BORROW_MAX_BYTES: the blocks of a class that a heap may have borrowed. BORROW_MIN:
 * borrow_fill stops once it has this number. HEAPS_LOOKED_AT: the heaps that one call looks at.
 * SLABS_LOOKED_AT: the slabs of one heap that it looks at. CURRENT_PART: a current slab lends if
 * one in four of its slots can be borrowed; fewer are not worth the look. */
enum {
    BORROW_MAX = 63,
    BORROW_MAX_BYTES = 64 << 10,
    BORROW_MIN = 8,
    HEAPS_LOOKED_AT = 64,
    SLABS_LOOKED_AT = 8,
    CURRENT_PART = 4
};

/* The borrowed blocks of one class. All fields: holder of the heap. */
struct borrowed {
    size_t count;
    void *blocks[BORROW_MAX];
};

/* Finds the slab and the link byte of a borrowed block. */
static uint8_t *borrow_link_of(void *block, struct span **slab)
{
    *slab = page_map_find(block);
    return slab_link(*slab, (size_t)slab_slot(*slab, block));
}

void *borrow_take(struct heap *heap, unsigned class)
{
    struct borrowed *borrowed = heap->borrowed;
    if (likely(borrowed == NULL) || borrowed[class].count == 0)
        return NULL;
    struct span *slab;
    void *block = borrowed[class].blocks[--borrowed[class].count];
    store_relaxed(borrow_link_of(block, &slab), (uint8_t)LINK_LIVE);
    return block;
}

/* Borrows the slots that say REMOTE of a slab that is in no mailbox and whose use word says PURGED,
 * or CURRENT. */
static void borrow_take_slots(struct borrowed *to, struct span *slab, size_t most)
{
    unsigned limit = (unsigned)load_relaxed(&slab->fresh_slot);
    for (unsigned first = 1; first < limit; first += LINKS_A_WORD) {
        uint64_t found = slab_remote_links(slab, first);
        for (; found != 0 && to->count < most; found &= found - 1) {
            unsigned slot = first + lowest_bit(found) / 8;
            uint8_t link = LINK_REMOTE;
            /* Pairs with (1) of remote.c, and with slab_free_pages. */
            if (compare_swap_seq_cst(slab_link(slab, slot), &link, (uint8_t)LINK_BORROWED))
                to->blocks[to->count++] = slab_block(slab, slot);
        }
    }
}

/* Borrows slots of a slab whose use word this thread has changed from ASIDE to PURGED, and changes
 * it back. The purged pages of the slab count again, and are to be purged anew: see slab_is_swept.
 * `*refused` says that the hard limit has refused pages, and is not asked again. */
static void borrow_of_aside(struct borrowed *to, struct span *slab, size_t most, bool *refused)
{
    if (slab_take_given(slab, refused)) {
        store_relaxed(&slab_cold(slab)->swept.looked, UINT64_MAX);
        borrow_take_slots(to, slab, most);
    }
    (void)slab_end_purge(slab); /* the slab is posted in any case */
}

/* Borrows slots of a slab if it is current. They are given back if it is no longer current then:
 * another thread may be purging it. */
static void borrow_of_current(struct borrowed *to, struct span *slab, size_t most)
{
    const uint32_t *use = &slab_cold(slab)->use;
    if (load_relaxed(use) != SLAB_CURRENT || slab_remote(slab) * CURRENT_PART < slab->capacity)
        return;
    size_t before = to->count;
    test_delay();
    borrow_take_slots(to, slab, most);
    test_delay();
    if (likely(load_seq_cst(use) == SLAB_CURRENT))
        return;
    while (to->count > before) { /* the slab is posted in any case */
        void *block = to->blocks[--to->count];
        store_seq_cst(slab_link(slab, (size_t)slab_slot(slab, block)), (uint8_t)LINK_REMOTE);
    }
}

/* Borrows slots from a slab that was taken out of a mailbox of `from`, if it has the class. */
static void borrow_of_slab(struct borrowed *to, const struct heap *from, struct span *slab,
                           unsigned class, size_t most, bool *refused)
{
    if (slab_class(slab) != class ||
        load_acquire(&from->drains) % 2 != 0) /* pairs with mailbox_drain */
        return;
    if (slab_try_use(slab, SLAB_PURGED))
        borrow_of_aside(to, slab, most, refused);
    else
        borrow_of_current(to, slab, most);
}

/* Borrows slots of the class from slabs in the mailbox that `from` has for it.
 * Returns: whether slabs are left that it did not look at. */
static bool borrow_from(struct borrowed *to, struct heap *from, unsigned class, bool *refused)
{
    const size_t most =
        smaller_of(BORROW_MAX, (size_t)BORROW_MAX_BYTES / size_classes[class].size_bytes);
    unsigned mailbox = remote_mailbox(class);
    if (!remote_has_mail(from, mailbox))
        remote_look_again(from, mailbox);
    struct span *slab = remote_take_mail(from, mailbox);
    for (unsigned looks = 0; slab && looks < SLABS_LOOKED_AT && to->count < most; looks++) {
        struct span *next = slab->mail_next;
        borrow_of_slab(to, from, slab, class, most, refused);
        test_delay();
        remote_push_mail(from, mailbox_of_looked_at(mailbox), slab);
        slab = next;
    }
    if (slab)
        remote_return_mail(from, mailbox, slab);
    return slab != NULL;
}

/* Moves a slab of the class with free slots from the heap of a thread that has ended to `heap`. Its
 * blocks need not be borrowed, and their frees are local from then on. Drains at most `*slabs`
 * slabs, and subtracts what it has drained.
 * Returns: false if that heap has none, or is held. */
static bool refill_reclaim(struct heap *heap, struct heap *ended, unsigned class, size_t *slabs)
{
    if (!heap_is_ended(ended) || !heap_try_hold(ended))
        return false;
    if (ended->bins[class].first == NULL)
        *slabs = mailbox_drain_pair(ended, remote_mailbox(class), *slabs);
    struct span *slab = ended->bins[class].first;
    bool moved = slab != NULL && heap_move_slab(ended, heap, slab);
    heap_return(ended);
    return moved;
}

bool borrow_fill(struct heap *heap, unsigned class)
{
    if (config_hardened || heap_is_hooked())
        return false;
    if (heap->borrowed == NULL)
        heap->borrowed = meta_take(META_COLD, BORROWED_CLASSES * sizeof *heap->borrowed);
    if (heap->borrowed == NULL)
        return false;
    struct borrowed *to = &heap->borrowed[class];
    struct heap *from = heap->lender;
    const struct heap *round_start = NULL;
    size_t slabs = DRAIN_SLABS;
    bool refused = false;
    bool any_left = false; /* whether a heap of this round has slabs that were not looked at */
    for (unsigned i = 0; i < HEAPS_LOOKED_AT && slabs != 0; i++) {
        from = from ? from : load_acquire(&all_heaps); /* pairs with heap_enlist */
        if (from == round_start && !any_left) {
            from = to->count != 0 ? from : NULL;
            break;
        }
        if (round_start == NULL || from == round_start) {
            round_start = from;
            any_left = false;
        }
        if (from != heap && from->private_heap == NULL && from->generation == heap_generation) {
            if (refill_reclaim(heap, from, class, &slabs))
                break;
            any_left = borrow_from(to, from, class, &refused) || any_left;
        }
        if (to->count >= BORROW_MIN)
            break;
        from = from->next;
    }
    heap->lender = from;
    return to->count != 0;
}

void borrow_return(struct heap *heap)
{
    for (unsigned class = 0; heap->borrowed && class < BORROWED_CLASSES; class ++)
        while (heap->borrowed[class].count != 0) {
            struct span *slab;
            void *block = heap->borrowed[class].blocks[--heap->borrowed[class].count];
            uint8_t *link = borrow_link_of(block, &slab);
            struct heap *owner = slab_heap(slab);
            if (owner->generation != heap_generation)
                continue; /* an inherited slab now, without an owner: see thread_heap.h */
            store_seq_cst(link, (uint8_t)LINK_REMOTE);
            (void)remote_post(owner, slab);
        }
}
