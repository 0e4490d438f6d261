/* The chunks of a ring: src/frame/ring.c; ring.h documents the protocol.
 *
 * The owner (thread 0) opens FRAMES frames, writes and seals each and hands it to a thread, frame f
 * to thread 1 + f % RELEASERS, or with SHARED to all of them as holders of one hold each. Between
 * frames it restarts its chunk when everything in it is released, or moves to another chunk, a
 * returned or a new one, at any time. At the end it closes the ring, with frames still out. With
 * SPILL the last frame continues in a second chunk. A chunk has WORDS words of BITS bits.
 *
 * Asserted: no thread touches a chunk, or the ring, after it was given back; the use of a frame
 * happens before the frame's memory is used again, or given back; at the end every chunk and the
 * ring were given back, once.
 */
#ifndef FRAMES
#define FRAMES 3
#endif
#ifndef RELEASERS
#define RELEASERS 2
#endif
#ifndef CHUNKS
#define CHUNKS 2
#endif
#ifndef WORDS
#define WORDS 2
#endif
#ifndef BITS
#define BITS 2
#endif
#ifndef WRITES
#define WRITES 10
#endif
#ifdef SHARED
#define HOLDS RELEASERS
#else
#define HOLDS 1
#endif

#define THREADS (1 + RELEASERS)
#define CAPACITY (WORDS * BITS)
#define NONE 255

#define RETURNED 0
#define REMAINING 1
#define HAND(t) (1 + (t)) /* t counts from 1 */
#ifdef SHARED
#define EXTRAS CAPACITY
#else
#define EXTRAS 0
#endif
#define UNFINISHED(c) (2 + RELEASERS + (1 + WORDS + EXTRAS) * (c))
#define WORD(c, w) (UNFINISHED(c) + 1 + (w))
#define EXTRA(c, index) (WORD(c, WORDS) + (index)) /* extra holds of a frame */
#define ATOMICS UNFINISHED(CHUNKS)

#define RING CHUNKS
#define PLAINS (1 + CHUNKS) /* a chunk: descriptor and memory */
#define CELLS 0

#include "memory.pml"

#ifdef MUTANT_CLEAR_RELAXED
#define CLEAR_ORDER RELAXED
#else
#define CLEAR_ORDER ACQ_REL
#endif
#ifdef MUTANT_COUNT_RELAXED
#define COUNT_ORDER RELAXED
#else
#define COUNT_ORDER ACQ_REL
#endif
#ifdef MUTANT_LOOK_RELAXED
#define LOOK_ORDER RELAXED
#else
#define LOOK_ORDER ACQUIRE
#endif
#ifdef MUTANT_RETURN_RELAXED
#define RETURN_ORDER RELAXED
#else
#define RETURN_ORDER ACQ_REL
#endif
#ifdef MUTANT_REMAINING_RELAXED
#define REMAINING_ORDER RELAXED
#else
#define REMAINING_ORDER ACQ_REL
#endif
#ifdef MUTANT_EXTRA_RELAXED
#define EXTRA_ORDER RELAXED
#else
#define EXTRA_ORDER ACQ_REL
#endif

#define CLOSED 99
#define ALL_BITS ((1 << BITS) - 1)

bool in_use[CHUNKS]; /* has memory: it was made, and not given back */
bool spare[CHUNKS];  /* owner */
byte next[CHUNKS];
byte spill_index[CHUNKS];
byte spill[CHUNKS];
byte out; /* owner: chunks that are not free */
byte done;

#define FULL(issued) ((issued) / BITS)
#define GIVEN(issued) ((1 << ((issued) % BITS)) - 1)

/* ring_chunk_free; a chunk is never made again, so that a late access is found */
inline free_chunk(me, c)
{
    d_step {
        assert(in_use[c]);
        in_use[c] = false
    }
    finish(me, c)
}

/* ring_count_remaining */
inline count_remaining(me, change)
{
    modify(me, REMAINING, REMAINING_ORDER, value_seen, value_seen + (change));
    if
    :: value_seen + (change) == 0 -> finish(me, RING)
    :: else
    fi;
    value_seen = 0
}

/* ring_chunk_return */
inline return_chunk(me, c)
{
    atomic {
        shared(me, RING);
        /* A push, unless the stack is closed: then it reads that, and writes nothing. */
        if
        :: newest(RETURNED) != CLOSED ->
            exclusive(me, c);
            next[c] = newest(RETURNED);
            modify(me, RETURNED, RETURN_ORDER, value_seen, (c) + 1);
            value_seen = 0
        :: else ->
            load_newest(me, RETURNED, RETURN_ORDER, value_seen);
            value_seen = 0;
            was_closed = true
        fi
    }
    if
    :: was_closed ->
        was_closed = false;
        free_chunk(me, c);
        shared(me, RING);
        count_remaining(me, -1)
    :: else
    fi
}

