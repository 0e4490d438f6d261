// The functions of cairn/heap.h beyond those of libc.

#include <errno.h>
#include <gtest/gtest.h>
#include <stdint.h>
#include <string.h>

#include <vector>

#include "base/compiler.h"
#include "cairn/heap.h"
#include "cairn/private_heap.h"
#include "cairn/stats.h"

namespace extend_test
{

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

TEST(GoodSize, IsWhatABlockHasAnyway)
{
    for (size_t size = 0; size < 200 * kKiB; size += 1 + size / 50) {
        const size_t good = cairn_good_size(size);
        ASSERT_GE(good, size);
        EXPECT_EQ(cairn_good_size(good), good) << "a good size is its own good size";
        void *block = cairn_malloc(size), *better = cairn_malloc(good);
        EXPECT_GE(cairn_malloc_usable_size(better), good);
        const size_t bytes = cairn_malloc_usable_size(block);
        EXPECT_EQ(cairn_malloc_usable_size(better), config_hardened ? good : bytes) << size;
        cairn_free_sized(block, size);
        cairn_free_sized(better, good);
    }
    EXPECT_EQ(cairn_good_size(SIZE_MAX), SIZE_MAX);
    EXPECT_GE(cairn_good_size(PTRDIFF_MAX), size_t{PTRDIFF_MAX});
}

TEST(AtLeast, TheWholeBlockIsTheCallers)
{
    for (size_t size : {size_t{0}, size_t{1}, size_t{20}, size_t{1000}, 20 * kKiB, 50 * kKiB}) {
        size_t bytes = 0;
        char *block = static_cast<char *>(cairn_malloc_at_least(size, &bytes));
        ASSERT_NE(block, nullptr);
        ASSERT_GE(bytes, size);
        memset(block, 1, bytes);
        cairn_free_sized(block, bytes);
    }
    size_t bytes = 1;
    volatile size_t most = SIZE_MAX;
    EXPECT_EQ(cairn_malloc_at_least(most, &bytes), nullptr);
    EXPECT_EQ(bytes, 0u);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(Resize, InPlaceOrNotAtAll)
{
    errno = 7;
    EXPECT_EQ(cairn_resize(nullptr, 10), nullptr);
    void *small = cairn_malloc(100);
    EXPECT_EQ(cairn_resize(small, 100), small);
    EXPECT_EQ(cairn_resize(small, 98), small);
    EXPECT_EQ(cairn_resize(small, 10), nullptr) << "another class serves the size better";
    EXPECT_EQ(cairn_resize(small, 500), nullptr);
    cairn_free_sized(small, 98);
    char *large = static_cast<char *>(cairn_malloc(300 * kKiB));
    memset(large, 5, 300 * kKiB);
    EXPECT_EQ(cairn_resize(large, 200 * kKiB), large);
    EXPECT_EQ(large[200 * kKiB - 1], 5);
    EXPECT_EQ(cairn_resize(large, 1000), nullptr);
    cairn_free_sized(large, 200 * kKiB);
    char *huge = static_cast<char *>(cairn_malloc(40 * kMiB));
    huge[0] = 3;
    for (size_t size = 40 * kMiB; size < 600 * kMiB; size *= 2)
        if (cairn_resize(huge, size) != nullptr)
            huge[size - 1] = 1; // with either result
    EXPECT_EQ(huge[0], 3);
    EXPECT_EQ(cairn_resize(huge, SIZE_MAX), nullptr);
    cairn_free(huge);
    EXPECT_EQ(errno, 7);
}

bool is_zero(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

TEST(Recallocarray, NewElementsReadZeroAndOldOnesStay)
{
    const size_t counts[] = {1,    3,    10,    11,  40,    39,    200,   1000, 5000,
                             4990, 8000, 20000, 100, 70000, 69990, 30000, 5,    1};
    size_t old_count = 0;
    char *array = nullptr;
    for (size_t count : counts) {
        char *next = static_cast<char *>(cairn_recallocarray(array, old_count, count, 8));
        ASSERT_NE(next, nullptr);
        const size_t kept = old_count < count ? old_count : count;
        for (size_t i = 0; i < 8 * kept; i++)
            ASSERT_EQ(next[i], 9) << i << " of " << count;
        ASSERT_TRUE(is_zero(next + 8 * kept, 8 * (count - kept))) << count;
        memset(next, 9, 8 * count);
        array = next;
        old_count = count;
    }
    array = static_cast<char *>(cairn_recallocarray(array, old_count, 0, 8));
    ASSERT_NE(array, nullptr);
    cairn_free(array);
}

// The freed block is handed out next: it must not show its former content.
TEST(Recallocarray, NothingStaysBehind)
{
    if (config_hardened)
        GTEST_SKIP() << "a freed block waits, or is not the next one";
    for (size_t size : {size_t{100}, 5 * kKiB}) {
        char *array = static_cast<char *>(cairn_malloc(size));
        memset(array, 's', size);
        const uintptr_t place = reinterpret_cast<uintptr_t>(array);
        void *moved = cairn_recallocarray(array, size, 10 * size, 1);
        ASSERT_NE(reinterpret_cast<uintptr_t>(moved), place);
        char *again = static_cast<char *>(cairn_malloc(size));
        ASSERT_EQ(reinterpret_cast<uintptr_t>(again), place);
        EXPECT_TRUE(is_zero(again, size));
        cairn_free(again);
        cairn_free(moved);
    }
    char *array = static_cast<char *>(cairn_malloc(112));
    memset(array, 's', 112);
    array = static_cast<char *>(cairn_recallocarray(array, 112, 100, 1));
    ASSERT_EQ(cairn_malloc_usable_size(array), 112u);
    EXPECT_TRUE(is_zero(array + 100, 12)) << "the part that was given up in place must read zero";
    cairn_free(array);
}

TEST(Recallocarray, RefusesWhatCannotBe)
{
    volatile size_t most = SIZE_MAX;
    char *array = static_cast<char *>(cairn_recallocarray(nullptr, most, 10, 10));
    ASSERT_NE(array, nullptr) << "NULL has no old elements";
    array[0] = 4;
    errno = 0;
    EXPECT_EQ(cairn_recallocarray(array, 10, most / 2, 10), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(cairn_recallocarray(array, most / 2, 10, 10), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(cairn_recallocarray(array, 1000, 10, 10), nullptr);
    EXPECT_EQ(errno, EINVAL) << "the array never had that many elements";
    errno = 0;
    EXPECT_EQ(cairn_recallocarray(array, 10, most / 40, 10), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(array[0], 4);
    cairn_free(array);
}

TEST(Recallocarray, StaysInItsHeap)
{
    cairn_private_heap *heap = cairn_private_heap_new(nullptr);
    void *array = cairn_private_heap_alloc(heap, 10);
    array = cairn_recallocarray(array, 1, 1000, 10);
    EXPECT_EQ(cairn_private_heap_of(array), heap);
    array = cairn_recallocarray(array, 1000, 10000, 10);
    EXPECT_EQ(cairn_private_heap_of(array), heap);
    cairn_private_heap_delete(heap);
}

TEST(Batch, ByItsPublicNames)
{
    std::vector<void *> blocks(500);
    errno = 7;
    ASSERT_EQ(cairn_malloc_batch(blocks.size(), 40, blocks.data()), blocks.size());
    cairn_free_batch(blocks.size(), blocks.data());
    EXPECT_EQ(errno, 7);
    volatile size_t most = SIZE_MAX;
    EXPECT_EQ(cairn_malloc_batch(3, most, blocks.data()), 0u);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(Idle, GivesSlabsBack)
{
    cairn_thread_idle();
    cairn_heap_stats before, after;
    cairn_heap_read_stats(&before);
    std::vector<void *> blocks(20000);
    ASSERT_EQ(cairn_malloc_batch(blocks.size(), 200, blocks.data()), blocks.size());
    cairn_free_batch(blocks.size(), blocks.data());
    cairn_thread_idle();
    cairn_heap_read_stats(&after);
    EXPECT_LE(after.slab_bytes, before.slab_bytes);
    cairn_free(cairn_malloc(10));
}

} // namespace extend_test
