/* Frees of a FIFO's objects by other threads, and its end by the last of them: the protocol stands
 * in fifo_state.h.
 *
 * Freed objects are linked by their first word, which is theirs no more; the list is only ever
 * emptied as a whole, so a compare and swap cannot mistake one list for another.
 */
#include "frame/fifo_state.h"

#include "base/test_delay.h"

static void **link_of(struct fifo *fifo, void *pointer, bool queues)
{
    if (likely(!fifo->checked))
        return pointer;
    return queues ? fifo_checked_queue(fifo, pointer) : fifo_checked_link(pointer);
}

/* Frees what is there. */
static void drain(struct fifo *fifo)
{
    void *pointer =
        exchange_acq_rel(&fifo->remote, (void *)NULL); /* acquire: pairs with the push */
    while (pointer) {
        void *next = load_relaxed(link_of(fifo, pointer, false));
        fifo_end_object(fifo, pointer, true);
        pointer = next;
    }
}

void fifo_leave(struct fifo *fifo)
{
    void *none;
    do {
        drain(fifo);
        test_delay();
        if (fifo->busy == 0) {
            fifo_destroy(fifo);
            return;
        }
        none = NULL;
        /* release: pairs with the push of the next drainer */
    } while (!compare_swap_acq_rel(&fifo->remote, &none, REMOTE_IDLE));
}

void fifo_free_remotely(struct fifo *fifo, void *pointer)
{
    if (unlikely((uintptr_t)pointer % GROUP_BYTES != 0 &&
                 !group_is_of(group_at((uintptr_t)pointer), fifo)))
        fifo_die_foreign(fifo, pointer);
    void **link = link_of(fifo, pointer, true);
    void *head = load_relaxed(&fifo->remote);
    do {
        store_relaxed(link, head == REMOTE_IDLE ? NULL : head);
        test_delay();
        /* release: pairs with the exchange of whoever drains, which also reads the link;
         * acquire: of the drainer that left it idle */
    } while (!compare_swap_acq_rel(&fifo->remote, &head, pointer));
    test_delay();
    if (head == REMOTE_IDLE)
        fifo_leave(fifo);
}

void fifo_collect(struct fifo *fifo)
{
    if (unlikely(load_relaxed(&fifo->remote) != NULL))
        drain(fifo);
}
