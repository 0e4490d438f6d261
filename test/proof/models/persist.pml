/* The persistent heap: commit, checkpoint and recovery, with power losses and kills at any moment:
 * src/region/persist_commit.c, where the steps C1 to K4 stand, persist_log.c, persist_flush.c,
 * persist_checkpoint.c, persist_header.c, persist_recover.c, persist_open.c.
 *
 * A heap of PAGES pages, a log of two segments with room for ROOM records each, one of which is full
 * with LIMIT. The program writes pages and captures commits of any of them, CAPTURES times in all;
 * beside it one thread flushes the log and one moves the sealed segment to the file; up to CRASHES
 * times a crash comes, at any step, also of recovery. Up to FAILURES times a write or an fdatasync fails,
 * the latter within an open, too.
 *
 * The disk: each cell (a record of the log, a page, a header) has what the kernel holds, `now`, and
 * what the disk holds. What was written and not yet flushed may have reached the disk or not, in any
 * order, or in part. A power loss leaves the disk's; a kill what the kernel holds, and it goes on to
 * write it some time. A failed fdatasync leaves on the disk what it likes, and the kernel takes
 * all of it for written.
 *
 * Asserted: what recovery makes of the disk is, page for page, the state of one commit, not
 * before the last one acknowledged, nor after the last one begun; what an open found is there from then
 * on, and nothing of what was lost before; one of the twin headers is always sound; a log that begins
 * after the file's state is never found. The state is looked at before recovery writes, for what it
 * writes is this.
 *
 * A page's value is the capture that logged it, or is to; a commit's number is given out again when
 * the commit failed or was lost. One process, whose choices are the threads' steps: what a thread is
 * at stands in its variable.
 *
 * Mutants: see the #ifdef at each.
 */
#ifndef PAGES
#define PAGES 2
#endif
#ifndef ROOM
#define ROOM 3
#endif
#ifndef LIMIT
#define LIMIT 1
#endif
#ifndef CAPTURES
#define CAPTURES 3
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef FAILURES
#define FAILURES 0
#endif

#define ALL ((1 << PAGES) - 1)

/* The cells; the log's files, and that of the heap. */
#define RECORD(s, i) ((s) * ROOM + (i))
#define PAGE(p) (2 * ROOM + (p))
#define HEADER(k) (PAGE(PAGES) + (k))
#define CELLS HEADER(2)
#define HEAP_FROM PAGE(0)

/* A record: capture, page, whether it is the commit's last. A header: turn, checkpoint, session. */
#define RECORD_OF(c, p, last) ((c) * 8 + (p) * 2 + (last))
#define CAPTURE_OF(r) ((r) / 8 % 16)
#define PAGE_OF(r) ((r) / 2 % 4)
#define IS_LAST(r) ((r) % 2)
#define HEADER_OF(t, c, s) ((t) * 256 + (c) * 16 + (s))
#define TURN_OF(h) ((h) / 256)
#define CHECKPOINT_OF(h) ((h) / 16 % 16)
#define SESSION_OF(h) ((h) % 16)
#define GARBAGE 120 /* in part: no checksum fits; a header with turn 0 */

short now[CELLS];
short disk[CELLS];
bool dirty[CELLS];

/* Of the captures: what the log says of them. */
byte number_of[CAPTURES + 1];
byte session_of[CAPTURES + 1];
byte captures;

/* Of those that judge: each commit's pages, what a crash has to leave. */
typedef Pages { byte at[PAGES] };
Pages state_of[CAPTURES + 1];
byte acknowledged;
byte begun;
byte crashes;
byte failures;
byte lives;

/* The heap while it is open. */
#define FREE 0
#define IS_CURRENT 1
#define SEALED 2
typedef Segment {
    byte state;
    byte length;
    byte last;
    byte latest[PAGES]; /* 1 + the record of its latest image; 0: none */
};
Segment segments[2];
bit current;
byte written;
byte durable;
bool failed; /* heap->error */
byte memory[PAGES];
byte written_pages; /* bitmaps */
byte turn;
byte checkpoint;
byte session;

/* What each thread is at. */
byte to_log;     /* the capture: pages of it that are not in the log yet */
byte logged;     /* records of it that are */
bool flushing;
byte covered;
byte covered_length;
#define IDLE 0
#define MOVE 1
#define FLUSH_DATA 2
#define WRITE_HEADER 3
#define FLUSH_HEADER 4
byte checkpointer;
byte to_move;

