// Frees, valid and invalid, and the checks behind their reports.

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "heap/heap_layer.h"

namespace free_test
{

// Free: the pointers that it accepts, and every kind of pointer that it refuses, with its message.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;

TEST(Free, NullIsNothing)
{
    free_fast(nullptr);
    heap_layer::own_heap();
    free_fast(nullptr);
    in_thread([] { free_fast(nullptr); });
}

TEST(Free, EveryKindOfBlockInAnyOrder)
{
    std::vector<void *> blocks;
    for (size_t size = 1; size < 70 * kMiB; size *= 3)
        for (int i = 0; i < (size < kMiB ? 30 : 2); i++) {
            blocks.push_back(allocate(size));
            ASSERT_NE(blocks.back(), nullptr);
        }
    for (size_t i = 0; i < blocks.size(); i++)
        std::swap(blocks[i], blocks[i * 7919 % blocks.size()]);
    for (void *block : blocks)
        free_fast(block);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    EXPECT_EQ(heap_layer::stats().live_bytes, 0u);
    heap_layer::verify();
}

// A full slab stays outside its list until a sixteenth of its slots is free.
TEST(Free, AFullSlabIsListedOnceEnoughSlotsAreFree)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine first";
    std::vector<void *> blocks;
    for (int i = 0; i < 1000; i++)
        blocks.push_back(allocate(64));
    struct span *slab = span_of(blocks[0]);
    ASSERT_TRUE(slab_is_waiting(slab));
    size_t patience = slab_relist_after(slab);
    for (size_t i = 0; i < patience; i++) {
        EXPECT_TRUE(slab_is_waiting(slab));
        free_fast(blocks[i]);
    }
    EXPECT_FALSE(slab_is_waiting(slab));
    EXPECT_EQ(slab_hot(slab)->frees_to_attention, slab->capacity - patience);
    heap_layer::verify();
    for (size_t i = patience; i < blocks.size(); i++)
        free_fast(blocks[i]);
    heap_layer::verify();
}

// Misuse. Messages name the size of the class.

class FreeDeathTest : public testing::TestWithParam<size_t>
{
  protected:
    void SetUp() override
    {
        block_ = static_cast<char *>(allocate(GetParam()));
        ASSERT_NE(block_, nullptr);
        size_ = std::to_string(heap_layer::block_bytes(block_));
    }
    void TearDown() override { free_fast(block_); }

    void free_twice()
    {
        free_fast(block_);
        free_fast(block_);
    }

    char *block_ = nullptr;
    std::string size_;
};

TEST_P(FreeDeathTest, InteriorPointers)
{
    const std::string message = "^cairn: free of interior pointer 0x[0-9a-f]+ \\(" + size_ +
                                "-byte block at 0x[0-9a-f]+\\)\n$";
    for (size_t offset : {size_t{1}, size_t{8}, GetParam() / 2, GetParam() - 1}) {
        EXPECT_EXIT(free_fast(block_ + offset), testing::KilledBySignal(SIGABRT), message);
        EXPECT_EXIT(in_thread([&] { free_fast(block_ + offset); }),
                    testing::KilledBySignal(SIGABRT), message);
    }
}

TEST_P(FreeDeathTest, DoubleFree)
{
    EXPECT_EXIT(free_twice(), testing::KilledBySignal(SIGABRT),
                "^cairn: double free of 0x[0-9a-f]+ \\((" + size_ +
                    "-byte block|its memory is free)\\)\n$");
}

INSTANTIATE_TEST_SUITE_P(Sizes, FreeDeathTest,
                         testing::Values(size_t{16}, size_t{48}, size_t{1000}, 9 * kKiB, 50 * kKiB,
                                         2 * kMiB));

TEST(FreeForeignDeathTest, WhatIsNoBlock)
{
    heap_layer::own_heap();
    static int in_data;
    int on_stack = 0;
    for (void *pointer :
         {static_cast<void *>(&in_data), static_cast<void *>(&on_stack),
          reinterpret_cast<void *>(8), reinterpret_cast<void *>(0x7fff12345678),
          reinterpret_cast<void *>(uintptr_t{1} << 62), reinterpret_cast<void *>(~uintptr_t{15})}) {
        EXPECT_EXIT(free_fast(pointer), testing::KilledBySignal(SIGABRT),
                    "^cairn: free of 0x[0-9a-f]+, which is not a Cairn block\n$")
            << pointer;
    }
}

TEST(FreeForeignDeathTest, ABlocksAddressWithOtherUpperBits)
{
    void *block = allocate(48);
    for (unsigned bit = 48; bit < 64; bit++) {
        void *odd =
            reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(block) | uintptr_t{1} << bit);
        EXPECT_EXIT(free_fast(odd), testing::KilledBySignal(SIGABRT), "^cairn: ") << bit;
    }
    free_fast(block);
}

