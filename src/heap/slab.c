/* Counting, verifying and retiring slabs, and their use words: see slab.h. */
#include "heap/slab.h"

#include "base/check.h"

uint32_t heap_generation __attribute__((aligned(64)));

void slab_retire(struct span *slab) { slab_retire_swept(slab, 0); }

void slab_retire_swept(struct span *slab, size_t given_pages)
{
    store_relaxed(&slab->owner, (uintptr_t)0);
    slab->base = slab_start(slab);
    if (slab_is_void(slab))
        pages_give_void_slab(slab);
    else
        pages_give_swept_slab(slab, given_pages);
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

bool slab_take_given(struct span *slab, bool *refused)
{
    uint64_t *given = &slab_remote(slab)->swept.given;
    uint64_t pages = load_relaxed(given);
    if (likely(pages == 0))
        return true;
    if (*refused)
        return false;
    store_relaxed(given, (uint64_t)0); /* first: see bound.h */
    *refused = !pages_take_swept(count_bits(pages));
    if (*refused)
        store_relaxed(given, pages);
    return !*refused;
}

/* While it says CURRENT nobody purges it, so `given` is the holder's. */
bool slab_try_current(struct span *slab, bool *refused)
{
    if (!slab_try_use(slab, SLAB_CURRENT))
        return false;
    bool taken = slab_take_given(slab, refused);
    if (unlikely(!taken))
        slab_set_use(slab, SLAB_ASIDE);
    return taken;
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

bool slab_has_remote(const struct span *slab)
{
    unsigned limit = (unsigned)load_relaxed(&slab->limit);
    for (unsigned first = 1; first < limit; first += LINKS_A_WORD)
        if (slab_remote_links(slab, first) != 0)
            return true;
    return false;
}

static bool link_is_live(uint8_t link)
{
    return link_shows_use(link) || link == LINK_REMOTE || (config_zero_freed && link == LINK_TAKEN);
}

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
    check_internal(slab_own(slab)->head == LINK_END ||
                   slab_own(slab)->top == slab_block(slab, slab_own(slab)->head));
    for (unsigned slot = slab_own(slab)->head; slot != LINK_END; slot = *slab_link(slab, slot)) {
        check_internal(!link_is_live((uint8_t)slot) && slot < limit);
        check_internal(++listed <= slab->capacity);
    }
    check_internal(listed + slab_used(slab) == limit - 1);
}
