/* A ring: the main thread builds messages, workers consume and release them, in whatever order they
 * finish. */
#include <cairn/ring.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { WORKERS = 4, MESSAGES = 200000, PLACES = 256 };

struct message {
    cairn_frame frame; /* releasing it frees the message and all its blocks */
    int count;
    int *values;
};

/* A bounded queue. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct message *messages[PLACES];
    int first;
    int count;
    int ended;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void put(struct message *message)
{
    pthread_mutex_lock(&queue.lock);
    while (queue.count == PLACES)
        pthread_cond_wait(&queue.changed, &queue.lock);
    queue.messages[(queue.first + queue.count++) % PLACES] = message;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
}

static struct message *get(void)
{
    struct message *message = NULL;
    pthread_mutex_lock(&queue.lock);
    while (queue.count == 0 && !queue.ended)
        pthread_cond_wait(&queue.changed, &queue.lock);
    if (queue.count > 0) {
        message = queue.messages[queue.first];
        queue.first = (queue.first + 1) % PLACES;
        queue.count--;
        pthread_cond_broadcast(&queue.changed);
    }
    pthread_mutex_unlock(&queue.lock);
    return message;
}

static void *work(void *sum)
{
    for (struct message *message = get(); message; message = get()) {
        for (int i = 0; i < message->count; i++)
            *(long *)sum += message->values[i];
        cairn_ring_release(message->frame); /* the memory of the message is the ring's again */
    }
    return NULL;
}

/* NULL when the ring is full: its consumers hold all that it may have. */
static struct message *build(cairn_ring *ring, int number)
{
    cairn_frame frame = cairn_ring_open(ring);
    if (frame.chunk == NULL)
        return NULL;
    struct message *message = cairn_ring_alloc(ring, sizeof *message, _Alignof(struct message));
    int count = number % 20;
    int *values = cairn_ring_alloc_array(ring, (size_t)count, sizeof *values, _Alignof(int));
    cairn_ring_seal(ring);
    if (message == NULL || values == NULL) {
        cairn_ring_release(frame);
        return NULL;
    }
    *message = (struct message){frame, count, values};
    for (int i = 0; i < count; i++)
        values[i] = 1;
    return message;
}

int main(void)
{
    cairn_ring *ring =
        cairn_ring_new(&(cairn_ring_options){.max_bytes = 1 << 20, .name = "messages"});
    if (ring == NULL)
        return 1;
    pthread_t workers[WORKERS];
    long sums[WORKERS] = {0};
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&workers[i], NULL, work, &sums[i]) != 0)
            return 1;
    long expected = 0;
    for (int number = 0; number < MESSAGES; number++) {
        struct message *message;
        while ((message = build(ring, number)) == NULL)
            sched_yield(); /* backpressure: wait for releases */
        expected += number % 20;
        put(message);
    }
    cairn_ring_close(ring); /* ends with the last release */
    pthread_mutex_lock(&queue.lock);
    queue.ended = 1;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
    long sum = 0;
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i], NULL);
        sum += sums[i];
    }
    printf("%ld values in %d messages\n", sum, MESSAGES);
    return sum != expected;
}
