/* Packed slabs: src/heap/packed.c, packed_words.c and packed_take.c,
 * with the mailbox of remote.c and mailbox.c.
 *
 * Threads 0 to HEAPS - 1 each hold a heap, and share the headers of SLABS slabs, of WORDS words of
 * two blocks. At the start heap 0 has a current slab in header 0, FIRST of whose words are in use and
 * handed out: block b to the freer b % FREERS, or, for the last OWN of them, to the holder. A holder
 * hands out up to ALLOCATIONS more blocks, each to any freer or, up to KEEPS of them, to itself;
 * frees its own, drains, trims up to TRIMS times. The freers free what they are handed, in any order
 * and at their own pace, so that a header may be given back, and serve again, whomever's, before a
 * step (2) or (3).
 *
 * Asserted: no block is handed out while in use, nor a slab given back with one in use, while QUEUED,
 * or twice; what a thread did with a block happens before it is handed out again, and before its
 * slab is given back; mail and the holder's fields have one user at a time. At the end each block is
 * free or in use, not both; the summary has each word with free blocks; a slab that waits has only so
 * many words with free blocks as patience allows; one that is empty is given back, unless it is the
 * current one; all this but for slabs that stand in a mailbox, which are QUEUED.
 *
 * With CHECKED also claimed_at, claimed and the serial number are what other threads see of them, and
 * a free looks at them as packed_free does: asserted is that it takes no block for freed twice.
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
#ifndef FIRST
#define FIRST WORDS
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
#define PATIENCE 1 /* PACKED_PATIENCE_WORDS */
#endif
#ifndef WRITES
#define WRITES 12
#endif

#define THREADS (HEAPS + FREERS)
#define PER_SLAB (2 * WORDS)
#define BLOCKS (SLABS * PER_SLAB)
#define FULL 3 /* UINT64_MAX */

#define MAILBOX(k) (k)
#define PAGES HEAPS /* the page lock and what it guards: the headers not in use */
#define HAND(f) (PAGES + 1 + (f))
#ifdef CHECKED
#define LOCATIONS (6 + WORDS)
#else
#define LOCATIONS (3 + WORDS)
#endif
#define OWNER(s) (PAGES + 1 + FREERS + LOCATIONS * (s))
#define SUMMARY(s) (OWNER(s) + 1)
#define LIMIT(s) (OWNER(s) + 2)
#define WORD(s, w) (OWNER(s) + 3 + (w))
#define SERIAL(s) (OWNER(s) + 3 + WORDS) /* these three with CHECKED */
#define CLAIMED(s) (SERIAL(s) + 1)
#define CLAIMED_AT(s) (SERIAL(s) + 2) /* the word's number, and 1 */
#define ATOMICS OWNER(SLABS)

#define PLAINS 0

#define FIELDS(s) (s) /* the holder's: its place, the claimed bits, until */
#define MAIL(s) (SLABS + (s))
#define BLOCK(b) (MAIL(SLABS) + (b))
#define CELLS BLOCK(BLOCKS)

#include "memory.pml"

/* The owner word. */
#define QUEUED 1
#define HELD_BY(k) (2 + 2 * (k))

/* The orders of the accesses, as the code has them. */
#ifdef MUTANT_OR_RELAXED
#define OR_ORDER RELAXED
#else
#define OR_ORDER SEQ_CST
#endif
#ifdef MUTANT_CLAIM_RELAXED
#define CLAIM_ORDER RELAXED
#else
#define CLAIM_ORDER SEQ_CST
#endif
#ifdef MUTANT_TELL_ACQUIRE
#define TELL_ORDER ACQUIRE
#else
#define TELL_ORDER SEQ_CST
#endif
#ifdef MUTANT_LOOK_ACQUIRE
#define LOOK_ORDER ACQUIRE
#else
#define LOOK_ORDER SEQ_CST
#endif
#ifdef MUTANT_ALL_FREE_RELAXED
#define ALL_FREE_ORDER RELAXED
#else
#define ALL_FREE_ORDER SEQ_CST
#endif
#ifdef MUTANT_COUNT_ACQUIRE
#define COUNT_ORDER ACQUIRE
#else
#define COUNT_ORDER SEQ_CST
#endif
#ifdef MUTANT_OWN_ACQUIRE
#define OWN_ORDER ACQUIRE
#else
#define OWN_ORDER SEQ_CST
#endif
#ifdef MUTANT_PUSH_RELAXED
#define PUSH_ORDER RELAXED
#else
#define PUSH_ORDER SEQ_CST
#endif

