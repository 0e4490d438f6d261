/* Frees of a FIFO's objects by other threads, and its end: src/frame/fifo.c, fifo_state.h.
 *
 * The owner (thread 0) has OBJECTS objects; it frees OWN of them itself, collects at any time, and
 * closes the FIFO; object o is freed by thread 1 + o % FREERS, before or after the close.
 *
 * Asserted: at most one thread at a time is within the FIFO's own state, and sees everything that
 * the thread before did there; the use of an object happens before its memory is used again; the
 * FIFO ends once, when no object is left, and no thread touches it afterwards. No step waits.
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
#define ATOMICS 1
#define FIFO 0 /* the descriptor, which freeing threads read and write, and its memory */
#define PLAINS 1
#define STATE 0 /* of the owner, or of the draining thread */
#define OBJECT_CELL(o) (1 + (o))
#define CELLS OBJECT_CELL(OBJECTS)
#define IDLE 99 /* REMOTE_IDLE; 0: drained, else the object's number and 1 */

#include "memory.pml"

#ifdef MUTANT_PUSH_RELAXED
#define PUSH_ORDER RELAXED
#else
#define PUSH_ORDER ACQ_REL
#endif
#ifdef MUTANT_LEAVE_RELAXED
#define LEAVE_ORDER RELAXED
#else
#define LEAVE_ORDER ACQ_REL
#endif
#ifdef MUTANT_TAKE_RELAXED
#define TAKE_ORDER RELAXED
#else
#define TAKE_ORDER ACQ_REL
#endif

byte busy;
byte link[OBJECTS + 1];
bool is_freed[OBJECTS];
byte done;

/* fifo_drain */
inline drain(me)
{
    shared(me, FIFO);
    modify(me, REMOTE, TAKE_ORDER, object, 0);
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
            object = following;
            following = 0
        }
    :: else -> break
    od
}

/* fifo_leave */
inline drain_and_leave(me)
{
    do
    :: drain(me);
        alone(me, STATE);
        if
        :: busy == 0 -> finish(me, FIFO); break
        :: else
        fi;
        shared(me, FIFO);
#ifdef MUTANT_LEAVE_BY_STORE
        if
        :: newest(REMOTE) == 0 -> modify(me, REMOTE, LEAVE_ORDER, seen, IDLE); seen = 0; break
        :: else
        fi
#else
        atomic {
            if
            :: newest(REMOTE) == 0 ->
                modify(me, REMOTE, LEAVE_ORDER, seen, IDLE);
                seen = 0;
                break
            :: else
            fi
        }
#endif
    od
}

/* fifo_free_remotely */
inline free_remotely(me, o)
{
    atomic {
        shared(me, FIFO);
        alone(me, OBJECT_CELL(o));
        link[(o) + 1] = (newest(REMOTE) == IDLE -> 0 : newest(REMOTE));
        modify(me, REMOTE, PUSH_ORDER, seen, (o) + 1);
        drains = seen == IDLE;
        seen = 0
    }
#ifdef MUTANT_ALL_DRAIN
    drains = true;
#endif
#ifdef MUTANT_LOOK_AFTER
    shared(me, FIFO); /* for example to check whether the FIFO is closed */
#endif
    if
    :: drains -> drains = false; drain_and_leave(me)
    :: else
    fi
}

proctype owner()
{
    short seen, object;
    byte following, own = OWN;
    do
    :: own > 0 ->
        atomic {
            own--;
            alone(0, STATE);
            busy--
        }
    :: newest(REMOTE) != 0 && newest(REMOTE) != IDLE -> drain(0) /* fifo_collect */
    :: own == 0 -> break
    od;
#ifdef MUTANT_OWNER_ENDS
    drain(0);
    finish(0, FIFO);
#else
    drain_and_leave(0);
#endif
    atomic {
        leave(0);
        done++
    }
}

proctype freer(byte me)
{
    short seen, object;
    byte following, o = me - 1;
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
#ifdef MUTANT_STARTS_IDLE
        initially(REMOTE, IDLE);
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
