// Commit: committed data survives a crash and other data does not, with each kind of dirty
// tracking.

#include "region/persist_kit.h"

#include <sys/wait.h>

#include <atomic>
#include <thread>

extern "C" {
#include "os/memory.h"
}

namespace persist_commit_test
{

using namespace persist;

class Commit : public testing::TestWithParam<cairn_persist_tracking>
{
  protected:
    void SetUp() override
    {
        const char *why = nullptr;
        heap_ = open_heap(directory_.file(), options(), &why);
        if (heap_ == nullptr && errno == ENOTSUP)
            GTEST_SKIP() << why;
        ASSERT_NE(heap_, nullptr) << why << ": " << strerror(errno);
    }
    void TearDown() override { cairn_persist_close(heap_); }

    Options options() const { return Options().by(GetParam()); }

    // The heap as a crash at this moment would leave it.
    cairn_persist *crash()
    {
        copy_files(directory_.file(), directory_.file("copy"));
        const char *why = nullptr;
        cairn_persist *copy = open_heap(directory_.file("copy"), options(), &why);
        EXPECT_NE(copy, nullptr) << why;
        EXPECT_EQ(check(copy), "");
        return copy;
    }

    Directory directory_;
    cairn_persist *heap_ = nullptr;
};

TEST_P(Commit, IsThereAfterACrashAndNothingElse)
{
    char *block = allocate(heap_, 100);
    strcpy(block, "first");
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", block), 0);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    strcpy(block, "second");
    char *more = allocate(heap_, 100000);
    memset(more, 7, 100000);

    cairn_persist *copy = crash();
    EXPECT_STREQ(static_cast<char *>(cairn_persist_get_root(copy, "block")), "first");
    EXPECT_EQ(stats_of(copy).used_blocks, 2u); // the block of the root, and one of the roots' own
    EXPECT_EQ(stats_of(copy).recovered_commits, 1u);
    EXPECT_EQ(cairn_persist_close(copy), 0);

    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    copy = crash();
    EXPECT_STREQ(static_cast<char *>(cairn_persist_get_root(copy, "block")), "second");
    EXPECT_EQ(stats_of(copy).used_blocks, 3u);
    EXPECT_EQ(cairn_persist_close(copy), 0);
}

TEST_P(Commit, LogsExactlyThePagesWritten)
{
    const size_t page = os_page_size();
    char *block = allocate(heap_, 100 * page, page);
    memset(block, 1, 100 * page);
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", block), 0);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    size_t dirty = 77;
    ASSERT_EQ(cairn_persist_count_dirty(heap_, &dirty), 0);
    EXPECT_EQ(dirty, 0u);
    uint64_t logged = stats_of(heap_).logged_pages;
    for (int round = 2; round < 5; round++) {
        for (size_t i : {3, 4, 50, 99})
            block[i * page + 17] = static_cast<char>(round);
        ASSERT_EQ(cairn_persist_count_dirty(heap_, &dirty), 0);
        EXPECT_EQ(dirty, 4u);
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
        EXPECT_EQ(stats_of(heap_).logged_pages, logged += 4);
    }
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_EQ(stats_of(heap_).logged_pages, logged);
    EXPECT_EQ(stats_of(heap_).last_commit, 4u) << "without writes there is no commit";

    cairn_persist *copy = crash();
    const char *found = static_cast<char *>(cairn_persist_get_root(copy, "block"));
    for (size_t i = 0; i < 100; i++) {
        const bool written = i == 3 || i == 4 || i == 50 || i == 99;
        EXPECT_EQ(found[i * page + 17], written ? 4 : 1) << i;
    }
    EXPECT_EQ(cairn_persist_close(copy), 0);
}

TEST_P(Commit, PagesOfFreedBlocksAreNotLogged)
{
    char *block = allocate(heap_, 400000);
    char *fence = allocate(heap_, 100);
    memset(block, 1, 400000);
    memset(fence, 2, 100);
    release(heap_, block);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_LT(stats_of(heap_).logged_pages, 8u);
    if (GetParam() == CAIRN_PERSIST_USERFAULT || GetParam() == CAIRN_PERSIST_PROTECT) {
        // the other kinds of tracking do not look at them
        EXPECT_GT(stats_of(heap_).skipped_pages, 90u);
    }
    // The pages count again as soon as they are in use.
    block = allocate(heap_, 400000);
    memset(block, 3, 400000);
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", block), 0);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    cairn_persist *copy = crash();
    const char *found = static_cast<char *>(cairn_persist_get_root(copy, "block"));
    EXPECT_EQ(std::string(found, 400000), std::string(400000, 3));
    EXPECT_EQ(cairn_persist_close(copy), 0);
}

TEST_P(Commit, LargerThanAChunkAndThanTheLog)
{
    const size_t size = 5 << 20;
    char *block = allocate(heap_, size);
    for (size_t i = 0; i < size; i++)
        block[i] = static_cast<char>(i * 7 >> 8);
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", block), 0);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    cairn_persist *copy = crash();
    const char *found = static_cast<char *>(cairn_persist_get_root(copy, "block"));
    size_t wrong = 0;
    for (size_t i = 0; i < size; i++)
        wrong += found[i] != static_cast<char>(i * 7 >> 8);
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(cairn_persist_close(copy), 0);
}

TEST_P(Commit, ManyTimesThroughASmallLog)
{
    cairn_persist_close(heap_);
    const Options small = options().log(256 << 10).with(CAIRN_PERSIST_WRITERS_PAUSE);
    heap_ = open_heap(directory_.file(), small);
    ASSERT_NE(heap_, nullptr);
    const size_t page = os_page_size();
    char *block = allocate(heap_, 64 * page, page);
    memset(block, 0, 64 * page);
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", block), 0);
    std::vector<int> expected(64);
    uint64_t longest = 0;
    for (int round = 1; round <= 600; round++) {
        for (int i = 0; i < 5; i++) {
            const size_t at = static_cast<size_t>(round * 31 + i * i * 7) % 64;
            expected[at] = round;
            memcpy(block + at * page + 8, &round, sizeof round);
        }
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
        longest = std::max(longest, stats_of(heap_).log_bytes);
        if (round % 97 != 0)
            continue;
        cairn_persist *copy = crash();
        const char *found = static_cast<char *>(cairn_persist_get_root(copy, "block"));
        for (size_t at = 0; at < 64; at++) {
            int value;
            memcpy(&value, found + at * page + 8, sizeof value);
            ASSERT_EQ(value, expected[at]) << "page " << at << " in round " << round;
        }
        EXPECT_EQ(cairn_persist_close(copy), 0);
    }
    EXPECT_LT(longest, 400u << 10);
    EXPECT_GT(stats_of(heap_).logged_bytes, 8u << 20);
}

TEST_P(Commit, ThreadsShareAnFdatasync)
{
    constexpr int kThreads = 4, kRounds = 40;
    std::atomic<int> failures{0};
    char *counters[kThreads];
    for (char *&counter : counters) {
        counter = allocate(heap_, 64);
        memset(counter, 0, 64);
    }
    cairn_persist_set_root(heap_, "counters", counters[0]);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; t++)
        threads.emplace_back([&, t] {
            for (int i = 0; i < kRounds; i++) {
                __atomic_fetch_add(reinterpret_cast<int *>(counters[t]), 1, __ATOMIC_RELAXED);
                char *other = allocate(heap_, static_cast<size_t>(i) * 20 + 1);
                failures += cairn_persist_commit(heap_) != 0;
                release(heap_, other);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(stats_of(heap_).durable_commit, stats_of(heap_).last_commit);
    EXPECT_LE(stats_of(heap_).syncs, stats_of(heap_).last_commit);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_EQ(check(heap_), "");
    cairn_persist *copy = crash();
    EXPECT_EQ(*static_cast<int *>(cairn_persist_get_root(copy, "counters")), kRounds);
    EXPECT_EQ(stats_of(copy).used_blocks, stats_of(heap_).used_blocks);
    EXPECT_EQ(cairn_persist_close(copy), 0);
}

TEST_P(Commit, TicketsAreWaitedForInAnyOrder)
{
    char *block = allocate(heap_, 64);
    cairn_persist_ticket tickets[3];
    for (cairn_persist_ticket &ticket : tickets) {
        block[0]++;
        ASSERT_EQ(cairn_persist_commit_async(heap_, &ticket), 0);
    }
    const uint64_t syncs = stats_of(heap_).syncs;
    EXPECT_EQ(cairn_persist_wait(heap_, tickets[1]), 0);
    EXPECT_EQ(cairn_persist_wait(heap_, tickets[2]), 0);
    EXPECT_EQ(cairn_persist_wait(heap_, tickets[0]), 0);
    EXPECT_EQ(stats_of(heap_).syncs, syncs + 1) << "one fdatasync for three commits";
}

// Eight blocks of two pages; five of them are freed, and the pages of most hold free memory only.
void free_five_of_eight(cairn_persist *heap)
{
    char *blocks[8];
    for (char *&block : blocks) {
        block = allocate(heap, 8000);
        memset(block, 1, 8000);
    }
    cairn_persist_set_root(heap, "freed", blocks[3]);
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    ASSERT_EQ(cairn_persist_checkpoint(heap), 0);
    for (size_t i = 1; i < 6; i++)
        release(heap, blocks[i]);
    ASSERT_EQ(cairn_persist_commit(heap), 0);
}

constexpr const char *kFreedTwice = "cairn: TLSF (double free|free) of 0x";

TEST_P(Commit, ASecondFreeIsFoundInTheReopenedHeap)
{
    free_five_of_eight(heap_);
    cairn_persist *copy = crash();
    void *block = cairn_persist_get_root(copy, "freed");
    EXPECT_DEATH(release(copy, block), kFreedTwice);
    EXPECT_EQ(cairn_persist_close(copy), 0);
}

TEST_P(Commit, ASecondFreeIsFoundAfterAnAbortAndATrim)
{
    free_five_of_eight(heap_);
    ASSERT_EQ(cairn_persist_abort(heap_), 0);
    void *block = cairn_persist_get_root(heap_, "freed");
    EXPECT_DEATH(release(heap_, block), kFreedTwice);
    ASSERT_EQ(cairn_persist_trim(heap_), 0);
    EXPECT_DEATH(release(heap_, block), kFreedTwice);
}

TEST_P(Commit, ASecondFreeIsFoundAfterACommitHasDroppedCopies)
{
    ASSERT_EQ(cairn_persist_close(heap_), 0);
    heap_ = open_heap(directory_.file(), options().with(CAIRN_PERSIST_WRITERS_PAUSE));
    ASSERT_NE(heap_, nullptr);
    free_five_of_eight(heap_);
    char *other = allocate(heap_, 100);
    for (int i = 0; i < 4; i++) {
        *other = static_cast<char>(i);
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
        ASSERT_EQ(cairn_persist_checkpoint(heap_), 0);
    }
    EXPECT_DEATH(release(heap_, cairn_persist_get_root(heap_, "freed")), kFreedTwice);
}

TEST_P(Commit, BlocksThatLiveBetweenTwoCommitsAreNotLogged)
{
    char *stays = allocate(heap_, 100);
    uint64_t logged = 0;
    for (int i = 0; i < 12; i++) {
        *stays = static_cast<char>(i);
        char *blocks[40];
        for (char *&block : blocks) {
            block = allocate(heap_, 3000);
            memset(block, i, 3000);
        }
        for (char *block : blocks)
            release(heap_, block);
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
        if (i == 1)
            logged = stats_of(heap_).logged_pages;
    }
    EXPECT_LE(stats_of(heap_).logged_pages - logged, 10u * 4) << "the page of `stays`, TLSF's";
}

TEST_P(Commit, OfAForksChildIsRefused)
{
    char *block = allocate(heap_, 64);
    strcpy(block, "parent");
    cairn_persist_set_root(heap_, "block", block);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    const pid_t child = fork();
    if (child == 0) {
        strcpy(block, "child");
        char *more = allocate(heap_, 5000);
        memset(more, 1, 5000);
        cairn_persist_ticket ticket;
        const bool right =
            cairn_persist_commit(heap_) == EPERM &&
            cairn_persist_commit_async(heap_, &ticket) == EPERM &&
            cairn_persist_abort(heap_) == EPERM && cairn_persist_checkpoint(heap_) == EPERM &&
            cairn_persist_trim(heap_) == EPERM && cairn_persist_grow(heap_, 64 << 20) == EPERM &&
            allocate(heap_, 64 << 20) == nullptr && errno == ENOMEM &&
            strcmp(block, "child") == 0 && check(heap_).empty() && cairn_persist_close(heap_) == 0;
        _exit(right ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_STREQ(block, "parent");
    block[0] = 'P';
    EXPECT_EQ(cairn_persist_commit(heap_), 0);
    cairn_persist *copy = crash();
    EXPECT_STREQ(static_cast<char *>(cairn_persist_get_root(copy, "block")), "Parent");
    EXPECT_EQ(cairn_persist_close(copy), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, Commit, testing::ValuesIn(kWays),
                         [](const auto &way) { return kWayNames[way.param]; });

} // namespace persist_commit_test
