/* Hooks: the parts that guards, the profiler and the tracer have in malloc, free and realloc, kept
 * off the fast paths.
 *
 *   hook        handles                       chooses by         callbacks
 *   guards      some blocks, which it serves  heap_guard_block   struct heap_guard
 *   profiler    samples, and their end        profiling.c        struct heap_profiler
 *   tracer      every block, and its end      -                  struct heap_tracer
 *
 * `heap_hooks.on` is the state of all three. While it is 0, slow paths do nothing for hooks.
 *
 * malloc: the fast path has no counter and no branch for hooks. A class whose mallocs a hook has to
 * see is diverted: in the heap's table `small_class` its sizes map to class CLASS_COUNT, whose
 * current slab is always the empty slab. Each malloc of it therefore takes the slow path and ends
 * in malloc_hooked (allocate.c). Guards divert one class at a time, or all classes permanently; the
 * profiler diverts some classes, the tracer all classes. heap_route_class writes the table, except
 * for the sizes that packed_turn_on changes.
 *
 * free: a block whose end a hook has to see has a mark. The mark is LINK_PROFILED in its link byte
 * in place of LINK_LIVE, or `mark` in the span of a large or guarded block. The fast path of free
 * does not accept a marked block; the slow path then finds the mark and calls free_hooked.
 *
 * Order of the tracer's events (docs/dev/TRACE-FORMAT.md): a block is reported after it was
 * allocated, a free before it takes effect. A resize that may move the block reports its beginning
 * before another thread may get the old block, and then its end. Blocks of private heaps are not
 * reported, and neither is the free of a zero-size block without memory.
 * Threads: a heap's table belongs to the holder of the heap. Any thread sets and clears hooks; the
 * tracer is set once, before other threads exist. After the tracer has stopped, other heaps correct
 * their tables with their next malloc of each class. */
#ifndef CAIRN_HEAP_HOOKS_H
#define CAIRN_HEAP_HOOKS_H

#include "heap/thread_heap.h"

enum {
    HOOK_GUARDS = 1,
    HOOK_PROFILE = 2,
    HOOK_PROFILED = 4, /* the profiler was on: heaps may still have diverted classes */
    HOOK_TRACE = 8,
    HOOK_TRACED = 16,      /* the tracer was on: heaps may still have diverted classes */
    HOOK_DENSE_GUARDS = 32 /* all classes are diverted permanently, see heap_guard_block */
};

struct heap_guard {
    uint32_t interval; /* const after init: one block in this number is guarded on average; not 0 */

    /* Allocates a block that reads zero, whose span has the tag SPAN_GUARDED.
     * Returns: NULL when the heap has to serve the request. */
    void *(*allocate)(size_t size_bytes, size_t alignment_bytes);
    /* Frees `pointer`, an address in the pages of a guarded block. Reports it if it is no block in
     * use. */
    void (*free)(void *pointer, struct span *span);
    /* Checks that `pointer` is a guarded block in use. Reports it otherwise, for `operation`.
     * Returns: false after the report of an invalid free. */
    bool (*check)(const void *pointer, const struct span *span, const char *operation);
    /* Counts all guarded blocks in use. */
    void (*count)(size_t *blocks, size_t *bytes);
};

struct heap_profiler {
    /* Offers a sample that was just allocated. `size_bytes` is its rounded size.
     * Returns: whether its free has to be reported. */
    bool (*allocated)(void *block, size_t asked_bytes, size_t size_bytes);
    /* Reports that a sample is about to be freed. Two threads may report one block at the same
     * time. */
    void (*freed)(void *block);
    /* Gives a sample another name: see hooks_hold_sample. */
    void (*renamed)(void *from, void *to);
};

struct heap_tracer {
    /* Reports a new block. Returns it, so that the call can be the last of its caller. */
    void *(*allocated)(void *block, size_t asked_bytes, size_t alignment_bytes, bool zeroed);
    /* Reports a free, or with `resize` the beginning of a resize that may move the block. */
    void (*freed)(void *block, bool resize);
    /* Reports the end of a resize. `began` says whether this thread has reported its beginning;
     * then `block` is NULL if the block is unchanged. */
    void (*resized)(void *block, size_t asked_bytes, bool began);
};

/* The hooks. Each pointer is written before its bit of `on` is set, which releases it. */
struct heap_hooks {
    uint32_t on; /* atomic: HOOK_ bits, set and cleared by any thread; 0 if no hook was ever set */
    const struct heap_guard *guard;
    const struct heap_profiler *profiler;
    const struct heap_tracer *tracer;
};
extern hidden_data struct heap_hooks heap_hooks;

/* Whether a hook of these bits is on. */
inline_always bool heap_has_hook(uint32_t bits)
{
    return unlikely((load_acquire(&heap_hooks.on) & bits) != 0); /* pairs with hooks_set */
}

