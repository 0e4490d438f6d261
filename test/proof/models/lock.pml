/* The page lock, its freeze for fork, and the stack of what is deferred meanwhile: src/base/lock.c,
 * src/page/pages.c.
 *
 * Each of WORKERS threads TIMES times gives a run back: it defers it, takes the lock, settles what
 * is deferred, and releases the lock; when the lock is frozen it goes away. The first of them does so
 * while it holds libc's lock (a mutex of stdio), which FORKERS threads, each forking once, take
 * between the freeze and the thaw, as libc does between the handlers and the clone. A futex wait
 * compares and sleeps in one step; a wake-up wakes sleepers of any choice.
 *
 * Asserted: one thread at a time is in the critical section, and sees all that the one before did;
 * nobody comes in while the lock is frozen; nobody sleeps for ever (deadlock); at the fork the
 * forking thread itself holds the lock, so that the child's copy is whole; nothing deferred is lost
 * or settled twice.
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef FORKERS
#define FORKERS 1
#endif
#ifndef TIMES
#define TIMES 1
#endif
#ifndef WRITES
#define WRITES 12
#endif

#define THREADS (WORKERS + FORKERS)
#define RUNS (WORKERS * TIMES)

#define STATE 0
#define FROZEN 1
#define DEFERRED 2
#define ATOMICS 3
#define PLAINS 0
#define GUARDED 0 /* what the lock guards */
#define RUN(r) (1 + (r))
#define CELLS RUN(RUNS)

#include "memory.pml"

#define FREE 0
#define HELD 1
#define WAITED 2
#ifdef MUTANT_FROZEN_AS_HELD
#define FROZEN_STATE HELD
#else
#define FROZEN_STATE 3
#endif

#ifdef MUTANT_RELEASE_RELAXED
#define RELEASE_ORDER RELAXED
#else
#define RELEASE_ORDER ACQ_REL
#endif
#ifdef MUTANT_DEFER_RELAXED
#define DEFER_ORDER RELAXED
#else
#define DEFER_ORDER ACQ_REL
#endif

bool asleep[4]; /* at most so many threads */
byte inside;
bool is_frozen;
byte stdio; /* libc's lock: 0, or 1 + the thread that has it */
byte following[RUNS + 1];
bool settled[RUNS];
bool with_forker[RUNS];
byte done;

/* host_wait. */
inline sleep(me)
{
    atomic {
        if
        :: newest(STATE) == WAITED -> asleep[me] = true
        :: else
        fi
    }
    !asleep[me]
}

/* host_wake of one: any of those that sleep. */
inline wake_one()
{
    atomic {
        if
        :: asleep[0] -> asleep[0] = false
        :: asleep[1] -> asleep[1] = false
        :: asleep[2] -> asleep[2] = false
        :: asleep[3] -> asleep[3] = false
        :: else
        fi
    }
}

inline wake_all()
{
    d_step {
        for (x : 0 .. THREADS - 1) {
            asleep[x] = false
        }
        x = 0
    }
}

/* lock_acquire. The number of turns before it sleeps is anybody's choice. */
inline acquire(me)
{
    held = false;
    as = HELD;
    do
    :: compare_swap(me, STATE, ACQ_REL, FREE, as, seen);
        held = seen == FREE;
        if
        :: held -> break
        :: else
        fi;
        load(me, FROZEN, ACQUIRE, seen);
#ifdef MUTANT_WAIT_WHEN_FROZEN
        newest(FROZEN) == 0; /* how long it spins makes no difference */
        seen = 0;
#endif
        if
        :: seen != 0 -> break
        :: else
        fi;
        if
        :: as == HELD && newest(STATE) == FREE /* a turn more is of use only then */
        :: true -> /* announce that this thread sleeps */
            compare_swap(me, STATE, ACQ_REL, HELD, WAITED, seen);
            if
            :: seen == HELD || seen == WAITED ->
#ifdef MUTANT_FROZEN_AS_HELD
                load(me, FROZEN, ACQUIRE, seen);
                if
                :: seen == 0 -> sleep(me)
                :: else
                fi
#else
                sleep(me)
#endif
            :: else
            fi;
#ifndef MUTANT_WAKES_AS_HELD
            as = WAITED
#endif
        fi
    od;
    seen = 0;
    as = 0
}

