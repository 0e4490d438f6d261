/* Spare headers that are lent while the page lock is frozen for a fork: src/page/state.c.
 *
 * Each of TAKERS threads takes a header and returns it TIMES times, while another thread lends the
 * lists and reclaims them FORKS times. A taker that finds the lock free uses the list under the
 * lock. A taker that found it frozen uses the word, perhaps long after the thaw. A header that the
 * word cannot take back is put into the list when the lock is free (deferred: see lock.pml).
 *
 * Asserted: a header has one user at a time, which sees everything that the user before did; at the
 * end each header is once in the list or, if it was returned too late, in the word.
 */
#ifndef TAKERS
#define TAKERS 2
#endif
#ifndef TIMES
#define TIMES 2
#endif
#ifndef FORKS
#define FORKS 1
#endif
#ifndef HEADERS
#define HEADERS 2
#endif
#ifndef WRITES
#define WRITES 16
#endif

#define THREADS (TAKERS + 1)
#define FORKER TAKERS

#define WORD 0
#define EMPTY 1 /* ran_empty */
#define LENT 2  /* are_lent */
#define LOCK 3  /* the page lock, for the order of its holders */
#define ATOMICS 4
#define PLAINS 0
#define LIST 0 /* guarded by the lock */
#define HEADER(h) (h) /* numbers count from 1 */
#define CELLS (1 + HEADERS)

#include "memory.pml"

#define ADDRESS(word) ((word) & 7)
#ifdef MUTANT_NO_TAG
#define NEXT_TAG(word) 0
#else
#define NEXT_TAG(word) (((word) & ~7) + 8)
#endif

#ifdef MUTANT_RETURN_RELAXED
#define RETURN_ORDER RELAXED
#else
#define RETURN_ORDER ACQ_REL
#endif
#ifdef MUTANT_TAKE_RELAXED
#define TAKE_LOAD RELAXED
#define TAKE_ORDER RELAXED
#else
#define TAKE_LOAD ACQUIRE
#define TAKE_ORDER ACQ_REL
#endif
#ifdef MUTANT_LEND_RELAXED
#define LEND_ORDER RELAXED
#else
#define LEND_ORDER ACQ_REL
#endif

bool is_held, is_frozen;      /* the page lock, by the forker */
byte list, list_last;         /* under the page lock */
byte lent_last;               /* under the page lock */
byte following[HEADERS + 1];  /* `next` */
bool used[HEADERS + 1];
byte done;

/* header_push, under the lock */
inline push(h)
{
    following[h] = list;
    if
    :: list == 0 -> list_last = h
    :: else
    fi;
    list = h
}

/* The page lock. Takers hold it for one step. */
inline acquire(me)
{
    modify(me, LOCK, ACQ_REL, seen, 0);
    alone(me, LIST);
    seen = 0
}
inline release(me)
{
    alone(me, LIST);
    modify(me, LOCK, ACQ_REL, seen, 0);
    seen = 0
}

/* header_take; 0: it makes a new header, which is none of these */
inline take(me)
{
    mine = 0;
    if
    :: atomic {
           !is_held ->
           acquire(me);
           if
           :: list != 0 ->
               mine = list;
               list = following[mine];
               alone(me, HEADER(mine))
           :: else
           fi;
           release(me)
       }
    :: is_frozen -> /* it avoids the lock, fast or slowly: header_pop_lent */
        load(me, WORD, TAKE_LOAD, word);
        do
        :: ADDRESS(word) == 0 -> break
        :: else ->
            other = following[ADDRESS(word)]; /* any value, if the header has another use by now */
            compare_swap(me, WORD, TAKE_ORDER, word, other | NEXT_TAG(word), seen);
            if
            :: seen == word ->
                mine = ADDRESS(word);
                alone(me, HEADER(mine));
                break
            :: else -> word = seen
            fi
        od
    fi;
    atomic {
        if
        :: mine != 0 ->
            assert(!used[mine]);
            used[mine] = true
        :: else
        fi;
        word = 0;
        seen = 0;
        other = 0
    }
}

