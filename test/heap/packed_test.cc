// Packed slabs: when a heap begins to pack, that no block is given out twice, lost or misaligned,
// which frees are told, and when slabs go back. Debug builds pack early, so the model tests, the
// fuzzers and the sweeps of failing calls go through them too.

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "heap/packed.h"
}

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::span_of;

constexpr size_t kSlabBlocks = size_t{PACKED_WORDS} * 64;

bool is_packed(const void *block)
{
    const struct span *span = span_of(block);
    return span_is_slab(span) && slab_is_packed(span);
}

class Packed : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!config_packed)
            GTEST_SKIP() << "hardened builds keep a canary behind each block";
        heap_ = heap_layer::own_heap();
        while (!heap_->packed.on)
            before_.push_back(allocate(8));
    }
    void TearDown() override
    {
        for (void *block : before_)
            free_fast(block);
        if (heap_)
            heap_trim(heap_);
        heap_layer::verify();
        EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
        EXPECT_EQ(heap_layer::stats().slab_bytes, 0u);
    }

    static std::vector<void *> take(size_t count)
    {
        std::vector<void *> blocks(count);
        for (void *&block : blocks) {
            block = allocate(8);
            EXPECT_TRUE(is_packed(block));
        }
        return blocks;
    }
    static void give(const std::vector<void *> &blocks)
    {
        for (void *block : blocks)
            free_fast(block);
    }

    struct heap *heap_ = nullptr;
    std::vector<void *> before_; // what it took to begin
};

TEST_F(Packed, BeginsWithManySmallestBlocks)
{
    if (before_.size() < 2)
        GTEST_SKIP() << "only as the first test of a process";
    EXPECT_GE(heap_->smallest_slabs, unsigned{PACKED_FROM_SLABS});
    EXPECT_FALSE(is_packed(before_[before_.size() - 2]));
    in_thread([] {
        void *block = allocate(8);
        EXPECT_FALSE(is_packed(block)) << "every heap for itself";
        free_fast(block);
    });
}

TEST_F(Packed, ServesUpToEightBytes)
{
    for (size_t size = 0; size <= 16; size++) {
        void *block = allocate(size);
        EXPECT_EQ(is_packed(block), size <= 8) << size;
        EXPECT_EQ(heap_usable_size(block), size <= 8 ? 8u : 16u);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % (size <= 8 ? 8 : 16), 0u);
        memset(block, 0xff, heap_usable_size(block));
        free_fast(block);
    }
}

bool keep_none(void *, size_t, size_t) { return false; }
void forget(void *) {}
const struct heap_profiler kProfiler = {keep_none, forget, [](void *, void *) {}};

TEST_F(Packed, GoesOnWhenTheProfilerIsDone)
{
    heap_profile_start(&kProfiler, 1, 1);
    for (int i = 0; i < 10; i++) {
        void *block = allocate(8);
        EXPECT_FALSE(is_packed(block));
        free_fast(block);
    }
    heap_profile_stop();
    free_fast(allocate(16)); // the heap follows
    for (size_t size = 0; size <= 16; size++) {
        void *block = allocate(size);
        EXPECT_EQ(is_packed(block), size <= 8) << size;
        free_fast(block);
    }
}

