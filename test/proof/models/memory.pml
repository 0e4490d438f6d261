/* Memory for the models: sequentially consistent, or as C11 has it.
 *
 * A model defines THREADS; ATOMICS, PLAINS and CELLS, the numbers of its atomic locations, of its
 * plain objects, and of those that only one thread may access at a time; WRITES, the most writes of
 * an atomic location; includes this file, and names every access with its order. -DC11 selects the weak memory; without it the last write is what is read.
 *
 * The weak memory is the operational form of C11's release and acquire with views (Kang, Hur, Lahav,
 * Vafeiadis, Dreyer, "A Promising Semantics for Relaxed-Memory Concurrency", POPL 2017, without
 * promises; https://sf.snu.ac.kr/promise-concurrency/): each location keeps its writes in
 * modification order, each thread the oldest write of each location that it may still read. A write
 * carries its thread's view when it is a release, a read takes the view over when it is an acquire,
 * and a read-modify-write passes the view of what it read on (release sequences). A sequentially
 * consistent read sees no write older than the last sequentially consistent one of its location.
 *   Writes are appended to modification order. That is exact, because a plain store is asserted to
 * come from a thread that knows all earlier writes of the location: else one of them could come
 * later in modification order. Not covered: load buffering (a relaxed load that sees a write which
 * depends on what the reader does afterwards), fences, consume.
 *
 * Plain objects have no value, only accesses: shared ones, which may run together, and exclusive
 * ones. An access that some conflicting one does not happen before is a data race, and asserted
 * against. An object that came to its end is never touched again.
 */
#define RELAXED 0
#define ACQUIRE 1
#define RELEASE 2
#define ACQ_REL 3
#define SEQ_CST 7

/* The clock of a plain object's exclusive accesses, those of its shared accesses by each thread, and
 * that of a cell. Of a clock only matters whether a view has its newest tick: one bit. */
#define OBJECT(number) ((number) * (1 + THREADS))
#define CELL(number) (OBJECT(PLAINS) + (number))

bool ended[PLAINS + 1]; /* plain objects that came to their end */

#ifdef C11

#define AT(l, n) ((l) * WRITES + (n))
#define GONE 255 /* what a thread knows that has ended */

short value[ATOMICS * WRITES];
byte view[ATOMICS * WRITES * ATOMICS]; /* a write's view: the oldest write left to see, by location */
int ticks[ATOMICS * WRITES];           /* and the clocks whose newest tick it has */
byte known[THREADS * ATOMICS];         /* a thread's view, likewise */
int known_ticks[THREADS];
byte last[ATOMICS];       /* the newest write */
byte sequential[ATOMICS]; /* the newest sequentially consistent one */

/* A choice under way: see m_choose. 0 otherwise. */
byte m_at;
byte m_low;

/* Arguments of the functions below; no part of a state, and of no meaning beyond one step. */
hidden byte m_me;
hidden byte m_place;
hidden byte m_order;
hidden byte m_passes;
hidden byte m_right;
hidden byte m_room; /* WRITES is enough: else the run says nothing */
hidden short m_value;

