// Private heaps: the heap of each block, frees by other threads, deletion, fork.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/stopped_thread.h"
#include "heap/private_layer.h"

namespace private_heap_test
{

using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;
using heap_layer::stats_of;

struct private_heap *make()
{
    const cairn_private_heap_options none = {};
    return private_heap_new(&none);
}

class PrivateHeap : public heap_layer::PrivateHeapOfTest
{
  protected:
    void SetUp() override
    {
        PrivateHeapOfTest::SetUp();
        before_ = heap_layer::stats().live_blocks;
    }
    void TearDown() override
    {
        PrivateHeapOfTest::TearDown();
        EXPECT_EQ(heap_layer::stats().live_blocks, before_) << "blocks of the deleted heap remain";
    }

    size_t before_ = 0;
};

const size_t kSizes[] = {0,    1,     16,        100,       1000,       1024,     1025,
                         5000, 32000, 32 * kKiB, 33 * kKiB, 100 * kKiB, 1 * kMiB, 40 * kMiB};

TEST_F(PrivateHeap, BlocksOfEverySizeAreItsOwnAndWritable)
{
    std::vector<std::pair<char *, size_t>> blocks;
    for (size_t size : kSizes) {
        char *block = static_cast<char *>(private_heap_alloc(private_heap_, size, 1));
        ASSERT_NE(block, nullptr) << size;
        memset(block, 0x5a, size);
        EXPECT_GE(heap_usable_size(block), size);
        EXPECT_EQ(span_private_heap(span_of(block)), private_heap_) << size;
        blocks.emplace_back(block, size);
    }
    EXPECT_EQ(stats_of(private_heap_).live_blocks, std::size(kSizes));
    EXPECT_EQ(stats_of(private_heap_).large_blocks, 4u) << "a slab serves 32 KiB and a canary";
    heap_layer::verify();
    for (auto [block, size] : blocks)
        free_fast(block);
    const cairn_private_heap_stats after = stats_of(private_heap_);
    EXPECT_EQ(after.live_blocks, 0u);
    EXPECT_EQ(after.live_bytes, 0u);
    private_heap_trim(private_heap_);
    EXPECT_EQ(stats_of(private_heap_).held_bytes, 0u) << "all memory was released";
}

TEST_F(PrivateHeap, AlignedBlocks)
{
    for (size_t align = 1; align <= 8 * kMiB; align *= 4)
        for (size_t size : {size_t{1}, 700 * size_t{1}, 5 * kKiB, 50 * kKiB}) {
            void *block = private_heap_alloc(private_heap_, size, align);
            ASSERT_NE(block, nullptr) << align;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % align, 0u);
            EXPECT_EQ(span_private_heap(span_of(block)), private_heap_);
        }
}

TEST_F(PrivateHeap, TheEndTakesWhatIsInUse)
{
    struct private_heap *other = make();
    void *kept = private_heap_alloc(other, 100, 1);
    for (int i = 0; i < 3000; i++)
        ASSERT_NE(private_heap_alloc(private_heap_, 24 + static_cast<size_t>(i) % 2000, 1),
                  nullptr);
    for (int i = 0; i < 20; i++)
        ASSERT_NE(private_heap_alloc(private_heap_, 64 * kKiB, 1), nullptr);
    EXPECT_EQ(heap_layer::stats().live_blocks, before_ + 3021);
    private_heap_end(private_heap_);
    heap_layer::verify();
    EXPECT_EQ(heap_layer::stats().live_blocks, before_ + 1);
    EXPECT_EQ(stats_of(other).live_blocks, 1u);
    free_fast(kept);
    private_heap_end(other);
    private_heap_ = make();
}

TEST_F(PrivateHeap, AnotherUseOfTheSameHeapBeginsEmptyWithAHandleOfItsOwn)
{
    std::set<void *> handles;
    for (int i = 0; i < 20; i++) {
        EXPECT_TRUE(handles.insert(private_heap_handle(private_heap_)).second)
            << "each use has another handle";
        EXPECT_EQ(private_heap_of_handle(private_heap_handle(private_heap_)), private_heap_);
        ASSERT_NE(private_heap_alloc(private_heap_, 500, 1), nullptr);
        private_heap_end(private_heap_);
        private_heap_ = make();
        EXPECT_EQ(stats_of(private_heap_).live_blocks, 0u);
        EXPECT_EQ(stats_of(private_heap_).held_bytes, 0u);
        EXPECT_EQ(stats_of(private_heap_).peak_bytes, 0u);
    }
}

