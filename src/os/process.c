/* The process and its threads: clocks, random numbers, the environment, the standard error stream,
 * futexes, abort, threads, their ends, and fork. See process.h, and base/host.h for the functions
 * host_...
 *
 * The state is the random key, the second descriptor of stderr, and the path of the file for
 * messages. Clocks, threads and fork use libc: the vDSO's functions, pthread's calls, keys and
 * atfork handlers, because only libc knows about these.
 *
 * The destructor of the key runs at the end of the thread, among the destructors of the program.
 * The key may be armed again while these run, and is then called again in the next of
 * PTHREAD_DESTRUCTOR_ITERATIONS rounds. pthread_setspecific may allocate for high key numbers, so a
 * thread has its heap before it is armed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* program_invocation_short_name */
#endif

#include "os/process.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/host.h"
#include "base/random.h"
#include "base/text.h"
#include "os/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* From linux/futex.h, because musl comes without the kernel's headers. */
#ifndef FUTEX_WAIT_PRIVATE
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };
#endif

extern char **environ;

/* A second descriptor of the file of stderr, and the identity of that file: a program that
 * closes all descriptors may get the same number for a file of its own. */
static struct {
    int descriptor;   /* const after os_keep_stderr; 0: none */
    struct stat file; /* const after os_keep_stderr */
} kept_stderr;

void os_keep_stderr(void)
{
    enum { FIRST = 500, SECOND = 10 }; /* above the numbers that programs usually choose */
    long copy = kernel_call(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, FIRST, 0, 0, 0);
    if (copy == -EINVAL) /* above the limit of descriptors */
        copy = kernel_call(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, SECOND, 0, 0, 0);
    if (kernel_failed(copy))
        return;
    if (kernel_call(SYS_fstat, copy, (long)&kept_stderr.file, 0, 0, 0, 0) == 0)
        kept_stderr.descriptor = (int)copy;
    else
        kernel_call(SYS_close, copy, 0, 0, 0, 0, 0);
}

/* The descriptor to write to when stderr is closed; negative if there is none. */
static int os_other_stderr(void)
{
    struct stat now;
    bool same = kept_stderr.descriptor > 0 &&
                kernel_call(SYS_fstat, kept_stderr.descriptor, (long)&now, 0, 0, 0, 0) == 0 &&
                now.st_dev == kept_stderr.file.st_dev && now.st_ino == kept_stderr.file.st_ino;
    return same ? kept_stderr.descriptor : -1;
}

static char report_path[REPORT_PATH_BYTES]; /* const after os_report_to; empty: stderr */

static int os_open_report(const char *path)
{
    return (int)kernel_call(SYS_openat, AT_FDCWD, (long)path,
                            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600,
                            0, 0);
}

seldom_called int os_report_to(const char *path, size_t length_bytes)
{
    char copy[REPORT_PATH_BYTES] = "";
    if (length_bytes == 0 || length_bytes >= sizeof copy || path[0] != '/')
        return -EINVAL;
    memcpy(copy, path, length_bytes);
    int descriptor = os_open_report(copy);
    if (descriptor < 0)
        return descriptor;
    kernel_call(SYS_close, descriptor, 0, 0, 0, 0, 0);
    memcpy(report_path, copy, sizeof copy);
    return 0;
}

static void os_write_text(int descriptor, const char *text, size_t length_bytes)
{
    while (length_bytes > 0) {
        long written = kernel_call(SYS_write, descriptor, (long)text, (long)length_bytes, 0, 0, 0);
        if (written == -EINTR)
            continue;
        if (written == -EBADF && descriptor == STDERR_FILENO) {
            descriptor = os_other_stderr();
            if (descriptor >= 0)
                continue;
        }
        if (written <= 0)
            return;
        text += written;
        length_bytes -= (size_t)written;
    }
}

void host_write_error(const char *text, size_t length_bytes)
{
    int file = report_path[0] != '\0' ? os_open_report(report_path) : -1;
    os_write_text(file >= 0 ? file : STDERR_FILENO, text, length_bytes);
    if (file >= 0)
        kernel_call(SYS_close, file, 0, 0, 0, 0, 0);
}

void host_wait(uint32_t *word, uint32_t seen)
{
    kernel_call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, (long)seen, 0, 0, 0);
}

void host_wake(uint32_t *word, uint32_t waiters)
{
    long most = waiters > INT32_MAX ? INT32_MAX : (long)waiters;
    kernel_call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, most, 0, 0, 0);
}

_Noreturn void host_abort(void) { abort(); }

bool os_claim(uint32_t *word, unsigned wait_ms)
{
    uint32_t process = os_process_id();
    for (unsigned waited = 0;; waited++) {
        uint32_t seen = load_relaxed(word);
        if (seen != process && compare_swap_acq_rel(word, &seen, process))
            return true;
        if (waited == wait_ms)
            return false;
        os_sleep_ms(1);
    }
}