/* chunk_clear_frame: the last access of a release, unless it clears the word */
inline clear_frame(me, c, index)
{
    atomic {
        shared(me, c);
        modify(me, WORD(c, (index) / BITS), CLEAR_ORDER, value_seen,
               value_seen & ~(1 << ((index) % BITS)));
        assert(value_seen & (1 << ((index) % BITS)))
    }
    if
    :: value_seen == 1 << ((index) % BITS) ->
        atomic {
            shared(me, c);
            modify(me, UNFINISHED(c), COUNT_ORDER, value_seen, value_seen - 1)
        }
        if
        :: value_seen == 1 -> value_seen = 0; return_chunk(me, c)
        :: else
        fi
    :: else
    fi;
    value_seen = 0
}

/* cairn_ring_release */
inline release(me, c, index)
{
    shared(me, c); /* uses the frame and reads its descriptor */
    held = false;
#ifdef SHARED
    load(me, EXTRA(c, index), ACQUIRE, value_seen); /* ring_give_extra_hold */
    if
    :: value_seen > 0 ->
        atomic {
            if
            :: newest(EXTRA(c, index)) > 0 ->
                modify(me, EXTRA(c, index), EXTRA_ORDER, value_seen, value_seen - 1);
                held = true
            :: else -> modify(me, EXTRA(c, index), ACQUIRE, value_seen, value_seen)
            fi
        }
    :: else
    fi;
    value_seen = 0;
#endif
    if
    :: held -> held = false
    :: else ->
#ifdef SPILL
        if
        :: spill_index[c] == index ->
            second = spill[c];
#ifdef MUTANT_SPILL_LATE
            clear_frame(me, c, index);
            shared(me, c);
#else
            clear_frame(me, c, index);
#endif
            shared(me, second);
            clear_frame(me, second, 0);
            second = 0
        :: else -> clear_frame(me, c, index)
        fi
#else
        clear_frame(me, c, index)
#endif
    fi
}

proctype releaser(byte me)
{
    short value_seen, handed;
    byte second;
    bool held, was_closed;
    byte i;
    for (i : 0 .. FRAMES - 1) {
        if
        :: HOLDS > 1 || 1 + i % RELEASERS == me ->
            newest(HAND(me)) != 0;
            modify(me, HAND(me), ACQ_REL, handed, 0);
            handed--;
            release(me, handed / CAPACITY, handed % CAPACITY);
            handed = 0
        :: else
        fi
    }
    atomic {
        leave(me);
        done++
    }
}

/* chunk_keep */
inline keep(c)
{
    atomic {
        exclusive(0, c);
        spare[c] = true;
        out--
    }
}

/* chunk_restart */
inline restart(c, issued)
{
    atomic {
        exclusive(0, c);
        for (w : 0 .. WORDS - 1) {
            if
            :: w < ((issued) + BITS - 1) / BITS -> store(0, WORD(c, w), RELAXED, ALL_BITS)
            :: else
            fi
        }
        w = 0;
#ifdef MUTANT_NO_OWNER_COUNT
        store(0, UNFINISHED(c), RELAXED, WORDS);
#else
        store(0, UNFINISHED(c), RELAXED, WORDS + 1);
#endif
        spill_index[c] = NONE
    }
}

/* ring_collect, and the equivalent in ring_close */
inline collect(instead)
{
    modify(0, RETURNED, RETURN_ORDER, handed, instead);
    do
    :: handed != 0 ->
        atomic {
            exclusive(0, handed - 1);
            following = next[handed - 1]
        }
        keep(handed - 1);
        handed = following;
        following = 0
    :: else -> break
    od
}

/* chunk_take */
inline take(c)
{
    collect(0);
    atomic {
        for (w : 0 .. CHUNKS - 1) {
            if
            :: c == NONE && spare[w] -> c = w
            :: else
            fi
        }
        for (w : 0 .. CHUNKS - 1) {
            if
            :: c == NONE && !in_use[w] && !ended[w] -> c = w
            :: else
            fi
        }
        w = 0;
        if
        :: c != NONE ->
            spare[c] = false;
            in_use[c] = true;
            out++
        :: else
        fi
    }
    if
    :: c != NONE -> restart(c, CAPACITY)
    :: else
    fi
}

