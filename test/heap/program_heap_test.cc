// First-class heaps: whose blocks are whose, what comes home, what goes at the end, fork.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>
#include <vector>

#include "heap/program_layer.h"

namespace
{

using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;
using heap_layer::stats_of;

struct program_heap *make()
{
    const struct program_options none = {};
    return program_make(&none);
}

class ProgramHeap : public heap_layer::ProgramHeapOfTest
{
  protected:
    void SetUp() override
    {
        ProgramHeapOfTest::SetUp();
        before_ = heap_layer::stats().live_blocks;
    }
    void TearDown() override
    {
        ProgramHeapOfTest::TearDown();
        EXPECT_EQ(heap_layer::stats().live_blocks, before_) << "nothing of the heap is left";
    }

    size_t before_ = 0;
};

const size_t kSizes[] = {0,    1,     16,        100,       1000,       1024,     1025,
                         5000, 32000, 32 * kKiB, 33 * kKiB, 100 * kKiB, 1 * kMiB, 40 * kMiB};

TEST_F(ProgramHeap, BlocksOfEverySizeAreItsOwnAndWritable)
{
    std::vector<std::pair<char *, size_t>> blocks;
    for (size_t size : kSizes) {
        char *block = static_cast<char *>(program_allocate(program_, size, 1));
        ASSERT_NE(block, nullptr) << size;
        memset(block, 0x5a, size);
        EXPECT_GE(heap_usable_size(block), size);
        EXPECT_EQ(span_program(span_of(block)), program_) << size;
        blocks.emplace_back(block, size);
    }
    EXPECT_EQ(stats_of(program_).live_blocks, std::size(kSizes));
    EXPECT_EQ(stats_of(program_).large_blocks, 4u) << "32 KiB and a canary are a slab's";
    heap_layer::verify();
    for (auto [block, size] : blocks)
        free_fast(block);
    const program_stats after = stats_of(program_);
    EXPECT_EQ(after.live_blocks, 0u);
    EXPECT_EQ(after.live_bytes, 0u);
    program_trim(program_);
    EXPECT_EQ(stats_of(program_).held_bytes, 0u) << "everything went back";
}

TEST_F(ProgramHeap, AlignedBlocks)
{
    for (size_t align = 1; align <= 8 * kMiB; align *= 4)
        for (size_t size : {size_t{1}, 700 * size_t{1}, 5 * kKiB, 50 * kKiB}) {
            void *block = program_allocate(program_, size, align);
            ASSERT_NE(block, nullptr) << align;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % align, 0u);
            EXPECT_EQ(span_program(span_of(block)), program_);
        }
}

TEST_F(ProgramHeap, TheEndTakesWhatIsInUse)
{
    struct program_heap *other = make();
    void *kept = program_allocate(other, 100, 1);
    for (int i = 0; i < 3000; i++)
        ASSERT_NE(program_allocate(program_, 24 + static_cast<size_t>(i) % 2000, 1), nullptr);
    for (int i = 0; i < 20; i++)
        ASSERT_NE(program_allocate(program_, 64 * kKiB, 1), nullptr);
    EXPECT_EQ(heap_layer::stats().live_blocks, before_ + 3021);
    program_end(program_);
    heap_layer::verify();
    EXPECT_EQ(heap_layer::stats().live_blocks, before_ + 1);
    EXPECT_EQ(stats_of(other).live_blocks, 1u);
    free_fast(kept);
    program_end(other);
    program_ = make();
}

TEST_F(ProgramHeap, AnotherUseOfTheSameHeapBeginsEmptyWithAHandleOfItsOwn)
{
    std::set<void *> handles;
    for (int i = 0; i < 20; i++) {
        EXPECT_TRUE(handles.insert(program_handle(program_)).second) << "each time another one";
        EXPECT_EQ(program_of_handle(program_handle(program_)), program_);
        ASSERT_NE(program_allocate(program_, 500, 1), nullptr);
        program_end(program_);
        program_ = make();
        EXPECT_EQ(stats_of(program_).live_blocks, 0u);
        EXPECT_EQ(stats_of(program_).held_bytes, 0u);
        EXPECT_EQ(stats_of(program_).peak_bytes, 0u);
    }
}