/* Opening: the steps in their order; OPEN: it is. */
#define SETTLE_HEADERS 0
#define READ_HEADERS 1
#define SETTLE_LOG 2
#define JUDGE 3
#define REPLAY 4
#define FLUSH_REPLAYED 5
#define RECOVERED_HEADER 6
#define FLUSH_RECOVERED 7
#define ANNOUNCE 8
#define FLUSH_ANNOUNCED 9
#define OPEN 10
byte opening;
byte reached;        /* the commit that recovery found */
byte image[PAGES];   /* what it replays */
byte to_replay;

byte i, p, k, s;
short r;

#ifdef MUTANT_NO_CHECKSUM
#define PARTLY(r) (c < HEAP_FROM -> 256 + (r) : GARBAGE) /* the head as it became, the image not */
#else
#define PARTLY(r) GARBAGE
#endif

inline reach(c) /* in part or whole, or not */
{
    if
    :: disk[c] = now[c]
    :: disk[c] = PARTLY(now[c])
    :: skip
    fi
}
inline put(cell, what)
{
    c = cell;
    if
    :: dirty[c] -> reach(c)
    :: else
    fi;
    now[c] = what;
    dirty[c] = true;
    c = 0
}

/* fdatasync of the cells from `from` on, before `end`. */
inline flush(from, end)
{
    d_step {
        for (c : from .. (end) - 1) {
            if
            :: dirty[c] -> disk[c] = now[c]; dirty[c] = false
            :: else
            fi
        }
        c = 0
    }
}

inline flush_fails(from, end)
{
    failures++;
    for (c : from .. (end) - 1) {
        if
        :: dirty[c] -> reach(c); dirty[c] = false
        :: else
        fi
    }
    c = 0
}

/* os_file_settle. */
inline settle(from, end)
{
    flush(from, end);
#ifndef MUTANT_NO_FORGET
    d_step {
        for (c : from .. (end) - 1) {
            now[c] = disk[c]
        }
        c = 0
    }
#endif
}

/* header_write, but for the fdatasync. */
inline write_header()
{
    turn++;
#ifdef MUTANT_HEADER_IN_ONE_PLACE
    put(HEADER(0), HEADER_OF(turn, checkpoint, session))
#else
#ifdef MUTANT_HEADER_OVER_THE_NEWER
    put(HEADER((turn + 1) % 2), HEADER_OF(turn, checkpoint, session))
#else
    put(HEADER(turn % 2), HEADER_OF(turn, checkpoint, session))
#endif
#endif
}

/* -- Commit. */

/* cairn_persist_commit_async up to its first record: turn_over, then which pages. Only what there
 * is room for is begun: with less, keep_bounded waits for the checkpoint. */
#define COUNT(pages) (((pages) & 1) + ((pages) >> 1 & 1) + ((pages) >> 2 & 1))
#define MAY_TURN (segments[current].length >= LIMIT && segments[1 - current].state == FREE && !flushing)
#define HAS_ROOM (segments[current].length + COUNT(written_pages) <= ROOM)

inline seal()
{
    d_step {
        segments[current].state = SEALED;
        current = 1 - current;
        segments[current].state = IS_CURRENT;
        segments[current].length = 0
    }
}

inline begin_capture()
{
    d_step {
        captures++;
        begun = (begun > written + 1 -> begun : written + 1);
        number_of[captures] = written + 1;
        session_of[captures] = session;
        for (p : 0 .. PAGES - 1) {
            state_of[written + 1].at[p] = (written_pages & 1 << p -> captures : state_of[written].at[p])
        }
        p = 0;
        to_log = written_pages;
        logged = 0
    }
}

/* One record of log_append; with the last one note_places and note_committed. */
inline append()
{
    p = (to_log & 1 -> 0 : (to_log & 2 -> 1 : 2));
    to_log = to_log & ~(1 << p);
    put(RECORD(current, segments[current].length + logged), RECORD_OF(captures, p, (to_log == 0)));
    logged++;
    p = 0;
    if
    :: to_log == 0 ->
        d_step {
            for (i : 0 .. logged - 1) {
                r = now[RECORD(current, segments[current].length + i)];
                segments[current].latest[PAGE_OF(r)] = segments[current].length + i + 1
            }
            segments[current].length = segments[current].length + logged;
            segments[current].last = written + 1;
            written++;
            written_pages = 0;
            logged = 0;
            i = 0;
            r = 0
        }
    :: else
    fi
}

