/* Frees of a FIFO's objects by other threads, and its end: src/frame/fifo_remote.c, fifo_state.h.
 *
 * The owner (thread 0) has OBJECTS objects; it frees OWN of them itself, collects when it likes, and
 * closes the FIFO; object o is freed by thread 1 + o % FREERS, before or after the close.
 *
 * Asserted: at most one thread at a time is within the FIFO's own state, and sees all that the one
 * before did there; what a thread did with an object happens before its memory is used again; the
 * FIFO ends once, when no object is left, and nobody touches it or waits for it afterwards.
 */
#ifndef OBJECTS
#define OBJECTS 3
#endif
#ifndef FREERS
#define FREERS 3
#endif
#ifndef OWN
#define OWN 1
#endif
#ifndef WRITES
#define WRITES 12
#endif

#define THREADS (1 + FREERS)
#define REMOTE 0
#define PENDING 1
#define ATOMICS 2
#define FIFO 0 /* the descriptor, which freeing threads read and write, and its memory */
#define PLAINS 1
#define STATE 0 /* what is the owner's, or the drainer's */
#define OBJECT_CELL(o) (1 + (o))
#define CELLS OBJECT_CELL(OBJECTS)

#include "memory.pml"

#ifdef MUTANT_PUSH_RELAXED
#define PUSH_ORDER RELAXED
#else
#define PUSH_ORDER ACQ_REL
#endif
#ifdef MUTANT_PENDING_RELAXED
#define PENDING_ORDER RELAXED
#else
#define PENDING_ORDER ACQ_REL
#endif

byte busy;
byte link[OBJECTS + 1];
bool is_freed[OBJECTS];
byte done;

/* drain. Returns the number of objects in `count`. */
inline drain(me)
{
    shared(me, FIFO);
    modify(me, REMOTE, ACQ_REL, object, 0);
    do
    :: object != 0 ->
        atomic {
            shared(me, FIFO);
            alone(me, OBJECT_CELL(object - 1));
            alone(me, STATE);
            assert(!is_freed[object - 1]);
            is_freed[object - 1] = true;
            following = link[object];
            busy--;
            count++;
            object = following;
            following = 0
        }
    :: else -> break
    od
}

/* drain_to_end. */
inline drain_to_end(me, held)
{
    count = held;
    do
    :: drain(me);
        alone(me, STATE);
        if
        :: busy == 0 -> finish(me, FIFO); break
        :: else
        fi;
        if
        :: count != 0 ->
            atomic {
                shared(me, FIFO);
                modify(me, PENDING, PENDING_ORDER, seen, seen - count)
            }
            if
            :: seen == count -> break
            :: else
            fi
        :: else -> newest(REMOTE) != 0 /* somebody is between the count and the push */
        fi;
        count = 0;
        seen = 0
    od;
    count = 0;
    seen = 0
}

/* fifo_free_remotely. */
inline free_remotely(me, o)
{
    atomic {
        shared(me, FIFO);
        alone(me, OBJECT_CELL(o));
#ifdef MUTANT_COUNT_AFTER_PUSH
        link[(o) + 1] = newest(REMOTE);
        modify(me, REMOTE, PUSH_ORDER, seen, (o) + 1)
#else
        modify(me, PENDING, PENDING_ORDER, seen, seen + 1);
        drains = seen == 0
#endif
    }
    atomic {
#ifdef MUTANT_COUNT_AFTER_PUSH
        shared(me, FIFO);
        modify(me, PENDING, PENDING_ORDER, seen, seen + 1);
        drains = seen == 0;
#else
        shared(me, FIFO);
        alone(me, OBJECT_CELL(o));
        link[(o) + 1] = newest(REMOTE);
        modify(me, REMOTE, PUSH_ORDER, seen, (o) + 1);
#endif
        seen = 0
    }
#ifdef MUTANT_ALL_DRAIN
    drains = true;
#endif
    if
    :: drains -> drains = false; drain_to_end(me, 0)
    :: else
    fi
}

proctype owner()
{
    short seen, object;
    byte count, following, own = OWN;
    do
    :: own > 0 ->
        atomic {
            own--;
            alone(0, STATE);
            busy--
        }
    :: newest(REMOTE) != 0 -> /* fifo_collect */
        drain(0);
        modify(0, PENDING, PENDING_ORDER, seen, seen - count);
        seen = 0;
        count = 0
    :: own == 0 -> break
    od;
#ifdef MUTANT_OWNER_ENDS
    drain(0);
    finish(0, FIFO);
#elif defined(MUTANT_NO_OWNER_COUNT)
    drain_to_end(0, 0);
#else
    drain_to_end(0, 1); /* fifo_hand_over */
#endif
    atomic {
        leave(0);
        done++
    }
}

proctype freer(byte me)
{
    short seen, object;
    byte count, following, o = me - 1;
    bool drains;
    do
    :: o < OBJECTS -> free_remotely(me, o); o = o + FREERS
    :: else -> break
    od;
    atomic {
        leave(me);
        done++
    }
}

init {
    byte k;
    atomic {
        begin();
        busy = OBJECTS + OWN;
#ifndef MUTANT_NO_OWNER_COUNT
        initially(PENDING, 1);
#endif
        run owner();
        for (k : 1 .. FREERS) {
            run freer(k)
        }
        k = 0
    }
    done == THREADS;
    assert(ended[FIFO] && busy == 0);
    for (k : 0 .. OBJECTS - 1) {
        assert(is_freed[k])
    }
}
