/* Heaps that the program makes: see program_heap.h. */
#include "heap/program_heap.h"

#include "base/check.h"
#include "heap/checked.h"
#include "heap/class_table.h"
#include "heap/harden.h"
#include "heap/heap_life.h"
#include "heap/heap_slabs.h"
#include "heap/heap_start.h"
#include "heap/mailbox.h"
#include "heap/program_large.h"
#include "heap/program_limit.h"
#include "heap/program_notes.h"
#include "heap/refuse.h"
#include "heap/remote.h"
#include "heap/slab_count.h"
#include "heap/slab_lists.h"
#include "heap/slab_make.h"
#include "heap/tick.h"

#include <string.h>

enum { SERIAL_MOST = 63 };
static_check(__alignof__(struct program_heap) > SERIAL_MOST, "a handle has room for the serial");
static_check(offsetof(struct program_heap, heap) == 0, "a heap's address is its program_heap's");

/* All heaps ever made, and those that wait to be used again, the one that waits longest first. Fork
 * holds the lock. */
static struct {
    struct fork_lock lock;
    bool watched;                       /* lock */
    struct program_heap *all;           /* lock */
    struct program_heap *unused, *last; /* lock */
} registry;

/* Handles. */

void *program_handle(const struct program_heap *program)
{
    return (void *)((uintptr_t)program | load_relaxed(&program->serial));
}

struct program_heap *program_of_handle(const void *handle)
{
    struct program_heap *program =
        (struct program_heap *)align_down((uintptr_t)handle, SERIAL_MOST + 1);
    uint32_t serial = (uint32_t)((uintptr_t)handle & SERIAL_MOST);
    if (unlikely(program == NULL || load_relaxed(&program->serial) != serial ||
                 load_relaxed(&program->heap.state) != HEAP_PROGRAM))
        die("heap %p: used after its end", handle);
    return program;
}

struct program_heap *program_of_block(const void *pointer, const char *operation)
{
    struct span *span = checked_span(pointer, operation);
    return span ? span_own_program(span) : NULL;
}

bool program_checks(struct program_heap *program, const void *pointer, const char *operation,
                    const void *handle)
{
    struct span *span = checked_span(pointer, operation);
    if (unlikely(span == NULL))
        return false;
    if (likely(span_program(span) == program))
        return true;
    refuse(operation, "%s of %p, which is not a block of heap %p", operation, pointer, handle);
    return false;
}

/* The holder's; the slab was reserved. */
static void add(struct program_heap *program, struct span *slab)
{
    program_list_slab(program, slab);
    slab_open(&program->heap, slab);
    heap_add_slab(&program->heap, slab);
}

/* NULL when memory is out, or the limit does not allow it. */
static struct span *take_slab(struct program_heap *program, unsigned class)
{
    size_t bytes = program_slab_bytes(class);
    if (!program_reserve(program, bytes))
        return NULL;
    heaps_tick();
    bool is_new;
    struct span *slab = slab_take(class, &is_new);
    if (unlikely(slab == NULL) && heaps_empty_run_caches())
        slab = slab_take(class, &is_new);
    if (slab == NULL)
        program_unreserve(program, bytes);
    else
        program_note_peak(program);
    return slab;
}

/* From what there is, after `fresh` was added to it, unless that is NULL. False: the lock was held
 * for some time. */
inline_always bool take(struct program_heap *program, unsigned class, bool waits,
                        struct span *fresh, void **block)
{
    if (waits)
        program_enter(program);
    else if (!fork_lock_try(&program->lock))
        return false;
    if (fresh)
        add(program, fresh);
    *block = heap_take(&program->heap, class);
    program_leave(program);
    return true;
}

/* Again where other threads take all that was added. */
inline_always void *allocate(struct program_heap *program, unsigned class, bool waits,
                             size_t size_bytes)
{
    void *block = NULL;
    struct span *slab = NULL;
    while (take(program, class, waits, slab, &block)) {
        if (likely(block != NULL))
            return config_hardened ? harden_hand_out(block, size_bytes) : block;
        if ((slab = take_slab(program, class)) == NULL)
            return NULL;
    }
    if (slab) {
        slab_retire(slab);
        program_unreserve(program, program_slab_bytes(class));
    }
    return NULL;
}