/* header_return */
inline give(me)
{
    if
    :: mine != 0 ->
        atomic {
            alone(me, HEADER(mine));
            following[mine] = 0; /* it served another purpose */
            used[mine] = false
        }
        load(me, LENT, ACQUIRE, seen);
        if
        :: seen == 0 ->
            atomic { /* it is deferred, and settled */
                !is_held ->
                acquire(me);
                push(mine);
                release(me)
            }
        :: else ->
            load(me, WORD, RELAXED, word);
            do
            :: true ->
                following[mine] = ADDRESS(word);
                if
                :: ADDRESS(word) == 0 -> store_flag(me)
                :: else
                fi;
                compare_swap(me, WORD, RETURN_ORDER, word, mine | NEXT_TAG(word), seen);
                if
                :: seen == word -> break
                :: else -> word = seen
                fi
            od
        fi;
        word = 0;
        seen = 0
    :: else
    fi;
    mine = 0
}

/* Several threads write the flag, and only the forker reads it, after an exchange of the word. */
inline store_flag(me)
{
    overwrite(me, EMPTY, RELAXED, 1)
}

#define LOCALS short word, seen; byte mine, other

proctype taker(byte me)
{
    LOCALS;
    byte time;
    for (time : 1 .. TIMES) {
        take(me);
        give(me)
    }
    atomic {
        leave(me);
        done++
    }
}

proctype forker(byte me)
{
    LOCALS;
    byte time;
    for (time : 1 .. FORKS) {
        atomic {
            acquire(me);
            is_held = true;
            mine = list; /* headers_lend */
            lent_last = list_last;
            list = 0
        }
        overwrite(me, EMPTY, RELAXED, (mine == 0 -> 1 : 0));
        modify(me, WORD, LEND_ORDER, seen, mine | NEXT_TAG(seen));
        other = ADDRESS(seen);
#ifndef MUTANT_LOSES_LATE_ONES
        do
        :: other != 0 ->
            atomic {
                alone(me, HEADER(other));
                mine = following[other];
                push(other);
                other = mine
            }
        :: else -> break
        od;
#endif
        mine = 0;
        store(me, LENT, RELEASE, 1);
        is_frozen = true;  /* lock_end_freeze */
        is_frozen = false; /* lock_begin_thaw */
        store(me, LENT, RELAXED, 0); /* headers_take_back */
        modify(me, WORD, ACQ_REL, seen, NEXT_TAG(seen));
        mine = ADDRESS(seen);
        if
        :: mine != 0 ->
            other = lent_last;
#ifndef MUTANT_KEEPS_THE_END
            load(me, EMPTY, RELAXED, word);
            if
            :: word != 0 ->
                other = mine;
                do
                :: following[other] != 0 -> other = following[other]
                :: else -> break
                od
            :: else
            fi;
#endif
            atomic {
                alone(me, HEADER(other));
                following[other] = list;
                if
                :: list == 0 -> list_last = other
                :: else
                fi;
                list = mine
            }
        :: else
        fi;
        atomic {
            release(me);
            is_held = false; /* lock_end_thaw */
            mine = 0;
            other = 0;
            word = 0;
            seen = 0
        }
    }
    atomic {
        leave(me);
        done++
    }
}

init {
    byte k;
    byte found;
    atomic {
        begin();
        for (k : 1 .. HEADERS) {
            push(k)
        }
        for (k : 0 .. TAKERS - 1) {
            run taker(k)
        }
        run forker(FORKER);
        k = 0
    }
    done == THREADS;
    for (k : 1 .. HEADERS) {
        assert(!used[k])
    }
    k = list;
    do
    :: k != 0 ->
        assert(!used[k]);
        used[k] = true;
        found++;
        k = following[k]
    :: else -> break
    od;
    k = ADDRESS(newest(WORD));
    do
    :: k != 0 ->
        assert(!used[k]);
        used[k] = true;
        found++;
        k = following[k]
    :: else -> break
    od;
    assert(found == HEADERS)
}
