/* The cache of walks: keeps the steps of earlier walks, and uses a step again if the stack words
 * that it was computed from have not changed. unwind_cache.c explains how.
 *
 * Threads: a cache belongs to its caller and serves one thread at a time.
 */
#ifndef CAIRN_UNWIND_UNWIND_CACHE_H
#define CAIRN_UNWIND_UNWIND_CACHE_H

#include "unwind/unwind_rules.h"

enum { UNWIND_CACHE_DEPTH = 250, UNWIND_CACHE_STEPS = 512, UNWIND_CACHE_PLACES = 1024 };

/* A step from one caller to the next one outwards. Const once made, except as noted. */
struct unwind_step {
    uintptr_t address, stack, frame;   /* registers of the caller */
    uintptr_t outer_at;                /* address from which outer->address was read */
    uintptr_t checked_at, expected;    /* first loop of find_changed: see unwind_cache.c */
    uintptr_t record_at, record_frame; /* second loop of find_changed: see unwind_cache.c */
    struct unwind_step *outer;         /* next caller outwards; NULL: none */
    uint64_t hash;                     /* hash of this address and all further out */
    uint32_t number;                   /* written by the caller of unwind_cached; 0 in a new step */
    uint32_t frame_words; /* distance in words, plus 1, from `stack` to the word that gave
                             outer->frame; 0: not read */
    uint32_t stack_words; /* distance in words, plus 1, from `stack` to the word that gave
                             outer->stack; 0: not read */
    uint8_t depth;        /* number of callers from this one outwards */
    bool seen;            /* written by the caller of unwind_cached; false in a new step */
    bool by_frame;        /* whether the frame pointer was used to find the next caller */
    bool frame_counts; /* whether the frame pointer is used for this step or for one further out */
};
enum { UNWIND_ENTRY_PATHS = 16, UNWIND_ENTRY_FRAMES_MAX = 7 };

/* A path of return addresses through this library, from the first frame to its caller. */
struct unwind_entry_path {
    uintptr_t first, second; /* innermost two addresses; `first` 0: none */
    uint32_t count;          /* number of addresses */
    uint32_t record; /* distance in bytes from the first frame record to the outermost one */
    uint32_t at[UNWIND_ENTRY_FRAMES_MAX]; /* distance in bytes from the first frame record to each
                                             return address */
    uintptr_t address[UNWIND_ENTRY_FRAMES_MAX]; /* the return addresses */
};

/* A cache, written by the thread that it serves. */
struct unwind_cache {
    uintptr_t from, end;                  /* readable range of the thread's own stack */
    uint32_t thread;                      /* number of that thread; 0: none */
    uint32_t used;                        /* steps in use; 0: the cache is empty */
    uint16_t latest[UNWIND_CACHE_PLACES]; /* by address and stack: index of the step that was right
                                             the last time */
    uint16_t inside[UNWIND_CACHE_PLACES]; /* by address, stack and next step: index of the step */
    struct unwind_entry_path ways[UNWIND_ENTRY_PATHS]; /* paths through this library */
    struct unwind_step steps[UNWIND_CACHE_STEPS];
};

/* Finds the stack for unwind_cached. `first` is the return address to its caller, `frame` the frame
 * pointer of that caller, `own` this library, or NULL.
 * Returns: as unwind_cached. */
struct unwind_step *unwind_walk_cached(struct unwind_cache *cache, uint32_t thread, uintptr_t first,
                                       uintptr_t frame, const struct unwind_object *own);

#endif