TEST_F(PrivateHeap, ManyHeapsInTurnNeedTheMetadataOfOne)
{
    for (int i = 0; i < 10; i++) {
        private_heap_end(private_heap_);
        private_heap_ = make();
    }
    const size_t before = load_relaxed(&meta_total_bytes);
    for (int i = 0; i < 2000; i++) {
        ASSERT_NE(private_heap_alloc(private_heap_, 100, 1), nullptr);
        ASSERT_NE(private_heap_alloc(private_heap_, 100 * kKiB, 1), nullptr);
        private_heap_end(private_heap_);
        private_heap_ = make();
    }
    EXPECT_EQ(load_relaxed(&meta_total_bytes), before);
}

TEST_F(PrivateHeap, FreesOfOtherThreadsComeHomeToTheNextAllocation)
{
    std::vector<void *> blocks(5000);
    for (auto &block : blocks)
        block = private_heap_alloc(private_heap_, 100, 1);
    const size_t held = stats_of(private_heap_).held_bytes;
    for (int round = 0; round < 5; round++) {
        in_thread([&] {
            for (void *block : blocks)
                free_fast(block);
        });
        for (auto &block : blocks)
            block = private_heap_alloc(private_heap_, 100, 1);
        heap_layer::verify();
    }
    EXPECT_LE(stats_of(private_heap_).held_bytes, held + held / 2);
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(PrivateHeap, ThreadsAllocateAtOnceAndFreeEachOthersBlocks)
{
    constexpr int kThreads = 4, kRounds = config_tsan ? 2000 : 20000;
    std::vector<std::thread> threads;
    std::atomic<void *> exchange[64] = {};
    for (int t = 0; t < kThreads; t++)
        threads.emplace_back([&, t] {
            uint64_t random = 77 + static_cast<uint64_t>(t);
            for (int i = 0; i < kRounds; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                const size_t size =
                    (random >> 33) % 50 == 0 ? (random >> 40) % 100000 : (random >> 40) % 600;
                auto *block =
                    static_cast<unsigned char *>(private_heap_alloc(private_heap_, size, 1));
                ASSERT_NE(block, nullptr);
                if (size > 0)
                    block[0] = block[size - 1] = static_cast<unsigned char>(t);
                void *other = exchange[(random >> 20) % 64].exchange(block);
                if (other != nullptr)
                    free_fast(other);
            }
        });
    for (auto &thread : threads)
        thread.join();
    size_t left = 0;
    for (auto &place : exchange)
        left += place.load() != nullptr;
    EXPECT_EQ(stats_of(private_heap_).live_blocks, left);
    heap_layer::verify();
}

TEST_F(PrivateHeap, ReallocStaysInTheHeap)
{
    char *block = static_cast<char *>(private_heap_alloc(private_heap_, 10, 1));
    memset(block, 7, 10);
    for (size_t size : {100 * size_t{1}, 5 * kKiB, 60 * kKiB, 3 * kMiB, 50 * kMiB, 70 * kKiB,
                        2 * kKiB, size_t{20}}) {
        block = static_cast<char *>(heap_resize(block, size));
        ASSERT_NE(block, nullptr) << size;
        EXPECT_EQ(span_private_heap(span_of(block)), private_heap_) << size;
        EXPECT_EQ(block[0], 7);
        EXPECT_EQ(block[9], 7);
        const cairn_private_heap_stats now = stats_of(private_heap_);
        EXPECT_EQ(now.live_blocks, 1u);
        EXPECT_EQ(now.large_blocks, size > 32 * kKiB);
        EXPECT_EQ(now.live_bytes, heap_layer::block_bytes(block));
        EXPECT_GE(now.held_bytes, now.live_bytes);
    }
    private_heap_trim(private_heap_);
    free_fast(block);
    private_heap_trim(private_heap_);
    EXPECT_EQ(stats_of(private_heap_).held_bytes, 0u);
}

TEST_F(PrivateHeap, IsNoThreadHeapInTheStatistics)
{
    const size_t heaps = heap_layer::stats().heaps;
    struct private_heap *other = make();
    EXPECT_EQ(heap_layer::stats().heaps, heaps);
    EXPECT_EQ(heap_read_threads(nullptr, 0), heaps);
    private_heap_end(other);
}

int exit_status(pid_t child)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Fork while other threads allocate and free, several times: in the child the heap works, and is
// deleted.
TEST_F(PrivateHeap, IsWholeInAChildOfFork)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++)
        threads.emplace_back([&] {
            void *blocks[100] = {};
            for (unsigned i = 0; !stop; i++) {
                void *&place = blocks[i * 31 % 100];
                free_fast(place);
                place = private_heap_alloc(private_heap_, i % 40 == 0 ? 50000 : i % 300, 1);
            }
            for (void *block : blocks)
                free_fast(block);
        });
    void *mine = private_heap_alloc(private_heap_, 300, 1);
    void *large = private_heap_alloc(private_heap_, 300 * kKiB, 1);
    bool well = true;
    for (int i = 0; well && i < (config_tsan ? 5 : 50); i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(100);
            heap_layer::verify();
            for (int k = 0; k < 200; k++)
                free_fast(private_heap_alloc(private_heap_, static_cast<size_t>(k), 1));
            free_fast(mine);
            free_fast(large);
            private_heap_trim(private_heap_);
            heap_layer::verify();
            private_heap_end(private_heap_);
            struct private_heap *next = make();
            free_fast(private_heap_alloc(next, 100, 1));
            private_heap_end(next);
            _exit(0);
        }
        well = exit_status(child) == 0;
    }
    EXPECT_TRUE(well);
    stop = true;
    for (auto &thread : threads)
        thread.join();
    free_fast(mine);
    free_fast(large);
    EXPECT_EQ(stats_of(private_heap_).live_blocks, 0u);
}

