// A tracer hears of every block once: when it was handed out, resized and freed, by whichever entry
// and thread; and the fast paths come back when it stops. One process a case.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "heap/heap.h"
#include "heap/tracing.h"
#include "watch/watch.h"
}

namespace
{

struct Heard {
    std::string what;
    void *block;
    size_t size, alignment;
};

Heard heard[100000];
size_t heard_count;
thread_local bool listens;

void note(const char *what, void *block, size_t size, size_t alignment)
{
    if (!listens || heard_count == std::size(heard))
        return;
    listens = false; // a string may allocate
    heard[heard_count++] = {what, block, size, alignment};
    listens = true;
}

void *allocated(void *block, size_t size, size_t alignment, bool zeroed)
{
    note(zeroed ? "zeroed" : "allocated", block, size, alignment);
    return block;
}
void freed(void *block, bool resize) { note(resize ? "begin" : "freed", block, 0, 0); }
void resized(void *block, size_t size, bool began)
{
    note(!began ? "stays" : block == nullptr ? "failed" : "end", block, size, 0);
}

const struct heap_tracer tracer = {allocated, freed, resized};

class Tracing : public testing::Test
{
  protected:
    void SetUp() override
    {
        heap_start();
        void *first = malloc_fast(1, malloc_slow); // the thread has a heap
        free_fast(first);
        heap_trace_start(&tracer);
        listens = true;
        heard_count = 0;
    }
    void TearDown() override
    {
        listens = false;
        heap_trace_stop();
        heap_verify_all();
    }
    // What was heard since the last time, and nothing else.
    static void expect(const std::vector<Heard> &all)
    {
        listens = false;
        EXPECT_EQ(heard_count, all.size());
        for (size_t i = 0; i < all.size() && i < heard_count; i++) {
            EXPECT_EQ(heard[i].what, all[i].what) << i;
            EXPECT_EQ(heard[i].block, all[i].block) << i;
            EXPECT_EQ(heard[i].size, all[i].size) << i;
            EXPECT_EQ(heard[i].alignment, all[i].alignment) << i;
        }
        heard_count = 0;
        listens = true;
    }
    static void *get(size_t size) { return malloc_fast(size, malloc_slow); }
};

constexpr size_t resized_sizes[] = {8, 100, 1000, 30000, 40000, 500000, 33 << 20};
constexpr size_t sizes[] = {1, 8, 9, 100, 1000, 5000, 30000, 40000, 500000, 40 << 20};

TEST_F(Tracing, HearsOfEverySize)
{
    for (size_t size : sizes)
        for (int round = 0; round < 3; round++) {
            void *block = get(size);
            ASSERT_NE(block, nullptr);
            expect({{"allocated", block, size, 1}});
            free_fast(block);
            expect({{"freed", block, 0, 0}});
            block = heap_allocate_zeroed(size);
            expect({{"zeroed", block, size, 1}});
            heap_free_sized(block, size, 1);
            expect({{"freed", block, 0, 0}});
        }
}

TEST_F(Tracing, HearsOfAlignments)
{
    for (size_t alignment : {size_t{16}, size_t{64}, size_t{4096}, size_t{65536}})
        for (size_t size : sizes) {
            void *block = heap_allocate_aligned(size, alignment);
            ASSERT_NE(block, nullptr);
            expect({{"allocated", block, size, alignment}});
            heap_free_sized(block, size, alignment);
            expect({{"freed", block, 0, 0}});
        }
}

TEST_F(Tracing, HearsOfResizes)
{
    for (size_t from : resized_sizes)
        for (size_t to : resized_sizes) {
            void *block = get(from);
            expect({{"allocated", block, from, 1}});
            void *now = heap_resize(block, to);
            ASSERT_NE(now, nullptr);
            if (heard_count == 1)
                expect({{"stays", block, to, 0}});
            else
                expect({{"begin", block, 0, 0}, {"end", now, to, 0}});
            if (heap_resize_in_place(now, to))
                expect({{"stays", now, to, 0}});
            else
                expect({});
            now = heap_resize_zeroed(block = now, to, to + 1);
            if (heard_count == 1)
                expect({{"stays", block, to + 1, 0}});
            else
                expect({{"begin", block, 0, 0}, {"end", now, to + 1, 0}});
            free_fast(now);
            expect({{"freed", now, 0, 0}});
        }
}

TEST_F(Tracing, AResizeThatFailsLeavesTheBlockTraced)
{
    for (size_t size : sizes) {
        void *block = get(size);
        expect({{"allocated", block, size, 1}});
        EXPECT_EQ(heap_resize(block, SIZE_MAX / 2 + 1), nullptr);
        expect({{"begin", block, 0, 0}, {"failed", nullptr, SIZE_MAX / 2 + 1, 0}});
        free_fast(block);
        expect({{"freed", block, 0, 0}});
    }
}

TEST_F(Tracing, HearsOfBatches)
{
    void *blocks[300];
    ASSERT_EQ(heap_allocate_batch(300, 48, blocks), 300U);
    std::vector<Heard> all;
    for (void *block : blocks)
        all.push_back({"allocated", block, 48, 1});
    expect(all);
    heap_free_batch(300, blocks);
    for (Heard &each : all)
        each = {"freed", each.block, 0, 0};
    expect(all);
}

TEST_F(Tracing, HearsOfOtherThreadsFrees)
{
    for (size_t size : sizes) {
        void *block = get(size);
        expect({{"allocated", block, size, 1}});
        listens = false;
        std::thread([block] {
            listens = true;
            free_fast(block);
            listens = false;
        }).join();
        listens = true;
        expect({{"freed", block, 0, 0}});
    }
}

TEST_F(Tracing, ABlockFromBeforeIsHeardOfWhenItMoves)
{
    heap_trace_stop();
    listens = false;
    void *blocks[10];
    for (size_t i = 0; i < 10; i++)
        blocks[i] = get(sizes[i]);
    heap_trace_start(&tracer);
    listens = true;
    for (size_t i = 0; i < 10; i++) {
        void *now = heap_resize(blocks[i], 200000);
        if (heard_count == 2)
            expect({{"begin", blocks[i], 0, 0}, {"end", now, 200000, 0}});
        else
            heard_count = 0;
        free_fast(now);
    }
}

TEST_F(Tracing, AlongsideTheProfiler)
{
    ASSERT_EQ(profile_start(64, 1), 0);
    std::vector<void *> blocks;
    listens = false;
    blocks.reserve(3000);
    listens = true;
    for (int i = 0; i < 3000; i++)
        blocks.push_back(get(1 + static_cast<size_t>(i) % 2000));
    EXPECT_EQ(heard_count, 3000U);
    for (void *block : blocks)
        free_fast(block);
    EXPECT_EQ(heard_count, 6000U);
    listens = false;
    struct profile_figures figures;
    profile_read(&figures);
    EXPECT_GT(figures.samples, 1000U);
    EXPECT_EQ(figures.live_samples, 0U);
    profile_stop();
}

TEST_F(Tracing, AResizeThatFailsKeepsTheProfilersSample)
{
    listens = false;
    ASSERT_EQ(profile_start(1, 1), 0);
    struct profile_figures figures;
    free_fast(get(100)); // the heap follows the profiler from here on
    for (size_t size : sizes)
        for (size_t more : {size_t{0}, size_t{1}, size_t{40000}}) {
            void *block = get(size);
            if (more != 0) // one that moved or grew is one sample, too
                block = heap_resize(block, size + more);
            EXPECT_EQ(heap_resize(block, SIZE_MAX / 2 + 1), nullptr);
            profile_read(&figures);
            EXPECT_EQ(figures.live_samples, 1U) << size << " " << more;
            free_fast(block);
            profile_read(&figures);
            EXPECT_EQ(figures.live_samples, 0U) << size << " " << more;
        }
    profile_stop();
}

TEST_F(Tracing, TheFastPathComesBack)
{
    void *traced = get(64);
    heap_trace_stop();
    void *last = get(64); // its class is shown again by this one
    heard_count = 0;
    EXPECT_EQ(thread_heap->small_class[64 + CANARY_BYTES], small_class(64 + CANARY_BYTES));
    free_fast(traced);
    free_fast(last);
    expect({});
}

} // namespace
