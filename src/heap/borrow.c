/* Borrowing blocks, and the supplies of borrowed ones: see borrow.h. */
#include "heap/borrow.h"

#include "base/alone.h"
#include "base/bits.h"
#include "base/test_delay.h"
#include "heap/hooks.h"
#include "heap/mailbox.h"
#include "heap/remote.h"
#include "heap/slab_lists.h"

/* BORROW_MAX, BORROW_MAX_BYTES: the blocks of a class that a heap may have borrowed. BORROW_MIN:
 * one call looks at that number of slabs of a heap, and stops once it has that number of blocks.
 * CURRENT_PART: a current slab lends if one in four of its slots can be borrowed; fewer are not
 * worth the look. */
enum { BORROW_MAX = 63, BORROW_MAX_BYTES = 64 << 10, BORROW_MIN = 8, CURRENT_PART = 4 };

/* The borrowed blocks of one class of a heap. */
struct borrowed {
    uint32_t lock; /* atomic: 1 + number of the process of the thread that uses `blocks`, or 0 */
    uint8_t count; /* lock; atomic */
    uint8_t waits; /* holder of the heap: slabs to make until the next search */
    uint8_t wait;  /* holder: value with which `waits` began last, 0 after a find */
    uint8_t turn;  /* holder: `borrow_turn` of the heap at the last search */
    void *blocks[BORROW_MAX]; /* lock */
};

/* Takes the lock of a supply. A lock that a thread of the parent process held counts as free.
 * Returns: false if another thread has it. */
static bool borrow_try_lock(struct borrowed *borrowed)
{
    uint32_t own = heap_generation + 1;
    uint32_t seen = load_relaxed(&borrowed->lock);
    return seen != own && compare_swap_acq_rel(&borrowed->lock, &seen, own);
}

static void borrow_unlock(struct borrowed *borrowed)
{
    store_release(&borrowed->lock, (uint32_t)0); /* pairs with borrow_try_lock */
}

static uint8_t *borrow_link_of(void *block, struct span **slab)
{
    *slab = page_map_find(block);
    return slab_link(*slab, (size_t)slab_slot(*slab, block));
}

/* Takes the last block of a locked supply that is not empty. */
static void *borrow_pop(struct borrowed *borrowed)
{
    size_t count = load_relaxed(&borrowed->count) - (size_t)1;
    store_relaxed(&borrowed->count, (uint8_t)count);
    return borrowed->blocks[count];
}

/* Gives the blocks of one supply back, unless another thread does that or uses it. */
static void borrow_return_class(struct borrowed *borrowed)
{
    if (load_relaxed(&borrowed->count) == 0 || !borrow_try_lock(borrowed))
        return;
    while (load_relaxed(&borrowed->count) != 0) {
        struct span *slab;
        uint8_t *link = borrow_link_of(borrow_pop(borrowed), &slab);
        struct heap *owner = slab_heap(slab);
        store_seq_cst(link, (uint8_t)LINK_REMOTE);
        if (likely(owner->generation == heap_generation))
            (void)remote_post(owner, slab);
        else
            slab_retire_inherited(owner, slab); /* borrowed before a fork */
    }
    borrow_unlock(borrowed);
}

void *borrow_take(struct heap *heap, unsigned class)
{
    struct borrowed *supplies = load_relaxed(&heap->borrowed);
    if (likely(supplies == NULL) || load_relaxed(&supplies[class].count) == 0)
        return NULL;
    if (unlikely(heap_is_hooked()) || unlikely(heap->borrow_process != heap_generation)) {
        borrow_return(heap); /* blocks borrowed before a fork, or before the hook was on */
        heap->borrow_process = heap_generation;
        return NULL;
    }
    void *block = NULL;
    if (borrow_try_lock(&supplies[class])) {
        if (likely(load_relaxed(&supplies[class].count) != 0)) {
            struct span *slab;
            block = borrow_pop(&supplies[class]);
            store_relaxed(borrow_link_of(block, &slab), (uint8_t)LINK_LIVE);
        }
        borrow_unlock(&supplies[class]);
    }
    return block;
}

/* How the threads run: the heap that came here last, its number of refills in a row, and eight
 * times the moving average of such numbers. At first threads are taken to run in turn. All fields:
 * any thread, atomic; a race makes them slightly wrong. While threads run at the same time, a heap
 * comes here at each eighth refill only, because each takes the line from the others. */
enum { ROW_MAX = 64, EIGHTH = 8 };
static struct {
    const struct heap *heap;
    uint32_t row;
    uint32_t average;
} cache_aligned rows = {.row = ROW_MAX, .average = ROW_MAX * EIGHTH};

