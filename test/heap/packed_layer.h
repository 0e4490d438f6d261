// Fixtures of the tests of packed slabs.
#pragma once

#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "heap/packed.h"
}

namespace heap_layer
{

constexpr size_t kSlabBlocks = size_t{PACKED_SLOTS} * 64;

inline bool is_packed(const void *block)
{
    const struct span *span = span_of(block);
    return span_is_slab(span) && slab_is_packed(span);
}

// A heap that uses packed slabs.
class PackingHeap : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!config_packed)
            GTEST_SKIP() << "hardened builds keep a canary behind each block";
        heap_ = heap_layer::own_heap();
        while (!heap_->packs)
            before_.push_back(allocate(8));
    }
    void TearDown() override
    {
        for (void *block : before_)
            free_fast(block);
        if (heap_)
            heap_trim(heap_);
        (void)heap_release(0); // also the mail of threads that have ended
        heap_layer::verify();
        EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
        EXPECT_EQ(heap_layer::stats().slab_bytes, 0u);
    }

    static std::vector<void *> take(size_t count)
    {
        std::vector<void *> blocks(count);
        for (void *&block : blocks) {
            block = allocate(8);
            EXPECT_TRUE(is_packed(block));
        }
        return blocks;
    }
    static void give(const std::vector<void *> &blocks)
    {
        for (void *block : blocks)
            free_fast(block);
    }

    struct heap *heap_ = nullptr;
    std::vector<void *> before_; // the blocks that it took to begin
};

} // namespace heap_layer
