// The data that `cairn advise` extracts from a trace: sums for each site, updated event by event.
// So memory is bounded by the live blocks and the sites, not by the length of the trace.
//
// A site is the number of all stacks with the same innermost frames (advise_places.c).
//
// Threads: one.
#ifndef CAIRN_ADVISE_H
#define CAIRN_ADVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    BLOCKS_MOST = 8 << 20, // simultaneously live; further blocks are counted but not followed
    SITES_MOST = 1 << 16,  // the last one stands for all further sites
    THREADS_MOST = 1 << 12,
    STACK_DEPTH = 64,
    POINTS = 128,     // of the time line; their distance doubles when all are used
    LIFE_STEPS = 40,  // powers of two
    GROWN_STEPS = 80, // four for each power of two, from GROWN_FIRST on
    GROWN_FIRST = 64,
    SIZES_KEPT = 6,
    NO_BLOCK = 0,
    ADVISE_PAGE_BYTES = 4096,
};

enum advise_kind {
    ADVISE_ALLOCATE,
    ADVISE_FREE,
    ADVISE_RESIZE, // the block stays at its address
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
    uint64_t birth_bytes; // bytes allocated by the program before it
    uint64_t birth_ns;
    uint64_t birth_event;
    uint32_t site;
    uint32_t stack;
    uint32_t serial; // number in the site, or the next free entry
    uint16_t thread;
    uint16_t growth; // number of times that realloc made it larger
};

struct size_count {
    uint64_t size_bytes;
    uint64_t count; // too small by at most the site's blocks / (SIZES_KEPT + 1) (Misra and Gries)
};

struct site {
    uint64_t allocations, frees, allocated_bytes, freed_bytes;
    uint64_t live, live_bytes, live_most, live_bytes_most;
    uint64_t lost_bytes;                                    // of live blocks, lost to rounding
    uint64_t peak_number, peak_bytes, peak_lost, peak_live; // at the program's peak
    uint64_t size_least, size_most;
    struct size_count sizes[SIZES_KEPT];
    uint64_t life_bytes[LIFE_STEPS], life_ns[LIFE_STEPS];

    // Order of the frees. A run is a sequence of frees without an allocation of the site in
    // between.
    uint64_t ascending; // frees of a block younger than the block freed before
    uint64_t last_in;   // frees that a stack of blocks would allow
    uint64_t drains;    // number of times that no block was live any more
    uint64_t grouped;   // blocks freed in a run of at least two that were made one after the other
    uint64_t groups;
    uint64_t runs;
    uint32_t serial, last_freed, run_least, run_most, run_count;
    bool run_is_last_in;

    // The code that frees.
    uint64_t other_thread;   // by a thread other than the allocating one
    uint64_t at_once;        // within the thread's next three events
    uint64_t same_function;  // in the allocating function
    uint64_t in_ancestor;    // in a function that was active at the allocation
    uint64_t ancestor_depth; // sum of the frames between that function and the allocation
    uint64_t left;           // after every such function, as far as known, had returned
    uint64_t before;         // by a call before that of the allocation: in the next round of a loop
    uint32_t thread_first;
    bool is_of_threads; // more than one thread allocates

    // Growth, of blocks at their end.
    uint64_t resizes, moved_bytes; // by all resizes
    uint64_t grown_blocks, grown_steps, grown_final_bytes, grown_final_most, copied_bytes;
    uint32_t grown_finals[GROWN_STEPS]; // blocks by their final size

    uint64_t pinned_bytes; // most bytes of pages that only its blocks held: advise_pages.c
    uint64_t pinned_now;
    uint64_t point_most; // live bytes since the last point of the time line
    uint64_t points_live[POINTS], points_allocated[POINTS];
    uint32_t stack;          // one of its stacks
    uint32_t ancestor_stack; // stack of a free in an ancestor
};

// A point of the time line: the most live bytes since the previous point, so that no peak is
// missed, and the bytes allocated so far. points_live and points_allocated of a site are the site's
// parts of it.
struct point {
    uint64_t time_ns, live_bytes, allocated_bytes;
};

struct advice {
    struct site *sites; // SITES_MOST; unused ones take no memory
    uint32_t site_count;
    uint32_t *site_of_stack;
    uint32_t stack_count;
    uint64_t events, allocations, frees, allocated_bytes, live_bytes, live, peak_bytes;
    uint64_t peak_number, peak_lost_bytes, lost_bytes, resizes;
    uint64_t unknown_frees, untracked;
    uint64_t high_bytes, low_bytes; // live bytes: most since the last low point, least since then
    uint64_t first_ns, last_ns;
    uint64_t pinned_bytes; // most
    struct point points[POINTS];
    unsigned point_count;
    uint64_t point_step, point_next, point_most;
    bool has_free_stacks;
    unsigned threads;
};

// advise_blocks.c: finds the live block of an address.
bool blocks_start(void);
struct block *block_add(uint64_t address); // NULL when there are too many
struct block *block_find(uint64_t address);
void block_remove(struct block *block);
typedef void block_visitor(const struct block *block, void *context);
void blocks_visit(block_visitor *visit, void *context);
uint64_t blocks_live(void);

// advise_paths.c: stacks, and the functions that a thread is in.
struct shared_frame {
    uint64_t since;   // first event at which the thread was seen in it
    unsigned depth;   // number of shared frames; 0: none
    unsigned between; // frames between it and the allocating function; 0: the same function
    bool backward;    // its freeing call is before its allocating call
};
bool paths_add(uint32_t stack, const uint64_t *frames_outer_first, unsigned count);
void path_moves(uint32_t thread, uint32_t stack, uint64_t event);
struct shared_frame path_shared(uint32_t thread, uint32_t allocation, uint32_t release);

// advise_places.c: assigns a site to a stack. Stacks with the same innermost frames have one site;
// repeated frames, as in a recursion, count once.
bool place_add(struct advice *advice, uint32_t stack, const uint64_t *frames_inner_first,
               unsigned count);

// advise_sites.c: the sums of the sites.
bool advice_start(struct advice *advice, bool has_free_stacks);
void advice_event(struct advice *advice, const struct advise_event *event);
void advice_finish(struct advice *advice);
uint64_t class_bytes(uint64_t size_bytes);

// Returns: the size that `tenths` in ten of the site's grown blocks do not exceed, rounded up by at
// most a quarter; 0 when none grew.
uint64_t grown_size(const struct site *site, unsigned tenths);

// advise_pages.c: updates the pinned bytes at a low point.
void pages_look(struct advice *advice);

// advise_json.c: writes the sums as JSON.
void advice_write(const struct advice *advice, FILE *file);
// Returns: whether the site is written.
bool site_matters(const struct advice *advice, const struct site *site);

#endif