/* Whether threads run in turn. Threads that run at the same time come here alternately. If they
 * borrowed, they would write the same cache lines as the owner and one another, and each later free
 * of the block would be a remote one. Blocks longer than a page are borrowed in any case: the page
 * faults of a new slab cost more. */
static bool borrow_is_in_turn(struct heap *heap)
{
    if (heap->refills_to_look != 0) {
        heap->refills_to_look--;
        return false;
    }
    uint32_t row = load_relaxed(&rows.row);
    uint32_t average = load_relaxed(&rows.average);
    if (load_relaxed(&rows.heap) != heap) {
        average += row - average / EIGHTH;
        store_relaxed(&rows.average, average);
        store_relaxed(&rows.heap, heap);
        heap->borrow_turn++;
        row = 0;
    }
    if (row < ROW_MAX) {
        row = (uint32_t)smaller_of(row + (heap->in_turn ? 1 : EIGHTH), ROW_MAX);
        store_relaxed(&rows.row, row);
    }
    heap->in_turn = row == ROW_MAX || average >= ROW_MAX / 2 * EIGHTH;
    heap->refills_to_look = heap->in_turn ? 0 : EIGHTH - 1;
    return heap->in_turn;
}

/* Whether the heap makes a slab of the class without a search: after a search in vain one slab,
 * then 3, 7 and so on, BORROW_MAX at most, until a search finds blocks or the heap's turn ends. */
static bool borrow_waits(struct heap *heap, unsigned class)
{
    struct borrowed *supplies = load_relaxed(&heap->borrowed);
    if (supplies == NULL || supplies[class].turn != heap->borrow_turn || supplies[class].waits == 0)
        return false;
    supplies[class].waits--;
    return true;
}

bool borrow_is_due(struct heap *heap, unsigned class)
{
    if (process_is_single_threaded())
        return false;
    bool in_turn = borrow_is_in_turn(heap);
    return (in_turn || size_classes[class].size_bytes > PAGE_BYTES) && !borrow_waits(heap, class);
}

static void borrow_note_search(const struct heap *heap, struct borrowed *borrowed, bool found)
{
    if (found || borrowed->turn != heap->borrow_turn)
        borrowed->wait = 0;
    borrowed->turn = heap->borrow_turn;
    if (!found)
        borrowed->wait = (uint8_t)smaller_of(borrowed->wait * 2u + 1, (unsigned)BORROW_MAX);
    borrowed->waits = borrowed->wait;
}

static void borrow_push(struct borrowed *borrowed, void *block)
{
    size_t count = load_relaxed(&borrowed->count);
    borrowed->blocks[count] = block;
    store_relaxed(&borrowed->count, (uint8_t)(count + 1));
}

static size_t borrow_most(unsigned class)
{
    return smaller_of(BORROW_MAX, (size_t)BORROW_MAX_BYTES / size_classes[class].size_bytes);
}

/* Borrows the slots that say REMOTE of a slab that is in no mailbox and says PURGED or CURRENT. */
static void borrow_take_slots(struct borrowed *to, struct span *slab, size_t most)
{
    unsigned limit = (unsigned)load_relaxed(&slab->fresh_slot);
    for (unsigned first = 1; first < limit; first += LINKS_A_WORD) {
        uint64_t found = slab_remote_links(slab, first);
        for (; found != 0 && load_relaxed(&to->count) < most; found &= found - 1) {
            unsigned slot = first + lowest_bit(found) / 8;
            uint8_t link = LINK_REMOTE;
            /* Pairs with (1) of remote.c, and with slab_free_pages. */
            if (compare_swap_seq_cst(slab_link(slab, slot), &link, (uint8_t)LINK_BORROWED))
                borrow_push(to, slab_block(slab, slot));
        }
    }
}

/* Borrows slots of a slab whose use word this thread has changed from ASIDE to PURGED, and changes
 * it back. The purged pages of the slab count again, and are purged anew: see sweep_is_due. */
static void borrow_of_aside(struct borrowed *to, struct span *slab, size_t most, bool *refused)
{
    if (slab_take_given(slab, refused)) {
        store_relaxed(&slab_cold(slab)->swept.looked, UINT64_MAX);
        borrow_take_slots(to, slab, most);
    }
    (void)slab_end_purge(slab); /* the slab is posted in any case */
}

