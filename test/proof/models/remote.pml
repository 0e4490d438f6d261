/* Remote free, mailbox, retiring slabs, adopting heaps and reclaiming slabs of ended threads:
 * src/heap/remote.c, mailbox.c, slab_lists.c, lifecycle.c.
 *
 * Heap 0 has SLABS slabs. Thread 0 holds the heap, frees blocks of its own, drains, hands block 0
 * out again up to REUSES times, makes a slab in a retired header up to REMAKES times, and ends.
 * Threads 1 to FREERS free the blocks, block b by thread 1 + b % FREERS, each at its own pace, also
 * after the heap became an orphan. With ADOPTERS a new thread tries to adopt the heap and then acts
 * like thread 0. With RECLAIM thread 1 has a heap of its own, heap 1, to which it reclaims slabs of
 * the orphan that it frees into; it drains its mailbox, and ends. When all have ended one more
 * thread, the collector, drains the orphans, as a tick does. All slabs wait in the list of their
 * bin, so each is given back as soon as the code considers that allowed.
 *
 * Asserted: after a slab was given back only its mail_state and its owner word are touched, and it
 * is not given back twice; no block is put into the list twice; the use of a block happens before
 * the block is handed out again, accesses to a slab happen before the slab is given back, and the
 * actions of a holder of the heap happen before those of the next holder; at the end every free was
 * collected, and every empty slab given back. With BOXES=2 each slab has a mailbox of its own. With
 * WIPES a thread that frees wipes the block before the mark becomes REMOTE, as full hardened builds
 * do: only that thread has the block then.
 *
 * Programs with an error: with DOUBLE one more thread, the wrong one, frees block 0 a second time.
 *   DOUBLE=1  after thread 1 freed it
 *   DOUBLE=2  after thread 1 freed it, and the wrong one is the holder
 *   DOUBLE=3  after the holder freed it
 *   DOUBLE=4  at any time, concurrently with thread 1
 *   DOUBLE=5  at any time, concurrently with the holder
 *
 * Asserted: the second free of an ordered pair is reported; of a concurrent pair, by threads that
 * are not the holder, exactly one is reported; and no block is ever in the list twice.
 *
 * Each mutant is explained at its #ifdef.
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
#ifndef RECLAIM
#define RECLAIM 0
#endif
#ifndef DOUBLE
#define DOUBLE 0
#endif
#ifndef OWN
#define OWN 1 /* blocks in slab 0 that the holder itself frees */
#endif
#ifndef WRITES
#define WRITES 14
#endif

#define BLOCKS (SLABS * PER_SLAB)
#define BY_HOLDER (DOUBLE == 3 || DOUBLE == 5) /* it makes the first free of block 0 */

#define HEAPS (1 + RECLAIM)

#define STATE(h) (h)
#define HAND HEAPS
#define FREED (HEAPS + 1) /* set once block 0 was freed */
#define MAILBOX(h, s) (HEAPS + 2 + (h) * BOXES + (s) % BOXES)
#define POST(s) (MAILBOX(HEAPS, 0) + (s))
#define OWNER(s) (POST(SLABS) + (s)) /* 1 + the heap */
#define LINK(b) (OWNER(SLABS) + (b))
#define ATOMICS LINK(BLOCKS)

#define PLAINS SLABS /* a slab: its header, and its line except for mail_state */

#define HEAP(h) (h) /* all data of the holder: lists, counts */
#define MAIL(s) (HEAPS + (s))
#define BLOCK(b) (MAIL(SLABS) + (b))
#define CELLS BLOCK(BLOCKS)

#if DOUBLE == 1 || DOUBLE >= 3
#define THREADS (3 + FREERS + ADOPTERS)
#else
#define THREADS (2 + FREERS + ADOPTERS)
#endif

#include "memory.pml"

#define ACTIVE 0
#define ORPHAN 1
#define BUSY 2

/* mail_state of the slab. */
#define CLOSED 0
#define OPEN(h) (1 + 2 * (h))
#define QUEUED(h) (2 + 2 * (h))
#define NAMED(post) (((post) - 1) / 2) /* the heap of a mail_state that is not CLOSED */

/* A link byte. */
#define LIVE 0
#define REMOTE 1
#define LISTED 2
#define TAKEN 3

/* The orders of the accesses, as in the code. */
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
#ifdef MUTANT_HOLD_RELAXED
#define HOLD_ORDER RELAXED
#define LET_GO_ORDER RELAXED
#else
#define HOLD_ORDER ACQ_REL
#define LET_GO_ORDER RELEASE
#endif
#ifdef MUTANT_MOVE_RELAXED
#define MOVE_ORDER RELAXED
#else
#define MOVE_ORDER SEQ_CST
#endif

