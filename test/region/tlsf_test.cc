// TLSF's operations one by one, and the mapping from sizes to classes. tlsf_model_test.cc compares
// random operations with a shadow.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "region/tlsf_arena.h"

extern "C" {
#include "region/tlsf.h"
}

namespace tlsf_test
{

using tlsf_test::Arena;
using tlsf_test::fault;
using tlsf_test::kKiB;
using tlsf_test::kMiB;
using tlsf_test::stats;

char *take(cairn_tlsf *heap, size_t size)
{
    void *pointer = cairn_tlsf_alloc(heap, size);
    EXPECT_NE(pointer, nullptr) << size;
    return static_cast<char *>(pointer);
}

TEST(TlsfMap, ClassesTileAllSizesInOrder)
{
    unsigned last = tlsf_class_of(16);
    EXPECT_EQ(tlsf_class_floor(last), 16u);
    for (size_t size = 32; size <= 4 * kMiB; size += TLSF_GRAIN_BYTES) {
        const unsigned size_class = tlsf_class_of(size);
        ASSERT_TRUE(size_class == last || size_class == last + 1) << size;
        ASSERT_LE(tlsf_class_floor(size_class), size);
        ASSERT_GT(tlsf_class_floor(size_class + 1), size);
        last = size_class;
    }
}

TEST(TlsfMap, FloorsAreExactUpToTheLargestSize)
{
    for (unsigned size_class = 1; size_class < TLSF_CLASSES_MAX; size_class++) {
        const size_t floor = tlsf_class_floor(size_class);
        ASSERT_EQ(tlsf_class_of(floor), size_class);
        ASSERT_EQ(tlsf_class_of(floor - TLSF_GRAIN_BYTES), size_class - 1);
    }
}

TEST(TlsfMap, AClassSpansAThirtySecondOfItsSize)
{
    for (unsigned size_class = TLSF_SECOND_LEVELS; size_class < TLSF_CLASSES_MAX; size_class++) {
        const size_t floor = tlsf_class_floor(size_class);
        ASSERT_LE(tlsf_class_floor(size_class + 1) - floor, floor / TLSF_SECOND_LEVELS);
    }
}

TEST(Tlsf, BlocksAreAlignedUsableAndDistinct)
{
    Arena heap(kMiB);
    std::vector<char *> blocks;
    for (size_t size = 0; size < 1000; size++) {
        char *block = take(heap, size);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u);
        ASSERT_GE(cairn_tlsf_usable(heap, block), size);
        ASSERT_LE(cairn_tlsf_usable(heap, block), size < 24 ? 24 : size + 15);
        memset(block, static_cast<int>(size), cairn_tlsf_usable(heap, block));
        blocks.push_back(block);
    }
    for (size_t size = 0; size < blocks.size(); size++)
        for (size_t i = 0; i < size; i++)
            ASSERT_EQ(blocks[size][i], static_cast<char>(size));
    EXPECT_EQ(fault(heap), "");
}

TEST(Tlsf, AFreedBlockIsReusedAtTheSameAddress)
{
    Arena heap(kMiB);
    char *first = take(heap, 100);
    char *guard = take(heap, 100);
    cairn_tlsf_free(heap, first);
    EXPECT_EQ(take(heap, 100), first);
    cairn_tlsf_free(heap, guard);
}

TEST(Tlsf, FreedNeighboursMergeAndServeALargerRequest)
{
    // Every order in which three neighbours can be freed.
    const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const auto &order : orders) {
        Arena heap(kMiB);
        char *blocks[] = {take(heap, 1000), take(heap, 1000), take(heap, 1000)};
        char *guard = take(heap, 16);
        for (int i : order) {
            cairn_tlsf_free(heap, blocks[i]);
            ASSERT_EQ(fault(heap), "");
        }
        EXPECT_EQ(take(heap, 3 * 1000 + 16), blocks[0]);
        cairn_tlsf_free(heap, guard);
    }
}

TEST(Tlsf, AnOversizedBlockIsSplitAndTheRestServes)
{
    Arena heap(kMiB);
    char *large = take(heap, 4000);
    char *guard = take(heap, 16);
    cairn_tlsf_free(heap, large);
    EXPECT_EQ(take(heap, 1000), large);
    EXPECT_EQ(take(heap, 2900), large + 1008);
    cairn_tlsf_free(heap, guard);
}

TEST(Tlsf, ARestTooSmallForABlockStaysWithIt)
{
    Arena heap(kMiB);
    char *block = take(heap, 72); // 80 bytes with the header
    char *guard = take(heap, 16);
    cairn_tlsf_free(heap, block);
    EXPECT_EQ(take(heap, 56), block); // 64 bytes with the header: 16 remain
    EXPECT_EQ(cairn_tlsf_usable(heap, block), 72u);
    cairn_tlsf_free(heap, guard);
    EXPECT_EQ(fault(heap), "");
}

