/* The process and its surroundings: clock, entropy, environment, stderr, futex, abort.
 * No state but a second descriptor of stderr and the file for reports, when they were asked for. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* program_invocation_short_name */
#endif

#include "base/bits.h"
#include "base/host.h"
#include "os/kernel.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* linux/futex.h; musl comes without the kernel's headers. */
#ifndef FUTEX_WAIT_PRIVATE
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };
#endif

extern char **environ;

/* A second descriptor of the file that is stderr, and which file that is: a program that closes
 * every descriptor may get the same number for a file of its own. */
static struct {
    int descriptor; /* const after os_keep_stderr; 0: there is none */
    struct stat file;
} kept_stderr;

void os_keep_stderr(void)
{
    enum { FIRST = 500, SECOND = 10 }; /* away from what programs number themselves */
    long copy = kernel_call(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, FIRST, 0, 0, 0);
    if (copy == -EINVAL) /* beyond the limit of descriptors */
        copy = kernel_call(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, SECOND, 0, 0, 0);
    if (kernel_failed(copy))
        return;
    if (kernel_call(SYS_fstat, copy, (long)&kept_stderr.file, 0, 0, 0, 0) == 0)
        kept_stderr.descriptor = (int)copy;
    else
        kernel_call(SYS_close, copy, 0, 0, 0, 0, 0);
}

/* Where to write when stderr is closed; negative when there is nowhere. */
static int other_stderr(void)
{
    struct stat now;
    bool same = kept_stderr.descriptor > 0 &&
                kernel_call(SYS_fstat, kept_stderr.descriptor, (long)&now, 0, 0, 0, 0) == 0 &&
                now.st_dev == kept_stderr.file.st_dev && now.st_ino == kept_stderr.file.st_ino;
    return same ? kept_stderr.descriptor : -1;
}

enum { REPORT_PATH_BYTES = 256 };

static char report_path[REPORT_PATH_BYTES]; /* empty: stderr */

static int open_report(const char *path)
{
    return (int)kernel_call(SYS_openat, AT_FDCWD, (long)path,
                            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600,
                            0, 0);
}

bool os_report_to(const char *path, size_t length_bytes)
{
    char copy[REPORT_PATH_BYTES] = "";
    if (length_bytes == 0 || length_bytes >= sizeof copy || path[0] != '/')
        return false;
    memcpy(copy, path, length_bytes);
    int descriptor = open_report(copy);
    if (descriptor < 0)
        return false;
    kernel_call(SYS_close, descriptor, 0, 0, 0, 0, 0);
    memcpy(report_path, copy, sizeof copy);
    return true;
}

static void write_text(int descriptor, const char *text, size_t length_bytes)
{
    while (length_bytes > 0) {
        long written = kernel_call(SYS_write, descriptor, (long)text, (long)length_bytes, 0, 0, 0);
        if (written == -EINTR)
            continue;
        if (written == -EBADF && descriptor == STDERR_FILENO) {
            descriptor = other_stderr();
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
    int file = report_path[0] != '\0' ? open_report(report_path) : -1;
    write_text(file >= 0 ? file : STDERR_FILENO, text, length_bytes);
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

uint32_t os_process_id(void) { return (uint32_t)kernel_call(SYS_getpid, 0, 0, 0, 0, 0, 0); }

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
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own); /* before: never more than all */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    return (uint64_t)(all.tv_sec - own.tv_sec) * 1000000 +
           (uint64_t)((all.tv_nsec - own.tv_nsec) / 1000);
}

uint64_t os_entropy(void)
{
    uint64_t value = 0;
    if (kernel_call(SYS_getrandom, (long)&value, sizeof value, 1 /* GRND_NONBLOCK */, 0, 0, 0) ==
        sizeof value)
        return value;
    /* The kernel's 16 random bytes for this process, stirred by the clock. */
    const uint64_t *random = (const uint64_t *)getauxval(AT_RANDOM);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (random ? random[0] : 0) ^ ((uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u);
}

at_process_start bool os_is_secure(void) { return getauxval(AT_SECURE) != 0; }

at_process_start const char *os_environment(const char *name)
{
    if (environ == NULL)
        return NULL; /* before libc is ready */
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
    kernel_call(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
}
