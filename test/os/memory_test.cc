// Address space and memory as the kernel gives it.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "os/os.h"
}

namespace
{

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

bool all_bytes_are(const char *start, size_t size, char value)
{
    for (size_t i = 0; i < size; i++)
        if (start[i] != value)
            return false;
    return true;
}

// Pages of a range that are in memory.
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
    EXPECT_NE(elsewhere, start) << "it is taken";
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

// What a thread did at an address before it unmapped it comes before what another does there once
// the kernel has given it out anew: also to ThreadSanitizer, which does not see the calls.
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
// there, and lose what it mapped to whoever tidies up after the refusal.
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

// A part of a block that the program has protected: newer kernels move several mappings at once,
// older ones refuse.
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
    EXPECT_FALSE(os_reserve_at(start, 3 * kPage)) << "not where only a part is free";
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
    EXPECT_EQ(os_resident(start, size), 0u);
    for (size_t page : {0, 1, 2047, 2048, 4999})
        start[page * kPage] = 1;
    EXPECT_EQ(os_resident(start, size), 5 * kPage);
    EXPECT_EQ(os_unmap(start, size), 0);
    EXPECT_EQ(os_resident(start, size), 0u) << "refused";
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
        EXPECT_TRUE(error == 0 || error == -EINVAL) << error; // a kernel without them says EINVAL
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
    auto start = reinterpret_cast<char *>(
        (reinterpret_cast<uintptr_t>(memory) + huge - 1) / huge * huge);
    (void)os_huge_pages(start, huge, true);
    memset(start, 3, huge);
    const int error = os_divide_huge_page(start + 5 * kPage, kPage);
    EXPECT_TRUE(error == 0 || error == -EINVAL) << error; // kernels before 5.4 say EINVAL
    EXPECT_TRUE(all_bytes_are(start, huge, 3));
    EXPECT_EQ(os_purge(start + 5 * kPage, kPage), 0);
    EXPECT_EQ(os_resident(start, huge), huge - kPage);
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

} // namespace