#define NONE 255

/* A slab's place; its holder's. */
#define NOWHERE 0
#define CURRENT 1
#define LISTED 2
#define WAITING 3

byte place[SLABS];
byte claimed[SLABS];
byte claimed_word[SLABS]; /* claimed_at; NONE */
byte until[SLABS];
byte current[HEAPS];
byte mail_next[SLABS];
byte done;

bool in_use[BLOCKS];  /* of those that judge, not of the code */
bool kept[BLOCKS];    /* by the holder */
bool is_mail[SLABS];  /* marked QUEUED, and not popped */

#define BLOCK_OF(s, w, i) ((s) * PER_SLAB + (w) * 2 + (i))
#define SLAB_OF(b) ((b) / PER_SLAB)
#define WORD_OF(b) ((b) % PER_SLAB / 2)
#define BIT(b) (1 << ((b) % 2))

/* Of a summary, the words below the limit. */
#define KNOWN(summary, limit) ((summary) & ((1 << (limit)) - 1))
#define COUNT(bits) (((bits) & 1) + ((bits) >> 1 & 1) + ((bits) >> 2 & 1))

/* retire. */
inline retire(me, s)
{
#if defined(MUTANT_RETIRE_STORE)
    load(me, OWNER(s), SEQ_CST, word);
    if
    :: word == HELD_BY(me) -> store(me, OWNER(s), SEQ_CST, 0)
    :: else
    fi;
#elif defined(MUTANT_RETIRE_QUEUED)
    modify(me, OWNER(s), SEQ_CST, word, 0);
    word = HELD_BY(me);
#else
    compare_swap(me, OWNER(s), SEQ_CST, HELD_BY(me), 0, word);
#endif
    if
    :: word == HELD_BY(me) ->
        atomic { /* bin_remove, pages_give_slab */
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

/* packed_attend. */
inline attend(me, s)
{
    if
    :: current[me] == (s) -> skip
    :: else ->
        load(me, SUMMARY(s), LOOK_ORDER, bits);
        bits = KNOWN(bits, newest(LIMIT(s)));
        if
        :: place[s] == WAITING && COUNT(bits) >= PATIENCE ->
            alone(me, FIELDS(s));
            place[s] = LISTED
        :: else
        fi;
        if
        :: place[s] == LISTED && COUNT(bits) == newest(LIMIT(s)) ->
            bits = FULL; /* packed_all_free */
#ifndef MUTANT_BELIEVE_SUMMARY
            w = 0;
            do
            :: w < newest(LIMIT(s)) && bits == FULL ->
                load(me, WORD(s, w), ALL_FREE_ORDER, bits);
                w++
            :: else -> break
            od;
            w = 0;
#endif
            if
            :: bits == FULL -> retire(me, s)
            :: else
            fi
        :: else
        fi;
        bits = 0
    fi
}

/* heap_drain. */
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
#ifdef MUTANT_CLEAR_AFTER
        attend(me, slab);
        atomic {
            modify(me, OWNER(slab), SEQ_CST, word, word - word % 2);
            is_mail[slab] = false
        }
#else
        atomic {
            modify(me, OWNER(slab), SEQ_CST, word, word - word % 2);
            is_mail[slab] = false
        }
        attend(me, slab);
#endif
        word = 0;
        slab = following;
        following = 0
    :: else -> break
    od
}

/* claim, of slab s. The bits are in `bits`; 0 when it failed. */
inline claim(me, s, w)
{
    claimed_word[s] = w;
#ifdef CHECKED
    word = newest(SERIAL(s));
    store(me, SERIAL(s), RELAXED, word + 1);
    store(me, CLAIMED_AT(s), RELEASE, w + 1);
#endif
#ifndef MUTANT_CLEAR_SUMMARY_LATE
    modify(me, SUMMARY(s), SEQ_CST, word, word & ~(1 << (w))); /* (b) */
#endif
    load(me, WORD(s, w), SEQ_CST, bits); /* (c) */
#ifdef CHECKED
    do
    :: store(me, CLAIMED(s), RELEASE, bits);
        seen = bits;
        if
        :: bits != 0 -> compare_swap(me, WORD(s, w), SEQ_CST, seen, 0, bits)
        :: else
        fi;
        if
        :: bits == seen -> break
        :: else
        fi
    od;
    seen = 0;
    alone(me, FIELDS(s));
    claimed[s] = bits;
    word = newest(SERIAL(s));
    store(me, SERIAL(s), RELEASE, word + 1);
#else
    if
    :: bits != 0 ->
        atomic {
            modify(me, WORD(s, w), CLAIM_ORDER, bits, 0);
            alone(me, FIELDS(s));
            claimed[s] = bits
        }
    :: else
    fi;
#endif
#ifdef MUTANT_CLEAR_SUMMARY_LATE
    modify(me, SUMMARY(s), SEQ_CST, word, word & ~(1 << (w)));
#endif
#ifndef NO_LOOK_AGAIN
    load(me, WORD(s, w), SEQ_CST, word); /* (d) */
    if
    :: word != 0 -> modify(me, SUMMARY(s), SEQ_CST, word, word | 1 << (w))
    :: else
    fi;
#endif
    word = 0
}

/* packed_unclaim. */
inline unclaim(me, s)
{
#if defined(CHECKED) && !defined(MUTANT_UNCLAIM_UNNOTICED)
    word = newest(SERIAL(s));
    store(me, SERIAL(s), RELAXED, word + 1);
#endif
    if
    :: claimed[s] != 0 ->
        w = claimed_word[s];
        modify(me, WORD(s, w), SEQ_CST, bits, bits | claimed[s]);
        modify(me, SUMMARY(s), SEQ_CST, bits, bits | 1 << w);
        w = 0;
        bits = 0
    :: else
    fi;
    alone(me, FIELDS(s));
    claimed[s] = 0;
    claimed_word[s] = NONE;
#ifdef CHECKED
    store(me, CLAIMED(s), RELEASE, 0);
    store(me, CLAIMED_AT(s), RELEASE, 0);
#ifndef MUTANT_UNCLAIM_UNNOTICED
    word = newest(SERIAL(s));
    store(me, SERIAL(s), RELEASE, word + 1);
#endif
#endif
    word = 0
}

/* packed_claim_next: of the current slab. */
inline claim_next(me)
{
    load(me, SUMMARY(current[me]), SEQ_CST, ready);
    ready = KNOWN(ready, newest(LIMIT(current[me])));
    bits = 0;
    w = 0;
    do
    :: ready != 0 && bits == 0 ->
        if
        :: ready & (1 << w) -> claim(me, current[me], w)
        :: else
        fi;
        ready = ready & ~(1 << w);
        w++
    :: else -> break
    od;
    ready = 0;
    w = newest(LIMIT(current[me]));
    if
    :: bits == 0 && w < WORDS ->
        store(me, WORD(current[me], w), RELAXED, FULL);
        store(me, LIMIT(current[me]), RELAXED, w + 1);
        claim(me, current[me], w)
    :: else
    fi;
    w = 0;
    bits = 0
}

/* make, of a header that the page layer has; current[me] is NONE when it has none. */
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
        overwrite(me, SUMMARY(i), RELAXED, 0);
        store(me, LIMIT(i), RELAXED, 0);
#ifdef CHECKED
        store(me, CLAIMED(i), RELAXED, 0);
        store(me, CLAIMED_AT(i), RELAXED, 0);
#endif
        atomic {
            store(me, OWNER(i), RELEASE, HELD_BY(me));
            alone(me, FIELDS(i));
            current[me] = i;
            place[i] = CURRENT
        }
    :: else
    fi;
    i = 0
}

