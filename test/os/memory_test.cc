// Address space and memory from the kernel, and memory faults.

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/stopped_thread.h"
#include "os/resident.h"

extern "C" {
#include "base/host.h"
#include "os/fault.h"
#include "os/memory.h"
#include "os/process.h"
}

namespace memory_test
{

// Address space and memory from the kernel.

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

bool all_bytes_are(const char *start, size_t size, char value)
{
    for (size_t i = 0; i < size; i++)
        if (start[i] != value)
            return false;
    return true;
}

// Number of resident pages of a range.
size_t resident(char *start, size_t size)
{
    std::vector<unsigned char> pages(size / kPage);
    EXPECT_EQ(mincore(start, size, pages.data()), 0);
    size_t count = 0;
    for (unsigned char page : pages)
        count += page & 1;
    return count;
}

TEST(Memory, PageSizeIsTheKernels)
{
    os_init();
    EXPECT_EQ(os_page_size(), kPage);
    os_init();
    EXPECT_EQ(os_page_size(), kPage);
}

TEST(Memory, MappedMemoryIsZeroAndWritable)
{
    char *start = static_cast<char *>(os_map(16 * kPage));
    ASSERT_NE(start, nullptr);
    EXPECT_TRUE(all_bytes_are(start, 16 * kPage, 0));
    memset(start, 1, 16 * kPage);
    EXPECT_EQ(os_unmap(start, 16 * kPage), 0);
}

TEST(Memory, KnowsWhatIsReadable)
{
    char *pages = static_cast<char *>(os_map(3 * kPage));
    ASSERT_NE(pages, nullptr);
    EXPECT_TRUE(os_is_readable(pages));
    EXPECT_TRUE(os_is_readable(pages + 3 * kPage - 8));
    EXPECT_EQ(os_protect(pages, kPage, OS_NONE), 0);
    EXPECT_EQ(os_unmap(pages + kPage, kPage), 0);
    EXPECT_FALSE(os_is_readable(pages + kPage - 8));
    EXPECT_FALSE(os_is_readable(pages + kPage));
    EXPECT_TRUE(os_is_readable(pages + 2 * kPage));
    EXPECT_EQ(os_unmap(pages, kPage), 0);
    EXPECT_EQ(os_unmap(pages + 2 * kPage, kPage), 0);
}

TEST(Memory, AReservationTakesTheHintIfItIsFree)
{
    char *start = static_cast<char *>(os_reserve(16 * kPage));
    ASSERT_NE(start, nullptr);
    char *elsewhere = static_cast<char *>(os_reserve_near(start, 16 * kPage));
    ASSERT_NE(elsewhere, nullptr);
    EXPECT_NE(elsewhere, start) << "the address is taken";
    EXPECT_EQ(os_unmap(start, 16 * kPage), 0);
    EXPECT_EQ(os_reserve_near(start, 16 * kPage), start);
    EXPECT_EQ(os_unmap(start, 16 * kPage), 0);
    EXPECT_EQ(os_unmap(elsewhere, 16 * kPage), 0);
}

TEST(MemoryDeathTest, ATrapHasNoMemoryAndFaults)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "the mincore of qemu-user refuses pages without access";
    char *start = static_cast<char *>(os_map(16 * kPage));
    ASSERT_NE(start, nullptr);
    memset(start, 1, 16 * kPage);
    ASSERT_EQ(os_trap(start + kPage, 14 * kPage), 0);
    EXPECT_EQ(resident(start, 16 * kPage), 2u);
    volatile char *inside = start + 3 * kPage;
    EXPECT_DEATH(*inside = 1, "");
    ASSERT_EQ(os_commit(start + kPage, 14 * kPage), 0);
    EXPECT_EQ(*inside, 0);
    EXPECT_EQ(os_unmap(start, 16 * kPage), 0);
}

