/* Releasing free pages of slabs and borrowing blocks, by any thread: src/heap/sweep.c,
 * borrow.c, mailbox.c; slab_try_use, slab_try_leave and slab_end_purge of slab.h; heap_refill of
 * refill.c; heap_leave_current and heap_retire_listed of slab_lists.c.
 *
 * There is one slab of two blocks, with a page each. The owner of the slab, thread 0, hands blocks
 * out, HANDS times, while the slab is current, puts it aside and takes it again, ASIDES times,
 * frees block 0, empties the mailbox, and retires the slab when it is empty; in its header it makes
 * another slab, REMAKES times. Where the owner must be notified first, it waits for that, except
 * for TRIMS times. Thread 1 frees block 1 whenever it gets it. Each of SWEEPERS threads releases
 * pages, TURNS times, of a slab that is aside. With BORROWS each of them may
 * instead borrow block 1 from the mailbox, hand it out, and free it.
 *
 * Asserted: no page is released while its block is in use; between being handed out and being
 * released a page has one user at a time; the page of a borrowed block counts for the limits; no
 * slab is retired while its pages are being released; the last slab is retired in the end, so none
 * is lost; a posted slab has a heap.
 *
 * Mutants: see the #ifdef at each.
 */
#ifndef HANDS
#define HANDS 2
#endif
#ifndef ASIDES
#define ASIDES 2
#endif
#ifndef TRIMS
#define TRIMS 1
#endif
#ifndef REMAKES
#define REMAKES 0
#endif
#ifndef SWEEPERS
#define SWEEPERS 1
#endif
#ifndef TURNS
#define TURNS 1
#endif
#ifndef WRITES
#define WRITES 12
#endif

#define USE 0
#define POST 1
#define MAIL 2 /* whether the slab is in the mailbox */
#define HAND 3 /* whether thread 1 has block 1 */
#define DRAINS 4 /* odd: 1 */
#define LINK(b) (5 + (b))
#define OWNER 7 /* 1: the slab is in its heap */
#define ATOMICS 8
#define PLAINS 3 /* the slab, and the blocks with their pages */
#define CELLS 0
#define PAGE(b) (1 + (b))
#define THREADS (2 + SWEEPERS)

#include "memory.pml"

/* The use word. */
#define IDLE 0
#define CURRENT 1
#define ASIDE 2
#define PURGED 3
#define EMPTIED 4

/* mail_state of the slab. */
#define OPEN 0
#define QUEUED 1
#define CLOSED 2

/* A link byte. */
#define LIVE 0
#define REMOTE 1
#define LISTED 2
#define BORROWED 3

#ifdef MUTANT_ASIDE_RELAXED
#define ASIDE_ORDER RELAXED
#else
#define ASIDE_ORDER RELEASE
#endif
#ifdef MUTANT_END_RELAXED
#define END_ORDER RELAXED
#elif defined MUTANT_END_ACQ_REL
#define END_ORDER ACQ_REL
#else
#define END_ORDER SEQ_CST
#endif
#ifdef MUTANT_RETURN_RELAXED
#define RETURN_ORDER RELAXED
#else
#define RETURN_ORDER SEQ_CST
#endif

#ifdef MUTANT_STAYS_ACQUIRE
#define STAYS_ORDER ACQUIRE
#else
#define STAYS_ORDER SEQ_CST
#endif

#ifdef MUTANT_DRAINS_RELAXED
#define DRAINS_ORDER RELAXED
#else
#define DRAINS_ORDER RELEASE
#endif

bool in_use[2];
bool listed[2]; /* in the owner's list */
bool given[2];  /* the page was purged while the slab was aside, and does not count for the limits */
bool current;
bool told; /* the owner wrote EMPTIED, and waits for the mail */
bool retired;
byte hands = HANDS;
byte asides = ASIDES;
byte trims = TRIMS;
byte remakes = REMAKES;
byte done;

/* remote_post */
inline post(me)
{
    load(me, POST, SEQ_CST, word);
    if
    :: word == OPEN ->
        compare_swap(me, POST, SEQ_CST, OPEN, QUEUED, word);
        if
        :: word == OPEN -> modify(me, MAIL, SEQ_CST, word, 1)
        :: else
        fi
    :: else
    fi;
    word = 0
}

