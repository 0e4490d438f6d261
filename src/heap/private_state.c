/* The lock, the list of slabs, the limit, and the notes of a private heap: private_state.h. */
#include "heap/private_state.h"

#include "base/check.h"
#include "base/tagged.h"
#include "heap/refill.h"
#include "os/memory.h"

void private_heap_lock(struct private_heap *private_heap)
{
    fork_lock_acquire(&private_heap->lock);
    if (unlikely(load_relaxed(&private_heap->heap.state) != HEAP_PRIVATE)) {
        fork_lock_release(&private_heap->lock);
        die("heap %p: used after cairn_private_heap_delete", (void *)private_heap);
    }
}

/* Links two slabs of the list. `prev` is NULL for the start of the list, `next` for its end. */
static void private_state_join(struct private_heap *private_heap, struct span *prev,
                               struct span *next)
{
    if (next)
        slab_cold(next)->of_heap.prev = prev;
    if (prev)
        slab_cold(prev)->of_heap.next = next;
    else
        private_heap->slabs = next;
}

void private_heap_list_slab(struct private_heap *private_heap, struct span *slab)
{
    private_state_join(private_heap, slab, private_heap->slabs);
    private_state_join(private_heap, NULL, slab);
    private_heap->slab_bytes += private_heap_slab_bytes(slab_class(slab));
}

/* Removes a retired slab, which is in no other list. */
static void private_state_remove_slab(struct private_heap *private_heap, struct span *slab)
{
    private_state_join(private_heap, slab_cold(slab)->of_heap.prev, private_heap_next_slab(slab));
    size_t bytes = private_heap_slab_bytes(slab_class(slab));
    private_heap->slab_bytes -= bytes;
    private_heap_unreserve(private_heap, bytes);
}

void private_heap_unlock(struct private_heap *private_heap)
{
    struct span *retired = private_heap->heap.retired;
    private_heap->heap.retired = NULL;
    for (struct span *slab = retired; slab; slab = slab->next)
        private_state_remove_slab(private_heap, slab);
    fork_lock_release(&private_heap->lock);
    for (struct span *slab = retired, *next; slab; slab = next) {
        next = slab->next;
        slab_retire(slab);
    }
}

void private_heap_unreserve(struct private_heap *private_heap, size_t bytes)
{
    fetch_sub_relaxed(&private_heap->held_bytes, bytes);
}

void private_heap_note_peak(struct private_heap *private_heap)
{
    size_t held = load_relaxed(&private_heap->held_bytes);
    size_t peak = load_relaxed(&private_heap->peak_bytes);
    while (peak < held && !compare_swap_acq_rel(&private_heap->peak_bytes, &peak, held))
        pause_processor();
}

void private_heap_set_limit(struct private_heap *private_heap, size_t limit_bytes)
{
    store_relaxed(&private_heap->limit_bytes, limit_bytes != 0 ? limit_bytes : SIZE_MAX);
}

void private_heap_verify(struct private_heap *private_heap)
{
    heap_verify(&private_heap->heap);
    size_t bytes = 0;
    struct span *prev = NULL;
    for (struct span *slab = private_heap->slabs; slab;
         prev = slab, slab = private_heap_next_slab(slab)) {
        check_internal(slab_cold(slab)->of_heap.prev == prev &&
                       slab_heap(slab) == &private_heap->heap);
        bytes += private_heap_slab_bytes(slab_class(slab));
    }
    check_internal(bytes == private_heap->slab_bytes);
    check_internal(bytes <= load_relaxed(&private_heap->held_bytes));
}

static size_t private_state_span_bytes(const struct span *span)
{
    return (size_t)span->pages << PAGE_SHIFT;
}

struct large_note *private_heap_take_note(struct private_heap *private_heap)
{
    struct large_note *note =
        tagged_pop(&private_heap->spare_notes, offsetof(struct large_note, next_spare));
    if (note == NULL && (note = meta_take(META_HOT, sizeof *note)) != NULL) {
        fork_lock_acquire(&private_heap->lock); /* so the list is whole in the child of a fork */
        note->next = private_heap->notes;
        store_release(&private_heap->notes, note); /* pairs with the walks over all notes */
        fork_lock_release(&private_heap->lock);
    }
    return note;
}