TEST(MemoryDeathTest, ReservedIsNotUsableBeforeCommit)
{
    char *start = static_cast<char *>(os_reserve(16 * kPage));
    ASSERT_NE(start, nullptr);
    volatile char *first = start;
    EXPECT_DEATH(*first = 1, "");
    ASSERT_EQ(os_commit(start + kPage, kPage), 0);
    EXPECT_TRUE(all_bytes_are(start + kPage, kPage, 0));
    start[kPage] = 1;
    EXPECT_DEATH(first[2 * kPage] = 1, "");
    EXPECT_EQ(os_unmap(start, 16 * kPage), 0);
    EXPECT_DEATH(first[kPage] = 1, "");
}

TEST(MemoryDeathTest, ProtectionChanges)
{
    char *start = static_cast<char *>(os_map(kPage));
    ASSERT_NE(start, nullptr);
    start[0] = 7;
    volatile char *first = start;
    ASSERT_EQ(os_protect(start, kPage, OS_READ), 0);
    EXPECT_EQ(*first, 7);
    EXPECT_DEATH(*first = 1, "");
    ASSERT_EQ(os_protect(start, kPage, OS_NONE), 0);
    EXPECT_DEATH(_exit(*first), "");
    ASSERT_EQ(os_protect(start, kPage, OS_WRITE), 0);
    *first = 8;
    EXPECT_EQ(os_unmap(start, kPage), 0);
}

TEST(Memory, PurgedMemoryIsGoneAndZero)
{
    char *start = static_cast<char *>(os_map(8 * kPage));
    ASSERT_NE(start, nullptr);
    memset(start, 3, 8 * kPage);
    EXPECT_EQ(resident(start, 8 * kPage), 8u);
    ASSERT_EQ(os_purge(start + kPage, 4 * kPage), 0);
    EXPECT_EQ(resident(start, 8 * kPage), 4u);
    EXPECT_TRUE(all_bytes_are(start, kPage, 3));
    EXPECT_TRUE(all_bytes_are(start + kPage, 4 * kPage, 0));
    EXPECT_TRUE(all_bytes_are(start + 5 * kPage, 3 * kPage, 3));
    EXPECT_EQ(os_unmap(start, 8 * kPage), 0);
}

TEST(Memory, PopulateFaultsIn)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "qemu-user ignores MADV_POPULATE_WRITE";
    char *start = static_cast<char *>(os_map(8 * kPage));
    ASSERT_NE(start, nullptr);
    EXPECT_EQ(resident(start, 8 * kPage), 0u);
    const int error = os_populate(start, 8 * kPage);
    if (error == -EINVAL)
        GTEST_SKIP() << "the kernel is older than 5.14";
    EXPECT_EQ(error, 0);
    EXPECT_EQ(resident(start, 8 * kPage), 8u);
    EXPECT_EQ(os_unmap(start, 8 * kPage), 0);
}

TEST(Memory, ResizesInPlaceOnlyWhereThereIsRoom)
{
    char *start = static_cast<char *>(os_map(8 * kPage));
    ASSERT_NE(start, nullptr);
    memset(start, 4, 8 * kPage);
    ASSERT_EQ(os_resize(start, 8 * kPage, 2 * kPage), 0);
    ASSERT_EQ(os_resize(start, 2 * kPage, 6 * kPage), 0);
    EXPECT_TRUE(all_bytes_are(start, 2 * kPage, 4));
    EXPECT_TRUE(all_bytes_are(start + 2 * kPage, 4 * kPage, 0));
    // The first half cannot grow over the second, which is in use.
    ASSERT_EQ(os_protect(start + 3 * kPage, 3 * kPage, OS_READ), 0);
    EXPECT_EQ(os_resize(start, 3 * kPage, 5 * kPage), -ENOMEM);
    EXPECT_TRUE(all_bytes_are(start, 2 * kPage, 4));
    EXPECT_EQ(os_unmap(start, 6 * kPage), 0);
}

