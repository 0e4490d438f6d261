// Sampling: which blocks are offered to the sampler, how often, and what is done with its blocks.
// One process a case (ctest runs each alone): the sampler is set once.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <vector>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::own_heap;
using heap_layer::span_of;

std::map<size_t, size_t> g_offers; // by size
size_t g_offered;
size_t g_alignment;
void *g_next;  // what the sampler gives; once
void *g_freed; // what came back
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

// The map allocates by the test program's own malloc, not by the heap under test.
void start(uint32_t interval)
{
    static struct heap_sampler sampler = {interval, offer, take_back, check, count};
    own_heap();
    heap_set_sampler(&sampler);
}

// A block as a sampler gives it: pages of its own with a guarded span.
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

TEST(Sampling, IsOffWithoutASampler)
{
    EXPECT_FALSE(heap_is_sampling());
    for (int i = 0; i < 100000; i++)
        free_fast(allocate(100));
    EXPECT_EQ(g_offered, 0u);
}

TEST(Sampling, EveryBlockAtAnIntervalOfOne)
{
    start(1);
    std::vector<void *> blocks;
    for (size_t size = config_void_blocks; size <= MEDIUM_MAX; size = size * 5 / 4 + 1) {
        for (int i = 0; i < 3; i++)
            blocks.push_back(allocate(size));
        EXPECT_EQ(g_offers[size], 3u) << size;
    }
    for (void *block : blocks)
        free_fast(block);
    const size_t offered = g_offered;
    free_fast(allocate(MEDIUM_MAX + 1));
    EXPECT_EQ(g_offered, offered) << "large blocks are not sampled";
    heap_layer::verify();
}

TEST(Sampling, AlsoOnNewThreads)
{
    start(1);
    in_thread([] {
        for (int i = 0; i < 10; i++)
            free_fast(allocate(48));
    });
    EXPECT_EQ(g_offers[48], 10u);
}

// `blocks` pairs of malloc and free, with `live` blocks in use; how many were offered.
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

TEST(Sampling, TheDenseRateIsMet)
{
    start(500);
    expect_about(2000, churn(1000000, 1, 100), "one block");
    expect_about(2000, churn(1000000, 1000, 100), "a live set");
    expect_about(2000, churn(1000000, 100, 5000), "medium blocks");
    heap_layer::verify();
}

TEST(Sampling, TheSparseRateIsMet)
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

// A loop of a few calls, whose length divides the heap's counts: each is seen.
TEST(Sampling, ARhythmHidesNothing)
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

TEST(Sampling, TheFastPathComesBack)
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

TEST(Sampling, ASampledBlockIsHandedOutAndBack)
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

TEST(Sampling, TheAlignmentIsPassedOn)
{
    start(1);
    Guarded guarded(100);
    g_next = guarded.start;
    EXPECT_EQ(heap_allocate_aligned(100, 512), guarded.start);
    EXPECT_EQ(g_alignment, 512u);
}

TEST(Sampling, ZeroedAndResizedBlocks)
{
    start(1);
    Guarded guarded(100);
    memset(guarded.start, config_zero_freed ? 0 : 1, 100); // full builds rely on the sampler for it
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
        EXPECT_NE(moved, block) << "a stale pointer is to be seen";
        EXPECT_EQ(g_freed, block);
        EXPECT_EQ(g_checked, "realloc");
        EXPECT_EQ(memcmp(moved, block, size < 100 ? size : 100), 0);
        free_fast(moved);
    }
}

TEST(Sampling, SizedFree)
{
    start(1);
    Guarded guarded(100);
    heap_free_sized(guarded.start, 100, 1);
    EXPECT_EQ(g_freed, guarded.start);
    EXPECT_DEATH(heap_free_sized(guarded.start, 101, 1),
                 "^cairn: free_sized of 0x[0-9a-f]+ with size 101 \\(100-byte block\\)\n$");
}

TEST(Sampling, StatisticsCountSampledBlocks)
{
    const heap_stats before = heap_layer::stats();
    start(1000000);
    const heap_stats after = heap_layer::stats();
    EXPECT_EQ(after.live_blocks, before.live_blocks + 3);
    EXPECT_EQ(after.live_bytes, before.live_bytes + 500);
}

} // namespace