TEST_F(Packed, NeverForMoreThanEightBytesOfAlignment)
{
    for (size_t alignment : {1, 2, 8, 16, 32, 4096}) {
        void *block = heap_allocate_aligned(8, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
        EXPECT_EQ(is_packed(block), alignment <= 8) << alignment;
        heap_free_sized(block, 8, alignment);
    }
}

TEST_F(Packed, ZeroedBlocksAreZero)
{
    const std::vector<void *> blocks = take(200);
    for (void *block : blocks)
        memset(block, 0xee, 8);
    give(blocks);
    std::vector<void *> zeroed;
    for (int i = 0; i < 200; i++) {
        zeroed.push_back(heap_allocate_zeroed(8));
        EXPECT_EQ(*static_cast<uint64_t *>(zeroed.back()), 0u);
    }
    give(zeroed);
}

TEST_F(Packed, ResizesInPlaceUpToEightBytes)
{
    char *block = static_cast<char *>(allocate(3));
    memcpy(block, "ab", 3);
    EXPECT_EQ(heap_resize(block, 8), block);
    char *larger = static_cast<char *>(heap_resize(block, 9));
    EXPECT_FALSE(is_packed(larger));
    EXPECT_STREQ(larger, "ab");
    char *smaller = static_cast<char *>(heap_resize(larger, 1));
    ASSERT_NE(smaller, nullptr);
    EXPECT_EQ(*smaller, 'a');
    free_fast(smaller);
}

TEST_F(Packed, BlocksAreApart)
{
    const std::vector<void *> blocks = take(3 * kSlabBlocks + 7);
    EXPECT_EQ(std::set<void *>(blocks.begin(), blocks.end()).size(), blocks.size());
    for (size_t i = 0; i < blocks.size(); i++)
        *static_cast<size_t *>(blocks[i]) = i;
    for (size_t i = 0; i < blocks.size(); i++)
        ASSERT_EQ(*static_cast<size_t *>(blocks[i]), i);
    give(blocks);
}

TEST_F(Packed, CountsLiveBlocks)
{
    const size_t before = heap_layer::stats().live_blocks;
    std::vector<void *> blocks = take(1000);
    EXPECT_EQ(heap_layer::stats().live_blocks, before + 1000);
    for (int i = 0; i < 300; i++) {
        free_fast(blocks.back());
        blocks.pop_back();
    }
    EXPECT_EQ(heap_layer::stats().live_blocks, before + 700);
    give(blocks);
}

// A full slab is gone back to when several words have free blocks, whoever freed them.
TEST_F(Packed, AFullSlabServesAgain)
{
    for (bool remote : {false, true}) {
        std::vector<void *> blocks = take(4 * kSlabBlocks);
        struct span *slab = span_of(blocks[kSlabBlocks]);
        ASSERT_TRUE(slab_is_waiting(slab));
        std::set<void *> freed;
        for (void *&block : blocks)
            if (span_of(block) == slab && slab->limit == PACKED_WORDS &&
                reinterpret_cast<uintptr_t>(block) % 512 == 0)
                freed.insert(std::exchange(block, nullptr));
        ASSERT_EQ(freed.size(), size_t{PACKED_WORDS}) << "one of each word";
        const auto free_them = [&] { give({freed.begin(), freed.end()}); };
        if (remote)
            in_thread(free_them);
        else
            free_them();
        size_t again = 0;
        std::vector<void *> more = take(kSlabBlocks + PACKED_WORDS);
        for (void *block : more)
            again += freed.count(block);
        EXPECT_EQ(again, size_t{PACKED_WORDS});
        give(blocks);
        give(more);
        heap_trim(heap_);
    }
}

TEST_F(Packed, EmptySlabsGoBackAtOnce)
{
    for (bool remote : {false, true}) {
        std::vector<void *> blocks = take(8 * kSlabBlocks);
        std::shuffle(blocks.begin(), blocks.end(), std::minstd_rand(1));
        const size_t held = heap_layer::stats().slab_bytes;
        if (remote) {
            in_thread([&] { give(blocks); });
            heap_drain(heap_);
        } else {
            give(blocks);
        }
        EXPECT_LE(heap_layer::stats().slab_bytes, held - 6 * kSlabBlocks * PACKED_BYTES);
    }
}

TEST_F(Packed, AnotherThreadPostsOnce)
{
    std::vector<void *> blocks = take(3 * kSlabBlocks);
    in_thread([&] { give(blocks); });
    size_t queued = 0;
    for (struct span *slab = heap_->mailbox; slab; slab = slab_remote(slab)->mail_next) {
        EXPECT_FALSE(remote_close(heap_, slab)) << "it is queued";
        ASSERT_LT(queued++, 5u) << "a cycle";
    }
    EXPECT_GE(queued, 3u);
}

TEST_F(Packed, AnEndedThreadsSlabsAreEmptiedByTheFreer)
{
    std::vector<void *> blocks;
    in_thread([&] {
        while (blocks.empty() || !is_packed(blocks.back()))
            blocks.push_back(allocate(8));
        for (size_t i = 0; i < 2 * kSlabBlocks; i++)
            blocks.push_back(allocate(8));
    });
    give(blocks);
}

// Random lives on one thread, checked by content.
TEST_F(Packed, ChurnKeepsEveryBlock)
{
    std::minstd_rand random(7);
    std::vector<uint64_t *> blocks(20000);
    for (uint64_t step = 1; step < 400000; step++) {
        uint64_t *&block = blocks[random() % blocks.size()];
        if (block) {
            ASSERT_EQ(block[0] >> 32, reinterpret_cast<uintptr_t>(block) & UINT32_MAX);
            free_fast(block);
            block = nullptr;
        } else {
            block = static_cast<uint64_t *>(allocate(8));
            *block = reinterpret_cast<uintptr_t>(block) << 32 | (step & UINT32_MAX);
        }
        if (step % 100000 == 0)
            heap_trim(heap_);
    }
    for (uint64_t *block : blocks)
        free_fast(block);
}

// Many threads free, and take, what one keeps allocating.
TEST_F(Packed, FreesRaceWithTheHolder)
{
    constexpr size_t kSlots = 2048;
    std::vector<std::atomic<uint64_t *>> slots(kSlots);
    std::atomic<bool> stop{false};
    std::atomic<size_t> freed{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 3; i++)
        threads.emplace_back([&, i] {
            for (size_t at = i * 37; !stop; at++)
                if (uint64_t *block = slots[at % kSlots].exchange(nullptr)) {
                    EXPECT_EQ(*block, reinterpret_cast<uintptr_t>(block));
                    *block = 0;
                    free_fast(block);
                    freed++;
                }
        });
    std::vector<void *> kept;
    for (size_t round = 0; freed < 200000 && round < 50000000; round++) {
        uint64_t *block = static_cast<uint64_t *>(allocate(8));
        ASSERT_NE(block, nullptr);
        *block = reinterpret_cast<uintptr_t>(block);
        free_fast(slots[round * 7 % kSlots].exchange(block));
        if (round % 64 == 0)
            kept.push_back(allocate(8));
        if (kept.size() == 3000) {
            give(kept);
            kept.clear();
        }
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_GE(freed, 200000u);
    give(kept);
    for (auto &slot : slots)
        free_fast(slot.exchange(nullptr));
}

// In the child of a fork the thread's own heap goes on; blocks of other threads are freed once.
TEST_F(Packed, ForkedChildrenFreeEverything)
{
    std::vector<void *> own = take(2 * kSlabBlocks);
    std::vector<void *> others;
    std::atomic<int> step{0};
    std::thread other([&] {
        while (others.empty() || !is_packed(others.back()))
            others.push_back(allocate(8));
        for (size_t i = 0; i < 2 * kSlabBlocks; i++)
            others.push_back(allocate(8));
        for (int i = 0; i < 100; i++) { // mail that nobody has read
            free_fast(own.back());
            own.pop_back();
        }
        step = 1;
        while (step == 1)
            usleep(1000);
    });
    while (step == 0)
        usleep(1000);
    const pid_t child = fork();
    if (child == 0) {
        give(own);
        give(others);
        std::vector<void *> more(3 * kSlabBlocks);
        for (void *&block : more)
            block = allocate(8);
        give(more);
        heap_verify(thread_heap);
        _exit(42);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << status;
    give(own);
    give(others);
    step = 2;
    other.join();
}

// Misuse.

class PackedDeathTest : public Packed
{
};

TEST_F(PackedDeathTest, DoubleFreesAreSeenWhateverTheThreads)
{
    std::vector<void *> blocks = take(200);
    void *block = blocks[100];
    const auto here = [&] { free_fast(block); };
    const auto there = [&] { in_thread(here); };
    const char *message = "double free of 0x[0-9a-f]+ \\(8-byte block\\)";
    EXPECT_DEATH((here(), here()), message);
    EXPECT_DEATH((there(), there()), message);
    EXPECT_DEATH((here(), there()), message);
    EXPECT_DEATH((there(), here()), message);
    EXPECT_DEATH((there(), heap_drain(heap_), here()), message);
    EXPECT_DEATH((give(blocks), here()), message);
    give(blocks);
}

TEST_F(PackedDeathTest, OtherFaultsNameTheBlock)
{
    std::vector<void *> blocks = take(10);
    char *block = static_cast<char *>(blocks[5]);
    char *unused = span_of(block)->base + kSlabBlocks * PACKED_BYTES - PACKED_BYTES;
    EXPECT_DEATH(free_fast(block + 3),
                 "free of interior pointer 0x[0-9a-f]+ \\(8-byte block at 0x[0-9a-f]+\\)");
    EXPECT_DEATH(in_thread([&] { free_fast(block + 3); }), "free of interior pointer");
    EXPECT_DEATH(free_fast(unused), "free of 0x[0-9a-f]+, which is not a Cairn block");
    EXPECT_DEATH(heap_free_sized(block, 9, 1), "free_sized of 0x[0-9a-f]+ with size 9 \\(8-byte");
    EXPECT_DEATH(heap_free_sized(block, 8, 16), "free_sized of 0x[0-9a-f]+ with size 8 \\(8-byte");
    EXPECT_DEATH(heap_free_sized(block, 1 << 20, 16),
                 "free_sized of 0x[0-9a-f]+ with size 1048576 ");
    EXPECT_DEATH(heap_resize(block + 1, 4), "realloc of interior pointer");
    free_fast(block);
    EXPECT_DEATH(heap_usable_size(block),
                 "malloc_usable_size of freed block 0x[0-9a-f]+ \\(8-byte");
    EXPECT_DEATH(heap_resize(block, 4), "realloc of freed block 0x[0-9a-f]+ \\(8-byte block\\)");
    blocks.erase(blocks.begin() + 5);
    give(blocks);
}

TEST_F(PackedDeathTest, AForkedChildSeesASecondFree)
{
    void *block = nullptr;
    std::vector<void *> others;
    std::atomic<int> step{0};
    std::thread other([&] {
        while (block == nullptr || !is_packed(block))
            others.push_back(block = allocate(8));
        step = 1;
        while (step == 1)
            usleep(1000);
    });
    while (step == 0)
        usleep(1000);
    const char *message = "double free of 0x[0-9a-f]+ \\(8-byte block\\)";
    EXPECT_DEATH((free_fast(block), free_fast(block)), message); // in a fork of this process
    give(others);
    step = 2;
    other.join();
}

} // namespace
