// The slabs of a heap: lists, spare slabs, the verifier.

#include <algorithm>
#include <vector>

#include "heap/sweep_layer.h"

namespace slab_lists_test
{

using heap_layer::allocate;
using heap_layer::kKiB;
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

// The others are retired, because the thread may sleep next, and then no other thread could purge
// them.
TEST_F(SlabLists, OnlyTheSlabEmptiedLastStaysCurrent)
{
    heap_trim(thread_heap);
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES; i++) {
        const size_t size = size_classes[i].size_bytes - CANARY_BYTES;
        std::vector<void *> blocks;
        for (int k = 0; k < 3; k++)
            blocks.push_back(allocate(std::min(size, size_t{MEDIUM_REQUEST_MAX})));
        struct span *slab = span_of(blocks[0]);
        for (void *block : blocks)
            free_fast(block);
        quarantine_flush(thread_heap);
        EXPECT_EQ(thread_heap->current[i], slab) << "class " << i;
        EXPECT_EQ(thread_heap->emptied, slab) << "class " << i;
        heap_layer::verify();
    }
    for (unsigned i = SMALL_CLASSES; i < SIZED_CLASSES - 1; i++)
        EXPECT_EQ(thread_heap->current[i], &empty_slab.header) << "class " << i;
    EXPECT_LE(run_cache_kept_pages(&thread_heap->runs), size_t{RUN_CACHE_PAGES});
    heap_trim(thread_heap);
    EXPECT_EQ(run_cache_kept_pages(&thread_heap->runs), 0u);
    EXPECT_EQ(thread_heap->slab_pages, 0u);
}

// A slab that was posted when its last block was freed stays current until its mailbox is drained.
TEST_F(SlabLists, AnEmptySlabInAMailboxIsRetiredWhenItIsCollected)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine";
    heap_trim(thread_heap);
    std::vector<void *> blocks;
    void *other = allocate(20 * kKiB);
    for (int i = 0; i < 5; i++)
        blocks.push_back(allocate(2 * kKiB));
    struct span *slab = span_of(blocks[0]);
    ASSERT_EQ(span_of(blocks.back()), slab);
    heap_layer::in_thread([&] { free_fast(blocks[0]); });
    heap_drain(thread_heap);                     // the post is gone,
    ASSERT_TRUE(remote_post(thread_heap, slab)); // and another one comes late
    thread_heap->attended = 0;                   // the frees do not drain
    for (size_t i = 1; i < blocks.size(); i++)
        free_fast(blocks[i]);
    EXPECT_EQ(slab_used(slab), 0u);
    free_fast(other); // another slab becomes empty
    EXPECT_EQ(slab_heap(slab), thread_heap);
    heap_layer::verify();
    heap_drain(thread_heap);
    free_fast(allocate(20 * kKiB));
    EXPECT_NE(slab_heap(slab), thread_heap);
    heap_layer::verify();
    heap_trim(thread_heap);
}

// Its thread may sleep next, and then no thread releases the slabs that it keeps.
TEST_F(SlabLists, AHeapThatReturnsNearlyAllKeepsNoEmptySlabs)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine";
    heap_trim(thread_heap);
    std::vector<void *> blocks;
    for (size_t size = 64; size <= 4 * kKiB; size += 64)
        for (size_t bytes = 0; bytes < 512 * kKiB; bytes += size)
            blocks.push_back(allocate(size));
    for (void *block : blocks)
        free_fast(block);
    EXPECT_LT(run_cache_kept_pages(&thread_heap->runs), 1024 * kKiB >> PAGE_SHIFT);
    EXPECT_LT(thread_heap->slab_pages, 1024 * kKiB >> PAGE_SHIFT);
    heap_trim(thread_heap);
}

using SlabListsDeathTest = SlabLists;

