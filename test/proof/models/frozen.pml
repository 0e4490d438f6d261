/* Frees, in the child of a fork, of blocks in slabs of other threads of the parent:
 * slab_begin_inherited of src/heap/thread_heap.c and remote_retire_inherited of src/heap/remote.c.
 *
 * THREADS threads each free one block of a slab of THREADS blocks, in two remote words that have
 * their content from the parent; the generation is that of the parent, or its mark of being busy
 * with them. The thread that gives the slab back also uses its header for another slab, as the page
 * layer does.
 *
 * Asserted: no bit from the parent is taken for a free of this process, and no free is lost: the
 * slab is given back, once, when all its blocks are freed, and each thread's use of its block
 * happens before that.
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef WRITES
#define WRITES 12
#endif

#define GENERATION 0
#define OWNER 1
#define WORD(w) (2 + (w))
#define ATOMICS 4
#define PLAINS 0
#define BLOCK(b) (b)
#define CELLS THREADS

#include "memory.pml"

#ifdef MUTANT_OR_RELAXED
#define OR_ORDER RELAXED
#else
#define OR_ORDER ACQ_REL
#endif
#ifdef MUTANT_COUNT_RELAXED
#define COUNT_ORDER RELAXED
#else
#define COUNT_ORDER ACQ_REL
#endif
#ifdef MUTANT_READY_RELAXED
#define READY_ORDER RELAXED
#else
#define READY_ORDER RELEASE
#endif

#define OLD 0
#define PARENT_BUSY 1
#define BUSY 2
#define READY 3

#define FROZEN_HEAP 1

byte given_back;
byte done;

/* slab_begin_inherited */
inline begin_frozen(me)
{
    load(me, GENERATION, ACQUIRE, seen);
    do
    :: seen != READY ->
        if
        :: seen != BUSY ->
            compare_swap(me, GENERATION, ACQ_REL, seen, BUSY, found);
            if
            :: found == seen ->
                store(me, WORD(0), RELAXED, 0);
                store(me, WORD(1), RELAXED, 0);
                store(me, GENERATION, READY_ORDER, READY)
            :: else
            fi
        :: else -> newest(GENERATION) != BUSY /* waits */
        fi;
        load(me, GENERATION, ACQUIRE, seen)
    :: else -> break
    od;
    seen = 0;
    found = 0
}

proctype freer(byte me)
{
    short seen, found;
    byte all;
#ifndef MUTANT_NO_BEGIN
    begin_frozen(me);
#endif
    load(me, WORD(me % 2), ACQUIRE, seen); /* checked_slot */
    assert(!(seen & (1 << me)));
    atomic {
        alone(me, BLOCK(me));
        modify(me, WORD(me % 2), OR_ORDER, seen, seen | (1 << me))
    }
    assert(!(seen & (1 << me)));
    /* remote_retire_inherited */
#ifdef MUTANT_COUNT_BY_LOADS
    load(me, WORD(0), ACQUIRE, seen);
    all = seen;
    load(me, WORD(1), ACQUIRE, seen);
#else
    modify(me, WORD(0), COUNT_ORDER, seen, seen);
    all = seen;
    modify(me, WORD(1), COUNT_ORDER, seen, seen);
#endif
    all = all | seen;
    load(me, OWNER, RELAXED, seen);
    if
    :: all == (1 << THREADS) - 1 && seen == FROZEN_HEAP ->
#ifdef MUTANT_NO_CLAIM
        store(me, OWNER, RELAXED, 0);
#else
        compare_swap(me, OWNER, ACQ_REL, FROZEN_HEAP, 0, found);
#endif
        if
        :: found == seen ->
            given_back++;
            atomic {
                for (seen : 0 .. THREADS - 1) {
                    alone(me, BLOCK(seen))
                }
            }
        :: else
        fi
    :: else
    fi;
    atomic {
        leave(me);
        done++
    }
}

init {
    byte k;
    atomic {
        begin();
        if
        :: initially(GENERATION, OLD)
        :: initially(GENERATION, PARENT_BUSY)
        fi;
        initially(OWNER, FROZEN_HEAP);
        initially(WORD(0), 5);
        initially(WORD(1), 2);
        for (k : 0 .. THREADS - 1) {
            run freer(k)
        }
        k = 0
    }
    done == THREADS;
    assert(given_back == 1);
}