/* Borrows slots of a slab if it is current. They are given back if it is no longer current then. */
static void borrow_of_current(struct borrowed *to, struct span *slab, size_t most)
{
    const uint32_t *use = &slab_cold(slab)->use;
    if (load_relaxed(use) != SLAB_CURRENT || slab_remote(slab) * CURRENT_PART < slab->capacity)
        return;
    size_t before = load_relaxed(&to->count);
    test_delay();
    borrow_take_slots(to, slab, most);
    test_delay();
    if (likely(load_seq_cst(use) == SLAB_CURRENT))
        return;
    while (load_relaxed(&to->count) > before) { /* the slab is posted in any case */
        void *block = borrow_pop(to);
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
    const size_t most = borrow_most(class);
    unsigned mailbox = remote_mailbox(class);
    struct span *slab = remote_take_mail(from, mailbox);
    if (slab == NULL) /* then those that were looked at before are looked at again */
        slab = remote_take_mail(from, mailbox_of_looked_at(mailbox));
    for (unsigned looks = 0; slab && looks < BORROW_MIN && load_relaxed(&to->count) < most;
         looks++) {
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

/* Moves a slab of the class with free slots from the heap of a thread that has ended to `heap`, so
 * that frees of its blocks are local. Drains at most `*slabs` slabs, and subtracts their number.
 * Returns: false if that heap has none, or is held. */
static bool borrow_reclaim(struct heap *heap, struct heap *ended, unsigned class, size_t *slabs)
{
    if (!heap_try_hold(ended))
        return false;
    if (ended->bins[class].first == NULL)
        *slabs = mailbox_drain_pair(ended, remote_mailbox(class), *slabs);
    struct span *slab = ended->bins[class].first;
    bool moved = slab != NULL && heap_move_slab(ended, heap, slab);
    heap_return(ended);
    return moved;
}

/* Searches the heaps for blocks to lend, beginning with the one that has lent last. */
static void borrow_search(struct heap *heap, unsigned class, struct borrowed *to)
{
    const size_t enough = smaller_of(BORROW_MIN, borrow_most(class));
    struct heap *from = heap->lender;
    const struct heap *round_start = NULL;
    size_t slabs = DRAIN_SLABS;
    bool refused = false;
    bool any_left = false; /* whether a heap of this round has slabs that were not looked at */
    for (unsigned i = 0; i < DRAIN_SLABS && slabs != 0; i++) {
        from = from ? from : load_acquire(&all_heaps); /* pairs with heap_enlist */
        if (from == round_start && !any_left) {
            from = load_relaxed(&to->count) != 0 ? from : NULL;
            break;
        }
        if (round_start == NULL || from == round_start) {
            round_start = from;
            any_left = false;
        }
        if (from != heap && from->private_heap == NULL && from->generation == heap_generation &&
            !load_relaxed(&from->look_after_fork)) {
            if (borrow_reclaim(heap, from, class, &slabs))
                break;
            any_left = borrow_from(to, from, class, &refused) || any_left;
        }
        if (load_relaxed(&to->count) >= enough)
            break;
        from = from->next;
    }
    heap->lender = from;
}

bool borrow_fill(struct heap *heap, unsigned class)
{
    if (config_hardened || heap_is_hooked())
        return false;
    struct borrowed *supplies = load_relaxed(&heap->borrowed);
    if (supplies == NULL) {
        supplies = meta_take(META_COLD, SIZED_CLASSES * sizeof *supplies);
        if (supplies == NULL)
            return false;
        heap->borrow_process = heap_generation;
        store_release(&heap->borrowed, supplies); /* pairs with borrow_return */
    }
    struct borrowed *to = &supplies[class];
    if (!borrow_try_lock(to))
        return false;
    borrow_search(heap, class, to);
    bool any = load_relaxed(&to->count) != 0;
    borrow_unlock(to);
    if (any)
        store_relaxed(&heap->borrow_age, (uint8_t)1);
    borrow_note_search(heap, to, any || heap->bins[class].first != NULL);
    return any;
}

void borrow_return(struct heap *heap)
{
    struct borrowed *supplies = load_acquire(&heap->borrowed); /* pairs with borrow_fill */
    for (unsigned class = 0; supplies && class < SIZED_CLASSES; class ++)
        borrow_return_class(&supplies[class]);
}

void borrow_age(struct heap *heap)
{
    uint8_t age = load_relaxed(&heap->borrow_age);
    if (likely(age == 0))
        return;
    store_relaxed(&heap->borrow_age, (uint8_t)(age == 1 ? 2 : 0));
    if (age != 1)
        borrow_return(heap);
}
