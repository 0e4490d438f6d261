/* Frees of a FIFO's objects by other threads, and its end by the last of them: the protocol stands
 * in fifo_state.h.
 *
 * Freed objects are linked by their first word, which is theirs no more; the list is only ever
 * emptied as a whole, so a compare and swap cannot mistake one list for another.
 */
#include "frame/fifo_state.h"

#include "base/test_delay.h"

/* A free that another thread was doing when this process was forked is counted and never comes. */
enum { PATIENCE_MS = 100 };

static uint32_t forks; /* atomic: of this process and those before it */

static void after_fork_in_child(void) { store_relaxed(&forks, forks + 1); }

void fifo_remote_start(struct fifo *fifo)
{
    static bool registered; /* atomic */
    if (fifo->any_thread_free && !load_relaxed(&registered) && !exchange_acq_rel(&registered, true))
        (void)os_fork_register(NULL, NULL, after_fork_in_child); /* refused: as before any fork */
    fifo->forks = load_relaxed(&forks);
}

static void **link_of(struct fifo *fifo, void *pointer, bool queues)
{
    if (likely(!fifo->checked))
        return pointer;
    return queues ? fifo_checked_queue(fifo, pointer) : fifo_checked_link(pointer);
}

static void push(struct fifo *fifo, void *pointer)
{
    void **link = link_of(fifo, pointer, true);
    void *head = load_relaxed(&fifo->remote);
    do {
        store_relaxed(link, head);
        /* release: pairs with the exchange of whoever drains, which also reads the link */
    } while (!compare_swap_acq_rel(&fifo->remote, &head, pointer));
}

/* Frees what is there. Returns how many that were. */
static size_t drain(struct fifo *fifo)
{
    size_t count = 0;
    void *pointer = exchange_acq_rel(&fifo->remote, (void *)NULL); /* acquire: pairs with push */
    while (pointer) {
        void *next = load_relaxed(link_of(fifo, pointer, false));
        fifo_end_object(fifo, pointer, true);
        pointer = next;
        count++;
    }
    return count;
}

/* As the drainer of a closed FIFO, with `held` of pending its own: until nothing is pending, or
 * nothing is left. */
static void drain_to_end(struct fifo *fifo, size_t held)
{
    for (unsigned waited_ms = 0;;) {
        size_t count = drain(fifo) + held;
        held = 0;
        test_delay();
        if (fifo->busy == 0) {
            fifo_destroy(fifo);
            return;
        }
        /* acquire, release: the next drainer, or this one's next turn, sees all before */
        if (count != 0 && fetch_sub_acq_rel(&fifo->pending, count) == count)
            return;
        if (count != 0)
            continue;
        if (load_relaxed(&forks) == fifo->forks) {
            pause_processor(); /* somebody is between its count and its push */
        } else if (waited_ms++ < PATIENCE_MS) {
            os_sleep_ms(1);
        } else {
            return; /* somebody was, in the parent: the object is lost, and with it the FIFO */
        }
    }
}

void fifo_free_remotely(struct fifo *fifo, void *pointer)
{
    if (unlikely((uintptr_t)pointer % GROUP_BYTES != 0 &&
                 !group_is_of(group_at((uintptr_t)pointer), fifo)))
        die("fifo \"%s\": free of %p, which is not an object of it", fifo->name, pointer);
    bool drains = fetch_add_acq_rel(&fifo->pending, (size_t)1) == 0;
    test_delay();
    push(fifo, pointer);
    test_delay();
    if (drains)
        drain_to_end(fifo, 0);
}

void fifo_collect(struct fifo *fifo)
{
    if (likely(load_relaxed(&fifo->remote) == NULL))
        return;
    size_t count = drain(fifo);
    fetch_sub_acq_rel(&fifo->pending, count); /* the owner keeps its 1 */
}

void fifo_hand_over(struct fifo *fifo) { drain_to_end(fifo, 1); }