void *program_allocate(struct program_heap *program, size_t size_bytes, size_t alignment_bytes)
{
    unsigned class = class_of_request(size_bytes, alignment_bytes);
    if (class != CLASS_COUNT)
        return allocate(program, class, true, size_bytes);
    struct span *large = program_allocate_large(program, size_bytes, alignment_bytes);
    return large ? large->base : NULL;
}

void *program_try_allocate(struct program_heap *program, size_t size_bytes, size_t alignment_bytes)
{
    unsigned class = class_of_request(size_bytes, alignment_bytes);
    return class == CLASS_COUNT ? NULL : allocate(program, class, false, size_bytes);
}

void *program_allocate_zeroed(struct program_heap *program, size_t size_bytes)
{
    if (class_of_request(size_bytes, 1) == CLASS_COUNT) {
        struct span *large = program_allocate_large_zeroed(program, size_bytes);
        return large ? large->base : NULL;
    }
    void *block = program_allocate(program, size_bytes, 1);
    return block && !config_zero_freed ? memset(block, 0, size_bytes) : block;
}

/* Their beginning and end. */

static struct program_heap *registered_first(void)
{
    fork_lock_acquire(&registry.lock);
    struct program_heap *first = registry.all;
    fork_lock_release(&registry.lock);
    return first;
}

/* Whoever else ends one meanwhile is not waited for: one that is not in use is passed. Its lock is
 * not taken, either: fork may not know it yet. */
static void trim(struct program_heap *program)
{
    if (load_acquire(&program->heap.state) != HEAP_PROGRAM) /* pairs with program_make */
        return;
    if (!program->options.of_sites)
        fork_lock_acquire(&program->lock);
    else if (!fork_lock_try(&program->lock))
        return;
    if (load_relaxed(&program->heap.state) == HEAP_PROGRAM)
        heap_trim(&program->heap);
    program_leave(program);
}

void programs_trim(void)
{
    for (struct program_heap *program = registered_first(); program;
         program = program->next_program)
        trim(program);
}

static struct program_heap *take_unused(void)
{
    fork_lock_acquire(&registry.lock);
    struct program_heap *program = registry.unused;
    if (program)
        registry.unused = program->next_unused;
    fork_lock_release(&registry.lock);
    return program;
}

static void put_unused(struct program_heap *program)
{
    fork_lock_acquire(&registry.lock);
    program->next_unused = NULL;
    if (registry.unused)
        registry.last->next_unused = program;
    else
        registry.unused = program;
    registry.last = program;
    fork_lock_release(&registry.lock);
}

/* What other threads were about to take is not taken here. One that another thread was just ending
 * stays as it is, and nobody's: its lists are of no one instant. */
static void after_fork(void)
{
    for (struct program_heap *program = registry.all; program; program = program->next_program) {
        struct heap *heap = &program->heap;
        heap->generation = heap_generation;
        remote_lose_mail(heap);
        bool in_use = load_relaxed(&heap->state) == HEAP_PROGRAM;
        heap->look_after_fork = in_use;
        if (config_hardened)
            harden_seed(heap);
        if (in_use)
            store_relaxed(&program->held_bytes,
                          program->slab_bytes + program_recount_large(program));
        heap_enlist(heap);
    }
}

/* No lock is held over fork_lock_watch, which may allocate. */
static bool watch_registry(void)
{
    static bool watching; /* atomic */
    if (likely(load_acquire(&watching)))
        return true;
    if (exchange_acq_rel(&registry.watched, true))
        return true;
    bool done = fork_lock_watch(&registry.lock) == 0;
    if (done)
        heaps_on_fork(after_fork);
    store_relaxed(&registry.watched, done);
    store_release(&watching, done);
    return done;
}

static struct program_heap *make(void)
{
    struct program_heap *program = meta_take(META_HOT, sizeof *program);
    if (program == NULL)
        return NULL;
    heap_set_up_classes(&program->heap);
    program->heap.program = program;
    program->heap.generation = heap_generation;
    store_relaxed(&program->heap.state, (uint32_t)HEAP_UNUSED);
    fork_lock_acquire(&registry.lock);
    program->next_program = registry.all;
    registry.all = program;
    heap_enlist(&program->heap);
    fork_lock_release(&registry.lock);
    return program;
}

