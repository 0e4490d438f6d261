/* A program for purge_command_test.py that has freed much memory, in the way that its first
 * argument selects. According to the second argument it stops, waits or aborts; or, given a path,
 * it serves a control socket there. The socket answers as docs/reference/OPTIONS.md describes, as
 * far as purge needs it, by malloc_trim in a thread without blocks. So the forecast is also tested
 * without the library's own thread.
 */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { THREADS = 6, MANY = 60000, LARGE = 24, MIB = 1 << 20 };

static char *blocks[MANY];
static char *of_threads[THREADS][2000];
static pthread_barrier_t barrier;
static pthread_barrier_t freed; /* barrier of the threads without main */

static char *filled(size_t bytes)
{
    char *block = malloc(bytes);
    if (block == NULL)
        exit(3);
    return memset(block, 1, bytes);
}

/* The sites of the kept blocks. */
__attribute__((noinline)) static char *keep_small(void) { return filled(100); }
__attribute__((noinline)) static char *keep_medium(void) { return filled(1000); }
__attribute__((noinline)) static char *pass_by(size_t bytes) { return filled(bytes); }

static void wait_for_ever(void)
{
    for (;;)
        pause();
}

/* A thread that frees its blocks, keeps an empty slab of some sizes, and sleeps. The blocks of its
 * last turn are in memory that was used before: a thread that gets new memory keeps nothing in its
 * caches. With two turns the threads could need most memory in the last one: one thread in two
 * hundred then kept nothing. */
static void *be_idle(void *number)
{
    char **mine = of_threads[(size_t)number];
    for (int turn = 0; turn < 5; turn++) {
        for (size_t i = 0; i < 2000; i++)
            mine[i] = pass_by(16 + i * 7 % 3000);
        for (size_t i = 0; i < 2000; i++)
            free(mine[i]);
        pthread_barrier_wait(&freed);
    }
    for (int turn = 0; turn < 3; turn++)
        for (size_t bytes = 1100; bytes <= 8000; bytes += 100)
            free(pass_by(bytes));
    free(pass_by(40000));
    pthread_barrier_wait(&barrier);
    wait_for_ever();
    return NULL;
}

/* Threads whose blocks another thread frees while they sleep, or after their end. */
static void *allocate(void *number)
{
    for (size_t i = 0; i < 2000; i++)
        of_threads[(size_t)number][i] = pass_by(16 + i * 11 % 2000);
    return NULL;
}

static void *allocate_and_sleep(void *number)
{
    (void)allocate(number);
    pthread_barrier_wait(&barrier);
    wait_for_ever();
    return NULL;
}

/* Threads that fill a slab of each size and then borrow uncollected blocks of other threads, more
 * than they use. They borrow because they run in turn. */
static void *borrow_and_sleep(void *number)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&turn);
    for (size_t bytes = 256; bytes <= 1024; bytes += 64)
        for (size_t done = 0; done <= 32 << 10; done += bytes)
            (void)pass_by(bytes);
    pthread_mutex_unlock(&turn);
    pthread_barrier_wait(&barrier);
    wait_for_ever();
    return number;
}

static void start(void *(*work)(void *), bool wait)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            exit(3);
    for (size_t i = 0; i < THREADS && wait; i++)
        pthread_join(threads[i], NULL);
    if (!wait)
        pthread_barrier_wait(&barrier);
}

static void free_theirs(void)
{
    for (size_t i = 0; i < THREADS; i++)
        for (size_t j = 0; j < 2000; j++)
            if (j % 100 != 0)
                free(of_threads[i][j]);
}

static void fragment(size_t many)
{
    for (size_t i = 0; i < many; i++)
        blocks[i] = i % 60 == 0    ? keep_small()
                    : i % 60 == 30 ? keep_medium()
                                   : pass_by(100 + i % 2 * 900);
    for (size_t i = 0; i < many; i++)
        if (i % 30 != 0)
            free(blocks[i]);
}

static void free_large(void)
{
    for (size_t i = 0; i < LARGE; i++)
        blocks[i] = pass_by(i % 2 ? 2u * MIB : MIB / 2);
    for (size_t i = 0; i < LARGE; i += i % 3 == 0 ? 2 : 1)
        free(blocks[i]);
}

/* Two blocks that have grown: one is freed, the other has grown into the place of a third. */
static void free_grown(void)
{
    for (size_t i = 0; i < 4; i++) {
        size_t bytes = i == 3 ? 3u * MIB : 12u * MIB;
        for (size_t size = MIB / 2, had = 0; size <= bytes; had = size, size += MIB / 2) {
            if ((blocks[i] = realloc(blocks[i], size)) == NULL)
                exit(3);
            memset(blocks[i] + had, 1, size - had);
        }
        blocks[LARGE + i] = pass_by(MIB / 2); /* so that the next block has to move */
    }
    for (size_t i = 0; i < 2; i++)
        free(blocks[i]);
    blocks[0] = pass_by(MIB / 2);
    if ((blocks[0] = realloc(blocks[0], 3u * MIB)) == NULL)
        exit(3);
}

/* A block whose pages are all the shared page of zeros: it was only read. */
static void read_large(void)
{
    blocks[0] = malloc(16u * MIB);
    if (blocks[0] == NULL)
        exit(3);
    for (size_t i = 0; i < 16u * MIB; i += 4096)
        (void)*(volatile char *)&blocks[0][i];
}

static void answer(int client)
{
    static const char purged[] = "{\"ok\":true,\"action\":\"purge\"}\n";
    static const char unknown[] =
        "{\"ok\":false,\"error\":\"ENOENT\",\"message\":\"no such request\"}\n";
    char line[512];
    ssize_t bytes = recv(client, line, sizeof line - 1, 0);
    if (bytes <= 0)
        return;
    line[bytes] = '\0';
    bool is_purge = strcmp(line, "do purge\n") == 0;
    if (is_purge)
        malloc_trim(0);
    const char *text = is_purge ? purged : unknown;
    (void)!write(client, text, strlen(text));
}

static void *serve(void *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1) != 0)
        exit(3);
    if (write(1, "ready\n", 6) != 6)
        exit(3);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        answer(client);
        close(client);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    pthread_t server;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    pthread_barrier_init(&freed, NULL, THREADS);
    if (strcmp(mode, "idle") == 0)
        start(be_idle, false);
    else if (strcmp(mode, "ended") == 0)
        start(allocate, true);
    else if (strcmp(mode, "remote") == 0 || strcmp(mode, "borrowed") == 0)
        start(allocate_and_sleep, false);
    else if (strcmp(mode, "large") == 0)
        free_large();
    else if (strcmp(mode, "grown") == 0)
        free_grown();
    else if (strcmp(mode, "read") == 0)
        read_large();
    else
        fragment(strcmp(mode, "few") == 0 ? MANY / 10 : MANY);
    if (strcmp(mode, "ended") == 0 || strcmp(mode, "remote") == 0 || strcmp(mode, "borrowed") == 0)
        free_theirs();
    if (strcmp(mode, "borrowed") == 0)
        start(borrow_and_sleep, false);
    if (argc > 2 && strcmp(argv[2], "abort") == 0) {
        const struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
        (void)setrlimit(RLIMIT_CORE, &limit);
        abort();
    }
    if (argc > 2 && strcmp(argv[2], "wait") == 0) {
        if (write(1, "ready\n", 6) != 6)
            exit(3);
        wait_for_ever();
    }
    if (argc < 3 || pthread_create(&server, NULL, serve, argv[2]) != 0)
        raise(SIGSTOP);
    wait_for_ever();
    return 0;
}
