// A program whose sites are known, for the tests of `sites:FILE`. Words tell what it does:
//
//   where            prints the sites, a line each: name, then frames as FILE+0xOFFSET, innermost
//                    first; after `load` those of the library, too
//   batches          six batches of blocks that end, of each of which every 40th stays ("kept")
//   pairs N          N blocks of one function that two others call: "outer" and one of no site
//   threads          four threads that make 2000 blocks each of "kept", which another one frees
//   grow             500 blocks of "kept" that grow by realloc, to 40 KiB
//   fork             a child that makes 100 blocks of "kept" and ends by exit
//   load FILE        loads the library; its site is "late"
//   late N           N blocks of the library
//   signals N        makes and frees blocks of "kept" until a handler has done so N times
//   memory           prints the most memory that it held, and what it holds now, in KiB
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __clang__
#define SITE __attribute__((noinline)) // it makes no clones of functions
#else
#define SITE __attribute__((noinline, noclone))
#endif

typedef void *allocator(size_t size);

static allocator *volatile allocate = malloc; // by the same call, whatever is called
static allocator *(*late)(allocator *instead);
static unsigned told_frames;

enum { BATCHES = 6, PARTS = 20000, EVERY = 40, THREADS = 4, OF_THREAD = 2000 };
static void *parts[PARTS], *kept[BATCHES * PARTS / EVERY];
static void *of_threads[THREADS][OF_THREAD];

SITE static void *make_kept(size_t size)
{
    char *block = allocate(size);
    if (block)
        memset(block, 1, size);
    return block;
}

SITE static void *make_any(size_t size)
{
    char *block = allocate(size);
    if (block)
        memset(block, 2, size);
    return block;
}

SITE static void *make_outer(size_t size)
{
    void *block = make_any(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

SITE static void *make_other(size_t size)
{
    void *block = make_any(size + 1);
    __asm__ volatile("" : "+r"(block));
    return block;
}

// In the place of malloc: who called, and whoever called that.
static void *tell(size_t size)
{
    void *frames[16];
    Dl_info info;
    (void)size;
    int count = backtrace(frames, 16);
    for (int i = 1; i <= (int)told_frames && i < count; i++)
        if (dladdr((char *)frames[i] - 1, &info) != 0)
            printf(" %s+0x%zx", info.dli_fname,
                   (size_t)((char *)frames[i] - (char *)info.dli_fbase));
    puts("");
    return NULL;
}

static void where(void)
{
    void *frame;
    (void)backtrace(&frame, 1); // loads what it needs
    allocate = tell;
    told_frames = 1;
    printf("kept");
    (void)make_kept(1);
    told_frames = 2;
    printf("outer");
    (void)make_outer(1);
    told_frames = 1;
    if (late) {
        printf("late");
        (void)late(tell)(1);
    }
    allocate = malloc;
}

static void batches(void)
{
    unsigned count = 0;
    for (size_t batch = 0; batch < BATCHES; batch++) {
        size_t size = 64 + 112 * batch;
        for (size_t i = 0; i < PARTS; i++) {
            parts[i] = malloc(size);
            memset(parts[i], 3, size);
            if (i % EVERY == 0)
                kept[count++] = make_kept(size);
        }
        for (size_t i = 0; i < PARTS; i++)
            free(parts[i]);
    }
    malloc_trim(0);
}

static void pairs(int count)
{
    for (int i = 0; i < count; i++) {
        free(make_outer(100));
        free(make_other(100));
    }
}

static void *fill(void *blocks)
{
    for (size_t i = 0; i < OF_THREAD; i++)
        ((void **)blocks)[i] = make_kept(16 + i % 600);
    return blocks;
}

static void threads(void)
{
    pthread_t ids[THREADS];
    void *blocks;
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&ids[i], NULL, fill, of_threads[i]) != 0)
            abort();
    for (size_t i = 0; i < THREADS; i++) {
        (void)pthread_join(ids[i], &blocks);
        for (size_t k = 0; k < OF_THREAD; k++)
            free(((void **)blocks)[k]);
    }
}

static void grow(void)
{
    for (int i = 0; i < 500; i++) {
        unsigned char *block = make_kept(20);
        for (size_t size = 100; size <= 40 << 10; size *= 3) {
            block = realloc(block, size);
            if (block == NULL || block[19] != 1 || malloc_usable_size(block) < size)
                abort();
        }
        free(block);
    }
}

static void in_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++)
            free(make_kept(50));
        for (unsigned i = 0; i < sizeof kept / sizeof kept[0]; i++)
            free(kept[i]); // the parent's
        exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0)
        abort();
}

static void load(const char *file)
{
    void *library = dlopen(file, RTLD_NOW);
    void *found = library ? dlsym(library, "library_site") : NULL;
    if (found == NULL)
        abort();
    memcpy(&late, &found, sizeof late);
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
    (void)number;
    free(make_kept(60));
    handled++;
}

// The main thread makes blocks of the site only, so what the handler makes of its own is as safe as
// anywhere.
static void signals(int count)
{
    void *held[256] = {NULL};
    for (unsigned i = 0; i < 256; i++)
        held[i] = make_kept(60);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &often, NULL);
    for (unsigned i = 0; handled < count; i++) {
        free(held[i % 256]);
        held[i % 256] = make_kept(60);
    }
    (void)setitimer(ITIMER_REAL, &never, NULL);
    for (unsigned i = 0; i < 256; i++)
        free(held[i]);
}

static void print_memory(void)
{
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "VmHWM:", 6) == 0 || strncmp(line, "VmRSS:", 6) == 0)
            fputs(line, stdout);
    if (status)
        fclose(status);
}

int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        const char *word = words[i];
        if (strcmp(word, "where") == 0)
            where();
        else if (strcmp(word, "batches") == 0)
            batches();
        else if (strcmp(word, "threads") == 0)
            threads();
        else if (strcmp(word, "grow") == 0)
            grow();
        else if (strcmp(word, "fork") == 0)
            in_child();
        else if (strcmp(word, "memory") == 0)
            print_memory();
        else if (strcmp(word, "pairs") == 0 && ++i < count)
            pairs(atoi(words[i]));
        else if (strcmp(word, "load") == 0 && ++i < count)
            load(words[i]);
        else if (strcmp(word, "late") == 0 && ++i < count)
            for (int k = atoi(words[i]); k > 0; k--)
                free(late(malloc)(70));
        else if (strcmp(word, "signals") == 0 && ++i < count)
            signals(atoi(words[i]));
        else
            return 2;
    }
    return 0;
}
