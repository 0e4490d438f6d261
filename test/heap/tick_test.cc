// What is due by age is asked for, whatever a program does.

#include <vector>

#include "cairn/pages.h"
#include "heap/sweep_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::kKiB;

using heap_layer::allocate_many;
using heap_layer::end_interval;
using heap_layer::IdleThread;

class Tick : public heap_layer::OwnHeap
{
};

// Memory goes back with time also while a program needs no new slab.
TEST_F(Tick, ACycleOfOneBlockAsksWhatIsDue)
{
    for (size_t size : {size_t{64}, 2 * kKiB, 100 * kKiB}) {
        if (config_quarantine && size > SMALL_MAX)
            continue; // some of its blocks always wait: the slab is never empty
        free_fast(allocate(size));
        store_relaxed(&pages_state.interval_start_ms, uint64_t{0});
        for (int i = 0; i < 2000; i++)
            free_fast(allocate(size));
        EXPECT_NE(load_relaxed(&pages_state.interval_start_ms), 0u) << size;
    }
}

// Nor does one need to allocate or free that changes the length of large blocks.
TEST_F(Tick, ResizingALargeBlockAsksWhatIsDue)
{
    for (size_t size : {100 * kKiB, size_t{40} << 20}) {
        void *block = allocate(size);
        for (size_t length : {size * 2, size}) {
            store_relaxed(&pages_state.interval_start_ms, uint64_t{0});
            block = heap_resize(block, length);
            ASSERT_NE(block, nullptr);
            EXPECT_NE(load_relaxed(&pages_state.interval_start_ms), 0u) << size << " to " << length;
        }
        free_fast(block);
    }
}

// A thread that only frees others' blocks asks for nothing else: its frees have to ask what is due.
TEST(TickOfOthers, AThreadThatOnlyFreesOthersBlocksAsksWhatIsDue)
{
    IdleThread idle;
    std::vector<void *> blocks;
    idle.run([&] { blocks = allocate_many(40000, 64); });
    end_interval();
    for (void *block : blocks)
        free_fast(block);
    EXPECT_NE(load_relaxed(&pages_state.interval_start_ms), 0u);
}

// The interval was over with it, and nothing of the heap had aged.
TEST_F(Tick, PagesForAProgramAgeWhatThreadsKeep)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "large blocks are mappings";
    constexpr size_t kBytes = 128 * kKiB;
    free_fast(malloc_slow(100 * kKiB));
    const auto keeps_any = [] {
        for (size_t place = 0; place < RUN_CACHE_LARGE; place++)
            if (load_relaxed(&thread_heap->runs.places[place]) != 0)
                return true;
        return false;
    };
    ASSERT_TRUE(keeps_any());
    for (int i = 0; i < 2; i++) {
        end_interval();
        EXPECT_EQ(cairn_pages_unmap(cairn_pages_map(kBytes, PAGE_BYTES, 0), kBytes), 0);
    }
    EXPECT_FALSE(keeps_any());
}

} // namespace