byte live[SLABS]; /* blocks in use, including those freed remotely and not collected */
byte mail_next[SLABS];
bool is_free[BLOCKS];
byte own = OWN;
byte reuses = REUSES;
byte remakes = REMAKES;
bool first_due = BY_HOLDER; /* the holder's free of block 0 */
byte reports;               /* reports of the wrong free */
byte done;
byte holders_done;

/* remote_move and heap_retire_listed: the slab is empty */
inline retire(me, h, s)
{
    load(me, POST(s), SEQ_CST, word);
#ifdef MUTANT_RETIRE_QUEUED
    word = OPEN(h);
    store(me, POST(s), SEQ_CST, CLOSED);
#elif defined(MUTANT_RETIRE_BY_LOAD)
    if
    :: word == OPEN(h) -> overwrite(me, POST(s), SEQ_CST, CLOSED)
    :: else
    fi;
#else
    if
    :: word == OPEN(h) -> compare_swap(me, POST(s), SEQ_CST, OPEN(h), CLOSED, word)
    :: else
    fi;
#endif
    if
    :: word == OPEN(h) ->
        overwrite(me, OWNER(s), RELAXED, 0);
        finish(me, s);
        if
        :: remakes > 0 && (me) == 0 -> /* slab_make: one block, for thread 1 */
            atomic {
                alone(me, HEAP(h));
                alone(me, BLOCK((s) * PER_SLAB));
                ended[s] = false;
                live[s] = 1;
                is_free[(s) * PER_SLAB] = false
            }
            store(me, LINK((s) * PER_SLAB), RELAXED, LIVE);
            store(me, POST(s), OPEN_ORDER, OPEN(h));
            store(me, OWNER(s), RELEASE, 1 + (h));
#ifdef MUTANT_DRAIN_TAKEN /* refill_take_empty: the slab is not current yet; a drain retires it */
            assert(newest(MAILBOX(h, s)) != 1 + (s));
#endif
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

/* Adds the block to the list of free slots. */
inline put(me, h, b)
{
    atomic { /* the holder's own memory */
        assert(!is_free[b]);
        alone(me, HEAP(h));
        alone(me, BLOCK(b));
        is_free[b] = true;
        live[(b) / PER_SLAB]--
    }
}

/* slab_collect and mailbox_collect */
inline collect(me, h, s)
{
    for (i : 0 .. PER_SLAB - 1) {
        load(me, LINK((s) * PER_SLAB + i), COLLECT_ORDER, word);
        if
        :: word == REMOTE ->
            store(me, LINK((s) * PER_SLAB + i), RELAXED, LISTED);
            put(me, h, (s) * PER_SLAB + i)
        :: else
        fi
    }
    i = 0;
    word = 0;
    if
    :: live[s] == 0 && !ended[s] -> retire(me, h, s)
    :: else
    fi
}

/* mailbox_drain_pair of the slab's mailbox */
inline drain(me, h, first)
{
    if /* mailbox_drain; a later tick of the collector sees what an earlier one has missed */
    :: (me) == THREADS - 1 -> load_newest(me, MAILBOX(h, first), RELAXED, slab)
    :: else -> load(me, MAILBOX(h, first), RELAXED, slab)
    fi;
    if
    :: slab != 0 -> modify(me, MAILBOX(h, first), DRAIN_ORDER, slab, 0)
    :: else
    fi;
    do
    :: slab != 0 ->
        atomic { /* the holder's own memory */
            alone(me, HEAP(h));
            alone(me, MAIL(slab - 1));
            following = mail_next[slab - 1];
            shared(me, slab - 1)
        }
#ifdef MUTANT_OPEN_AFTER
        collect(me, h, slab - 1);
        if
        :: !ended[slab - 1] -> store(me, POST(slab - 1), OPEN_ORDER, OPEN(h))
        :: else
        fi;
#else
        store(me, POST(slab - 1), OPEN_ORDER, OPEN(h));
        collect(me, h, slab - 1);
#endif
        slab = following;
        following = 0
    :: else -> break
    od
}

/* heap_drain */
inline drain_all(me, h)
{
    drain(me, h, 0);
#if BOXES > 1
    drain(me, h, 1)
#else
    skip
#endif
}

/* ORPHAN to BUSY: heap_try_hold */
inline try_hold(me, h)
{
    load(me, STATE(h), RELAXED, word);
    held = false;
    if
    :: word == ORPHAN ->
        compare_swap(me, STATE(h), HOLD_ORDER, ORPHAN, BUSY, word);
        held = word == ORPHAN
    :: else
    fi;
    word = 0
}

/* heap_return */
inline let_go(me, h)
{
    atomic {
        alone(me, HEAP(h));
        overwrite(me, STATE(h), LET_GO_ORDER, ORPHAN)
    }
}

/* remote_post */
inline post(me, read, s)
{
    load(me, POST(s), POST_LOOK_ORDER, word);
    posted = false;
    do
#ifdef MUTANT_POST_TO_READ
    :: !posted && word == OPEN((read) - 1) ->
#else
    :: !posted && word != CLOSED && word == OPEN(NAMED(word)) ->
#endif
        to = NAMED(word);
        compare_swap(me, POST(s), SEQ_CST, OPEN(to), QUEUED(to), word);
        posted = word == OPEN(to)
    :: else -> break
    od;
    word = 0;
    if
    :: posted ->
        atomic {
            shared(me, s);
            alone(me, MAIL(s));
            mail_next[s] = newest(MAILBOX(to, s));
            modify(me, MAILBOX(to, s), PUSH_ORDER, slab, (s) + 1)
        }
        slab = 0;
        posted = false
    :: else
    fi;
    to = 0
}

/* heap_reclaim, heap_move_slab: to heap 1, from the heap whose number plus 1 the free has read */
inline reclaim(me, read, s)
{
    if
    :: read == 1 -> try_hold(me, 0)
    :: else
    fi;
    if
    :: held ->
        held = false;
        load(me, OWNER(s), RELAXED, word);
        if
        :: word == 1 ->
#ifdef MUTANT_MOVE_BLINDLY
            store(me, POST(s), SEQ_CST, OPEN(1));
            word = OPEN(0);
#else
            load(me, POST(s), SEQ_CST, word);
            if
            :: word == OPEN(0) -> compare_swap(me, POST(s), MOVE_ORDER, OPEN(0), OPEN(1), word)
            :: else -> word = CLOSED
            fi;
#endif
            if
            :: word == OPEN(0) ->
                atomic {
                    alone(me, HEAP(0));
                    alone(me, HEAP(1));
                    shared(me, s)
                }
                overwrite(me, OWNER(s), RELEASE, 2);
                atomic { /* the blocks without a link are now thread 1's, which frees them */
                    live[s] = live[s] - (s == 0 -> own : 0);
                    own = (s == 0 -> 0 : own)
                }
                moved = true
            :: else
            fi
        :: else
        fi;
        word = 0;
        let_go(me, 0);
        if
#ifndef MUTANT_MOVE_UNCOLLECTED /* the block that thread 1 has marked stays in use */
        :: moved -> collect(me, 1, s)
#endif
        :: else
        fi
    :: else
    fi
}

/* remote_free. `wrong`: it may be a second free; `word` has whether it was reported. */
inline free_remotely(me, b, wrong)
{
    load(me, OWNER((b) / PER_SLAB), RELAXED, read);
#ifdef MUTANT_POST_FIRST
    post(me, read, (b) / PER_SLAB);
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
    :: word == LIVE -> /* remote_mark_wiped */
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
#if RECLAIM
        if
        :: (me) == 1 -> reclaim(me, read, (b) / PER_SLAB)
        :: else
        fi;
#endif
#ifndef MUTANT_POST_FIRST
        if
        :: moved -> moved = false
        :: else -> post(me, read, (b) / PER_SLAB)
        fi;
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

/* free_own: a free of a block by the holder of its slab's heap */
inline free_own(me, h, b, wrong)
{
    load(me, LINK(b), RELAXED, word);
#ifdef MUTANT_OWNER_BLIND
    word = LIVE;
#endif
    if
    :: word == LIVE ->
        assert(!(wrong));
        overwrite(me, LINK(b), RELAXED, LISTED);
        put(me, h, b);
        if
        :: DOUBLE == 3 && (me) == 0 -> store(me, FREED, RELEASE, 1)
        :: else
        fi;
        if
        :: DOUBLE >= 1 && DOUBLE <= 2 && (me) == 1 && (b) == 0 -> store(me, FREED, RELEASE, 1)
        :: else
        fi;
        if
        :: live[(b) / PER_SLAB] == 0 && !ended[(b) / PER_SLAB] -> retire(me, h, (b) / PER_SLAB)
        :: else
        fi
    :: else ->
        assert(DOUBLE != 0);
        reports++
    fi;
    word = 0
}

/* A free by thread 1, of a block in a slab that it may have reclaimed. */
inline free_any(me, b)
{
    load(me, OWNER((b) / PER_SLAB), RELAXED, word);
    if
    :: RECLAIM && (me) == 1 && word == 2 -> word = 0; free_own(me, 1, b, false)
    :: else -> word = 0; free_remotely(me, b, DOUBLE == 4 && (b) == 0)
    fi
}

/* The work of a thread with the heap, and the thread's end. */
inline use_heap(me)
{
    do
    :: newest(MAILBOX(0, 0)) != 0 -> drain(me, 0, 0) /* heap_refill, free_attend */
#if BOXES > 1
    :: newest(MAILBOX(0, 1)) != 0 -> drain(me, 0, 1)
#endif
    :: own > 0 -> /* free_fast of a block that no other thread has */
        atomic {
            alone(me, HEAP(0));
            own--;
            live[0]--
        }
        if
        :: live[0] == 0 && !ended[0] -> retire(me, 0, 0)
        :: else
        fi
    :: reuses > 0 && is_free[0] && !ended[0] && newest(HAND) == 0 ->
        store(me, LINK(0), RELAXED, LIVE);
        atomic {
            alone(me, HEAP(0));
            alone(me, BLOCK(0));
            is_free[0] = false;
            live[0]++;
            reuses--;
            store(me, HAND, RELEASE, 1)
        }
    :: first_due -> first_due = false; free_own(me, 0, 0, false)
    :: DOUBLE == 2 && newest(FREED) == 1 && !is_free[0] ->
        load_newest(me, FREED, ACQUIRE, word);
        free_own(me, 0, 0, true);
        modify(me, FREED, RELAXED, word, 2);
        word = 0
    :: !first_due -> break
    od;
    drain_all(me, 0); /* heap_park */
    let_go(me, 0)
}

#define LOCALS short word, read; byte slab, following, i, to; bool held, moved, posted

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
    :: BY_HOLDER && me == 1 -> b = b + FREERS /* the holder frees block 0 */
    :: else
    fi;
    do
    :: b < BLOCKS -> free_any(me, b); b = b + FREERS
#if RECLAIM
    :: me == 1 && newest(MAILBOX(1, 0)) != 0 -> drain(me, 1, 0)
#endif
    :: b >= BLOCKS -> break
    od;
    b = 0;
    do
    :: me == 1 && newest(HAND) != 0 ->
        atomic {
            modify(me, HAND, ACQ_REL, word, 0);
            b = word - 1;
            word = 0
        }
        free_any(me, b)
    :: me != 1 || (newest(HAND) == 0 && reuses == 0 && remakes == 0) ||
       (newest(HAND) == 0 && holders_done == 1 + ADOPTERS) -> break
    od;
    b = 0;
    read = 0;
#if RECLAIM
    if
    :: me == 1 -> let_go(1, 1)
    :: else
    fi;
#endif
    atomic {
        leave(me);
        done++
    }
}

/* The second free of block 0. In an ordered pair, the block is not handed out again before it. */
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
    try_hold(me, 0); /* heap_enter */
    if
    :: held -> held = false; overwrite(me, STATE(0), RELAXED, ACTIVE); use_heap(me)
    :: else
    fi;
    atomic {
        leave(me);
        holders_done++;
        done++
    }
}

