/* Packed slabs: src/heap/packed.c, and heap_recount_packed of slab_lists.c, with the mailbox of
 * remote.c and mailbox.c.
 *
 * Threads 0 to HEAPS - 1 each own a heap, and share the headers of SLABS slabs, of WORDS words of
 * two blocks. At the start heap 0 has a current slab in header 0, whose blocks are all handed out:
 * block b to the freer b % FREERS, or, for the last OWN of them, to the owner. An owner hands out
 * up to ALLOCATIONS more blocks, each to any freer or, up to KEEPS of them, to itself; it frees its
 * own blocks, drains, and puts its current slab aside up to TRIMS times. The freers free the blocks
 * that they get, in any order and at their own pace, so that a header may be given back, and serve
 * any heap again, before a post.
 *
 * Asserted: no block is handed out while in use, nor is a slab given back with a block in use,
 * while QUEUED, or twice; no block's bit is set before its free; `until` never falls below 0; the
 * use of a block happens before it is handed out again, and before its slab is given back; mail and
 * the owner's fields have one user at a time. At the end the bit of each block shows whether it is
 * in use; a slab that waits has fewer words with free blocks than patience requires; an empty slab
 * is given back, unless it is the current one. Slabs in a mailbox, which are QUEUED, are exempt
 * from these.
 *
 * Mutants: see the #ifdef at each.
 */
#ifndef HEAPS
#define HEAPS 1
#endif
#ifndef SLABS
#define SLABS 1
#endif
#ifndef WORDS
#define WORDS 2
#endif
#ifndef FREERS
#define FREERS 2
#endif
#ifndef OWN
#define OWN 0
#endif
#ifndef KEEPS
#define KEEPS 0
#endif
#ifndef ALLOCATIONS
#define ALLOCATIONS 1
#endif
#ifndef TRIMS
#define TRIMS 0
#endif
#ifndef PATIENCE
#define PATIENCE 1 /* slab_relist_after */
#endif
#ifndef WRITES
#define WRITES 12
#endif

#define THREADS (HEAPS + FREERS)
#define PER_SLAB (2 * WORDS)
#define BLOCKS (SLABS * PER_SLAB)
#define FULL 3 /* UINT64_MAX */

#define MAILBOX(k) (k)
#define PAGES HEAPS /* the page lock and the unused headers, which it guards */
#define HAND(f) (PAGES + 1 + (f))
#define POST(s) (PAGES + 1 + FREERS + (1 + WORDS) * (s))
#define WORD(s, w) (POST(s) + 1 + (w))
#define ATOMICS POST(SLABS)

#define PLAINS 0

#define FIELDS(s) (s) /* the owner's fields: place, until */
#define MAIL(s) (SLABS + (s))
#define BLOCK(b) (MAIL(SLABS) + (b))
#define CELLS BLOCK(BLOCKS)

#include "memory.pml"

/* mail_state of the slab. */
#define QUEUED 1
#define HELD_BY(k) (2 + 2 * (k))

/* The orders of the accesses, as in the code. */
#ifdef MUTANT_OR_RELAXED
#define OR_ORDER RELAXED
#else
#define OR_ORDER SEQ_CST
#endif
#ifdef MUTANT_TAKE_RELAXED
#define TAKE_ORDER RELAXED
#else
#define TAKE_ORDER SEQ_CST
#endif
#ifdef MUTANT_POST_ACQUIRE
#define POST_ORDER ACQUIRE
#else
#define POST_ORDER SEQ_CST
#endif
#ifdef MUTANT_COUNT_ACQUIRE
#define COUNT_ORDER ACQUIRE
#else
#define COUNT_ORDER SEQ_CST
#endif
#ifdef MUTANT_COUNT_RELAXED
#undef COUNT_ORDER
#define COUNT_ORDER RELAXED
#endif
#ifdef MUTANT_PUSH_RELAXED
#define PUSH_ORDER RELAXED
#else
#define PUSH_ORDER SEQ_CST
#endif

#define NONE 255

/* A slab's place; a field of its owner. */
#define NOWHERE 0
#define CURRENT 1
#define LISTED 2
#define WAITING 3

byte place[SLABS];
byte owner_of[SLABS]; /* the heap of the slab, by which the owner finds it in its lists */
byte until[SLABS];
byte current[HEAPS];
byte mail_next[SLABS];
byte done;

