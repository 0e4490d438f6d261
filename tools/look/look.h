// cairn-look: reads the heap of another process, or of a core file, from outside, for `cairn
// inspect` and `cairn stats`. Nothing runs in the target, and nothing of it is written.
//
// What stands where, each file using only those before it: memory.c reads by address, process.c and
// core.c open the two kinds of targets, find.c finds the library and its description
// (src/base/layout.h), walk.c goes through the page map and tells each span, slab.c the state of a
// slab's slots, map.c a line of a run of pages, census.c counts, address.c and blocks.c answer for
// one block and for all, threads.c reads the registers of threads, index.c finds the block of any
// address, marks.c marks what pointers lead to, leaks.c reports the others, samples.c reads the
// profiler's records, pins.c counts what live blocks pin, plan.c what a purge would give back,
// profile_read.c makes a dump of the profiler's tables, look_tool.c has the arguments.
//
// A target that runs changes while it is read. So every value is bounded before it is used, each
// loop ends by a bound of its own, and what contradicts itself is counted (`torn`), not followed. A
// core file may lack pages: what could not be read is counted (`unreadable`).
//
// Output: lines of words with tabs between, the first of which says what the line is of, the others
// are name=value. Exit status: 0, or 2 with a sentence on stderr.
#ifndef CAIRN_TOOLS_LOOK_H
#define CAIRN_TOOLS_LOOK_H

#include <base/layout.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>

noreturn void fail(const char *sentence, ...) __attribute__((format(printf, 1, 2)));
void *take_memory(void *old, size_t bytes); // realloc that never gives NULL
// An array of `*most` things of so many bytes, moved if need be so that it has room for more than
// `count`; NULL is an empty one.
void *with_room(void *array, size_t count, size_t *most, size_t bytes);

// One mapping of the target: of a process its line in /proc/PID/maps, of a core file a segment or
// a line of its list of files.
struct mapping {
    uint64_t start, end, file_offset;
    const char *path; // "" for none
    bool readable, writable, shared, executable;
};

struct segment { // of a core file; a process has none
    uint64_t start, bytes, file_offset;
};

enum { CACHE_PAGE = 4096, CACHE_PAGES = 2048, FRAMES_MOST = 256, BUILD_ID_MOST = 64 };

struct cache_page {
    uint64_t address; // 0: nothing here
    bool readable;
    unsigned char bytes[CACHE_PAGE];
};

struct target {
    const char *name;
    int file;                          // /proc/PID/mem, or the core file
    int pid;                           // 0: a core file
    int core_pid;                      // of a core file: whose it is; 0: it does not say
    char state;                        // of a process, as in /proc/PID/stat; 0: a core file
    char program[64];                  // what it runs
    int residence;                     // /proc/PID/pagemap, -1: cannot be read
    uint64_t page_bytes;               // the system's
    uint64_t core_bytes, core_missing; // length of the core file as it should be, and what lacks
    struct mapping *mappings;
    size_t mapping_count;
    struct segment *segments;
    size_t segment_count;
    struct cache_page *cache;
    uint64_t *registers; // of all threads, as words; what is no pointer among them harms nobody
    size_t register_words;
    uint64_t *stack_pointers; // of each thread
    size_t thread_count;
    size_t threads_unread; // something else traces them
};

// memory.c: false when not all of it can be read. The first through the cache, for small pieces.
bool read_small(struct target *target, uint64_t address, void *buffer, size_t bytes);
bool read_large(struct target *target, uint64_t address, void *buffer, size_t bytes);
void forget_pages(struct target *target); // what the cache has
const struct mapping *mapping_of(const struct target *target, uint64_t address);
const struct segment *segment_of(const struct target *target, uint64_t address);
// Of so many pages of the system's from the address on, how many have memory; false: unknown.
bool count_resident(struct target *target, uint64_t address, uint64_t bytes, uint64_t *resident);

// False: nobody ever wrote there, so it reads zero; reading it would only make page tables.
bool was_touched(struct target *target, uint64_t address, uint64_t bytes);
// Of a private mapping of a file: false when it still says what the file does.
bool was_written(struct target *target, uint64_t address, uint64_t bytes);

