/* Remote free, mailbox, retiring slabs and adopting heaps: src/heap/remote.c, slab.c, thread_heap.c,
 * heap_life.c.
 *
 * One heap with SLABS slabs of WORDS remote words. Thread 0 holds the heap, frees blocks of its own,
 * drains, hands block 0 out again up to REUSES times, and ends; threads 1 to FREERS free the blocks,
 * block b by thread 1 + b % FREERS, each at its own pace, also after the heap became an orphan; with
 * ADOPTERS a new thread tries to adopt it and does the same as thread 0. All slabs wait in the list
 * of their bin, so each is given back as soon as the code thinks that it may.
 *
 * Asserted: no slab is touched after it was given back, nor given back twice; what a thread did
 * with a block happens before the block is handed out again, what it did with a slab before the
 * slab is given back, what a holder did with the heap before what the next one does; at the end
 * every free was collected, and every empty slab given back.
 *
 * Mutants: see the #ifdef at each.
 */
#ifndef SLABS
#define SLABS 1
#endif
#ifndef PER_WORD
#define PER_WORD 2 /* blocks with a bit in the same word of a slab */
#endif
#ifndef PER_SLAB
#define PER_SLAB 3
#endif
#ifndef FREERS
#define FREERS 3
#endif
#ifndef REUSES
#define REUSES 0
#endif
#ifndef ADOPTERS
#define ADOPTERS 0
#endif
#ifndef OWN
#define OWN 1 /* blocks that the holder itself frees, in slab 0 */
#endif
#ifndef WRITES
#define WRITES 14
#endif

#define WORDS ((PER_SLAB + PER_WORD - 1) / PER_WORD)
#define BLOCKS (SLABS * PER_SLAB)
#define THREADS (1 + FREERS + ADOPTERS)

#define STATE 0
#define MAILBOX 1
#define HAND 2
#define OWNER(s) (3 + (1 + WORDS) * (s))
#define WORD(s, w) (OWNER(s) + 1 + (w))
#define ATOMICS OWNER(SLABS)

#define PLAINS SLABS /* a slab: its header and its remote line */

#define HEAP 0 /* all that is the holder's: lists, links, counts */
#define MAIL(s) (1 + (s))
#define BLOCK(b) (MAIL(SLABS) + (b))
#define CELLS BLOCK(BLOCKS)

#include "memory.pml"

#define ACTIVE 0
#define ORPHAN 1
#define BUSY 2

/* The owner word: QUEUED, and the count of posts less that of collected words, modulo COUNTS. */
#define QUEUED 1
#ifdef MUTANT_NARROW_COUNT
#define COUNTS 2
#endif
#ifndef COUNTS
#define COUNTS 64
#endif
#define WITH_POST(o) ((((o) / 2 + 1) % COUNTS) * 2 + QUEUED)
#define WITHOUT_WORDS(o, n) ((((o) / 2 + COUNTS - (n)) % COUNTS) * 2 + (o) % 2)

/* The orders of the accesses, as the code has them. */
#ifdef MUTANT_OR_RELAXED
#define OR_ORDER RELAXED
#else
#define OR_ORDER ACQ_REL
#endif
#ifdef MUTANT_EXCHANGE_RELAXED
#define EXCHANGE_ORDER RELAXED
#else
#define EXCHANGE_ORDER ACQUIRE
#endif
#ifdef MUTANT_POST_RELAXED
#define POST_ORDER RELAXED
#else
#define POST_ORDER ACQ_REL
#endif
#ifdef MUTANT_PUSH_RELAXED
#define PUSH_ORDER RELAXED
#define DRAIN_ORDER RELAXED
#else
#define PUSH_ORDER SEQ_CST
#define DRAIN_ORDER ACQUIRE
#endif
#ifdef MUTANT_ORPHAN_RELEASE
#define ORPHAN_ORDER RELEASE
#define LOOK_ORDER ACQUIRE
#else
#define ORPHAN_ORDER SEQ_CST
#define LOOK_ORDER SEQ_CST
#endif

byte live[SLABS];  /* blocks in use, those freed remotely and not collected among them */
byte mail_next[SLABS];
bool is_free[BLOCKS];
byte own = OWN;
byte reuses = REUSES;
byte done;
byte holders_done;

#define BIT(b) (1 << ((b) % PER_SLAB))
#define WORD_OF(b) WORD((b) / PER_SLAB, ((b) % PER_SLAB) / PER_WORD)

/* retire_listed: the slab is empty. */
inline retire(me, s)
{
    load(me, OWNER(s), ACQUIRE, word);
#if defined(MUTANT_NO_SETTLED)
    word = 0;
#elif defined(MUTANT_NO_COUNT)
    word = word % 2;
#elif defined(MUTANT_NO_QUEUED)
    word = word - word % 2;
#endif
    if
    :: word == 0 -> finish(me, s)
    :: else
    fi;
    word = 0
}

/* slab_collect and collect. */
inline collect(me, s)
{
    words = 0;
    for (w : 0 .. WORDS - 1) {
        load(me, WORD(s, w), RELAXED, bits);
        if
        :: bits != 0 ->
            modify(me, WORD(s, w), EXCHANGE_ORDER, bits, 0);
            words++;
            atomic { /* the holder's own memory */
                for (i : 0 .. PER_SLAB - 1) {
                    if
                    :: bits & (1 << i) ->
                        assert(!is_free[(s) * PER_SLAB + i]);
                        alone(me, BLOCK((s) * PER_SLAB + i));
                        is_free[(s) * PER_SLAB + i] = true;
                        live[s]--
                    :: else
                    fi
                }
                i = 0
            }
        :: else
        fi
    }
    w = 0;
    bits = 0;
    if
    :: words != 0 -> modify(me, OWNER(s), ACQ_REL, word, WITHOUT_WORDS(word, words))
    :: else
    fi;
    words = 0;
    word = 0;
    if
    :: live[s] == 0 -> retire(me, s)
    :: else
    fi
}

