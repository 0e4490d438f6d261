// The heap behind cairn/allocator.h; allocator_conformance_test tests the rules of all allocators.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "cairn/heap.h"

namespace heap_allocator_test
{

const cairn_allocator heap = cairn_heap_allocator();

TEST(HeapAllocator, BlocksAreTheHeapsOwn)
{
    void *block = cairn_allocator_alloc(heap, 100, 8);
    ASSERT_NE(block, nullptr);
    EXPECT_GE(cairn_malloc_usable_size(block), 100u);
    cairn_free(block);
    block = cairn_malloc(100);
    cairn_allocator_free(heap, block, 100);
}

TEST(HeapAllocator, SmallBlocksHaveTheAlignmentAskedFor)
{
    for (size_t align = 1; align <= 4096; align *= 2)
        for (size_t size = 0; size <= 64; size++) {
            void *first = cairn_allocator_alloc(heap, size, align);
            void *second = cairn_allocator_alloc(heap, size, align);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % align, 0u) << size << " at " << align;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % align, 0u) << size << " at " << align;
            cairn_allocator_free(heap, first, size);
            cairn_allocator_free(heap, second, size);
        }
}

// In full hardened builds malloc(0) gives a block without memory.
TEST(HeapAllocator, ASizeOfZeroCountsAsOne)
{
    for (size_t align = 1; align <= 8192; align *= 2) {
        void *block = cairn_allocator_alloc(heap, 0, align);
        ASSERT_NE(block, nullptr);
        EXPECT_GE(cairn_malloc_usable_size(block), 1u) << "at " << align;
        cairn_allocator_free(heap, block, 0);
    }
}

TEST(HeapAllocator, ResizesWithinTheBlockDownToHalf)
{
    void *block = cairn_allocator_alloc(heap, 1000, 8);
    const size_t usable = cairn_malloc_usable_size(block);
    EXPECT_EQ(cairn_allocator_resize(heap, block, 1000, usable), block);
    EXPECT_EQ(cairn_allocator_resize(heap, block, usable, usable / 2), block);
    EXPECT_EQ(cairn_allocator_resize(heap, block, usable / 2, usable / 2 - 1), nullptr);
    EXPECT_EQ(cairn_allocator_resize(heap, block, usable / 2, usable + 1), nullptr);
    cairn_allocator_free(heap, block, usable / 2);
}

TEST(HeapAllocator, ReallocGivesMemoryOfAShrunkBlockBack)
{
    void *block = cairn_allocator_alloc(heap, 1 << 20, 8);
    memset(block, 7, 1 << 20);
    block = cairn_allocator_realloc(heap, block, 1 << 20, 100, 8);
    ASSERT_NE(block, nullptr);
    EXPECT_LT(cairn_malloc_usable_size(block), 1000u);
    EXPECT_EQ(static_cast<char *>(block)[99], 7);
    cairn_allocator_free(heap, block, 100);
}

TEST(HeapAllocator, AnyThreadAllocatesAndFrees)
{
    EXPECT_TRUE(cairn_allocator_can(heap, CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE));
    void *block = nullptr;
    std::thread([&] { block = cairn_allocator_alloc(heap, 100, 8); }).join();
    cairn_allocator_free(heap, block, 100);
}

TEST(HeapAllocatorDeathTest, MisuseEndsAsInTheHeapsOwnFunctions)
{
    void *block = cairn_allocator_alloc(heap, 100, 8);
    cairn_allocator_free(heap, block, 100);
    EXPECT_DEATH(cairn_allocator_free(heap, block, 100), "^cairn: double free of 0x");
    char local[64];
    EXPECT_DEATH(cairn_allocator_free(heap, local, 64), "which is not a Cairn block\n$");
    EXPECT_DEATH(cairn_allocator_resize(heap, local, 64, 65), "which is not a Cairn block\n$");
}

} // namespace heap_allocator_test
