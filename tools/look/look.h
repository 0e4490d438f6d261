// cairn-look reads the heap of another process, or of a core file, from outside, for `cairn
// inspect`, `leaks`, `purge`, `stats` and `profile`. cairn-look runs no code in the target and
// writes nothing to it.
//
// The files, each of which uses only those before it:
//
//   memory.c        reads the target's memory by address
//   process.c       opens a process; core.c opens a core file
//   constants.c     takes from the library's file the constants that a truncated core file lacks
//   find.c          finds the Cairn library and its description (src/base/layout.h)
//   walk.c          walks the page map and describes each span
//   headers.c       finds spans without the page map
//   slab.c          reads the state of a slab's slots
//   map.c           prints the line of a span; census.c counts the heap
//   address.c       describes one address; blocks.c lists all blocks
//   threads.c       reads the registers of threads; kernel.c reads pointers that the kernel has
//   index.c         finds the block of an address
//   samples.c       reads the records of the profiler
//   marks.c         marks the blocks that pointers lead to
//   confirm.c       confirms that the other blocks are lost, while the process is held for moments
//   contents.c      describes a block by its first word
//   groups.c        groups lost blocks; leaks.c reports them
//   at_end.c        runs a program and reports its lost blocks at its end
//   pointers.c      finds the pointers to a block
//   pins.c          counts the memory that live blocks pin
//   plan.c          counts the memory that a purge would return
//   profile_read.c  makes a dump of the profiler's tables
//   look_tool.c     parses the arguments
//
// A running target changes while it is read, and a core file may be made to harm its reader. So
// every value is checked before it is used: constants of the library in find.c when it is found, a
// span in walk.c, a guarded block in slab.c. Contradictory metadata is counted (`torn`) and not
// followed. A core file may lack pages: unreadable metadata is counted (`unreadable`).
//
// Everything that a walk visits has bits of its own in a sound core file: a slot has one, an entry
// of the page map and the address of a header have 64. So each loop spends its steps from a sum
// that the length of the file gives (spend), and the tool ends when it is spent.
//
// Output: lines of words separated by tabs. The first word is the kind of the line, the others are
// name=value. Exit status: 0, or 2 with a sentence on stderr.
//
// Threads: one.
#ifndef CAIRN_TOOLS_LOOK_H
#define CAIRN_TOOLS_LOOK_H

#include <base/layout.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>

// Prints the sentence and exits with status 2.
noreturn void fail(const char *sentence, ...) __attribute__((format(printf, 1, 2)));
void *take_memory(void *old, size_t bytes); // Like realloc, but never returns NULL.
// Returns the array, which has `count` elements of `bytes` bytes, with space for at least one more.
// `*most` is the capacity. The array may move. NULL is an empty array.
void *with_room(void *array, size_t count, size_t *most, size_t bytes);
// Like qsort, but NULL is an empty array.
void sort(void *array, size_t count, size_t bytes, int (*compare)(const void *, const void *));

// One mapping of the target. In a process it is a line of /proc/PID/maps; in a core file, an entry
// of its list of files.
struct mapping {
    uint64_t start, end, file_offset;
    const char *path; // "" for none
    bool readable, writable, shared, executable;
};

struct segment { // of a core file; a process has none
    uint64_t start, bytes, file_offset;
};

// Constants of the library that a core file lacks, read from the file of the library.
struct constants {
    uint64_t start, bytes;
    unsigned char *contents;
};
enum { CONSTANTS_MOST = 8 };

enum { CACHE_PAGE = 4096, CACHE_PAGES = 2048, FRAMES_MOST = 256, BUILD_ID_MAX = 64 };

struct cache_page {
    uint64_t address; // 0: the slot of the cache is empty
    bool readable;
    unsigned char bytes[CACHE_PAGE];
};

struct target {
    const char *name;
    int file;                          // /proc/PID/mem, or the core file
    int pid;                           // 0: the target is a core file
    int core_pid;                      // process number in the core file; 0: unknown
    char state;                        // state of a process, as in /proc/PID/stat; 0: core file
    char program[64];                  // name of the program
    int residence;                     // /proc/PID/pagemap; -1: not readable
    uint64_t page_bytes;               // page size of the system
    uint64_t core_bytes, core_missing; // complete length of the core file, and its missing bytes
    uint64_t steps;                    // steps that may still be spent; UINT64_MAX: a process
    struct mapping *mappings;
    size_t mapping_count;
    struct segment *segments;
    size_t segment_count;
    struct segment *unwritten; // of a core file: mappings that the kernel left out as never written
    size_t unwritten_count;
    struct constants constants[CONSTANTS_MOST];
    size_t constants_count;
    struct cache_page *cache;
    uint64_t *registers; // words of all threads; a word that is no pointer is harmless
    size_t register_words, registers_most;
    uint64_t *stack_pointers; // one for each thread
    size_t thread_count, stacks_most;
    size_t threads_unread;  // threads whose registers another tracer holds
    uint64_t *kernel_words; // pointers that the kernel has
    size_t kernel_count, kernel_most;
};

