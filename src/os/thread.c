/* Threads, their ends and fork, through pthread's calls, keys and atfork handlers: libc alone knows
 * of these.
 *
 * The key's destructor runs at the thread's end, among those of the program; it may be armed again
 * while they run, and then is called again in the next of PTHREAD_DESTRUCTOR_ITERATIONS rounds.
 * pthread_setspecific may allocate for high key numbers, so a thread has its heap before it is
 * armed.
 */
#include "os/kernel.h"
#include "os/os.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

static pthread_key_t end_key; /* const after os_thread_end_register */
static bool end_key_made;     /* const after os_thread_end_register */

/* A sanitizer's runtime is not there yet either. */
__attribute__((no_sanitize("address", "thread", "undefined"))) at_process_start bool
os_has_thread_pointer(void)
{
    uintptr_t pointer = 0;
#if defined(__x86_64__)
    kernel_call(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, (long)&pointer, 0, 0, 0, 0);
#else
    pointer = thread_identity();
#endif
    return pointer != 0;
}

int os_thread_end_register(os_thread_end *handler)
{
    int error;
    if (fault_strikes(&error))
        return error;
    error = pthread_key_create(&end_key, handler);
    end_key_made = error == 0;
    return -error;
}

int os_thread_end_arm(void *value)
{
    if (!end_key_made)
        return -EAGAIN;
    return -pthread_setspecific(end_key, value);
}

#ifdef __GLIBC__
/* What pthread_atfork calls. That one is no part of libc.so: it would be linked behind all code of
 * ours, and the pages there would be resident for its four instructions. */
extern int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
                             void *object);
extern void *__dso_handle hidden_data;
#endif

int os_fork_register(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
#ifdef __GLIBC__
    return -__register_atfork(before, in_parent, in_child, &__dso_handle);
#else
    return -pthread_atfork(before, in_parent, in_child);
#endif
}

enum { STACK_BYTES = 256 << 10 }; /* of it some pages are touched */

/* 32, 33 and 34: by these libc cancels threads, sets the ids of all, and ends timers; setuid would
 * wait for ever for a thread that blocks them. */
#define LIBC_SIGNALS ((uint64_t)7 << 31)

static struct {
    void (*body)(void);
    const char *name;
} starting; /* who starts; one at a time in a process, read by the new thread before it is told */

static void *run(void *argument)
{
    void (*body)(void) = starting.body;
    (void)argument;
    kernel_call(SYS_prctl, PR_SET_NAME, (long)starting.name, 0, 0, 0, 0);
    body();
    return NULL;
}

int os_thread_start(void (*body)(void), const char *name)
{
    enum { MASK_BYTES = 8 };
    int error;
    if (fault_strikes(&error))
        return error;
    pthread_attr_t attributes;
    pthread_t thread;
    uint64_t all = ~LIBC_SIGNALS;
    uint64_t before = 0;
    starting.body = body;
    starting.name = name;
    error = pthread_attr_init(&attributes);
    if (error != 0)
        return -error;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    /* The thread has its parent's mask from its first instruction on. */
    kernel_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&before, MASK_BYTES, 0, 0);
    error = pthread_create(&thread, &attributes, run, NULL);
    if (error == EINVAL) { /* a program with much static thread-local memory */
        (void)pthread_attr_setstacksize(&attributes, (size_t)8 << 20);
        error = pthread_create(&thread, &attributes, run, NULL);
    }
    kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, MASK_BYTES, 0, 0);
    return -error;
}

/* musl's dlopen allocates under a lock that pthread_create waits for. */
bool os_may_start_within_malloc(void)
{
#ifdef __GLIBC__
    return true;
#else
    return false;
#endif
}
