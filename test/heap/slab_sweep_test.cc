// The walk over the slabs: which of them give their free pages, and when.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "heap/sweep_layer.h"

namespace slab_sweep_test
{

using heap_layer::allocate;
using heap_layer::allocate_many;
using heap_layer::IdleThread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::pass_intervals;
using heap_layer::resident;
using heap_layer::span_of;

class SlabSweep : public heap_layer::OwnHeap
{
};

class SlabSweepSizes : public heap_layer::OwnHeap, public testing::WithParamInterface<size_t>
{
};

INSTANTIATE_TEST_SUITE_P(Sizes, SlabSweepSizes, testing::Values(4 * kKiB, 30 * kKiB),
                         testing::PrintToStringParamName());

// Pages that did not change between two sweeps are released, and others stay.
TEST_P(SlabSweepSizes, TheOwnFreePagesGoBackByTime)
{
    std::vector<void *> blocks = allocate_many(4 * kMiB / GetParam(), GetParam());
    std::vector<void *> live;
    for (size_t i = 0; i < blocks.size(); i++)
        i % 10 == 0 ? live.push_back(blocks[i]) : free_fast(blocks[i]);
    quarantine_flush(heap_);
    heap_layer::sweep_whole();
    const size_t after_one = resident(blocks, GetParam());
    heap_layer::sweep_whole();
    EXPECT_LE(resident(blocks, GetParam()), after_one * 2 / 3 + 512 * kKiB);
    heap_layer::verify();
    for (void *block : live)
        free_fast(block);
    heap_trim(heap_);
}

// A heap of 200 MiB releases its free pages in two passes, although the first pass finds none.
TEST_F(SlabSweep, TwoPassesReachEachOf6000Slabs)
{
    constexpr size_t kSlabs = 6000, kSize = 4 * kKiB;
    if (os_page_size() > kSize)
        GTEST_SKIP() << "every page has blocks in use";
    std::vector<void *> blocks;
    for (size_t slabs = 0; slabs < kSlabs; slabs++) {
        struct span *slab = nullptr;
        do
            blocks.push_back(allocate(kSize));
        while (slab == nullptr ? (slab = span_of(blocks.back()), true)
                               : span_of(blocks.back()) == slab);
    }
    struct span *last = nullptr;
    std::vector<void *> live;
    for (void *block : blocks) {
        span_of(block) == last ? free_fast(block) : live.push_back(block);
        last = span_of(block);
    }
    quarantine_flush(thread_heap);
    heap_layer::sweep_whole();
    heap_layer::sweep_whole();
    size_t unswept = 0;
    for (void *block : live)
        unswept += load_relaxed(&slab_cold(span_of(block))->swept.given) == 0;
    EXPECT_LT(unswept, kSlabs / 10);
    for (void *block : live)
        free_fast(block);
    heap_trim(thread_heap);
}

// A purge of a part of a huge page divides it, so a sweep leaves a huge page whole of which less
// than a quarter is free.
TEST_F(SlabSweep, HugePagesOfWhichLittleIsFreeStayWhole)
{
    constexpr size_t kSize = 4 * kKiB;
    if (os_page_size() > kSize || config_fences)
        GTEST_SKIP() << "every page has blocks in use, or the heap requests no huge pages";
    std::vector<void *> blocks;
    const size_t before = load_relaxed(&pages_state.committed_pages);
    while (load_relaxed(&pages_state.committed_pages) < before + (40 * kMiB >> PAGE_SHIFT)) {
        store_relaxed(&pages_state.small_pages, size_t{0}); // the memory may be slow
        blocks.push_back(allocate(kSize));
    }
    std::vector<struct span *> whole;
    for (void *block : blocks)
        if ((whole.empty() || whole.back() != span_of(block)) &&
            pages_in_huge_page(slab_start(span_of(block))))
            whole.push_back(span_of(block));
    ASSERT_GT(whole.size(), 300u);
    const auto purged = [&whole] {
        return std::count_if(whole.begin(), whole.end(), [](struct span *slab) {
            return load_relaxed(&slab_cold(slab)->swept.given) != 0;
        });
    };
    const auto free_and_sweep = [&blocks](size_t each) {
        std::vector<void *> live;
        for (size_t i = 0; i < blocks.size(); i++)
            i % each == 0 ? free_fast(blocks[i]) : live.push_back(blocks[i]);
        blocks = live;
        quarantine_flush(thread_heap);
        heap_layer::sweep_whole();
        heap_layer::sweep_whole();
    };
    free_and_sweep(7);
    EXPECT_EQ(purged(), 0);
    free_and_sweep(3);
    EXPECT_GT(purged(), static_cast<long>(whole.size() / 2));
    for (void *block : blocks)
        free_fast(block);
    heap_trim(thread_heap);
}

// Memory that others free and that changes between two walks stays, also if its owner is idle.
TEST_F(SlabSweep, ASlabThatOthersChangeKeepsItsPages)
{
    constexpr size_t kSize = 4 * kKiB;
    if (os_page_size() > kSize)
        GTEST_SKIP() << "every page has blocks in use";
    IdleThread idle;
    std::vector<void *> blocks;
    idle.run([&] { blocks = allocate_many(64, kSize); });
    struct span *slab = span_of(blocks[20]);
    std::vector<void *> of_slab;
    std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(of_slab),
                 [&](void *block) { return span_of(block) == slab; });
    std::sort(of_slab.begin(), of_slab.end()); // in a hardened build they come in random order
    const auto given = [&] { return slab_count_given(slab); };
    free_fast(of_slab[0]);
    for (size_t i = 1; i < 4; i++) {
        heap_layer::sweep_whole();
        EXPECT_EQ(given(), 0u) << i;
        free_fast(of_slab[i]);
    }
    heap_layer::sweep_whole();
    heap_layer::sweep_whole();
    EXPECT_GE(given(), 3u) << "a block with canaries reaches into a second page";
}