inline commit_fails() /* ENOSPC, EIO of a write */
{
    failures++;
    to_log = 0; /* its number is given out again, its records are overwritten */
    logged = 0;
    for (p : 0 .. PAGES - 1) { /* the next capture has them */
        if
        :: written_pages & 1 << p -> memory[p] = captures + 1
        :: else
        fi
    }
    p = 0
}

inline end_flush()
{
#ifndef MUTANT_NO_FLUSH
    flush(RECORD(current, 0), RECORD(current, covered_length));
#endif
#ifdef MUTANT_COVERED_LATE
    covered = written;
#endif
    durable = covered;
    acknowledged = (acknowledged > durable -> acknowledged : durable);
    flushing = false;
    covered = 0;
    covered_length = 0
}

/* -- Recovery. */

#define SOUND(h) (TURN_OF(h) != 0)
#define CHECKSUM_HOLDS(r) ((r) != 0 && (r) != GARBAGE)
#ifdef MUTANT_NO_SESSION
#define OF_THIS_LOG(r) true
#else
#define OF_THIS_LOG(r) (session_of[CAPTURE_OF(r)] == session)
#endif
#define WHOLE(r) (CHECKSUM_HOLDS(r) && OF_THIS_LOG(r))
#define VALUE_OF(r) ((r) >= 256 -> GARBAGE : CAPTURE_OF(r))
#ifdef MUTANT_NO_NUMBER
#define FOLLOWS(r) true
#else
#define FOLLOWS(r) (number_of[CAPTURE_OF(r)] == reached + 1)
#endif

/* log_walk over segment s, which begins with reached + 1: whole commits, in their order. */
inline walk()
{
    i = 0;
    do
    :: i < ROOM && WHOLE(now[RECORD(s, i)]) && FOLLOWS(now[RECORD(s, i)]) ->
        r = now[RECORD(s, i)];
        k = i;
        do /* to its last record */
        :: !IS_LAST(now[RECORD(s, k)]) && k + 1 < ROOM && WHOLE(now[RECORD(s, k + 1)]) &&
                CAPTURE_OF(now[RECORD(s, k + 1)]) == CAPTURE_OF(r) ->
            k++
        :: else -> break
        od;
        if
#ifndef MUTANT_REPLAY_TAIL
        :: !IS_LAST(now[RECORD(s, k)]) -> break
#endif
        :: else ->
            reached = number_of[CAPTURE_OF(r)];
            do
            :: i <= k ->
                r = now[RECORD(s, i)];
                image[PAGE_OF(r)] = VALUE_OF(r);
                to_replay = to_replay | 1 << PAGE_OF(r);
                i++
            :: else -> break
            od
        fi
    :: else -> break
    od
}

inline read_headers()
{
    d_step {
        assert(SOUND(now[HEADER(0)]) || SOUND(now[HEADER(1)]));
        r = now[HEADER((TURN_OF(now[HEADER(1)]) > TURN_OF(now[HEADER(0)]) -> 1 : 0))];
        turn = TURN_OF(r);
        checkpoint = CHECKPOINT_OF(r);
        session = SESSION_OF(r);
        r = 0
    }
}

inline judge()
{
    d_step {
        reached = checkpoint;
        to_replay = 0;
        for (p : 0 .. 3) { /* each is asked again once the other one was taken */
            s = p % 2;
            if
            :: WHOLE(now[RECORD(s, 0)]) && number_of[CAPTURE_OF(now[RECORD(s, 0)])] == reached + 1 -> walk()
            :: else
            fi
        }
        for (s : 0 .. 1) {
            assert(!WHOLE(now[RECORD(s, 0)]) ||
                   number_of[CAPTURE_OF(now[RECORD(s, 0)])] <= reached + 1)
        }
        assert(reached >= acknowledged);
        assert(reached <= begun);
        for (p : 0 .. PAGES - 1) {
            if
            :: !(to_replay & 1 << p) -> image[p] = now[PAGE(p)]
            :: else
            fi;
            assert(image[p] == state_of[reached].at[p]);
            memory[p] = image[p]
        }
        p = 0;
        s = 0;
        i = 0;
        k = 0;
        r = 0
    }
}