// memory.c: reads a small piece through the cache. Returns: false when a byte cannot be read.
bool read_small(struct target *target, uint64_t address, void *buffer, size_t bytes);
// Reads a large piece without the cache. Returns: false when a byte cannot be read.
bool read_large(struct target *target, uint64_t address, void *buffer, size_t bytes);
void forget_pages(struct target *target); // empties the cache
const struct mapping *mapping_of(const struct target *target, uint64_t address);
const struct segment *segment_of(const struct target *target, uint64_t address);
// Returns: the first address from `address` on that is in a segment of a core file, UINT64_MAX for
// none; `address` itself for a process.
uint64_t next_in_file(const struct target *target, uint64_t address);
// Spends steps of a loop whose length values of the target decide. Ends the program with a sentence
// when a core file makes more steps than a file of its length can need.
enum { STEPS_OF_WORD = 64, STEPS_OF_BYTE = 16, STEPS_LEAST = 1 << 24 };
void spend(struct target *target, uint64_t steps);
// Counts the resident bytes of the pages of the system from `address` on. Returns: false when
// unknown.
bool count_resident(struct target *target, uint64_t address, uint64_t bytes, uint64_t *resident);

// Returns: false when the process never wrote to the range, so that it reads as zero. Reading such
// a range of a process would only make page tables; a core file lacks it.
bool was_touched(struct target *target, uint64_t address, uint64_t bytes);
// For a private mapping of a file. Returns: false when the range is unchanged from the file.
bool was_written(struct target *target, uint64_t address, uint64_t bytes);

// process.c: opens a process as the target. Ends the program with a sentence on failure.
void open_process(struct target *target, int pid);
void read_mappings_again(struct target *target); // for a process; old paths stay valid
// Reads the current mappings of a process, with "/" as the path of every file and "[v" for mappings
// of the kernel.
// Returns: false when the deadline, a time of now_ns(), passed before all were read.
bool read_ranges(struct target *target, uint64_t deadline);
// Ends the program with a sentence when the process has ended. Called before another failure is
// reported.
void check_alive(const struct target *target);
// core.c: opens a core file as the target. Ends the program with a sentence on failure.
void open_core(struct target *target, const char *path);
// Returns: the resident bytes of the mappings whose numbers are marked; 0 for a core file.
uint64_t mappings_resident(const struct target *target, const bool *marked);
const char *other_malloc(const struct target *target); // name of another mapped allocator, or NULL

// precedence.c: raises the priority of this program over others while the target waits for it.
// Calls may be nested; each ends with go_as_before(). Returns: false when the system refuses.
bool go_first(void);
void go_as_before(void);

// threads.c: reads the registers of all threads of a process. Each thread is stopped while its
// registers are read; with `hold`, until release_threads().
void read_threads(struct target *target, bool hold);
// Stops all threads and reads their registers. A running thread may start others, so the list is
// read again until it has no new thread. `*since` is set to the time of the first stop.
// Returns: false when after `most_ns` (UINT64_MAX: no limit) a thread had not stopped or its
// registers were not read.
bool hold_threads(struct target *target, uint64_t most_ns, uint64_t *since);
void release_threads(void);
uint64_t released_at(void); // time when the last held thread was released; 0: never
void read_stopped_thread(struct target *target, int thread); // a thread that this program traces
uint64_t now_ns(void);                                       // time of CLOCK_MONOTONIC
bool is_in_exit(int thread);                                 // a traced thread in its own exit call
// Adds the general registers of a thread in the kernel's layout. `bytes` identifies the machine.
void add_registers(struct target *target, const void *registers, size_t bytes);
void add_words(struct target *target, const void *words, size_t bytes); // adds other registers
void forget_threads(struct target *target);

// kernel.c: reads the pointers that the kernel has for the process.
void read_kernel_pointers(struct target *target);