/* Whether any hook is on, or was on in a way that heaps may still have to follow. */
inline_always bool heap_is_hooked(void) { return heap_has_hook(UINT32_MAX); }

/* Whether the tracer is set, or was set. */
inline_always bool heap_is_traced(void) { return heap_has_hook(HOOK_TRACE | HOOK_TRACED); }

/* Sets or clears bits. This thread's heap follows a changed diversion of all classes at once. */
void hooks_set(uint32_t bits);
void hooks_clear(uint32_t bits);

/* Turns the tracer on. Threads: one, before other threads exist. */
void heap_trace_start(const struct heap_tracer *tracer);
void heap_trace_stop(void);

/* The table of classes. Locking: heap held, for all functions of this part. */

/* Fills the tables of a new heap, in which no slab is current. */
void heap_set_up_classes(struct heap *heap);

/* Writes the table for the sizes of a small class: its number, or CLASS_COUNT while a hook diverts
 * the class. */
void heap_route_class(struct heap *heap, unsigned size_class);

/* Diverts a small class for the guards, and ends the diversion of the class before it. */
void heap_divert_class(struct heap *heap, unsigned size_class);
/* Ends the diversion of a class for the guards. */
void heap_divert_none(struct heap *heap);

inline_always bool heap_profile_diverts(const struct heap *heap, unsigned size_class)
{
    return heap->profiling != NULL && size_class < SMALL_CLASSES &&
           (heap->profiling->diverted >> size_class & 1) != 0;
}

/* Checks the table against the state of the hooks, with assertions. */
void hooks_verify(const struct heap *heap);

/* Marks a block, so that its free calls free_hooked. A freed block of a slab gets no mark.
 * Locking: large_lock held for a large block that another thread may know. */
void hooks_mark(struct span *span, const void *block);

/* Reports the free of a marked block to the tracer and the profiler, and removes the mark.
 * Threads: any thread that is about to free the block. */
void free_hooked(struct span *span, void *block);

/* Reports a new block to the tracer and marks it. Returns: the block. */
void *hooks_trace_block(void *block, size_t asked_bytes, size_t alignment_bytes, bool zeroed);

/* Holds the sample of a large block before it is resized: the sample gets a name that no block has,
 * because the resize may fail, or the block's address may become that of another block.
 * Returns: the name; NULL if the block is no sample.
 * Locking: large_lock held. */
void *hooks_hold_sample(const struct span *span);
/* Gives the sample `name` the block's name again, if it `resumes`; otherwise ends the sample.
 * Locking: large_lock held. */
void hooks_release_sample(const struct span *span, void *name, bool resumes);

/* Begins a traced resize of any block, before the block may move. Only while heap_is_traced. */
void hooks_resize_begin(void *block);
/* Ends the sample and the mark of a block. If a resize has moved the block, this comes before its
 * free, which is then no event.
 * Locking: large_lock held, if it is a large block that other threads may free. */
void hooks_end_mark(struct span *span, void *block);
/* Ends a traced resize. `now` is the block's new address, or NULL if the resize failed. */
void hooks_resize_end(void *block, void *now, size_t asked_bytes);
/* Reports a resize in place, which has no reported beginning. */
void hooks_resize_stays(void *block, size_t asked_bytes);

/* Guards: the choice of the requests whose blocks watch/ places between guard pages; slabs do not
 * serve these requests.
 *
 * Slow paths that the heap takes anyway (a slab ran full, a count of frees ran out) estimate how
 * many mallocs of their class took no slow path. After a random number of blocks, `interval` on
 * average, the class of that slow path is diverted. A random number of its next mallocs is skipped
 * before one is guarded; otherwise a program with a fixed rhythm would have one call site guarded
 * each time. At small intervals all classes are diverted permanently and every malloc is counted.
 * Blocks that other threads freed are missed, and slots that stay unused are counted. Classes above
 * SMALL_BLOCK_MAX always take the slow path and are counted exactly. Large blocks are not guarded.
 */

/* Turns guards on. Threads: one, at the start. */
void heap_set_guard(const struct heap_guard *guard);

inline_always bool heap_is_guarding(void) { return heap_has_hook(HOOK_GUARDS); }

/* Allocates a guarded block if the request is chosen.
 * Returns: NULL when it is not chosen, or the guard has no room.
 * Locking: heap held; heap_is_guarding. */
void *heap_guard_block(struct heap *heap, unsigned size_class, size_t size_bytes,
                       size_t alignment_bytes);

/* Counts about `blocks` mallocs of the class that take no slow path.
 * Locking: heap held; heap_is_guarding. */
void heap_passed(struct heap *heap, unsigned size_class, unsigned blocks);

#endif
