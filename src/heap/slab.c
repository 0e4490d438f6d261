/* The use words of slabs, counting, verifying and retiring: see slab.h. */
#include "heap/slab.h"

#include "base/alone.h"
#include "base/check.h"

uint32_t heap_generation;

void slab_retire(struct span *slab)
{
    store_relaxed(&slab->owner, (uintptr_t)0);
    slab->base = slab_start(slab);
    if (slab_is_zero_size(slab))
        pages_give_zero_size_slab(slab);
    else
        pages_give_slab(slab, slab_count_given(slab));
}

/* Whether the use word says ASIDE, or is one of another process that counts as ASIDE. */
static bool slab_says_aside(uint32_t word)
{
    uint32_t use = word & ((1 << USE_BITS) - 1);
    bool purged = use == SLAB_PURGED || use == SLAB_EMPTIED;
    return purged ? word >> USE_BITS != (heap_generation << USE_BITS) >> USE_BITS
                  : use == SLAB_ASIDE;
}

/* The use word for PURGED or EMPTIED in this process. */
static uint32_t slab_purged_word(enum slab_use use)
{
    return (uint32_t)use | heap_generation << USE_BITS;
}

bool slab_try_use(struct span *slab, enum slab_use use)
{
    uint32_t *word = &slab_cold(slab)->use;
    uint32_t seen = load_relaxed(word);
    uint32_t wanted = use == SLAB_PURGED ? slab_purged_word(use) : (uint32_t)use;
    return slab_says_aside(seen) && compare_swap_if_threaded(word, &seen, wanted);
}

bool slab_take_given(struct span *slab, bool *refused)
{
    uint64_t *given = &slab_cold(slab)->swept.given;
    uint64_t pages = load_relaxed(given);
    if (likely(pages == 0))
        return true;
    if (*refused)
        return false;
    store_relaxed(given, (uint64_t)0); /* before the sum of swept pages: see page/limits.h */
    *refused = !pages_take_swept(count_bits(pages));
    if (*refused)
        store_relaxed(given, pages);
    return !*refused;
}

/* While the use word says IDLE, no other thread purges the slab, so `given` belongs to the owner.
 * Other threads borrow blocks of CURRENT slabs, so the word does not say that before. */
bool slab_try_current(struct span *slab, bool *refused)
{
    if (!slab_try_use(slab, SLAB_IDLE))
        return false;
    bool taken = slab_take_given(slab, refused);
    slab_set_use(slab, likely(taken) ? SLAB_CURRENT : SLAB_ASIDE);
    return taken;
}

bool slab_try_leave(struct span *slab)
{
    while (!slab_try_use(slab, SLAB_IDLE)) {
        uint32_t purged = slab_purged_word(SLAB_PURGED);
        if (compare_swap_seq_cst(&slab_cold(slab)->use, &purged, slab_purged_word(SLAB_EMPTIED)) ||
            purged == slab_purged_word(SLAB_EMPTIED))
            return false;
    }
    return true;
}

bool slab_end_purge(struct span *slab)
{
    uint32_t before = exchange_seq_cst(&slab_cold(slab)->use, (uint32_t)SLAB_ASIDE);
    return before == slab_purged_word(SLAB_EMPTIED);
}

/* Sweeps call this and packed_live for slabs that may become others meanwhile. */
not_instrumented unsigned slab_remote(const struct span *slab)
{
    uint64_t limit = smaller_of(load_relaxed(&slab->fresh_slot), (uint64_t)CAPACITY_MAX + 1);
    unsigned count = 0;
    for (unsigned first = 1; first < limit; first += LINKS_A_WORD)
        count += count_bits(slab_remote_links(slab, first));
    return count;
}

/* Whether a link byte is that of a block in use, borrowed, or being freed. */
static bool slab_link_is_held(uint8_t link)
{
    return link_shows_use(link) || (!config_hardened && link == LINK_BORROWED) ||
           (config_zero_freed && link == LINK_TAKEN);
}

/* Whether a link byte is one of these, or of a remote free that is not collected. */
static bool slab_link_is_live(uint8_t link)
{
    return slab_link_is_held(link) || link == LINK_REMOTE;
}

unsigned slab_live(const struct span *slab)
{
    unsigned handed_out = (unsigned)load_relaxed(&slab->fresh_slot) - 1;
    unsigned live = 0;
    for (unsigned slot = 1; slot <= handed_out; slot++)
        live += slab_link_is_live(load_relaxed(slab_link(slab, slot)));
    return live;
}

seldom_called bool slab_is_in_use(const struct span *slab)
{
    unsigned limit = (unsigned)load_relaxed(&slab->fresh_slot);
    bool packed = slab_is_packed(slab);
    for (unsigned slot = 1; slot < limit; slot++)
        if (packed ? load_seq_cst(packed_word(slab, slot - 1)) != UINT64_MAX
                   : slab_link_is_held(load_seq_cst(slab_link(slab, slot))))
            return true;
    return false;
}

unsigned packed_ready(const struct span *slab)
{
    size_t words = packed_words(slab);
    unsigned ready = (unsigned)(PACKED_SLOTS - words);
    while (words-- > 0)
        ready += load_seq_cst(packed_word(slab, words)) != 0;
    return ready;
}

not_instrumented size_t packed_live(const struct span *slab)
{
    size_t live = 0;
    for (size_t word = packed_words(slab); word-- > 0;)
        live += 64 - count_bits(load_relaxed(packed_word(slab, word)));
    return live;
}

unsigned slab_used(const struct span *slab)
{
    unsigned used = slab_is_packed(slab) ? 0 : slab_live(slab);
    if (slab_is_packed(slab))
        for (size_t word = packed_words(slab); word-- > 0;)
            used += load_seq_cst(packed_word(slab, word)) != UINT64_MAX;
    else if (config_quarantine)
        for (unsigned slot = 1; slot <= slab->capacity; slot++)
            used += *slab_link(slab, slot) == LINK_QUARANTINED;
    return used;
}

void slab_verify(const struct span *slab)
{
    if (!config_debug)
        return;
    unsigned limit = (unsigned)load_relaxed(&slab->fresh_slot);
    check_internal(limit >= 1 && limit - 1 <= slab->capacity);
    if (slab_is_packed(slab))
        return;
    unsigned listed = 0;
    check_internal(slab_hot(slab)->head == LINK_END ||
                   slab_hot(slab)->top == slab_block(slab, slab_hot(slab)->head));
    for (unsigned slot = slab_hot(slab)->head; slot != LINK_END; slot = *slab_link(slab, slot)) {
        check_internal(!slab_link_is_live((uint8_t)slot) && slot < limit);
        check_internal(++listed <= slab->capacity);
    }
    check_internal(listed + slab_used(slab) == limit - 1);
}
