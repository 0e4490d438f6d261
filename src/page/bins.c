/* The two-level bins of free spans: see bins.h. */
#include "page/bins.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"

enum {
    EXACT_BINS = 64, /* one for each length below */
    STEP_BITS = 4,   /* 16 bins a doubling above */
    BIN_COUNT = EXACT_BINS + (32 - 6) * (1 << STEP_BITS),
    WORD_COUNT = (BIN_COUNT + 63) / 64,
    PROBE_LIMIT = 16, /* spans looked at in a bin whose members differ in length */
};

enum { CLEAN, DIRTY, SETS };

static struct {
    uint64_t filled[WORD_COUNT];   /* page lock: bin has members */
    struct span *heads[BIN_COUNT]; /* page lock */
} sets[SETS];

static unsigned bin_of(size_t pages)
{
    if (pages < EXACT_BINS)
        return (unsigned)pages;
    unsigned top = highest_bit(pages);
    unsigned step = (unsigned)(pages >> (top - STEP_BITS)) & ((1u << STEP_BITS) - 1);
    return EXACT_BINS + ((top - 6) << STEP_BITS) + step;
}

static unsigned set_of(const struct span *span) { return span->dirty_pages != 0 ? DIRTY : CLEAN; }

void bins_insert(struct span *span)
{
    unsigned set = set_of(span);
    unsigned bin = bin_of(span->pages);
    struct span *head = sets[set].heads[bin];
    span->next = head;
    span->prev = NULL;
    if (head)
        head->prev = span;
    sets[set].heads[bin] = span;
    sets[set].filled[bin / 64] |= (uint64_t)1 << bin % 64;
}

void bins_remove(struct span *span)
{
    unsigned set = set_of(span);
    unsigned bin = bin_of(span->pages);
    if (span->next)
        span->next->prev = span->prev;
    if (span->prev)
        span->prev->next = span->next;
    else
        sets[set].heads[bin] = span->next;
    if (sets[set].heads[bin] == NULL)
        sets[set].filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
}

/* The first filled bin at or above `bin`, BIN_COUNT if none. */
static unsigned next_filled(unsigned set, unsigned bin)
{
    unsigned word = bin / 64;
    if (word >= WORD_COUNT)
        return BIN_COUNT;
    uint64_t bits = sets[set].filled[word] & (~(uint64_t)0 << bin % 64);
    while (bits == 0) {
        if (++word == WORD_COUNT)
            return BIN_COUNT;
        bits = sets[set].filled[word];
    }
    return word * 64 + lowest_bit(bits);
}

static bool fits(const struct span *span, size_t pages, size_t alignment_pages)
{
    size_t first = (uintptr_t)span->base >> PAGE_SHIFT;
    return align_up(first, alignment_pages) - first + pages <= span->pages;
}

static struct span *find_in(unsigned set, size_t pages, size_t alignment_pages)
{
    unsigned bin = next_filled(set, bin_of(pages));
    for (; bin < BIN_COUNT; bin = next_filled(set, bin + 1)) {
        struct span *best = NULL;
        unsigned probes = 0;
        for (struct span *span = sets[set].heads[bin]; span && probes < PROBE_LIMIT;
             span = span->next, probes++)
            if (fits(span, pages, alignment_pages) && (best == NULL || span->pages < best->pages))
                best = span;
        if (best)
            return best;
    }
    return NULL;
}

struct span *bins_find(size_t pages, size_t alignment_pages)
{
    struct span *span = find_in(DIRTY, pages, alignment_pages);
    return span ? span : find_in(CLEAN, pages, alignment_pages);
}

struct span *bins_longest_dirty(void)
{
    for (unsigned word = WORD_COUNT; word-- > 0;)
        if (sets[DIRTY].filled[word])
            return sets[DIRTY].heads[word * 64 + highest_bit(sets[DIRTY].filled[word])];
    return NULL;
}

void bins_each_clean(void (*look)(struct span *span))
{
    for (unsigned bin = next_filled(CLEAN, 0); bin < BIN_COUNT; bin = next_filled(CLEAN, bin + 1))
        for (struct span *span = sets[CLEAN].heads[bin], *next; span; span = next) {
            next = span->next;
            look(span);
        }
}

size_t bins_verify(void)
{
    size_t pages = 0;
    for (unsigned set = 0; set < SETS; set++)
        for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
            struct span *prev = NULL;
            for (struct span *span = sets[set].heads[bin]; span; prev = span, span = span->next) {
                check_internal(span->prev == prev);
                check_internal(span->tag == SPAN_FREE);
                check_internal(bin_of(span->pages) == bin && set_of(span) == set);
                pages += span->pages;
            }
            check_internal((sets[set].heads[bin] != NULL) ==
                           (sets[set].filled[bin / 64] >> bin % 64 & 1));
        }
    return pages;
}
