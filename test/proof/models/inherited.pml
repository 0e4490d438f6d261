/* Frees, in the child of a fork, of blocks in a slab of another thread of the parent:
 * slab_retire_inherited of src/heap/thread_heap.c, after step (1) of src/heap/remote.c.
 *
 * THREADS threads each free one of the last THREADS blocks in use. The thread that gives the slab
 * back also uses its header for another slab, as the page layer does. With TWICE the first block is
 * freed a second time, after the first free.
 *
 * Asserted: no free is lost: the slab is given back, once, when all its blocks are freed, and each
 * thread's use of its block happens before that. A second free finds the link byte not LIVE, as
 * long as the header serves no other slab. The other slab stays in use.
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef WRITES
#define WRITES 6
#endif

#define OWNER 0
#define LINK(b) (1 + (b))
#define ATOMICS (1 + THREADS)
#define PLAINS 0
#define BLOCK(b) (b)
#define CELLS THREADS

#include "memory.pml"

#ifdef MUTANT_MARK_RELEASE
#define MARK_ORDER ACQ_REL
#else
#define MARK_ORDER SEQ_CST
#endif
#ifdef MUTANT_LOOK_ACQUIRE
#define LOOK_ORDER ACQUIRE
#else
#define LOOK_ORDER SEQ_CST
#endif

#define LIVE 0
#define REMOTE 1

#define INHERITED_HEAP 1
#define OWN_HEAP 2

byte given_back;
byte done;

/* slab_retire_inherited */
inline retire(me)
{
    load(me, OWNER, ACQUIRE, owner);
    if
    :: owner == INHERITED_HEAP ->
        used = false;
        for (slot : 0 .. THREADS - 1) {
            if
            :: !used ->
                load(me, LINK(slot), LOOK_ORDER, seen);
                used = (seen == LIVE)
            :: else
            fi
        }
        if
        :: !used ->
#ifdef MUTANT_NO_CLAIM
            found = owner;
            store(me, OWNER, RELAXED, 0);
#elif defined(MUTANT_CLAIM_ANY_OWNER)
            load(me, OWNER, RELAXED, owner);
            compare_swap(me, OWNER, ACQ_REL, owner, 0, found);
            found = (found == owner && owner != 0 -> INHERITED_HEAP : 0);
            owner = INHERITED_HEAP;
#else
            compare_swap(me, OWNER, ACQ_REL, INHERITED_HEAP, 0, found);
#endif
            if
            :: found == owner ->
                given_back++;
                atomic {
                    for (slot : 0 .. THREADS - 1) {
                        alone(me, BLOCK(slot))
                    }
                }
                /* The header serves another slab, whose blocks become free one by one. */
                store(me, LINK(0), RELAXED, LIVE);
                store(me, OWNER, RELEASE, OWN_HEAP);
                store(me, LINK(0), RELAXED, REMOTE)
            :: else
            fi
        :: else
        fi
    :: else
    fi
}

proctype freer(byte me)
{
    short seen, found, owner;
    byte slot;
    bool used;
    atomic {
        alone(me, BLOCK(me));
        compare_swap(me, LINK(me), MARK_ORDER, LIVE, REMOTE, found)
    }
    assert(found == LIVE);
#ifdef TWICE
    if
    :: me == 0 ->
        atomic {
#ifdef MUTANT_MARK_BY_STORE
            store(me, LINK(0), MARK_ORDER, REMOTE);
            found = LIVE;
#else
            compare_swap(me, LINK(0), MARK_ORDER, LIVE, REMOTE, found);
#endif
            assert(found != LIVE || given_back != 0)
        }
    :: else
    fi;
#endif
    retire(me);
    atomic {
        leave(me);
        done++
    }
}

init {
    byte k;
    atomic {
        begin();
        initially(OWNER, INHERITED_HEAP);
        for (k : 0 .. THREADS - 1) {
            initially(LINK(k), LIVE)
        }
        for (k : 0 .. THREADS - 1) {
            run freer(k)
        }
        k = 0
    }
    done == THREADS;
    assert(given_back == 1);
    assert(newest(OWNER) == OWN_HEAP);
}
