/* The persistent heap: commit, checkpoint and recovery, with power losses and kills at any moment:
 * src/region/persist_commit.c, which documents the steps C1 to K4, persist_log.c,
 * persist_open.c.
 *
 * A heap of PAGES pages has a log of two segments with room for ROOM records each; a segment is
 * full with LIMIT records. The program writes pages and captures commits of any of them, CAPTURES
 * times in all. Concurrently one thread flushes the log and one moves the sealed segment to the
 * file. Up to CRASHES crashes happen, at any step, also during recovery. Up to FAILURES times a
 * write or an fdatasync fails, the latter also within an open.
 *
 * The disk: each cell (the head of a log, a record of it, a page, a header, the mark) has the
 * kernel's content, `now`, and the content of the disk. Data that was written and not yet flushed
 * may have reached the disk or not, in any order, or in part. A power loss leaves the content of
 * the disk. A kill leaves that of the kernel, which writes it at some later time. After a failed
 * fdatasync the disk has any part of the data, and the kernel takes all of it for written.
 *
 * Asserted: the result of recovery is, page for page, the state of one commit, not before the last
 * acknowledged one, nor after the last one begun; the commit that an open found stays from then on,
 * and nothing that was lost before returns; one of the twin headers is always sound; a log that
 * begins after the file's state is never found. No crash leaves a state that is refused: a mark of
 * a commit that is not found, a log without the head that the header requires, or commits of a
 * later opening than that of a header that requires no log. The state is checked before recovery
 * writes, because recovery writes exactly this state.
 *
 * A page's value is the capture that logged it, or will log it; the number of a commit is used
 * again when the commit failed or was lost. There is one process, whose choices are the steps of
 * the threads: the step of each thread is in its variable.
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

/* The cells: the files of the log, and that of the heap. */
#define HEAD(s) ((s) * (ROOM + 1))
#define RECORD(s, i) (HEAD(s) + 1 + (i))
#define PAGE(p) (HEAD(2) + (p))
#define HEADER(k) (PAGE(PAGES) + (k))
#define MARK HEADER(2)
#define CELLS (MARK + 1)
#define HEAP_FROM PAGE(0)

/* A record: capture, page, whether it is the last of the commit. A header: turn, checkpoint,
 * session, whether a log is required. The head of a log: the session. The mark: a commit. */
#define RECORD_OF(c, p, last) ((c) * 8 + (p) * 2 + (last))
#define CAPTURE_OF(r) ((r) / 8 % 16)
#define PAGE_OF(r) ((r) / 2 % 4)
#define IS_LAST(r) ((r) % 2)
#define HEADER_OF(t, c, s, logging) ((t) * 512 + (c) * 32 + (s) * 2 + (logging))
#define TURN_OF(h) ((h) / 512)
#define CHECKPOINT_OF(h) ((h) / 32 % 16)
#define SESSION_OF(h) ((h) / 2 % 16)
#define IS_LOGGING(h) ((h) % 2)
#define GARBAGE 120 /* written in part: no checksum fits; a header with turn 0 */

short now[CELLS];
short disk[CELLS];
bool dirty[CELLS];

/* The log's information about the captures. */
byte number_of[CAPTURES + 1];
byte session_of[CAPTURES + 1];
byte captures;

/* For the assertions: the pages of each commit, which a crash must leave. */
typedef Pages { byte at[PAGES] };
Pages state_of[CAPTURES + 1];
byte acknowledged;
byte begun;
byte crashes;
byte failures;
byte lives;
byte begun_with[CRASHES + 2]; /* by session: the checkpoint at the start of its logs */

