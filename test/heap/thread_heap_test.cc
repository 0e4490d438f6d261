// Thread heaps: their bins, their spare slabs, their trim.

#include <gtest/gtest.h>

#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "page/state.h"
}

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::own_heap;
using heap_layer::span_of;

class ThreadHeap : public heap_layer::OwnHeap
{
};

TEST_F(ThreadHeap, ASlabWithRoomIsUsedBeforeANewOne)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 4000; i++)
        blocks.push_back(allocate(64));
    const size_t slab_bytes = heap_layer::stats().slab_bytes;
    for (size_t i = 0; i < blocks.size(); i += 2)
        free_fast(blocks[i]);
    for (size_t i = 0; i < blocks.size(); i += 2)
        blocks[i] = allocate(64);
    // Quarantine keeps some for itself.
    EXPECT_LE(heap_layer::stats().slab_bytes, slab_bytes + (config_quarantine ? 32 * kKiB : 0));
    heap_layer::verify();
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(ThreadHeap, EmptySlabsGoBack)
{
    for (size_t size : {size_t{16}, size_t{1000}, 3 * kKiB, 30 * kKiB}) {
        heap_trim(thread_heap);
        const size_t before = heap_layer::stats().slab_bytes;
        std::vector<void *> blocks;
        for (int i = 0; i < 2000; i++)
            blocks.push_back(allocate(size));
        for (void *block : blocks)
            free_fast(block);
        harden_flush(thread_heap);
        heap_layer::verify();
        EXPECT_LE(heap_layer::stats().slab_bytes, before + 600 * kKiB) << size;
        heap_trim(thread_heap);
        EXPECT_LE(heap_layer::stats().slab_bytes, before) << size;
    }
}

TEST_F(ThreadHeap, AnEmptyMediumSlabIsKeptForTheNextBlock)
{
    void *block = allocate(20 * kKiB);
    struct span *slab = span_of(block);
    free_fast(block);
    EXPECT_EQ(slab_heap(slab), thread_heap) << "it was given back at once";
    block = allocate(20 * kKiB);
    EXPECT_EQ(span_of(block), slab);
    free_fast(block);
}

TEST_F(ThreadHeap, SpareSlabsAreBounded)
{
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++)
        free_fast(allocate(size_classes[i].size_bytes - CANARY_BYTES));
    harden_flush(thread_heap);
    EXPECT_LE(thread_heap->spare_bytes, 700 * kKiB);
    EXPECT_LE(run_cache_slab_bytes(&thread_heap->runs), size_t{RUN_CACHE_SLAB_BYTES});
    (void)heaps_empty_run_caches();
    EXPECT_LE(heap_layer::stats().slab_bytes, 8 * thread_heap->spare_bytes + 100 * kKiB);
    heap_trim(thread_heap);
    EXPECT_EQ(thread_heap->spare_bytes, 0u);
    EXPECT_EQ(run_cache_slab_bytes(&thread_heap->runs), 0u);
}

// A cycle of one size runs on its slab, whatever other classes keep.
TEST_F(ThreadHeap, TheSlabEmptiedLastIsKept)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine";
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++) {
        void *block = allocate(size_classes[i].size_bytes - CANARY_BYTES);
        struct span *slab = span_of(block);
        free_fast(block);
        EXPECT_EQ(thread_heap->current[i], slab) << "class " << i;
        EXPECT_LE(thread_heap->spare_bytes, 700 * kKiB) << "class " << i;
    }
    heap_layer::verify();
    heap_trim(thread_heap);
}

// Memory goes back with time also while a program needs no new slab.
TEST_F(ThreadHeap, ACycleOfOneBlockAsksWhatIsDue)
{
    for (size_t size : {size_t{64}, 2 * kKiB}) {
        if (config_quarantine && size > SMALL_MAX)
            continue; // some of its blocks always wait: the slab is never empty
        free_fast(allocate(size));
        store_relaxed(&pages_state.interval_start_ms, uint64_t{0});
        for (int i = 0; i < 2000; i++)
            free_fast(allocate(size));
        EXPECT_NE(load_relaxed(&pages_state.interval_start_ms), 0u) << size;
    }
}

TEST_F(ThreadHeap, AnIdleHeapCostsLittle)
{
    in_thread([] {
        const size_t before = heap_layer::stats().slab_bytes;
        for (size_t size = 1; size < 2 * kKiB; size *= 2)
            free_fast(allocate(size));
        EXPECT_LE(heap_layer::stats().slab_bytes, before + 400 * kKiB);
    });
    EXPECT_LE(heap_layer::stats().slab_bytes, 100 * kKiB) << "an ended thread's slabs are gone";
}

TEST(ThreadHeapDeathTest, TheVerifierFindsAWrongCount)
{
    if (!config_debug)
        GTEST_SKIP() << "the verifier runs in debug builds";
    struct heap *heap = own_heap();
    std::vector<void *> blocks;
    for (int i = 0; i < 600; i++)
        blocks.push_back(allocate(64));
    struct span *slab = span_of(blocks[0]);
    size_t freed = 0;
    while (slab_is_waiting(slab)) // full, until so many were freed that it is listed
        free_fast(blocks[freed++]);
    heap_verify(heap);
    const auto broken = [&] {
        slab->until++;
        heap_verify(heap);
    };
    EXPECT_DEATH(broken(), "internal error");
    for (size_t i = freed; i < blocks.size(); i++)
        free_fast(blocks[i]);
    heap_trim(heap);
}

} // namespace
