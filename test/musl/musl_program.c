// A program of musl's with libcairn-malloc.a or, with PRELOADED, with libcairn-malloc.so in
// LD_PRELOAD: the malloc family and C++'s operators (by their mangled names: Debian has no C++
// library for musl), threads that free each other's blocks, fork.

#include <cairn/heap.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void *_Znwm(size_t size);
void *_ZnwmSt11align_val_t(size_t size, size_t alignment);
void _ZdlPv(void *pointer);
void *pvalloc(size_t size);
void *reallocarray(void *pointer, size_t count, size_t size);

#ifdef PRELOADED
#pragma weak cairn_mallinfo2
#pragma weak cairn_malloc_trim
#pragma weak _Znwm
#pragma weak _ZnwmSt11align_val_t
#pragma weak _ZdlPv
#pragma weak pvalloc
#endif

enum { THREADS = 4, BLOCKS = 2000, ROUNDS = 5 };

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "musl_program: not so: %s\n", what);
    exit(1);
}
#define REQUIRE(condition) require(condition, #condition)

static size_t size_of(size_t i) { return i % 100 == 0 ? 300000 : i % 10 == 0 ? 20000 : i; }

static void the_family(void)
{
    size_t before = cairn_mallinfo2().uordblks;
    char *block = malloc(5000);
    REQUIRE(block != NULL);
    REQUIRE(cairn_mallinfo2().uordblks >= before + 5000); // it is Cairn's
    memset(block, 7, 5000);
    block = realloc(block, 90000);
    REQUIRE(block != NULL && block[0] == 7 && block[4999] == 7);
    free(block);
    char *zeros = calloc(1000, 10);
    REQUIRE(zeros != NULL && zeros[0] == 0 && zeros[9999] == 0);
    REQUIRE(malloc_usable_size(zeros) >= 10000);
    free(zeros);
    void *aligned = NULL;
    REQUIRE(posix_memalign(&aligned, 4096, 100) == 0 && (uintptr_t)aligned % 4096 == 0);
    free(aligned);
    aligned = aligned_alloc(256, 1024);
    REQUIRE(aligned != NULL && (uintptr_t)aligned % 256 == 0);
    free(aligned);
    aligned = pvalloc(1);
    REQUIRE(aligned != NULL && (uintptr_t)aligned % 4096 == 0);
    free(aligned);
    volatile size_t too_many = SIZE_MAX / 2;
    errno = 0;
    REQUIRE(malloc(too_many) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(reallocarray(NULL, too_many, 4) == NULL && errno == ENOMEM);
    void *object = _Znwm(40);
    REQUIRE(object != NULL);
    _ZdlPv(object);
    object = _ZnwmSt11align_val_t(40, 128);
    REQUIRE(object != NULL && (uintptr_t)object % 128 == 0);
    _ZdlPv(object);
    char *text = strdup("from libc itself");
    REQUIRE(text != NULL && strcmp(text, "from libc itself") == 0);
    free(text);
}

static void *blocks[THREADS][BLOCKS];

static void *fill(void *which)
{
    size_t own = (size_t)(uintptr_t)which;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[own][i] = malloc(size_of(i));
        if (blocks[own][i] != NULL)
            memset(blocks[own][i], (int)own + 1, size_of(i));
    }
    return NULL;
}

static void *empty(void *which)
{
    size_t other = ((size_t)(uintptr_t)which + 1) % THREADS;
    for (size_t i = 0; i < BLOCKS; i++) {
        const char *bytes = blocks[other][i];
        REQUIRE(bytes != NULL);
        REQUIRE(size_of(i) == 0 || bytes[size_of(i) - 1] == (char)(other + 1));
        free(blocks[other][i]);
    }
    return NULL;
}

static void in_threads(void *(*work)(void *))
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
}

static void a_child_goes_on(void)
{
    in_threads(fill);
    pid_t child = fork();
    if (child == 0) {
        in_threads(empty);
        the_family();
        _exit(0);
    }
    int status = 1;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    in_threads(empty);
}

int main(void)
{
    alarm(200);
#ifdef PRELOADED
    REQUIRE(cairn_mallinfo2 != NULL && cairn_malloc_trim != NULL && _Znwm != NULL);
    REQUIRE(dlopen(NULL, RTLD_NOW) != NULL); // the library defines it, too
#endif
    the_family();
    for (int round = 0; round < ROUNDS; round++) {
        in_threads(fill);
        in_threads(empty);
    }
    a_child_goes_on();
    cairn_malloc_trim(0);
    REQUIRE(cairn_mallinfo2().uordblks < 1 << 20);
    puts("musl: all as it should be");
    return 0;
}