struct program_heap *program_make(const struct program_options *options)
{
    heap_start();
    if (!watch_registry())
        return NULL;
    struct program_heap *program = take_unused();
    if (program == NULL && (program = make()) == NULL)
        return NULL;
    if (!program->watched && fork_lock_watch(&program->lock) != 0) {
        put_unused(program);
        return NULL;
    }
    program->watched = true;
    if (config_hardened)
        harden_seed(&program->heap); /* a system call; nobody looks at it while it is not in use */
    fork_lock_acquire(&program->lock);
    program->options = *options;
    program->made_in = heap_generation;
    program_set_limit(program, options->limit_bytes);
    store_relaxed(&program->peak_bytes, (size_t)0);
    store_relaxed(&program->refusals, (size_t)0);
    store_relaxed(&program->serial, load_relaxed(&program->serial) % SERIAL_MOST + 1);
    store_release(&program->heap.state, (uint32_t)HEAP_PROGRAM); /* pairs with trim */
    fork_lock_release(&program->lock);
    return program;
}

/* Hardened builds look at every block that goes, as a free does, and leave zero behind. Not in a
 * child of fork: other threads of the parent may have just taken a block, or been about to free it.
 */
static void take_back_blocks(const struct program_heap *program, struct span *slab)
{
    unsigned limit = (unsigned)load_relaxed(&slab->limit);
    bool whole = program->made_in == heap_generation;
    for (unsigned slot = 1; slot < limit; slot++)
        if (load_relaxed(slab_link(slab, slot)) == LINK_LIVE) {
            if (whole)
                harden_check(slab, slot);
            harden_wipe(slab, slot);
        }
}

/* A free that is still on its way to the mailbox is waited for: it is late, but not wrong. */
static void end_slab(struct program_heap *program, struct span *slab)
{
    while (!remote_close(&program->heap, slab)) {
        heap_forget_mail(&program->heap);
        pause_processor();
    }
    if (config_hardened)
        take_back_blocks(program, slab);
    slab_retire(slab);
}

void program_end(struct program_heap *program)
{
    program_enter(program);
    store_relaxed(&program->heap.state, (uint32_t)HEAP_UNUSED);
    struct span *slab = program->slabs;
    program->slabs = NULL;
    fork_lock_release(&program->lock);

    heap_forget_mail(&program->heap);
    for (struct span *next; slab; slab = next) {
        next = program_next_slab(slab);
        end_slab(program, slab);
    }
    program_end_large(program);

    memset((void *)&program->heap, 0, offsetof(struct heap, next));
    heap_set_up_classes(&program->heap);
    program->slab_bytes = 0;
    store_relaxed(&program->held_bytes, (size_t)0);
    put_unused(program);
}

/* Statistics, verifier. */

void program_read_stats(struct program_heap *program, struct program_stats *stats)
{
    *stats = (struct program_stats){0};
    program_enter(program);
    heap_drain(&program->heap);
    program_collect_large(program);
    for (struct span *slab = program->slabs; slab; slab = program_next_slab(slab)) {
        struct slab_count count = heap_count_slab(slab, slab_class(slab));
        stats->live_blocks += count.live_blocks;
        stats->live_bytes += count.live_bytes;
        stats->slab_bytes += count.slab_bytes;
    }
    for (struct large_note *note = program->large.used; note; note = note->next) {
        if (load_relaxed(&note->span) == NULL)
            continue;
        stats->large_blocks++;
        stats->large_bytes += load_relaxed(&note->bytes); /* its span may just have gone */
    }
    program_leave(program);
    stats->live_blocks += stats->large_blocks;
    stats->live_bytes += stats->large_bytes;
    stats->held_bytes = load_relaxed(&program->held_bytes);
    stats->peak_bytes = load_relaxed(&program->peak_bytes);
    size_t limit = load_relaxed(&program->limit_bytes);
    stats->limit_bytes = limit == SIZE_MAX ? 0 : limit;
    stats->refusals = load_relaxed(&program->refusals);
}

void programs_verify(void)
{
    if (!config_debug)
        return;
    for (struct program_heap *program = registered_first(); program;
         program = program->next_program) {
        if (load_acquire(&program->heap.state) != HEAP_PROGRAM) /* as in trim */
            continue;
        fork_lock_acquire(&program->lock);
        if (load_relaxed(&program->heap.state) == HEAP_PROGRAM) {
            heap_verify(&program->heap);
            program_verify(program);
        }
        program_leave(program);
    }
}