/* packed_advance, with wait and refill. */
inline advance(me)
{
    do
    :: if
        :: current[me] != NONE -> claim_next(me)
        :: else
        fi;
        if
        :: current[me] != NONE && claimed[current[me]] == 0 -> /* wait */
            unclaim(me, current[me]);
            atomic {
                place[current[me]] = WAITING;
                until[current[me]] = PATIENCE;
#ifndef MUTANT_CURRENT_WHILE_DRAINED
                current[me] = NONE
#endif
            }
        :: current[me] != NONE && claimed[current[me]] != 0 -> break
        :: current[me] == NONE
        fi;
        load(me, MAILBOX(me), RELAXED, slab); /* refill */
        if
        :: slab != 0 -> drain(me)
        :: else
        fi;
        i = 0;
        do
        :: i < SLABS && !(place[i] == LISTED && newest(OWNER(i)) / 2 == HELD_BY(me) / 2) -> i++
        :: else -> break
        od;
        if
        :: i < SLABS ->
            alone(me, FIELDS(i));
            current[me] = i;
            place[i] = CURRENT;
            i = 0
        :: else -> i = 0; make(me)
        fi;
        if
        :: current[me] == NONE -> break /* memory is out */
        :: else
        fi
    od
}

/* packed_allocate, and what the caller does with the block. */
inline allocate(me)
{
    if
    :: current[me] == NONE || claimed[current[me]] == 0 -> advance(me)
    :: else
    fi;
    if
    :: current[me] != NONE ->
        atomic {
            alone(me, FIELDS(current[me]));
            i = (claimed[current[me]] & 1 -> 0 : 1);
            claimed[current[me]] = claimed[current[me]] & (claimed[current[me]] - 1);
#ifdef CHECKED
            store(me, CLAIMED(current[me]), RELAXED, claimed[current[me]]);
#endif
            b = BLOCK_OF(current[me], claimed_word[current[me]], i);
            i = 0;
            assert(!in_use[b]);
            in_use[b] = true;
            alone(me, BLOCK(b));
            if
            :: keeps > 0 -> keeps--; kept[b] = true
            :: modify(me, HAND(0), RELEASE, bits, bits | 1 << b)
            :: FREERS > 1 -> modify(me, HAND(FREERS - 1), RELEASE, bits, bits | 1 << b)
            fi;
            bits = 0;
            b = 0
        }
    :: else
    fi
}