inline is_open()
{
    d_step {
        acknowledged = reached;
        begun = reached;
        written = reached;
        durable = reached;
        current = 0;
        segments[0].state = IS_CURRENT;
        reached = 0;
        for (p : 0 .. PAGES - 1) {
            image[p] = 0
        }
        p = 0
    }
}

/* -- Crashes. */

inline forget_all() /* what the program had in memory */
{
    d_step {
        for (s : 0 .. 1) {
            segments[s].state = FREE;
            segments[s].length = 0;
            segments[s].last = 0;
            for (p : 0 .. PAGES - 1) {
                segments[s].latest[p] = 0
            }
        }
        for (p : 0 .. PAGES - 1) {
            memory[p] = 0;
            image[p] = 0
        }
        s = 0;
        p = 0;
        current = 0;
        written = 0;
        durable = 0;
        failed = false;
        written_pages = 0;
        turn = 0;
        checkpoint = 0;
        session = 0;
        to_log = 0;
        logged = 0;
        flushing = false;
        covered = 0;
        covered_length = 0;
        checkpointer = IDLE;
        to_move = 0;
        reached = 0;
        to_replay = 0;
        crashes++;
        opening = SETTLE_HEADERS
    }
}

inline power_loss()
{
    for (c : 0 .. CELLS - 1) {
        if
        :: dirty[c] -> reach(c); dirty[c] = false
        :: else
        fi;
        now[c] = disk[c]
    }
    c = 0
}

#define RUNS (opening == OPEN && !failed && crashes < CRASHES)
#define MAY_FAIL (failures < FAILURES)

