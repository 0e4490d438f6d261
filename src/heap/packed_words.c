/* The words of packed slabs: see packed_words.h. */
#include "heap/packed_words.h"

#include "base/check.h"
#include "base/test_delay.h"

/* Words in use that may have free blocks, of 64 of them from `first` on. Who compares them with the
 * limit reads that once: another thread may see two values of it. */
static uint64_t ready_words(struct span *slab, size_t first, size_t limit)
{
    uint64_t known = limit >= first + 64 ? UINT64_MAX : limit > first ? packed_bit(limit) - 1 : 0;
    return load_seq_cst(packed_summary(slab, first)) & known;
}

size_t packed_count_ready(struct span *slab, size_t limit)
{
    size_t ready = 0;
    for (size_t first = 0; first < PACKED_WORDS; first += 64)
        ready += count_bits(ready_words(slab, first, limit));
    return ready;
}

bool packed_all_free(const struct span *slab)
{
    for (size_t word = 0; word < load_relaxed(&slab->limit); word++)
        if (load_seq_cst(packed_word(slab, word)) != UINT64_MAX)
            return false;
    return true;
}

/* False when no block of it is free. */
static bool claim(struct span *slab, size_t word)
{
    struct remote *remote = slab_remote(slab);
    uint32_t serial = remote->serial;
    store_relaxed(&remote->serial, serial + 1);
    store_release(&slab_own(slab)->claimed_at, packed_word_start(slab, word));
    fetch_and_seq_cst(packed_summary(slab, word), ~packed_bit(word));
    test_delay();
    uint64_t bits = load_seq_cst(packed_word(slab, word));
    do
        store_release(&slab->claimed, bits);
    while (bits != 0 && !compare_swap_seq_cst(packed_word(slab, word), &bits,
                                              (uint64_t)0)); /* acquire: pairs with (1) */
    store_release(&remote->serial, serial + 2);
    test_delay();
    if (load_seq_cst(packed_word(slab, word)) != 0)
        fetch_or_seq_cst(packed_summary(slab, word), packed_bit(word));
    return bits != 0;
}

/* The serial number tells that all three are of one time between claims; the acquires pair with the
 * releases in claim(). The word is looked at first: until the next claim, a bit of it does not turn
 * up among the claimed ones. */
struct packed_bits packed_bits_at(const struct span *slab, size_t index, const char *start)
{
    for (;; pause_processor()) {
        uint32_t serial = load_acquire(&slab_remote(slab)->serial);
        uint64_t word = load_acquire(packed_word(slab, index / 64));
        bool here = load_acquire(&slab_own(slab)->claimed_at) == start;
        uint64_t claimed = load_acquire(&slab->claimed);
        if (load_relaxed(&slab_remote(slab)->serial) == serial && serial % 2 == 0)
            return (struct packed_bits){(word & packed_bit(index)) != 0,
                                        here && (claimed & packed_bit(index)) != 0};
    }
}

_Noreturn void packed_die_twice(const void *block)
{
    die("double free of %p (%u-byte block)", block, (unsigned)PACKED_BYTES);
}

/* A time of its own for packed_bits_at, which would else see bits in both places. */
void packed_unclaim(struct span *slab)
{
    struct remote *remote = slab_remote(slab);
    uint32_t serial = remote->serial;
    store_relaxed(&remote->serial, serial + 1);
    if (slab->claimed != 0) {
        size_t word = (size_t)(slab_own(slab)->claimed_at - slab->base) / PACKED_BYTES / 64;
        uint64_t old = fetch_or_seq_cst(packed_word(slab, word), slab->claimed);
        if (unlikely((old & slab->claimed) != 0)) /* its freer was not yet there to see it */
            packed_die_twice(slab_own(slab)->claimed_at +
                             lowest_bit(old & slab->claimed) * PACKED_BYTES);
        test_delay();
        fetch_or_seq_cst(packed_summary(slab, word), packed_bit(word));
        store_release(&slab->claimed, (uint64_t)0);
    }
    store_release(&slab_own(slab)->claimed_at, NULL);
    store_relaxed(&remote->swept.looked, (uint64_t)0);
    store_release(&remote->serial, serial + 2);
}

bool packed_claim_next(struct span *slab)
{
    size_t limit = load_relaxed(&slab->limit);
    for (size_t first = 0; first < PACKED_WORDS; first += 64)
        for (uint64_t ready = ready_words(slab, first, limit); ready != 0; ready &= ready - 1)
            if (claim(slab, first + lowest_bit(ready)))
                return true;
    if (limit == PACKED_WORDS)
        return false;
    store_relaxed(packed_word(slab, limit), UINT64_MAX);
    store_relaxed(&slab->limit, (uint64_t)limit + 1);
    return claim(slab, limit);
}

size_t packed_live(const struct span *slab)
{
    size_t limit = smaller_of(load_relaxed(&slab->limit), (uint64_t)PACKED_WORDS);
    size_t live = limit * 64;
    for (size_t word = 0; word < limit; word++)
        live -= count_bits(load_relaxed(packed_word(slab, word)));
    return live - smaller_of(live, count_bits(load_relaxed(&slab->claimed)));
}
