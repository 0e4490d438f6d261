// Free: what it takes, and every kind of pointer that it refuses, with its message.

#include <gtest/gtest.h>

#include <vector>

#include "heap/heap_layer.h"

namespace
{

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

// A full slab waits outside its list until a sixteenth of its slots is free.
TEST(Free, AFullSlabIsListedWhenItsPatienceEnds)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine first";
    std::vector<void *> blocks;
    for (int i = 0; i < 1000; i++)
        blocks.push_back(allocate(64));
    struct span *slab = span_of(blocks[0]);
    ASSERT_TRUE(slab_is_waiting(slab));
    size_t patience = slab_patience(slab);
    for (size_t i = 0; i < patience; i++) {
        EXPECT_TRUE(slab_is_waiting(slab));
        free_fast(blocks[i]);
    }
    EXPECT_FALSE(slab_is_waiting(slab));
    EXPECT_EQ(slab_own(slab)->until, slab->capacity - patience);
    heap_layer::verify();
    for (size_t i = patience; i < blocks.size(); i++)
        free_fast(blocks[i]);
    heap_layer::verify();
}

// Misuse. Sizes in messages are those of the class.

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
        GTEST_SKIP() << "all slots are in the list";
    char *block = static_cast<char *>(allocate(48));
    struct span *slab = span_of(block);
    ASSERT_LE(slab->limit, slab->capacity);
    char *never = slab_block(slab, static_cast<unsigned>(slab->limit));
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

} // namespace