TEST_F(PrivateHeap, TrimOfTheProcessReachesIt)
{
    std::vector<void *> blocks(20000);
    for (auto &block : blocks)
        block = private_heap_alloc(private_heap_, 200, 1);
    in_thread([&] {
        for (void *block : blocks)
            free_fast(block);
    });
    (void)heap_release(0);
    cairn_private_heap_stats now;
    private_heap_read_stats(private_heap_, &now);
    EXPECT_EQ(now.held_bytes, 0u);
}

// Two threads make the first heaps of a process, and the second one forks: the child must find its
// heap in order. The first thread is stopped after its n-th instruction.
constexpr int kOver = 2; // the call ended before its n-th instruction
int fork_beside_the_first_heap(size_t n)
{
    static struct fork_lock known;
    heap_start();
    fork_lock_watch(&known);
    stopped_thread::StoppedThread first([] { make(); });
    if (!first.stop_after(n))
        _exit(kOver);
    std::atomic<int> status{-1};
    std::thread second([&] {
        struct private_heap *heap = make();
        const pid_t child = fork();
        if (child == 0)
            _exit(heap->heap.generation == heap_generation ? 0 : 3);
        status = exit_status(child);
    });
    for (int i = 0; i < 100 && status == -1; i++) // it may need what the first one holds
        usleep(100);
    first.finish();
    second.join();
    return status;
}

TEST(PrivateHeapStepped, ForkKnowsTheFirstHeapsOfTwoThreads)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "needs x86-64's trap flag";
    int status = 0;
    for (size_t n = 0; n < 400 && status == 0; n++) {
        const pid_t process = fork();
        if (process == 0) {
            alarm(100);
            _exit(fork_beside_the_first_heap(n));
        }
        status = exit_status(process);
        ASSERT_TRUE(status == 0 || (status == kOver && n > 30)) << status << " after " << n;
    }
}

} // namespace private_heap_test
