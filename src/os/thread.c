/* Thread ends and fork, through pthread keys and atfork handlers: libc alone knows of both.
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

static pthread_key_t end_key; /* const after os_thread_end_register */
static bool end_key_made;     /* const after os_thread_end_register */

/* A sanitizer's runtime is not there yet either. */
__attribute__((no_sanitize("address", "thread", "undefined"))) bool os_has_thread_pointer(void)
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

int os_fork_register(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    return -pthread_atfork(before, in_parent, in_child);
}
