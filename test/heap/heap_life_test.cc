// The life of heaps: made, ended, adopted, borrowed.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/stopped_thread.h"
#include "heap/heap_layer.h"

extern "C" {
#include "heap/heap_sweep.h"
}

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::span_of;

class HeapLife : public heap_layer::OwnHeap
{
};

TEST_F(HeapLife, AThreadHasNoneBeforeItsFirstBlock)
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

TEST_F(HeapLife, FreeingAloneNeedsNone)
{
    void *block = allocate(100);
    in_thread([block] {
        free_fast(block);
        EXPECT_EQ(thread_heap, &no_heap);
    });
}

TEST_F(HeapLife, AnEndedThreadsHeapIsAdoptedWholeByTheNext)
{
    struct heap *first = nullptr;
    void *block = nullptr;
    in_thread([&] {
        block = allocate(100);
        first = thread_heap;
    });
    EXPECT_EQ(load_relaxed(&first->state), uint32_t{HEAP_ORPHAN});
    EXPECT_EQ(slab_heap(span_of(block)), first) << "its blocks stay its own";
    in_thread([&] {
        void *mine = allocate(100);
        EXPECT_EQ(thread_heap, first);
        EXPECT_EQ(span_of(mine), span_of(block)) << "the slab with room is used on";
        free_fast(block); // its own now: the fast path
        free_fast(mine);
    });
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// The one that was left last would do, too, but blocks that outlive their threads would be in all.
TEST_F(HeapLife, AThreadAdoptsTheFirstOrphanWhicheverWasLeftLast)
{
    struct heap *first = nullptr, *second = nullptr;
    for (int round = 0; round < 2; round++) { // in the second there are two to adopt
        std::thread other;
        std::atomic<bool> ready{false}, over{false};
        in_thread([&] {
            free_fast(allocate(100));
            first = thread_heap;
            other = std::thread([&] {
                free_fast(allocate(100));
                second = thread_heap;
                ready = true;
                while (!over)
                    std::this_thread::yield();
            });
            while (!ready)
                std::this_thread::yield();
        });
        over = true;
        other.join();
        ASSERT_NE(first, second);
    }
    in_thread([&] {
        free_fast(allocate(100));
        EXPECT_EQ(thread_heap, first);
    });
}

TEST_F(HeapLife, TheLastBlocksOfAnEndedThreadMayBeFreedByOthers)
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

TEST_F(HeapLife, ThreadsInTurnNeedOneHeap)
{
    const size_t before = heap_layer::stats().heaps;
    for (int i = 0; i < 200; i++)
        in_thread([] { free_fast(allocate(50)); });
    EXPECT_LE(heap_layer::stats().heaps, before + 1);
}

// To make slabs and to give them back is most of what a short thread costs.
class ReadyHeap : public HeapLife
{
  protected:
    void SetUp() override
    {
        HeapLife::SetUp();
        if (config_hardened)
            GTEST_SKIP() << "hardened builds trim every heap";
    }

    // Of a thread that has ended.
    static struct heap *leave()
    {
        struct heap *heap = nullptr;
        in_thread([&] {
            free_fast(allocate(100));
            free_fast(allocate(2000));
            free_fast(allocate(5000));
            heap = thread_heap;
        });
        EXPECT_TRUE(heap->left_ready);
        EXPECT_NE(heap->current[class_of_size(100)], &empty_slab.header);
        for (size_t medium : {2000, 5000})
            EXPECT_EQ(heap->current[class_of_size(medium)], &empty_slab.header) << "they go";
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

TEST_F(ReadyHeap, IsOneOnly)
{
    struct heap *outer = nullptr, *inner = nullptr;
    in_thread([&] {
        free_fast(allocate(100));
        outer = thread_heap;
        inner = leave();
    });
    EXPECT_TRUE(outer->left_ready);
    expect_trimmed(inner);
}

TEST_F(ReadyHeap, GoesWhenOthersNeedMemory)
{
    struct heap *left = leave();
    std::vector<void *> blocks(1000); // more than one slab of them
    for (void *&block : blocks)
        block = allocate(200);
    expect_trimmed(left);
    for (void *block : blocks)
        free_fast(block);
    left = leave();
    EXPECT_TRUE(heaps_empty_run_caches());
    expect_trimmed(left);
    EXPECT_FALSE(heap_trim_ended());
    left = leave();
    (void)heap_release(0);
    expect_trimmed(left);
    left = leave();
    sweep_others();
    expect_trimmed(left);
    heap_layer::verify();
}

TEST_F(ReadyHeap, HoldsWhatItsThreadLeftInUse)
{
    void *left = nullptr;
    in_thread([&] { left = allocate(100); });
    struct heap *heap = slab_heap(span_of(left));
    free_fast(left);
    EXPECT_EQ(load_relaxed(&heap->state), uint32_t{HEAP_ORPHAN});
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u) << "collected by who freed it";
    EXPECT_TRUE(heap_trim_ended());
    expect_trimmed(heap);
}

TEST_F(ReadyHeap, IsNobodysInTheChildOfAFork)
{
    const struct heap *left = leave();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const bool gone = !heap_trim_ended();
        struct heap *heap = heap_borrow();
        _exit(gone && heap != nullptr && heap != left ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(left->left_ready);
}

// A block in a destructor that runs after ours.
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

// One that went through all spans took 10 ms for 2 GiB.
TEST_F(HeapLife, AChildOfAForkLooksAtNoSpan)
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

TEST_F(HeapLife, AThreadThatEndsMayAllocateAndFree)
{
    ASSERT_EQ(pthread_key_create(&late_key, allocate_late), 0);
    const size_t before = heap_layer::stats().heaps;
    for (int i = 0; i < 50; i++)
        in_thread([] {
            free_fast(allocate(10));
            pthread_setspecific(late_key, reinterpret_cast<void *>(
                                              uintptr_t{3})); // below PTHREAD_DESTRUCTOR_ITERATIONS
        });
    EXPECT_LE(heap_layer::stats().heaps, before + 1) << "a heap was left behind";
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    pthread_key_delete(late_key);
}

TEST_F(HeapLife, ABorrowedHeapIsNobodyElses)
{
    struct heap *heap = heap_borrow();
    ASSERT_NE(heap, nullptr);
    EXPECT_EQ(load_relaxed(&heap->state), uint32_t{HEAP_BUSY});
    struct heap *second = heap_borrow();
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

} // namespace
