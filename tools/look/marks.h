// Marking the blocks that pointers lead to: marks.c; leaks.c reports the others.
#ifndef CAIRN_TOOLS_MARKS_H
#define CAIRN_TOOLS_MARKS_H

#include "look.h"

struct marks {
    struct look *look;
    struct index index;
    uint64_t *reached; // a bit a slot, as in index.live
    uint64_t *scanned;
    size_t *queue; // numbers of spans with slots that were reached and not scanned
    size_t queued;
    uint64_t lowest, highest; // of all blocks
    uint64_t root_bytes, unread_bytes;
};

inline bool is_set(const uint64_t *bits, size_t at) { return bits[at / 64] >> at % 64 & 1; }
inline void set(uint64_t *bits, size_t at) { bits[at / 64] |= (uint64_t)1 << at % 64; }

// A live block that no pointer leads to.
inline bool is_lost(const struct marks *marks, size_t block)
{
    return is_set(marks->index.live, block) && !is_set(marks->reached, block);
}

uint64_t *new_bits(const struct marks *marks); // a bit a slot, all 0

// Each aligned word of an address range, as far as it can be read.
typedef void word_seen(struct marks *marks, uint64_t word, void *context);
void see_words(struct marks *marks, uint64_t address, uint64_t bytes, word_seen *seen,
               void *context);

// Each lost block, by address.
typedef void block_seen(struct marks *marks, size_t block, const struct block_span *span,
                        uint64_t address, void *context);
void each_lost(struct marks *marks, block_seen *seen, void *context);

// Marks all that one look at the target finds, or what one of two looks does: of a target that
// runs.
void mark_once(struct marks *marks);
void mark_twice(struct marks *marks);

#endif