TEST(FreeForeignDeathTest, ASlotThatWasNeverHandedOut)
{
    if (config_random_slots)
        GTEST_SKIP() << "all slots are in the list of free slots";
    char *block = static_cast<char *>(allocate(48));
    struct span *slab = span_of(block);
    ASSERT_LE(slab->fresh_slot, slab->capacity);
    char *never = slab_block(slab, static_cast<unsigned>(slab->fresh_slot));
    EXPECT_EXIT(free_fast(never), testing::KilledBySignal(SIGABRT), "which is not a Cairn block");
    char *behind = slab_start(slab) + size_t{slab->capacity} * slab->size_bytes;
    if (page_map_find(behind) == slab) {
        EXPECT_EXIT(free_fast(behind), testing::KilledBySignal(SIGABRT),
                    "which is not a Cairn block");
    }
    free_fast(block);
}

TEST(FreeForeignDeathTest, TheHeapsOwnMemory)
{
    char *block = static_cast<char *>(allocate(48));
    void *header = span_of(block);
    void *heap = thread_heap;
    EXPECT_EXIT(free_fast(header), testing::KilledBySignal(SIGABRT), "which is not a Cairn block");
    EXPECT_EXIT(free_fast(heap), testing::KilledBySignal(SIGABRT), "which is not a Cairn block");
    free_fast(block);
}

// The lookup of the block for a pointer.

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;

TEST(BlockCheck, ABlockInUseHasItsSlotAndSpan)
{
    for (size_t size : {size_t{24}, 3 * kKiB, 100 * kKiB, 64 * kMiB}) {
        void *block = allocate(size);
        struct span *span = checked_span(block, "realloc");
        EXPECT_EQ(span, span_of(block));
        if (span_is_slab(span)) {
            EXPECT_EQ(slab_block(span, checked_slot(block, span, "realloc")), block);
        }
        free_fast(block);
    }
}

TEST(BlockCheckDeathTest, WhatIsNoBlockInUseIsTold)
{
    for (size_t size : {size_t{24}, 3 * kKiB, 100 * kKiB}) {
        char *block = static_cast<char *>(allocate(size));
        EXPECT_DEATH((void)checked_span(block + 1, "realloc"), "realloc of interior pointer");
        EXPECT_DEATH((void)checked_span(&size, "realloc"), "which is not a Cairn block");
        free_fast(block);
        EXPECT_DEATH((void)checked_span(block, "realloc"), "realloc of freed block");
    }
}

// Invalid frees that are refused: nothing changes, for any kind of block and any owner.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;

class MisuseReport : public testing::TestWithParam<size_t>
{
  protected:
    void SetUp() override
    {
        if (config_hardened)
            GTEST_SKIP() << "hardened builds end the process";
        heap_layer::own_heap();
    }
};

// Runs in a process of its own that continues after invalid frees, and checks that its state is
// unchanged.
template <typename Body> void expect_unchanged(Body frees)
{
    EXPECT_EXIT(
        {
            heap_go_on_after_wrong_frees();
            const heap_stats before = heap_layer::stats();
            const size_t wrong = frees();
            heap_layer::verify();
            const heap_stats after = heap_layer::stats();
            _exit(heap_count_wrong_frees() == wrong && before.live_bytes == after.live_bytes &&
                          before.live_blocks == after.live_blocks
                      ? 0
                      : 1);
        },
        testing::ExitedWithCode(0), "^(cairn: [^\n]*\n)+$");
}

TEST_P(MisuseReport, FreesOfWhatIsNoBlockInUse)
{
    static std::vector<char *> blocks;
    blocks.clear();
    for (int i = 0; i < 9; i++)
        blocks.push_back(static_cast<char *>(allocate(GetParam())));
    free_fast(blocks[3]);
    in_thread([] { free_fast(blocks[5]); });
    expect_unchanged([] {
        char local[64];
        const auto wrong = [&] {
            free_fast(blocks[3]);
            free_fast(blocks[5]);
            free_fast(blocks[4] + 1);
            free_fast(local + 16);
            free_fast(reinterpret_cast<void *>(uintptr_t{1} << 60));
            heap_free_sized(blocks[4], GetParam() / 4 + 5000000000, 1);
        };
        wrong();
        in_thread(wrong);
        return size_t{12};
    });
    for (size_t i = 0; i < blocks.size(); i++)
        if (i != 3 && i != 5)
            free_fast(blocks[i]);
}

INSTANTIATE_TEST_SUITE_P(Kinds, MisuseReport,
                         testing::Values(24, 200, 3000, 20 * kKiB, 40 * kKiB, kMiB, 64 * kMiB));

} // namespace free_test