void os_unclaim(uint32_t *word) { store_release(word, 0u); }

uint32_t os_process_id(void) { return (uint32_t)kernel_call(SYS_getpid, 0, 0, 0, 0, 0, 0); }

uint32_t os_parent_id(void) { return (uint32_t)kernel_call(SYS_getppid, 0, 0, 0, 0, 0, 0); }

const char *os_program_name(void)
{
    return program_invocation_short_name ? program_invocation_short_name : "";
}

uint64_t os_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now); /* through the vDSO; cannot fail for this clock */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t os_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t os_others_ran_us(void)
{
    struct timespec own;
    struct timespec all;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own); /* first, so that it is never more than `all` */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    return (uint64_t)(all.tv_sec - own.tv_sec) * 1000000 +
           (uint64_t)((all.tv_nsec - own.tv_nsec) / 1000);
}

/* libc's function, which tools that simulate a machine with more processors replace. */
unsigned os_processor_count(void)
{
    unsigned long set[8192 / 8 / sizeof(unsigned long)] = {0};
    int saved = errno;
    unsigned count = 0;
    if (sched_getaffinity(0, sizeof set, (cpu_set_t *)(void *)set) == 0)
        for (size_t i = 0; i < countof(set); i++)
            for (unsigned long bits = set[i]; bits != 0; bits &= bits - 1)
                count++;
    errno = saved;
    return count != 0 ? count : 1;
}

at_process_start uint64_t os_entropy(void)
{
    uint64_t value = 0;
    if (kernel_call(SYS_getrandom, (long)&value, sizeof value, 1 /* GRND_NONBLOCK */, 0, 0, 0) ==
        sizeof value)
        return value;
    /* The kernel's 16 random bytes for this process, mixed with the clock. */
    const uint64_t *random = (const uint64_t *)getauxval(AT_RANDOM);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (random ? random[0] : 0) ^ ((uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u);
}

/* The values of os_random are the numbers from `random_number` on, hashed with the key. A thread
 * that calls while another thread makes the key gets its value from the kernel. */
static struct random_key random_key; /* const once the state is RANDOM_KEYED */
static uint64_t random_number;       /* atomic: next number */
enum random_state { RANDOM_UNKEYED, RANDOM_KEYING, RANDOM_KEYED };
static uint8_t random_state; /* atomic: enum random_state */

/* Makes the key, if no other thread does.
 * Returns: whether the key can be used. */
static cold bool os_make_random_key(void)
{
    uint8_t state = RANDOM_UNKEYED;
    if (!compare_swap_acq_rel(&random_state, &state, (uint8_t)RANDOM_KEYING))
        return state == RANDOM_KEYED;
    random_key = (struct random_key){os_entropy(), os_entropy()};
    store_release(&random_state, (uint8_t)RANDOM_KEYED); /* release: pairs with os_random */
    return true;
}

at_process_start uint64_t os_random(void)
{
    uint8_t state = load_acquire(&random_state); /* acquire: pairs with os_make_random_key */
    if (unlikely(state != RANDOM_KEYED) && !os_make_random_key())
        return os_entropy();
    return random_keyed(&random_key, fetch_add_relaxed(&random_number, (uint64_t)1));
}

/* No two processes call this in the same nanosecond with the same number. */
void os_random_after_fork(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    fetch_add_relaxed(&random_number, ns << 16);
}

/* The name of the program is at the very end of the stack, which then is the end of all addresses,
 * a power of two. By chance that happens once in 2^18 processes. */
at_process_start bool os_places_are_fixed(void)
{
    enum { STACK_END_BYTES = 64 << 10 };
    return is_power_of_two(align_up(getauxval(AT_EXECFN), STACK_END_BYTES));
}

at_process_start bool os_is_secure(void) { return getauxval(AT_SECURE) != 0; }

at_process_start const char *os_environment(const char *name)
{
    if (environ == NULL)
        return NULL; /* libc is not ready */
    for (char **entry = environ; *entry; entry++) {
        size_t i = 0;
        while (name[i] && (*entry)[i] == name[i])
            i++;
        if (name[i] == '\0' && (*entry)[i] == '=')
            return *entry + i + 1;
    }
    return NULL;
}

int os_read_file(const char *path, char *text, size_t capacity_bytes)
{
    long file = kernel_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (kernel_failed(file))
        return (int)file;
    size_t length = 0;
    long got = 0;
    while (length < capacity_bytes - 1) {
        got = kernel_call(SYS_read, file, (long)(text + length),
                          (long)(capacity_bytes - 1 - length), 0, 0, 0);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    kernel_call(SYS_close, file, 0, 0, 0, 0, 0);
    text[length] = '\0';
    return kernel_failed(got) ? (int)got : (int)length;
}

void os_sleep_ms(unsigned milliseconds)
{
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    uint32_t unwoken = 0;
    kernel_call(SYS_futex, (long)&unwoken, FUTEX_WAIT_PRIVATE, 0, (long)&time, 0, 0);
}

uint64_t os_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* through the vDSO; cannot fail for this clock */
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t os_date_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec;
}

uint64_t os_ticks(void)
{
    uint64_t ticks;
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    ticks = (uint64_t)high << 32 | low;
#else
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
#endif
    return ticks;
}

uint64_t os_ticks_in_us(unsigned microseconds)
{
    uint64_t per_second = 2500000000; /* approximate: x86 has no register for it */
#if !defined(__x86_64__)
    __asm__("mrs %0, cntfrq_el0" : "=r"(per_second));
#endif
    return per_second / 1000000 * microseconds;
}

static pthread_key_t end_key; /* const after os_thread_end_register */
static bool end_key_made;     /* const after os_thread_end_register */

not_instrumented at_process_start bool os_has_thread_pointer(void)
{
    uintptr_t pointer = 0;
#if defined(__x86_64__)
    kernel_call(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, (long)&pointer, 0, 0, 0, 0);
#else
    pointer = thread_identity();
#endif
    return pointer != 0;
}

at_process_start int os_thread_end_register(os_thread_end *handler)
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
/* The function that pthread_atfork calls. pthread_atfork itself is not in libc.so: the linker
 * would place it behind all code of this library, where its few instructions would make a page
 * resident. */
extern int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
                             void *object);