// The accesses of a thread to an address before it unmaps it happen before those of another thread
// that gets the address from the kernel. ThreadSanitizer must know this order, too, although it
// does not see the system calls.
TEST(Memory, GrowsToWhereAnotherThreadUnmapped)
{
    char *start = static_cast<char *>(os_map(4 * kPage));
    ASSERT_NE(start, nullptr);
    std::atomic<bool> gone{false};
    int grown = -1;
    std::thread other([&] {
        while (!gone.load(std::memory_order_relaxed))
            std::this_thread::yield();
        grown = os_resize(start, 2 * kPage, 4 * kPage);
        if (grown == 0)
            memset(start + 2 * kPage, 2, 2 * kPage);
    });
    memset(start + 2 * kPage, 1, 2 * kPage);
    EXPECT_EQ(os_unmap(start + 2 * kPage, 2 * kPage), 0);
    gone.store(true, std::memory_order_relaxed);
    other.join();
    EXPECT_EQ(grown, 0);
    EXPECT_EQ(os_unmap(start, 4 * kPage), 0);
}

bool is_mapped(char *start, size_t size)
{
    for (size_t at = 0; at < size; at += kPage) {
        unsigned char page;
        if (mincore(start + at, kPage, &page) != 0)
            return false;
    }
    return true;
}

TEST(Memory, MovesWithItsContents)
{
    char *from = static_cast<char *>(os_map(4 * kPage));
    ASSERT_NE(from, nullptr);
    ASSERT_TRUE(is_mapped(from, 4 * kPage));
    memset(from, 5, 4 * kPage);
    char *in_the_way = static_cast<char *>(os_reserve(kPage));
    char *to = static_cast<char *>(os_move(from, 4 * kPage, 1000 * kPage));
    ASSERT_NE(to, nullptr);
    EXPECT_TRUE(all_bytes_are(to, 4 * kPage, 5));
    EXPECT_TRUE(all_bytes_are(to + 4 * kPage, 996 * kPage, 0));
    EXPECT_TRUE(to == from || !is_mapped(from, kPage)) << "the old place is still mapped";
    EXPECT_EQ(os_unmap(to, 1000 * kPage), 0);
    EXPECT_EQ(os_unmap(in_the_way, kPage), 0);
}

TEST(Memory, MovesOntoAReservation)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "the mincore of qemu-user refuses pages without access";
    char *from = static_cast<char *>(os_map(4 * kPage));
    char *to = static_cast<char *>(os_reserve(4 * kPage));
    ASSERT_TRUE(from && to);
    memset(from, 5, 4 * kPage);
    ASSERT_EQ(os_protect(from, 4 * kPage, OS_NONE), 0);
    ASSERT_EQ(os_move_onto(from, 3 * kPage, to), OS_MOVED);
    EXPECT_EQ(os_commit(to, 4 * kPage), 0);
    EXPECT_TRUE(all_bytes_are(to, 3 * kPage, 5));
    EXPECT_TRUE(all_bytes_are(to + 3 * kPage, kPage, 0));
    EXPECT_TRUE(os_reserve_at(from, 3 * kPage)) << "the old place is still mapped";
    EXPECT_EQ(os_unmap(from, 4 * kPage), 0);
    EXPECT_EQ(os_unmap(to, 4 * kPage), 0);
}

TEST(Memory, MovesAndLeavesTheOldPlaceMapped)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "the mincore of qemu-user refuses pages without access";
    char *from = static_cast<char *>(os_map(4 * kPage));
    char *to = static_cast<char *>(os_reserve(4 * kPage));
    ASSERT_TRUE(from && to);
    memset(from, 5, 4 * kPage);
    const enum os_moved moved = os_move_leaving(from, 3 * kPage, to);
    if (moved == OS_KEPT) {
        EXPECT_TRUE(all_bytes_are(from, 4 * kPage, 5));
        EXPECT_TRUE(is_mapped(to, 4 * kPage));
    } else {
        ASSERT_EQ(moved, OS_MOVED);
        EXPECT_TRUE(all_bytes_are(to, 3 * kPage, 5));
        EXPECT_TRUE(is_mapped(from, 4 * kPage));
        EXPECT_TRUE(all_bytes_are(from, 3 * kPage, 0));
        EXPECT_TRUE(all_bytes_are(from + 3 * kPage, kPage, 5));
    }
    EXPECT_EQ(os_unmap(from, 4 * kPage), 0);
    EXPECT_EQ(os_unmap(to, 4 * kPage), 0);
}

