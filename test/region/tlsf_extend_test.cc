// A heap that grows at its end: the new memory merges with a free block before it.

#include <gtest/gtest.h>

#include <vector>

extern "C" {
#include "region/tlsf.h"
}

namespace tlsf_extend_test
{

class Extend : public testing::Test
{
  protected:
    static constexpr size_t kFirst = 65536, kMore = 32768;
    Extend() : memory_(kFirst + 4 * kMore)
    {
        heap_ = cairn_tlsf_init_for(memory_.data(), kFirst, size_t{1} << 30);
    }
    cairn_tlsf_stats stats() const
    {
        cairn_tlsf_stats stats;
        cairn_tlsf_read_stats(heap_, &stats);
        return stats;
    }

    std::vector<char> memory_;
    cairn_tlsf *heap_;
};

TEST_F(Extend, MergesWithTheFreeBlockAtTheEnd)
{
    const cairn_tlsf_stats before = stats();
    EXPECT_EQ(cairn_tlsf_alloc(heap_, kFirst), nullptr);
    tlsf_extend(heap_, kMore);
    EXPECT_EQ(cairn_tlsf_check(heap_), nullptr);
    EXPECT_EQ(stats().total_bytes, before.total_bytes + kMore);
    EXPECT_EQ(stats().free_bytes, before.free_bytes + kMore);
    EXPECT_EQ(stats().used_blocks, 0u);
    EXPECT_EQ(stats().regions, 1u);
    EXPECT_NE(cairn_tlsf_alloc(heap_, before.free_bytes), nullptr)
        << "the free memory is one block";
}

TEST_F(Extend, BehindABlockInUse)
{
    std::vector<void *> blocks;
    while (void *block = cairn_tlsf_alloc(heap_, 100))
        blocks.push_back(block);
    for (int i = 0; i < 4; i++) {
        tlsf_extend(heap_, kMore);
        EXPECT_EQ(cairn_tlsf_check(heap_), nullptr);
        while (void *block = cairn_tlsf_alloc(heap_, 100))
            blocks.push_back(block);
        EXPECT_EQ(cairn_tlsf_check(heap_), nullptr);
    }
    for (void *block : blocks)
        cairn_tlsf_free(heap_, block);
    EXPECT_EQ(cairn_tlsf_check(heap_), nullptr);
    EXPECT_EQ(stats().free_bytes, stats().total_bytes);
}

// The heap is extended, used, freed, and cut to several shorter lengths.
TEST_F(Extend, IsCutAtItsEndAgain)
{
    tlsf_extend(heap_, kMore);
    void *first = cairn_tlsf_alloc(heap_, 1000);
    for (size_t cut : {size_t{16}, size_t{4096}, kMore, size_t{48}}) {
        const cairn_tlsf_stats before = stats();
        const size_t at_end = tlsf_free_at_end(heap_);
        EXPECT_EQ(at_end, before.free_bytes);
        tlsf_cut(heap_, cut);
        EXPECT_EQ(cairn_tlsf_check(heap_), nullptr);
        EXPECT_EQ(tlsf_free_at_end(heap_), at_end - cut);
        EXPECT_EQ(stats().total_bytes, before.total_bytes - cut);
        EXPECT_EQ(stats().free_bytes, before.free_bytes - cut);
    }
    tlsf_cut(heap_, tlsf_free_at_end(heap_) - BLOCK_MIN_BYTES);
    EXPECT_EQ(cairn_tlsf_check(heap_), nullptr);
    void *last = cairn_tlsf_alloc(heap_, 16);
    EXPECT_NE(last, nullptr);
    EXPECT_EQ(tlsf_free_at_end(heap_), 0u);
    EXPECT_EQ(cairn_tlsf_alloc(heap_, 16), nullptr);
    tlsf_extend(heap_, kMore);
    cairn_tlsf_free(heap_, last);
    cairn_tlsf_free(heap_, first);
    EXPECT_EQ(cairn_tlsf_check(heap_), nullptr);
    EXPECT_EQ(stats().free_bytes, stats().total_bytes);
}

} // namespace tlsf_extend_test
