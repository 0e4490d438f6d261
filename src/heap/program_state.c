/* See program_state.h. */
#include "heap/program_state.h"

#include "base/check.h"

void program_enter(struct program_heap *program)
{
    fork_lock_acquire(&program->lock);
    if (unlikely(load_relaxed(&program->heap.state) != HEAP_PROGRAM)) {
        fork_lock_release(&program->lock);
        die("heap %p: used after its end", (void *)program);
    }
}

void program_leave(struct program_heap *program)
{
    struct span *slab = program->leaving;
    program->leaving = NULL;
    fork_lock_release(&program->lock);
    for (struct span *next; slab; slab = next) {
        next = slab->next;
        slab_retire(slab);
    }
}

static struct span *prev_of(const struct span *slab)
{
    return load_relaxed(&slab_remote(slab)->of_heap.prev);
}

/* One behind the other; NULL for the end, and for the heap's list itself. */
static void join(struct program_heap *program, struct span *prev, struct span *next)
{
    if (next)
        store_relaxed(&slab_remote(next)->of_heap.prev, prev);
    if (prev)
        store_relaxed(&slab_remote(prev)->of_heap.next, next);
    else
        program->slabs = next;
}

void program_list_slab(struct program_heap *program, struct span *slab)
{
    join(program, slab, program->slabs);
    join(program, NULL, slab);
    program->slab_bytes += program_slab_bytes(slab_class(slab));
}

void program_let_go(struct program_heap *program, struct span *slab)
{
    join(program, prev_of(slab), program_next_slab(slab));
    size_t bytes = program_slab_bytes(slab_class(slab));
    program->slab_bytes -= bytes;
    program_unreserve(program, bytes);
    store_relaxed(&slab->owner, (uintptr_t)0); /* a free of one of its blocks dies */
    slab->next = program->leaving;
    program->leaving = slab;
}

void program_unreserve(struct program_heap *program, size_t bytes)
{
    fetch_sub_relaxed(&program->held_bytes, bytes);
}

void program_note_peak(struct program_heap *program)
{
    size_t held = load_relaxed(&program->held_bytes);
    size_t peak = load_relaxed(&program->peak_bytes);
    while (peak < held && !compare_swap_acq_rel(&program->peak_bytes, &peak, held))
        pause_processor();
}

void program_set_limit(struct program_heap *program, size_t limit_bytes)
{
    store_relaxed(&program->limit_bytes, limit_bytes != 0 ? limit_bytes : SIZE_MAX);
}

void program_verify(struct program_heap *program)
{
    size_t bytes = 0;
    struct span *prev = NULL;
    for (struct span *slab = program->slabs; slab; prev = slab, slab = program_next_slab(slab)) {
        check_internal(prev_of(slab) == prev && slab_heap(slab) == &program->heap);
        bytes += program_slab_bytes(slab_class(slab));
    }
    check_internal(bytes == program->slab_bytes);
    check_internal(bytes <= load_relaxed(&program->held_bytes));
}
