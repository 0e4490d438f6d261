// Fixtures of the tests of private heaps and their large blocks.
#pragma once

#include "heap/heap_layer.h"

extern "C" {
#include "heap/private_heap.h"
#include "heap/private_state.h"
}

namespace heap_layer
{

inline cairn_private_heap_stats stats_of(struct private_heap *private_heap)
{
    cairn_private_heap_stats stats;
    private_heap_read_stats(private_heap, &stats);
    return stats;
}

// A private heap without a limit.
class PrivateHeapOfTest : public heap_layer::OwnHeap
{
  protected:
    void SetUp() override
    {
        OwnHeap::SetUp();
        const cairn_private_heap_options none = {};
        private_heap_ = private_heap_new(&none);
        ASSERT_NE(private_heap_, nullptr);
    }
    void TearDown() override
    {
        private_heap_end(private_heap_);
        OwnHeap::TearDown();
    }
    size_t held() { return stats_of(private_heap_).held_bytes; }
    void *take(size_t size) { return private_heap_alloc(private_heap_, size, PAGE_BYTES); }

    struct private_heap *private_heap_ = nullptr;
};

} // namespace heap_layer
