// The slabs of a heap: lists, spare slabs, the verifier.

#include <algorithm>
#include <vector>

#include "heap/sweep_layer.h"

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
    EXPECT_EQ(slab_heap(slab), thread_heap) << "the slab was given back at once";
    block = allocate(20 * kKiB);
    EXPECT_EQ(span_of(block), slab);
    free_fast(block);
}

// SPARE_MAX_BYTES of slab_lists.c, and the slab that became empty last.
constexpr size_t kSpareMost = 768 * kKiB + 8 * size_t{MEDIUM_BLOCK_MAX};

TEST_F(SlabLists, EveryClassKeepsTheSlabOfOneBlock)
{
    if (config_hardened)
        GTEST_SKIP() << "slots are handed out at random";
    std::vector<struct span *> slabs;
    heap_trim(thread_heap);
    void *aside = allocate(64);
    heap_put_aside(thread_heap, class_of_size(64)); // otherwise the heap settles
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++) {
        void *block = allocate(size_classes[i].size_bytes);
        slabs.push_back(span_of(block));
        free_fast(block);
    }
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++)
        EXPECT_EQ(thread_heap->current[i], slabs[i - SMALL_CLASSES]) << "class " << i;
    free_fast(aside);
    heap_trim(thread_heap);
}

TEST_F(SlabLists, SpareSlabsAreBounded)
{
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++)
        free_fast(allocate(size_classes[i].size_bytes - CANARY_BYTES));
    quarantine_flush(thread_heap);
    EXPECT_LE(thread_heap->spare_bytes, kSpareMost);
    EXPECT_LE(run_cache_kept_pages(&thread_heap->runs), size_t{RUN_CACHE_PAGES});
    (void)heaps_empty_run_caches();
    EXPECT_LE(heap_layer::stats().slab_bytes, 8 * thread_heap->spare_bytes + 100 * kKiB);
    heap_trim(thread_heap);
    EXPECT_EQ(thread_heap->spare_bytes, 0u);
    EXPECT_EQ(run_cache_kept_pages(&thread_heap->runs), 0u);
}

// Allocates three blocks of a class and frees them. Three of each class count for 1.4 MiB.
struct span *cycle(unsigned size_class)
{
    void *blocks[3];
    for (void *&block : blocks)
        block = allocate(size_classes[size_class].size_bytes - CANARY_BYTES);
    struct span *slab = span_of(blocks[0]);
    for (void *block : blocks)
        free_fast(block);
    return slab;
}

void cycle_all()
{
    for (int round = 0; round < 20; round++)
        for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++)
            cycle(i);
}

// A limit that is reached again and again is raised.
TEST_F(SlabLists, SlabsThatAreTakenAgainAndAgainStaySpare)
{
    if (config_hardened)
        GTEST_SKIP() << "slots are handed out at random";
    heap_trim(thread_heap);
    void *aside = allocate(64);
    heap_put_aside(thread_heap, class_of_size(64)); // otherwise the heap settles
    cycle_all();
    EXPECT_TRUE(thread_heap->spare_is_raised);
    EXPECT_GT(thread_heap->spare_bytes, kSpareMost);
    EXPECT_LE(thread_heap->spare_bytes, 4 * kSpareMost);
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++) {
        struct span *slab = thread_heap->current[i];
        EXPECT_EQ(cycle(i), slab) << "class " << i;
    }
    heap_layer::verify();
    heap_trim(thread_heap);
    EXPECT_EQ(thread_heap->spare_bytes, 0u);
    EXPECT_FALSE(thread_heap->spare_is_raised);
    pages_limit_hard(1000000 * kKiB);
    cycle_all();
    pages_limit_hard(0);
    EXPECT_LE(thread_heap->spare_bytes, kSpareMost) << "a refusal does not give spare slabs back";
    cycle_all();
    ASSERT_TRUE(thread_heap->spare_is_raised);
    heap_layer::end_interval();
    heaps_decay();
    for (int i = 0; i < 1000; i++) // small blocks, which let their slab look at what is due
        free_fast(allocate(100));
    EXPECT_FALSE(thread_heap->spare_is_raised);
    EXPECT_LE(thread_heap->spare_bytes, kSpareMost);
    free_fast(aside);
    heap_trim(thread_heap);
}

