// Sessions of a server: objects of one type, made and ended all the time, in no order. Worker
// threads share the pool, each through a magazine of its own.
#include <cairn/pool.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, SESSIONS = 50, ROUNDS = 20000 };

struct session {
    unsigned long number;
    unsigned requests;
    char peer[48];
};

CAIRN_POOL(session, struct session);

static cairn_pool *sessions;

static void *worker(void *argument)
{
    unsigned long self = (unsigned long)(size_t)argument;
    cairn_pool_magazine *magazine = session_pool_attach(sessions);
    if (magazine == NULL)
        return argument;
    struct session *open[SESSIONS] = {NULL};
    size_t wrong = 0;
    for (unsigned long round = 0; round < ROUNDS; round++) {
        struct session **slot = &open[round * 31 % SESSIONS];
        if (*slot != NULL) {
            wrong += (*slot)->number % THREADS != self;
            session_magazine_put(magazine, *slot);
        }
        *slot = session_magazine_get_zero(magazine);
        if (*slot != NULL)
            (*slot)->number = round * THREADS + self;
    }
    for (size_t i = 0; i < SESSIONS; i++)
        session_magazine_put(magazine, open[i]);
    cairn_pool_detach(magazine);
    return (void *)wrong;
}

int main(void)
{
    sessions = session_pool_new(&(cairn_pool_options){.name = "sessions", .shared = true});
    if (sessions == NULL)
        return 1;
    // The pool's own functions are for everyday use; a thread in a hurry attaches a magazine.
    struct session *control = session_pool_get(sessions);
    if (control == NULL)
        return 1;
    pthread_t threads[THREADS];
    size_t wrong = 0;
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, worker, (void *)i) != 0)
            return 1;
    for (size_t i = 0; i < THREADS; i++) {
        void *result;
        if (pthread_join(threads[i], &result) != 0)
            return 1;
        wrong += (size_t)result;
    }
    session_pool_put(sessions, control);

    cairn_pool_stats stats;
    cairn_pool_read_stats(sessions, &stats);
    printf("%d sessions; %zu slabs of memory, %zu objects of %zu bytes free, %zu in use\n",
           THREADS * ROUNDS, stats.slabs, stats.free_objects, stats.object_bytes,
           stats.live_objects);
    const char *fault = cairn_pool_check(sessions);
    int busy = cairn_pool_delete(sessions);
    return fault == NULL && wrong == 0 && stats.live_objects == 0 && busy == 0 ? 0 : 1;
}
