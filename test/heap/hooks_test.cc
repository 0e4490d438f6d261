// Hooks other than the profiler: diverted classes, the choice of guarded blocks, and the tracer.
// Each case needs a process of its own (ctest runs each alone), since hooks are the process's.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "heap/heap.h"
#include "heap/hooks.h"
#include "os/memory.h"
#include "watch/watch.h"
}

namespace hooks_test
{

// The sizes that the fast path of malloc serves.

using heap_layer::allocate;

class Hooks : public heap_layer::OwnHeap
{
};

TEST_F(Hooks, ADivertedClassShowsTheEmptySlab)
{
    if (heap_is_hooked())
        GTEST_SKIP() << "all sizes have hooks";
    const unsigned diverted = 9;
    const size_t size = size_classes[diverted].size_bytes;
    EXPECT_EQ(heap_->small_class[size], diverted);
    heap_divert_class(heap_, diverted);
    EXPECT_EQ(heap_->small_class[size], CLASS_COUNT);
    EXPECT_EQ(heap_->small_class[size_classes[diverted - 1].size_bytes], diverted - 1);
    EXPECT_EQ(heap_->small_class[size + 1], diverted + 1);
    hooks_verify(heap_);
    free_fast(allocate(size - CANARY_BYTES));
    heap_divert_class(heap_, diverted + 1);
    EXPECT_EQ(heap_->small_class[size], diverted) << "only one size is diverted at a time";
    heap_divert_none(heap_);
    EXPECT_EQ(heap_->small_class[size + 1], diverted + 1);
    hooks_verify(heap_);
}

using HooksDeathTest = Hooks;

TEST_F(HooksDeathTest, TheVerifierFindsAWrongEntry)
{
    if (!config_debug)
        GTEST_SKIP() << "the verifier runs in debug builds";
    const auto broken = [&] {
        heap_->small_class[size_classes[9].size_bytes]++;
        heap_verify(heap_);
    };
    EXPECT_DEATH(broken(), "internal error");
}

// The choice of the blocks to guard: which requests are offered to the guard, how often, and how
// its blocks are treated. Each case needs a process of its own (ctest runs each alone), since the
// guard is set once.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::own_heap;
using heap_layer::span_of;

std::map<size_t, size_t> g_offers; // by size
size_t g_offered;
size_t g_alignment;
void *g_next;  // the block that the guard gives, once
void *g_freed; // the block that was given back
std::string g_checked;

void *offer(size_t size, size_t alignment)
{
    g_offered++;
    g_offers[size]++;
    g_alignment = alignment;
    void *block = g_next;
    g_next = nullptr;
    return block;
}
void take_back(void *pointer, struct span *) { g_freed = pointer; }
bool check(const void *, const struct span *, const char *operation)
{
    g_checked = operation;
    return true;
}
void count(size_t *blocks, size_t *bytes)
{
    *blocks = 3;
    *bytes = 500;
}

// Starts with a guard of this interval. The map allocates by the malloc of the test program, not by
// the heap under test.
void start(uint32_t interval)
{
    static struct heap_guard guard = {interval, offer, take_back, check, count};
    own_heap();
    heap_set_guard(&guard);
}

// A block as a guard makes it: pages of its own with a guarded span.
struct Guarded {
    explicit Guarded(size_t size)
    {
        start = static_cast<char *>(os_map(os_page_size()));
        EXPECT_EQ(page_map_cover(start, os_page_size()), 0);
        span.tag = SPAN_GUARDED;
        span.base = start;
        span.size_bytes = static_cast<uint32_t>(size);
        page_map_set(start, 1, &span);
    }
    char *start;
    alignas(64) struct span span = {};
};

TEST(GuardChoice, IsOffWithoutAGuard)
{
    EXPECT_FALSE(heap_is_guarding());
    for (int i = 0; i < 100000; i++)
        free_fast(allocate(100));
    EXPECT_EQ(g_offered, 0u);
}

TEST(GuardChoice, EveryBlockAtAnIntervalOfOne)
{
    start(1);
    std::vector<void *> blocks;
    for (size_t size = config_zero_size_blocks; size <= MEDIUM_BLOCK_MAX; size = size * 5 / 4 + 1) {
        for (int i = 0; i < 3; i++)
            blocks.push_back(allocate(size));
        EXPECT_EQ(g_offers[size], 3u) << size;
    }
    for (void *block : blocks)
        free_fast(block);
    const size_t offered = g_offered;
    free_fast(allocate(MEDIUM_BLOCK_MAX + 1));
    EXPECT_EQ(g_offered, offered) << "large blocks are not guarded";
    heap_layer::verify();
}

TEST(GuardChoice, AlsoOnNewThreads)
{
    start(1);
    in_thread([] {
        for (int i = 0; i < 10; i++)
            free_fast(allocate(48));
    });
    EXPECT_EQ(g_offers[48], 10u);
}

// Makes `blocks` pairs of malloc and free, with `live` blocks in use.
// Returns: the number of offers.
size_t churn(size_t blocks, size_t live, size_t size)
{
    const size_t before = g_offered;
    heap_layer::churn(blocks, live, size);
    return g_offered - before;
}

void expect_about(size_t expected, size_t seen, const char *what)
{
    EXPECT_GT(seen, expected / 2) << what;
    EXPECT_LT(seen, expected * 2) << what;
}

TEST(GuardChoice, TheDenseRateIsMet)
{
    start(500);
    expect_about(2000, churn(1000000, 1, 100), "one block");
    expect_about(2000, churn(1000000, 1000, 100), "a live set");
    expect_about(2000, churn(1000000, 100, 5000), "medium blocks");
    heap_layer::verify();
}

TEST(GuardChoice, TheSparseRateIsMet)
{
    start(5000);
    expect_about(1000, churn(5000000, 1, 100), "one block");
    expect_about(1000, churn(5000000, 1000, 100), "a live set");
    expect_about(1000, churn(5000000, 100, 5000), "medium blocks");
    std::vector<void *> blocks;
    const size_t before = g_offered;
    for (int i = 0; i < 2000000; i++)
        blocks.push_back(allocate(16));
    expect_about(400, g_offered - before, "blocks that stay");
    for (void *block : blocks)
        free_fast(block);
    heap_layer::verify();
}

// A loop of a few calls whose length divides the counts of the heap: each call must be chosen at
// times.
TEST(GuardChoice, ARhythmHidesNothing)
{
    start(2000);
    for (const unsigned length : {2u, 3u, 5u, 15u, 17u}) {
        g_offers.clear();
        for (unsigned i = 0; i < 3000000; i++)
            free_fast(allocate(97 + i % length)); // one class
        for (unsigned place = 0; place < length; place++)
            EXPECT_GT(g_offers[97 + place], 1500 / length / 4) << place << " of " << length;
    }
}

TEST(GuardChoice, TheFastPathComesBack)
{
    start(5000);
    churn(1000000, 1, 100);
    size_t slow = 0;
    for (int i = 0; i < 100000; i++) {
        slow += thread_heap->small_class[100] == CLASS_COUNT;
        free_fast(allocate(100));
    }
    EXPECT_LT(slow, 4000u);
}

TEST(GuardChoice, AGuardedBlockIsHandedOutAndBack)
{
    start(1);
    Guarded guarded(100);
    g_next = guarded.start;
    EXPECT_EQ(allocate(100), guarded.start);
    EXPECT_EQ(g_alignment, 1u);
    EXPECT_EQ(heap_usable_size(guarded.start), 100u);
    EXPECT_EQ(g_checked, "malloc_usable_size");
    free_fast(guarded.start);
    EXPECT_EQ(g_freed, guarded.start);
}

TEST(GuardChoice, TheAlignmentIsPassedOn)
{
    start(1);
    Guarded guarded(100);
    g_next = guarded.start;
    EXPECT_EQ(heap_allocate_aligned(100, 512), guarded.start);
    EXPECT_EQ(g_alignment, 512u);
}

TEST(GuardChoice, ZeroedAndResizedBlocks)
{
    start(1);
    Guarded guarded(100);
    // full builds rely on the guard to zero it
    memset(guarded.start, config_zero_freed ? 0 : 1, 100);
    g_next = guarded.start;
    char *block = static_cast<char *>(heap_allocate_zeroed(100));
    ASSERT_EQ(block, guarded.start);
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(block[i], 0);
        block[i] = static_cast<char>(i);
    }
    for (const size_t size : {size_t{10}, size_t{100}, size_t{300}, size_t{100000}}) {
        g_freed = nullptr;
        char *moved = static_cast<char *>(heap_resize(block, size));
        ASSERT_NE(moved, nullptr);
        EXPECT_NE(moved, block) << "a stale pointer must be detected";
        EXPECT_EQ(g_freed, block);
        EXPECT_EQ(g_checked, "realloc");
        EXPECT_EQ(memcmp(moved, block, size < 100 ? size : 100), 0);
        free_fast(moved);
    }
}