// constants.c: takes the constants of a library that was mapped from its start at an address. The
// file must have the build id of the core file, if that has one. Returns: false when the file has
// none.
bool take_constants(struct target *target, const struct mapping *mapping);

// find.c
struct library {
    uint64_t at; // address of its library_layout
    const char *path;
    char version[32];
    struct library_layout root;
    struct page_layout page;
    struct heap_layout heap;
    struct guarded_layout guarded;
    struct profile_layout profile;
    uint64_t class_bytes[256], class_pages[256], class_capacity[256]; // class_count are used
    uint32_t generation;
    size_t others;     // further Cairn libraries in the target, each with its own heap
    bool is_from_file; // the constants are those of its file: the core file lacks them
};
void find_library(struct target *target, struct library *library);
// Returns: whether slabs of a class fit the limits of this program's tables.
bool class_fits(uint64_t size_bytes, uint64_t pages, uint64_t capacity);
// Copies the build id of the file of the mapping to `id`, at most BUILD_ID_MAX bytes. Returns: its
// length; 0 when unknown.
size_t read_build_id(struct target *target, const struct mapping *mapping, unsigned char *id);
uint64_t address_of(const void *pointer); // a pointer of the target, as a number
uint64_t field(const void *bytes, struct layout_field place);
// Reads a field of a struct of the target. Returns: false when it cannot be read.
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
    SPAN_IS_REVOKED,
    SPAN_IS_GUARDED,
    SPAN_KINDS
};
struct span_view {
    enum span_kind kind;
    uint64_t header, start, bytes;
    uint64_t owner, heap; // slab: the owner word, and the heap in it
    uint64_t limit, dirty_pages;
    uint64_t next;            // run in a run cache: the next one of its place
    uint64_t side, cold_area; // slab: the data behind its header, and the end of that data
    unsigned size_class;
    bool packed;
};
struct look {
    struct target *target;
    struct library *library;
    uint64_t torn, unreadable; // numbers of spans
    uint64_t leaves;           // of the page map
    bool lacks_map; // a core file without the page map or the classes: headers.c finds the spans
};
typedef void span_seen(struct look *look, const struct span_view *span, void *context);
void walk_spans(struct look *look, span_seen *seen, void *context);
// Finds the span whose pages contain the address. Returns: false when there is none.
bool find_span(struct look *look, uint64_t address, struct span_view *span);
// Returns: the resident bytes of those parts of the page map that describe only these pages.
uint64_t entries_resident(struct look *look, uint64_t start, uint64_t bytes);
// Reads a span header. Returns: false when it contradicts the address that led to it.
bool view_span(struct look *look, uint64_t header, uint64_t address, struct span_view *span);
// Calls `seen` for each run and each empty slab in the run cache of a heap. Their addresses are not
// checked.
void walk_kept(struct look *look, uint64_t heap, span_seen *seen, void *context);

// headers.c: finds the spans of a core file that lacks the page map, by their headers.
bool has_whole_map(struct look *look);
void walk_headers(struct look *look, span_seen *seen, void *context);
bool find_by_header(struct look *look, uint64_t address, struct span_view *span);

// slab.c
enum slot_state {
    SLOT_IS_LIVE,
    SLOT_IS_FREE,
    SLOT_IS_REMOTE,
    SLOT_IS_QUARANTINED,
    SLOT_IS_BORROWED, // free, and another thread will hand it out (src/heap/borrow.h)
    SLOT_IS_UNUSED,
    SLOT_STATES
};
enum { SLOTS_MOST = 64 * 1024 };
struct slab_slots {
    uint64_t size_bytes, count;
    uint64_t counts[SLOT_STATES];
    unsigned char states[SLOTS_MOST]; // by slot number
};
// Returns: false when the metadata of the slab cannot be read.
bool read_slots(struct look *look, const struct span_view *slab, struct slab_slots *slots);
// Returns: whether another thread used the heap when this process was forked, so that no thread
// allocates from it again; false also when it cannot be read.
bool heap_is_inherited(struct look *look, uint64_t heap);
// Returns: the kind of owner in one word: alive, ended, borrowed, private, inherited, unused or
// unknown.
const char *heap_owner(struct look *look, uint64_t heap);
// Calls `seen` for each heap that was ever made, until it returns false.
enum { HEAPS_MOST = 1 << 20 };
typedef bool heap_seen(struct look *look, uint64_t heap, void *context);
void walk_heaps(struct look *look, heap_seen *seen, void *context);

