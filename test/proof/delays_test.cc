// The concurrent protocols in the real code, with delays injected between their steps, so that
// threads meet where they rarely do. The cases are meant for ThreadSanitizer, which checks each
// access. The steps are those of the models in test/proof/models. A failure names its seed.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "model/threads.h"

extern "C" {
#include "base/lock.h"
#include "base/test_delay.h"
#include "cairn/fifo.h"
#include "cairn/heap.h"
#include "cairn/ring.h"
#include "heap/heap.h"
#include "heap/refill.h"
#include "heap/remote.h"
#include "heap/slab_lists.h"
#include "heap/sweep.h"
}

namespace
{

class Delays : public testing::TestWithParam<uint64_t>
{
  protected:
    void SetUp() override
    {
        alarm(200); // ends a thread that sleeps for ever
        __atomic_store_n(&test_delay_seed, GetParam(), __ATOMIC_RELAXED);
    }
    void TearDown() override
    {
        __atomic_store_n(&test_delay_seed, uint64_t{0}, __ATOMIC_RELAXED);
        alarm(0);
    }
};

// Remote frees while slabs are retired, and while heaps are left and adopted.
TEST_P(Delays, RemoteFreesMeetRetiringAndAdoption)
{
    model::Lanes lanes(GetParam(), 6, 60, 2 * model::kMiB);
    lanes.start(25, 200);
    lanes.join();
    model::Shadow all(GetParam(), 1 << 16, SIZE_MAX);
    lanes.collect(all);
    all.check_all();
    all.release_all();
    cairn_malloc_trim(0);
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        heap_verify(heap);
    EXPECT_GT(lanes.handed_over(), 0u);
}

// Hands items to another thread, with release and acquire as the only ordering.
template <typename Item> class Slots
{
  public:
    void put(size_t at, Item item)
    {
        items_[at] = item;
        ready_[at].store(true, std::memory_order_release);
    }
    Item take(size_t at)
    {
        while (!ready_[at].load(std::memory_order_acquire))
            std::this_thread::yield();
        return items_[at];
    }

  private:
    static constexpr size_t kCount = 4000;
    std::vector<Item> items_ = std::vector<Item>(kCount);
    std::vector<std::atomic<bool>> ready_ = std::vector<std::atomic<bool>>(kCount);
};

// Two blocks of a slab remain, with bits in different words. Two threads free them at once: the
// post of one makes the owner collect both and retire the slab, while the other free may still be
// in progress.
TEST_P(Delays, TheLastFreesOfASlabMeetItsRetiring)
{
    constexpr size_t kRounds = 150;
    constexpr size_t kBytes = 128;
    constexpr size_t kBlocks = 400; // blocks of several slabs
    Slots<void *> slots[2];
    std::atomic<size_t> freed{0};
    std::vector<std::thread> threads;
    for (Slots<void *> &mine : slots)
        threads.emplace_back([&mine, &freed] {
            for (size_t round = 0; round < kRounds; round++) {
                cairn_free(mine.take(round));
                freed++;
            }
        });
    for (size_t round = 0; round < kRounds; round++) {
        void *blocks[kBlocks];
        void *last[2] = {};
        for (void *&block : blocks)
            block = cairn_malloc(kBytes);
        struct span *slab = page_map_find(blocks[kBlocks / 2]);
        for (void *block : blocks) {
            const bool inside = page_map_find(block) == slab;
            void *&kept = last[(slab_slot(slab, block) - 1) / 64 & 1];
            if (inside && kept == nullptr)
                kept = block;
            else
                cairn_free(block);
        }
        ASSERT_TRUE(last[0] && last[1]) << "no slab spans two words";
        slots[0].put(round, last[0]);
        slots[1].put(round, last[1]);
        while (freed != 2 * (round + 1))
            heap_drain(thread_heap);
    }
    for (std::thread &thread : threads)
        thread.join();
    heap_verify(thread_heap);
}

// Other threads and the owner free blocks of packed slabs, while the owner allocates, leaves slabs
// and trims. No block is handed out twice, and no slab is lost.
TEST_P(Delays, PackedBlocksAreFreedWhileTheirOwnerTakes)
{
    constexpr size_t kBlocks = 60000;
    constexpr size_t kFreers = 2;
    constexpr size_t kPlaces = 2000; // more blocks than that are in use, so some slabs stay full
    std::vector<std::atomic<uint64_t *>> places(kPlaces);
    std::vector<uint64_t *> others; // blocks that make the heap use packed slabs
    while (!thread_heap->packs && others.size() < 400000)
        others.push_back(static_cast<uint64_t *>(cairn_malloc(8)));
    if (!thread_heap->packs)
        GTEST_SKIP() << "this build does not pack, or not with so few blocks";
    for (uint64_t *other : others)
        cairn_free(other);
    std::atomic<bool> over{false};
    const auto give = [](uint64_t *block) {
        if (block == nullptr)
            return;
        EXPECT_EQ(*block, reinterpret_cast<uintptr_t>(block));
        *block = 0;
        cairn_free(block);
    };
    std::vector<std::thread> threads;
    for (size_t id = 0; id < kFreers; id++)
        threads.emplace_back([&, id] {
            for (size_t at = id * kPlaces / kFreers; !over; at++)
                give(places[at % kPlaces].exchange(nullptr));
        });
    std::vector<uint64_t *> kept;
    for (size_t at = 0; at < kBlocks; at++) {
        auto *block = static_cast<uint64_t *>(cairn_malloc(8));
        ASSERT_NE(block, nullptr);
        *block = reinterpret_cast<uintptr_t>(block);
        if (at % 3 == 0)
            kept.push_back(block);
        else
            give(places[at * 7 % kPlaces].exchange(block));
        if (kept.size() == 3000) {
            for (uint64_t *own : kept)
                give(own);
            kept.clear();
        }
        if (at % 997 == 0)
            heap_trim(thread_heap);
    }
    over = true;
    for (std::thread &thread : threads)
        thread.join();
    for (auto &place : places)
        give(place.exchange(nullptr));
    for (uint64_t *own : kept)
        give(own);
    heap_trim(thread_heap);
    EXPECT_EQ(thread_heap->bins[PACKED_CLASS].first, nullptr);
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        heap_verify(heap);
}

// Takes all blocks that the calling thread can borrow, writes into them, and frees them.
// Returns: how many it borrowed.
size_t borrow_for_a_moment(unsigned size_class)
{
    std::vector<uint64_t *> taken;
    (void)borrow_fill(thread_heap, size_class);
    while (void *block = borrow_take(thread_heap, size_class))
        taken.push_back(static_cast<uint64_t *>(block));
    for (uint64_t *block : taken)
        *block = reinterpret_cast<uintptr_t>(block);
    std::this_thread::yield();
    for (uint64_t *block : taken) {
        EXPECT_EQ(*block, reinterpret_cast<uintptr_t>(block)) << "its page was purged";
        cairn_free(block);
    }
    return taken.size();
}

// Purges the slab once it is aside, as sweeps do.
void purge_soon(struct span *slab)
{
    for (int i = 0; i < 1000; i++)
        if (slab_try_use(slab, SLAB_PURGED)) {
            (void)slab_purge_aside(slab);
            if (slab_end_purge(slab))
                (void)remote_post(slab_heap(slab), slab);
            return;
        }
}

// A thread borrows blocks of a current slab while the owner puts the slab aside and a third thread
// purges its free pages.
TEST_P(Delays, ACurrentSlabThatLendsIsPutAsideAndPurged)
{
    constexpr size_t kRounds = 5000, kBytes = 4000;
    const unsigned size_class = class_of_size(kBytes);
    std::atomic<size_t> arrived{0};
    const auto meet = [&](size_t number) {
        arrived++;
        while (arrived < 3 * number)
            std::this_thread::yield();
    };
    const auto each_round = [&](const auto &first, const auto &last) {
        cairn_free(cairn_malloc(8)); // so that the thread has a heap
        for (size_t round = 0; round < kRounds; round++) {
            first();
            meet(2 * round + 1);
            last();
            meet(2 * round + 2);
        }
    };
    uint64_t *blocks[6];
    auto seed = static_cast<unsigned>(GetParam());
    std::atomic<size_t> borrowed{0};
    std::thread borrower(
        [&] { each_round([] {}, [&] { borrowed += borrow_for_a_moment(size_class); }); });
    std::thread purger([&] { each_round([] {}, [&] { purge_soon(page_map_find(blocks[0])); }); });
    each_round(
        [&] {
            for (uint64_t *&block : blocks)
                block = static_cast<uint64_t *>(cairn_malloc(kBytes));
            std::thread([&] { // remote frees
                for (uint64_t *block : blocks)
                    cairn_free(block);
            })
                .join();
        },
        [&] {
            for (unsigned turns = rand_r(&seed) % 256; turns > 0; turns--)
                pause_processor();
            heap_put_aside(thread_heap, size_class);
        });
    borrower.join();
    purger.join();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        heap_verify(heap);
    EXPECT_TRUE(config_hardened || borrowed > kRounds / 10); // the scheduler decides who is first
}

constexpr size_t kReleasers = 3;
constexpr size_t kItems = 3000;

// Other threads release frames while the owner restarts and retires chunks, and after the owner
// ended.
TEST_P(Delays, FramesAreReleasedWhileTheRingEnds)
{
    struct Sealed {
        cairn_frame frame;
        uint64_t *content;
    };
    Slots<Sealed> slots;
    std::vector<std::thread> releasers;
    for (size_t id = 0; id < kReleasers; id++)
        releasers.emplace_back([&slots, id] {
            for (size_t at = id; at < kItems; at += kReleasers) {
                const Sealed sealed = slots.take(at);
                EXPECT_EQ(*sealed.content, at);
                *sealed.content = ~uint64_t{0};
                cairn_ring_release(sealed.frame);
            }
        });
    cairn_ring *ring = cairn_ring_new(nullptr);
    for (size_t at = 0; at < kItems; at++) {
        ASSERT_NE(cairn_ring_open(ring).chunk, nullptr);
        const size_t bytes = at % 199 == 0 ? 40000 : 64; // some frames continue in another chunk
        auto *content = static_cast<uint64_t *>(cairn_ring_alloc(ring, 64, 8));
        ASSERT_NE(content, nullptr);
        ASSERT_NE(cairn_ring_alloc(ring, bytes, 8), nullptr);
        *content = at;
        slots.put(at, {cairn_ring_seal(ring), content});
    }
    cairn_ring_close(ring);
    for (std::thread &releaser : releasers)
        releaser.join();
}

// Other threads free objects while the owner collects, and after the owner closed the FIFO.
TEST_P(Delays, ObjectsAreFreedWhileTheFifoEnds)
{
    Slots<uint64_t *> slots;
    std::vector<std::thread> threads;
    cairn_fifo_options options = {};
    options.any_thread_free = true;
    cairn_fifo *fifo = cairn_fifo_new(&options);
    ASSERT_NE(fifo, nullptr);
    for (size_t id = 0; id < kReleasers; id++)
        threads.emplace_back([&slots, fifo, id] {
            for (size_t at = id; at < kItems; at += kReleasers) {
                uint64_t *object = slots.take(at);
                EXPECT_EQ(object[1], at);
                cairn_fifo_free(fifo, object);
            }
        });
    for (size_t at = 0; at < kItems; at++) {
        auto *object = static_cast<uint64_t *>(cairn_fifo_alloc(fifo, 16 + at % 500, 8));
        ASSERT_NE(object, nullptr);
        object[1] = at;
        slots.put(at, object);
    }
    cairn_fifo_close(fifo);
    for (std::thread &thread : threads)
        thread.join();
}

// The pattern of fork: a thread that waits for the frozen lock must not hold the mutex that the
// forking thread takes.
TEST_P(Delays, NobodyWaitsForAFrozenLockWithAMutexInHand)
{
    struct lock lock = {};
    std::mutex stdio;
    std::atomic<bool> over{false};
    size_t guarded = 0;
    size_t entered = 0;
    constexpr size_t kForks = 1000;
    std::vector<std::thread> threads;
    for (size_t id = 0; id < 4; id++)
        threads.emplace_back([&, id] {
            while (!over) {
                std::unique_lock<std::mutex> held(stdio, std::defer_lock);
                if (id % 2 == 0)
                    held.lock();
                if (!lock_acquire(&lock))
                    continue;
                guarded++;
                if (++entered % 4 == 0)
                    usleep(50); // lets other threads reach their wait
                lock_release(&lock);
            }
        });
    for (size_t forks = 0; forks < kForks; forks++) {
        lock_freeze(&lock);
        {
            const std::lock_guard<std::mutex> held(stdio);
            guarded++;
        }
        lock_thaw(&lock);
    }
    over = true;
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(guarded, entered + kForks);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Delays, testing::Range<uint64_t>(1, 9));

} // namespace
