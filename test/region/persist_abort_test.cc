// Abort: pages return to the last commit in place, whether it is in the log or in the file; private
// copies are released.

#include "region/persist_kit.h"

#include <sys/stat.h>

extern "C" {
#include "os/memory.h"
}

namespace persist_abort_test
{

using namespace persist;

class Abort : public testing::TestWithParam<cairn_persist_tracking>
{
  protected:
    void SetUp() override
    {
        page_ = os_page_size();
        heap_ = open_heap(directory_.file(), Options().by(GetParam()).log(1 << 20));
        if (heap_ == nullptr && errno == ENOTSUP)
            GTEST_SKIP() << "this kernel does not track dirty pages this way";
        ASSERT_NE(heap_, nullptr);
        block_ = allocate(heap_, 40 * page_, page_);
        fill(1);
        ASSERT_EQ(cairn_persist_set_root(heap_, "block", block_), 0);
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
    }
    void TearDown() override { cairn_persist_close(heap_); }

    void fill(char value) { memset(block_, value, 40 * page_); }
    size_t count(char value) const
    {
        return static_cast<size_t>(std::count(block_, block_ + 40 * page_, value));
    }

    Directory directory_;
    cairn_persist *heap_ = nullptr;
    char *block_ = nullptr;
    size_t page_ = 0;
};

TEST_P(Abort, FromTheLogAndFromTheFile)
{
    fill(2);
    EXPECT_EQ(cairn_persist_abort(heap_), 0);
    EXPECT_EQ(count(1), 40 * page_) << "from the current segment";
    EXPECT_EQ(cairn_persist_checkpoint(heap_), 0);
    fill(3);
    EXPECT_EQ(cairn_persist_abort(heap_), 0);
    EXPECT_EQ(count(1), 40 * page_) << "from the file";
    block_[5 * page_] = 9;
    EXPECT_EQ(cairn_persist_commit(heap_), 0);
    fill(4);
    EXPECT_EQ(cairn_persist_abort(heap_), 0);
    EXPECT_EQ(count(1), 40 * page_ - 1) << "from both";
    EXPECT_EQ(block_[5 * page_], 9);
    size_t dirty = 1;
    EXPECT_EQ(cairn_persist_count_dirty(heap_, &dirty), 0);
    EXPECT_EQ(dirty, 0u);
    EXPECT_EQ(check(heap_), "");
}

TEST_P(Abort, BeforeTheFirstCommitTheHeapIsEmptyAgain)
{
    Directory directory;
    cairn_persist *heap = open_heap(directory.file(), Options().by(GetParam()));
    ASSERT_NE(heap, nullptr);
    for (const size_t size : {size_t{100}, size_t{4} << 20}) { // the heap grows for the second one
        memset(allocate(heap, size), 1, size);
        EXPECT_EQ(cairn_persist_abort(heap), 0);
        EXPECT_EQ(check(heap), "");
        EXPECT_EQ(stats_of(heap).used_blocks, 0u);
    }
    memset(allocate(heap, 100), 2, 100);
    EXPECT_EQ(cairn_persist_commit(heap), 0);
    cairn_persist_close(heap);
    heap = open_heap(directory.file(), Options().by(GetParam()));
    ASSERT_NE(heap, nullptr);
    EXPECT_EQ(check(heap), "");
    EXPECT_EQ(stats_of(heap).used_blocks, 1u);
    cairn_persist_close(heap);
}

TEST_P(Abort, BlocksAndRootsAreAsTheyWere)
{
    const cairn_persist_stats before = stats_of(heap_);
    release(heap_, block_);
    for (int i = 0; i < 100; i++)
        memset(allocate(heap_, 3000), 5, 3000);
    cairn_persist_set_root(heap_, "more", allocate(heap_, 10));
    cairn_persist_remove_root(heap_, "block");
    EXPECT_EQ(cairn_persist_abort(heap_), 0);
    EXPECT_EQ(check(heap_), "");
    EXPECT_EQ(stats_of(heap_).used_blocks, before.used_blocks);
    EXPECT_EQ(cairn_persist_get_root(heap_, "block"), block_);
    EXPECT_EQ(cairn_persist_get_root(heap_, "more"), nullptr);
    EXPECT_EQ(count(1), 40 * page_);
}

TEST_P(Abort, AfterGrowth)
{
    const size_t size = stats_of(heap_).size_bytes;
    char *large = allocate(heap_, 8 << 20);
    ASSERT_NE(large, nullptr);
    memset(large, 1, 8 << 20);
    EXPECT_GT(stats_of(heap_).size_bytes, size);
    EXPECT_EQ(cairn_persist_abort(heap_), 0);
    EXPECT_EQ(stats_of(heap_).size_bytes, size);
    EXPECT_EQ(check(heap_), "");
    large = allocate(heap_, 8 << 20);
    memset(large, 2, 8 << 20);
    EXPECT_EQ(check(heap_), "");
    EXPECT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_EQ(cairn_persist_abort(heap_), 0);
    EXPECT_EQ(large[(8 << 20) - 1], 2);
}

TEST_P(Abort, ThenCommitHasNothingOfTheAborted)
{
    fill(7);
    ASSERT_EQ(cairn_persist_abort(heap_), 0);
    block_[0] = 3;
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    copy_files(directory_.file(), directory_.file("copy"));
    cairn_persist *copy = open_heap(directory_.file("copy"));
    const char *found = static_cast<char *>(cairn_persist_get_root(copy, "block"));
    EXPECT_EQ(std::string(found, 40 * page_), std::string(1, 3) + std::string(40 * page_ - 1, 1));
    cairn_persist_close(copy);
}

TEST_P(Abort, TrimGivesBackMemoryAndRoomOnDisk)
{
    char *large = allocate(heap_, 8 << 20);
    memset(large, 1, 8 << 20);
    EXPECT_EQ(cairn_persist_trim(heap_), EBUSY) << "the heap has uncommitted changes";
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    ASSERT_EQ(cairn_persist_checkpoint(heap_), 0);
    struct stat before, after;
    ASSERT_EQ(stat(directory_.file().c_str(), &before), 0);
    release(heap_, large);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_EQ(cairn_persist_trim(heap_), 0);
    ASSERT_EQ(stat(directory_.file().c_str(), &after), 0);
    EXPECT_LT(after.st_blocks * 512, before.st_blocks * 512 - (7 << 20));
    EXPECT_EQ(count(1), 40 * page_);
    EXPECT_EQ(check(heap_), "");
    // Pages that were given back are found again when they are written.
    fill(5);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    fill(6);
    ASSERT_EQ(cairn_persist_abort(heap_), 0);
    EXPECT_EQ(count(5), 40 * page_);
}

// The pages were free when the heap was opened, so no free of this run has recorded them.
TEST_P(Abort, TrimGivesBackWhatWasFreeAtOpen)
{
    char *large = allocate(heap_, 8 << 20);
    memset(large, 1, 8 << 20);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    release(heap_, large);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    cairn_persist_close(heap_);
    heap_ = open_heap(directory_.file(), Options().by(GetParam()));
    ASSERT_NE(heap_, nullptr);
    struct stat before, after;
    ASSERT_EQ(stat(directory_.file().c_str(), &before), 0);
    EXPECT_EQ(cairn_persist_trim(heap_), 0);
    ASSERT_EQ(stat(directory_.file().c_str(), &after), 0);
    EXPECT_LT(after.st_blocks * 512, before.st_blocks * 512 - (7 << 20));
    EXPECT_EQ(check(heap_), "");
    char *again = allocate(heap_, 8 << 20);
    memset(again, 2, 8 << 20);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_EQ(std::string(again, 8 << 20), std::string(8 << 20, 2));
}

INSTANTIATE_TEST_SUITE_P(Ways, Abort, testing::ValuesIn(kWays),
                         [](const auto &way) { return kWayNames[way.param]; });

} // namespace persist_abort_test