init {
    byte c;
    atomic {
        turn = 2;
        lives = 1;
        session = 1;
        now[HEADER(0)] = HEADER_OF(2, 0, 1);
        disk[HEADER(0)] = now[HEADER(0)];
        now[HEADER(1)] = HEADER_OF(1, 0, 0);
        disk[HEADER(1)] = now[HEADER(1)];
        segments[0].state = IS_CURRENT;
        opening = OPEN
    }
    do
    /* The program, and its captures. */
    :: atomic { RUNS && to_log == 0 && captures < CAPTURES && (written_pages & 1) == 0 ->
            memory[0] = captures + 1; written_pages = written_pages | 1 }
    :: atomic { RUNS && to_log == 0 && captures < CAPTURES && (written_pages & 2) == 0 ->
            memory[1] = captures + 1; written_pages = written_pages | 2 }
#if PAGES > 2
    :: atomic { RUNS && to_log == 0 && captures < CAPTURES && (written_pages & 4) == 0 ->
            memory[2] = captures + 1; written_pages = written_pages | 4 }
#endif
    :: atomic { RUNS && to_log == 0 && written_pages != 0 && MAY_TURN ->
#ifndef MUTANT_SEAL_UNFLUSHED
            flush(RECORD(current, 0), RECORD(current, segments[current].length));
#endif
            durable = written;
            seal() }
    :: atomic { RUNS && to_log == 0 && written_pages != 0 && MAY_TURN && MAY_FAIL ->
            flush_fails(RECORD(current, 0), RECORD(current, segments[current].length));
            failed = true }
    :: atomic { RUNS && to_log == 0 && written_pages != 0 && !MAY_TURN && HAS_ROOM -> begin_capture();
            append() }
    :: atomic { RUNS && to_log != 0 -> append() }
    :: atomic { RUNS && to_log != 0 && captures < CAPTURES && MAY_FAIL -> commit_fails() }

    /* Flushing. */
    :: atomic { RUNS && !flushing && durable < written ->
            flushing = true;
            covered = written;
            covered_length = segments[current].length }
    :: atomic { RUNS && flushing -> end_flush() }
    :: atomic { RUNS && flushing && MAY_FAIL ->
            flush_fails(RECORD(current, 0), RECORD(current, ROOM));
            flushing = false;
            covered = 0;
            covered_length = 0;
#ifndef MUTANT_COMMIT_AFTER_FAILURE
            failed = true
#endif
       }

    /* The checkpoint. */
    :: atomic { RUNS && checkpointer == IDLE && segments[1 - current].state == SEALED ->
            checkpointer = MOVE;
            for (p : 0 .. PAGES - 1) {
                to_move = to_move | ((segments[1 - current].latest[p] != 0) << p)
            }
            p = 0;
#ifdef MUTANT_FREE_FIRST
            segments[1 - current].state = FREE
#endif
       }
    :: atomic { RUNS && checkpointer == MOVE && to_move != 0 ->
            p = (to_move & 1 -> 0 : (to_move & 2 -> 1 : 2));
            to_move = to_move & ~(1 << p);
#ifdef MUTANT_MOVE_FROM_MEMORY
            k = memory[p];
#else
            k = CAPTURE_OF(now[RECORD(1 - current, segments[1 - current].latest[p] - 1)]);
#endif
            put(PAGE(p), k);
            k = 0;
            p = 0 }
    :: atomic { RUNS && checkpointer == MOVE && to_move == 0 -> checkpointer = FLUSH_DATA }
    :: atomic { RUNS && checkpointer == FLUSH_DATA ->
#ifndef MUTANT_NO_DATA_FLUSH
            flush(HEAP_FROM, CELLS);
#endif
#ifdef MUTANT_FREE_BEFORE_HEADER
            segments[1 - current].state = FREE;
#endif
            checkpointer = WRITE_HEADER }
    :: atomic { RUNS && checkpointer == WRITE_HEADER ->
            checkpoint = segments[1 - current].last;
            write_header();
            checkpointer = FLUSH_HEADER }
    :: atomic { RUNS && checkpointer == FLUSH_HEADER ->
#ifndef MUTANT_NO_HEADER_FLUSH
            flush(HEAP_FROM, CELLS);
#endif
            segments[1 - current].state = FREE;
            segments[1 - current].length = 0;
            for (p : 0 .. PAGES - 1) {
                segments[1 - current].latest[p] = 0
            }
            p = 0;
            checkpointer = IDLE }
    :: atomic { RUNS && MAY_FAIL && (checkpointer == FLUSH_DATA || checkpointer == FLUSH_HEADER) ->
            flush_fails(HEAP_FROM, CELLS);
#ifdef MUTANT_CHECKPOINT_AFTER_FAILURE
            skip
#else
            failed = true
#endif
       }

    /* Crashes. */
    :: atomic { crashes < CRASHES -> power_loss(); forget_all() }
    :: atomic { crashes < CRASHES -> forget_all() }

    :: atomic { opening != OPEN && MAY_FAIL && crashes < CRASHES -> /* the open fails */
            if
            :: flush_fails(HEAP_FROM, CELLS)
            :: flush_fails(0, RECORD(1, 0))
            :: flush_fails(RECORD(1, 0), HEAP_FROM)
            fi;
            forget_all() }

    /* Opening. */
    :: atomic { opening == SETTLE_HEADERS ->
#ifndef MUTANT_NO_SETTLED_HEADERS
            settle(HEAP_FROM, CELLS);
#endif
            opening = READ_HEADERS }
    :: atomic { opening == READ_HEADERS -> read_headers(); opening = SETTLE_LOG }
    :: atomic { opening == SETTLE_LOG ->
#ifndef MUTANT_NO_SETTLED_LOG
            settle(0, HEAP_FROM);
#endif
            opening = JUDGE }
    :: atomic { opening == JUDGE -> judge();
            if
            :: crashes == CRASHES -> break /* what follows was judged in the life before */
            :: else -> opening = (to_replay != 0 -> REPLAY : ANNOUNCE)
            fi }
    :: atomic { opening == REPLAY && to_replay != 0 ->
            p = (to_replay & 1 -> 0 : (to_replay & 2 -> 1 : 2));
            to_replay = to_replay & ~(1 << p);
            put(PAGE(p), image[p]);
            p = 0 }
    :: atomic { opening == REPLAY && to_replay == 0 -> opening = FLUSH_REPLAYED }
    :: atomic { opening == FLUSH_REPLAYED ->
#ifndef MUTANT_NO_REPLAY_FLUSH
            flush(HEAP_FROM, CELLS);
#endif
            opening = RECOVERED_HEADER }
    :: atomic { opening == RECOVERED_HEADER ->
            checkpoint = reached; write_header(); opening = FLUSH_RECOVERED }
    :: atomic { opening == FLUSH_RECOVERED -> flush(HEAP_FROM, CELLS); opening = ANNOUNCE }
    :: atomic { opening == ANNOUNCE ->
            lives++; session = lives; write_header(); opening = FLUSH_ANNOUNCED }
    :: atomic { opening == FLUSH_ANNOUNCED -> flush(HEAP_FROM, CELLS); is_open(); opening = OPEN }
    od
}
