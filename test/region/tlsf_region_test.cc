// Setting up TLSF, and regions that are added and removed.

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

#include "region/tlsf_arena.h"

namespace tlsf_region_test
{

using tlsf_test::Arena;
using tlsf_test::fault;
using tlsf_test::kKiB;
using tlsf_test::kMiB;
using tlsf_test::stats;

size_t larger(size_t a, size_t b) { return a > b ? a : b; }

TEST(TlsfRegion, EveryAlignmentOfTheMemoryServes)
{
    for (size_t shift = 0; shift < 130; shift++) {
        Arena heap(16 * kKiB, shift);
        ASSERT_NE(heap.get(), nullptr) << shift;
        ASSERT_EQ(fault(heap), "");
        ASSERT_NE(cairn_tlsf_alloc(heap, 10000), nullptr);
        ASSERT_EQ(fault(heap), "");
    }
}

TEST(TlsfRegion, EverySizeServesOrIsRefused)
{
    std::vector<char> memory(20 * kKiB + 8);
    size_t least = 0;
    for (size_t size = 0; size < 20 * kKiB; size++) {
        memory[size] = 42; // a guard byte behind the memory
        errno = 0;
        cairn_tlsf *heap = cairn_tlsf_init(memory.data(), size);
        ASSERT_TRUE(heap != nullptr || least == 0) << size;
        ASSERT_EQ(errno, heap ? 0 : EINVAL);
        if (heap) {
            least = least ? least : size;
            const size_t most = stats(heap).largest_request_bytes;
            ASSERT_NE(cairn_tlsf_alloc(heap, most), nullptr);
            ASSERT_EQ(fault(heap), "");
        }
        ASSERT_EQ(memory[size], 42);
    }
    EXPECT_LT(least, 1024u);
    EXPECT_EQ(cairn_tlsf_init(nullptr, 4096), nullptr);
}

TEST(TlsfRegion, TheStructureTakesWhatTheHeaderSays)
{
    Arena heap(kMiB);
    EXPECT_EQ(kMiB - stats(heap).total_bytes, 256u + 12 * 256 + 32);
    EXPECT_EQ(cairn_tlsf_control_bytes(kMiB, 0), 256u + 12 * 256);
    EXPECT_EQ(cairn_tlsf_control_bytes(16 * kKiB, kMiB), 256u + 13 * 256);
}

TEST(TlsfRegion, BytesForACapacityAreEnoughAndNotTooMany)
{
    std::vector<size_t> capacities;
    for (size_t capacity = 0; capacity < 5000; capacity++)
        capacities.push_back(capacity);
    for (size_t power = 8192; power <= 4 * kMiB; power *= 2)
        for (size_t more = 0; more < 700; more += 4)
            capacities.push_back(power - 400 + more);
    std::vector<char> memory(5 * kMiB + 64);
    void *start = memory.data();
    size_t space = memory.size();
    std::align(64, 5 * kMiB, start, space);
    for (size_t capacity : capacities) {
        const size_t size = cairn_tlsf_bytes_for(capacity);
        cairn_tlsf *heap = cairn_tlsf_init(start, size);
        ASSERT_NE(heap, nullptr) << capacity;
        ASSERT_NE(cairn_tlsf_alloc(heap, capacity), nullptr) << capacity;
        ASSERT_LE(size, larger(capacity, CAIRN_TLSF_BLOCK_MIN_BYTES) +
                            cairn_tlsf_control_bytes(size + 64, 0) +
                            CAIRN_TLSF_REGION_OVERHEAD_BYTES + CAIRN_TLSF_BLOCK_OVERHEAD_BYTES + 15)
            << capacity;
    }
    EXPECT_EQ(cairn_tlsf_bytes_for(SIZE_MAX), 0u);
    EXPECT_EQ(cairn_tlsf_bytes_for(size_t{1} << 40), 0u);
    EXPECT_GT(cairn_tlsf_bytes_for(size_t{1} << 39), size_t{1} << 39);
}

TEST(TlsfRegion, OverheadsAreThoseThatTheHeaderNames)
{
    Arena heap(kMiB);
    std::vector<char> more(64 * kKiB + 16);
    const size_t before = stats(heap).total_bytes;
    auto *start = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(more.data()) + 15) & ~15ul);
    ASSERT_EQ(cairn_tlsf_add(heap, start, 64 * kKiB), 0);
    EXPECT_EQ(stats(heap).total_bytes - before, 64 * kKiB - CAIRN_TLSF_REGION_OVERHEAD_BYTES);
    for (size_t size : {1, 24, 25, 100, 1000}) {
        const size_t free_bytes = stats(heap).free_bytes;
        void *block = cairn_tlsf_alloc(heap, size);
        const size_t usable = cairn_tlsf_usable(heap, block);
        EXPECT_EQ(free_bytes - stats(heap).free_bytes, usable + CAIRN_TLSF_BLOCK_OVERHEAD_BYTES);
        EXPECT_EQ(usable % 16, 8u);
        EXPECT_GE(usable, static_cast<size_t>(CAIRN_TLSF_BLOCK_MIN_BYTES));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % CAIRN_TLSF_ALIGNMENT_BYTES, 0u);
    }
}

