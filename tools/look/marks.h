// Marking the blocks that pointers lead to, in marks.c. confirm.c confirms that the others are
// lost, and leaks.c reports them.
#ifndef CAIRN_TOOLS_MARKS_H
#define CAIRN_TOOLS_MARKS_H

#include "look.h"

struct marks {
    struct look *look;
    struct index index;
    uint64_t *reached; // one bit for each slot, as in index.live
    uint64_t *scanned;
    size_t *queue; // numbers of spans with slots that were reached but not scanned
    size_t queued;
    uint64_t lowest, highest; // addresses of all blocks
    uint64_t root_bytes, unread_bytes;
};

inline bool is_set(const uint64_t *bits, size_t at) { return bits[at / 64] >> at % 64 & 1; }
inline void set(uint64_t *bits, size_t at) { bits[at / 64] |= (uint64_t)1 << at % 64; }

// Returns: whether the block is live and no pointer to it was found.
inline bool is_lost(const struct marks *marks, size_t block)
{
    return is_set(marks->index.live, block) && !is_set(marks->reached, block);
}

uint64_t *new_bits(const struct marks *marks); // one bit for each slot, all 0

// Calls `seen` for each readable aligned word of an address range, with its address.
typedef void word_seen(struct marks *marks, uint64_t word, uint64_t place, void *context);
void see_words(struct marks *marks, uint64_t address, uint64_t bytes, word_seen *seen,
               void *context);

// Calls `seen` for each lost block, in order of addresses.
typedef void block_seen(struct marks *marks, size_t block, const struct block_span *span,
                        uint64_t address, void *context);
void each_lost(struct marks *marks, block_seen *seen, void *context);

// mark_once marks every block that one pass over the target reaches. mark_twice, for a running
// target, marks every block that at least one of two passes reaches.
void mark_once(struct marks *marks);
void mark_twice(struct marks *marks);

// Calls `seen` for each address range that contains roots: the target's memory without Cairn's, but
// with the pages of other Cairn allocators.
typedef void root_seen(struct marks *marks, uint64_t start, uint64_t end, void *context);
void each_root(struct marks *marks, root_seen *seen, void *context);

// Returns: the start of the part in use. In a stack, memory below the lowest pointer into it is not
// in use.
uint64_t start_in_use(const struct target *target, uint64_t start, uint64_t end);

struct holds {
    unsigned count;
    uint64_t longest_ns; // from the stop of the first thread to the release of the last
};

// confirm.c: removes from the lost blocks of a running process those that a pointer leads to.
// Returns: NULL, or the reason why the remaining blocks are not certain.
const char *confirm_lost(struct marks *marks, struct holds *held);

// contents.c: prints the first bytes of a block, and the class of a C++ object.
void print_contents(struct look *look, uint64_t address, uint64_t size);
// Returns: the address in a file's code or data that the first word of the block points to, or one
// of the constants.
enum { KIND_IS_OTHER, KIND_IS_TEXT };
uint64_t kind_of(struct look *look, uint64_t address, uint64_t size);

// groups.c
struct group {
    uint64_t bytes, kind;
    uint32_t site;                                     // site of the profiler; 0: none
    uint64_t address, blocks, held_blocks, held_bytes; // address of one block; sums over all
};
struct groups {
    struct group *table; // by hash; a group without blocks is a free entry
    size_t places, count;
};
void add_to_group(struct target *target, struct groups *groups, const struct group *one);
void print_groups(struct look *look, struct groups *groups);

#endif