/* The heap while it is open. */
#define FREE 0
#define IS_CURRENT 1
#define SEALED 2
typedef Segment {
    byte state;
    byte length;
    byte last;
    byte latest[PAGES]; /* 1 + the record of the page's latest image; 0: none */
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
bit logging;

/* The step of each thread. */
byte to_log;     /* pages of the capture that are not in the log yet */
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

/* Opening: the steps in their order; OPEN: the heap is open. */
#define SETTLE_HEADERS 0
#define READ_HEADERS 1
#define SETTLE_LOG 2
#define JUDGE 3
#define REPLAY 4
#define FLUSH_REPLAYED 5
#define RECOVERED_HEADER 6
#define FLUSH_RECOVERED 7
#define BEGIN_LOGS 8
#define FLUSH_LOGS 9
#define ANNOUNCE 10
#define FLUSH_ANNOUNCED 11
#define OPEN 12
byte opening;
byte reached;        /* the commit that recovery found */
byte image[PAGES];   /* the image that it replays */
byte to_replay;

byte i, p, k, s;
short r;

#ifdef MUTANT_NO_CHECKSUM
/* the head is the new one, the image is not */
#define PARTLY(r) (c < HEAP_FROM -> 256 + (r) : GARBAGE)
#else
#define PARTLY(r) GARBAGE
#endif

inline reach(c) /* in part, as a whole, or not at all */
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

/* fdatasync of the cells from `from` on, before `end` */
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

/* os_file_settle */
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

/* header_write without the fdatasync */
inline write_header()
{
    turn++;
#ifdef MUTANT_HEADER_IN_ONE_PLACE
    put(HEADER(0), HEADER_OF(turn, checkpoint, session, logging))
#else
#ifdef MUTANT_HEADER_OVER_THE_NEWER
    put(HEADER((turn + 1) % 2), HEADER_OF(turn, checkpoint, session, logging))
#else
    put(HEADER(turn % 2), HEADER_OF(turn, checkpoint, session, logging))
#endif
#endif
}

/* -- Commit. */

/* cairn_persist_commit_async up to its first record: persist_turn_over, then the choice of pages. A
 * commit begins only with enough room: otherwise persist_keep_bounded waits for the checkpoint. */
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

/* One record of log_append; with the last one persist_note_places and persist_note_committed. */
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

inline commit_fails() /* ENOSPC or EIO of a write */
{
    failures++;
    to_log = 0; /* its number is used again, its records are overwritten */
    logged = 0;
    for (p : 0 .. PAGES - 1) { /* the next capture has these pages */
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
    put(MARK, durable);
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

/* log_walk over segment s, which begins with reached + 1: whole commits, in their order */
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
        logging = IS_LOGGING(r);
        r = 0
    }
}

inline judge()
{
    d_step {
        reached = checkpoint;
        to_replay = 0;
        for (p : 0 .. 3) { /* each page is checked again after the other one was taken */
            s = p % 2;
            if
            :: logging && WHOLE(now[RECORD(s, 0)]) && number_of[CAPTURE_OF(now[RECORD(s, 0)])] == reached + 1 -> walk()
            :: else
            fi
        }
        for (s : 0 .. 1) {
            assert(!logging || !WHOLE(now[RECORD(s, 0)]) ||
                   number_of[CAPTURE_OF(now[RECORD(s, 0)])] <= reached + 1);
            assert(!logging || now[HEAD(s)] == session);
            if
            :: !logging && now[HEAD(s)] != GARBAGE && now[HEAD(s)] > session ->
                assert(begun_with[now[HEAD(s)]] <= checkpoint);
                assert(!CHECKSUM_HOLDS(now[RECORD(s, 0)]) ||
                       session_of[CAPTURE_OF(now[RECORD(s, 0)])] != now[HEAD(s)])
            :: else
            fi
        }
        assert(now[MARK] == GARBAGE || now[MARK] <= reached);
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

inline forget_all() /* the data that the program had in memory */
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
        logging = 0;
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
        logging = 1;
        now[HEAD(0)] = 1;
        disk[HEAD(0)] = 1;
        now[HEAD(1)] = 1;
        disk[HEAD(1)] = 1;
        now[HEADER(0)] = HEADER_OF(2, 0, 1, 1);
        disk[HEADER(0)] = now[HEADER(0)];
        now[HEADER(1)] = HEADER_OF(1, 0, 0, 0);
        disk[HEADER(1)] = now[HEADER(1)];
        segments[0].state = IS_CURRENT;
        opening = OPEN
    }
    do
    /* The program and its captures. */
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
            put(MARK, durable);
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
#ifdef MUTANT_MARK_BEFORE_FLUSH
            put(MARK, covered);
#endif
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
            :: flush_fails(HEAD(0), HEAD(1))
            :: flush_fails(HEAD(1), HEAP_FROM)
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
            :: crashes == CRASHES -> break /* later steps were checked in the life before */
            :: else -> opening = (logging -> REPLAY : BEGIN_LOGS)
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
            checkpoint = reached;
#ifndef MUTANT_LOG_STILL_ASKED_FOR
            logging = 0;
#endif
            write_header(); opening = FLUSH_RECOVERED }
    :: atomic { opening == FLUSH_RECOVERED -> flush(HEAP_FROM, CELLS); opening = BEGIN_LOGS }
    :: atomic { opening == BEGIN_LOGS ->
            lives++; session = lives; begun_with[session] = checkpoint;
            put(HEAD(0), session); put(HEAD(1), session);
            opening = FLUSH_LOGS }
    :: atomic { opening == FLUSH_LOGS ->
#ifndef MUTANT_NO_HEAD_FLUSH
            flush(HEAD(0), HEAP_FROM);
#endif
            opening = ANNOUNCE }
    :: atomic { opening == ANNOUNCE ->
            logging = 1; write_header(); opening = FLUSH_ANNOUNCED }
    :: atomic { opening == FLUSH_ANNOUNCED -> flush(HEAP_FROM, CELLS); is_open(); opening = OPEN }
    od
}
