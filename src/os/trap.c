/* os_catch_faults and os_catch_writes (process.h): a SIGSEGV handler in front of the action that
 * the process had before.
 *
 * If the fault handler returns true, the fault is repeated: the former action is restored and the
 * instruction runs again, so that the process ends, or handles the fault, as without this handler.
 * If the write handler returns true, the instruction runs again. All other faults are passed to the
 * former action at once. A program that later sets an action of its own replaces this one.
 *
 * Async-signal-safe. Uses sigaction of libc, because the kernel's structure and its return code
 * differ between machines.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* REG_ERR */
#endif

#include "base/atomic.h"
#include "os/kernel.h"
#include "os/process.h"

#include <errno.h>
#include <signal.h>
#include <ucontext.h>

static struct sigaction former;         /* const once the handler is installed */
static os_fault_handler *fault_handler; /* atomic: written once, before or after the installation */
static os_write_handler *write_handler; /* atomic: written once, before or after the installation */

/* Twice the number of the process whose thread is installing the handler, or one of these. */
enum { NOT_INSTALLED = 0, INSTALLED = 1 };
static uint32_t installation; /* atomic */

#if defined(__aarch64__)
/* Finds the kind of access in the kernel's records behind the registers, in the signal context
 * of arm64. One record has the exception syndrome: Arm ARM, D17.2.37, classes of data aborts and
 * their bit WnR. Emulators may omit it. */
static enum os_fault_kind os_kind_by_syndrome(const mcontext_t *machine)
{
    enum { SYNDROME_MAGIC = 0x45535201, DATA_ABORT = 0x24, WRITES = 1 << 6 };
    struct record {
        uint32_t magic, size_bytes;
        uint64_t syndrome;
    };
    const char *at = (const char *)machine->__reserved;
    const char *end = at + sizeof machine->__reserved;
    while ((size_t)(end - at) >= sizeof(struct record)) {
        const struct record *record = (const void *)at;
        if (record->magic == SYNDROME_MAGIC && (record->syndrome >> 26 & 63) == DATA_ABORT)
            return (record->syndrome & WRITES) != 0 ? OS_FAULT_WRITE : OS_FAULT_READ;
        if (record->magic == 0 || record->size_bytes == 0 ||
            record->size_bytes > (size_t)(end - at))
            break;
        at += record->size_bytes;
    }
    return OS_FAULT_UNKNOWN;
}
#endif

/* The fault that a signal frame describes. */
static struct os_fault os_describe(const siginfo_t *info, const void *context)
{
    struct os_fault fault = {.address = info->si_addr, .kind = OS_FAULT_UNKNOWN};
    const ucontext_t *machine = context;
#if defined(__x86_64__)
    enum { FAULT_WRITES = 2 }; /* bit of the page fault's error code: Intel SDM, volume 3, 4.7 */
    fault.kind =
        (machine->uc_mcontext.gregs[REG_ERR] & FAULT_WRITES) != 0 ? OS_FAULT_WRITE : OS_FAULT_READ;
    fault.instruction = (uintptr_t)machine->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    fault.kind = os_kind_by_syndrome(&machine->uc_mcontext);
    fault.instruction = machine->uc_mcontext.pc;
#endif
    return fault;
}

/* atomic: whether a former action for one signal only (SA_RESETHAND) was called; then it is over */
static bool former_called;

static const struct sigaction standard = {.sa_handler = SIG_DFL};

/* Calls the former action as the kernel would have called it. */
static void os_pass_on(int number, siginfo_t *info, void *context, bool by_kernel)
{
    bool is_function = former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN;
    bool is_over = is_function && (former.sa_flags & (int)SA_RESETHAND) != 0 &&
                   exchange_acq_rel(&former_called, true);
    if (is_function && !is_over && (former.sa_flags & SA_SIGINFO) != 0) {
        former.sa_sigaction(number, info, context);
    } else if (is_function && !is_over) {
        former.sa_handler(number);
    } else if (by_kernel || is_over || former.sa_handler == SIG_DFL) {
        /* ends the process when the fault is repeated, even if it was to be ignored */
        (void)sigaction(number, &standard, NULL);
        if (!by_kernel)
            (void)raise(number); /* is delivered when this handler returns */
    }
}

static void os_on_fault(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    bool by_kernel = info->si_code > 0;
    struct os_fault fault = os_describe(info, context);
    /* acquire: pairs with os_catch_faults */
    os_fault_handler *report = load_acquire(&fault_handler);
    /* acquire: pairs with os_catch_writes */
    os_write_handler *resolve = load_acquire(&write_handler);
    if (by_kernel && resolve && fault.kind != OS_FAULT_READ && resolve(fault.address))
        ;
    else if (by_kernel && report && report(&fault))
        (void)sigaction(number, load_relaxed(&former_called) ? &standard : &former, NULL);
    else
        os_pass_on(number, info, context, by_kernel);
    errno = saved;
}

/* Begins the installation, or waits until another thread of this process has ended it. In the child
 * of a fork no thread ends what one of the parent's began.
 * Returns: false if the handler is installed. */
static bool os_begin_installation(void)
{
    uint32_t mine = 2 * os_process_id();
    for (;;) {
        uint32_t seen = load_acquire(&installation); /* acquire: pairs with os_install */
        if (seen == INSTALLED)
            return false;
        if (seen != mine && compare_swap_acq_rel(&installation, &seen, mine))
            return true;
        os_sleep_ms(1);
    }
}

/* Installs the handler unless that was done before.
 * Returns: 0 or a negative errno. */
static int os_install(void)
{
    if (!os_begin_installation())
        return 0;
    struct sigaction now;
    int error = sigaction(SIGSEGV, NULL, &now) == 0 ? 0 : -errno;
    bool is_there = error == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
                    now.sa_sigaction == os_on_fault; /* a thread of the parent did it */
    if (error == 0 && !is_there) {
        former = now;
        struct sigaction action = {.sa_flags =
                                       SA_SIGINFO | SA_ONSTACK | (now.sa_flags & SA_NODEFER)};
        action.sa_sigaction = os_on_fault;
        action.sa_mask = now.sa_mask;
        error = sigaction(SIGSEGV, &action, NULL) == 0 ? 0 : -errno;
    }
    /* release: pairs with os_begin_installation */
    store_release(&installation, error == 0 ? (uint32_t)INSTALLED : (uint32_t)NOT_INSTALLED);
    return error;
}

int os_catch_faults(os_fault_handler *handler)
{
    int error;
    if (fault_strikes(&error))
        return error;
    store_release(&fault_handler, handler); /* release: pairs with os_on_fault */
    return os_install();
}

int os_catch_writes(os_write_handler *handler)
{
    int error;
    if (fault_strikes(&error))
        return error;
    store_release(&write_handler, handler); /* release: pairs with os_on_fault */
    return os_install();
}
