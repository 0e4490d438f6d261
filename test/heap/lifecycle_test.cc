// The life of heaps: made, ended, adopted, borrowed. Each case needs a process of its own, because
// the next thread adopts the heaps that earlier cases left.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/stopped_thread.h"
#include "heap/sweep_layer.h"

extern "C" {
#include "base/alone.h"
}

namespace lifecycle_test
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::span_of;

class Lifecycle : public heap_layer::OwnHeap
{
};

TEST_F(Lifecycle, AThreadHasNoneBeforeItsFirstBlock)
{
    in_thread([] {
        EXPECT_EQ(thread_heap, &no_heap);
        free_fast(nullptr);
        EXPECT_EQ(thread_heap, &no_heap);
        void *block = allocate(100);
        EXPECT_NE(thread_heap, &no_heap);
        EXPECT_EQ(load_relaxed(&thread_heap->state), uint32_t{HEAP_ACTIVE});
        free_fast(block);
    });
}

TEST_F(Lifecycle, FreeingAloneNeedsNone)
{
    void *block = allocate(100);
    in_thread([block] {
        free_fast(block);
        EXPECT_EQ(thread_heap, &no_heap);
    });
}

TEST_F(Lifecycle, AnEndedThreadsHeapIsAdoptedWholeByTheNext)
{
    struct heap *first = nullptr;
    void *block = nullptr;
    in_thread([&] {
        block = allocate(100);
        first = thread_heap;
    });
    EXPECT_EQ(load_relaxed(&first->state), uint32_t{HEAP_ORPHAN});
    EXPECT_EQ(slab_heap(span_of(block)), first) << "the blocks keep their heap";
    in_thread([&] {
        void *mine = allocate(100);
        EXPECT_EQ(thread_heap, first);
        EXPECT_EQ(span_of(mine), span_of(block)) << "the slab with free slots is used first";
        free_fast(block); // its own slab now: the fast path
        free_fast(mine);
    });
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// The first malloc of a thread walked over all heaps, which took 115 us next to 8,000 threads. Here
// the list of all heaps is empty meanwhile.
TEST_F(Lifecycle, AnOrphanIsFoundWithoutAWalkOverTheHeaps)
{
    struct heap *first = nullptr, *held = nullptr;
    in_thread([&] {
        free_fast(allocate(100));
        first = thread_heap;
    });
    struct heap *const list = exchange_acq_rel(&all_heaps, static_cast<struct heap *>(nullptr));
    held = heap_hold_any();
    EXPECT_EQ(load_relaxed(&all_heaps), nullptr) << "a heap was made";
    store_release(&all_heaps, list);
    EXPECT_EQ(held, first);
    heap_return(held);
}

// A heap stays in the stack of orphans while another thread holds it for a moment.
TEST_F(Lifecycle, AnOrphanThatAnotherThreadHeldIsAdoptedAfterwards)
{
    struct heap *first = nullptr;
    in_thread([&] {
        free_fast(allocate(100));
        first = thread_heap;
    });
    const size_t before = heap_layer::stats().heaps;
    ASSERT_TRUE(heap_try_hold(first));
    std::vector<struct heap *> others; // all other orphans, and a new heap
    do
        others.push_back(heap_hold_any());
    while (heap_layer::stats().heaps == before);
    for (struct heap *heap : others)
        EXPECT_NE(heap, first) << "it is held";
    heap_return(first);
    EXPECT_EQ(heap_hold_any(), first);
    heap_return(first);
    for (struct heap *heap : others)
        heap_return(heap);
    in_thread([&] { free_fast(allocate(100)); });
    EXPECT_EQ(heap_layer::stats().heaps, before + 1);
}

TEST_F(Lifecycle, ThreadsThatStartAndEndTogetherNeedNoMoreHeaps)
{
    const auto many = [] {
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; i++)
            threads.emplace_back([] {
                for (int round = 0; round < 300; round++)
                    in_thread([] { free_fast(allocate(100)); });
            });
        std::thread sweeper([] {
            for (int round = 0; round < 50; round++)
                (void)heap_release(0); // holds each orphan
        });
        for (std::thread &thread : threads)
            thread.join();
        sweeper.join();
    };
    const size_t before = heap_layer::stats().heaps;
    many();
    EXPECT_LE(heap_layer::stats().heaps, before + 8 + 8 + 1 + 8); // some were held by the sweeper
}

