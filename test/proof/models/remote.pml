/* Remote free, mailbox, retiring slabs and adopting heaps: src/heap/remote.c, mailbox.c,
 * slab_lists.c, heap_life.c.
 *
 * One heap with SLABS slabs. Thread 0 holds the heap, frees blocks of its own, drains, hands block 0
 * out again up to REUSES times, makes a slab in a retired header up to REMAKES times, and ends;
 * threads 1 to FREERS free the blocks, block b by thread 1 + b % FREERS, each at its own pace, also
 * after the heap became an orphan; with ADOPTERS a new thread tries to adopt it and does the same as
 * thread 0. All slabs wait in the list of their bin, so each is given back as soon as the code thinks
 * that it may.
 *
 * Asserted: no slab is touched after it was given back but for its post word, nor given back twice;
 * no block is put into the list twice; what a thread did with a block happens before the block is
 * handed out again, what it did with a slab before the slab is given back, what a holder did with the
 * heap before what the next one does; at the end every free was collected, and every empty slab given
 * back. With BOXES=2 each slab has a mailbox of its own. With WIPES a thread that frees wipes the block
 * before the mark says REMOTE, as full hardened builds do: it has the block alone then.
 *
 * Wrong programs: with DOUBLE one more thread, the wrong one, frees block 0 a second time.
 *   DOUBLE=1  after thread 1 freed it
 *   DOUBLE=2  after thread 1 freed it, and the wrong one is the holder
 *   DOUBLE=3  after the holder freed it
 *   DOUBLE=4  at any time, beside thread 1
 *   DOUBLE=5  at any time, beside the holder
 * Asserted: of an ordered pair the second is reported; of a pair beside one another, by threads that
 * are not the holder, exactly one is; and always that no block is in the list twice.
 *
 * Mutants: see the #ifdef at each.
 */
#ifndef SLABS
#define SLABS 1
#endif
#ifndef PER_SLAB
#define PER_SLAB 2
#endif
#ifndef FREERS
#define FREERS 2
#endif
#ifndef BOXES
#define BOXES 1
#endif
#ifndef REUSES
#define REUSES 0
#endif
#ifndef REMAKES
#define REMAKES 0
#endif
#ifndef ADOPTERS
#define ADOPTERS 0
#endif
#ifndef DOUBLE
#define DOUBLE 0
#endif
#ifndef OWN
#define OWN 1 /* blocks that the holder itself frees, in slab 0 */
#endif
#ifndef WRITES
#define WRITES 14
#endif

#define BLOCKS (SLABS * PER_SLAB)
#define BY_HOLDER (DOUBLE == 3 || DOUBLE == 5) /* the first free of block 0 */

#define STATE 0
#define HAND 1
#define FREED 2 /* block 0, once */
#define MAILBOX(s) (3 + (s) % BOXES)
#define POST(s) (3 + BOXES + (s))
#define LINK(b) (POST(SLABS) + (b))
#define ATOMICS LINK(BLOCKS)

#define PLAINS SLABS /* a slab: its header, and its line but for the post word */

#define HEAP 0 /* all that is the holder's: lists, counts */
#define MAIL(s) (1 + (s))
#define BLOCK(b) (MAIL(SLABS) + (b))
#define CELLS BLOCK(BLOCKS)

#if DOUBLE == 1 || DOUBLE >= 3
#define THREADS (2 + FREERS + ADOPTERS)
#else
#define THREADS (1 + FREERS + ADOPTERS)
#endif

#include "memory.pml"

#define ACTIVE 0
#define ORPHAN 1
#define BUSY 2
#define POSTED 3

/* The post word. */
#define OPEN 0
#define QUEUED 1
#define CLOSED 2

/* A link byte. */
#define LIVE 0
#define REMOTE 1
#define LISTED 2
#define TAKEN 3

/* The orders of the accesses, as the code has them. */
#ifdef MUTANT_MARK_RELAXED
#define MARK_ORDER RELAXED
#else
#define MARK_ORDER SEQ_CST
#endif
#ifdef MUTANT_COLLECT_RELAXED
#define COLLECT_ORDER RELAXED
#else
#define COLLECT_ORDER SEQ_CST
#endif
#ifdef MUTANT_OPEN_RELEASE
#define OPEN_ORDER RELEASE
#else
#define OPEN_ORDER SEQ_CST
#endif
#ifdef MUTANT_LOOK_ACQUIRE
#define POST_LOOK_ORDER ACQUIRE
#else
#define POST_LOOK_ORDER SEQ_CST
#endif
#ifdef MUTANT_PUSH_RELAXED
#define PUSH_ORDER RELAXED
#define DRAIN_ORDER RELAXED
#else
#define PUSH_ORDER SEQ_CST
#define DRAIN_ORDER ACQUIRE
#endif
#ifdef MUTANT_END_RELEASE
#define END_ORDER RELEASE
#define LOOK_ORDER ACQUIRE
#else
#define END_ORDER SEQ_CST
#define LOOK_ORDER SEQ_CST
#endif
#ifdef MUTANT_TOLD_RELEASE
#define TOLD_ORDER RELEASE
#else
#define TOLD_ORDER SEQ_CST
#endif