TEST_F(SlabListsDeathTest, TheVerifierFindsAWrongCount)
{
    if (!config_debug)
        GTEST_SKIP() << "the verifier runs in debug builds";
    std::vector<void *> blocks;
    for (int i = 0; i < 600; i++)
        blocks.push_back(allocate(64));
    struct span *slab = span_of(blocks[0]);
    size_t freed = 0;
    while (slab_is_waiting(slab)) // full, until enough blocks were freed that it is listed
        free_fast(blocks[freed++]);
    heap_verify(heap_);
    const auto broken = [&] {
        slab_hot(slab)->frees_to_attention++;
        heap_verify(heap_);
    };
    EXPECT_DEATH(broken(), "internal error");
    for (size_t i = freed; i < blocks.size(); i++)
        free_fast(blocks[i]);
    heap_trim(heap_);
}

TEST_F(SlabListsDeathTest, TheVerifierFindsAnEmptySlabThatShouldBeRetired)
{
    if (!config_debug)
        GTEST_SKIP() << "the verifier runs in debug builds";
    free_fast(allocate(8 * kKiB));
    quarantine_flush(heap_);
    heap_verify(heap_);
    const auto broken = [&] {
        heap_->emptied = nullptr;
        heap_verify(heap_);
    };
    EXPECT_DEATH(broken(), "internal error");
    heap_trim(heap_);
}

// A slab that is current no longer.
TEST_F(SlabListsDeathTest, TheVerifierFindsAnEmptiedSlabThatIsNotCurrent)
{
    if (!config_debug)
        GTEST_SKIP() << "the verifier runs in debug builds";
    void *block = allocate(8 * kKiB);
    heap_put_aside(heap_, slab_class(span_of(block)));
    const auto broken = [&] {
        heap_->emptied = span_of(block);
        heap_verify(heap_);
    };
    EXPECT_DEATH(broken(), "internal error");
    free_fast(block);
    heap_trim(heap_);
}

class Settling : public heap_layer::OwnHeap
{
  protected:
    // The current slabs of the heap.
    static size_t current_slabs()
    {
        size_t slabs = 0;
        for (unsigned i = 0; i < CLASS_COUNT; i++)
            slabs += thread_heap->current[i] != &empty_slab.header;
        return slabs;
    }
};

TEST_F(Settling, CurrentSlabsArePutAsideFromTimeToTime)
{
    if (config_quarantine)
        GTEST_SKIP() << "blocks wait before their slab is empty";
    heap_trim(thread_heap);
    std::vector<void *> blocks;
    for (size_t size = 16; size <= 16 * kKiB; size *= 2)
        blocks.push_back(allocate(size));
    heap_look(thread_heap); // may settle
    for (size_t size = 16; size <= 16 * kKiB; size *= 2)
        blocks.push_back(allocate(size));
    EXPECT_GE(current_slabs(), 11u);
    const uint64_t before = thread_heap->settled_ms = os_now_ms();
    heap_look(thread_heap);
    EXPECT_TRUE(current_slabs() >= 11u || os_now_ms() - before >= 50) << "settled too soon";
    thread_heap->settled_ms = os_now_ms() - 50;
    heap_look(thread_heap);
    EXPECT_EQ(current_slabs(), 0u);
    heap_layer::verify();
    for (void *block : blocks)
        free_fast(block);
    heap_trim(thread_heap);
    EXPECT_EQ(thread_heap->slab_pages, 0u);
}

// A thread that comes to few slow paths looks at the clock at each of them.
TEST_F(Settling, ASlowThreadLooksAtTheClockAtEachFree)
{
    if (config_quarantine)
        GTEST_SKIP() << "blocks wait before their slab is empty";
    heap_trim(thread_heap);
    void *block = allocate(100);
    thread_heap->looked_ms = os_now_ms() - 1000;
    heap_look(thread_heap);
    EXPECT_EQ(thread_heap->frees, 1u);
    heap_make_current(thread_heap, class_of_size(100), span_of(block));
    thread_heap->looked_ms = 0;
    free_fast(block);
    EXPECT_NE(thread_heap->looked_ms, 0u);
    for (int i = 0; i < 1000; i++)
        free_fast(allocate(100));
    EXPECT_GT(thread_heap->frees, 1u) << "a fast thread looks rarely";
    heap_trim(thread_heap);
}

} // namespace slab_lists_test
