/* Lists of kept runs: src/heap/run_cache.h.
 *
 * The owner takes runs from its list or from the pages, and keeps them, in TIMES steps. Each of
 * OTHERS threads ages the list, or takes all of it and gives its runs to the pages, TURNS times.
 *
 * Asserted: a run has one user at a time, which sees everything that the user before did; a thread
 * that takes a list finds each run that is kept; at the end no run is lost.
 */
#ifndef OTHERS
#define OTHERS 1
#endif
#ifndef TIMES
#define TIMES 6
#endif
#ifndef TURNS
#define TURNS 2
#endif
#ifndef RUNS
#define RUNS 2
#endif
#ifndef WRITES
#define WRITES 16
#endif

#define THREADS (OTHERS + 1)
#define OWNER OTHERS

#define WORD 0 /* of the place */
#define LOCK 1 /* of the pages, for the order of its holders */
#define ATOMICS 2
#define PLAINS 0
#define PAGES 0 /* guarded by the lock */
#define RUN(r) (r) /* numbers count from 1 */
#define CELLS (1 + RUNS)

#include "memory.pml"

#define FIRST(word) ((word) & 7)
#define AGED 8

#ifdef MUTANT_KEEP_RELAXED
#define KEEP_ORDER RELAXED
#else
#define KEEP_ORDER RELEASE
#endif
#ifdef MUTANT_KEEP_NEXT_RELAXED
#define KEEP_NEXT_ORDER RELAXED
#else
#define KEEP_NEXT_ORDER ACQ_REL
#endif
#ifdef MUTANT_EMPTY_RELAXED
#define EMPTY_ORDER RELAXED
#else
#define EMPTY_ORDER ACQUIRE
#endif

#define FREE 0 /* of the pages */
#define USED 1 /* by the owner */
#define KEPT 2
#define TAKEN 3 /* by another thread */

byte following[RUNS + 1]; /* `next` */
byte state[RUNS + 1];
byte done;

/* The page lock, held for one step. */
inline acquire(me)
{
    modify(me, LOCK, ACQ_REL, seen, 0);
    alone(me, PAGES);
    seen = 0
}
inline release(me)
{
    alone(me, PAGES);
    modify(me, LOCK, ACQ_REL, seen, 0);
    seen = 0
}

/* Changes what a run is. Only its user does that. */
inline becomes(me, r, before, after)
{
    alone(me, RUN(r));
    assert(state[r] == before);
    state[r] = after
}

/* pages_take */
inline take_from_pages(me)
{
    atomic {
        acquire(me);
        mine = 1;
        do
        :: mine <= RUNS && state[mine] != FREE -> mine++
        :: else -> break
        od;
        if
        :: mine <= RUNS ->
            becomes(me, mine, FREE, USED);
            following[mine] = mine /* any value */
        :: else -> mine = 0
        fi;
        release(me)
    }
}

/* run_cache_push */
inline keep(me)
{
    load(me, WORD, RELAXED, word);
    do
    :: mine == 0 -> break
    :: else ->
        atomic {
            alone(me, RUN(mine));
            following[mine] = FIRST(word)
        }
        atomic {
            seen = word;
#ifdef MUTANT_KEEP_BY_STORE
            overwrite(me, WORD, KEEP_ORDER, mine | (word & AGED));
#else
            if
            :: word == 0 -> overwrite(me, WORD, KEEP_ORDER, mine)
            :: else ->
                compare_swap(me, WORD, KEEP_NEXT_ORDER, word, mine | (word & AGED), seen)
            fi;
#endif
            if
            :: seen == word -> state[mine] = KEPT; mine = 0
            :: else -> word = seen
            fi
        }
    od;
    word = 0;
    seen = 0
}

/* run_cache_pop */
inline take(me)
{
#ifdef MUTANT_TAKE_ALL
    modify(me, WORD, ACQ_REL, word, 0);
    if
    :: word != 0 ->
        mine = FIRST(word);
        other = following[mine];
        atomic {
            becomes(me, mine, KEPT, USED);
            overwrite(me, WORD, RELEASE, (other == 0 -> 0 : other | (word & AGED)))
        }
    :: else
    fi;
#else
    load(me, WORD, RELAXED, word);
    do
    :: word == 0 || mine != 0 -> break
    :: else ->
        other = following[FIRST(word)]; /* any value, if another thread has the run by now */
        atomic {
#ifdef MUTANT_TAKE_BY_STORE
            overwrite(me, WORD, RELEASE, (other == 0 -> 0 : other | (word & AGED)));
            seen = word;
#else
            compare_swap(me, WORD, ACQ_REL, word, (other == 0 -> 0 : other | (word & AGED)), seen);
#endif
            if
            :: seen == word ->
                mine = FIRST(word);
                becomes(me, mine, KEPT, USED)
            :: else -> word = seen
            fi
        }
    od;
#endif
    word = 0;
    seen = 0;
    other = 0
}

/* The runs of the list `word`, which this thread has just taken. */
inline take_list(me)
{
    other = FIRST(word);
    do
    :: other != 0 ->
        becomes(me, other, KEPT, TAKEN);
        other = following[other]
    :: else -> break
    od;
    for (other : 1 .. RUNS) {
        assert(state[other] != KEPT)
    }
    other = 0
}

/* run_cache_empty, or run_cache_age; `word` gets the list that was taken */
inline take_or_age(me)
{
    load(me, WORD, RELAXED, word);
    if
    :: word == 0
    :: word != 0 ->
        atomic {
            modify(me, WORD, EMPTY_ORDER, seen, 0);
            word = seen;
            take_list(me)
        }
    :: word != 0 ->
        atomic {
            compare_swap(me, WORD, ACQ_REL, word, ((word & AGED) != 0 -> 0 : word | AGED), seen);
            if
            :: seen == word && (word & AGED) != 0 -> take_list(me)
            :: else -> word = 0
            fi
        }
    fi;
    seen = 0
}

/* run_cache_give */
inline give(me)
{
    mine = FIRST(word);
    do
    :: mine != 0 ->
        atomic {
            other = following[mine];
            acquire(me);
            becomes(me, mine, TAKEN, FREE);
            following[mine] = mine; /* the pages use it, too */
            release(me);
            mine = other;
            other = 0
        }
    :: else -> break
    od;
    word = 0
}

#define LOCALS short word, seen; byte mine, other

proctype owner(byte me)
{
    LOCALS;
    byte time;
    for (time : 1 .. TIMES) {
        if
        :: mine != 0 -> keep(me)
        :: mine == 0 -> take(me)
        :: mine == 0 -> take_from_pages(me)
        fi
    }
    keep(me);
    atomic {
        leave(me);
        done++
    }
}

proctype another(byte me)
{
    LOCALS;
    byte time;
    for (time : 1 .. TURNS) {
        take_or_age(me);
        give(me)
    }
    atomic {
        leave(me);
        done++
    }
}

init {
    byte k;
    atomic {
        begin();
        for (k : 0 .. OTHERS - 1) {
            run another(k)
        }
        run owner(OWNER);
        k = 0
    }
    done == THREADS;
    k = FIRST(newest(WORD));
    do
    :: k != 0 ->
        assert(state[k] == KEPT);
        state[k] = FREE;
        k = following[k]
    :: else -> break
    od;
    for (k : 1 .. RUNS) {
        assert(state[k] == FREE)
    }
}
