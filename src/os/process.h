/* The process and its environment: clocks, random numbers, the environment, control groups,
 * threads, fork, memory faults (SIGSEGV), the standard error stream. memory.h has the contract
 * of all functions in os/. */
#ifndef CAIRN_OS_PROCESS_H
#define CAIRN_OS_PROCESS_H

#include "base/compiler.h"

uint64_t os_now_ms(void); /* monotonic clock, milliseconds, coarse */
uint64_t os_now_ns(void); /* monotonic clock, nanoseconds */
uint64_t os_date_s(void); /* seconds since 1970 */

/* The counter of the processor that runs this thread: the fastest clock. The counters of other
 * processors may differ. */
uint64_t os_ticks(void);

/* About the number of ticks of os_ticks in the given time. */
uint64_t os_ticks_in_us(unsigned microseconds);
uint64_t os_now_us(void);        /* monotonic clock, microseconds */
uint64_t os_others_ran_us(void); /* CPU time of the process's other threads */

/* The number of processors that may run the process, at least 1. */
unsigned os_processor_count(void);

/* A random value from the kernel, by a system call at each call. */
uint64_t os_entropy(void);

/* An unpredictable random value, derived from a key that the kernel provides at the first call.
 * Later calls make no system call. */
uint64_t os_random(void);

/* Called in the child of a fork, so that its values of os_random differ from its parent's. */
void os_random_after_fork(void);

/* Whether the kernel starts all programs at the same addresses, as it does for debuggers and under
 * `setarch -R`. */
bool os_places_are_fixed(void);

/* Whether the program has more rights than its caller (set-uid and similar), so that the
 * environment must not be trusted. */
bool os_is_secure(void);

/* The value of an environment variable, NULL if it is not set or libc is not ready. */
const char *os_environment(const char *name);

/* The limits of the control group, 0 for none, and how long some task has waited for memory, in
 * the whole system and in the group; 0 where the files are missing. */
struct os_group {
    size_t max_bytes;         /* memory.max, or memory.limit_in_bytes of version 1 */
    size_t high_bytes;        /* memory.high */
    uint64_t system_stall_us; /* since the start of the system */
    uint64_t group_stall_us;  /* since the start of the group */
};

/* Reads the state of the process's control group. `root` is prefixed to the paths of its files:
 * "", except in tests and where the files of the host are elsewhere.
 * Returns: false when the group's name cannot be read. */
bool os_read_group(const char *root, struct os_group *group);

/* Reads a small file as text with a final zero byte, cut to the capacity.
 * Returns: the length or a negative errno. */
int os_read_file(const char *path, char *text, size_t capacity_bytes);

/* Sleeps. Uses the futex call, which a sandbox has to allow for the locks anyway. */
void os_sleep_ms(unsigned milliseconds);

/* The process id. */
uint32_t os_process_id(void);

/* The id of the parent process, another one once the parent has ended. */
uint32_t os_parent_id(void);

/* The longest wait for a claim where a caller waits at all. */
enum { OS_CLAIM_MS = 1000 };

/* Claims a word, which one thread has at a time; waits for it at most `wait_ms`. The word is the
 * process of the thread that has it, or 0. A claim holds in one process only: the child of a fork
 * ignores its parent's. Acquire: pairs with os_unclaim. Async-signal-safe.
 * Returns: false if another thread still has it. */
bool os_claim(uint32_t *word, unsigned wait_ms);

/* Ends a claim. Release: pairs with os_claim. */
void os_unclaim(uint32_t *word);

/* The name of the program without its folder. */
const char *os_program_name(void);

/* Makes messages reach the file of stderr even after the program has closed stderr, as some
 * programs do at their end. Uses a descriptor, which is closed by exec.
 * Threads: one, once in a process. */
void os_keep_stderr(void);

enum { REPORT_PATH_BYTES = 256 }; /* of the file of messages, with the final zero byte */

/* Appends messages to a file instead of stderr; falls back to stderr when the file cannot be
 * opened. The file is opened for each message. `path` is absolute and has no final zero byte.
 * Threads: one, before other threads exist.
 * Returns: 0; -EINVAL when the path is too long or relative; or the negative errno of the open. */
int os_report_to(const char *path, size_t length_bytes);

uint32_t os_thread_id(void); /* the kernel's thread id, as tools show it */

/* Whether thread-local words can be used. Not in the ifunc resolvers of a static program. */
bool os_has_thread_pointer(void);

/* A function that is called at the end of a thread, with the value of os_thread_end_arm. */
typedef void os_thread_end(void *value);

/* Sets the handler for ends of threads, once in a process.
 * Returns: 0 or a negative errno. */
int os_thread_end_register(os_thread_end *handler);

/* Makes the end of the calling thread call the handler with `value`. libc may allocate.
 * Returns: 0 or a negative errno. */
int os_thread_end_arm(void *value);

/* Registers fork handlers with libc, which may allocate.
 * Returns: 0 or a negative errno. */
int os_fork_register(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));

/* Blocks all signals of the calling thread except those of libc.
 * Returns: the former mask, for os_signals_restore. */
uint64_t os_signals_block(void);
void os_signals_restore(uint64_t mask);

/* Starts a detached thread in which all signals except those of libc are blocked, with a name for
 * tools. libc allocates. One call at a time in a process. If `body` returns in the last thread of
 * the process, the thread gets the signal mask of its starter, and libc calls exit(0).
 * Returns: 0 or a negative errno. */
int os_thread_start(void (*body)(void), const char *name);

/* Whether the calling thread is the only one that lives: the first thread has ended, and so has
 * any other. Reads /proc/self/stat; false if it cannot be read. */
bool os_is_last_thread(void);

/* Whether a thread may be started from within malloc's slow path. Not where the lock of the
 * dynamic linker would be taken twice. */
bool os_may_start_within_malloc(void);

/* The access that caused a memory fault (SIGSEGV). */
enum os_fault_kind { OS_FAULT_READ, OS_FAULT_WRITE, OS_FAULT_UNKNOWN };

/* A memory fault: the address and kind of the access, and the address of the instruction. */
struct os_fault {
    const void *address;
    enum os_fault_kind kind;
    uintptr_t instruction;
};

/* A handler for memory faults, async-signal-safe. The handler returns true if it has dealt with the
 * fault, which is then repeated under the former action. */
typedef bool os_fault_handler(const struct os_fault *fault);

/* Sets the handler for memory faults, once in a process.
 * Returns: 0 or a negative errno. */
int os_catch_faults(os_fault_handler *handler);

/* A handler for writes to pages that are read-only for a while, async-signal-safe, called before
 * the other handler. The handler returns true if the page is now writable; then the instruction is
 * repeated. */
typedef bool os_write_handler(const void *address);

/* Sets the handler for writes, once in a process.
 * Returns: 0 or a negative errno. */
int os_catch_writes(os_write_handler *handler);

#endif
