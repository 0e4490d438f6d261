/* The page lock, its freeze for fork, and the stack of deferred runs: src/base/lock.c,
 * src/page/pages.c, src/page/free_spans.c.
 *
 * Each of WORKERS threads gives a run back TIMES times: it defers the run, takes the lock, settles
 * the deferred runs, and releases the lock; when the lock is frozen it leaves. The first worker
 * does so while it holds libc's lock (a mutex of stdio). FORKERS threads, each of which forks once,
 * take that mutex between the freeze and the thaw, as libc does between the handlers and the clone.
 * Such a thread holds the lock again before it releases it. It sleeps while another one forks. A
 * futex wait compares and sleeps in one step; a wake-up wakes any of the sleepers.
 *
 * Asserted: one thread at a time is in the critical section, and sees everything that the thread
 * before did; no thread enters while the lock is frozen; no thread sleeps for ever (deadlock); at
 * the fork the forking thread itself holds the lock, so that the child's copy is consistent; no
 * deferred run is lost or settled twice.
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
#define DEFERRED 1
#define ATOMICS 2
#define PLAINS 0
#define GUARDED 0 /* guarded by the lock */
#define RUN(r) (1 + (r))
#define CELLS RUN(RUNS)

#include "memory.pml"

#define FREE 0
#define HELD 1
#define WAITED 2
#define FROZEN 3

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

bool asleep[4]; /* the greatest number of threads */
byte inside;
bool is_frozen;
byte stdio; /* libc's lock: 0, or 1 + the thread that has it */
byte following[RUNS + 1];
bool settled[RUNS];
bool with_forker[RUNS];
byte done;

/* host_wait. The kernel reads the newest state for this thread, which then reads no older one. */
inline sleep(me, compared)
{
    atomic {
        load_newest(me, STATE, RELAXED, seen);
        if
        :: seen == compared -> asleep[me] = true
        :: else
        fi;
        seen = 0
    }
    !asleep[me]
}

/* host_wake of one thread: any of the sleepers */
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

/* lock_acquire. The number of turns before it sleeps is arbitrary. A turn of lock_spin only reads
 * the state: a thread that reads a value other than the newest one spins longer, sleeps, or fails
 * in its compare-and-swap, and all of these happen here without the read, too. */
inline acquire(me)
{
    held = false;
    as = HELD;
    do
    :: compare_swap(me, STATE, ACQ_REL, FREE, as, seen);
        held = seen == FREE;
        if
        :: held -> break
#ifdef MUTANT_WAIT_WHEN_FROZEN
        /* the number of spins is arbitrary, too */
        :: !held && seen == FROZEN -> newest(STATE) != FROZEN
#else
        :: !held && seen == FROZEN -> break
#endif
        :: else
        fi;
        if
        :: as == HELD && newest(STATE) == FREE /* another turn is of use only then */
        :: true -> /* announces that this thread sleeps */
            compare_swap(me, STATE, ACQ_REL, HELD, WAITED, seen);
            if
            :: seen == HELD || seen == WAITED -> sleep(me, WAITED)
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

/* lock_release */
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

/* free_spans_settle */
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

/* Defers the run, and settles when the lock is available. */
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
        :: else ->
            sleep(me, FROZEN)
        fi
    od;
    held = false;
    d_step {
        enter(me);
        is_frozen = true
    }
#ifdef MUTANT_FROZEN_AS_HELD
    modify(me, STATE, ACQ_REL, seen, HELD);
    wake_all();
#elif defined(MUTANT_FREEZE_IF_WAITED)
    modify(me, STATE, ACQ_REL, seen, FROZEN);
    if
    :: seen == WAITED -> wake_all()
    :: else
    fi;
#elif defined(MUTANT_NO_WAKE)
    modify(me, STATE, ACQ_REL, seen, FROZEN);
#else
    modify(me, STATE, ACQ_REL, seen, FROZEN);
    wake_all();
#endif
    seen = 0;
    settle(me); /* pages_freeze */
    atomic { stdio == 0 -> stdio = 1 + me }
    assert(inside == 1 && is_frozen); /* clone */
    stdio = 0;
    is_frozen = false;
#ifdef MUTANT_THAW_WAKES_FIRST
    wake_all();
#endif
    store(me, STATE, RELEASE, HELD); /* lock_thaw */
#if !defined(MUTANT_THAW_WAKES_FIRST) && !defined(MUTANT_THAW_NO_WAKE)
    wake_all();
#endif
    d_step {
        alone(me, GUARDED);
        inside--
    }
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
    assert(newest(STATE) == FREE && inside == 0);
    /* A run that is not settled is still in the list. */
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