// process.c, core.c: end the program with a sentence when they cannot.
void open_process(struct target *target, int pid);
void read_mappings_again(struct target *target); // of a process; paths known before stay valid
// Ends the program with a sentence when the process has ended; before another is said of it.
void check_alive(const struct target *target);
void open_core(struct target *target, const char *path);
// Of the mappings that are marked, by their numbers; 0 of a core file.
uint64_t mappings_resident(const struct target *target, const bool *marked);
const char *other_malloc(const struct target *target); // a name of one that it has mapped, or NULL

// precedence.c: before other programs, for as long as another process waits for this one; may be
// nested. False when it may not.
bool go_first(void);
void go_as_before(void);

// threads.c: of a process. A thread stops while its registers are read; held ones until release.
void read_threads(struct target *target, bool hold);
void release_threads(const struct target *target);
// One thread's general registers, as the kernel hands them out; `bytes` says which machine's.
void add_registers(struct target *target, const void *registers, size_t bytes);
void forget_threads(struct target *target);

// find.c
struct library {
    uint64_t at; // of its library_layout
    const char *path;
    char version[32];
    struct library_layout root;
    struct page_layout page;
    struct heap_layout heap;
    struct guarded_layout guarded;
    struct profile_layout profile;
    uint64_t class_bytes[256], class_pages[256], class_capacity[256]; // class_count of them
    uint32_t generation;
    size_t others; // more libraries like it in the target, each with a heap of its own
};
void find_library(struct target *target, struct library *library);
// The build id of the file that the mapping is of, into BUILD_ID_MOST bytes; its length, 0:
// unknown.
size_t read_build_id(struct target *target, const struct mapping *mapping, unsigned char *id);
uint64_t address_of(const void *pointer); // of the target's: a number here
uint64_t field(const void *bytes, struct layout_field place);
// A field of a struct of the target's, at an address; false when it cannot be read.
bool read_field(struct target *target, uint64_t address, struct layout_field place,
                uint64_t *value);

// walk.c
enum span_kind {
    SPAN_IS_SLAB,
    SPAN_IS_LARGE,
    SPAN_IS_HUGE,
    SPAN_IS_FREE,
    SPAN_IS_KEPT,
    SPAN_IS_RUN,
    SPAN_IS_TRAPPED,
    SPAN_IS_GUARDED,
    SPAN_KINDS
};
struct span_view {
    enum span_kind kind;
    uint64_t header, start, bytes;
    uint64_t owner, heap; // slab: the word, and the heap in it
    uint64_t limit, dirty_pages, claimed;
    uint64_t cold, remote; // slab: what lies behind its header, and at the end of that
    unsigned size_class;
    bool packed;
};
struct look {
    struct target *target;
    struct library *library;
    uint64_t torn, unreadable; // spans
    uint64_t leaves;           // of the page map
};
typedef void span_seen(struct look *look, const struct span_view *span, void *context);
void walk_spans(struct look *look, span_seen *seen, void *context);
// The span whose pages hold the address; false if none does.
bool find_span(struct look *look, uint64_t address, struct span_view *span);
// Of the memory that the page map has for these pages and for no others, how much is there.
uint64_t entries_resident(struct look *look, uint64_t start, uint64_t bytes);
// Reads a header; false when it contradicts what leads to it.
bool view_span(struct look *look, uint64_t header, uint64_t address, struct span_view *span);

// slab.c
enum slot_state {
    SLOT_IS_LIVE,
    SLOT_IS_FREE,
    SLOT_IS_REMOTE,
    SLOT_IS_QUARANTINED,
    SLOT_IS_UNUSED,
    SLOT_STATES
};
enum { SLOTS_MOST = 64 * 1024 };
struct slab_slots {
    uint64_t size_bytes, count;
    uint64_t counts[SLOT_STATES];
    unsigned char states[SLOTS_MOST]; // from the first slot on
};
// False when what it needs cannot be read.
bool read_slots(struct look *look, const struct span_view *slab, struct slab_slots *slots);
// A heap that was in use by another thread when this process was forked off: no thread allocates
// from it again. False too when it cannot be read.
bool heap_is_frozen(struct look *look, uint64_t heap);
// Whose a heap is, in a word: alive, ended, borrowed, program, frozen, unused or unknown.
const char *heap_owner(struct look *look, uint64_t heap);
// Each heap that was ever made, until `seen` says false.
enum { HEAPS_MOST = 1 << 20 };
typedef bool heap_seen(struct look *look, uint64_t heap, void *context);
void walk_heaps(struct look *look, heap_seen *seen, void *context);