TEST_F(Lifecycle, TheLastBlocksOfAnEndedThreadMayBeFreedByOthers)
{
    for (size_t size : {size_t{16}, size_t{100}, size_t{3000}})
        for (int count = 1; count < 20; count++) {
            std::vector<void *> blocks;
            in_thread([&] {
                for (int i = 0; i < count; i++)
                    blocks.push_back(allocate(size));
            });
            for (void *block : blocks)
                free_fast(block);
            heap_layer::verify();
        }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// Otherwise the slabs of many short threads gather in one heap, and the next threads make new ones.
TEST_F(Lifecycle, AThreadReclaimsASlabOfFewBlocksOnlyIfItHasNoneOfTheClass)
{
    if (config_quarantine)
        GTEST_SKIP() << "the quarantine keeps slabs listed, so every slab is taken";
    for (bool has_one : {false, true}) {
        void *own = allocate(100);
        if (has_one) // listed, because only one slot of it is in use
            heap_put_aside(thread_heap, slab_class(span_of(own)));
        void *block = nullptr, *other = nullptr;
        in_thread([&] {
            block = allocate(100);
            other = allocate(100);
        });
        struct span *slab = span_of(block);
        struct heap *ended = slab_heap(slab);
        ASSERT_NE(ended, thread_heap);
        free_fast(block);
        EXPECT_EQ(slab_heap(slab), has_one ? ended : thread_heap);
        free_fast(other);
        free_fast(own);
        heap_release(0);
        heap_layer::verify();
    }
}

// A slab was reclaimed by a thread whose heap is younger than all that the freeing thread knows.
// Only the slab's owner leads there, so reading it has to order the reads of the heap. Otherwise
// ThreadSanitizer reports the test.
TEST_F(Lifecycle, AFreeMeetsTheHeapThatHasReclaimedTheSlab)
{
    if (config_quarantine)
        GTEST_SKIP() << "the quarantine keeps slabs listed";
    enum { START, MADE, KNOWN, READY, ENDED, DONE };
    std::atomic<int> step{START}, reclaimed{0};
    const auto wait_for = [&step](int wanted) {
        while (step.load(std::memory_order_acquire) < wanted)
            std::this_thread::yield();
    };
    void *block = nullptr, *other = nullptr;
    std::thread owner([&] {
        block = allocate(100);
        other = allocate(100);
        step.store(MADE, std::memory_order_release);
        wait_for(READY);
    });
    wait_for(MADE);
    std::thread freeing([&, other] {
        step.store(KNOWN, std::memory_order_release);
        while (reclaimed.load(std::memory_order_relaxed) == 0)
            std::this_thread::yield();
        free_fast(other);
    });
    wait_for(KNOWN);
    std::thread reclaiming([&] {
        void *own = allocate(3000);
        step.store(READY, std::memory_order_release);
        wait_for(ENDED);
        free_fast(block);
        EXPECT_EQ(slab_heap(span_of(other)), thread_heap);
        reclaimed.store(1, std::memory_order_relaxed);
        wait_for(DONE);
        free_fast(own);
    });
    owner.join();
    step.store(ENDED, std::memory_order_release);
    freeing.join();
    step.store(DONE, std::memory_order_release);
    reclaiming.join();
    heap_layer::verify();
}

// No later call would return the memory, if the thread that has freed it sleeps then.
TEST_F(Lifecycle, TheMemoryOfAnEndedThreadGoesWithItsLastBlocks)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine";
    for (size_t size : {size_t{100}, size_t{8000}}) {
        const size_t count = 8000 * kKiB / size;
        const size_t before = heap_layer::stats().slab_bytes;
        std::vector<void *> blocks;
        in_thread([&] {
            for (size_t i = 0; i < count; i++)
                blocks.push_back(allocate(size));
        });
        for (size_t i = 0; i < count; i++) // one block of each slab after another
            free_fast(blocks[i * 7919 % count]);
        EXPECT_LE(heap_layer::stats().slab_bytes, before + 1000 * kKiB) << size;
        heap_release(0);
    }
}

