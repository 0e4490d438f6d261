/* Lock-free lists with tagged heads: see tagged.h. */
#include "base/tagged.h"

#include "base/atomic.h"

static const uintptr_t TAG_MASK = (uintptr_t)0xffff00000000003f;

typedef uintptr_t link_word __attribute__((may_alias)); /* links are pointers of different types */

static uintptr_t tagged_address(uintptr_t head) { return head & ~TAG_MASK; }

/* The tag that follows the tag of `head`, in its place in the word. */
static uintptr_t tagged_next_tag(uintptr_t head)
{
    uintptr_t low = (head + 1) & 63;
    uintptr_t high = low == 0 ? ((head >> 48) + 1) & 0xffff : head >> 48;
    return high << 48 | low;
}

/* Reads the link of an element that another thread may have taken and be using. The link is any
 * value then, and the exchange that follows fails. */
not_instrumented static no_inline uintptr_t tagged_link(uintptr_t element, size_t link_offset)
{
    return load_relaxed((const link_word *)(element + link_offset));
}

void tagged_push(uintptr_t *head, void *element, size_t link_offset)
{
    link_word *link = (link_word *)((uintptr_t)element + link_offset);
    uintptr_t seen = load_relaxed(head);
    do
        store_relaxed(link, tagged_address(seen));
    while (!compare_swap_acq_rel(head, &seen, (uintptr_t)element | tagged_next_tag(seen)));
}

void *tagged_pop(uintptr_t *head, size_t link_offset)
{
    uintptr_t seen = load_acquire(head);
    while (tagged_address(seen) != 0) {
        uintptr_t next = tagged_address(tagged_link(tagged_address(seen), link_offset));
        if (compare_swap_acq_rel(head, &seen, next | tagged_next_tag(seen)))
            break;
    }
    return (void *)tagged_address(seen);
}

bool tagged_is_empty(const uintptr_t *head) { return tagged_address(load_relaxed(head)) == 0; }

void *tagged_pop_all(uintptr_t *head)
{
    uintptr_t seen = load_acquire(head);
    while (tagged_address(seen) != 0 && !compare_swap_acq_rel(head, &seen, tagged_next_tag(seen)))
        continue;
    return (void *)tagged_address(seen);
}