TEST(TlsfRegion, AddedMemoryServes)
{
    Arena heap(16 * kKiB);
    std::vector<char> more(16 * kKiB);
    EXPECT_EQ(cairn_tlsf_alloc(heap, 15 * kKiB), nullptr);
    ASSERT_EQ(cairn_tlsf_add(heap, more.data(), more.size()), 0);
    EXPECT_EQ(fault(heap), "");
    char *block = static_cast<char *>(cairn_tlsf_alloc(heap, 15 * kKiB));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(block > more.data() && block < more.data() + more.size());
    EXPECT_EQ(cairn_tlsf_remove(heap, more.data()), EBUSY);
    cairn_tlsf_free(heap, block);
    EXPECT_EQ(cairn_tlsf_remove(heap, more.data()), 0);
    EXPECT_EQ(fault(heap), "");
    EXPECT_EQ(cairn_tlsf_alloc(heap, 15 * kKiB), nullptr);
    EXPECT_EQ(cairn_tlsf_remove(heap, more.data()), EINVAL);
}

TEST(TlsfRegion, OverlapsAndTheOwnMemoryAreRefused)
{
    alignas(16) static char memory[64 * kKiB];
    cairn_tlsf *heap = cairn_tlsf_init(memory + 16 * kKiB, 16 * kKiB);
    ASSERT_EQ(cairn_tlsf_add(heap, memory + 40 * kKiB, 8 * kKiB), 0);
    EXPECT_EQ(cairn_tlsf_add(heap, memory + 8 * kKiB, 9 * kKiB), EINVAL);
    EXPECT_EQ(cairn_tlsf_add(heap, memory + 20 * kKiB, kKiB), EINVAL);
    EXPECT_EQ(cairn_tlsf_add(heap, memory + 31 * kKiB, 2 * kKiB), EINVAL);
    EXPECT_EQ(cairn_tlsf_add(heap, memory + 36 * kKiB, 16 * kKiB), EINVAL);
    EXPECT_EQ(cairn_tlsf_add(heap, memory + 47 * kKiB, 2 * kKiB), EINVAL);
    EXPECT_EQ(cairn_tlsf_add(heap, nullptr, 16 * kKiB), EINVAL);
    EXPECT_EQ(cairn_tlsf_add(heap, memory, SIZE_MAX), EINVAL);
    EXPECT_EQ(cairn_tlsf_add(heap, memory, 63), EINVAL);
    EXPECT_EQ(cairn_tlsf_add(heap, memory, 64), 0);
    EXPECT_EQ(cairn_tlsf_add(heap, memory + 64, 16 * kKiB - 64), 0);
    EXPECT_EQ(fault(heap), "");
    EXPECT_EQ(cairn_tlsf_remove(heap, memory + 16 * kKiB), EINVAL);
}

TEST(TlsfRegion, ARegionLargerThanPreparedForIsRefused)
{
    std::vector<char> more(kMiB);
    Arena small(16 * kKiB);
    EXPECT_EQ(cairn_tlsf_add(small, more.data(), more.size()), EFBIG);
    EXPECT_EQ(fault(small), "");
    Arena memory(16 * kKiB);
    cairn_tlsf *prepared = cairn_tlsf_init_for(memory.memory(), 16 * kKiB, kMiB);
    ASSERT_EQ(cairn_tlsf_add(prepared, more.data(), more.size()), 0);
    EXPECT_NE(cairn_tlsf_alloc(prepared, 1000 * kKiB), nullptr);
    EXPECT_EQ(fault(prepared), "");
}

} // namespace tlsf_region_test
