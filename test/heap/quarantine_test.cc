// Freed blocks that wait.

#include <set>

#include "heap/harden_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::span_of;

class Quarantine : public heap_layer::HardenedHeap
{
};

TEST_F(Quarantine, AFreedBlockIsZeroAndWaits)
{
    if (!config_quarantine)
        GTEST_SKIP() << "full builds only";
    for (size_t size : {size_t{40}, size_t{1000}, 9 * kKiB}) {
        char *block = static_cast<char *>(allocate(size));
        struct span *slab = span_of(block);
        memset(block, 1, size);
        free_fast(block);
        const unsigned slot = static_cast<unsigned>(slab_slot(slab, block));
        EXPECT_EQ(*slab_link(slab, slot), LINK_QUARANTINED);
        EXPECT_EQ(slab_live(slab) + 1, slab_used(slab));
        for (size_t i = 0; i < slab->size_bytes; i++)
            ASSERT_EQ(block[i], 0) << i;
        quarantine_flush(heap_);
        EXPECT_NE(*slab_link(slab, slot), LINK_QUARANTINED);
        heap_layer::verify();
    }
}

TEST_F(Quarantine, QuarantineIsBoundedAndRandom)
{
    if (!config_quarantine)
        GTEST_SKIP() << "full builds only";
    quarantine_flush(heap_);
    std::set<size_t> delays;
    for (int round = 0; round < 50; round++) {
        void *block = allocate(64);
        struct span *slab = span_of(block);
        const unsigned slot = static_cast<unsigned>(slab_slot(slab, block));
        void *keeper = allocate(64); // its slab stays
        free_fast(block);
        size_t frees = 0;
        for (; *slab_link(slab, slot) == LINK_QUARANTINED && frees < 20000; frees++)
            free_fast(allocate(300));
        EXPECT_LT(frees, 20000u);
        delays.insert(frees);
        free_fast(keeper);
    }
    EXPECT_GT(delays.size(), 30u);
    quarantine_flush(heap_);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

TEST_F(Quarantine, BlocksOfOtherThreadsWaitToo)
{
    if (!config_quarantine)
        GTEST_SKIP() << "full builds only";
    void *block = allocate(64);
    struct span *slab = span_of(block);
    in_thread([&] { free_fast(block); });
    heap_drain(heap_);
    EXPECT_EQ(*slab_link(slab, static_cast<unsigned>(slab_slot(slab, block))), LINK_QUARANTINED);
    quarantine_flush(heap_);
    heap_layer::verify();
}

} // namespace
