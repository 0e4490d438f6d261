// A program with its own malloc, calloc, realloc and free, the set that libc requires (glibc's
// manual, "Replacing malloc"). The other functions of the family that are built on these must call
// those of the program. The blocks of this malloc are in an array of its own, so no other allocator
// can free them.

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) char memory[64 << 20];
static size_t used;
// volatile: libc's headers tell the compiler that its functions do not call back
static volatile int mallocs, reallocs, frees;

static size_t *size_of(void *pointer) { return (size_t *)(void *)((char *)pointer - 16); }

static bool is_own(const void *pointer)
{
    return (const char *)pointer >= memory && (const char *)pointer < memory + sizeof memory;
}

void *malloc(size_t size)
{
    mallocs++;
    if (size > sizeof memory / 2)
        return NULL;
    size_t space = 16 + (size + 15) / 16 * 16;
    size_t at = __atomic_fetch_add(&used, space, __ATOMIC_RELAXED);
    if (at + space > sizeof memory)
        return NULL;
    void *block = memory + at + 16;
    *size_of(block) = size;
    return block;
}

void free(void *pointer)
{
    if (pointer == NULL)
        return;
    frees++;
    if (!is_own(pointer)) {
        static const char text[] = "own_malloc: free of another allocator's block\n";
        fwrite(text, 1, sizeof text - 1, stderr);
        abort();
    }
}

void *calloc(size_t count, size_t size)
{
    size_t total;
    return __builtin_mul_overflow(count, size, &total) ? NULL : malloc(total);
}

void *realloc(void *pointer, size_t size)
{
    reallocs++;
    void *block = malloc(size);
    if (block && pointer)
        memcpy(block, pointer, *size_of(pointer) < size ? *size_of(pointer) : size);
    return block;
}

#define check(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "own_malloc.c:%d: %s\n", __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(void)
{
    char *text = strdup("of the program's malloc");
    check(is_own(text));

    reallocs = 0;
    text = reallocarray(text, 100, 30);
    check(reallocs == 1 && is_own(text) && strcmp(text, "of the program's malloc") == 0);
    void *fresh = reallocarray(NULL, 100, 30);
    check(reallocs == 2 && is_own(fresh));
    free(fresh);
    errno = 0;
    volatile size_t huge = SIZE_MAX / 2;
    check(reallocarray(text, huge, 3) == NULL && errno == ENOMEM && reallocs == 2);

    // Functions of C23, which an older libc lacks.
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(NULL, "free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))dlsym(NULL, "free_aligned_sized");
    frees = 0;
    if (free_sized) {
        free_sized(text, 3000);
        check(frees == 1);
        free_sized(malloc(10), 10);
        check(frees == 2);
    }
    if (free_aligned_sized) {
        frees = 0;
        free_aligned_sized(malloc(64), 16, 64);
        check(frees == 1);
    }

    // The aligned functions are not built on those four. A program that needs them defines them;
    // otherwise it gets blocks from the allocator that has them, as under libc alone.
    mallocs = 0;
    void *aligned = NULL;
    check(posix_memalign(&aligned, 256, 1000) == 0 && (uintptr_t)aligned % 256 == 0);
    memset(aligned, 1, 1000);
    aligned = aligned_alloc(128, 1024);
    check(aligned && (uintptr_t)aligned % 128 == 0);
    memset(aligned, 1, 1024);
    aligned = memalign(64, 100);
    check(aligned && (uintptr_t)aligned % 64 == 0 && malloc_usable_size(aligned) >= 100);
    aligned = valloc(100);
    check(aligned && (uintptr_t)aligned % 4096 == 0 && malloc_usable_size(aligned) >= 100);
    aligned = pvalloc(100);
    check(aligned && (uintptr_t)aligned % 4096 == 0 && malloc_usable_size(aligned) >= 4096);
    check(mallocs == 0 && reallocs == 2);

    // Allocations by libc itself.
    char *line = NULL;
    check(asprintf(&line, "%d lines", 12) == 8 && is_own(line));
    free(line);
    return 0;
}
