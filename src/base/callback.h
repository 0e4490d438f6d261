/* A function of the program and its context, which any thread may replace while others read them.
 * Readers always get a context together with its own function.
 *
 * A replacement takes a place that is not current, writes the pair there, and makes the place
 * current. A place is not written while it is current, and each replacement has a number of its
 * own. So if a reader finds the same number before and after it has read the pair, the pair is
 * whole. No reader waits for another thread, not even in the child of a fork that came in the
 * middle of a replacement: there the place that was being written stays taken.
 *
 * Threads: any.
 */
#ifndef CAIRN_BASE_CALLBACK_H
#define CAIRN_BASE_CALLBACK_H

#include "base/atomic.h"

/* The function's own type is known where it is set and called. */
typedef void callback_function(void);

/* One place is current, and each thread that is replacing has one. */
enum { CALLBACK_PLACES = 8 };

struct callback_pair {
    callback_function *function; /* atomic: NULL for none */
    void *context;               /* atomic */
};

/* Zero before the first replacement. */
struct callback {
    uint32_t current; /* atomic: CALLBACK_PLACES times the number of replacements, plus the place */
    uint32_t taken;   /* atomic: one bit for each place that is being written */
    struct callback_pair pairs[CALLBACK_PLACES];
};

/* Takes a place that is not current. Waits if all are taken. */
static inline uint32_t callback_take_place(struct callback *callback)
{
    for (uint32_t place = 0;; place = (place + 1) % CALLBACK_PLACES) {
        uint32_t bit = 1u << place;
        /* A place becomes current only while it is taken, so it stays as it is found here. The
         * former user's stores come before this thread's: pairs with callback_set. */
        if ((fetch_or_acq_rel(&callback->taken, bit) & bit) != 0)
            continue;
        if (load_acquire(&callback->current) % CALLBACK_PLACES != place)
            return place;
        fetch_and_acq_rel(&callback->taken, ~bit);
    }
}

/* Replaces the function and its context. */
static inline void callback_set(struct callback *callback, callback_function *function,
                                void *context)
{
    uint32_t place = callback_take_place(callback);
    /* release: a reader that finds one of the two finds another number, too */
    store_release(&callback->pairs[place].function, function);
    store_release(&callback->pairs[place].context, context);
    uint32_t seen = load_relaxed(&callback->current);
    uint32_t next;
    do /* release: pairs with callback_read */
        next = (seen / CALLBACK_PLACES + 1) * CALLBACK_PLACES + place;
    while (!compare_swap_acq_rel(&callback->current, &seen, next));
    fetch_and_acq_rel(&callback->taken, ~(1u << place)); /* pairs with callback_take_place */
}

/* Reads the function and its context. */
static inline struct callback_pair callback_read(const struct callback *callback)
{
    for (;;) {
        /* acquire: pairs with callback_set; the pair is read between the loads of the number */
        uint32_t number = load_acquire(&callback->current);
        const struct callback_pair *pair = &callback->pairs[number % CALLBACK_PLACES];
        struct callback_pair read = {load_acquire(&pair->function), load_acquire(&pair->context)};
        if (load_relaxed(&callback->current) == number)
            return read;
    }
}

#endif