// The slabs are in the mailboxes of a heap that no thread has.
TEST_F(Lifecycle, AHardLimitTakesWhatEndedThreadsHaveLeft)
{
    constexpr size_t kSize = 8000, kCount = 1000;
    std::vector<void *> blocks;
    struct heap *ended = nullptr;
    in_thread([&] {
        for (size_t i = 0; i < kCount; i++)
            blocks.push_back(allocate(kSize));
        ended = thread_heap;
    });
    heap_layer::free_while_held({ended}, blocks);
    struct page_stats stats;
    pages_read_stats(&stats);
    pages_limit_hard(stats.counted_bytes + 100 * kKiB);
    struct span *run = pages_take(4000 * kKiB >> PAGE_SHIFT, PAGE_BYTES);
    pages_limit_hard(0);
    ASSERT_NE(run, nullptr);
    pages_give(run);
}

// Full hardened builds: the quarantine of the ended heap holds the last block of the slab.
TEST_F(Lifecycle, ASlabThatTheQuarantineKeptIsRetiredWhenItsHeapIsHeld)
{
    if (!config_quarantine)
        GTEST_SKIP() << "this build has no quarantine";
    free_fast(allocate(1));
    void *block = nullptr;
    in_thread([&] { block = allocate(100); });
    struct span *slab = span_of(block);
    struct heap *ended = slab_heap(slab);
    ASSERT_TRUE(heap_try_hold(ended)); // so that the free below posts the slab
    free_fast(block);
    heap_drain(ended);
    heap_return(ended);
    ASSERT_EQ(slab_heap(slab), ended);
    EXPECT_FALSE(heap_reclaim(ended, slab)) << "it is retired";
    heap_layer::verify();
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST_F(Lifecycle, ThreadsInTurnNeedOneHeap)
{
    const size_t before = heap_layer::stats().heaps;
    for (int i = 0; i < 200; i++)
        in_thread([] { free_fast(allocate(50)); });
    EXPECT_LE(heap_layer::stats().heaps, before + 1);
}

// Most of the cost of a short-lived thread is that of making slabs and giving them back.
class ReadyHeap : public Lifecycle
{
  protected:
    void SetUp() override
    {
        Lifecycle::SetUp();
        if (config_hardened)
            GTEST_SKIP() << "hardened builds trim every heap";
    }

    // The heap of a thread that has ended.
    static struct heap *leave()
    {
        struct heap *heap = nullptr;
        in_thread([&] {
            heap = heap_layer::own_heap();
            free_fast(allocate(100));
            free_fast(allocate(2000));
            free_fast(allocate(5000));
        });
        EXPECT_TRUE(heap->left_ready);
        EXPECT_NE(heap->current[class_of_size(100)], &empty_slab.header);
        for (size_t medium : {2000, 5000})
            EXPECT_EQ(heap->current[class_of_size(medium)], &empty_slab.header)
                << "the slabs are given back";
        return heap;
    }
    static void expect_trimmed(const struct heap *heap)
    {
        EXPECT_FALSE(heap->left_ready);
        EXPECT_EQ(heap->current[class_of_size(100)], &empty_slab.header);
        EXPECT_EQ(heap->slab_pages, 0u);
    }
};

TEST_F(ReadyHeap, ServesTheNextThread)
{
    struct heap *left = leave();
    const struct span *slab = left->current[class_of_size(100)];
    in_thread([&] {
        void *block = allocate(100);
        EXPECT_EQ(thread_heap, left);
        EXPECT_FALSE(left->left_ready);
        EXPECT_EQ(span_of(block), slab);
        free_fast(block);
    });
    heap_layer::verify();
}

// Each visit, and whatever gives back free memory, trims all of them.
TEST_F(ReadyHeap, GoesByTimeAndWhenMemoryIsShort)
{
    const auto leave_two = [](auto &&trim) {
        struct heap *outer = nullptr, *inner = nullptr;
        in_thread([&] {
            free_fast(allocate(100));
            outer = thread_heap;
            inner = leave();
        });
        EXPECT_TRUE(outer->left_ready);
        trim();
        expect_trimmed(outer);
        expect_trimmed(inner);
    };
    leave_two([] { EXPECT_TRUE(heaps_empty_run_caches()); });
    leave_two([] { (void)heap_release(0); });
    leave_two([] {
        heap_layer::end_interval();
        heap_layer::tick_whole();
    });
    heap_layer::verify();
}

TEST_F(ReadyHeap, HoldsWhatItsThreadLeftInUse)
{
    void *left = nullptr;
    in_thread([&] { left = allocate(100); });
    struct heap *heap = slab_heap(span_of(left));
    free_fast(left);
    EXPECT_EQ(load_relaxed(&heap->state), uint32_t{HEAP_ORPHAN});
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u) << "the slab belongs to another heap";
    EXPECT_TRUE(heaps_empty_run_caches());
    expect_trimmed(heap);
}