byte live[SLABS]; /* blocks in use, those freed remotely and not collected among them */
byte mail_next[SLABS];
bool is_free[BLOCKS];
byte own = OWN;
byte reuses = REUSES;
byte remakes = REMAKES;
bool first_due = BY_HOLDER; /* the holder's free of block 0 */
byte reports;               /* of the wrong free */
byte done;
byte holders_done;

/* remote_close, and heap_retire_listed: the slab is empty. */
inline retire(me, s)
{
    load(me, POST(s), SEQ_CST, word);
#ifdef MUTANT_RETIRE_QUEUED
    word = OPEN;
    store(me, POST(s), SEQ_CST, CLOSED);
#elif defined(MUTANT_RETIRE_BY_LOAD)
    if
    :: word == OPEN -> overwrite(me, POST(s), SEQ_CST, CLOSED)
    :: else
    fi;
#else
    if
    :: word == OPEN -> compare_swap(me, POST(s), SEQ_CST, OPEN, CLOSED, word)
    :: else
    fi;
#endif
    if
    :: word == OPEN ->
        finish(me, s);
        if
        :: remakes > 0 && (me) == 0 -> /* slab_make: one block, for thread 1 */
            atomic {
                alone(me, HEAP);
                alone(me, BLOCK((s) * PER_SLAB));
                ended[s] = false;
                live[s] = 1;
                is_free[(s) * PER_SLAB] = false
            }
            store(me, LINK((s) * PER_SLAB), RELAXED, LIVE);
            store(me, POST(s), OPEN_ORDER, OPEN);
            atomic {
                store(me, HAND, RELEASE, 1 + (s) * PER_SLAB);
                remakes--
            }
        :: else
        fi
    :: else
    fi;
    word = 0
}

/* Into the list of free slots. */
inline put(me, b)
{
    atomic { /* the holder's own memory */
        assert(!is_free[b]);
        alone(me, HEAP);
        alone(me, BLOCK(b));
        is_free[b] = true;
        live[(b) / PER_SLAB]--
    }
}

/* slab_collect and collect. */
inline collect(me, s)
{
    for (i : 0 .. PER_SLAB - 1) {
        load(me, LINK((s) * PER_SLAB + i), COLLECT_ORDER, word);
        if
        :: word == REMOTE ->
            store(me, LINK((s) * PER_SLAB + i), RELAXED, LISTED);
            put(me, (s) * PER_SLAB + i)
        :: else
        fi
    }
    i = 0;
    word = 0;
    if
    :: live[s] == 0 && !ended[s] -> retire(me, s)
    :: else
    fi
}

/* heap_drain_mailbox, that of the slab. */
inline drain(me, first)
{
    load(me, MAILBOX(first), LOOK_ORDER, slab);
    if
    :: slab != 0 -> modify(me, MAILBOX(first), DRAIN_ORDER, slab, 0)
    :: else
    fi;
    do
    :: slab != 0 ->
        atomic { /* the holder's own memory */
            alone(me, HEAP);
            alone(me, MAIL(slab - 1));
            following = mail_next[slab - 1];
            shared(me, slab - 1)
        }
#ifdef MUTANT_OPEN_AFTER
        collect(me, slab - 1);
        if
        :: !ended[slab - 1] -> store(me, POST(slab - 1), OPEN_ORDER, OPEN)
        :: else
        fi;
#else
        store(me, POST(slab - 1), OPEN_ORDER, OPEN);
        collect(me, slab - 1);
#endif
        slab = following;
        following = 0
    :: else -> break
    od
}

/* heap_drain. */
inline drain_all(me)
{
    drain(me, 0);
#if BOXES > 1
    drain(me, 1)
#else
    skip
#endif
}

/* Orphan to BUSY: heap_try_hold. */
inline try_hold(me)
{
    load(me, STATE, RELAXED, word);
    held = false;
    if
    :: word == ORPHAN ->
        compare_swap(me, STATE, SEQ_CST, ORPHAN, BUSY, word);
        held = word == ORPHAN
    :: else
    fi;
    word = 0
}