/* heap_retire_listed: slab_try_leave, remote_move, and slab_make */
inline retire()
{
#ifdef MUTANT_LEAVE_BLINDLY
    overwrite(0, USE, RELEASE, IDLE);
    word = ASIDE;
#else
    compare_swap(0, USE, SEQ_CST, ASIDE, IDLE, word);
#endif
    if
    :: word == ASIDE ->
        compare_swap(0, POST, SEQ_CST, OPEN, CLOSED, word);
        if
        :: word == OPEN ->
            told = false;
            store(0, OWNER, RELAXED, 0);
            finish(0, 0);
            if
            :: remakes > 0 ->
                remakes--;
                store(0, LINK(0), RELAXED, LIVE);
                store(0, LINK(1), RELAXED, LIVE);
                store(0, POST, SEQ_CST, OPEN);
                store(0, OWNER, RELEASE, 1);
                atomic {
                    ended[0] = false;
                    listed[0] = true;
                    listed[1] = true;
                    given[0] = false;
                    given[1] = false;
                    hands = HANDS
                }
                store(0, USE, RELEASE, CURRENT);
                current = true
            :: else -> retired = true
            fi
        :: else ->
#ifndef MUTANT_STAYS_IDLE
            store(0, USE, RELEASE, ASIDE)
#endif
        fi
    :: word == PURGED ->
#ifdef MUTANT_TELLS_NOBODY
        told = true
#else
        compare_swap(0, USE, SEQ_CST, PURGED, EMPTIED, word);
        told = word != ASIDE
#endif
    :: else -> assert(word == EMPTIED); told = true
    fi;
    word = 0
}

/* heap_drain */
inline drain()
{
    store(0, DRAINS, RELAXED, 1);
    modify(0, MAIL, ACQUIRE, word, 0);
    if
    :: word == 1 ->
        store(0, POST, SEQ_CST, OPEN);
        for (b : 0 .. 1) {
            load(0, LINK(b), SEQ_CST, word);
            if
            :: word == REMOTE -> store(0, LINK(b), RELAXED, LISTED); listed[b] = true
            :: else
            fi
        }
        b = 0;
        told = false
    :: else
    fi;
    store(0, DRAINS, DRAINS_ORDER, 0);
    word = 0
}

/* The two blocks are handed out alternately; which one is free first is arbitrary. */
inline hand_out(n)
{
    store(0, LINK(n), RELAXED, LIVE);
    atomic {
        assert(!in_use[n]);
        exclusive(0, PAGE(n));
        listed[n] = false;
        in_use[n] = true;
        hands--
    }
    if
    :: n == 1 -> store(0, HAND, RELEASE, 1)
    :: else
    fi
}

proctype owner()
{
    short word;
    byte b;
    do
    :: current && hands > 0 && listed[0] -> hand_out(0)
    :: current && hands > 0 && listed[1] && newest(HAND) == 0 -> hand_out(1)
    :: in_use[0] -> in_use[0] = false; store(0, LINK(0), RELAXED, LISTED); listed[0] = true
    :: current && (asides > 0 || hands == 0) ->
        current = false;
        store(0, USE, ASIDE_ORDER, ASIDE)
    :: !current && !retired && asides > 0 && hands > 0 -> /* slab_try_current */
        asides--;
#ifdef MUTANT_TAKES_BLINDLY
        overwrite(0, USE, RELEASE, IDLE);
        word = ASIDE;
#elif defined MUTANT_CURRENT_AT_ONCE
        compare_swap(0, USE, SEQ_CST, ASIDE, CURRENT, word);
#else
        compare_swap(0, USE, SEQ_CST, ASIDE, IDLE, word);
#endif
        if
        :: word == ASIDE ->
            atomic { given[0] = false; given[1] = false };
            store(0, USE, RELEASE, CURRENT);
            current = true
        :: word == ASIDE -> store(0, USE, RELEASE, ASIDE) /* the hard limit refuses */
        :: else
        fi;
        word = 0
    :: !current && !retired && !told && listed[0] && listed[1] && newest(MAIL) == 0 &&
       newest(POST) == OPEN -> retire()
    :: !current && !retired && !told && listed[0] && listed[1] && newest(POST) == QUEUED &&
       newest(USE) == ASIDE && newest(MAIL) == 0 && asides > 0 -> asides--; retire()
    :: !current && !retired && told && trims > 0 && listed[0] && listed[1] && newest(MAIL) == 0 &&
       newest(POST) == OPEN -> trims--; retire()
    :: newest(MAIL) == 1 && !retired -> drain()
    :: retired && newest(HAND) == 0 -> break
    od;
    atomic { leave(0); done++ }
}

proctype freer()
{
    short word;
    do
    :: newest(HAND) == 1 ->
        modify(1, HAND, ACQUIRE, word, 0);
        in_use[1] = false;
        compare_swap(1, LINK(1), SEQ_CST, LIVE, REMOTE, word);
        assert(word == LIVE);
        post(1)
    :: newest(HAND) == 0 && retired -> break
    od;
    atomic { leave(1); done++ }
}

