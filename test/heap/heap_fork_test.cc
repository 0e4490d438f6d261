// The heap as a whole: statistics, release, and the child of a fork.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

namespace heap_fork_test
{

// The heap as a whole: its sums, the memory that it releases, and its life in the child of a fork.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;
using heap_layer::stats;

TEST(Heap, StatisticsFollowTheBlocks)
{
    std::vector<void *> blocks;
    size_t bytes = 0;
    size_t large = 0;
    for (size_t size = 1; size < 50 * kMiB; size = size * 2 + 7) {
        blocks.push_back(allocate(size));
        const size_t usable = heap_layer::block_bytes(blocks.back());
        bytes += usable;
        large += size > MEDIUM_REQUEST_MAX ? usable : 0;
        const heap_stats now = stats();
        EXPECT_EQ(now.live_blocks, blocks.size());
        EXPECT_EQ(now.live_bytes, bytes);
        EXPECT_EQ(now.large_bytes, large);
    }
    in_thread([&] { // freed by another thread and not collected yet: it counts as free
        for (void *block : blocks)
            free_fast(block);
    });
    EXPECT_EQ(stats().live_blocks, 0u);
    EXPECT_EQ(stats().live_bytes, 0u);
    EXPECT_EQ(stats().large_blocks, 0u);
}

TEST(Heap, ReleaseGivesBackWhatIsFree)
{
    std::vector<char *> blocks;
    for (int i = 0; i < 20000; i++) {
        blocks.push_back(static_cast<char *>(allocate(1000)));
        memset(blocks.back(), 1, 1000);
    }
    for (char *block : blocks)
        free_fast(block);
    EXPECT_TRUE(heap_release(0));
    EXPECT_EQ(stats().pages.dirty_bytes, 0u);
    EXPECT_LE(stats().slab_bytes, 64 * kKiB);
    EXPECT_FALSE(heap_release(0));
    heap_layer::verify();
}

// Fork.

void expect(bool right, int line)
{
    if (right)
        return;
    fprintf(stderr, "%s:%d: not so in the child\n", __FILE__, line);
    _exit(1);
}
#define EXPECT_IN_CHILD(condition) expect((condition), __LINE__)

template <typename Body> void in_child(Body body)
{
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(100);
        body();
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(Heap, TheChildGoesOnWithItsOwnBlocks)
{
    std::vector<char *> blocks;
    for (int i = 0; i < 1000; i++) {
        blocks.push_back(static_cast<char *>(allocate(100)));
        memset(blocks.back(), i % 100, 100);
    }
    in_child([&] {
        heap_verify_all();
        EXPECT_IN_CHILD(stats().live_blocks == blocks.size());
        for (size_t i = 0; i < blocks.size(); i++) {
            EXPECT_IN_CHILD(blocks[i][99] == static_cast<char>(i % 100));
            free_fast(blocks[i]);
        }
        EXPECT_IN_CHILD(stats().live_blocks == 0);
        for (size_t size = 1; size < 50 * kMiB; size *= 3)
            free_fast(allocate(size));
        heap_release(0);
        heap_verify_all();
    });
    for (char *block : blocks)
        free_fast(block);
}

TEST(Heap, RemoteFreesOnTheirWayAreNotLostToTheChild)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 1000; i++)
        blocks.push_back(allocate(100));
    in_thread([&] {
        for (size_t i = 0; i < blocks.size(); i += 2)
            free_fast(blocks[i]);
    });
    const auto rest = [&] {
        for (size_t i = 1; i < blocks.size(); i += 2)
            free_fast(blocks[i]);
        heap_release(0);
        heap_verify_all();
    };
    in_child([&] {
        rest();
        EXPECT_IN_CHILD(stats().live_blocks == 0);
        EXPECT_IN_CHILD(stats().slab_bytes < 64 * kKiB);
    });
    rest();
    EXPECT_EQ(stats().live_blocks, 0u);
}

