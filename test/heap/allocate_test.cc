// Allocation: every size and alignment, zeroing, and what the fast path hands to the slow one.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;

TEST(Allocate, EverySizeUpToMediumIsOfItsClass)
{
    for (size_t size = config_void_blocks; size <= MEDIUM_MAX; size++) { // 0: harden_test.cc
        char *block = static_cast<char *>(allocate(size));
        ASSERT_NE(block, nullptr);
        if (size <= MEDIUM_MOST) {
            const unsigned i = class_of_size(size + CANARY_BYTES);
            ASSERT_EQ(span_of(block)->size_bytes, size_classes[i].size_bytes);
            ASSERT_EQ(heap_usable_size(block), config_canaries ? size : size_classes[i].size_bytes);
        }
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u);
        memset(block, 1, heap_usable_size(block));
        free_fast(block);
    }
    heap_layer::verify();
}

TEST(Allocate, LiveBlocksNeverOverlap)
{
    std::set<std::pair<char *, char *>> blocks;
    for (size_t size = 0; size < 80 * kKiB; size = size * 17 / 16 + 1)
        for (int i = 0; i < 5; i++) {
            char *block = static_cast<char *>(allocate(size));
            ASSERT_NE(block, nullptr);
            ASSERT_TRUE(blocks.emplace(block, block + heap_usable_size(block)).second);
        }
    const char *end = nullptr;
    for (const auto &[start, stop] : blocks) {
        ASSERT_GE(start, end);
        end = stop;
    }
    for (const auto &[start, stop] : blocks)
        free_fast(start);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST(Allocate, TheBlockFreedLastComesNext)
{
    if (config_quarantine)
        GTEST_SKIP() << "it waits in quarantine";
    for (size_t size : {size_t{8}, size_t{100}, size_t{1000}, 5 * kKiB}) {
        void *first = allocate(size);
        void *second = allocate(size);
        free_fast(first);
        EXPECT_EQ(allocate(size), first);
        free_fast(first);
        free_fast(second);
    }
}

TEST(Allocate, ZeroedMemoryIsZeroAfterUse)
{
    for (size_t size :
         {size_t{0}, size_t{1}, size_t{100}, 3 * kKiB, 40 * kKiB, 600 * kKiB, 35 * kMiB}) {
        for (int round = 0; round < 4; round++) {
            char *block = static_cast<char *>(heap_allocate_zeroed(size));
            ASSERT_NE(block, nullptr);
            for (size_t i = 0; i < size; i++)
                ASSERT_EQ(block[i], 0) << size << " at " << i;
            memset(block, 0xff, heap_usable_size(block));
            free_fast(block);
        }
    }
}

// A run of which a part only was written: what is not cleared must be what reads zero anyway.
TEST(Allocate, ZeroedMemoryIsZeroWhereAPartWasUsed)
{
    constexpr size_t kBytes = 9 * kMiB;
    free_fast(allocate(kBytes));
    heap_release(0);
    std::vector<char *> used;
    for (int i = 0; i < 20; i++) {
        used.push_back(static_cast<char *>(allocate(60 * kKiB)));
        memset(used.back(), 0xff, 60 * kKiB);
    }
    for (char *block : used)
        free_fast(block);
    for (size_t size : {kBytes, 5 * kMiB + 123, kMiB - 1}) {
        char *block = static_cast<char *>(heap_allocate_zeroed(size));
        ASSERT_NE(block, nullptr);
        for (size_t i = 0; i < size; i++)
            ASSERT_EQ(block[i], 0) << size << " at " << i;
        free_fast(block);
    }
}

TEST(Allocate, EveryAlignmentWithManySizes)
{
    for (size_t alignment = 1; alignment <= 16 * kMiB; alignment *= 2)
        for (size_t size = 0; size < 200 * kKiB; size = size * 3 + 1) {
            char *block = static_cast<char *>(heap_allocate_aligned(size, alignment));
            ASSERT_NE(block, nullptr) << size << " at " << alignment;
            ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
            ASSERT_GE(heap_usable_size(block), size);
            memset(block, 1, size);
            free_fast(block);
        }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

TEST(Allocate, SizesThatNobodyHasAreRefused)
{
    for (size_t size : {SIZE_MAX, SIZE_MAX - PAGE_BYTES, SIZE_MAX / 2 + 1, size_t{1} << 47}) {
        EXPECT_EQ(allocate(size), nullptr) << size;
        EXPECT_EQ(heap_allocate_zeroed(size), nullptr) << size;
        EXPECT_EQ(heap_allocate_aligned(size, 64), nullptr) << size;
    }
    EXPECT_EQ(heap_allocate_aligned(1, size_t{1} << 63), nullptr);
    EXPECT_EQ(heap_allocate_aligned(1, size_t{1} << 47), nullptr);
}

} // namespace