/* heap_drain. */
inline drain(me)
{
    modify(me, MAILBOX, DRAIN_ORDER, slab, 0);
    do
    :: slab != 0 ->
        atomic { /* the holder's own memory */
            alone(me, HEAP);
            alone(me, MAIL(slab - 1));
            following = mail_next[slab - 1];
            shared(me, slab - 1)
        }
#ifdef MUTANT_CLEAR_AFTER
        collect(me, slab - 1);
        if
        :: !ended[slab - 1] -> modify(me, OWNER(slab - 1), ACQ_REL, word, word - word % 2)
        :: else
        fi;
#else
        modify(me, OWNER(slab - 1), ACQ_REL, word, word - word % 2);
        collect(me, slab - 1);
#endif
        slab = following;
        following = 0
    :: else -> break
    od
}

/* Orphan to BUSY: try_hold. */
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

/* heap_return. */
inline give_heap(me)
{
    do
    :: drain(me);
        alone(me, HEAP);
        store(me, STATE, ORPHAN_ORDER, ORPHAN);
        held = false;
#ifndef MUTANT_NO_RECHECK
        load(me, MAILBOX, LOOK_ORDER, slab);
        if
        :: slab != 0 -> slab = 0; try_hold(me)
        :: else
        fi;
#endif
        if
        :: held -> held = false
        :: else -> break
        fi
    od
}

/* remote_free. */
inline free_remotely(me, b)
{
    atomic {
        alone(me, BLOCK(b));
        shared(me, (b) / PER_SLAB);
        modify(me, WORD_OF(b), OR_ORDER, bits, bits | BIT(b));
        assert(!(bits & BIT(b)))
    }
    if
    :: bits == 0 -> /* post */
        atomic {
            shared(me, (b) / PER_SLAB);
            modify(me, OWNER((b) / PER_SLAB), POST_ORDER, word, WITH_POST(word))
        }
        if
        :: word % 2 == 0 ->
            atomic {
                shared(me, (b) / PER_SLAB);
                alone(me, MAIL((b) / PER_SLAB));
                mail_next[(b) / PER_SLAB] = newest(MAILBOX);
                modify(me, MAILBOX, PUSH_ORDER, slab, (b) / PER_SLAB + 1)
            }
            slab = 0
        :: else
        fi;
        load(me, STATE, LOOK_ORDER, word);
        if
        :: word == ORPHAN -> /* heap_tend_orphan */
            try_hold(me);
            if
            :: held -> give_heap(me)
            :: else
            fi
        :: else
        fi;
        word = 0
    :: else
    fi;
    bits = 0
}

/* A thread's time with the heap, and its end. */
inline use_heap(me)
{
    do
    :: newest(MAILBOX) != 0 -> drain(me) /* heap_refill, free_tagged */
    :: own > 0 -> /* free_fast, or free_tagged */
        load(me, OWNER(0), RELAXED, word);
        if
        :: word != 0 -> drain(me)
        :: else
        fi;
        atomic {
            alone(me, HEAP);
            own--;
            live[0]--
        }
        if
        :: live[0] == 0 -> retire(me, 0)
        :: else
        fi;
        word = 0
    :: reuses > 0 && is_free[0] && !ended[0] && newest(HAND) == 0 ->
        atomic {
            alone(me, HEAP);
            alone(me, BLOCK(0));
            is_free[0] = false;
            live[0]++;
            reuses--;
            store(me, HAND, RELEASE, 1)
        }
    :: break
    od;
    drain(me); /* heap_trim */
    for (s : 0 .. SLABS - 1) {
        if
        :: live[s] == 0 && !ended[s] -> retire(me, s)
        :: else
        fi
    }
    s = 0;
    give_heap(me)
}

#define LOCALS short bits, word; byte slab, following, words, w, i, s; bool held

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
    do
    :: b < BLOCKS -> free_remotely(me, b); b = b + FREERS
    :: else -> break
    od;
    b = 0;
    do
    :: me == 1 && newest(HAND) != 0 ->
        atomic {
            modify(me, HAND, ACQ_REL, word, 0);
            word = 0
        }
        free_remotely(me, b)
    :: me != 1 || (newest(HAND) == 0 && (reuses == 0 || holders_done == 1 + ADOPTERS)) -> break
    od;
    atomic {
        leave(me);
        done++
    }
}

proctype adopter()
{
    LOCALS;
    try_hold(THREADS - 1); /* heap_enter */
    if
    :: held -> held = false; store(THREADS - 1, STATE, RELAXED, ACTIVE); use_heap(THREADS - 1)
    :: else
    fi;
    atomic {
        leave(THREADS - 1);
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
        :: ADOPTERS > 0 -> run adopter()
        :: else
        fi;
        k = 0
    }
    done == THREADS;
    assert(newest(STATE) == ORPHAN && newest(MAILBOX) == 0);
    for (k : 0 .. BLOCKS - 1) {
        assert(is_free[k])
    }
    for (k : 0 .. SLABS - 1) {
        assert(live[k] == (k == 0 -> own : 0));
        assert(live[k] > 0 || ended[k])
    }
}
