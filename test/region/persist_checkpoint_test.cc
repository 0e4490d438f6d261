// Checkpoints: in small steps during commits, complete on request, and without loss when the file
// cannot be written.

#include "region/persist_kit.h"

#include <atomic>
#include <thread>

extern "C" {
#include "os/file.h"
#include "os/memory.h"
}

namespace persist_checkpoint_test
{

using namespace persist;

class Checkpoint : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_ = os_page_size();
        ASSERT_NE(heap_ = open_heap(directory_.file(), Options().log(512 << 10)), nullptr);
        block_ = allocate(heap_, kPages * page_, page_);
        memset(block_, 0, kPages * page_);
        ASSERT_EQ(cairn_persist_set_root(heap_, "block", block_), 0);
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
    }
    void TearDown() override
    {
        os_file_watch(nullptr);
        cairn_persist_close(heap_);
    }

    void commit_some(int rounds)
    {
        for (int i = 0; i < rounds; i++) {
            round_++;
            for (size_t j = 0; j < 10; j++)
                block_[(static_cast<size_t>(round_) * 17 + j) % kPages * page_] =
                    static_cast<char>(round_);
            ASSERT_EQ(cairn_persist_commit(heap_), 0);
        }
    }
    std::string contents() const { return std::string(block_, kPages * page_); }
    std::string contents_after_crash()
    {
        copy_files(directory_.file(), directory_.file("copy"));
        cairn_persist *copy = open_heap(directory_.file("copy"));
        if (copy == nullptr)
            return "";
        const char *found = static_cast<char *>(cairn_persist_get_root(copy, "block"));
        const std::string contents(found, kPages * page_);
        cairn_persist_close(copy);
        return contents;
    }

    static constexpr size_t kPages = 50;
    Directory directory_;
    cairn_persist *heap_ = nullptr;
    char *block_ = nullptr;
    size_t page_ = 0;
    int round_ = 0;
};

TEST_F(Checkpoint, CompleteWhenAskedFor)
{
    commit_some(10);
    EXPECT_GT(stats_of(heap_).log_bytes, 0u);
    EXPECT_EQ(cairn_persist_checkpoint(heap_), 0);
    EXPECT_EQ(stats_of(heap_).log_bytes, 0u);
    EXPECT_EQ(cairn_persist_checkpoint(heap_), 0) << "a checkpoint without work succeeds";
    // The file alone, without its logs, is the heap now.
    copy_files(directory_.file(), directory_.file("copy"));
    cairn_persist *copy = open_heap(directory_.file("copy"));
    ASSERT_NE(copy, nullptr);
    EXPECT_EQ(stats_of(copy).recovered_commits, 0u);
    cairn_persist_close(copy);
    EXPECT_EQ(contents_after_crash(), contents());
}

TEST_F(Checkpoint, BitByBitTheLogStaysBounded)
{
    uint64_t longest = 0;
    for (int i = 0; i < 200; i++) {
        commit_some(1);
        longest = std::max(longest, stats_of(heap_).log_bytes);
    }
    EXPECT_LT(longest, 700u << 10);
    EXPECT_EQ(contents_after_crash(), contents());
}

TEST_F(Checkpoint, ByAThreadOfTheProgramsOwn)
{
    std::atomic<bool> stop{false};
    std::atomic<int> failures{0};
    std::thread helper([&] {
        while (!stop)
            failures += cairn_persist_checkpoint(heap_) != 0;
    });
    commit_some(150);
    stop = true;
    helper.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(contents_after_crash(), contents());
}

int g_heap_file;
bool g_full;

int disk_is_full(os_file_call call, int file, uint64_t, const void *, size_t *)
{
    return g_full && call == OS_CALL_WRITE && file == g_heap_file ? -ENOSPC : 0;
}

TEST_F(Checkpoint, WithoutRoomForTheFileTheLogKeepsAll)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    g_heap_file = heap_->file;
    g_full = true;
    os_file_watch(disk_is_full);
    commit_some(60); // far beyond the size of the log
    EXPECT_GT(stats_of(heap_).log_bytes, 1u << 20);
    EXPECT_EQ(cairn_persist_checkpoint(heap_), ENOSPC);
    g_full = false;
    EXPECT_EQ(contents_after_crash(), contents());
    g_full = false;
    commit_some(1);
    EXPECT_EQ(cairn_persist_checkpoint(heap_), 0);
    EXPECT_EQ(stats_of(heap_).log_bytes, 0u);
    EXPECT_EQ(contents_after_crash(), contents());
}

} // namespace persist_checkpoint_test