// The kernel unmaps the destination of a fixed mremap before it refuses: another thread could map
// there, and would lose its mapping when the caller cleans up after the refusal.
TEST(Memory, ARefusedMoveLeavesTheDestinationReserved)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "the mincore of qemu-user refuses pages without access";
    char *from = static_cast<char *>(os_map(4 * kPage));
    char *to = static_cast<char *>(os_reserve(4 * kPage));
    ASSERT_TRUE(from && to);
    memset(from, 5, 4 * kPage);
    ASSERT_EQ(os_unmap(from, kPage), 0); // so that it cannot be moved
    EXPECT_EQ(os_move_onto(from, 4 * kPage, to), OS_KEPT);
    EXPECT_TRUE(is_mapped(to, 4 * kPage));
    EXPECT_EQ(os_move(from, 4 * kPage, 8 * kPage), nullptr);
    EXPECT_TRUE(all_bytes_are(from + kPage, 3 * kPage, 5));
    EXPECT_EQ(os_unmap(from, 4 * kPage), 0);
    EXPECT_EQ(os_unmap(to, 4 * kPage), 0);
}

// The program has protected a part of a block: newer kernels move several mappings at once, older
// ones refuse.
TEST(Memory, SeveralMappingsMoveTogetherOrNotAtAll)
{
    char *from = static_cast<char *>(os_map(4 * kPage));
    char *to = static_cast<char *>(os_reserve(4 * kPage));
    ASSERT_TRUE(from && to);
    memset(from, 5, 4 * kPage);
    ASSERT_EQ(os_protect(from + kPage, kPage, OS_READ), 0);
    const enum os_moved moved = os_move_onto(from, 4 * kPage, to);
    EXPECT_TRUE(moved == OS_MOVED || moved == OS_KEPT);
    EXPECT_TRUE(all_bytes_are(moved == OS_MOVED ? to : from, 4 * kPage, 5));
    EXPECT_TRUE(is_mapped(to, 4 * kPage));
    EXPECT_EQ(os_unmap(from, 4 * kPage), 0);
    EXPECT_EQ(os_unmap(to, 4 * kPage), 0);
}

TEST(Memory, AReservationReplacesNothing)
{
    char *start = static_cast<char *>(os_map(3 * kPage));
    ASSERT_NE(start, nullptr);
    memset(start, 5, 3 * kPage);
    EXPECT_FALSE(os_reserve_at(start, 3 * kPage));
    ASSERT_EQ(os_unmap(start + kPage, kPage), 0);
    EXPECT_FALSE(os_reserve_at(start, 3 * kPage)) << "only a part of the range is free";
    EXPECT_FALSE(is_mapped(start + kPage, kPage));
    EXPECT_TRUE(all_bytes_are(start, kPage, 5));
    EXPECT_TRUE(os_reserve_at(start + kPage, kPage));
    EXPECT_EQ(os_unmap(start, 3 * kPage), 0);
}

TEST(Memory, ResidentPagesAreCounted)
{
    const size_t size = 5000 * kPage;
    char *start = static_cast<char *>(os_map(size));
    ASSERT_NE(start, nullptr);
    (void)os_huge_pages(start, size, false);
    EXPECT_EQ(resident_in(start, size), 0u);
    for (size_t page : {0, 1, 2047, 2048, 4999})
        start[page * kPage] = 1;
    EXPECT_EQ(resident_in(start, size), 5 * kPage);
    EXPECT_EQ(os_unmap(start, size), 0);
    EXPECT_EQ(resident_in(start, size), 0u) << "refused";
}

