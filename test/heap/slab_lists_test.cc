// A heap's slabs: lists, spare ones, the verifier.

#include <algorithm>
#include <vector>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::own_heap;
using heap_layer::span_of;

class SlabLists : public heap_layer::OwnHeap
{
};

TEST_F(SlabLists, AnEmptyMediumSlabIsKeptForTheNextBlock)
{
    void *block = allocate(20 * kKiB);
    struct span *slab = span_of(block);
    free_fast(block);
    EXPECT_EQ(slab_heap(slab), thread_heap) << "it was given back at once";
    block = allocate(20 * kKiB);
    EXPECT_EQ(span_of(block), slab);
    free_fast(block);
}

TEST_F(SlabLists, SpareSlabsAreBounded)
{
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++)
        free_fast(allocate(size_classes[i].size_bytes - CANARY_BYTES));
    quarantine_flush(thread_heap);
    EXPECT_LE(thread_heap->spare_bytes, 700 * kKiB);
    EXPECT_LE(run_cache_slab_bytes(&thread_heap->runs), size_t{RUN_CACHE_SLAB_BYTES});
    (void)heaps_empty_run_caches();
    EXPECT_LE(heap_layer::stats().slab_bytes, 8 * thread_heap->spare_bytes + 100 * kKiB);
    heap_trim(thread_heap);
    EXPECT_EQ(thread_heap->spare_bytes, 0u);
    EXPECT_EQ(run_cache_slab_bytes(&thread_heap->runs), 0u);
}

// A cycle of one size runs on its slab, whatever other classes keep.
TEST_F(SlabLists, TheSlabEmptiedLastIsKept)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine";
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++) {
        const size_t size = size_classes[i].size_bytes - CANARY_BYTES;
        struct span *slab = nullptr;
        // Where slots come in random order, one block may count for more than a heap keeps.
        for (int turn = 0; turn < (config_hardened ? 2 : 1); turn++) {
            void *block = allocate(std::min(size, size_t{MEDIUM_MOST}));
            slab = span_of(block);
            free_fast(block);
        }
        EXPECT_EQ(thread_heap->current[i], slab) << "class " << i;
        EXPECT_LE(thread_heap->spare_bytes, 700 * kKiB) << "class " << i;
    }
    heap_layer::verify();
    heap_trim(thread_heap);
}

// Whatever cycles went before.
TEST_F(SlabLists, ASpareSlabCountsForWhatWasHandedOut)
{
    if (config_hardened)
        GTEST_SKIP() << "slots are handed out at random";
    heap_trim(thread_heap);
    for (int i = 0; i < 3; i++)
        free_fast(allocate(20 * kKiB));
    const size_t before = thread_heap->spare_bytes;
    EXPECT_GT(before, 0u);
    void *first = allocate(20 * kKiB);
    void *second = allocate(20 * kKiB);
    ASSERT_EQ(span_of(first), span_of(second));
    free_fast(first);
    EXPECT_EQ(thread_heap->spare_bytes, before);
    free_fast(second);
    EXPECT_GT(thread_heap->spare_bytes, before);
    heap_layer::verify();
    heap_trim(thread_heap);
    EXPECT_EQ(thread_heap->spare_bytes, 0u);
    free_fast(allocate(20 * kKiB)); // as new, or as another class's
    heap_layer::verify();
    EXPECT_GT(thread_heap->spare_bytes, 0u);
}

TEST(SlabListsDeathTest, TheVerifierFindsAWrongCount)
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
        slab_own(slab)->until++;
        heap_verify(heap);
    };
    EXPECT_DEATH(broken(), "internal error");
    for (size_t i = freed; i < blocks.size(); i++)
        free_fast(blocks[i]);
    heap_trim(heap);
}

// A cycle of medium blocks asks now and then, not at each free, whether all other classes came to
// their end.
TEST(SlabListsSettle, ACycleGivesBackWhatOtherClassesKeepSpare)
{
    if (config_quarantine)
        GTEST_SKIP() << "blocks wait before their slab is empty";
    struct heap *heap = heap_layer::own_heap();
    heap_trim(heap);
    for (size_t size = 2 * kKiB; size <= 16 * kKiB; size += 2 * kKiB)
        free_fast(allocate(size));
    const auto cycle = [] {
        for (int i = 0; i < 64; i++)
            free_fast(allocate(3 * kKiB));
    };
    cycle();
    const size_t spare = heap->spare_bytes;
    // Where slots come in random order, slabs count for so much that they went before.
    EXPECT_TRUE(config_hardened || spare > 64 * kKiB) << spare;
    heap->settled_ms = 0; // another interval has begun
    cycle();
    EXPECT_LE(heap->spare_bytes, config_hardened ? 64 * kKiB : spare / 4);
    heap_layer::verify();
    heap_trim(heap);
}

} // namespace
