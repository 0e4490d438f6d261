/* Threads whose transfers and locked instructions are known, to check the simulator.
 *
 * usage: known NAME THREADS */
#define _GNU_SOURCE
#include "machine.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 1000, LINE_WORDS = 8 };

struct line {
    _Atomic uint64_t words[LINE_WORDS];
} __attribute__((aligned(64)));

static struct line shared, turn, lines[WORKERS_MAX];

/* All add to one word: a locked instruction that takes the line, each time. */
static void known_shared(struct worker *worker)
{
    (void)worker;
    atomic_fetch_add(&shared.words[0], 1);
}

/* Each of eight threads exchanges a word of its own in the line that they share. */
static void known_false(struct worker *worker)
{
    unsigned line = worker->number / LINE_WORDS, word = worker->number % LINE_WORDS;
    lines[line].words[word] = worker->mallocs;
}

/* Each adds to a word of its own in a line of its own: no transfer. */
static void known_apart(struct worker *worker)
{
    atomic_fetch_add(&lines[worker->number].words[0], 1);
}

/* In turn: a read and a write of another core's line. */
static void known_turns(struct worker *worker)
{
    while (atomic_load(&turn.words[0]) % workers_count != worker->number)
        __builtin_ia32_pause();
    atomic_store_explicit(&turn.words[0], turn.words[0] + 1, memory_order_release);
}

static const struct {
    const char *name;
    void (*round)(struct worker *);
} known[] = {
    {"shared", known_shared},
    {"false", known_false},
    {"apart", known_apart},
    {"turns", known_turns},
};
static void (*known_round)(struct worker *);

static void known_work(struct worker *worker)
{
    worker_begin(worker);
    for (unsigned i = 0; i < ROUNDS; i++) {
        known_round(worker);
        worker->mallocs++; /* a pair for each round */
        worker->frees++;
    }
    worker_end(worker);
}

int main(int count, char **arguments)
{
    unsigned threads = count > 2 ? (unsigned)atoi(arguments[2]) : 0;
    for (size_t i = 0; i < sizeof known / sizeof *known && threads <= WORKERS_MAX; i++)
        if (threads > 0 && strcmp(arguments[1], known[i].name) == 0) {
            known_round = known[i].round;
            workers_run(threads, 100, 0, known_work);
        }
    return 2;
}
