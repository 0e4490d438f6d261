/* Marks for AddressSanitizer and Valgrind: see memory_marks.h. */
#include "base/memory_marks.h"

#include "base/atomic.h"

/* AddressSanitizer's interface (sanitizer/asan_interface.h), absent in programs without it. */
extern void __asan_poison_memory_region(const volatile void *start, size_t size_bytes)
    __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *start, size_t size_bytes)
    __attribute__((weak));

/* Requests of Valgrind's core and of memcheck (valgrind.h, memcheck.h). */
enum {
    VALGRIND_RUNNING = 0x1001,
    MEMCHECK_NOACCESS = ('M' << 24) | ('C' << 16),
    MEMCHECK_UNDEFINED,
    MEMCHECK_DEFINED,
};

/* Makes a request by the instruction sequence that Valgrind recognises. On the processor it rotates
 * a register by a full circle.
 * Returns: 0 outside of Valgrind. */
static uintptr_t memory_marks_valgrind_request(uintptr_t request, uintptr_t first, uintptr_t second)
{
    volatile uintptr_t arguments[6] = {request, first, second};
    uintptr_t result = 0;
#if defined(__x86_64__)
    __asm__ volatile(
        "rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
        : "+d"(result)
        : "a"(arguments)
        : "cc", "memory");
#elif defined(__aarch64__)
    register uintptr_t x3 __asm__("x3") = result;
    register volatile uintptr_t *x4 __asm__("x4") = arguments;
    __asm__ volatile("ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61; "
                     "orr x10, x10, x10"
                     : "+r"(x3)
                     : "r"(x4)
                     : "cc", "memory");
    result = x3;
#endif
    return result;
}

static bool memory_marks_on_valgrind(void)
{
    static uint8_t known; /* atomic: 0 not known yet, 1 no, 2 yes */
    uint8_t answer = load_relaxed(&known);
    if (answer == 0) {
        answer = memory_marks_valgrind_request(VALGRIND_RUNNING, 0, 0) != 0 ? 2 : 1;
        store_relaxed(&known, answer);
    }
    return answer == 2;
}

bool memory_marks_active(void)
{
    return __asan_poison_memory_region != NULL || memory_marks_on_valgrind();
}

void mark_inaccessible(const void *start, size_t size_bytes)
{
    if (__asan_poison_memory_region)
        __asan_poison_memory_region(start, size_bytes);
    if (memory_marks_on_valgrind())
        memory_marks_valgrind_request(MEMCHECK_NOACCESS, (uintptr_t)start, size_bytes);
}

void mark_undefined(const void *start, size_t size_bytes)
{
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(start, size_bytes);
    if (memory_marks_on_valgrind())
        memory_marks_valgrind_request(MEMCHECK_UNDEFINED, (uintptr_t)start, size_bytes);
}

void mark_defined(const void *start, size_t size_bytes)
{
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(start, size_bytes);
    if (memory_marks_on_valgrind())
        memory_marks_valgrind_request(MEMCHECK_DEFINED, (uintptr_t)start, size_bytes);
}