c_code {
static void m_raise(unsigned char *to, unsigned char from)
{
    if (*to < from)
        *to = from;
}

/* The oldest write that the thread may read. */
static int m_oldest(void)
{
    int low = now.known[m_me * ATOMICS + m_place];
    if (m_order == SEQ_CST && now.sequential[m_place] > low)
        low = now.sequential[m_place];
    return low;
}

/* Forgets the writes that no thread may read any more, so that states that differ in them only are
 * one. */
static void m_forget(void)
{
    for (int l = 0; l < ATOMICS; l++) {
        int dead = now.last[l];
        for (int t = 0; t < THREADS; t++)
            if (now.known[t * ATOMICS + l] < dead)
                dead = now.known[t * ATOMICS + l];
        if (dead == 0)
            continue;
        for (int n = 0; n < WRITES; n++) {
            int from = AT(l, n + dead);
            int to = AT(l, n);
            int there = n + dead <= now.last[l];
            now.value[to] = there ? now.value[from] : 0;
            now.ticks[to] = there ? now.ticks[from] : 0;
            for (int k = 0; k < ATOMICS; k++)
                now.view[to * ATOMICS + k] = there ? now.view[from * ATOMICS + k] : 0;
        }
        for (int at = 0; at < ATOMICS * WRITES; at++) {
            unsigned char *seen = &now.view[at * ATOMICS + l];
            *seen = *seen > dead ? *seen - dead : 0;
        }
        for (int t = 0; t < THREADS; t++)
            if (now.known[t * ATOMICS + l] != GONE)
                now.known[t * ATOMICS + l] -= dead;
        now.last[l] -= dead;
        now.sequential[l] = now.sequential[l] > dead ? now.sequential[l] - dead : 0;
    }
}

/* Reads write m_at. */
static void m_observe(void)
{
    int from = AT(m_place, now.m_at);
    m_raise(&now.known[m_me * ATOMICS + m_place], now.m_at);
    if (m_order & ACQUIRE) {
        for (int k = 0; k < ATOMICS; k++)
            m_raise(&now.known[m_me * ATOMICS + k], now.view[from * ATOMICS + k]);
        now.known_ticks[m_me] |= now.ticks[from];
    }
    m_value = now.value[from];
}

/* Writes m_value. m_passes: with the view of the write before, too. */
static void m_append(void)
{
    int before = AT(m_place, now.last[m_place]);
    if (now.last[m_place] + 1 == WRITES) {
        m_room = 0;
        return;
    }
    int to = AT(m_place, ++now.last[m_place]);
    now.known[m_me * ATOMICS + m_place] = now.last[m_place];
    now.value[to] = m_value;
    now.ticks[to] = m_passes ? now.ticks[before] : 0;
    for (int k = 0; k < ATOMICS; k++)
        now.view[to * ATOMICS + k] = m_passes ? now.view[before * ATOMICS + k] : 0;
    if (m_order & RELEASE) {
        for (int k = 0; k < ATOMICS; k++)
            m_raise(&now.view[to * ATOMICS + k], now.known[m_me * ATOMICS + k]);
        now.ticks[to] |= now.known_ticks[m_me];
    }
    now.view[to * ATOMICS + m_place] = now.last[m_place];
    if (m_order == SEQ_CST)
        now.sequential[m_place] = now.last[m_place];
}

/* An access of the plain clocks from m_place, `count` of them, that ticks the one `tick`. */
static void m_access(int count, int tick)
{
    int needed = ((1 << count) - 1) << m_place;
    m_right = (now.known_ticks[m_me] & needed) == needed;
    for (int at = 0; at < ATOMICS * WRITES; at++)
        now.ticks[at] &= ~(1 << tick);
    for (int t = 0; t < THREADS; t++)
        now.known_ticks[t] &= ~(1 << tick);
    now.known_ticks[m_me] |= 1 << tick;
}

/* The thread has ended: what it knew keeps no write. */
static void m_leave(void)
{
    for (int k = 0; k < ATOMICS; k++)
        now.known[m_me * ATOMICS + k] = GONE;
    now.known_ticks[m_me] = 0;
    m_forget();
}

static void m_initialise(void)
{
    for (int at = 0; at < ATOMICS * WRITES; at += WRITES)
        now.ticks[at] = (1 << CELL(CELLS)) - 1;
    for (int t = 0; t < THREADS; t++)
        now.known_ticks[t] = (1 << CELL(CELLS)) - 1;
}
};

#define newest(l) value[AT(l, last[l])]

inline begin() { c_code { m_initialise(); } }

inline initially(l, v) { value[AT(l, 0)] = v }

/* Any write that the thread may still read, into m_at. */
inline m_choose(me, l, order)
{
    d_step {
        m_me = me;
        m_place = l;
        m_order = order;
        m_at = last[l];
        c_code { now.m_low = m_oldest(); }
    }
    do
    :: m_at > m_low -> m_at--
    :: break
    od;
    skip /* no jump may lead into a d_step */
}

inline load(me, l, order, out)
{
    atomic {
        m_choose(me, l, order);
        d_step {
            m_me = me;
            m_place = l;
            m_order = order;
            c_code {
                m_observe();
                m_forget();
            }
            out = m_value;
            m_at = 0;
            m_low = 0
        }
    }
}

