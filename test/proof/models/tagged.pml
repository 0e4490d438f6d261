/* Lock-free lists with tagged heads: src/base/tagged.c.
 *
 * Each of TAKERS threads pops an element, twice one if it can, and pushes what it has, TIMES times.
 * Another thread pops all elements and pushes them again EMPTYINGS times.
 *
 * Asserted: an element has one user at a time, which sees everything that the user before did; at
 * the end each element is in the list once.
 */
#ifndef TAKERS
#define TAKERS 2
#endif
#ifndef TIMES
#define TIMES 2
#endif
#ifndef EMPTYINGS
#define EMPTYINGS 1
#endif
#ifndef ELEMENTS
#define ELEMENTS 2
#endif
#ifndef WRITES
#define WRITES 16
#endif

#define THREADS (TAKERS + 1)
#define EMPTIER TAKERS

#define HEAD 0
#define ATOMICS 1
#define PLAINS 0
#define ELEMENT(e) (e) /* numbers count from 1 */
#define CELLS (1 + ELEMENTS)

#include "memory.pml"

#define ADDRESS(word) ((word) & 7)
#ifdef MUTANT_NO_TAG
#define NEXT_TAG(word) 0
#else
#define NEXT_TAG(word) (((word) & ~7) + 8)
#endif

#ifdef MUTANT_PUSH_RELAXED
#define PUSH_ORDER RELAXED
#else
#define PUSH_ORDER ACQ_REL
#endif
#ifdef MUTANT_POP_RELAXED
#define POP_LOAD RELAXED
#define POP_ORDER RELAXED
#else
#define POP_LOAD ACQUIRE
#define POP_ORDER ACQ_REL
#endif
#ifdef MUTANT_POP_ALL_RELAXED
#define ALL_LOAD RELAXED
#define ALL_ORDER RELAXED
#else
#define ALL_LOAD ACQUIRE
#define ALL_ORDER ACQ_REL
#endif

byte following[ELEMENTS + 1]; /* the links */
bool used[ELEMENTS + 1];
byte done;

/* The thread has taken element `e` out of the list. */
inline use(me, e)
{
    alone(me, ELEMENT(e));
    assert(!used[e]);
    used[e] = true
}

/* tagged_pop; 0: the list is empty */
inline pop(me, e)
{
    e = 0;
    load(me, HEAD, POP_LOAD, word);
    do
    :: ADDRESS(word) == 0 -> break
    :: else ->
        next = following[ADDRESS(word)]; /* any value, if the element has another use by now */
        compare_swap(me, HEAD, POP_ORDER, word, next | NEXT_TAG(word), seen);
        if
        :: seen == word ->
            e = ADDRESS(word);
            atomic { use(me, e) }
            break
        :: else -> word = seen
        fi
    od;
    word = 0;
    seen = 0;
    next = 0
}

/* tagged_push */
inline push(me, e)
{
    if
    :: e != 0 ->
        atomic {
            alone(me, ELEMENT(e));
            following[e] = 0; /* it served another purpose */
            used[e] = false
        }
        load(me, HEAD, RELAXED, word);
        do
        :: true ->
            following[e] = ADDRESS(word);
            compare_swap(me, HEAD, PUSH_ORDER, word, e | NEXT_TAG(word), seen);
            if
            :: seen == word -> break
            :: else -> word = seen
            fi
        od;
        word = 0;
        seen = 0
    :: else
    fi;
    e = 0
}

#define LOCALS short word, seen; byte mine, other, next

proctype taker(byte me)
{
    LOCALS;
    byte time;
    for (time : 1 .. TIMES) {
        pop(me, mine);
        if
        :: mine != 0 -> pop(me, other)
        :: true
        fi;
        push(me, mine);
        push(me, other)
    }
    atomic {
        leave(me);
        done++
    }
}

proctype emptier(byte me)
{
    LOCALS;
    byte time;
    for (time : 1 .. EMPTYINGS) {
        load(me, HEAD, ALL_LOAD, word); /* tagged_pop_all */
        do
        :: ADDRESS(word) == 0 -> break
        :: else ->
            compare_swap(me, HEAD, ALL_ORDER, word, NEXT_TAG(word), seen);
            if
            :: seen == word -> break
            :: else -> word = seen
            fi
        od;
        other = ADDRESS(word);
        word = 0;
        seen = 0;
        do
        :: other != 0 ->
            atomic {
                mine = other;
                use(me, mine);
                other = following[mine]
            }
            push(me, mine)
        :: else -> break
        od
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
        for (k : 1 .. ELEMENTS) {
            following[k] = k - 1
        }
        initially(HEAD, ELEMENTS);
        for (k : 0 .. TAKERS - 1) {
            run taker(k)
        }
        run emptier(EMPTIER);
        k = 0
    }
    done == THREADS;
    k = ADDRESS(newest(HEAD));
    do
    :: k != 0 ->
        assert(!used[k]);
        used[k] = true;
        found++;
        k = following[k]
    :: else -> break
    od;
    assert(found == ELEMENTS)
}