TEST(Memory, FailureIsReturnedAndErrnoIsLeftAlone)
{
    errno = 12345;
    EXPECT_EQ(os_map(size_t{1} << 60), nullptr);
    EXPECT_EQ(os_reserve(size_t{1} << 60), nullptr);
    char *odd = reinterpret_cast<char *>(1);
    EXPECT_EQ(os_commit(odd, kPage), -EINVAL);
    EXPECT_EQ(os_unmap(odd, kPage), -EINVAL);
    EXPECT_EQ(os_purge(odd, kPage), -EINVAL);
    EXPECT_LT(os_resize(odd, kPage, 2 * kPage), 0);
    EXPECT_EQ(os_move(odd, kPage, kPage), nullptr);
    EXPECT_EQ(os_move_onto(odd, kPage, odd), OS_KEPT);
    EXPECT_EQ(errno, 12345);
}

TEST(Memory, HugePagesAndNamesAreWishes)
{
    char *start = static_cast<char *>(os_map(8 * kPage));
    ASSERT_NE(start, nullptr);
    for (bool wanted : {true, false}) {
        const int error = os_huge_pages(start, 8 * kPage, wanted);
        // a kernel without huge pages answers EINVAL
        EXPECT_TRUE(error == 0 || error == -EINVAL) << error;
    }
    errno = 12345;
    os_name(start, 8 * kPage, "cairn: test");
    EXPECT_EQ(errno, 12345);
    start[0] = 1;
    EXPECT_EQ(os_unmap(start, 8 * kPage), 0);
}

TEST(Memory, ADividedHugePageKeepsWhatIsInIt)
{
    const size_t huge = size_t{2} << 20;
    char *memory = static_cast<char *>(os_map(2 * huge));
    ASSERT_NE(memory, nullptr);
    auto start =
        reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(memory) + huge - 1) / huge * huge);
    (void)os_huge_pages(start, huge, true);
    memset(start, 3, huge);
    const int error = os_divide_huge_page(start + 5 * kPage, kPage);
    EXPECT_TRUE(error == 0 || error == -EINVAL) << error; // kernels before 5.4 answer EINVAL
    EXPECT_TRUE(all_bytes_are(start, huge, 3));
    EXPECT_EQ(os_purge(start + 5 * kPage, kPage), 0);
    EXPECT_EQ(resident_in(start, huge), huge - kPage);
    EXPECT_EQ(os_unmap(memory, 2 * huge), 0);
}

TEST(Memory, CallsOfTheKernelAreCounted)
{
    uint64_t before[OS_CALL_KINDS];
    memcpy(before, os_calls, sizeof before);
    char *start = static_cast<char *>(os_map(2 * kPage));
    ASSERT_NE(start, nullptr);
    EXPECT_EQ(os_protect(start, kPage, OS_READ), 0);
    EXPECT_EQ(os_purge(start, kPage), 0);
    EXPECT_EQ(os_resize(start, 2 * kPage, kPage), 0);
    EXPECT_EQ(os_unmap(start, kPage), 0);
    for (uint64_t kind = 0; kind < OS_CALL_KINDS; kind++)
        EXPECT_EQ(os_calls[kind], before[kind] + 1) << kind;
}

// Memory faults: the handler sees them, and a former handler gets the faults that are not Cairn's.

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

// How the access ended: 0, or the value that the handler left with. It is a function of its own,
// since values in registers are lost across sigsetjmp.
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

    // Runs the body in a child, since the handler stays for the life of a process.
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

// WCOREDUMP may be set in addition to the number of the signal.
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

