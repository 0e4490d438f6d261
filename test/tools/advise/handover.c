// Hand-over: one thread makes jobs, another frees them in any order. decoy_own() makes blocks that
// the working thread itself frees.
#include <pthread.h>

#include "planted.h"

enum { JOBS = 40000, ROOM = 1024, OWN = 500 };

static void *jobs[ROOM];
static unsigned made, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

SITE static void *planted_job(void)
{
    return xmalloc(48 + random_below(100 * input));
}

SITE static void *decoy_own(size_t size)
{
    return xmalloc(size);
}

static void put(void *job)
{
    pthread_mutex_lock(&lock);
    while (made - done == ROOM)
        pthread_cond_wait(&changed, &lock);
    jobs[made++ % ROOM] = job;
    if (made % (ROOM / 4) == 0)
        pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

// Takes up to 64 jobs.
static unsigned get(void **taken_jobs)
{
    unsigned count = 0;
    pthread_mutex_lock(&lock);
    while (made == done)
        pthread_cond_wait(&changed, &lock);
    while (made != done && count < 64)
        taken_jobs[count++] = jobs[done++ % ROOM];
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return count;
}

static void *work(void *unused)
{
    (void)unused;
    void *own[OWN] = {NULL};
    void *some[64];
    unsigned own_state = input;
    for (unsigned total = 0; total < JOBS;) {
        unsigned count = get(some);
        for (unsigned i = 0; i < count; i++) {
            give(some[(i * 7 + total) % count]); // each once where 7 does not divide the count
            some[(i * 7 + total) % count] = NULL;
            own_state = own_state * 1103515245 + 12345;
            unsigned number = (own_state >> 16) % OWN;
            give(own[number]);
            own[number] = decoy_own(40 + total % 90);
        }
        for (unsigned i = 0; i < count; i++)
            give(some[i]);
        total += count;
    }
    for (unsigned i = 0; i < OWN; i++)
        give(own[i]);
    return NULL;
}

int main(int count, char **words)
{
    begin(count, words);
    pthread_t worker;
    if (pthread_create(&worker, NULL, work, NULL) != 0)
        abort();
    for (unsigned i = 0; i < JOBS; i++)
        put(planted_job());
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(worker, NULL);
    return finish();
}
