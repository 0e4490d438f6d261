// A failed fdatasync: its commit fails, and further commits are refused until the heap is opened
// again.

#include "region/persist_kit.h"

extern "C" {
#include "os/file.h"
}

namespace persist_flush_test
{

using namespace persist;

int g_failing; // number of syncs that still fail
int g_file;    // file whose syncs fail, -1: any

int fail_syncs(os_file_call call, int file, uint64_t, const void *, size_t *)
{
    if (call != OS_CALL_SYNC || g_failing == 0 || (g_file >= 0 && g_file != file))
        return 0;
    g_failing--;
    return -EIO;
}

class Flush : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!config_debug)
            GTEST_SKIP() << "faults are injected in debug builds";
        ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr);
        block_ = allocate(heap_, 100);
        strcpy(block_, "durable");
        cairn_persist_set_root(heap_, "block", block_);
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
        os_file_watch(fail_syncs);
        g_file = -1;
        g_failing = 0;
    }
    void TearDown() override
    {
        os_file_watch(nullptr);
        cairn_persist_close(heap_);
    }

    Directory directory_;
    cairn_persist *heap_ = nullptr;
    char *block_ = nullptr;
};

TEST_F(Flush, AFailureRefusesAllUntilReopened)
{
    g_failing = 1;
    strcpy(block_, "unknown");
    EXPECT_EQ(cairn_persist_commit(heap_), EIO);
    EXPECT_EQ(g_failing, 0);
    strcpy(block_, "refused");
    cairn_persist_ticket ticket;
    EXPECT_EQ(cairn_persist_commit(heap_), EIO);
    EXPECT_EQ(cairn_persist_commit_async(heap_, &ticket), EIO);
    EXPECT_EQ(cairn_persist_abort(heap_), EIO);
    EXPECT_EQ(cairn_persist_checkpoint(heap_), EIO);
    EXPECT_EQ(cairn_persist_wait(heap_, 1), 0) << "commit 1 is durable";
    EXPECT_EQ(cairn_persist_wait(heap_, 2), EIO);
    EXPECT_EQ(stats_of(heap_).error, EIO);
    EXPECT_EQ(cairn_persist_close(heap_), EIO);
    ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr);
    const std::string found = static_cast<char *>(cairn_persist_get_root(heap_, "block"));
    EXPECT_EQ(found, "unknown") << "a file system that loses data would give \"durable\"";
    EXPECT_EQ(cairn_persist_commit(heap_), 0);
}

TEST_F(Flush, AFailureInACheckpointToo)
{
    g_failing = 1;
    g_file = heap_->file;
    EXPECT_EQ(cairn_persist_checkpoint(heap_), EIO);
    strcpy(block_, "refused");
    EXPECT_EQ(cairn_persist_commit(heap_), EIO);
    EXPECT_EQ(cairn_persist_close(heap_), EIO);
    ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr);
    EXPECT_STREQ(static_cast<char *>(cairn_persist_get_root(heap_, "block")), "durable");
}

TEST_F(Flush, AFailureOfGrowthRefusesTheNextCheckpoint)
{
    g_failing = 1;
    g_file = heap_->file;
    EXPECT_EQ(cairn_persist_grow(heap_, 32 << 20), EIO);
    EXPECT_EQ(cairn_persist_checkpoint(heap_), EIO)
        << "only the fdatasync knows what the file lost";
    EXPECT_EQ(cairn_persist_close(heap_), EIO);
    ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr);
    EXPECT_STREQ(static_cast<char *>(cairn_persist_get_root(heap_, "block")), "durable");
    EXPECT_EQ(check(heap_), "");
}

TEST_F(Flush, OfWhatIsDurableAsksNothing)
{
    g_failing = 1000;
    EXPECT_EQ(cairn_persist_commit(heap_), 0) << "nothing was written, so there is nothing to lose";
    g_failing = 0;
}

} // namespace persist_flush_test