// Such a handler returns, and counts on the repeated fault to end the process.
TEST_F(Trap, AFormerHandlerForOneSignalIsCalledOnce)
{
    const auto install = [](int flags) {
        struct sigaction former = {};
        former.sa_flags = static_cast<int>(SA_RESETHAND) | flags;
        if (flags != 0)
            former.sa_sigaction = [](int, siginfo_t *, void *) { (void)!write(2, "once;", 5); };
        else
            former.sa_handler = [](int) { (void)!write(2, "once;", 5); };
        check(sigaction(SIGSEGV, &former, nullptr) == 0 && os_catch_faults(see) == 0);
    };
    for (const int flags : {0, SA_SIGINFO}) {
        EXPECT_EXIT(
            {
                install(flags);
                *static_cast<volatile char *>(g_page) = 1;
            },
            by_fault, "^once;$");
        EXPECT_EXIT(
            {
                install(flags);
                raise(SIGSEGV);
                raise(SIGSEGV);
                _exit(1);
            },
            by_fault, "^once;$");
    }
}

TEST_F(Trap, OwnFaultsAreRepeatedUnderTheFormerHandler)
{
    in_child(
        [] {
            set_simple(former_simple);
            check(os_catch_faults(see) == 0);
            for (int round = 0; round < 3; round++) {
                const int way = way_of([] { (void)static_cast<volatile char *>(g_page)[8]; });
                check(way == 3 && g_calls == 1); // the handler is removed after the first fault
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
        GTEST_SKIP() << "faults are injected in debug builds";
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
        GTEST_SKIP() << "qemu-user before 8.1 does not report that a fault was a write";
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
            check(g_calls == 1); // a read fault is not resolved by it
        },
        exited(0));
}

// Sanitizers add many instructions of their own to each call.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStep = 7;
#else
constexpr size_t kStep = 1;
#endif

// Where os_catch_faults has returned, faults are caught, although another thread began to install
// the handler. That thread is stopped after its n-th instruction.
int catch_beside_another(size_t n)
{
    constexpr int kOver = 2;
    stopped_thread::StoppedThread first([] { (void)os_catch_faults(see); });
    if (!first.stop_after(n))
        _exit(kOver);
    std::atomic<int> status{-1};
    std::thread second([&] {
        const int error = os_catch_writes(open_page);
        struct sigaction now = {};
        sigaction(SIGSEGV, nullptr, &now);
        status = error == 0 && (now.sa_flags & SA_SIGINFO) != 0 ? 0 : 3;
    });
    for (int i = 0; i < 100 && status == -1; i++) // it may wait for the first one
        usleep(100);
    first.finish();
    second.join();
    return status;
}

TEST_F(Trap, TwoThreadsInstallTheHandler)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "needs x86-64's trap flag";
    int status = 0;
    for (size_t n = 0; status == 0; n += kStep) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(100);
            signal(SIGSEGV, SIG_DFL);
            _exit(catch_beside_another(n));
        }
        int end = -1;
        ASSERT_EQ(waitpid(child, &end, 0), child);
        status = WIFEXITED(end) ? WEXITSTATUS(end) : 1000;
        ASSERT_TRUE(status == 0 || (status == 2 && n > 30)) << status << " after " << n;
    }
}

// A child is forked while a thread of its parent is installing the handler.
TEST_F(Trap, AChildInstallsWhatItsParentHasBegun)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "needs x86-64's trap flag";
    bool stopped = true;
    for (size_t n = 0; stopped; n += 3 * kStep) {
        const pid_t parent = fork();
        if (parent == 0) {
            alarm(100);
            set_former(former);
            stopped_thread::StoppedThread first([] { (void)os_catch_faults(see); });
            if (!first.stop_after(n))
                _exit(2);
            if (fork() == 0) {
                alarm(100);
                const bool caught = os_catch_faults(see) == 0;
                const int way = way_of([] { *static_cast<volatile char *>(g_page) = 1; });
                _exit(caught && way == 2 && g_calls == 1 ? 0 : 1);
            }
            int end = -1;
            wait(&end);
            _exit(end == 0 ? 0 : 1);
        }
        int end = -1;
        ASSERT_EQ(waitpid(parent, &end, 0), parent);
        stopped = end == 0;
        ASSERT_TRUE(stopped || (end == exited(2) && n > 30)) << end << " after " << n;
    }
}

} // namespace memory_test
