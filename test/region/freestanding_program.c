// A program without libc, start files and system headers that runs on a TLSF heap.
// dev/check_freestanding.sh builds it. Everything that TLSF's core needs is defined here.
#include <stddef.h>
#include <stdint.h>

#include "base/host.h"
#include "cairn/tlsf.h"
#include "region/tlsf.h"

enum { HEAP_BYTES = 128 * 1024, SLOTS = 100, STEPS = 200000 };

#if defined(__x86_64__)
enum { CALL_WRITE = 1, CALL_EXIT = 60 };
static long system_call(long number, long first, const void *second, long third)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}
#define ENTRY __attribute__((force_align_arg_pointer))
#elif defined(__aarch64__)
enum { CALL_WRITE = 64, CALL_EXIT = 93 };
static long system_call(long number, long first, const void *second, long third)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = first;
    register const void *x1 __asm__("x1") = second;
    register long x2 __asm__("x2") = third;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
#define ENTRY
#endif

static _Noreturn void end(int status)
{
    for (;;)
        system_call(CALL_EXIT, status, NULL, 0);
}

// The functions that compilers call.
void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);

void *memmove(void *to, const void *from, size_t size)
{
    char *target = to;
    const char *source = from;
    if ((uintptr_t)target - (uintptr_t)source >= size)
        for (size_t i = 0; i < size; i++)
            ((volatile char *)target)[i] = source[i];
    else
        for (size_t i = size; i > 0; i--)
            ((volatile char *)target)[i - 1] = source[i - 1];
    return to;
}
void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    return memmove(to, from, size);
}
void *memset(void *to, int value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((volatile char *)to)[i] = (char)value;
    return to;
}

// The functions that TLSF calls.
static int failures;
void host_write_error(const char *text, size_t length_bytes)
{
    system_call(CALL_WRITE, 2, text, (long)length_bytes);
}
_Noreturn void host_abort(void) { end(134); }
void host_note_no_memory(void) { failures++; }
void host_note_invalid(void) { failures++; }

static _Alignas(64) char memory[HEAP_BYTES];

static int run(void)
{
    cairn_tlsf *heap = cairn_tlsf_init(memory, sizeof memory);
    if (heap == NULL)
        return 4;
    static char *slots[SLOTS];
    uint64_t random = 1;
    for (int step = 0; step < STEPS; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        char **slot = &slots[(random >> 33) % SLOTS];
        size_t size = 1 + (random >> 20) % 4096;
        if (step % 3 == 0) {
            cairn_tlsf_free(heap, *slot);
            *slot = step % 2 == 0 ? cairn_tlsf_alloc_zero(heap, size)
                                  : cairn_tlsf_alloc_aligned(heap, size, 64);
        } else if (step % 3 == 1) {
            char *resized = cairn_tlsf_realloc(heap, *slot, size);
            *slot = resized != NULL ? resized : *slot;
        } else {
            cairn_tlsf_free(heap, *slot);
            *slot = NULL;
        }
        if (*slot != NULL)
            memset(*slot, step, cairn_tlsf_usable(heap, *slot));
        if (step % 1000 == 0 && cairn_tlsf_check(heap) != NULL)
            return 1;
    }
    if (failures == 0)
        return 3; // the heap is too small for this load
    return cairn_tlsf_check(heap) == NULL ? 0 : 2;
}

void _start(void);
ENTRY void _start(void) { end(run()); }