TEST(GuardChoice, SizedFree)
{
    start(1);
    Guarded guarded(100);
    heap_free_sized(guarded.start, 100, 1);
    EXPECT_EQ(g_freed, guarded.start);
    EXPECT_DEATH(heap_free_sized(guarded.start, 101, 1),
                 "^cairn: sized free of 0x[0-9a-f]+ with size 101 \\(100-byte block\\)\n$");
}

TEST(GuardChoice, StatisticsCountGuardedBlocks)
{
    const heap_stats before = heap_layer::stats();
    start(1000000);
    const heap_stats after = heap_layer::stats();
    EXPECT_EQ(after.live_blocks, before.live_blocks + 3);
    EXPECT_EQ(after.live_bytes, before.live_bytes + 500);
}

// A tracer gets every event of a block once: when it is handed out, resized and freed, by any entry
// point and thread; and the fast paths return when the tracer stops. Each case needs a process of
// its own.

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
    // Compares the events since the last call with `all`.
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
    cairn_profile_stats figures;
    profile_read(&figures);
    EXPECT_GT(figures.samples, 1000U);
    EXPECT_EQ(figures.live_samples, 0U);
    profile_stop();
}

TEST_F(Tracing, AResizeThatFailsKeepsTheProfilersSample)
{
    listens = false;
    ASSERT_EQ(profile_start(1, 1), 0);
    cairn_profile_stats figures;
    free_fast(get(100)); // from here on the heap follows the profiler
    for (size_t size : sizes)
        for (size_t more : {size_t{0}, size_t{1}, size_t{40000}}) {
            void *block = get(size);
            if (more != 0) // a block that moved or grew is one sample, too
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
    void *last = get(64); // the fast path shows its class again by this call
    heard_count = 0;
    EXPECT_EQ(thread_heap->small_class[64 + CANARY_BYTES], small_class(64 + CANARY_BYTES));
    free_fast(traced);
    free_fast(last);
    expect({});
}

} // namespace hooks_test
