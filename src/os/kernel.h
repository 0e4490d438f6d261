/* System calls without libc, only for os/. The return value is the kernel's, a negative errno on
 * failure.
 *
 * Source of the conventions: syscall(2), "Architecture calling conventions".
 */
#ifndef CAIRN_OS_KERNEL_H
#define CAIRN_OS_KERNEL_H

#include "base/compiler.h"

#include <sys/syscall.h>

#if defined(__x86_64__)
inline_always long kernel_call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
inline_always long kernel_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#endif

/* Whether the result of a call is a negative errno. */
inline_always bool kernel_failed(long result)
{
    return (unsigned long)result > (unsigned long)-4096L;
}

/* Returns: 0, or the negative errno of a call that failed. */
inline_always int kernel_result(long result) { return kernel_failed(result) ? (int)result : 0; }

/* Whether the plan of os_fault_plan lets this call fail; then `*error` is its negative errno. */
bool fault_strikes(int *error);

#endif