/* let_go. */
inline let_go(me)
{
    do
    :: alone(me, HEAP);
        compare_swap(me, STATE, SEQ_CST, BUSY, ORPHAN, word);
        if
        :: word == BUSY -> break
        :: else
        fi;
        word = 0;
        store(me, STATE, TOLD_ORDER, BUSY);
#ifdef MUTANT_DRAIN_ONE
        drain(me, 0)
#else
        drain_all(me)
#endif
    od;
    word = 0
}

/* heap_tend_after_post. */
inline tend(me, s)
{
    load(me, STATE, LOOK_ORDER, word);
    do
    :: word == ORPHAN ->
        compare_swap(me, STATE, SEQ_CST, ORPHAN, BUSY, word);
        if
        :: word == ORPHAN -> word = 0; drain(me, s); let_go(me); break
        :: else
        fi
#ifndef MUTANT_UNTOLD
    :: word == BUSY ->
        compare_swap(me, STATE, SEQ_CST, BUSY, POSTED, word);
        if
        :: word == BUSY -> break
        :: else
        fi
    :: word == ACTIVE || word == POSTED -> break
#else
    :: word != ORPHAN -> break
#endif
    od;
    word = 0
}

/* remote_post. */
inline post(me, s)
{
    load(me, POST(s), POST_LOOK_ORDER, word);
    posted = false;
    if
    :: word == OPEN ->
        compare_swap(me, POST(s), SEQ_CST, OPEN, QUEUED, word);
        posted = word == OPEN
    :: else
    fi;
    word = 0;
    if
    :: posted ->
        atomic {
            shared(me, s);
            alone(me, MAIL(s));
            mail_next[s] = newest(MAILBOX(s));
            modify(me, MAILBOX(s), PUSH_ORDER, slab, (s) + 1)
        }
        slab = 0;
        posted = false;
        tend(me, s)
    :: else
    fi
}

/* remote_free. `wrong`: it may be a second one; whether it was reported is in `word`. */
inline free_remotely(me, b, wrong)
{
#ifdef MUTANT_POST_FIRST
    post(me, (b) / PER_SLAB);
#endif
#ifdef MUTANT_MARK_BY_STORE
    load(me, LINK(b), RELAXED, word);
    if
    :: word == LIVE -> overwrite(me, LINK(b), SEQ_CST, REMOTE)
    :: else
    fi;
#else
    atomic {
        if
        :: !(wrong) -> alone(me, BLOCK(b)); shared(me, (b) / PER_SLAB)
        :: else
        fi;
#if defined(WIPES) && !defined(MUTANT_WIPE_FIRST)
        compare_swap(me, LINK(b), ACQ_REL, LIVE, TAKEN, word)
    }
    if
    :: word == LIVE -> /* mark_wiped */
        alone(me, BLOCK(b));
        assert(!is_free[b]);
        compare_swap(me, LINK(b), MARK_ORDER, TAKEN, REMOTE, word);
        word = (word == TAKEN -> LIVE : REMOTE)
    :: else
    fi;
#else
#ifdef MUTANT_WIPE_FIRST
        alone(me, BLOCK(b));
        assert(!is_free[b])
    }
    atomic {
#endif
        compare_swap(me, LINK(b), MARK_ORDER, LIVE, REMOTE, word)
    }
#endif
#endif
    if
    :: word == LIVE ->
        word = 0;
#ifndef MUTANT_POST_FIRST
        post(me, (b) / PER_SLAB);
#endif
        if
        :: (b) == 0 && DOUBLE >= 1 && DOUBLE <= 2 && !(wrong) -> store(me, FREED, RELEASE, 1)
        :: else
        fi;
        word = 0
    :: else -> /* the process ends */
        assert(DOUBLE != 0 && (b) == 0);
        reports++;
        word = 1
    fi
}

/* A free of block 0 by the holder: free_own. */
inline free_own(me, wrong)
{
    load(me, LINK(0), RELAXED, word);
#ifdef MUTANT_OWNER_BLIND
    word = LIVE;
#endif
    if
    :: word == LIVE ->
        assert(!(wrong));
        overwrite(me, LINK(0), RELAXED, LISTED);
        put(me, 0);
        if
        :: DOUBLE == 3 -> store(me, FREED, RELEASE, 1)
        :: else
        fi;
        if
        :: live[0] == 0 && !ended[0] -> retire(me, 0)
        :: else
        fi
    :: else ->
        assert(DOUBLE != 0);
        reports++
    fi;
    word = 0
}

