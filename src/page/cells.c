/* Lists of free descriptors: see page.h.
 *
 * A free descriptor is linked by a word behind it, so that it keeps what it was given back with.
 * The head holds its address, a multiple of 64 below 2^48, and in the other 22 bits a number that
 * every change of the head makes new: a descriptor that was taken and given back meanwhile does not
 * pass for the unchanged list.
 */
#include "base/atomic.h"
#include "page/page.h"

#define TAG_MASK ((uintptr_t)0xffff00000000003f)

static uintptr_t next_tag(uintptr_t head)
{
    uintptr_t low = (head + 1) & 63;
    uintptr_t high = low == 0 ? ((head >> 48) + 1) & 0xffff : head >> 48;
    return high << 48 | low;
}

/* The address of the next free descriptor, in the word behind this one. */
static uintptr_t *link_of(const struct cell_list *list, uintptr_t descriptor)
{
    return (uintptr_t *)(descriptor + list->descriptor_bytes);
}

void *cell_take_from(struct cell_list *list)
{
    pages_start();
    uintptr_t head = load_acquire(&list->head); /* pairs with the release in cell_give_to */
    while ((head & ~TAG_MASK) != 0) {
        uintptr_t descriptor = head & ~TAG_MASK;
        /* May be another's by now; then the exchange fails. Descriptors stay mapped, so reading it
         * is safe. */
        uintptr_t next = load_relaxed(link_of(list, descriptor));
        if (compare_swap_acq_rel(&list->head, &head, next | next_tag(head)))
            return (void *)descriptor;
    }
    return meta_take(META_HOT, list->descriptor_bytes + sizeof(uintptr_t));
}

void cell_give_to(struct cell_list *list, void *descriptor)
{
    uintptr_t given = (uintptr_t)descriptor;
    uintptr_t head = load_relaxed(&list->head);
    do {
        store_relaxed(link_of(list, given), head & ~TAG_MASK);
        /* release: the next owner sees what this one left */
    } while (!compare_swap_acq_rel(&list->head, &head, given | next_tag(head)));
}