bool in_use[BLOCKS];  /* for the assertions, not part of the code */
bool kept[BLOCKS];    /* by the owner */
bool is_mail[SLABS];  /* marked QUEUED, and not popped */

#define SLAB_OF(b) ((b) / PER_SLAB)
#define WORD_OF(b) ((b) % PER_SLAB / 2)
#define BIT(b) (1 << ((b) % 2))

/* heap_retire_listed: remote_move, and the pages are given back */
inline retire(me, s)
{
#if defined(MUTANT_RETIRE_STORE)
    load(me, POST(s), SEQ_CST, word);
    if
    :: word == HELD_BY(me) -> store(me, POST(s), SEQ_CST, 0)
    :: else
    fi;
#elif defined(MUTANT_RETIRE_QUEUED)
    modify(me, POST(s), SEQ_CST, word, 0);
    word = HELD_BY(me);
#else
    compare_swap(me, POST(s), SEQ_CST, HELD_BY(me), 0, word);
#endif
    if
    :: word == HELD_BY(me) ->
        atomic {
            assert(!is_mail[s]);
            alone(me, FIELDS(s));
            place[s] = NOWHERE;
            for (i : 0 .. PER_SLAB - 1) {
                assert(!in_use[(s) * PER_SLAB + i]);
                alone(me, BLOCK((s) * PER_SLAB + i))
            }
            i = 0;
            modify(me, PAGES, ACQ_REL, word, word | 1 << (s));
            assert(!(word & 1 << (s)))
        }
    :: else
    fi;
    word = 0
}

/* slab_packed_used of slab s, in `count` */
inline count_used(me, s)
{
    count = 0;
    w = 0;
    do
    :: w < WORDS ->
        load(me, WORD(s, w), COUNT_ORDER, bits);
        count = count + (bits != FULL -> 1 : 0);
        w++
    :: else -> break
    od;
    w = 0;
    bits = 0
}

/* packed_ready of slab s, in `count` */
inline count_ready(me, s)
{
    count = 0;
    w = 0;
    do
    :: w < WORDS ->
        load(me, WORD(s, w), COUNT_ORDER, bits);
        count = count + (bits != 0 -> 1 : 0);
        w++
    :: else -> break
    od;
    w = 0;
    bits = 0
}

/* heap_recount_packed and heap_list_slab */
inline recount(me, s)
{
    alone(me, FIELDS(s));
    if
    :: place[s] == WAITING ->
        count_ready(me, s);
        if
        :: count < PATIENCE -> until[s] = PATIENCE - count
        :: else -> place[s] = LISTED
        fi
    :: else
    fi;
    if
    :: place[s] == LISTED ->
        count_used(me, s);
        until[s] = count;
        if
        :: until[s] == 0 -> retire(me, s)
        :: else
        fi
    :: else
    fi;
    count = 0
}

/* heap_put_aside */
inline put_aside(me)
{
    s = current[me];
#ifndef MUTANT_CURRENT_WHILE_DRAINED
    current[me] = NONE;
#endif
    place[s] = WAITING;
#if defined(MUTANT_NO_RECOUNT) || defined(MUTANT_CURRENT_WHILE_DRAINED)
    until[s] = PATIENCE;
#else
    recount(me, s);
#endif
    s = 0
}

/* mailbox_collect */
inline collect(me, s)
{
    if
    :: current[me] == (s)
    :: else -> recount(me, s)
    fi
}

/* heap_drain */
inline drain(me)
{
    modify(me, MAILBOX(me), ACQUIRE, slab, 0);
    do
    :: slab != 0 ->
        atomic {
            slab--;
            alone(me, MAIL(slab));
            following = mail_next[slab];
            mail_next[slab] = 0
        }
#ifdef MUTANT_OPEN_AFTER
        collect(me, slab);
#endif
        atomic {
            store(me, POST(slab), SEQ_CST, HELD_BY(me));
            is_mail[slab] = false
        }
#ifndef MUTANT_OPEN_AFTER
        collect(me, slab);
#endif
        slab = following;
        following = 0
    :: else -> break
    od
}

