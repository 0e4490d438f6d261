// Memory faults: the handler sees them, and what was there before looks after them.

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

extern "C" {
#include "os/os.h"
}

namespace
{

char *g_page; // inaccessible
const void *volatile g_seen;
volatile os_fault_kind g_kind;
volatile int g_calls;
sigjmp_buf g_back;

bool see(const struct os_fault *fault)
{
    g_calls = g_calls + 1;
    g_seen = fault->address;
    g_kind = fault->kind;
    errno = 77;
    return fault->address == g_page + 8;
}

void former(int, siginfo_t *info, void *) { siglongjmp(g_back, info->si_addr == g_page ? 2 : 1); }
void former_simple(int) { siglongjmp(g_back, 3); }

// How the access ended: 0 or what the handler left with. By itself, for what a function has in
// registers when it calls sigsetjmp is lost.
template <typename Access> __attribute__((noinline)) int way_of(Access access)
{
    const int way = sigsetjmp(g_back, 1);
    if (way == 0)
        access();
    return way;
}

class Trap : public testing::Test
{
  protected:
    void SetUp() override
    {
        g_page = static_cast<char *>(os_reserve(os_page_size()));
        ASSERT_NE(g_page, nullptr);
        g_calls = 0;
    }

    // In a child: the handler stays for the life of a process.
    template <typename Body> void in_child(Body body, int status)
    {
        EXPECT_EXIT(
            {
                body();
                _exit(g_failed ? 1 : 0);
            },
            [status](int end) { return end == status; }, "");
    }

    static void check(bool condition)
    {
        if (!condition)
            g_failed = true;
    }

    static void set_former(void (*action)(int, siginfo_t *, void *))
    {
        struct sigaction former = {};
        former.sa_sigaction = action;
        former.sa_flags = SA_SIGINFO;
        check(sigaction(SIGSEGV, &former, nullptr) == 0);
    }
    static void set_simple(void (*action)(int)) { check(signal(SIGSEGV, action) != SIG_ERR); }

    static inline bool g_failed;
};

constexpr int exited(int code) { return code << 8; }

// WCOREDUMP may be set beside the signal's number.
bool by_fault(int end) { return WIFSIGNALED(end) && WTERMSIG(end) == SIGSEGV; }

TEST_F(Trap, ForeignFaultsGoToTheFormerHandler)
{
    in_child(
        [] {
            set_former(former);
            check(os_catch_faults(see) == 0);
            for (int round = 0; round < 3; round++) {
                const int way = way_of([] { *static_cast<volatile char *>(g_page) = 1; });
                check(way == 2 && g_calls == round + 1 && g_seen == g_page);
                check(g_kind == OS_FAULT_WRITE || g_kind == OS_FAULT_UNKNOWN);
            }
        },
        exited(0));
}

TEST_F(Trap, OwnFaultsAreRepeatedUnderTheFormerHandler)
{
    in_child(
        [] {
            set_simple(former_simple);
            check(os_catch_faults(see) == 0);
            for (int round = 0; round < 3; round++) {
                const int way = way_of([] { (void)static_cast<volatile char *>(g_page)[8]; });
                check(way == 3 && g_calls == 1); // ours is gone after the first
                check(g_kind == OS_FAULT_READ || g_kind == OS_FAULT_UNKNOWN);
            }
        },
        exited(0));
}

TEST_F(Trap, WithoutAFormerHandlerTheProcessEndsAsEver)
{
    for (const int offset : {0, 8})
        EXPECT_EXIT(
            {
                signal(SIGSEGV, SIG_DFL);
                if (os_catch_faults(see) != 0)
                    _exit(1);
                static_cast<volatile char *>(g_page)[offset] = 1;
            },
            by_fault, "");
}

TEST_F(Trap, ASentSignalIsNoFault)
{
    EXPECT_EXIT(
        {
            signal(SIGSEGV, SIG_DFL);
            if (os_catch_faults(see) == 0)
                raise(SIGSEGV);
            _exit(1);
        },
        by_fault, "");
    in_child(
        [] {
            set_simple(SIG_IGN);
            check(os_catch_faults(see) == 0);
            check(raise(SIGSEGV) == 0 && g_calls == 0);
        },
        exited(0));
    in_child(
        [] {
            set_simple(former_simple);
            check(os_catch_faults(see) == 0);
            const int way = way_of([] { raise(SIGSEGV); });
            check(way == 3 && g_calls == 0);
        },
        exited(0));
}

TEST_F(Trap, AnIgnoredFaultStillEndsTheProcess)
{
    EXPECT_EXIT(
        {
            signal(SIGSEGV, SIG_IGN);
            if (os_catch_faults(see) == 0)
                *static_cast<volatile char *>(g_page) = 1;
            _exit(1);
        },
        by_fault, "");
}

TEST_F(Trap, RefusalIsToldAndChangesNothing)
{
    if (!config_debug)
        GTEST_SKIP() << "no fault injection in release builds";
    in_child(
        [] {
            set_simple(former_simple);
            os_fault_plan(0, 1, ENOMEM);
            check(os_catch_faults(see) == -ENOMEM);
            os_fault_plan(0, 0, 0);
            struct sigaction now = {};
            check(sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_handler == former_simple);
        },
        exited(0));
}

// Makes the page writable.
bool open_page(const void *address)
{
    const char *at = static_cast<const char *>(address);
    return at >= g_page && at < g_page + os_page_size() &&
           os_protect(g_page, os_page_size(), OS_WRITE) == 0;
}

TEST_F(Trap, AWriteThatIsResolvedIsRepeated)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "qemu-user before 8.1 does not say that a fault was a write";
    in_child(
        [] {
            set_former(former);
            check(os_protect(g_page, os_page_size(), OS_READ) == 0);
            check(os_catch_writes(open_page) == 0);
            check(os_catch_faults(see) == 0);
            *static_cast<volatile char *>(g_page) = 5;
            check(g_calls == 0 && *g_page == 5);
            check(os_protect(g_page, os_page_size(), OS_NONE) == 0);
            check(way_of([] { (void)*static_cast<volatile char *>(g_page); }) == 2);
            check(g_calls == 1); // a read is not its business
        },
        exited(0));
}

} // namespace