/* Collects the mailboxes of heaps whose threads have ended: lifecycle.c. */
proctype collector(byte me)
{
    LOCALS;
    byte h;
    done == THREADS - 1;
    do
    :: h < HEAPS ->
        do
        :: !held -> try_hold(me, h) /* at a later tick, since it has not seen the end yet */
        :: held -> break
        od;
        held = false;
        drain_all(me, h);
        let_go(me, h);
        h++
    :: else -> break
    od;
    h = 0;
    atomic {
        leave(me);
        done++
    }
}

init {
    byte k;
    atomic {
        begin();
        for (k : 0 .. SLABS - 1) {
            live[k] = PER_SLAB;
            initially(POST(k), OPEN(0));
            initially(OWNER(k), 1)
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
        :: DOUBLE == 1 || DOUBLE >= 3 -> run wrong(THREADS - 2)
        :: else
        fi;
        run collector(THREADS - 1);
        k = 0
    }
    done == THREADS;
    for (k : MAILBOX(0, 0) .. MAILBOX(HEAPS, 0) - 1) {
        assert(newest(k) == 0)
    }
    assert(DOUBLE != 4 || reports == 1);
    for (k : 0 .. BLOCKS - 1) {
        assert(is_free[k])
    }
    for (k : 0 .. SLABS - 1) {
        assert(live[k] == (k == 0 -> own : 0));
        assert(live[k] > 0 || ended[k])
    }
}
