// The slabs and blocks of a private heap.

#include <vector>

#include "heap/private_layer.h"

namespace private_state_test
{

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::span_of;

using heap_layer::stats_of;

class PrivateState : public heap_layer::PrivateHeapOfTest
{
};

TEST_F(PrivateState, SlabsAreListedWhileTheyAreHeld)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 1000; i++)
        blocks.push_back(private_heap_alloc(private_heap_, 500, 1));
    size_t bytes = 0;
    for (struct span *slab = private_heap_->slabs; slab; slab = private_heap_next_slab(slab)) {
        EXPECT_EQ(span_private_heap(slab), private_heap_);
        bytes += private_heap_slab_bytes(slab_class(slab));
    }
    EXPECT_EQ(bytes, private_heap_->slab_bytes);
    EXPECT_EQ(bytes, held());
    const size_t peak = stats_of(private_heap_).peak_bytes;
    EXPECT_GE(peak, bytes);
    for (void *block : blocks)
        free_fast(block);
    private_heap_trim(private_heap_);
    EXPECT_EQ(private_heap_->slabs, nullptr);
    EXPECT_EQ(private_heap_->heap.retired, nullptr) << "the pages were given back";
    EXPECT_EQ(held(), 0u);
    EXPECT_EQ(stats_of(private_heap_).peak_bytes, peak);
}

TEST_F(PrivateState, TheBlockLeadsToItsHeap)
{
    void *block = private_heap_alloc(private_heap_, 40, 1);
    void *large = private_heap_alloc(private_heap_, 100 * kKiB, 1);
    void *other = allocate(40);
    EXPECT_EQ(span_private_heap(span_of(block)), private_heap_);
    EXPECT_EQ(span_private_heap(span_of(large)), private_heap_);
    EXPECT_EQ(span_private_heap(span_of(other)), nullptr);
    free_fast(block);
    free_fast(large);
    free_fast(other);
}

} // namespace private_state_test