/* packed_free of a block that the holder kept, with its part of tell. */
inline free_own(me)
{
    s = SLAB_OF(b);
    if
    :: claimed_word[s] == WORD_OF(b) ->
        atomic {
            alone(me, FIELDS(s));
            alone(me, BLOCK(b));
            in_use[b] = false;
            claimed[s] = claimed[s] | BIT(b)
#ifdef CHECKED
            ; store(me, CLAIMED(s), RELAXED, claimed[s])
#endif
        }
    :: else ->
        atomic {
            alone(me, BLOCK(b));
            in_use[b] = false;
            modify(me, WORD(s, WORD_OF(b)), OR_ORDER, bits, bits | BIT(b));
            assert(!(bits & BIT(b)))
        }
        if
        :: bits == 0 -> /* (2) */
            modify(me, SUMMARY(s), SEQ_CST, word, word | 1 << WORD_OF(b));
            word = 0;
            alone(me, FIELDS(s));
            if
            :: place[s] == WAITING -> until[s]--
            :: else
            fi;
#ifndef MUTANT_OWN_LOOKS_ONCE
            load(me, WORD(s, WORD_OF(b)), OWN_ORDER, bits);
            bits = (bits == FULL -> FULL : 0)
#endif
        :: else
        fi;
        if
#ifndef MUTANT_OWN_NO_ATTEND
        :: bits != 0 || (place[s] == WAITING && until[s] == 0) -> attend(me, s)
#endif
        :: else
        fi
    fi;
    bits = 0;
    s = 0;
    b = 0
}