/* The last of a loop's loads, which ends when it sees the newest write. */
inline load_newest(me, l, order, out)
{
    d_step {
        m_me = me;
        m_place = l;
        m_order = order;
        m_at = last[l];
        c_code {
            m_observe();
            m_forget();
        }
        out = m_value;
        m_at = 0
    }
}

inline store(me, l, order, v)
{
    d_step {
        assert(known[(me) * ATOMICS + l] == last[l]);
        m_me = me;
        m_place = l;
        m_order = order;
        m_passes = false;
        m_value = v;
        m_room = true;
        c_code {
            m_append();
            m_forget();
        }
        assert(m_room)
    }
}

/* A store that others' read-modify-writes of the location race with, and nothing else. Where it
 * stands among them does not depend on what its thread knows; to come last is exact, because one that
 * would stand behind it reads it, and so is as if it were made later. */
inline overwrite(me, l, order, v)
{
    d_step {
        m_me = me;
        m_place = l;
        m_order = order;
        m_passes = false;
        m_value = v;
        m_room = true;
        c_code {
            m_append();
            m_forget();
        }
        assert(m_room)
    }
}

/* `change` is an expression of `old`. A loop of compare and swap until it succeeds is one of these:
 * its failures only order more. */
inline modify(me, l, order, old, change)
{
    d_step {
        m_me = me;
        m_place = l;
        m_order = order;
        m_passes = true;
        m_at = last[l];
        m_room = true;
        c_code { m_observe(); }
        m_at = 0;
        old = m_value;
        m_value = change;
        c_code {
            m_append();
            m_forget();
        }
        assert(m_room)
    }
}

/* One compare and swap, done when it finds what it expected; it may fail on an older write that the thread may still read. */
inline compare_swap(me, l, order, expected, v, found)
{
    atomic {
        m_choose(me, l, order);
        d_step {
            if
            :: value[AT(l, m_at)] == expected -> m_at = last[l]
            :: else
            fi;
            m_me = me;
            m_place = l;
            m_order = order;
            m_passes = true;
            m_room = true;
            c_code { m_observe(); }
            found = m_value;
            if
            :: found == expected -> m_value = v; c_code { m_append(); }
            :: else
            fi;
            c_code { m_forget(); }
            assert(m_room);
            m_at = 0;
            m_low = 0
        }
    }
}

inline shared(me, o)
{
    d_step {
        m_me = me;
        m_place = OBJECT(o);
        c_code { m_access(1, m_place + 1 + m_me); }
        assert(!ended[o] && m_right)
    }
}

inline exclusive(me, o)
{
    d_step {
        m_me = me;
        m_place = OBJECT(o);
        c_code { m_access(1 + THREADS, m_place); }
        assert(!ended[o] && m_right)
    }
}

inline alone(me, c)
{
    d_step {
        m_me = me;
        m_place = CELL(c);
        c_code { m_access(1, m_place); }
        assert(m_right)
    }
}

inline leave(me)
{
    d_step {
        m_me = me;
        c_code { m_leave(); }
    }
}

#else

short memory[ATOMICS];

#define newest(l) memory[l]

inline begin() { skip }
inline initially(l, v) { memory[l] = v }

inline load(me, l, order, out) { out = memory[l] }

inline load_newest(me, l, order, out) { out = memory[l] }

inline store(me, l, order, v) { memory[l] = v }

inline overwrite(me, l, order, v) { memory[l] = v }

inline modify(me, l, order, old, change)
{
    d_step {
        old = memory[l];
        memory[l] = change
    }
}

inline compare_swap(me, l, order, expected, v, found)
{
    d_step {
        found = memory[l];
        if
        :: found == expected -> memory[l] = v
        :: else
        fi
    }
}

inline shared(me, o) { assert(!ended[o]) }
inline exclusive(me, o) { assert(!ended[o]) }
inline alone(me, c) { skip }
inline leave(me) { skip }

#endif

/* The end of an object: an exclusive access, and none after it. */
inline finish(me, o)
{
    exclusive(me, o);
    ended[o] = true
}
