// Runs one path of the allocator in a loop. count_paths.py compiles this program and counts its
// cost.
//
//   path_probe [PATH TIMES]
//
// Without arguments it names the paths.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void loop(long times, size_t size);
static void *volatile sink;
static volatile size_t sum;

static void touch(char *block, size_t size)
{
    for (size_t i = 0; i < size; i += 4096)
        block[i] = 1;
    block[size - 1] = 1;
}

static void usable(long times, size_t size)
{
    void *block = malloc(size);
    sink = block;
    for (long i = 0; i < times; i++)
        sum = malloc_usable_size(sink);
    free(block);
}

static void *make(void *size) { return malloc((size_t)size); }

static void usable_of_other(long times, size_t size)
{
    pthread_t thread;
    void *block;
    if (pthread_create(&thread, NULL, make, (void *)size) != 0)
        abort();
    pthread_join(thread, &block);
    sink = malloc(size); /* may adopt the heap of the thread */
    sink = block;
    for (long i = 0; i < times; i++)
        sum = malloc_usable_size(sink);
    free(block);
}

static void same_class(long times, size_t size)
{
    void *block = malloc(size);
    for (long i = 0; i < times; i++)
        block = sink = realloc(block, size + (i & 1));
    free(block);
}

static void steps(long times, size_t size)
{
    for (long i = 0; i < times;) {
        char *block = NULL;
        for (size_t now = 16; now <= size && i < times; now += 16, i++) {
            block = sink = realloc(block, now);
            block[now - 1] = 1;
        }
        free(block);
    }
}

static void doubles(long times, size_t size)
{
    for (long i = 0; i < times;) {
        char *block = NULL;
        for (size_t now = 16; now <= size && i < times; now *= 2, i++) {
            block = sink = realloc(block, now);
            block[now - 1] = 1;
        }
        free(block);
    }
}

static void shrinks(long times, size_t size)
{
    for (long i = 0; i < times; i++) {
        char *block = sink = malloc(size);
        touch(block, size);
        block = sink = realloc(block, size / 4);
        free(block);
    }
}

static void to_and_fro(long times, size_t size)
{
    char *block = malloc(size);
    for (long i = 0; i < times; i++)
        block = sink = realloc(block, i & 1 ? size : size / 2);
    free(block);
}

static void zeroed(long times, size_t size)
{
    for (long i = 0; i < times; i++)
        free(sink = calloc(1, size));
}

static void aligned(long times, size_t size)
{
    for (long i = 0; i < times; i++)
        free(sink = memalign(size < 4096 ? 64 : 4096, size));
}

static void cycle(long times, size_t size)
{
    for (long i = 0; i < times; i++)
        free(sink = malloc(size));
}

static void touched(long times, size_t size)
{
    for (long i = 0; i < times; i++) {
        char *block = sink = malloc(size);
        touch(block, size);
        free(block);
    }
}

static void *work(void *argument)
{
    void *blocks[100];
    for (size_t i = 0; i < 100; i++)
        memset(blocks[i] = malloc(16 + i * 10), 1, 16);
    for (size_t i = 0; i < 100; i++)
        free(blocks[i]);
    return argument;
}

static void *no_work(void *argument) { return argument; }

static void threads(long times, size_t size)
{
    for (long i = 0; i < times; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, size ? work : no_work, NULL) != 0)
            abort();
        pthread_join(thread, NULL);
    }
}

static const struct path {
    const char *name;
    loop *run;
    size_t size;
} paths[] = {
    {"usable-48", usable, 48},
    {"usable-2000", usable, 2000},
    {"usable-100000", usable, 100000},
    {"usable-of-other-48", usable_of_other, 48},
    {"realloc-same-48", same_class, 40},
    {"realloc-same-2000", same_class, 2000},
    {"realloc-same-100000", same_class, 100000},
    {"realloc-same-40M", same_class, 40000000},
    {"realloc-steps-16K", steps, 16384},
    {"realloc-steps-1M", steps, 1 << 20},
    {"realloc-doubles-64K", doubles, 65536},
    {"realloc-doubles-4M", doubles, 4 << 20},
    {"realloc-shrinks-400", shrinks, 400},
    {"realloc-shrinks-8000", shrinks, 8000},
    {"realloc-shrinks-100000", shrinks, 100000},
    {"realloc-shrinks-1M", shrinks, 1 << 20},
    {"realloc-to-and-fro-1000", to_and_fro, 1000},
    {"realloc-to-and-fro-200000", to_and_fro, 200000},
    {"calloc-16", zeroed, 16},
    {"calloc-48", zeroed, 48},
    {"calloc-400", zeroed, 400},
    {"calloc-2000", zeroed, 2000},
    {"calloc-20000", zeroed, 20000},
    {"calloc-40000", zeroed, 40000},
    {"calloc-1M", zeroed, 1 << 20},
    {"calloc-4M", zeroed, 4 << 20},
    {"memalign-48", aligned, 48},
    {"memalign-400", aligned, 400},
    {"memalign-8000", aligned, 8000},
    {"memalign-100000", aligned, 100000},
    {"cycle-48", cycle, 48},
    {"cycle-2000", cycle, 2000},
    {"cycle-20000", cycle, 20000},
    {"cycle-40000", cycle, 40000},
    {"cycle-200000", cycle, 200000},
    {"cycle-400000", cycle, 400000},
    {"cycle-1M", cycle, 1 << 20},
    {"cycle-4M", cycle, 4 << 20},
    {"touched-400000", touched, 400000},
    {"touched-4M", touched, 4 << 20},
    {"touched-16M", touched, 16 << 20},
    {"touched-40M", touched, 40 << 20},
    {"thread-0", threads, 0},
    {"thread-100", threads, 100},
};

int main(int argc, char **argv)
{
    free(sink = malloc(24)); /* the thread has a heap */
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (argc == 1)
            printf("%s\n", paths[i].name);
        else if (argc == 3 && strcmp(argv[1], paths[i].name) == 0)
            return paths[i].run(strtol(argv[2], NULL, 10), paths[i].size), 0;
    }
    return argc == 1 ? 0 : 2;
}