/* packed_trim. */
inline trim(me)
{
    if
    :: current[me] != NONE ->
        unclaim(me, current[me]);
        place[current[me]] = LISTED;
        current[me] = NONE
    :: else
    fi;
    for (s : 0 .. SLABS - 1) {
        if
        :: place[s] == LISTED && newest(OWNER(s)) / 2 == HELD_BY(me) / 2 -> attend(me, s)
        :: else
        fi
    }
    s = 0
}

/* packed_bits_at, and what packed_free does before; `bits` stay. */
inline look_claimed(me, b)
{
    load(me, CLAIMED_AT(SLAB_OF(b)), RELAXED, word);
    if
    :: word == WORD_OF(b) + 1 -> load(me, CLAIMED(SLAB_OF(b)), RELAXED, word); word = word & BIT(b)
    :: else -> word = 0
    fi;
    do
    :: word != 0 ->
        load(me, SERIAL(SLAB_OF(b)), ACQUIRE, limit);
        load(me, WORD(SLAB_OF(b), WORD_OF(b)), ACQUIRE, word);
        expected = word & BIT(b);
        load(me, CLAIMED_AT(SLAB_OF(b)), ACQUIRE, word);
        expected = (word == WORD_OF(b) + 1 -> expected : 0);
        load(me, CLAIMED(SLAB_OF(b)), ACQUIRE, word);
        expected = expected & word;
        load(me, SERIAL(SLAB_OF(b)), RELAXED, word);
#ifdef MUTANT_NO_SERIAL
        word = limit - limit % 2;
        limit = word;
#endif
        if
        :: word == limit && word % 2 == 0 -> assert(expected == 0); word = 0 /* freed twice */
        :: word == limit && word % 2 == 1 -> newest(SERIAL(SLAB_OF(b))) != limit /* waits */
        :: else -> word = 1
        fi
    :: else -> break
    od;
    limit = 0;
    expected = 0;
    word = 0
}

/* packed_free of another heap's block, with its part of tell, and remote_post. */
inline free_remotely(me, b)
{
    load(me, OWNER(SLAB_OF(b)), RELAXED, heap); /* slab_heap */
    heap = heap - heap % 2;
#ifdef MUTANT_SUMMARY_FIRST
    modify(me, SUMMARY(SLAB_OF(b)), SEQ_CST, word, word | 1 << WORD_OF(b));
    word = 0;
#endif
    load(me, LIMIT(SLAB_OF(b)), RELAXED, most);
    atomic {
        assert(in_use[b] && heap != 0);
        in_use[b] = false;
        alone(me, BLOCK(b));
        modify(me, WORD(SLAB_OF(b), WORD_OF(b)), OR_ORDER, bits, bits | BIT(b)); /* (1) */
        assert(!(bits & BIT(b)))
    }
    told = bits == 0;
#ifdef CHECKED
    look_claimed(me, b);
#endif
    if
    :: bits == 0 ->
#if !defined(MUTANT_NO_SUMMARY) && !defined(MUTANT_SUMMARY_FIRST)
        modify(me, SUMMARY(SLAB_OF(b)), SEQ_CST, word, word | 1 << WORD_OF(b)); /* (2) */
#endif
        word = 0
    :: bits != 0 && (bits | BIT(b)) == FULL ->
#ifndef MUTANT_NO_LAST
        expected = most;
#ifdef MUTANT_LIMIT_TWICE
        load(me, LIMIT(SLAB_OF(b)), RELAXED, most);
#endif
        load(me, SUMMARY(SLAB_OF(b)), COUNT_ORDER, word);
        told = COUNT(KNOWN(word, most)) == expected;
        expected = 0;
        word = 0
#endif
    :: else
    fi;
    bits = 0;
    most = 0;
    if
    :: told -> /* (3) */
#if defined(MUTANT_POST_ANYWAY)
        atomic {
            modify(me, OWNER(SLAB_OF(b)), SEQ_CST, word, word | QUEUED);
            if
            :: word % 2 == 0 -> word = heap
            :: else -> word = 0
            fi;
            is_mail[SLAB_OF(b)] = true
        }
#else
        load(me, OWNER(SLAB_OF(b)), TELL_ORDER, word);
        if
        :: word == heap ->
            atomic {
                compare_swap(me, OWNER(SLAB_OF(b)), SEQ_CST, heap, heap + QUEUED, word);
                if
                :: word == heap -> is_mail[SLAB_OF(b)] = true
                :: else
                fi
            }
        :: else
        fi;
#endif
        if
        :: word == heap -> /* remote_post */
            atomic {
                alone(me, MAIL(SLAB_OF(b)));
                mail_next[SLAB_OF(b)] = newest(MAILBOX(heap / 2 - 1));
                modify(me, MAILBOX(heap / 2 - 1), PUSH_ORDER, word, SLAB_OF(b) + 1)
            }
        :: else
        fi;
        word = 0
    :: else
    fi;
    told = false;
    heap = 0
}

