// What `cairn advise` knows of a trace: sums a site, kept while the events go by, so that memory is
// bounded by the live blocks and the sites, not by the length of the trace.
//
// A site is a number that the caller of the tool gives to stacks that mean the same place; without
// such numbers each stack is its own. All is written and read by one thread.
#ifndef CAIRN_ADVISE_H
#define CAIRN_ADVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    BLOCKS_MOST = 8 << 20, // live at a time; what is more is counted and not followed
    SITES_MOST = 1 << 16,  // the last one stands for all that are more
    THREADS_MOST = 1 << 12,
    STACK_DEPTH = 64,
    POINTS = 128,     // of the time line; the step between them doubles when they are full
    LIFE_STEPS = 40,  // powers of two
    GROWN_STEPS = 80, // four to each power of two, from GROWN_FIRST on
    GROWN_FIRST = 64,
    SIZES_KEPT = 6,
    NO_BLOCK = 0,
    PAGE_BYTES = 4096,
};

enum advise_kind {
    ADVISE_ALLOCATE,
    ADVISE_FREE,
    ADVISE_RESIZE, // stays where it is
    ADVISE_RESIZE_FROM,
    ADVISE_RESIZE_TO,
    ADVISE_RESIZE_FAILED,
};

struct advise_event {
    enum advise_kind kind;
    uint32_t thread;
    uint32_t stack;
    uint64_t address;
    uint64_t size_bytes;
    uint64_t time_ns;
};

// A live block.
struct block {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t birth_bytes; // allocated by the program before it
    uint64_t birth_ns;
    uint64_t birth_event;
    uint32_t site;
    uint32_t stack;
    uint32_t serial; // its number in the site, or the next free entry
    uint16_t thread;
    uint16_t growth; // times that it grew, by realloc or by a larger copy of it
};

struct size_count {
    uint64_t size_bytes;
    uint64_t count; // Misra and Gries: too small by at most the site's blocks / (SIZES_KEPT + 1)
};

struct site {
    uint64_t allocations, frees, allocated_bytes, freed_bytes;
    uint64_t live, live_bytes, live_most, live_bytes_most;
    uint64_t lost_bytes;                                    // of live blocks, to rounding
    uint64_t peak_number, peak_bytes, peak_lost, peak_live; // at the program's peak
    uint64_t size_least, size_most;
    struct size_count sizes[SIZES_KEPT];
    uint64_t life_bytes[LIFE_STEPS], life_ns[LIFE_STEPS];

    // Order of the frees. A run is frees without an allocation of the site between them.
    uint64_t ascending; // frees of a block younger than the one freed before
    uint64_t last_in;   // frees that a stack of blocks would allow
    uint64_t drains;    // times that no block was live any more
    uint64_t grouped;   // freed in a run of at least two that were made one after the other
    uint64_t groups;
    uint64_t runs;
    uint32_t serial, last_freed, run_least, run_most, run_count;
    bool run_is_last_in;

    // Who frees.
    uint64_t other_thread;   // another one than allocated
    uint64_t at_once;        // before the thread's next event but three
    uint64_t same_function;  // the function that allocated
    uint64_t in_ancestor;    // while a function was active that was so at the allocation
    uint64_t ancestor_depth; // sum, of frames between that and the allocation
    uint64_t left;           // after every such function, as far as known, had returned
    uint64_t before;         // by a call above that of the allocation: of the round before
    uint32_t thread_first;
    bool is_of_threads; // of more than one

    // Growth, of blocks at their end.
    uint64_t resizes, moved_bytes; // by all realloc
    uint64_t grown_blocks, grown_steps, grown_final_bytes, grown_final_most, copied_bytes;
    uint32_t grown_finals[GROWN_STEPS]; // blocks by their size at their end

    uint64_t pinned_bytes; // most that its blocks alone held of their pages, see advise_pages.c
    uint64_t pinned_now;
    uint64_t points_live[POINTS], points_allocated[POINTS];
    uint32_t stack;          // one of its stacks
    uint32_t ancestor_stack; // of a free in an ancestor
};

struct point {
    uint64_t time_ns, live_bytes, allocated_bytes;
};

struct advice {
    struct site *sites; // SITES_MOST, untouched ones cost nothing
    uint32_t site_count;
    uint32_t *site_of_stack;
    uint32_t stack_count;
    uint64_t events, allocations, frees, allocated_bytes, live_bytes, live, peak_bytes;
    uint64_t peak_number, peak_lost_bytes, lost_bytes, resizes;
    uint64_t unknown_frees, untracked;
    uint64_t high_bytes, low_bytes; // live: most since the last low point, least since then
    uint64_t first_ns, last_ns;
    uint64_t pinned_bytes; // most
    struct point points[POINTS];
    unsigned point_count;
    uint64_t point_step, point_next;
    bool has_free_stacks;
    unsigned threads;
};

// advise_blocks.c: address to live block.
bool blocks_start(void);
struct block *block_add(uint64_t address); // NULL when there are too many
struct block *block_find(uint64_t address);
void block_remove(struct block *block);
typedef void block_visitor(const struct block *block, void *context);
void blocks_visit(block_visitor *visit, void *context);
uint64_t blocks_live(void);

// advise_paths.c: stacks, and which functions a thread is in.
struct shared_frame {
    uint64_t since;   // event at which the thread was seen to be in it first
    unsigned depth;   // frames above it are shared, too; 0: none is
    unsigned between; // it and the allocating function; 0: they are the same
    bool backward;    // it frees by a call that lies above that which allocates
};
bool paths_add(uint32_t stack, const uint64_t *frames_outer_first, unsigned count);
void path_moves(uint32_t thread, uint32_t stack, uint64_t event);
struct shared_frame path_shared(uint32_t thread, uint32_t allocation, uint32_t release);

// advise_places.c: which site a stack is of. Stacks with the same innermost frames are of one site;
// frames that come again, as in a recursion, count once.
bool place_add(struct advice *advice, uint32_t stack, const uint64_t *frames_inner_first,
               unsigned count);

// advise_sites.c: the sums.
bool advice_start(struct advice *advice, bool has_free_stacks);
void advice_event(struct advice *advice, const struct advise_event *event);
void advice_finish(struct advice *advice);
uint64_t class_bytes(uint64_t size_bytes);

// The size that so many in ten of the site's grown blocks do not exceed, rounded up by at most a
// quarter; 0 where none grew.
uint64_t grown_size(const struct site *site, unsigned tenths);

// advise_pages.c
void pages_look(struct advice *advice);

// advise_json.c
void advice_write(const struct advice *advice, FILE *file);
bool site_matters(const struct advice *advice, const struct site *site); // it is written

#endif
