// Free pages of the own slabs go back.

#include <vector>

#include "heap/sweep_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;

using heap_layer::allocate_many;
using heap_layer::resident;

class SlabSweepSizes : public heap_layer::OwnHeap, public testing::WithParamInterface<size_t>
{
};

INSTANTIATE_TEST_SUITE_P(Sizes, SlabSweepSizes, testing::Values(4 * kKiB, 30 * kKiB),
                         testing::PrintToStringParamName());

// What has not changed between two sweeps goes, what has stays.
TEST_P(SlabSweepSizes, TheOwnFreePagesGoBackByTime)
{
    std::vector<void *> blocks = allocate_many(4 * kMiB / GetParam(), GetParam());
    std::vector<void *> live;
    for (size_t i = 0; i < blocks.size(); i++)
        i % 10 == 0 ? live.push_back(blocks[i]) : free_fast(blocks[i]);
    quarantine_flush(heap_);
    sweep_heap(heap_);
    const size_t after_one = resident(blocks, GetParam());
    sweep_heap(heap_);
    EXPECT_LE(resident(blocks, GetParam()), after_one * 2 / 3 + 512 * kKiB);
    heap_layer::verify();
    for (void *block : live)
        free_fast(block);
    heap_trim(heap_);
}

// The owner frees the last block of a slab while another thread purges it: the slab must not be
// forgotten.
TEST(SlabSweep, OneThatRanEmptyMeanwhileIsPostedToItsOwner)
{
    heap_layer::own_heap();
    std::vector<void *> blocks = allocate_many(20, 8 * kKiB);
    struct span *slab = span_of(blocks[0]);
    std::vector<void *> rest;
    while (slab == thread_heap->current[slab_class(slab)])
        rest.push_back(allocate(8 * kKiB));
    ASSERT_TRUE(slab_try_use(slab, SLAB_PURGED));
    EXPECT_FALSE(slab_try_use(slab, SLAB_CURRENT));
    for (void *block : blocks)
        free_fast(block);
    for (void *block : rest)
        free_fast(block);
    quarantine_flush(thread_heap);
    EXPECT_EQ(slab_heap(slab), thread_heap) << "given back under the purger";
    EXPECT_TRUE(slab_end_purge(slab));
    EXPECT_NE(remote_post(thread_heap, slab), unsigned{NOT_POSTED});
    heap_drain(thread_heap);
    EXPECT_NE(slab_heap(slab), thread_heap) << "forgotten";
    heap_trim(thread_heap);
    heap_layer::verify();
}

} // namespace
