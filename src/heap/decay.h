/* Decay: the work that is due by age. Pages that a decay interval did not need are purged, runs
 * that threads keep are given back, and free pages inside slabs are purged. This file has the
 * functions that slow paths call, and the sweep of a heap's own lists. lifecycle.c visits other
 * threads' heaps, and has the argument why a page may be purged while the slab's owner runs.
 *
 * The sweep of a heap's own lists makes passes over them, one a decay interval at most. Each call
 * of sweep_lists does a part of a pass, and the next call continues behind the slab where the last
 * one ended. A slab that did not change since the pass before gives its free pages.
 *
 * A huge page that the heap requested is left whole while less than a quarter of it is free:
 * pages_keep_huge_page.
 *
 * A pass looks at `looks_max` slabs at most, and the next pass continues where it ended. If at
 * least one slab in 32 gave a page, the next pass may look at twice the number of slabs, and
 * otherwise at half of it, within fixed limits. So the lists of a large heap that has nothing to
 * give cost next to nothing, and a heap that begins to empty is swept as a whole after a few
 * intervals.
 */
#ifndef CAIRN_HEAP_DECAY_H
#define CAIRN_HEAP_DECAY_H

#include "heap/thread_heap.h"

/* The classes whose slabs are swept: all but that of blocks of 0 bytes, which have no memory. */
enum { SWEPT_CLASSES = SIZED_CLASSES + config_packed };
inline_always bool class_is_swept(unsigned size_class) { return size_class < SWEPT_CLASSES; }

/* Which slots slab_free_pages takes for free: those that are not in use, or those that say REMOTE.
 */
enum slab_unused { SLOTS_NOT_USED, SLOTS_ALL_REMOTE };

/* Finds the pages of a slab that contain only parts of free slots, or of slots that other threads
 * freed and that are not collected.
 * Returns: a bit for each page.
 * Threads: any. */
uint64_t slab_free_pages(const struct span *slab, enum slab_unused unused);

/* Whether the slab is in a huge page that a sweep leaves whole: see pages_keep_huge_page.
 * Threads: any. */
bool slab_keeps_huge_page(const struct span *slab);

/* Slabs whose pages are all free and that are next to one another in one huge page. One call purges
 * them. If they were purged one by one, the kernel would first divide the huge page and then take
 * its parts. */
struct purge_group {
    struct span *slabs; /* linked by `mail_next`; their use words say PURGED */
    char *start;        /* the first byte of all of them */
    size_t pages;       /* the pages of all of them */
    uint32_t process;   /* number of the process in which the first slab was added */
};

/* Whether the group has slabs, and the slab is next to them in the same huge page.
 * Threads: any. */
bool purge_group_touches(const struct purge_group *group, const struct span *slab);

/* Purges the pages of a group. The slabs are in the group and at PURGED until the caller ends that.
 * Returns: the number of purged pages. */
unsigned purge_group_purge(const struct purge_group *group);

/* Purges free pages of a slab, or adds it to a group if all its pages are free and none is purged.
 * `group` is NULL, or a group that has no slabs or that the slab touches; then the caller has taken
 * the slab out of a mailbox. The caller has changed the slab's use word to PURGED.
 * Returns: the number of purged pages; 0 if the slab was added. */
unsigned slab_purge_aside(struct span *slab, struct purge_group *group);

/* Whether no block of the slab was freed since the slab gave all its free pages. Always false in
 * hardened builds, which do not know it.
 * Threads: any. */
bool slab_is_swept(const struct span *slab);

/* The work that one call may do in a sweep: a slab that is looked at counts 1, a purged page counts
 * SWEEP_PAGE_WORK. */
enum { SWEEP_WORK = 2048, SWEEP_PAGE_WORK = 4 };

/* Starts a pass over the heap's lists, unless one is under way or arenas are in huge pages. Called
 * once a decay interval, and when the slabs of the heap have grown by an eighth.
 * Locking: heap held, no other lock. */
void sweep_begin(struct heap *heap);

/* Continues a pass over the heap's lists.
 * Returns: the part of `work` that was not used; the pass is over if that is above 0.
 * Locking: heap held, no other lock.
 * Cost: bounded by `work`. */
long sweep_lists(struct heap *heap, long work);

/* Does a part of the work that is due by age: purges pages, sweeps the calling thread's heap, and
 * visits other heaps.
 * Threads: any, no lock held.
 * Cost: bounded by SWEEP_WORK and, for pages that the page layer purges, as in purge.h. */
void heaps_decay(void);

/* Whether a part of the work that is due by age is left.
 * Threads: any. */
bool heaps_are_due(void);

/* Sets the functions that this file calls in lifecycle.c. `sweep` visits a part of all heaps and
 * returns true if more is left. `trim_ended` gives back the memory that the thread which ended last
 * left ready, and returns true if there was any.
 * Threads: one, at the start. */
void heaps_on_decay(bool (*sweep)(void), bool (*trim_ended)(void));

/* Gives back the memory that an ended thread left ready for the next one. Called before a thread
 * takes more memory than the threads have.
 * Returns: true if there was any.
 * Threads: any, no lock held. */
bool decay_trim_ended(void);

/* Does what decay_trim_ended does, and empties the run caches of all threads.
 * Returns: true if there was any memory to give back.
 * Threads: any, no lock held. */
bool heaps_empty_run_caches(void);

#endif