TEST(Tlsf, TheOwnClassIsSearchedBeforeALargerBlockIsCut)
{
    Arena heap(kMiB);
    char *smaller = take(heap, 2056); // 2064 bytes, in one class with 2096
    char *guard = take(heap, 16);
    char *fitting = take(heap, 2088);
    char *guard2 = take(heap, 16);
    cairn_tlsf_free(heap, fitting);
    cairn_tlsf_free(heap, smaller); // now the head of the class, too small
    EXPECT_EQ(take(heap, 2088), fitting);
    cairn_tlsf_free(heap, guard);
    cairn_tlsf_free(heap, guard2);
}

TEST(Tlsf, TheWholeHeapCanBeOneBlock)
{
    Arena heap(kMiB);
    const size_t whole = stats(heap).largest_request_bytes;
    EXPECT_EQ(whole, stats(heap).free_bytes - 8);
    for (int i = 0; i < 3; i++) {
        char *block = take(heap, whole);
        EXPECT_EQ(stats(heap).free_bytes, 0u);
        EXPECT_EQ(fault(heap), "");
        EXPECT_EQ(cairn_tlsf_alloc(heap, 0), nullptr);
        memset(block, 0xff, whole);
        cairn_tlsf_free(heap, block);
        EXPECT_EQ(fault(heap), "");
    }
}

TEST(Tlsf, ExhaustionIsNullWithEnomemAndPasses)
{
    Arena heap(64 * kKiB);
    std::vector<char *> blocks;
    errno = 0;
    for (;;) {
        void *block = cairn_tlsf_alloc(heap, 500);
        if (!block)
            break;
        ASSERT_EQ(errno, 0);
        blocks.push_back(static_cast<char *>(block));
    }
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_GT(blocks.size(), 110u);
    errno = 0;
    cairn_tlsf_free(heap, blocks.back());
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(take(heap, 500), blocks.back());
}