/* slab_make, in a header of the page layer; current[me] is NONE when it has none */
inline make(me)
{
    atomic {
        current[me] = NONE;
        modify(me, PAGES, ACQ_REL, word, word & (word - 1));
        i = 0;
        do
        :: i < SLABS && !(word & (1 << i)) -> i++
        :: else -> break
        od;
        word = 0
    }
    if
    :: i < SLABS ->
        for (w : 0 .. WORDS - 1) {
            overwrite(me, WORD(i, w), RELAXED, FULL)
        }
        w = 0;
        atomic {
            store(me, POST(i), SEQ_CST, HELD_BY(me));
            alone(me, FIELDS(i));
            current[me] = i;
            owner_of[i] = me;
            place[i] = CURRENT
        }
    :: else
    fi;
    i = 0
}

/* heap_refill */
inline refill(me)
{
    if
    :: current[me] != NONE -> put_aside(me)
    :: else
    fi;
    load(me, MAILBOX(me), RELAXED, slab);
    if
    :: slab != 0 -> drain(me)
    :: else
    fi;
    i = 0;
    do
    :: i < SLABS && !(place[i] == LISTED && owner_of[i] == me) -> i++
    :: else -> break
    od;
    if
    :: i < SLABS ->
        alone(me, FIELDS(i));
        current[me] = i;
        place[i] = CURRENT;
        i = 0
    :: else -> i = 0; make(me)
    fi
}

/* packed_take, and the caller's use of the block */
inline allocate(me)
{
    bits = 0;
    do
    :: w = 0;
       do
       :: current[me] != NONE && w < WORDS && bits == 0 ->
           load(me, WORD(current[me], w), RELAXED, bits);
           w = (bits == 0 -> w + 1 : w)
       :: else -> break
       od;
       if
       :: bits != 0 -> break
       :: else -> refill(me);
           if
           :: current[me] == NONE -> break /* out of memory */
           :: else
           fi
       fi
    od;
    if
    :: bits != 0 ->
        atomic {
            i = (bits & 1 -> 0 : 1);
            modify(me, WORD(current[me], w), TAKE_ORDER, word, word & ~(1 << i));
            b = current[me] * PER_SLAB + w * 2 + i;
            assert((word & (1 << i)) && !in_use[b]);
            in_use[b] = true;
            alone(me, BLOCK(b));
            i = 0;
            word = 0;
            if
            :: keeps > 0 -> keeps--; kept[b] = true
            :: modify(me, HAND(0), RELEASE, bits, bits | 1 << b)
            :: FREERS > 1 -> modify(me, HAND(FREERS - 1), RELEASE, bits, bits | 1 << b)
            fi;
            b = 0
        }
    :: else
    fi;
    bits = 0;
    w = 0
}

/* packed_free of a block that the owner kept, with packed_count_own */
inline free_own(me)
{
    s = SLAB_OF(b);
    atomic {
        alone(me, BLOCK(b));
        in_use[b] = false;
        modify(me, WORD(s, WORD_OF(b)), OR_ORDER, bits, bits | BIT(b));
        assert(!(bits & BIT(b)))
    }
    alone(me, FIELDS(s));
    if
    :: (bits == 0 && place[s] == WAITING) || (bits != 0 && place[s] == LISTED) ->
        assert(until[s] > 0);
        until[s]--;
        bits = 0;
        if
#ifndef MUTANT_OWN_NO_ATTEND
        :: until[s] == 0 -> recount(me, s)
#endif
        :: else
        fi
    :: else
    fi;
    bits = 0;
    s = 0;
    b = 0
}

/* packed_free of another heap's block, and remote_post */
inline free_remotely(me, b)
{
    atomic {
        assert(in_use[b]);
        in_use[b] = false;
        alone(me, BLOCK(b));
        modify(me, WORD(SLAB_OF(b), WORD_OF(b)), OR_ORDER, bits, bits | BIT(b)); /* (1) */
        assert(!(bits & BIT(b)))
    }
#ifdef MUTANT_NO_FIRST
    told = bits != 0;
#elif defined(MUTANT_NO_LAST)
    told = bits == 0;
#else
    told = bits == 0 || (bits | BIT(b)) == FULL;
#endif
    bits = 0;
    do
    :: told ->
        load(me, POST(SLAB_OF(b)), POST_ORDER, word); /* (2) */
        heap = word - word % 2;
        if
        :: heap == 0 || word % 2 == QUEUED -> told = false
        :: else ->
            atomic {
                compare_swap(me, POST(SLAB_OF(b)), SEQ_CST, heap, heap + QUEUED, word);
                if
                :: word == heap -> is_mail[SLAB_OF(b)] = true
                :: else
                fi
            }
            if
            :: word == heap ->
                atomic { /* (3) */
                    alone(me, MAIL(SLAB_OF(b)));
                    mail_next[SLAB_OF(b)] = newest(MAILBOX(heap / 2 - 1));
                    modify(me, MAILBOX(heap / 2 - 1), PUSH_ORDER, word, SLAB_OF(b) + 1)
                }
                told = false
            :: else
            fi
        fi;
        word = 0;
        heap = 0
    :: else -> break
    od
}

