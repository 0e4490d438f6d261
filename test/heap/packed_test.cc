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

#include "heap/packed_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::is_packed;
using heap_layer::kSlabBlocks;
using heap_layer::span_of;

class Packed : public heap_layer::PackingHeap
{
};

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
    for (struct span *slab = heap_layer::mailbox_of(heap_, PACKED_CLASS); slab;
         slab = slab->mail_next) {
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

// What a thread looks at after it marked its block free may be of a header that is somebody else's
// by now. Nothing orders the threads here but the heap itself, so ThreadSanitizer sees such a look.
TEST_F(Packed, AFreeLooksAtNothingThatGoesWithTheSlab)
{
    const std::vector<void *> blocks = take(3 * kSlabBlocks);
    struct span *slab = span_of(blocks[kSlabBlocks]);
    ASSERT_NE(slab, heap_->packed.slab);
    std::vector<void *> first, rest, others;
    for (void *block : blocks) {
        const size_t offset = static_cast<size_t>(static_cast<char *>(block) - slab->base);
        if (span_of(block) != slab)
            others.push_back(block);
        else
            (offset / (64 * PACKED_BYTES) == 1 ? first : rest).push_back(block);
    }
    ASSERT_EQ(first.size(), 64u) << "a whole word: its last free looks for an empty slab";
    ASSERT_EQ(first.size() + rest.size(), kSlabBlocks);
    std::atomic<int> step{0};
    const auto wait_for = [&](int wanted) {
        while (step.load(std::memory_order_relaxed) != wanted)
            usleep(100);
    };
    const auto freer = [&](int turn, const std::vector<void *> &mine) {
        wait_for(turn);
        give(mine);
        step.store(turn + 1, std::memory_order_relaxed);
        wait_for(3);
    };
    std::thread one([&] { freer(0, first); });
    std::thread two([&] { freer(1, rest); });
    wait_for(2);
    const size_t held = heap_layer::stats().slab_bytes;
    heap_drain(heap_);
    EXPECT_LT(heap_layer::stats().slab_bytes, held) << "the slab is empty and goes";
    const std::vector<void *> again = take(2 * kSlabBlocks); // and its header serves once more
    step.store(3, std::memory_order_relaxed);
    one.join();
    two.join();
    give(others);
    give(again);
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
