/* The program of inspect_command_test.py: it has blocks of every kind, and prints their names,
 * states and addresses. Then it stops, aborts, or continues to allocate, according to its
 * argument.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void *allocate(const char *state, size_t size)
{
    void *block = malloc(size);
    if (block == NULL)
        exit(3);
    printf("%s %zu %p\n", state, size, block);
    return block;
}

static void *free_it(void *block)
{
    free(block);
    return NULL;
}

static void free_by_thread(void *block)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_it, block) != 0 || pthread_join(thread, NULL) != 0)
        exit(3);
}

static void churn(void)
{
    enum { BLOCKS = 4096 };
    static void *blocks[BLOCKS];
    unsigned state = 1;
    for (;;) {
        state = state * 1664525 + 1013904223;
        unsigned place = state >> 16 & (BLOCKS - 1);
        free(blocks[place]);
        blocks[place] = malloc(state >> 8 & (state % 64 ? 0x3ff : 0xffff));
    }
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1, 8, 40, 100, 1000, 5000, 40000, 300000, 33 << 20};
    const char *end = argc > 1 ? argv[1] : "";
    static char buffer[1 << 14];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* it allocates nothing */
    void *freed = allocate("freed", 2000);
    void *remote = allocate("remote", 3000);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        memset(allocate("live", sizes[i]), 'x', sizes[i] < 4096 ? sizes[i] : 4096);
    fflush(stdout);
    free(freed);
    free_by_thread(remote); /* last: later allocations may collect it */
    if (strcmp(end, "churn") == 0)
        churn();
    if (strcmp(end, "abort") == 0) {
        const struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
        (void)setrlimit(RLIMIT_CORE, &limit);
        abort();
    }
    raise(SIGSTOP);
    return 0;
}