// Such slabs are outside the arenas.
TEST(Heap, NorThoseInSlabsThatWereTakenDuringAFork)
{
    constexpr size_t kBytes = 5000;
    (void)heap_layer::own_heap();
    std::atomic<int> step{0};
    std::thread forking([&] {
        pages_freeze();
        step = 1;
        while (step != 2)
            usleep(100);
        pages_thaw();
    });
    while (step != 1)
        usleep(100);
    std::vector<void *> blocks;
    size_t apart = 0;
    for (int i = 0; i < 100; i++) {
        blocks.push_back(allocate(kBytes));
        apart += !pages_holds(blocks.back());
    }
    step = 2;
    forking.join();
    EXPECT_GT(apart, blocks.size() / 2);
    const size_t live = stats().live_blocks;
    in_thread([&] {
        for (void *block : blocks)
            free_fast(block);
    });
    in_child([&] {
        heap_layer::churn(500, 400, kBytes); // its heap needs a slab, and so looks for these
        heap_release(0);
        EXPECT_IN_CHILD(stats().live_blocks == live - blocks.size());
        for (void *block : blocks)
            EXPECT_IN_CHILD(config_quarantine || pages_holds(block) ||
                            !span_is_slab(span_of(block)));
        heap_verify_all();
    });
    heap_release(0);
    EXPECT_EQ(stats().live_blocks, live - blocks.size());
}

TEST(Heap, TheChildMayFreeBlocksOfThreadsThatAreGone)
{
    std::vector<char *> blocks;
    std::atomic<bool> stop{false};
    std::atomic<bool> ready{false};
    std::thread other([&] {
        for (size_t size = 16; size < 2 * kMiB; size = size * 3 / 2) {
            blocks.push_back(static_cast<char *>(allocate(size)));
            memset(blocks.back(), 5, size);
        }
        ready = true;
        while (!stop)
            free_fast(allocate(64)); // always in the middle of malloc or free
    });
    while (!ready)
        usleep(100);
    for (int i = 0; i < 20; i++)
        in_child([&] {
            for (char *block : blocks) {
                EXPECT_IN_CHILD(block[15] == 5);
                free_fast(block);
            }
            for (int k = 0; k < 1000; k++)
                free_fast(allocate(64));
            heap_verify_all();
        });
    stop = true;
    other.join();
    for (char *block : blocks)
        free_fast(block);
    EXPECT_EQ(stats().live_blocks, 0u);
}

// The thread that forks holds the page lock; all other threads must work without it.
TEST(Heap, AllocationWhileAnotherThreadForksNeedsNoLock)
{
    void *before = allocate(kMiB);
    pages_freeze();
    std::vector<char *> blocks;
    in_thread([&] {
        for (size_t size = 16; size < 5 * kMiB; size *= 2)
            for (int i = 0; i < 20; i++) {
                blocks.push_back(static_cast<char *>(allocate(size)));
                ASSERT_NE(blocks.back(), nullptr);
                memset(blocks.back(), 6, size);
            }
        free_fast(before);
        for (size_t i = 0; i < blocks.size(); i += 3) {
            free_fast(blocks[i]);
            blocks[i] = nullptr;
        }
    });
    pages_thaw();
    for (char *block : blocks) {
        EXPECT_TRUE(block == nullptr || block[15] == 6);
        free_fast(block);
    }
    heap_release(0);
    in_thread([] { // adopts that heap and releases its memory
        free_fast(allocate(16));
        heap_release(0);
    });
    EXPECT_EQ(stats().live_blocks, 0u);
    heap_layer::verify();
}

// Blocks of threads that a fork ended.

class InheritedSlabs : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (config_hardened)
            GTEST_SKIP() << "hardened builds end the process";
        heap_layer::own_heap();
        owner_ = std::thread([this] {
            block_ = allocate(200);
            made_ = true;
            while (!over_)
                usleep(100);
        });
        while (!made_)
            usleep(100);
    }

    void TearDown() override
    {
        over_ = true;
        if (owner_.joinable()) // not after a skip
            owner_.join();
    }

    void *block_ = nullptr; // of a thread that exists only in the parent

  private:
    std::thread owner_;
    std::atomic<bool> made_{false};
    std::atomic<bool> over_{false};
};