/* lock_release. */
inline release(me)
{
    modify(me, STATE, RELEASE_ORDER, seen, FREE);
    if
    :: seen == WAITED -> wake_one()
    :: else
    fi;
    seen = 0
}

inline enter(me)
{
    atomic {
        assert(inside == 0 && !is_frozen);
        alone(me, GUARDED);
        inside++
    }
}

/* deferred_settle. */
inline settle(me)
{
    modify(me, DEFERRED, ACQUIRE, seen, 0);
    atomic {
        do
        :: seen != 0 ->
            alone(me, RUN(seen - 1));
            assert(!settled[seen - 1]);
            settled[seen - 1] = true;
            seen = following[seen]
        :: else -> break
        od
    }
}

/* give: defer, and settle when the lock is to be had. */
inline give(me, r)
{
    atomic {
        alone(me, RUN(r));
        following[(r) + 1] = newest(DEFERRED);
        modify(me, DEFERRED, DEFER_ORDER, seen, (r) + 1);
        seen = 0
    }
    acquire(me);
    if
    :: held ->
        enter(me);
        settle(me);
        d_step {
            alone(me, GUARDED);
            inside--
        }
        release(me)
    :: else
    fi;
    held = false
}

#define LOCALS short seen; byte x, as; bool held

proctype worker(byte me)
{
    LOCALS;
    byte time;
    if
    :: me == 0 -> atomic { stdio == 0 -> stdio = 1 + me }
    :: else
    fi;
    for (time : 0 .. TIMES - 1) {
        give(me, me * TIMES + time)
    }
    if
    :: me == 0 -> stdio = 0
    :: else
    fi;
    atomic {
        leave(me);
        done++
    }
}

proctype forker(byte me)
{
    LOCALS;
    do /* lock_freeze */
    :: acquire(me);
        if
        :: held -> break
        :: else -> newest(FROZEN) == 0 /* pauses; nothing changes before */
        fi
    od;
    held = false;
    d_step {
        enter(me);
        is_frozen = true
    }
    store(me, FROZEN, RELEASE, 1);
#ifdef MUTANT_FREEZE_IF_WAITED
    modify(me, STATE, ACQ_REL, seen, FROZEN_STATE);
    if
    :: seen == WAITED -> wake_all()
    :: else
    fi;
#elif defined(MUTANT_NO_WAKE)
    modify(me, STATE, ACQ_REL, seen, FROZEN_STATE);
#else
    modify(me, STATE, ACQ_REL, seen, FROZEN_STATE);
    wake_all();
#endif
    seen = 0;
    settle(me); /* pages_freeze */
    atomic { stdio == 0 -> stdio = 1 + me }
    assert(inside == 1 && is_frozen); /* clone */
    stdio = 0;
    d_step {
        alone(me, GUARDED);
        is_frozen = false;
        inside--
    }
    store(me, FROZEN, RELEASE, 0); /* lock_thaw */
    release(me);
    atomic {
        leave(me);
        done++
    }
}

init {
    byte k;
    atomic {
        begin();
        for (k : 0 .. WORKERS - 1) {
            run worker(k)
        }
        for (k : WORKERS .. THREADS - 1) {
            run forker(k)
        }
        k = 0
    }
    done == THREADS;
    assert(newest(STATE) == FREE && newest(FROZEN) == 0 && inside == 0);
    /* What is not settled still waits. */
    k = newest(DEFERRED);
    do
    :: k != 0 ->
        assert(!settled[k - 1]);
        settled[k - 1] = true;
        k = following[k]
    :: else -> break
    od;
    for (k : 0 .. RUNS - 1) {
        assert(settled[k])
    }
}