extern void *__dso_handle hidden_data;
#endif

at_process_start int os_fork_register(void (*before)(void), void (*in_parent)(void),
                                      void (*in_child)(void))
{
#ifdef __GLIBC__
    return -__register_atfork(before, in_parent, in_child, &__dso_handle);
#else
    return -pthread_atfork(before, in_parent, in_child);
#endif
}

enum { STACK_BYTES = 256 << 10 }; /* only some pages of it are touched */

/* Signals 32, 33 and 34: libc uses them to cancel threads, to set the user ids of all threads,
 * and to end timers. setuid would wait for ever for a thread that blocks them. */
#define LIBC_SIGNALS ((uint64_t)7 << 31)

enum { MASK_BYTES = 8 };

uint64_t os_signals_block(void)
{
    uint64_t all = ~LIBC_SIGNALS, former = 0;
    kernel_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&former, MASK_BYTES, 0, 0);
    return former;
}

void os_signals_restore(uint64_t mask)
{
    kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, MASK_BYTES, 0, 0);
}

static struct {
    void (*body)(void);
    const char *name;
    uint64_t mask; /* signal mask of the starting thread */
} starting;        /* starting thread: one start at a time in a process; the new thread reads it */

/* The first thread stays in the process as a zombie until all others have ended. The file has the
 * state of the first thread and the number of threads:
 *
 *     number (name) state parent ... threads ...
 *
 * The name may contain any character, a parenthesis too. No later field contains one. */
bool os_is_last_thread(void)
{
    enum { STAT_BYTES = 512, FIELDS_BETWEEN = 17 };
    char text[STAT_BYTES];
    int length = os_read_file("/proc/self/stat", text, sizeof text);
    const char *at = text + (length > 0 ? length : 0);
    while (at > text && at[-1] != ')')
        at--;
    if (at == text || at[0] != ' ' || at[1] != 'Z')
        return false;
    for (unsigned field = 0; field < FIELDS_BETWEEN && *at != '\0'; field++) {
        at++;
        at += text_until(at, ' ');
    }
    return at[0] == ' ' && at[1] == '2' && at[2] == ' ';
}

static void *os_run(void *argument)
{
    void (*body)(void) = starting.body;
    uint64_t mask = starting.mask;
    (void)argument;
    kernel_call(SYS_prctl, PR_SET_NAME, (long)starting.name, 0, 0, 0, 0);
    body();
    if (os_is_last_thread()) /* exit handlers may start programs, which inherit the mask */
        os_signals_restore(mask);
    return NULL;
}

int os_thread_start(void (*body)(void), const char *name)
{
    int error;
    if (fault_strikes(&error))
        return error;
    pthread_attr_t attributes;
    pthread_t thread;
    starting.body = body;
    starting.name = name;
    error = pthread_attr_init(&attributes);
    if (error != 0)
        return -error;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    /* The new thread inherits the signal mask, so it is blocked from its first instruction on. */
    starting.mask = os_signals_block();
    error = pthread_create(&thread, &attributes, os_run, NULL);
    if (error == EINVAL) { /* the program has much static thread-local memory */
        (void)pthread_attr_setstacksize(&attributes, (size_t)8 << 20);
        error = pthread_create(&thread, &attributes, os_run, NULL);
    }
    os_signals_restore(starting.mask);
    return -error;
}

/* With musl, dlopen allocates while it holds a lock that pthread_create waits for. */
bool os_may_start_within_malloc(void)
{
#ifdef __GLIBC__
    return true;
#else
    return false;
#endif
}