// Hardened builds too, where the quarantine is flushed when the thread ends.
TEST_F(SlabLists, TheHeapOfAnEndedThreadHasTheUsualLimit)
{
    for (int thread = 0; thread < 20; thread++) { // more than may be raised at once
        struct heap *ended = nullptr;
        bool was_raised = false;
        heap_layer::in_thread([&] {
            void *aside = allocate(64);
            heap_put_aside(thread_heap, class_of_size(64));
            cycle_all();
            ended = thread_heap;
            was_raised = ended->spare_is_raised;
            free_fast(aside);
        });
        EXPECT_FALSE(ended->spare_is_raised);
        EXPECT_TRUE(config_hardened || was_raised) << "thread " << thread;
    }
}

// Its thread may sleep next, and then no thread releases the slabs that it keeps.
TEST_F(SlabLists, AHeapThatFreesNearlyAllKeepsNoEmptySlabs)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine";
    heap_trim(thread_heap);
    const auto fill_and_free = [](size_t bytes_a_size) {
        std::vector<void *> blocks;
        for (size_t size = 64; size <= 4 * kKiB; size += 64)
            for (size_t bytes = 0; bytes < bytes_a_size; bytes += size)
                blocks.push_back(allocate(size));
        for (void *block : blocks)
            free_fast(block);
    };
    fill_and_free(20 * kKiB); // 1.3 MiB
    EXPECT_GT(run_cache_kept_pages(&thread_heap->runs), 256 * kKiB >> PAGE_SHIFT)
        << "a small heap keeps empty slabs";
    fill_and_free(512 * kKiB); // 32 MiB
    EXPECT_LT(run_cache_kept_pages(&thread_heap->runs), 64 * kKiB >> PAGE_SHIFT);
    heap_trim(thread_heap);
}

// A cycle of one size uses its slab, whatever slabs other classes keep.
TEST_F(SlabLists, TheSlabEmptiedLastIsKept)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine";
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++) {
        const size_t size = size_classes[i].size_bytes - CANARY_BYTES;
        struct span *slab = nullptr;
        // Where slots have a random order, one block may count for more than a heap keeps.
        for (int turn = 0; turn < (config_hardened ? 2 : 1); turn++) {
            void *block = allocate(std::min(size, size_t{MEDIUM_REQUEST_MAX}));
            slab = span_of(block);
            free_fast(block);
        }
        EXPECT_EQ(thread_heap->current[i], slab) << "class " << i;
        EXPECT_LE(thread_heap->spare_bytes, kSpareMost) << "class " << i;
    }
    heap_layer::verify();
    heap_trim(thread_heap);
}

// The result does not depend on earlier cycles.
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
    free_fast(allocate(20 * kKiB)); // as a new slab, or as one of another class
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
    while (slab_is_waiting(slab)) // full, until enough blocks were freed that it is listed
        free_fast(blocks[freed++]);
    heap_verify(heap);
    const auto broken = [&] {
        slab_hot(slab)->frees_to_attention++;
        heap_verify(heap);
    };
    EXPECT_DEATH(broken(), "internal error");
    for (size_t i = freed; i < blocks.size(); i++)
        free_fast(blocks[i]);
    heap_trim(heap);
}

// A cycle of medium blocks checks at intervals, not at each free, whether all other classes are
// unused.
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
    // Where slots have a random order, slabs count for more bytes and were given back before.
    EXPECT_TRUE(config_hardened || spare > 64 * kKiB) << spare;
    heap->settled_ms = 0; // another interval has begun
    cycle();
    EXPECT_LE(heap->spare_bytes, config_hardened ? 64 * kKiB : spare / 4);
    heap_layer::verify();
    heap_trim(heap);
}

} // namespace