void private_heap_link_note(struct private_heap *private_heap, struct large_note *note,
                            struct span *span)
{
    store_relaxed(&note->bytes, private_state_span_bytes(span));
    span->next = (struct span *)(void *)note;
    /* Pairs with load_acquire of the owner word. */
    store_release(&span->owner, (uintptr_t)private_heap | OWNER_LARGE);
    /* last: in the child of a signal handler's fork a recount forgets spans without this owner */
    store_relaxed(&note->span, span);
}

void private_heap_spare_note(struct private_heap *private_heap, struct large_note *note)
{
    store_relaxed(&note->span, (struct span *)NULL);
    tagged_push(&private_heap->spare_notes, note, offsetof(struct large_note, next_spare));
}

void private_heap_lose_large(struct span *span)
{
    struct private_heap *private_heap = span_private_heap(span);
    store_relaxed(&span->owner, (uintptr_t)0);
    private_heap_unreserve(private_heap, private_state_span_bytes(span));
    private_heap_spare_note(private_heap, private_heap_note_of(span));
}

/* In the child of fork, another thread of the parent may have been freeing the block, or may have
 * freed and reused it: the copy of the note may be older than that of the header. */
struct span *private_heap_noted(const struct private_heap *private_heap,
                                const struct large_note *note)
{
    struct span *span = load_relaxed(&note->span);
    bool in_use = span && span_private_heap(span) == private_heap &&
                  private_heap_note_of(span) == note && large_is_in_use(span);
    return in_use ? span : NULL;
}

size_t private_heap_recount_large(struct private_heap *private_heap)
{
    size_t bytes = 0;
    for (struct large_note *note = private_heap->notes; note; note = note->next) {
        struct span *span = private_heap_noted(private_heap, note);
        store_relaxed(&note->span, span);
        bytes += span ? private_state_span_bytes(span) : 0;
    }
    return bytes;
}

static bool private_state_try_reserve(struct private_heap *private_heap, size_t bytes)
{
    size_t limit = load_relaxed(&private_heap->limit_bytes);
    size_t held = load_relaxed(&private_heap->held_bytes);
    do
        if (bytes > limit || held > limit - bytes)
            return false;
    while (!compare_swap_acq_rel(&private_heap->held_bytes, &held, held + bytes));
    return true;
}

void private_heap_trim(struct private_heap *private_heap)
{
    private_heap_lock(private_heap);
    heap_trim(&private_heap->heap);
    private_heap_unlock(private_heap);
}

bool private_heap_reserve(struct private_heap *private_heap, size_t bytes)
{
    if (likely(private_state_try_reserve(private_heap, bytes)))
        return true;
    if (bytes <= load_relaxed(&private_heap->limit_bytes)) {
        private_heap_trim(private_heap);
        if (private_state_try_reserve(private_heap, bytes))
            return true;
    }
    fetch_add_relaxed(&private_heap->refusals, (size_t)1);
    return false;
}

bool private_heap_begin_resize(struct span *span, size_t pages, size_t *counted_pages)
{
    struct private_heap *private_heap = span_private_heap(span);
    *counted_pages = span->pages;
    if (pages <= span->pages)
        return true;
    *counted_pages = align_up(pages << PAGE_SHIFT, os_page_size()) >> PAGE_SHIFT;
    return private_heap_reserve(private_heap, (*counted_pages - span->pages) << PAGE_SHIFT);
}

void private_heap_end_resize(struct span *span, size_t counted_pages)
{
    struct private_heap *private_heap = span_private_heap(span);
    fetch_add_relaxed(&private_heap->held_bytes, (span->pages - counted_pages) << PAGE_SHIFT);
    store_relaxed(&private_heap_note_of(span)->bytes, (size_t)span->pages << PAGE_SHIFT);
    private_heap_note_peak(private_heap);
}