proctype owner(byte me)
{
    short bits, word;
    byte slab, following, count, w, i, s, b;
    byte left = ALLOCATIONS, trims = TRIMS, keeps = (me == 0 -> KEEPS : 0);
    do
    :: newest(MAILBOX(me)) != 0 -> drain(me)
    :: left > 0 -> left--; allocate(me)
    :: me == 0 && OWN + KEEPS > 0 ->
        atomic {
            b = 0;
            do
            :: b < BLOCKS && !kept[b] -> b++
            :: else -> break
            od;
            if
            :: b < BLOCKS -> kept[b] = false
            :: else -> b = 0; goto none
            fi
        }
        free_own(me);
none:   skip
    :: trims > 0 ->
        trims--;
        if
        :: current[me] != NONE -> put_aside(me)
        :: else
        fi
    :: left == 0 -> break
    od;
    atomic {
        left = 0;
        trims = 0;
        keeps = 0;
        done++
    }
    done >= THREADS; /* owns the remaining slabs */
}

proctype freer(byte me)
{
    short bits, word, heap;
    byte b;
    bool told;
    do
    :: newest(HAND(me - HEAPS)) != 0 ->
        atomic {
            b = 0;
            do
            :: b < BLOCKS && !(newest(HAND(me - HEAPS)) & 1 << b) -> b++
            :: newest(HAND(me - HEAPS)) > (2 << b) - 1 && (newest(HAND(me - HEAPS)) & 1 << b) -> b++
            :: newest(HAND(me - HEAPS)) & 1 << b -> break
            od;
            modify(me, HAND(me - HEAPS), ACQUIRE, word, word & ~(1 << b));
            word = 0
        }
        free_remotely(me, b);
        b = 0
    :: newest(HAND(me - HEAPS)) == 0 && done >= HEAPS -> break
    od;
    atomic {
        leave(me);
        done++
    }
}

init {
    byte k, j, r;
    atomic {
        begin();
        for (k : 0 .. HEAPS - 1) {
            current[k] = NONE
        }
        current[0] = 0;
        place[0] = CURRENT;
        initially(POST(0), HELD_BY(0));
        initially(PAGES, (1 << SLABS) - 2);
        for (k : 0 .. PER_SLAB - 1) {
            in_use[k] = true;
            if
            :: k >= PER_SLAB - OWN -> kept[k] = true
            :: else ->
                initially(HAND(k % FREERS), newest(HAND(k % FREERS)) | 1 << k)
            fi
        }
        for (k : 0 .. HEAPS - 1) {
            run owner(k)
        }
        for (k : HEAPS .. THREADS - 1) {
            run freer(k)
        }
        k = 0
    }
    done == THREADS;
    for (k : 0 .. SLABS - 1) {
        assert(is_mail[k] == newest(POST(k)) % 2);
        if
        :: newest(POST(k)) != 0 ->
            r = 0;
            for (j : 0 .. WORDS - 1) {
                r = r + (newest(WORD(k, j)) != 0 -> 1 : 0) + (newest(WORD(k, j)) == FULL -> 8 : 0)
            }
            assert(place[k] != WAITING || is_mail[k] || r % 8 < PATIENCE);
            assert(place[k] == CURRENT || is_mail[k] || r / 8 < WORDS);
            for (j : 0 .. PER_SLAB - 1) {
                assert((newest(WORD(k, j / 2)) & BIT(j) -> 1 : 0) ==
                       (in_use[k * PER_SLAB + j] -> 0 : 1))
            }
        :: else -> assert(newest(PAGES) & 1 << k)
        fi
    }
}
