// The kinds of dirty tracking: the kind that was requested is used, and the writes that each kind
// can find.

#include "region/persist_kit.h"

#include <fcntl.h>
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <thread>

extern "C" {
#include "os/memory.h"
}

namespace persist_dirty_test
{

using namespace persist;

class Dirty : public testing::TestWithParam<cairn_persist_tracking>
{
  protected:
    void SetUp() override
    {
        page_ = os_page_size();
        heap_ = open_heap(directory_.file(), Options().by(GetParam()));
        if (heap_ == nullptr && errno == ENOTSUP)
            GTEST_SKIP() << "this kernel does not track dirty pages this way";
        ASSERT_NE(heap_, nullptr);
    }
    void TearDown() override { cairn_persist_close(heap_); }

    size_t dirty()
    {
        size_t pages = SIZE_MAX;
        EXPECT_EQ(cairn_persist_count_dirty(heap_, &pages), 0);
        return pages;
    }

    Directory directory_;
    cairn_persist *heap_ = nullptr;
    size_t page_ = 0;
};

TEST_P(Dirty, IsTheWayThatWasAskedFor) { EXPECT_EQ(stats_of(heap_).tracking, GetParam()); }

TEST_P(Dirty, ThousandsOfScatteredPages)
{
    constexpr size_t kPages = 3000;
    char *block = allocate(heap_, 2 * kPages * page_, page_);
    ASSERT_NE(block, nullptr);
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", block), 0);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    for (size_t i = 0; i < kPages; i++)
        block[2 * i * page_] = 1;
    EXPECT_EQ(dirty(), kPages);
    EXPECT_EQ(dirty(), kPages) << "pages that were found are not committed";
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_EQ(dirty(), 0u);
}

// Pages that were only read are not reported, also next to written pages and directly after growth.
TEST_P(Dirty, WhatWasOnlyReadIsNotFound)
{
    constexpr size_t kPages = 700;
    char *block = allocate(heap_, kPages * page_, page_);
    block[0] = 1;
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    unsigned sum = 0;
    for (size_t i = 0; i < kPages; i++)
        sum += static_cast<volatile unsigned char *>(static_cast<void *>(block))[i * page_];
    EXPECT_EQ(sum, 1u);
    EXPECT_EQ(dirty(), 0u);
    block[5 * page_] = block[600 * page_] = 1;
    EXPECT_EQ(dirty(), 2u);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    ASSERT_EQ(cairn_persist_grow(heap_, stats_of(heap_).size_bytes + 100 * page_), 0);
    EXPECT_LE(dirty(), 8u) << "the allocator wrote a few pages";
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_EQ(dirty(), 0u);
}

// The kernel writes to the heap during a system call. PROTECT cannot see such a write, so the call
// fails there.
TEST_P(Dirty, SystemCallsThatWriteToTheHeap)
{
    char *block = allocate(heap_, 3 * page_, page_);
    memset(block, 1, 3 * page_);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    const int zero = open("/dev/zero", O_RDONLY);
    const ssize_t got = read(zero, block + page_, 100);
    close(zero);
    if (GetParam() == CAIRN_PERSIST_PROTECT) {
        EXPECT_EQ(got, -1);
        return;
    }
    EXPECT_EQ(got, 100);
    EXPECT_EQ(dirty(), 1u);
}

// Threads write during commits: nothing is lost, the last commit has every write.
TEST_P(Dirty, WritesBesideCommitsAreNotLost)
{
    constexpr size_t kPages = 64;
    char *block = allocate(heap_, kPages * page_, page_);
    memset(block, 0, kPages * page_);
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", block), 0);
    std::atomic<bool> stop{false};
    std::vector<uint64_t> counts(kPages);
    std::thread writer([&] {
        for (size_t i = 0; !stop; i++) {
            const size_t at = i * 37 % kPages;
            __atomic_store_n(reinterpret_cast<uint64_t *>(block + at * page_), ++counts[at],
                             __ATOMIC_RELAXED);
        }
    });
    for (int i = 0; i < 60; i++)
        EXPECT_EQ(cairn_persist_commit(heap_), 0);
    stop = true;
    writer.join();
    EXPECT_EQ(cairn_persist_commit(heap_), 0);
    copy_files(directory_.file(), directory_.file("copy"));
    cairn_persist *copy = open_heap(directory_.file("copy"));
    ASSERT_NE(copy, nullptr);
    const char *found = static_cast<char *>(cairn_persist_get_root(copy, "block"));
    for (size_t at = 0; at < kPages; at++) {
        uint64_t count;
        memcpy(&count, found + at * page_, sizeof count);
        EXPECT_EQ(count, counts[at]) << "page " << at;
    }
    cairn_persist_close(copy);
}

INSTANTIATE_TEST_SUITE_P(Ways, Dirty, testing::ValuesIn(kWays),
                         [](const auto &way) { return kWayNames[way.param]; });

// The handler of a signal may interrupt a commit anywhere, and its own writes are found, too.
TEST_P(Dirty, ASignalHandlerWritesDuringCommits)
{
    if (config_tsan)
        GTEST_SKIP() << "ThreadSanitizer calls the handlers of signals at other moments";
    static char *volatile g_block;
    static volatile size_t g_page_bytes, g_writes;
    constexpr size_t kPages = 64;
    g_writes = 0;
    g_page_bytes = page_;
    g_block = allocate(heap_, kPages * page_, page_);
    ASSERT_NE(g_block, nullptr);
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", g_block), 0);
    struct sigaction action = {}, former;
    action.sa_handler = [](int) {
        const size_t write = g_writes;
        auto *page = reinterpret_cast<volatile size_t *>(g_block + write % kPages * g_page_bytes);
        *page = *page + 1;
        g_writes = write + 1;
    };
    ASSERT_EQ(sigaction(SIGALRM, &action, &former), 0);
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {};
    ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
    for (int round = 0; round < 300; round++)
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
    while (g_writes < 1000)
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
    ASSERT_EQ(setitimer(ITIMER_REAL, &never, nullptr), 0);
    ASSERT_EQ(sigaction(SIGALRM, &former, nullptr), 0);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_EQ(dirty(), 0u);
    ASSERT_EQ(cairn_persist_close(heap_), 0);
    heap_ = open_heap(directory_.file(), Options().by(GetParam()));
    ASSERT_NE(heap_, nullptr);
    auto *block = static_cast<char *>(cairn_persist_get_root(heap_, "block"));
    size_t found = 0;
    for (size_t i = 0; i < kPages; i++)
        found += *reinterpret_cast<size_t *>(block + i * page_);
    EXPECT_EQ(found, g_writes);
}

TEST_P(Dirty, AnotherHeapIsOpenedAndClosedBesideWrites)
{
    char *block = allocate(heap_, 64 * page_, page_);
    ASSERT_NE(block, nullptr);
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", block), 0);
    std::atomic<bool> ends{false};
    std::thread writer([&] {
        for (size_t i = 0; !ends; i++)
            __atomic_store_n(reinterpret_cast<size_t *>(block + i % 64 * page_), i,
                             __ATOMIC_RELAXED);
    });
    const Directory other;
    for (int round = 0; round < 100; round++) {
        cairn_persist *second = open_heap(other.file(), Options().by(GetParam()));
        EXPECT_NE(second, nullptr);
        EXPECT_EQ(cairn_persist_commit(heap_), 0); // the writer's next writes are faults
        EXPECT_EQ(cairn_persist_close(second), 0);
    }
    ends = true;
    writer.join();
}

TEST(DirtyAuto, TakesTheFirstThatWorks)
{
    Directory directory;
    cairn_persist *heap = open_heap(directory.file());
    ASSERT_NE(heap, nullptr);
    const cairn_persist_tracking best = stats_of(heap).tracking;
    cairn_persist_close(heap);
    for (cairn_persist_tracking way : kWays) {
        heap = open_heap(directory.file(), Options().by(way));
        if (heap != nullptr) {
            EXPECT_EQ(way, best);
            cairn_persist_close(heap);
            return;
        }
        EXPECT_EQ(errno, ENOTSUP);
    }
}

} // namespace persist_dirty_test
