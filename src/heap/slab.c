/* Making, collecting and verifying slabs: see slab.h. */
#include "heap/slab.h"

#include "base/check.h"
#include "heap/harden.h"
#include "heap/remote.h"

#include <string.h>

struct span *slab_take(unsigned class)
{
    const struct size_class *shape = &size_classes[class];
    struct span *slab = class_is_void(class) ? pages_take_void_slab(class) : pages_take_slab(class);
    if (slab == NULL)
        return NULL;
    /* A header that served a slab before has link bytes of then; those of a new one are zero and
     * stay untouched. So does the remote line: frees that are late still look at its post word, and
     * at the words of a frozen slab, see remote.c. */
    if (slab->capacity != 0)
        memset(slab_link(slab, 1), 0, (size_t)shape->cold_64 * 64 - sizeof(struct remote));
    slab->base -= shape->size_bytes;
    slab->inverse = shape->inverse;
    store_relaxed(&slab->limit, (uint64_t)1);
    slab->size_bytes = shape->size_bytes;
    slab->until = 0;
    slab->head = LINK_END;
    slab->capacity = shape->capacity;
    return slab;
}

void slab_open(struct heap *heap, struct span *slab)
{
    if (config_random_slots)
        harden_shuffle(heap, slab);
    slab_set_use(slab, SLAB_IDLE);
    remote_open(heap, slab);
    store_release(&slab->owner, (uintptr_t)heap); /* pairs with load_acquire of who looks at it */
}

struct span *slab_make(struct heap *heap, unsigned class)
{
    struct span *slab = slab_take(class);
    if (slab)
        slab_open(heap, slab);
    return slab;
}

void slab_retire(struct span *slab)
{
    store_relaxed(&slab->owner, (uintptr_t)0);
    slab->base = slab_start(slab);
    if (slab_is_void(slab))
        pages_give_void_slab(slab);
    else
        pages_give_slab(slab);
}

/* Of another process, whoever purged is not here. */
static bool is_aside(uint32_t word)
{
    uint32_t use = word & ((1 << USE_BITS) - 1);
    bool purged = use == SLAB_PURGED || use == SLAB_EMPTIED;
    return purged ? word >> USE_BITS != (heap_generation << USE_BITS) >> USE_BITS
                  : use == SLAB_ASIDE;
}

static uint32_t purged_word(enum slab_use use)
{
    return (uint32_t)use | heap_generation << USE_BITS;
}

bool slab_try_use(struct span *slab, enum slab_use use)
{
    uint32_t *word = &slab_remote(slab)->use;
    uint32_t seen = load_relaxed(word);
    uint32_t wanted = use == SLAB_PURGED ? purged_word(use) : (uint32_t)use;
    return is_aside(seen) && compare_swap_acq_rel(word, &seen, wanted);
}

bool slab_try_leave(struct span *slab)
{
    while (!slab_try_use(slab, SLAB_IDLE)) {
        uint32_t purged = purged_word(SLAB_PURGED);
        if (compare_swap_acq_rel(&slab_remote(slab)->use, &purged, purged_word(SLAB_EMPTIED)) ||
            purged == purged_word(SLAB_EMPTIED))
            return false;
    }
    return true;
}

bool slab_end_purge(struct span *slab)
{
    uint32_t before = exchange_acq_rel(&slab_remote(slab)->use, (uint32_t)SLAB_ASIDE);
    return before == purged_word(SLAB_EMPTIED);
}

enum { LINKS_A_WORD = 8 };

/* The links of a word, from `first` on, that say REMOTE: the highest bit of each such byte. Exact:
 * no carry leaves a byte (Hacker's Delight, 2nd edition, section 6-1). Sequentially consistent, see
 * remote.c. */
static uint64_t remote_links(const struct span *slab, unsigned first)
{
    const uint64_t sevens = UINT64_MAX / 255 * 0x7f;
    const uint64_t *word = (const uint64_t *)(const void *)slab_link(slab, first);
    uint64_t differ = load_seq_cst(word) ^ UINT64_MAX / 255 * LINK_REMOTE;
    return ~(((differ & sevens) + sevens) | differ | sevens);
}
static_check((LINKS_AT + 1) % LINKS_A_WORD == 0, "the first link begins a word");

/* Acquire: what the freeing thread did with the block comes before. */
static void collect_slot(struct span *slab, unsigned slot)
{
    (void)load_acquire(slab_link(slab, slot)); /* pairs with the compare-and-swap of remote_free */
    if (config_hardened)
        harden_retain(slab_heap(slab), slab, slot); /* counts it when it leaves quarantine */
    else
        slab_push(slab, slot);
}

unsigned slab_collect(struct span *slab)
{
    unsigned limit = (unsigned)load_relaxed(&slab->limit);
    unsigned collected = 0;
    for (unsigned first = 1; first < limit; first += LINKS_A_WORD)
        for (uint64_t found = remote_links(slab, first); found != 0; found &= found - 1) {
            collect_slot(slab, first + lowest_bit(found) / 8);
            collected++;
        }
    return config_hardened ? 0 : collected;
}

bool slab_has_remote(const struct span *slab)
{
    unsigned limit = (unsigned)load_relaxed(&slab->limit);
    for (unsigned first = 1; first < limit; first += LINKS_A_WORD)
        if (remote_links(slab, first) != 0)
            return true;
    return false;
}

static bool link_is_live(uint8_t link) { return link_shows_use(link) || link == LINK_REMOTE; }

unsigned slab_live(const struct span *slab)
{
    unsigned handed_out = (unsigned)load_relaxed(&slab->limit) - 1;
    unsigned live = 0;
    for (unsigned slot = 1; slot <= handed_out; slot++)
        live += link_is_live(load_relaxed(slab_link(slab, slot)));
    return live;
}

unsigned slab_used(const struct span *slab)
{
    unsigned used = slab_live(slab);
    if (config_quarantine)
        for (unsigned slot = 1; slot <= slab->capacity; slot++)
            used += *slab_link(slab, slot) == LINK_QUARANTINED;
    return used;
}

void slab_verify(const struct span *slab)
{
    if (!config_debug)
        return;
    unsigned limit = (unsigned)load_relaxed(&slab->limit);
    check_internal(limit >= 1 && limit - 1 <= slab->capacity);
    unsigned listed = 0;
    check_internal(slab->head == LINK_END || slab->top == slab_block(slab, slab->head));
    for (unsigned slot = slab->head; slot != LINK_END; slot = *slab_link(slab, slot)) {
        check_internal(!link_is_live((uint8_t)slot) && slot < limit);
        check_internal(++listed <= slab->capacity);
    }
    check_internal(listed + slab_used(slab) == limit - 1);
}