/* A thread's time with the heap, and its end. */
inline use_heap(me)
{
    do
    :: newest(MAILBOX(0)) != 0 -> drain(me, 0) /* heap_refill, free_attend */
#if BOXES > 1
    :: newest(MAILBOX(1)) != 0 -> drain(me, 1)
#endif
    :: own > 0 -> /* free_fast, of a block that is in no other thread's hands */
        atomic {
            alone(me, HEAP);
            own--;
            live[0]--
        }
        if
        :: live[0] == 0 && !ended[0] -> retire(me, 0)
        :: else
        fi
    :: reuses > 0 && is_free[0] && !ended[0] && newest(HAND) == 0 ->
        store(me, LINK(0), RELAXED, LIVE);
        atomic {
            alone(me, HEAP);
            alone(me, BLOCK(0));
            is_free[0] = false;
            live[0]++;
            reuses--;
            store(me, HAND, RELEASE, 1)
        }
    :: first_due -> first_due = false; free_own(me, false)
    :: DOUBLE == 2 && newest(FREED) == 1 && !is_free[0] ->
        load_newest(me, FREED, ACQUIRE, word);
        free_own(me, true);
        modify(me, FREED, RELAXED, word, 2);
        word = 0
    :: !first_due -> break
    od;
    store(me, STATE, END_ORDER, BUSY); /* leave */
    drain_all(me);                     /* heap_trim */
    for (s : 0 .. SLABS - 1) {
        if
        :: live[s] == 0 && !ended[s] -> retire(me, s)
        :: else
        fi
    }
    s = 0;
    let_go(me)
}

#define LOCALS short word; byte slab, following, i, s; bool held, posted

proctype holder()
{
    LOCALS;
    use_heap(0);
    atomic {
        leave(0);
        holders_done++;
        done++
    }
}

proctype freer(byte me)
{
    LOCALS;
    byte b = me - 1;
    if
    :: BY_HOLDER && me == 1 -> b = b + FREERS /* block 0 is the holder's to free */
    :: else
    fi;
    do
    :: b < BLOCKS -> free_remotely(me, b, DOUBLE == 4 && b == 0); b = b + FREERS
    :: else -> break
    od;
    b = 0;
    do
    :: me == 1 && newest(HAND) != 0 ->
        atomic {
            modify(me, HAND, ACQ_REL, word, 0);
            b = word - 1;
            word = 0
        }
        free_remotely(me, b, false)
    :: me != 1 || (newest(HAND) == 0 && reuses == 0 && remakes == 0) ||
       (newest(HAND) == 0 && holders_done == 1 + ADOPTERS) -> break
    od;
    b = 0;
    atomic {
        leave(me);
        done++
    }
}

/* The second free of block 0. Ordered, the block is not handed out again before it. */
proctype wrong(byte me)
{
    LOCALS;
    if
    :: DOUBLE == 1 || DOUBLE == 3 ->
        newest(FREED) == 1;
        load_newest(me, FREED, ACQUIRE, word);
        word = 0;
        free_remotely(me, 0, true);
        assert(word == 1)
    :: DOUBLE >= 4 -> free_remotely(me, 0, true)
    fi;
    word = 0;
    atomic {
        leave(me);
        done++
    }
}

proctype adopter(byte me)
{
    LOCALS;
    try_hold(me); /* heap_enter */
    if
    :: held -> held = false; overwrite(me, STATE, RELAXED, ACTIVE); use_heap(me)
    :: else
    fi;
    atomic {
        leave(me);
        holders_done++;
        done++
    }
}

init {
    byte k;
    atomic {
        begin();
        for (k : 0 .. SLABS - 1) {
            live[k] = PER_SLAB
        }
        live[0] = live[0] + OWN;
        run holder();
        for (k : 1 .. FREERS) {
            run freer(k)
        }
        if
        :: ADOPTERS > 0 -> run adopter(1 + FREERS)
        :: else
        fi;
        if
        :: DOUBLE == 1 || DOUBLE >= 3 -> run wrong(THREADS - 1)
        :: else
        fi;
        k = 0
    }
    done == THREADS;
    assert(newest(STATE) == ORPHAN && newest(MAILBOX(0)) == 0 && newest(MAILBOX(BOXES - 1)) == 0);
    assert(DOUBLE != 4 || reports == 1);
    for (k : 0 .. BLOCKS - 1) {
        assert(is_free[k])
    }
    for (k : 0 .. SLABS - 1) {
        assert(live[k] == (k == 0 -> own : 0));
        assert(live[k] > 0 || ended[k])
    }
}
