/* Memory faults: a SIGSEGV handler in front of whatever action the process had.
 *
 * A fault that is the handler's own is repeated: the former action is put back and the instruction
 * runs again, so that the process ends, or is looked after, as if nobody had listened. Every other
 * one is passed on at once. A write that the other handler resolves is just repeated. A program
 * that sets an action of its own later replaces this one. Async-signal-safe; libc's sigaction, for
 * the kernel's structure and return code differ by machine.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* REG_ERR */
#endif
#include "base/atomic.h"
#include "os/kernel.h"
#include "os/os.h"

#include <errno.h>
#include <signal.h>
#include <ucontext.h>

static struct sigaction former;         /* const once the handler is installed */
static os_fault_handler *fault_handler; /* atomic: written once, before or after installing */
static os_write_handler *write_handler; /* atomic: written once, before or after installing */
static bool installed;                  /* atomic: set by whoever installs */

#if defined(__aarch64__)
/* The kernel's records behind the registers: its signal context of arm64. One has the
 * exception syndrome: Arm ARM, D17.2.37, classes of data aborts and their bit WnR. Emulators may
 * leave it out. */
static enum os_fault_kind kind_by_syndrome(const mcontext_t *machine)
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

static struct os_fault describe(const siginfo_t *info, const void *context)
{
    struct os_fault fault = {.address = info->si_addr, .kind = OS_FAULT_UNKNOWN};
    const ucontext_t *machine = context;
#if defined(__x86_64__)
    enum { FAULT_WRITES = 2 }; /* of the page fault's error code: Intel SDM, volume 3, 4.7 */
    fault.kind =
        (machine->uc_mcontext.gregs[REG_ERR] & FAULT_WRITES) != 0 ? OS_FAULT_WRITE : OS_FAULT_READ;
    fault.instruction = (uintptr_t)machine->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    fault.kind = kind_by_syndrome(&machine->uc_mcontext);
    fault.instruction = machine->uc_mcontext.pc;
#endif
    return fault;
}

/* As the former action would have been called. */
static void pass_on(int number, siginfo_t *info, void *context, bool by_kernel)
{
    if ((former.sa_flags & SA_SIGINFO) != 0) {
        former.sa_sigaction(number, info, context);
    } else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
        former.sa_handler(number);
    } else if (by_kernel) { /* ends the process when repeated, also where it was to be ignored */
        struct sigaction standard = {.sa_handler = SIG_DFL};
        (void)sigaction(number, &standard, NULL);
    } else if (former.sa_handler == SIG_DFL) {
        (void)sigaction(number, &former, NULL);
        (void)raise(number); /* comes when this handler returns */
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    bool by_kernel = info->si_code > 0;
    struct os_fault fault = describe(info, context);
    os_fault_handler *report = load_acquire(&fault_handler);  /* pairs with os_catch_faults */
    os_write_handler *resolve = load_acquire(&write_handler); /* pairs with os_catch_writes */
    if (by_kernel && resolve && fault.kind != OS_FAULT_READ && resolve(fault.address))
        ;
    else if (by_kernel && report && report(&fault))
        (void)sigaction(number, &former, NULL);
    else
        pass_on(number, info, context, by_kernel);
    errno = saved;
}

static int install(void)
{
    if (exchange_acq_rel(&installed, true))
        return 0;
    if (sigaction(SIGSEGV, NULL, &former) != 0)
        return -errno;
    struct sigaction action = {.sa_flags =
                                   SA_SIGINFO | SA_ONSTACK | (former.sa_flags & SA_NODEFER)};
    action.sa_sigaction = on_fault;
    action.sa_mask = former.sa_mask;
    return sigaction(SIGSEGV, &action, NULL) == 0 ? 0 : -errno;
}

int os_catch_faults(os_fault_handler *handler)
{
    int error;
    if (fault_strikes(&error))
        return error;
    store_release(&fault_handler, handler); /* pairs with on_fault */
    return install();
}

int os_catch_writes(os_write_handler *handler)
{
    int error;
    if (fault_strikes(&error))
        return error;
    store_release(&write_handler, handler); /* pairs with on_fault */
    return install();
}