// A page that the system refuses is not asked for again at each walk; a trim asks again.
TEST_F(SlabSweep, OnlyATrimAsksAgainForALockedPage)
{
    constexpr size_t kSize = 4 * kKiB;
    if (os_page_size() != PAGE_BYTES || config_hardened)
        GTEST_SKIP() << "each block is a page of the system";
    std::vector<void *> blocks = allocate_many(64, kSize);
    struct span *slab = span_of(blocks[20]);
    void *locked = blocks[20];
    ASSERT_EQ(syscall(SYS_mlock, locked, kSize), 0); // sanitizers replace mlock
    free_fast(locked);
    for (int i = 0; i < 3; i++)
        heap_layer::sweep_whole();
    EXPECT_EQ(slab_count_given(slab), 0u);
    ASSERT_EQ(syscall(SYS_munlock, locked, kSize), 0);
    heap_layer::sweep_whole();
    EXPECT_EQ(slab_count_given(slab), 0u) << "asked again";
    (void)heap_release(0);
    EXPECT_EQ(slab_count_given(slab), 1u);
    for (void *block : blocks)
        if (block != locked)
            free_fast(block);
    heap_trim(thread_heap);
}

// A slab with purged pages serves after the other ones of its class.
TEST_F(SlabSweep, PurgedSlabsAreUsedLast)
{
    constexpr size_t kSize = 4 * kKiB;
    if (os_page_size() != PAGE_BYTES || config_hardened)
        GTEST_SKIP() << "each block is a page of the system";
    std::vector<void *> blocks = allocate_many(128, kSize);
    while (slab_live(span_of(blocks.back())) < span_of(blocks.back())->capacity)
        blocks.push_back(allocate(kSize)); // no slab has room, whatever other cases left
    struct span *purged = span_of(blocks[20]);
    struct span *other = span_of(blocks[60]);
    ASSERT_NE(purged, other);
    const auto free_some = [&](struct span *slab) {
        for (void *&block : blocks)
            if (block != nullptr && span_of(block) == slab && slab_live(slab) > 2)
                free_fast(std::exchange(block, nullptr));
    };
    free_some(purged);
    (void)heap_release(0);
    free_some(other);
    ASSERT_GT(slab_count_given(purged), 0u);
    void *block = allocate(kSize);
    EXPECT_EQ(span_of(block), other);
    free_fast(block);
    for (void *each : blocks)
        if (each != nullptr)
            free_fast(each);
    heap_trim(thread_heap);
}

// A walk is made in parts of a few slabs.
TEST_F(SlabSweep, AWalkIsDoneInParts)
{
    std::vector<void *> blocks = allocate_many(8 * kMiB / 256, 256);
    sweep_begin();
    size_t parts = 1;
    while (sweep_walk(1))
        parts++;
    EXPECT_GE(parts, 8 * kMiB / (64 * kKiB) / 16) << "more than 16 slabs in a part";
    for (void *block : blocks)
        free_fast(block);
    heap_trim(thread_heap);
}

