/* Ranges of bitmaps, one word at a time. */
#include "base/bits.h"

typedef void word_visit(uint64_t *word, uint64_t mask, size_t *total);

static inline size_t bits_visit_range(uint64_t *words, size_t first, size_t count,
                                      word_visit *visit)
{
    size_t total = 0;
    while (count > 0) {
        size_t bit = first % 64;
        size_t taken = smaller_of(64 - bit, count);
        uint64_t mask = (taken == 64 ? ~(uint64_t)0 : (((uint64_t)1 << taken) - 1)) << bit;
        visit(&words[first / 64], mask, &total);
        first += taken;
        count -= taken;
    }
    return total;
}

static inline void bits_set_mask(uint64_t *word, uint64_t mask, size_t *total)
{
    (void)total;
    *word |= mask;
}

static inline void bits_clear_mask(uint64_t *word, uint64_t mask, size_t *total)
{
    (void)total;
    *word &= ~mask;
}

static inline void bits_count_mask(uint64_t *word, uint64_t mask, size_t *total)
{
    *total += count_bits(*word & mask);
}

void bitmap_set(uint64_t *words, size_t first, size_t count)
{
    bits_visit_range(words, first, count, bits_set_mask);
}

void bitmap_clear(uint64_t *words, size_t first, size_t count)
{
    bits_visit_range(words, first, count, bits_clear_mask);
}

size_t bitmap_count(const uint64_t *words, size_t first, size_t count)
{
    return bits_visit_range((uint64_t *)(uintptr_t)words, first, count, bits_count_mask);
}
