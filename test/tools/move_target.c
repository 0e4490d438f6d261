/* Programs for leaks_running_test.py that move pointers all the time and have lost a few blocks.
 * Each prints "lost ADDRESS" for those, then "ready", and runs until it is killed.
 *
 * swap    an array is reversed, again and again
 * queue   the earliest timer of a binary heap is taken out and put in again, later
 * rotate  the pointers of an array move by one place (memmove, so through vector registers)
 * epoll   blocks that only an epoll set points to, and timers that only the kernel knows
 * vfork   an array is reversed, while a thread waits for its child and cannot be stopped
 * maps    an array is reversed in a process of 50,000 mappings
 * renew   blocks are freed and others allocated in their place, all the time
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 500 * 1000, LOST = 5, WATCHED = 50, TIMERS = 20, MAPPINGS = 50000 };

struct timer {
    uint64_t due;
    struct timer *self; /* a block that holds a pointer, too */
};

static uint64_t state = 88172645463325252;

static uint64_t random_number(void) /* xorshift64 (Marsaglia) */
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static struct timer *new_timer(void)
{
    struct timer *timer = malloc(sizeof *timer);
    if (timer == NULL)
        exit(3);
    *timer = (struct timer){random_number() % 1000000, timer};
    return timer;
}

static __attribute__((noinline)) void lose(void)
{
    for (int i = 0; i < LOST; i++)
        printf("lost %p\n", (void *)new_timer());
}

static void map_many(void)
{
    for (int i = 0; i < MAPPINGS; i++) { /* neighbours differ in access, so they do not merge */
        const int access = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        if (mmap(NULL, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            exit(3);
    }
}

static void ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

static __attribute__((noinline)) void swap_all(struct timer **array)
{
    for (size_t i = 0;; i = i + 1 < COUNT / 2 ? i + 1 : 0) {
        struct timer *between = array[i];
        array[i] = array[COUNT - 1 - i];
        array[COUNT - 1 - i] = between;
    }
}

static void sink(struct timer **heap, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < COUNT; at = child) {
        if (child + 1 < COUNT && heap[child + 1]->due < heap[child]->due)
            child++;
        if (heap[at]->due <= heap[child]->due)
            return;
        struct timer *between = heap[at];
        heap[at] = heap[child];
        heap[child] = between;
    }
}

static __attribute__((noinline)) void queue(struct timer **heap)
{
    for (size_t i = COUNT / 2; i-- > 0;)
        sink(heap, i);
    for (;;) {
        heap[0]->due += 1 + random_number() % 1000000;
        sink(heap, 0);
    }
}

static __attribute__((noinline)) void rotate(struct timer **array)
{
    for (;;) {
        struct timer *first = array[0];
        memmove(array, array + 1, (COUNT - 1) * sizeof *array);
        array[COUNT - 1] = first;
    }
}

static __attribute__((noinline)) void renew(struct timer **array)
{
    for (;;) {
        size_t at = random_number() % COUNT;
        free(array[at]);
        array[at] = new_timer();
    }
}

static __attribute__((noinline)) void watch(void)
{
    int set = epoll_create1(0);
    for (int i = 0; i < WATCHED; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = new_timer()};
        if (epoll_ctl(set, EPOLL_CTL_ADD, eventfd(0, 0), &event) != 0)
            exit(3);
    }
    for (int i = 0; i < TIMERS; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        timer_t timer;
        event.sigev_value.sival_ptr = new_timer();
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
            exit(3);
    }
}

static void *wait_for_children(void *unused)
{
    for (;;) {
        pid_t child = vfork(); /* NOLINT: for the state of its parent */
        if (child == 0) {
            (void)usleep(10 * 1000);
            _exit(0);
        }
        (void)waitpid(child, NULL, 0);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    static char buffer[4096];
    const char *kind = argc > 1 ? argv[1] : "";
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    struct timer **array = malloc(COUNT * sizeof *array);
    for (int i = 0; i < COUNT && array; i++)
        array[i] = new_timer();
    lose();
    if (strcmp(kind, "epoll") == 0)
        watch();
    if (strcmp(kind, "maps") == 0)
        map_many();
    memset(alloca(4096), 0, 4096); /* clears the content of ended frames */
    ready();
    if (strcmp(kind, "vfork") == 0 &&
        pthread_create(&thread, NULL, wait_for_children, NULL) != 0)
        exit(3);
    if (strcmp(kind, "swap") == 0 || strcmp(kind, "vfork") == 0 || strcmp(kind, "maps") == 0)
        swap_all(array);
    if (strcmp(kind, "queue") == 0)
        queue(array);
    if (strcmp(kind, "rotate") == 0)
        rotate(array);
    if (strcmp(kind, "renew") == 0)
        renew(array);
    for (;;)
        (void)pause();
}
