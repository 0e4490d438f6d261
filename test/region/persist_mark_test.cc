// The mark and the heads of the logs: the mark is the last acknowledged commit, it costs no
// fdatasync, and its loss has no other effect.

#include "region/persist_kit.h"

extern "C" {
#include "os/file.h"
}

namespace persist_mark_test
{

using namespace persist;

class Mark : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr);
        ASSERT_NE(block_ = allocate(heap_, 100), nullptr);
    }
    void TearDown() override { cairn_persist_close(heap_); }

    void change() { ++*block_; }
    void commit()
    {
        change();
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
    }

    Directory directory_;
    cairn_persist *heap_ = nullptr;
    char *block_ = nullptr;
};

TEST_F(Mark, IsTheLastCommitThatWasAcknowledged)
{
    EXPECT_EQ(mark_read(heap_), 0u);
    commit();
    EXPECT_EQ(mark_read(heap_), 1u);
    cairn_persist_ticket ticket;
    for (int i = 0; i < 2; i++) {
        change();
        ASSERT_EQ(cairn_persist_commit_async(heap_, &ticket), 0);
    }
    EXPECT_EQ(mark_read(heap_), 1u);
    ASSERT_EQ(cairn_persist_wait(heap_, ticket), 0);
    EXPECT_EQ(mark_read(heap_), 3u);
}

std::vector<os_file_call> g_calls;
bool g_mark_fails;

int watch(os_file_call call, int, uint64_t offset, const void *, size_t *size)
{
    g_calls.push_back(call);
    const bool is_mark = call == OS_CALL_WRITE && offset == PERSIST_MARK_OFFSET &&
                         *size == sizeof(persist_mark);
    return is_mark && g_mark_fails ? -ENOSPC : 0;
}

TEST_F(Mark, CostsNoFdatasyncAndNoCommit)
{
    if (!config_debug)
        GTEST_SKIP() << "calls are watched in debug builds";
    commit(); // the log has room now
    g_mark_fails = false;
    g_calls.clear();
    os_file_watch(watch);
    commit();
    EXPECT_EQ(g_calls, (std::vector<os_file_call>{OS_CALL_WRITE, OS_CALL_SYNC, OS_CALL_WRITE}));
    g_mark_fails = true;
    commit();
    os_file_watch(nullptr);
    EXPECT_EQ(stats_of(heap_).durable_commit, 3u);
    EXPECT_EQ(mark_read(heap_), 2u);
    commit();
    EXPECT_EQ(mark_read(heap_), 4u);
}

TEST_F(Mark, ThatIsDamagedOrOfAnotherHeapIsNone)
{
    commit();
    commit();
    const int file = heap_->file;
    mark_write(file, heap_->header.identity + 1, 7);
    EXPECT_EQ(mark_read(heap_), heap_->header.checkpoint);
    mark_write(file, heap_->header.identity, 7);
    EXPECT_EQ(mark_read(heap_), 7u);
    for (const uint64_t at : {0, 8, 16, 100, 511}) {
        char byte = 0;
        ASSERT_EQ(os_file_read(file, &byte, 1, PERSIST_MARK_OFFSET + at), 0);
        byte = static_cast<char>(byte ^ 16);
        ASSERT_EQ(os_file_write(file, &byte, 1, PERSIST_MARK_OFFSET + at), 0);
        EXPECT_EQ(mark_read(heap_), heap_->header.checkpoint) << at;
        mark_write(file, heap_->header.identity, 7);
    }
    mark_write(file, heap_->header.identity, 2);
}

TEST_F(Mark, ALogsHeadFitsOneLogOfOneOpening)
{
    persist_log_head head;
    ASSERT_EQ(log_head_read(heap_, 1, &head), 1);
    EXPECT_TRUE(log_head_fits(heap_, 1, &head));
    EXPECT_FALSE(log_head_fits(heap_, 0, &head));
    for (uint64_t *number : {&head.identity, &head.session, &head.opening}) {
        ++*number;
        EXPECT_FALSE(log_head_fits(heap_, 1, &head));
        --*number;
    }
    EXPECT_EQ(heap_->header.opening, 1u);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    ASSERT_EQ(cairn_persist_close(heap_), 0);
    ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr);
    EXPECT_EQ(heap_->header.opening, 2u);
}

} // namespace persist_mark_test