TEST(Tlsf, SizesBeyondTheHeapAndOverflowsAreRefused)
{
    Arena heap(64 * kKiB);
    const volatile size_t sizes[] = {64 * kKiB, size_t{1} << 40, PTRDIFF_MAX, SIZE_MAX - 16,
                                     SIZE_MAX};
    char *block = take(heap, 100);
    for (size_t size : sizes) {
        errno = 0;
        EXPECT_EQ(cairn_tlsf_alloc(heap, size), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(cairn_tlsf_alloc_aligned(heap, size, 64), nullptr);
        EXPECT_EQ(cairn_tlsf_realloc(heap, block, size), nullptr);
        EXPECT_EQ(cairn_tlsf_resize(heap, block, size), nullptr);
    }
    errno = 0;
    volatile size_t half = SIZE_MAX / 2; // volatile: the compiler would warn
    EXPECT_EQ(cairn_tlsf_alloc_array(heap, half, 3), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    void *array = cairn_tlsf_alloc_array(heap, 10, 30);
    EXPECT_GE(cairn_tlsf_usable(heap, array), 300u);
    EXPECT_EQ(fault(heap), "");
}

TEST(Tlsf, AnyPowerOfTwoIsAnAlignmentAndNothingElse)
{
    Arena heap(kMiB);
    for (size_t align = 1; align <= 256 * kKiB; align *= 2) {
        void *block = cairn_tlsf_alloc_aligned(heap, 100, align);
        ASSERT_NE(block, nullptr) << align;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % align, 0u);
        EXPECT_GE(cairn_tlsf_usable(heap, block), 100u);
        EXPECT_EQ(fault(heap), "");
        cairn_tlsf_free(heap, block);
    }
    errno = 0;
    for (size_t align : {size_t{0}, size_t{24}, SIZE_MAX}) {
        EXPECT_EQ(cairn_tlsf_alloc_aligned(heap, 100, align), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
    errno = 0;
    EXPECT_EQ(cairn_tlsf_alloc_aligned(heap, 100, size_t{1} << 63), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(stats(heap).free_bytes, stats(heap).total_bytes);
}

TEST(Tlsf, WhatMemalignCutsOffStaysUsable)
{
    Arena heap(kMiB);
    const size_t free_bytes = stats(heap).free_bytes;
    void *block = cairn_tlsf_alloc_aligned(heap, 1000, 4096);
    EXPECT_EQ(stats(heap).free_bytes, free_bytes - 1008);
    cairn_tlsf_free(heap, block);
    EXPECT_EQ(stats(heap).largest_request_bytes, free_bytes - 8);
}

TEST(Tlsf, ReallocGrowsIntoTheFreeMemoryBehind)
{
    Arena heap(kMiB);
    char *block = take(heap, 100);
    memset(block, 7, 100);
    for (size_t size = 200; size < 500 * kKiB; size += size / 2) {
        ASSERT_EQ(cairn_tlsf_realloc(heap, block, size), block);
        ASSERT_GE(cairn_tlsf_usable(heap, block), size);
        ASSERT_EQ(fault(heap), "");
    }
    for (int i = 0; i < 100; i++)
        EXPECT_EQ(block[i], 7);
}

TEST(Tlsf, ReallocShrinksInPlaceAndFreesTheRest)
{
    Arena heap(kMiB);
    char *block = take(heap, 10000);
    char *guard = take(heap, 16);
    const size_t free_bytes = stats(heap).free_bytes;
    EXPECT_EQ(cairn_tlsf_realloc(heap, block, 1000), block);
    EXPECT_EQ(stats(heap).free_bytes, free_bytes + 9008);
    EXPECT_EQ(fault(heap), "");
    EXPECT_EQ(take(heap, 8900), block + 1008);
    cairn_tlsf_free(heap, guard);
}

TEST(Tlsf, ReallocMovesWithTheContent)
{
    Arena heap(kMiB);
    char *block = take(heap, 100);
    char *guard = take(heap, 16);
    memset(block, 9, 100);
    char *moved = static_cast<char *>(cairn_tlsf_realloc(heap, block, 5000));
    ASSERT_NE(moved, nullptr);
    ASSERT_NE(moved, block);
    for (int i = 0; i < 100; i++)
        EXPECT_EQ(moved[i], 9);
    EXPECT_EQ(take(heap, 100), block);
    cairn_tlsf_free(heap, guard);
}

TEST(Tlsf, ReallocSlidesDownWhenNothingElseFits)
{
    for (const bool behind_free : {false, true}) {
        Arena heap(64 * kKiB);
        char *front = take(heap, 20000);
        char *block = take(heap, 20000);
        char *behind = take(heap, 1000);
        char *rest = take(heap, stats(heap).largest_request_bytes);
        for (int i = 0; i < 20000; i++)
            block[i] = static_cast<char>(i * 7);
        cairn_tlsf_free(heap, front);
        if (behind_free)
            cairn_tlsf_free(heap, behind);
        const size_t size = behind_free ? 41000 : 30000;
        char *slid = static_cast<char *>(cairn_tlsf_realloc(heap, block, size));
        ASSERT_EQ(slid, front);
        for (int i = 0; i < 20000; i++)
            ASSERT_EQ(slid[i], static_cast<char>(i * 7));
        EXPECT_EQ(fault(heap), "");
        EXPECT_EQ(cairn_tlsf_realloc(heap, slid, 60000), nullptr);
        EXPECT_GE(cairn_tlsf_usable(heap, slid), size);
        cairn_tlsf_free(heap, slid);
        cairn_tlsf_free(heap, rest);
        EXPECT_EQ(fault(heap), "");
    }
}

TEST(Tlsf, ReallocOfNullAndToNothing)
{
    Arena heap(kMiB);
    void *block = cairn_tlsf_realloc(heap, nullptr, 100);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(cairn_tlsf_realloc(heap, block, 0), block); // a size of 0 counts as 1
    cairn_tlsf_free(heap, block);
    EXPECT_EQ(stats(heap).used_blocks, 0u);
    cairn_tlsf_free(heap, nullptr);
    EXPECT_EQ(cairn_tlsf_usable(heap, nullptr), 0u);
    EXPECT_EQ(cairn_tlsf_resize(heap, nullptr, 10), nullptr);
}

// The child has a copy of the heap like that of all private memory, and the parent's heap does not
// change.
TEST(Tlsf, AChildOfForkHasACopy)
{
    Arena heap(256 * kKiB);
    auto *block = static_cast<char *>(cairn_tlsf_alloc(heap, 1000));
    memset(block, 5, 1000);
    const size_t free_bytes = stats(heap).free_bytes;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        bool good = fault(heap).empty() && block[999] == 5;
        memset(block, 6, 1000);
        cairn_tlsf_free(heap, block);
        while (cairn_tlsf_alloc(heap, 500) != nullptr) {
        }
        _exit(good && fault(heap).empty() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(fault(heap), "");
    EXPECT_EQ(stats(heap).free_bytes, free_bytes);
    EXPECT_EQ(block[999], 5);
    cairn_tlsf_free(heap, block);
}

TEST(Tlsf, ResizeNeverMovesAndKeepsErrno)
{
    Arena heap(kMiB);
    char *block = take(heap, 100);
    char *guard = take(heap, 16);
    errno = 0;
    EXPECT_EQ(cairn_tlsf_resize(heap, block, 5000), nullptr);
    EXPECT_EQ(cairn_tlsf_usable(heap, block), 104u);
    cairn_tlsf_free(heap, guard);
    EXPECT_EQ(cairn_tlsf_resize(heap, block, 5000), block);
    EXPECT_EQ(cairn_tlsf_resize(heap, block, 50), block);
    EXPECT_EQ(cairn_tlsf_usable(heap, block), 56u);
    EXPECT_EQ(errno, 0);
}

} // namespace tlsf_test