/* pages_purge_marked: the page of a block that another thread freed */
inline give(me, n)
{
    atomic { assert(!in_use[n]); shared(me, 0); shared(me, PAGE(n)) }
}

/* The page of a listed block. Late stores of its last user would only bring back a page without
 * content. */
inline give_listed(me, n)
{
    atomic { assert(!in_use[n]); shared(me, 0); unordered(me, PAGE(n)) }
}

/* slab_purge_aside of a slab in state PURGED */
inline purge_aside(me)
{
    for (b : 0 .. 1) {
        load(me, LINK(b), SEQ_CST, word);
        if
        :: word == REMOTE -> give(me, b); given[b] = true
        :: word == LISTED -> give_listed(me, b); given[b] = true
#ifdef MUTANT_BORROWED_IS_FREE
        :: word == BORROWED -> give(me, b)
#endif
        :: else
        fi
    }
    b = 0
}

/* slab_end_purge */
inline end_purge(me)
{
    modify(me, USE, END_ORDER, word, ASIDE)
}

/* A slab that was taken out of the mailbox: borrow_of_slab, borrow_of_aside, borrow_of_current,
 * borrow_take_slots, borrow_take, and the free of the block. */
inline borrow(me)
{
#ifdef MUTANT_BORROW_WHILE_DRAINED
    word = 0;
#else
    load(me, DRAINS, ACQUIRE, word);
#endif
    if
    :: word == 0 ->
#ifdef MUTANT_BORROW_UNPURGED
        word = ASIDE;
#else
        compare_swap(me, USE, SEQ_CST, ASIDE, PURGED, word);
#endif
        if
        :: word == ASIDE ->
            atomic { given[0] = false; given[1] = false };
            compare_swap(me, LINK(1), SEQ_CST, REMOTE, BORROWED, word);
            has = word == REMOTE;
#ifndef MUTANT_BORROW_UNPURGED
            end_purge(me)
#endif
        :: word == CURRENT -> /* borrow_of_current */
            compare_swap(me, LINK(1), SEQ_CST, REMOTE, BORROWED, word);
            has = word == REMOTE;
#ifndef MUTANT_STAYS_CURRENT
            load(me, USE, STAYS_ORDER, word);
            if
            :: has && word != CURRENT -> store(me, LINK(1), SEQ_CST, REMOTE); has = false
            :: else
            fi
#endif
        :: else
        fi
    :: else
    fi;
    modify(me, MAIL, RETURN_ORDER, word, 1);
    if
    :: has ->
        has = false;
        store(me, LINK(1), RELAXED, LIVE);
        atomic {
            assert(!in_use[1] && !listed[1] && !given[1]);
            exclusive(me, PAGE(1));
            in_use[1] = true
        }
        in_use[1] = false;
        compare_swap(me, LINK(1), SEQ_CST, LIVE, REMOTE, word);
        assert(word == LIVE);
        post(me)
    :: else
    fi
}

proctype sweeper(byte me)
{
    short word;
    byte b, turns = TURNS;
    bool has;
    do
#ifdef BORROWS
    :: turns > 0 ->
        turns--;
        modify(me, MAIL, ACQUIRE, word, 0);
        if
        :: word == 1 -> borrow(me)
        :: else
        fi;
        word = 0
#endif
    :: turns > 0 -> /* sweep_visit */
        turns--;
        compare_swap(me, USE, SEQ_CST, ASIDE, PURGED, word);
        if
        :: word == ASIDE ->
            purge_aside(me);
            end_purge(me);
            if
            :: word == EMPTIED ->
                load(me, OWNER, RELAXED, word);
#ifdef MUTANT_TELLS_A_HEAP_THAT_IS_GONE
                assert(word == 1);
                post(me)
#else
                if
                :: word == 1 -> post(me)
                :: else
                fi
#endif
            :: else
            fi
        :: else
        fi;
        word = 0
    :: break
    od;
    turns = 0;
    atomic { leave(me); done++ }
}

init {
    byte k;
    atomic {
        begin();
        initially(USE, CURRENT);
        initially(OWNER, 1);
        initially(LINK(0), LISTED);
        initially(LINK(1), LISTED);
        current = true;
        listed[0] = true;
        listed[1] = true;
        run owner();
        run freer();
        for (k : 2 .. THREADS - 1) {
            run sweeper(k)
        }
        k = 0
    }
    done == THREADS;
    assert(newest(MAIL) == 0 || retired)
}