// A child of fork refuses the second free of a block whose thread exists only in the parent.
TEST_F(InheritedSlabs, BlocksOfThreadsThatAForkEnded)
{
    EXPECT_EXIT(
        {
            heap_go_on_after_wrong_frees();
            free_fast(block_);
            free_fast(block_);
            _exit(heap_count_wrong_frees() == 1 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "^cairn: double free of [^\n]*\n$");
}

TEST_F(InheritedSlabs, AFreeBeforeTheForkIsSeen)
{
    free_fast(block_);
    EXPECT_EXIT(
        {
            heap_go_on_after_wrong_frees();
            free_fast(block_);
            _exit(heap_count_wrong_frees() == 1 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "^cairn: double free of [^\n]*\n$");
}

// A slab is given back with its last block, whether the others were freed before or after the fork.
TEST(Heap, TheLastFreeOfAnInheritedSlabGivesItBack)
{
    if (config_quarantine)
        GTEST_SKIP() << "its owner's quarantine has the blocks that it freed";
    constexpr size_t kBlocks = 500;
    std::vector<void *> blocks;
    std::atomic<int> step{0};
    std::thread owner([&] {
        heap_layer::own_heap();
        for (size_t i = 0; i < kBlocks; i++)
            blocks.push_back(allocate(200));
        for (size_t i = 0; i < kBlocks; i += 2)
            free_fast(blocks[i]);
        step = 1;
        while (step == 1)
            usleep(100);
    });
    while (step == 0)
        usleep(100);
    in_child([&] {
        const size_t before = stats().slab_bytes;
        for (size_t i = 1; i < kBlocks; i += 2)
            free_fast(blocks[i]);
        EXPECT_IN_CHILD(stats().live_blocks == 0);
        EXPECT_IN_CHILD(before - stats().slab_bytes >= kBlocks * 200);
        heap_layer::verify();
    });
    step = 2;
    owner.join();
    for (size_t i = 1; i < kBlocks; i += 2)
        free_fast(blocks[i]);
}

// A block of full hardened builds is marked as freed before it is cleared. The owner may be between
// the two when another thread forks.
TEST(Heap, AnInheritedSlabIsClearWhenItComesBack)
{
    constexpr size_t kSize = 3000;
    char *blocks[2] = {};
    std::atomic<int> step{0};
    std::thread owner([&] {
        heap_layer::own_heap();
        for (char *&block : blocks)
            block = static_cast<char *>(allocate(kSize));
        step = 1;
        while (step == 1)
            usleep(100);
    });
    while (step == 0)
        usleep(100);
    struct span *slab = heap_layer::span_of(blocks[0]);
    uint8_t *link = slab_link(slab, static_cast<size_t>(slab_slot(slab, blocks[0])));
    in_child([&] {
        memset(blocks[0], 1, 100);
        store_relaxed(link, static_cast<uint8_t>(LINK_QUARANTINED));
        EXPECT_IN_CHILD(!config_quarantine || heap_layer::span_of(blocks[1]) == slab);
        free_fast(blocks[1]);
        EXPECT_IN_CHILD(!config_quarantine || load_relaxed(&slab->owner) == 0);
        for (int i = 0; i < 2000; i++) { // each block is checked to be zero
            const char *block = static_cast<char *>(allocate(kSize));
            EXPECT_IN_CHILD(block != nullptr && (!config_zero_freed || block[50] == 0));
        }
    });
    step = 2;
    owner.join();
    for (char *block : blocks)
        free_fast(block);
}

// Inherited slabs rely on this: if the child of a fork sees a write of another thread, it sees all
// that the thread wrote before, on whichever page.
TEST(Heap, TheChildOfAForkSeesWritesInTheirOrder)
{
    constexpr size_t kPages = 512;
    constexpr size_t kStep = 337; // prime to kPages: pages before and behind, in turn
    std::vector<char> memory(kPages * PAGE_BYTES);
    const auto word = [&](size_t i) {
        return reinterpret_cast<uint64_t *>(&memory[i * kStep % kPages * PAGE_BYTES]);
    };
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        for (uint64_t pass = 1; !stop; pass++)
            for (size_t i = 0; i < kPages; i++)
                store_release(word(i), pass);
    });
    for (int fork = 0; fork < 100; fork++)
        in_child([&] {
            const uint64_t first = *word(0);
            for (size_t i = 1; i < kPages; i++) {
                EXPECT_IN_CHILD(*word(i) <= *word(i - 1));
                EXPECT_IN_CHILD(*word(i) + 1 >= first);
            }
        });
    stop = true;
    writer.join();
}

} // namespace heap_fork_test
