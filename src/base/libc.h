/* Declarations of a new glibc's malloc.h, and others, for musl and for older glibc: the
 * functions of libcairn-malloc have the same names everywhere. */
#ifndef CAIRN_BASE_LIBC_H
#define CAIRN_BASE_LIBC_H

#include <dlfcn.h>
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>

/* Parameters of mallopt(3); the numbers are part of glibc's ABI. */
#ifndef M_MXFAST
enum {
    M_MXFAST = 1,
    M_TRIM_THRESHOLD = -1,
    M_TOP_PAD = -2,
    M_MMAP_THRESHOLD = -3,
    M_MMAP_MAX = -4,
    M_CHECK_ACTION = -5,
    M_PERTURB = -6,
    M_ARENA_TEST = -7,
    M_ARENA_MAX = -8,
};
#endif

#ifdef __GLIBC__
#define LIBC_HAS_MALLINFO2 __GLIBC_PREREQ(2, 33)
#else
#define LIBC_HAS_MALLINFO2 0
#endif

#if !LIBC_HAS_MALLINFO2
struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 mallinfo2(void);
#endif

#ifndef __GLIBC__
struct mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo mallinfo(void);
void *pvalloc(size_t size);
int malloc_trim(size_t keep);
int mallopt(int parameter, int value);
void malloc_stats(void);
int malloc_info(int options, FILE *stream);
#endif

/* A flag of dlopen that musl does not have. */
#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0
#endif

/* A function that `resolver` chooses when the library is loaded (IFUNC). The linker of musl does
 * not support IFUNC; there no code can allocate before the linker has finished, and `otherwise`
 * is enough. */
#ifdef __GLIBC__
#define resolved_by(resolver, otherwise) __attribute__((ifunc(resolver)))
#else
#define resolved_by(resolver, otherwise) __attribute__((alias(otherwise)))
#endif

#endif
