/* The empty slab, the calling thread's heap, lists of slabs, the list of all heaps, and inherited
 * slabs: see thread_heap.h. */
#include "heap/thread_heap.h"

#include "base/tagged.h"

#include <string.h>

struct slab_header_parts empty_slab = {
    .header = {.fresh_slot = 1, .side_units = 1},
    .hot_line = {.frees_to_attention = UINT8_MAX, .head = LINK_END}}; /* const: never written */

const struct heap no_heap = {.current = {[0 ... CLASS_COUNT] = &empty_slab.header}};

thread_local_word struct heap *thread_heap = (struct heap *)(uintptr_t)&no_heap;

struct heap *all_heaps;

/* The stack of orphans. Each orphan is in it, or is about to be. Other heaps may be in it as well:
 * heap_try_hold takes an orphan that it finds elsewhere and leaves it in the stack.
 *
 *   return: state = ORPHAN, then is_stacked: 0 -> 1; the thread that did that pushes the heap
 *   take:   pops a heap, then is_stacked = 0, then state: ORPHAN -> BUSY. If that fails, the heap
 *           is held, and the thread that returns it pushes it again
 *
 * No orphan is lost: these steps are sequentially consistent, so of a thread that returns a heap
 * and a thread that has popped it, the second one finds ORPHAN, or the first one finds 0. If both
 * do, the heap is in the stack while it is in use. A pop of it is in vain, and each push is popped
 * once. */
static struct {
    uintptr_t head; /* atomic: see base/tagged.h */
} cache_aligned orphans;

/* Changes the state from ORPHAN to BUSY. Acquire: pairs with heap_return. */
bool heap_try_hold(struct heap *heap)
{
    uint32_t expected = HEAP_ORPHAN;
    return load_seq_cst(&heap->state) == HEAP_ORPHAN &&
           compare_swap_seq_cst(&heap->state, &expected, (uint32_t)HEAP_BUSY);
}

/* Changes the state from BUSY to ORPHAN. Release: pairs with heap_try_hold. */
void heap_return(struct heap *heap)
{
    uint32_t expected = 0;
    store_seq_cst(&heap->state, (uint32_t)HEAP_ORPHAN);
    if (load_seq_cst(&heap->is_stacked) != 0 ||
        !compare_swap_seq_cst(&heap->is_stacked, &expected, 1u))
        return;
    tagged_push(&orphans.head, heap, offsetof(struct heap, next_orphan));
}

struct heap *heap_hold_orphan(void)
{
    struct heap *heap;
    while ((heap = tagged_pop(&orphans.head, offsetof(struct heap, next_orphan))) != NULL) {
        store_seq_cst(&heap->is_stacked, 0u);
        if (likely(heap_try_hold(heap)))
            break;
    }
    return heap;
}

void heaps_forget_orphans(void) { store_relaxed(&orphans.head, (uintptr_t)0); }

void bin_append(struct bin *bin, struct span *slab)
{
    slab->next = NULL;
    *slab_prev(slab) = bin->last;
    if (bin->last)
        bin->last->next = slab;
    else
        bin->first = slab;
    bin->last = slab;
}

void bin_remove(struct bin *bin, struct span *slab)
{
    struct span *prev = bin->first == slab ? NULL : *slab_prev(slab);
    if (prev)
        prev->next = slab->next;
    else
        bin->first = slab->next;
    if (slab->next)
        *slab_prev(slab->next) = prev;
    else
        bin->last = prev;
}

void heap_enlist(struct heap *heap)
{
    heap->next = load_relaxed(&all_heaps);
    /* Release: pairs with the acquiring loads of all_heaps. */
    while (!compare_swap_acq_rel(&all_heaps, &heap->next, heap))
        pause_processor();
}

bool large_forget_resizer(struct span *span)
{
    uintptr_t resized = load_relaxed(&span->mail_state);
    uint8_t tag = SPAN_RESIZED;
    if (resized == large_resized((uint8_t)resized))
        return false;
    (void)compare_swap_acq_rel(&span->tag, &tag, (uint8_t)resized);
    return true;
}

/* Makes an inherited slab zero, as free slabs of full hardened builds are: a thread of the parent
 * may have marked a block as freed and not cleared it yet. */
static seldom_called void slab_clear_inherited(struct span *slab)
{
    size_t pages = size_classes[slab_class(slab)].pages;
    char *start = slab_start(slab);
    if (!slab_is_zero_size(slab) && pages_purge_part(start, pages) != pages)
        memset(start, 0, pages << PAGE_SHIFT);
}

/* The thread that removes the owner word gives the slab back. Another thread may have done so
 * before, and the header may serve another slab: then the owner is another one, and stays so. The
 * cold area of the header is as long as before, so no other memory is read. */
seldom_called void slab_retire_inherited(const struct heap *heap, struct span *slab)
{
    uintptr_t owner = load_acquire(&slab->owner);
    if ((owner & OWNER_HEAP_MASK) == (uintptr_t)heap && !slab_is_in_use(slab) &&
        compare_swap_acq_rel(&slab->owner, &owner, (uintptr_t)0)) {
        if (config_zero_freed)
            slab_clear_inherited(slab);
        slab_retire(slab);
    }
}
