// Steps through malloc and free one machine instruction at a time and prints what was executed;
// check_fast_path.py compiles, runs and judges it.
//
//   fast_path_probe LIBRARY MALLOC FREE SIZE PAIRS [USABLE REALLOC CALLOC]
//
// A child opens the library, warms the heap up and then calls FREE(MALLOC(SIZE)) PAIRS times, with
// the others, USABLE and a REALLOC to the same size between and FREE(CALLOC(1, SIZE)) after; the
// parent steps it by ptrace. One line a call: "malloc", "free" or so, the bytes of stack that it
// used below its return address, and the executed instructions as offsets from the library's base
// ("?" for an instruction outside of the library's file).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP_PAIRS = 100000 };

typedef void *malloc_function(size_t);
typedef void free_function(void *);
typedef size_t usable_function(void *);
typedef void *realloc_function(void *, size_t);
typedef void *calloc_function(size_t, size_t);

struct target {
    malloc_function *malloc;
    free_function *free;
    usable_function *usable; // NULL: only the two
    realloc_function *realloc;
    calloc_function *calloc;
    uintptr_t base;
    size_t size_bytes;
    long pairs;
};

struct state {
    uintptr_t counter;
    uintptr_t stack;
    uintptr_t return_address; // valid at a function's first instruction only
};

// The library's clock does not move: a call takes milliseconds here, and a heap looks at the clock
// more often when its calls are rare.
int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    *now = (struct timespec){.tv_sec = 1000};
    return 0;
}

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "fast_path_probe: %s\n", what);
    exit(2);
}

static void run_pairs(const struct target *target, long pairs)
{
    for (long i = 0; i < pairs; i++) {
        void *block = target->malloc(target->size_bytes);
        if (target->usable) {
            target->usable(block);
            block = target->realloc(block, target->size_bytes);
            target->free(target->calloc(1, target->size_bytes));
        }
        target->free(block);
    }
}

static _Noreturn void child(const struct target *target)
{
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    run_pairs(target, WARM_UP_PAIRS);
    raise(SIGUSR1); // stepping begins
    run_pairs(target, target->pairs);
    raise(SIGUSR1); // and ends
    _exit(0);
}

static struct state read_state(pid_t pid)
{
    struct user_regs_struct registers;
    struct iovec span = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &span) != 0)
        fail("PTRACE_GETREGSET is refused");
#if defined(__x86_64__)
    long top = ptrace(PTRACE_PEEKDATA, pid, (void *)registers.rsp, NULL);
    return (struct state){registers.rip, registers.rsp, (uintptr_t)top};
#elif defined(__aarch64__)
    return (struct state){registers.pc, registers.sp, registers.regs[30]};
#else
#error "fast_path_probe knows x86-64 and aarch64"
#endif
}

// Executes one instruction; false at the child's second SIGUSR1.
static bool step(pid_t pid)
{
    int status;
    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid)
        fail("single-stepping is refused");
    if (!WIFSTOPPED(status))
        fail("the child died");
    return WSTOPSIG(status) != SIGUSR1;
}

// Steps through one call and prints it.
static void trace_call(pid_t pid, const char *name, struct state entry, const struct target *target)
{
    static uintptr_t path[1000000];
    size_t length = 0;
    uintptr_t lowest_stack = entry.stack;
    struct state now = entry;
    while (now.counter != entry.return_address) {
        if (length < sizeof path / sizeof path[0])
            path[length++] = now.counter;
        if (now.stack < lowest_stack)
            lowest_stack = now.stack;
        if (!step(pid))
            fail("a call did not return");
        now = read_state(pid);
    }
    printf("%s %" PRIuPTR, name, entry.stack - lowest_stack);
    for (size_t i = 0; i < length; i++) {
        Dl_info place;
        if (dladdr((void *)path[i], &place) && (uintptr_t)place.dli_fbase == target->base)
            printf(" %" PRIxPTR, path[i] - target->base);
        else
            printf(" ?");
    }
    printf("\n");
}

static void trace(pid_t pid, const struct target *target)
{
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGUSR1)
        fail("the child did not come to its measured part");
    while (step(pid)) {
        struct state state = read_state(pid);
        if (state.counter == (uintptr_t)target->malloc)
            trace_call(pid, "malloc", state, target);
        else if (state.counter == (uintptr_t)target->free)
            trace_call(pid, "free", state, target);
        else if (state.counter == (uintptr_t)target->usable)
            trace_call(pid, "usable", state, target);
        else if (state.counter == (uintptr_t)target->realloc)
            trace_call(pid, "realloc", state, target);
        else if (state.counter == (uintptr_t)target->calloc)
            trace_call(pid, "calloc", state, target);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 9)
        fail("usage: fast_path_probe LIBRARY MALLOC FREE SIZE PAIRS [USABLE REALLOC CALLOC]");
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library)
        fail(dlerror());
    struct target target = {
        .malloc = (malloc_function *)dlsym(library, argv[2]),
        .free = (free_function *)dlsym(library, argv[3]),
        .size_bytes = strtoul(argv[4], NULL, 10),
        .pairs = strtol(argv[5], NULL, 10),
    };
    if (argc == 9) {
        target.usable = (usable_function *)dlsym(library, argv[6]);
        target.realloc = (realloc_function *)dlsym(library, argv[7]);
        target.calloc = (calloc_function *)dlsym(library, argv[8]);
        if (!target.usable || !target.realloc || !target.calloc)
            fail(dlerror());
    }
    if (!target.malloc || !target.free)
        fail(dlerror());
    Dl_info place;
    if (!dladdr((void *)target.malloc, &place))
        fail("dladdr");
    target.base = (uintptr_t)place.dli_fbase;

    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0)
        child(&target);
    trace(pid, &target);
    return 0;
}