// A slab's pages, from its slots.
enum { SLAB_PAGE_BYTES = 4096, SLAB_PAGES_MOST = 4096 };
struct slab_page {
    uint16_t live_bytes;
    bool resident;   // of a core file: a block of it was handed out once
    bool all_remote; // all blocks of it were freed by other threads and are not collected
};
struct slab_pages {
    uint64_t count, resident_bytes;
    struct slab_page pages[SLAB_PAGES_MOST];
};
void read_slab_pages(struct look *look, const struct span_view *slab,
                     const struct slab_slots *slots, struct slab_pages *pages);
// The thread's heap does not allocate from it now.
bool slab_is_aside(struct look *look, const struct span_view *slab);

// slab.c: each sampled block that ever was; `live` says whether it is in use.
typedef void guarded_seen(struct look *look, uint64_t block, uint64_t bytes, bool live,
                          void *context);
void walk_guarded(struct look *look, guarded_seen *seen, void *context);

// index.c: every live block, for looking it up by an address. Sorted by address.
struct block_span {
    uint64_t start, bytes;
    uint64_t slot_bytes, slots; // slots of that size from the start on; a whole block has one
    size_t first;               // number of its first slot's block among all slots
    bool is_empty_blocks;       // of zero bytes: nothing can be read there
    bool waits;                 // for marks.c
};
struct address_range {
    uint64_t start, end;
};
struct index {
    struct block_span *spans;
    size_t span_count, span_most;
    uint64_t *live; // a bit a slot
    size_t slots, slots_most;
    struct address_range *runs; // pages of other allocators of Cairn
    size_t run_count, run_most;
    struct address_range *own; // Cairn's, sorted: arenas, sampled blocks, metadata, and `apart`
    size_t own_count, own_most;
    struct address_range *apart; // blocks with mappings of their own
    size_t apart_count, apart_most;
};
enum { NO_BLOCK = -1 };
void make_index(struct look *look, struct index *index);
void free_index(struct index *index);
// The number of the live block that the address points into; NO_BLOCK if none.
int64_t block_at(const struct index *index, uint64_t address, struct block_span **span);

// samples.c: the profiler's records of blocks in use, sorted by address.
struct sample {
    uint64_t block;
    uint32_t site;
    double weight; // so many blocks it stands for
};
struct samples {
    uint64_t interval_bytes; // 0: the profiler is off
    uint64_t stacks_lost, blocks_lost;
    struct sample *list;
    size_t count, most;
};
void read_samples(struct look *look, struct samples *samples);
// The first of those from an address on.
size_t first_sample(const struct samples *samples, uint64_t address);
// The site's stack, innermost first; its depth, 0: none.
size_t read_frames(struct look *look, uint32_t site, uint64_t frames[FRAMES_MOST]);

// pins.c
void note_pins(struct look *look, const struct span_view *slab, const struct slab_slots *slots,
               const struct slab_pages *pages);
void print_pins(struct look *look);

// map.c: what a run of pages holds, all 0 but of a slab.
struct span_use {
    uint64_t size_bytes, live, slots, live_bytes, idle_bytes, resident_bytes;
};
const char *span_kind_name(enum span_kind kind);
void print_map_line(const struct look *look, const struct span_view *span,
                    const struct span_use *use);

// The commands.
void print_clean(const char *text); // without what would end a line
void print_target(struct look *look);
void census(struct look *look, bool each); // each: with a line for each run of pages
void blocks(struct look *look);
void address_report(struct look *look, uint64_t address);
void leaks(struct look *look, bool hold, bool every);
void plan(struct look *look);
void profile(struct look *look);

#endif