TEST_F(ProgramHeap, ManyHeapsInTurnNeedTheMetadataOfOne)
{
    for (int i = 0; i < 10; i++) {
        program_end(program_);
        program_ = make();
    }
    const size_t before = meta_bytes();
    for (int i = 0; i < 2000; i++) {
        ASSERT_NE(program_allocate(program_, 100, 1), nullptr);
        ASSERT_NE(program_allocate(program_, 100 * kKiB, 1), nullptr);
        program_end(program_);
        program_ = make();
    }
    EXPECT_EQ(meta_bytes(), before);
}

TEST_F(ProgramHeap, FreesOfOtherThreadsComeHomeToTheNextAllocation)
{
    std::vector<void *> blocks(5000);
    for (auto &block : blocks)
        block = program_allocate(program_, 100, 1);
    const size_t held = stats_of(program_).held_bytes;
    for (int round = 0; round < 5; round++) {
        in_thread([&] {
            for (void *block : blocks)
                free_fast(block);
        });
        for (auto &block : blocks)
            block = program_allocate(program_, 100, 1);
        heap_layer::verify();
    }
    EXPECT_LE(stats_of(program_).held_bytes, held + held / 2);
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(ProgramHeap, ThreadsAllocateAtOnceAndFreeEachOthersBlocks)
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
                auto *block = static_cast<unsigned char *>(program_allocate(program_, size, 1));
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
    EXPECT_EQ(stats_of(program_).live_blocks, left);
    heap_layer::verify();
}

TEST_F(ProgramHeap, ReallocStaysInTheHeap)
{
    char *block = static_cast<char *>(program_allocate(program_, 10, 1));
    memset(block, 7, 10);
    for (size_t size : {100 * size_t{1}, 5 * kKiB, 60 * kKiB, 3 * kMiB, 50 * kMiB, 70 * kKiB,
                        2 * kKiB, size_t{20}}) {
        block = static_cast<char *>(heap_resize(block, size));
        ASSERT_NE(block, nullptr) << size;
        EXPECT_EQ(span_program(span_of(block)), program_) << size;
        EXPECT_EQ(block[0], 7);
        EXPECT_EQ(block[9], 7);
        const program_stats now = stats_of(program_);
        EXPECT_EQ(now.live_blocks, 1u);
        EXPECT_EQ(now.large_blocks, size > 32 * kKiB);
        EXPECT_EQ(now.live_bytes, heap_layer::block_bytes(block));
        EXPECT_GE(now.held_bytes, now.live_bytes);
    }
    program_trim(program_);
    free_fast(block);
    program_trim(program_);
    EXPECT_EQ(stats_of(program_).held_bytes, 0u);
}

TEST_F(ProgramHeap, IsNoThreadHeapInTheStatistics)
{
    const size_t heaps = heap_layer::stats().heaps;
    struct program_heap *other = make();
    EXPECT_EQ(heap_layer::stats().heaps, heaps);
    EXPECT_EQ(heap_read_threads(nullptr, 0), heaps);
    program_end(other);
}

int exit_status(pid_t child)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// While others allocate and free, again and again: in the child the heap works on, and ends.
TEST_F(ProgramHeap, IsWholeInAChildOfFork)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++)
        threads.emplace_back([&] {
            void *blocks[100] = {};
            for (unsigned i = 0; !stop; i++) {
                void *&place = blocks[i * 31 % 100];
                free_fast(place);
                place = program_allocate(program_, i % 40 == 0 ? 50000 : i % 300, 1);
            }
            for (void *block : blocks)
                free_fast(block);
        });
    void *mine = program_allocate(program_, 300, 1);
    void *large = program_allocate(program_, 300 * kKiB, 1);
    bool well = true;
    for (int i = 0; well && i < (config_tsan ? 5 : 50); i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(100);
            heap_layer::verify();
            for (int k = 0; k < 200; k++)
                free_fast(program_allocate(program_, static_cast<size_t>(k), 1));
            free_fast(mine);
            free_fast(large);
            program_trim(program_);
            heap_layer::verify();
            program_end(program_);
            struct program_heap *next = make();
            free_fast(program_allocate(next, 100, 1));
            program_end(next);
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
    EXPECT_EQ(stats_of(program_).live_blocks, 0u);
}

TEST_F(ProgramHeap, TrimOfTheProcessReachesIt)
{
    std::vector<void *> blocks(20000);
    for (auto &block : blocks)
        block = program_allocate(program_, 200, 1);
    in_thread([&] {
        for (void *block : blocks)
            free_fast(block);
    });
    (void)heap_release(0);
    program_stats now;
    program_read_stats(program_, &now);
    EXPECT_EQ(now.held_bytes, 0u);
}

} // namespace