// The owner frees the last block of a slab while another thread purges the slab: the slab must not
// be lost.
TEST_F(SlabSweep, OneThatRanEmptyMeanwhileIsPostedToItsOwner)
{
    std::vector<void *> blocks = allocate_many(20, 8 * kKiB);
    struct span *slab = span_of(blocks[0]);
    std::vector<void *> rest;
    while (slab == thread_heap->current[slab_class(slab)])
        rest.push_back(allocate(8 * kKiB));
    ASSERT_TRUE(slab_try_use(slab, SLAB_PURGED));
    EXPECT_FALSE(slab_try_use(slab, SLAB_IDLE));
    for (void *block : blocks)
        free_fast(block);
    for (void *block : rest)
        free_fast(block);
    quarantine_flush(thread_heap);
    EXPECT_EQ(slab_heap(slab), thread_heap) << "the slab was given back during the purge";
    EXPECT_TRUE(slab_end_purge(slab));
    EXPECT_TRUE(remote_post(thread_heap, slab));
    heap_drain(thread_heap);
    EXPECT_NE(slab_heap(slab), thread_heap) << "forgotten";
    heap_trim(thread_heap);
    heap_layer::verify();
}

// Slabs of an idle thread whose blocks another thread frees.
class PurgeGroups : public heap_layer::OwnHeap
{
  protected:
    void SetUp() override
    {
        OwnHeap::SetUp();
        constexpr bool kScattered = config_random_runs != 0 || config_fences != 0;
        if (kScattered || os_page_size() != PAGE_BYTES)
            GTEST_SKIP() << "slabs that are made one after another are not next to one another";
    }

    // Blocks of an idle thread, which the caller frees.
    std::vector<void *> make(size_t bytes, size_t size)
    {
        std::vector<void *> blocks;
        idle_.run([&] { blocks = allocate_many(bytes / size, size); });
        return blocks;
    }

    IdleThread idle_;
};

// 512 neighbouring slabs are purged by a few calls, not by one each.
TEST_F(PurgeGroups, NeighboursArePurgedTogether)
{
    const std::vector<void *> blocks = make(16 * kMiB, 256);
    for (void *block : blocks)
        free_fast(block);
    const size_t purges = load_relaxed(&pages_state.part_purges);
    pass_intervals(3);
    EXPECT_LE(load_relaxed(&pages_state.part_purges) - purges, 40u);
    EXPECT_LE(resident(blocks, 256), 256 * kKiB);
    idle_.run([] { heap_layer::verify(); });
}

// The system refuses to purge a range with a locked page.
TEST_F(PurgeGroups, ALockedPageKeepsOnlyItsSlab)
{
    const std::vector<void *> blocks = make(16 * kMiB, 256);
    std::vector<void *> locked;
    for (size_t i = 0; i < blocks.size(); i += 2 * kMiB / 256)
        locked.push_back(blocks[i]);
    for (void *block : locked)
        ASSERT_EQ(mlock(block, 1), 0);
    for (void *block : blocks)
        free_fast(block);
    pass_intervals(4);
    EXPECT_LE(resident(blocks, 256), locked.size() * 32 * kKiB + 256 * kKiB);
    for (void *block : locked)
        munlock(block, 1);
    idle_.run([] { heap_layer::verify(); });
}

// Slabs of nine pages: some of them begin in one huge page and end in the next one.
TEST_F(PurgeGroups, AHugePageInUseStaysWhole)
{
    constexpr size_t kSize = 3328;
    const auto huge_page = [](const void *block) {
        return align_down(reinterpret_cast<uintptr_t>(block), HUGE_PAGE_BYTES);
    };
    const std::vector<void *> blocks = make(64 * kMiB, kSize);
    std::vector<uintptr_t> in_use;
    for (size_t i = blocks.size(); i-- > 0;) {
        const uintptr_t start = huge_page(slab_start(span_of(blocks[i])));
        if (start / HUGE_PAGE_BYTES % 2 == 0)
            free_fast(blocks[i]);
        else if (in_use.empty() || in_use.back() != start)
            in_use.push_back(start);
    }
    const auto whole = [&] {
        return std::count_if(in_use.begin(), in_use.end(), [](uintptr_t start) {
            return pages_in_huge_page(reinterpret_cast<const char *>(start));
        });
    };
    const auto before = whole();
    pass_intervals(3);
    const auto after = whole();
    for (void *block : blocks)
        if (huge_page(slab_start(span_of(block))) / HUGE_PAGE_BYTES % 2 != 0)
            free_fast(block);
    if (before == 0)
        GTEST_SKIP() << "the heap does not grow in huge pages here";
    EXPECT_EQ(after, before);
}

} // namespace slab_sweep_test