// The pages of a slab, computed from its slots.
enum { SLAB_PAGE_BYTES = 4096, SLAB_PAGES_MAX = 4096 };
struct slab_page {
    uint16_t live_bytes;
    bool resident; // in a core file: a block on this page was handed out at least once
};
struct slab_pages {
    uint64_t count, resident_bytes;
    struct slab_page pages[SLAB_PAGES_MAX];
};
void read_slab_pages(struct look *look, const struct span_view *slab,
                     const struct slab_slots *slots, struct slab_pages *pages);
// Returns: whether the thread's heap does not allocate from the slab now.
bool slab_is_aside(struct look *look, const struct span_view *slab);

// slab.c: calls `seen` for each guarded block that ever was; `live` is whether it is in use.
typedef void guarded_seen(struct look *look, uint64_t block, uint64_t bytes, bool live,
                          void *context);
void walk_guarded(struct look *look, guarded_seen *seen, void *context);

// index.c: all live blocks, sorted by address, to find the block of an address.
struct block_span {
    uint64_t start, bytes;
    uint64_t slot_bytes, slots; // slots of slot_bytes each from the start on; a whole block has one
    size_t first;               // number of its first slot among all slots
    bool is_empty_blocks;       // blocks of zero bytes, where nothing can be read
    bool waits;                 // in the queue of marks.c
};
struct address_range {
    uint64_t start, end;
};
struct index {
    struct block_span *spans;
    size_t span_count, span_most;
    uint64_t *live; // one bit for each slot
    size_t slots, slots_most;
    struct address_range *runs; // pages of other Cairn allocators
    size_t run_count, run_most;
    struct address_range *own; // all memory of Cairn, sorted: arenas, guarded blocks, ...
    size_t own_count, own_most;
    struct address_range *metadata; // sorted
    size_t metadata_count, metadata_most;
    struct address_range *apart; // blocks with mappings of their own
    size_t apart_count, apart_most;
};
enum { NO_BLOCK = -1 };
void make_index(struct look *look, struct index *index);
void free_index(struct index *index);
// Returns: the number of the live block that contains the address, or NO_BLOCK.
int64_t block_at(const struct index *index, uint64_t address, struct block_span **span);

// samples.c: the profiler's records of live blocks, sorted by address.
struct sample {
    uint64_t block;
    uint32_t site;
    double weight; // number of blocks that it stands for
};
struct samples {
    uint64_t interval_bytes; // 0: the profiler is off
    uint64_t stacks_lost, blocks_lost;
    struct sample *list;
    size_t count, most;
};
void read_samples(struct look *look, struct samples *samples);
// Returns: the first sample at or after the address.
size_t first_sample(const struct samples *samples, uint64_t address);
// Reads the stack of a site, innermost frame first. Returns: its depth; 0 when there is none.
size_t read_frames(struct look *look, uint32_t site, uint64_t frames[FRAMES_MOST]);
bool *no_names(const struct target *target); // one mark for each mapping, all unset
// Prints the stack of a site, and marks the mappings of its frames.
void print_frames(struct look *look, uint32_t site, bool *is_named);
// Prints each marked mapping once.
void print_mappings(struct target *target, const bool *is_named);

// pins.c
void note_pins(struct look *look, const struct span_view *slab, const struct slab_slots *slots,
               const struct slab_pages *pages);
void print_pins(struct look *look);

// map.c: the contents of a span; all 0 unless it is a slab.
struct span_use {
    uint64_t size_bytes, live, slots, live_bytes, idle_bytes, resident_bytes;
};
const char *span_kind_name(enum span_kind kind);
void print_map_line(const struct look *look, const struct span_view *span,
                    const struct span_use *use);

// The commands.
void print_clean(const char *text); // without control characters
void print_target(struct look *look);
void census(struct look *look, bool each); // each: print a line for each span
void blocks(struct look *look);
void address_report(struct look *look, uint64_t address);
enum leaks_manner { LEAKS_LOOK, LEAKS_HOLD, LEAKS_AT_END };
void leaks(struct look *look, enum leaks_manner manner, bool every);
// at_end.c: runs a program and writes its lost blocks at its end to the file `report`. Returns: the
// program's exit status.
int leaks_at_end(const char *report, char **command);
void pointers(struct look *look, uint64_t address, bool every); // prints the pointers to the block
void plan(struct look *look);
void profile(struct look *look);

#endif