/* chunk_retire */
inline retire(c, issued)
{
    clear = 1 + WORDS - FULL(issued);
    if
    :: GIVEN(issued) != 0 ->
        atomic {
            shared(0, c);
            modify(0, WORD(c, FULL(issued)), ACQ_REL, value_seen, value_seen & GIVEN(issued))
        }
#ifdef MUTANT_RETIRE_UNSEEN
        clear--;
#else
        if
        :: (value_seen & GIVEN(issued)) != 0 -> clear--
        :: else
        fi;
#endif
        value_seen = 0
    :: else
    fi;
#ifdef MUTANT_NO_OWNER_COUNT
    clear--;
#endif
    atomic {
        shared(0, c);
        modify(0, UNFINISHED(c), ACQ_REL, value_seen, value_seen - clear);
    }
    if
    :: value_seen == clear && clear > 0 -> keep(c)
    :: else
    fi;
    clear = 0;
    value_seen = 0
}

/* ring_try_restart: chunk_is_clear */
inline try_restart()
{
    load(0, UNFINISHED(current), LOOK_ORDER, value_seen);
#ifdef MUTANT_LOOK_AT_BITS
    is_clear = true;
#else
    is_clear = value_seen == WORDS + 1 - FULL(issued);
#endif
    if
    :: is_clear && GIVEN(issued) != 0 ->
        load(0, WORD(current, FULL(issued)), LOOK_ORDER, value_seen);
        is_clear = (value_seen & GIVEN(issued)) == 0
    :: else
    fi;
    value_seen = 0;
    if
    :: is_clear -> is_clear = false; restart(current, issued); issued = 0
    :: else
    fi
}

proctype owner()
{
    short value_seen, handed;
    byte current = NONE;
    byte other = NONE;
    byte issued, w, clear, following, i, t;
    bool is_clear, stop;
    do
    :: i < FRAMES && !stop ->
        /* cairn_ring_open. */
        if
        :: current != NONE && issued > 0 -> try_restart()
        :: true
        fi;
        if
        :: current == NONE || issued == CAPACITY -> other = NONE; take(other)
        :: current != NONE && issued > 0 && issued < CAPACITY -> other = NONE; take(other)
        :: current != NONE && issued < CAPACITY
        fi;
        if
        :: other != NONE -> /* ring_prepare */
            if
            :: current != NONE -> retire(current, issued)
            :: else
            fi;
            current = other;
            other = NONE;
            issued = 0
        :: else
        fi;
        if
        :: current == NONE || issued == CAPACITY -> stop = true /* out of memory */
        :: else ->
            issued++;
            shared(0, current); /* the frame's content: shared with other frames of the chunk */
            handed = current * CAPACITY + issued;
#ifdef SPILL
            if
            :: i == FRAMES - 1 -> take(other)
            :: else
            fi;
            if
            :: other != NONE ->
                atomic {
                    shared(0, current);
                    spill[current] = other;
                    spill_index[current] = issued - 1;
                    handed = current * CAPACITY + issued
                }
                retire(current, issued); /* ring_retire_passed, at the seal */
                current = other;
                other = NONE;
                issued = 1
            :: else
            fi;
            handed = (handed == 0 -> current * CAPACITY + issued : handed);
#endif
            /* cairn_ring_seal, retain, and the hand-over. */
#ifdef SHARED
            modify(0, EXTRA((handed - 1) / CAPACITY, (handed - 1) % CAPACITY), RELAXED, value_seen,
                   value_seen + HOLDS - 1);
            value_seen = 0;
#endif
            for (t : 1 .. RELEASERS) {
                if
                :: HOLDS > 1 || 1 + i % RELEASERS == t ->
                    newest(HAND(t)) == 0;
                    modify(0, HAND(t), ACQ_REL, value_seen, handed);
                    value_seen = 0
                :: else
                fi
            }
            t = 0;
            handed = 0;
            i++
        fi
    :: else -> break
    od;
    /* Releases do not wait for frames that could not be opened. */
    do
    :: i < FRAMES -> i++; stop = true
    :: else -> break
    od;
    assert(!stop);
    /* cairn_ring_close, ring_close. */
    if
    :: current != NONE -> retire(current, issued); current = NONE
    :: else
    fi;
    issued = 0;
    collect(0);
    collect(CLOSED);
    for (w : 0 .. CHUNKS - 1) { /* ring_give_back */
        if
        :: spare[w] -> spare[w] = false; free_chunk(0, w)
        :: else
        fi
    }
    w = 0;
    shared(0, RING);
#ifdef MUTANT_NO_REMAINING
    finish(0, RING);
#else
    count_remaining(0, out);
#endif
    atomic {
        leave(0);
        done++
    }
}

init {
    byte k;
    atomic {
        begin();
        for (k : 0 .. CHUNKS - 1) {
            spill_index[k] = NONE
        }
        run owner();
        for (k : 1 .. RELEASERS) {
            run releaser(k)
        }
        k = 0
    }
    done == THREADS;
    assert(ended[RING]);
    for (k : 0 .. CHUNKS - 1) {
        assert(!in_use[k])
    }
}