TEST_F(ReadyHeap, IsNobodysInTheChildOfAFork)
{
    const struct heap *left = leave();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        (void)heaps_empty_run_caches();
        struct heap *heap = heap_hold_any();
        _exit(left->left_ready && heap != nullptr && heap != left ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(left->left_ready);
}

// Makes a block in a destructor that runs after that of the heap.
pthread_key_t late_key;

void allocate_late(void *round)
{
    const uintptr_t turn = reinterpret_cast<uintptr_t>(round);
    for (size_t size : {size_t{10}, 5 * kKiB, 200 * kKiB}) {
        void *block = allocate(size);
        ASSERT_NE(block, nullptr);
        memset(block, 1, size);
        free_fast(block);
    }
    if (turn > 1)
        pthread_setspecific(late_key, reinterpret_cast<void *>(turn - 1));
}

// The cost of a child must not depend on the number of spans.
TEST_F(Lifecycle, AChildOfAForkLooksAtNoSpan)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "needs x86-64's trap flag";
    constexpr size_t kSpans = 6000, kInstructions = 3 * kSpans;
    std::vector<void *> blocks;
    for (size_t i = 0; i < kSpans; i++)
        blocks.push_back(allocate(i % 2 == 0 ? 30 * kKiB : 40 * kKiB));
    const pid_t child = fork();
    if (child == 0) {
        stopped_thread::StoppedThread forked( // its heap is made before
            [] {
                pages_freeze();
                pages_thaw_in_child();
                heaps_after_fork();
            },
            [] { (void)heap_layer::own_heap(); });
        _exit(forked.stop_after(kInstructions) ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "more than " << kInstructions << " instructions";
    for (void *block : blocks)
        free_fast(block);
}

// The first slab of a child must not need a visit to every span.
TEST_F(Lifecycle, AChildsFirstSlabNeedsNoLookAtAllSpans)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "needs x86-64's trap flag";
    // A visit takes at least ten instructions; in hardened builds shuffling the slots of a slab
    // takes thousands.
    constexpr size_t kSpans = 6000, kInstructions = 8 * kSpans;
    const pid_t child = fork();
    if (child == 0) {
        stopped_thread::StoppedThread refilled([] { (void)allocate(3000); },
                                               [] {
                                                   for (size_t i = 0; i < kSpans; i++)
                                                       (void)allocate(i % 2 == 0 ? 30 * kKiB
                                                                                 : 40 * kKiB);
                                                   pages_freeze();
                                                   pages_thaw_in_child();
                                                   heaps_after_fork();
                                               });
        _exit(refilled.stop_after(kInstructions) ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "more than " << kInstructions << " instructions";
}

// No free of another thread can be in progress then.
TEST_F(Lifecycle, AChildOfAnOnlyThreadLooksForNoFrees)
{
    if (!process_is_single_threaded())
        GTEST_SKIP() << "other threads may run";
    EXPECT_EXIT(_exit(heap_->look_after_fork ? 1 : 0), testing::ExitedWithCode(0), "");
    void *block = allocate(3000);
    struct span *slab = span_of(block); // the state that an ended thread leaves
    *slab_link(slab, slab_slot(slab, block)) = LINK_REMOTE;
    EXPECT_TRUE(remote_post(heap_, slab));
    EXPECT_EXIT(_exit(heap_->look_after_fork ? 0 : 1), testing::ExitedWithCode(0), "");
}

// Frees that other threads of the parent had not posted are found slab by slab.
TEST_F(Lifecycle, AChildFindsTheFreesOfItsParentsOtherThreads)
{
    if (config_zero_freed)
        GTEST_SKIP() << "the test marks the block without wiping it";
    constexpr size_t kBlocks = 4000, kBytes = 3000;
    std::vector<void *> blocks(kBlocks);
    for (void *&block : blocks)
        block = allocate(kBytes);
    for (void *block : blocks) { // the state before the post
        struct span *slab = span_of(block);
        *slab_link(slab, slab_slot(slab, block)) = LINK_REMOTE;
    }
    std::atomic<bool> over{false};
    std::thread other([&] {
        while (!over)
            usleep(100);
    });
    EXPECT_EXIT(
        {
            alarm(100);
            const size_t before = heap_layer::stats().slab_bytes;
            if (!heap_->look_after_fork)
                _exit(1);
            for (size_t i = 0; i < 2 * kBlocks; i++)
                (void)allocate(kBytes);
            if (heap_->look_after_fork)
                _exit(2);
            const size_t grown = heap_layer::stats().slab_bytes - before;
            // half of the new blocks fit into the freed ones
            _exit(grown < kBlocks * kBytes * 5 / 4 ? 0 : 3);
        },
        testing::ExitedWithCode(0), "");
    over = true;
    other.join();
    for (void *block : blocks)
        *slab_link(span_of(block), slab_slot(span_of(block), block)) = LINK_LIVE;
    for (void *block : blocks)
        free_fast(block);
}

// A trim looks at all slabs.
TEST_F(Lifecycle, AChildsTrimFindsAllFreesOfItsParentsOtherThreads)
{
    if (config_zero_freed)
        GTEST_SKIP() << "the test marks the block without wiping it";
    std::vector<void *> blocks(4000);
    for (void *&block : blocks)
        block = allocate(3000);
    for (void *block : blocks)
        *slab_link(span_of(block), slab_slot(span_of(block), block)) = LINK_REMOTE;
    std::atomic<bool> over{false};
    std::thread other([&] {
        while (!over)
            usleep(100);
    });
    EXPECT_EXIT(
        {
            heap_trim(heap_);
            heap_drain(heap_);
            _exit(!heap_->look_after_fork && heap_layer::stats().live_blocks == 0 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
    over = true;
    other.join();
    for (void *block : blocks)
        *slab_link(span_of(block), slab_slot(span_of(block), block)) = LINK_LIVE;
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(Lifecycle, AThreadThatEndsMayAllocateAndFree)
{
    ASSERT_EQ(pthread_key_create(&late_key, allocate_late), 0);
    const size_t before = heap_layer::stats().heaps;
    for (int i = 0; i < 50; i++)
        in_thread([] {
            free_fast(allocate(10));
            pthread_setspecific(late_key, reinterpret_cast<void *>(
                                              uintptr_t{3})); // below PTHREAD_DESTRUCTOR_ITERATIONS
        });
    EXPECT_LE(heap_layer::stats().heaps, before + 1) << "a heap remains";
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    pthread_key_delete(late_key);
}

TEST_F(Lifecycle, ABorrowedHeapIsNobodyElses)
{
    struct heap *heap = heap_hold_any();
    ASSERT_NE(heap, nullptr);
    EXPECT_EQ(load_relaxed(&heap->state), uint32_t{HEAP_BUSY});
    struct heap *second = heap_hold_any();
    ASSERT_NE(second, nullptr);
    EXPECT_NE(heap, second);
    in_thread([&] {
        free_fast(allocate(1));
        EXPECT_NE(thread_heap, heap);
        EXPECT_NE(thread_heap, second);
    });
    heap_return(second);
    heap_return(heap);
    EXPECT_EQ(load_relaxed(&heap->state), uint32_t{HEAP_ORPHAN});
}

} // namespace lifecycle_test
