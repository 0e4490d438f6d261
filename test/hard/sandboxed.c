/* A program in a sandbox: a filter of system calls that ends the process, with the heap's calls
 * allowed by name. sandbox_test.py runs it.
 *
 * usage: sandboxed first|later CALL...
 *
 * `first`: the filter is installed before the program's first block; `later`: after its thousandth
 * block and with threads, of which some have a heap by then. The program then uses the heap in
 * every way until a decay interval is over, and exits with 0. At a call that is not allowed it
 * exits with 1 and prints the number of the call on stderr.
 */
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Makes the heap release memory while the program runs. */
__attribute__((visibility("default"))) const char *cairn_options = "decay_ms:20";

static const struct {
    const char *name;
    int number;
} known_calls[] = {
    {"mmap", SYS_mmap},         {"munmap", SYS_munmap},   {"mremap", SYS_mremap},
    {"mprotect", SYS_mprotect}, {"madvise", SYS_madvise}, {"futex", SYS_futex},
};

enum { THREADS = 4, LIVE = 400, MOST_CALLS = 16, RUN_MS = 150 };

static int *forbidden_call; /* shared with the parent */
static atomic_int started; /* number of threads */
static atomic_int filtered; /* threads wait for it */
static atomic_int finished; /* number of threads */
static void *_Atomic mailbox[LIVE];

static void stop_if(int condition)
{
    if (condition)
        abort(); /* its calls are forbidden, so the parent reports them */
}

static void at_forbidden(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    *forbidden_call = info->si_syscall;
    _exit(1);
}

/* Installs the filter. It traps where a sandbox would kill, so that the call can be reported. */
static int install(int count, char **names)
{
    struct sock_filter filter[2 * MOST_CALLS + 4];
    unsigned length = 0;
    if (count > MOST_CALLS)
        return -1;
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                    offsetof(struct seccomp_data, nr));
    for (int i = -1; i < count; i++) {
        int number = i < 0 ? SYS_exit_group : -1;
        for (size_t k = 0; i >= 0 && k < sizeof known_calls / sizeof known_calls[0]; k++)
            if (strcmp(known_calls[k].name, names[i]) == 0)
                number = known_calls[k].number;
        if (number < 0)
            return -1;
        struct sock_filter is_it = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1);
        filter[length++] = is_it;
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog program = {(unsigned short)length, filter};
    struct sigaction action = {.sa_sigaction = at_forbidden, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* through the vDSO */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void *filled(void *block, size_t size)
{
    stop_if(block == NULL && size != 0);
    return block == NULL ? NULL : memset(block, 1, size);
}

static void use_each_size(void)
{
    for (size_t size = 0; size <= (size_t)40 << 20; size = size < 16 ? size + 1 : size + size / 3) {
        free(filled(malloc(size), size));
        char *zero = calloc(1, size);
        for (size_t i = 0; i < size; i += 1000)
            stop_if(zero[i] != 0);
        free(filled(zero, size));
        if (size < (size_t)4 << 20)
            for (size_t alignment = 16; alignment <= (size_t)1 << 20; alignment *= 16)
                free(filled(memalign(alignment, size), size));
    }
}

static void use_realloc(void)
{
    char *first = NULL;
    char *second = NULL;
    for (size_t size = 1; size <= (size_t)96 << 20; size += size / 2 + 1) {
        first = filled(realloc(first, size), size);
        second = filled(realloc(second, size / 2 + 1), size / 2 + 1);
    }
    first = realloc(first, (size_t)40 << 20);
    free(realloc(first, 100));
    free(second);
}

/* Exchanges blocks among all threads, each of which frees blocks of the others. */
static void use_mailbox(unsigned seed)
{
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525 + 1013904223;
        size_t size = (seed >> 8) % 100 == 0 ? (seed >> 12) % 500000 : (seed >> 12) % 3000;
        void *block = filled(malloc(size), size);
        free(atomic_exchange(&mailbox[(seed >> 4) % LIVE], block));
    }
}

static void *thread(void *argument)
{
    unsigned number = *(unsigned *)argument;
    if (number % 2 == 0)
        free(filled(malloc(100), 100));
    started++;
    while (!filtered)
        continue;
    use_mailbox(number);
    finished++;
    for (;;) /* the end of a thread would need calls of libc */
        syscall(SYS_futex, &filtered, FUTEX_WAIT_PRIVATE, 1, NULL);
    return NULL;
}

static int run(int later, int count, char **names)
{
    static unsigned numbers[THREADS];
    static pthread_t threads[THREADS];
    static void *blocks[1000];
    if (later) {
        for (size_t i = 0; i < 1000; i++)
            blocks[i] = filled(malloc(i), i);
        for (unsigned i = 0; i < THREADS; i++) {
            numbers[i] = i;
            stop_if(pthread_create(&threads[i], NULL, thread, &numbers[i]) != 0);
        }
    }
    while (later && started < THREADS)
        continue;
    if (install(count, names) != 0)
        return 77;
    uint64_t until = now_ms() + RUN_MS;
    filtered = 1;
    use_each_size();
    use_realloc();
    use_mailbox(THREADS);
    for (size_t i = 0; later && i < 1000; i++)
        free(blocks[i]);
    while (later && finished < THREADS)
        continue;
    while (now_ms() < until)
        use_mailbox(THREADS);
    malloc_trim(0);
    use_each_size();
    return 0;
}

int main(int count, char **arguments)
{
    if (count < 2)
        return 2;
    forbidden_call = mmap(NULL, sizeof *forbidden_call, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *forbidden_call = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(run(strcmp(arguments[1], "later") == 0, count - 2, arguments + 2));
    int status = 0;
    waitpid(child, &status, 0);
    if (*forbidden_call >= 0)
        fprintf(stderr, "system call %d is not allowed\n", *forbidden_call);
    if (WIFSIGNALED(status))
        fprintf(stderr, "ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
