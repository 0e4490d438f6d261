// The places of blocks in heaps with several regions.

#include <gtest/gtest.h>

#include <vector>

#include "region/tlsf_arena.h"

namespace tlsf_block_test
{

using tlsf_test::Arena;
using tlsf_test::fault;
using tlsf_test::kKiB;
using tlsf_test::stats;

TEST(TlsfBlock, ARemovedRegionsPointersAreForeign)
{
    Arena heap(16 * kKiB);
    std::vector<char> more(32 * kKiB);
    ASSERT_EQ(cairn_tlsf_add(heap, more.data(), 16 * kKiB), 0);
    void *block = cairn_tlsf_alloc(heap, 15 * kKiB);
    cairn_tlsf_free(heap, block);
    ASSERT_EQ(cairn_tlsf_remove(heap, more.data()), 0);
    EXPECT_DEATH(cairn_tlsf_free(heap, block), "which is not a block of heap");
}

TEST(TlsfBlock, NeighbouringRegionsDoNotMerge)
{
    alignas(16) static char memory[64 * kKiB];
    cairn_tlsf *heap = cairn_tlsf_init_for(memory, 16 * kKiB, 64 * kKiB);
    ASSERT_EQ(cairn_tlsf_add(heap, memory + 32 * kKiB, 16 * kKiB), 0);
    ASSERT_EQ(cairn_tlsf_add(heap, memory + 16 * kKiB, 16 * kKiB), 0);
    ASSERT_EQ(cairn_tlsf_add(heap, memory + 48 * kKiB, 16 * kKiB), 0);
    EXPECT_EQ(stats(heap).regions, 4u);
    EXPECT_LE(stats(heap).largest_request_bytes, 16 * kKiB);
    EXPECT_EQ(fault(heap), "");
    EXPECT_EQ(cairn_tlsf_remove(heap, memory + 32 * kKiB), 0);
    EXPECT_EQ(fault(heap), "");
    EXPECT_EQ(stats(heap).regions, 3u);
}

} // namespace tlsf_block_test
