/* Memory for the models: sequentially consistent, or with the semantics of C11.
 *
 * A model defines THREADS; ATOMICS, PLAINS and CELLS, the numbers of its atomic locations, of its
 * plain objects, and of those that only one thread may access at a time; and WRITES, the greatest
 * number of writes to an atomic location. It includes this file, and names every access with its
 * order. -DC11 selects the weak memory; without it a read returns the last write.
 *
 * The weak memory is the operational form of C11's release and acquire with views (Kang, Hur,
 * Lahav, Vafeiadis, Dreyer, "A Promising Semantics for Relaxed-Memory Concurrency", POPL 2017,
 * without promises; https://sf.snu.ac.kr/promise-concurrency/). Each location keeps its writes in
 * modification order, and each thread the oldest write of each location that it may still read. A
 * release write carries the view of its thread, an acquire read takes that view over, and a
 * read-modify-write passes on the view of the write that it read (release sequences). A
 * sequentially consistent read sees no write older than the last sequentially consistent one of its
 * location.
 *
 * Writes are appended to modification order. That is exact, because a plain store is asserted to be
 * from a thread that knows all earlier writes of the location: otherwise one of them could be later
 * in modification order. Not covered are load buffering (a relaxed load that sees a write which
 * depends on later actions of the reader), fences, and consume.
 *
 * Plain objects have no value, only accesses: shared ones, which may run together, and exclusive
 * ones. An access is a data race, and fails an assertion, unless every conflicting one happens
 * before it. An object that has ended is never touched again.
 */
#define RELAXED 0
#define ACQUIRE 1
#define RELEASE 2
#define ACQ_REL 3
#define SEQ_CST 7

/* The clock of a plain object's exclusive accesses, those of its shared accesses by each thread,
 * and that of a cell. A clock needs one bit: whether a view has its newest tick. */
#define OBJECT(number) ((number) * (1 + THREADS))
#define CELL(number) (OBJECT(PLAINS) + (number))

bool ended[PLAINS + 1]; /* plain objects that have ended */

#ifdef C11

#define AT(l, n) ((l) * WRITES + (n))
#define GONE 255 /* the knowledge of a thread that has ended */

short value[ATOMICS * WRITES];
/* the view of a write: the oldest write that it lets a reader see, by location */
byte view[ATOMICS * WRITES * ATOMICS];
int ticks[ATOMICS * WRITES];           /* and the clocks whose newest tick it has */
byte known[THREADS * ATOMICS];         /* the view of a thread, by location */
int known_ticks[THREADS];
byte last[ATOMICS];       /* the newest write */
byte sequential[ATOMICS]; /* the newest sequentially consistent write */

/* A choice in progress: see m_choose. Otherwise 0. */
byte m_at;
byte m_low;

/* Arguments of the functions below. The arguments are no part of a state and have no meaning beyond
 * one step. */
hidden byte m_me;
hidden byte m_place;
hidden byte m_order;
hidden byte m_passes;
hidden byte m_right;
hidden byte m_room; /* whether WRITES is enough: otherwise the run proves nothing */
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

/* Forgets the writes that no thread may read any more, so that states which differ only in them
 * become one. */
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

/* Writes m_value. m_passes: also with the view of the write before. */
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

/* An access that needs the `count` plain clocks from m_place on, and ticks the clock `tick`. */
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

/* The thread has ended: its view keeps no write alive. */
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

/* Chooses any write that the thread may still read, as m_at. */
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
    skip /* no jump may enter a d_step */
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

/* The last load of a loop, which ends when it sees the newest write. */
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

/* A store that only read-modify-writes of other threads race with. The position of the store among
 * them does not depend on the knowledge of its thread. The last position is exact: a
 * read-modify-write behind the store would read it, and is therefore equivalent to a later one. */
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

/* `change` is an expression of `old`. A loop of compare and swap until success is one such step:
 * its failures only add order. */
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

/* One compare and swap, which succeeds when it finds the expected value; it may fail on an older
 * write that the thread may still read. */
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

/* A shared access that later exclusive ones come after, but which may run together with earlier
 * ones. */
inline unordered(me, o)
{
    d_step {
        m_me = me;
        m_place = OBJECT(o);
        c_code { m_access(0, m_place + 1 + m_me); }
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
inline unordered(me, o) { skip }
inline alone(me, c) { skip }
inline leave(me) { skip }

#endif

/* The end of an object: an exclusive access, with none after it. */
inline finish(me, o)
{
    exclusive(me, o);
    ended[o] = true
}