proctype holder(byte me)
{
    short bits, word;
    byte slab, following, ready, seen, w, i, s, b;
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
    :: trims > 0 -> trims--; trim(me)
    :: left == 0 -> break
    od;
    atomic {
        left = 0;
        trims = 0;
        keeps = 0;
        done++
    }
    done >= THREADS; /* holds what is left */
}

proctype freer(byte me)
{
    short bits, word, heap;
    byte hand, b, limit, most, expected;
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
        for (k : 0 .. SLABS - 1) {
            claimed_word[k] = NONE
        }
        for (k : 0 .. HEAPS - 1) {
            current[k] = NONE
        }
        current[0] = 0;
        place[0] = CURRENT;
        initially(OWNER(0), HELD_BY(0));
        initially(LIMIT(0), FIRST);
        initially(PAGES, (1 << SLABS) - 2);
        for (k : 0 .. 2 * FIRST - 1) {
            in_use[k] = true;
            if
            :: k >= 2 * FIRST - OWN -> kept[k] = true
            :: else ->
                initially(HAND(k % FREERS), newest(HAND(k % FREERS)) | 1 << k)
            fi
        }
        for (k : 0 .. HEAPS - 1) {
            run holder(k)
        }
        for (k : HEAPS .. THREADS - 1) {
            run freer(k)
        }
        k = 0
    }
    done == THREADS;
    for (k : 0 .. SLABS - 1) {
        assert(is_mail[k] == newest(OWNER(k)) % 2);
        if
        :: newest(OWNER(k)) != 0 ->
            r = 0;
            for (j : 0 .. WORDS - 1) {
                if
                :: j < newest(LIMIT(k)) && newest(WORD(k, j)) != 0 ->
                    assert(newest(SUMMARY(k)) & 1 << j);
                    r = r + 1 + (newest(WORD(k, j)) == FULL -> 8 : 0)
                :: else
                fi
            }
            assert(place[k] != WAITING || is_mail[k] || r % 8 <= 2 * (PATIENCE - 1));
            assert(place[k] == CURRENT || is_mail[k] || r / 8 < newest(LIMIT(k)));
            for (j : 0 .. PER_SLAB - 1) {
                if
                :: j / 2 < newest(LIMIT(k)) ->
                    r = (newest(WORD(k, j / 2)) & BIT(j) -> 1 : 0) +
                        (claimed_word[k] == j / 2 && (claimed[k] & BIT(j)) -> 1 : 0);
                    assert(r == (in_use[k * PER_SLAB + j] -> 0 : 1))
                :: else
                fi
            }
        :: else -> assert(newest(PAGES) & 1 << k)
        fi
    }
}
