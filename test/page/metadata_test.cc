// Metadata memory: its pages, headers of spans, descriptors, and tables of spans. Each case needs
// a process of its own, since a case may use up the memory of the next.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "page/fence_kit.h"
#include "page/page_layer.h"

extern "C" {
#include "base/tagged.h"
#include "os/fault.h"
#include "os/memory.h"
#include "page/mappings.h"
#include "page/page.h"
}

namespace metadata_test
{

// Metadata memory: dense, zero, aligned, never handed out twice, and its behaviour when memory runs
// out. Each case needs a process of its own, since a case may use up the memory of the next.

TEST(Meta, PiecesAreZeroAlignedAndDense)
{
    char *last = static_cast<char *>(meta_take(META_HOT, 1));
    ASSERT_NE(last, nullptr);
    size_t last_size = 128;
    size_t gaps = 0;
    for (size_t size = 1; size < 5000; size += 37) {
        char *piece = static_cast<char *>(meta_take(META_HOT, size));
        ASSERT_NE(piece, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 128, 0u);
        EXPECT_TRUE(page_layer::reads(piece, size, 0));
        gaps += piece != last + last_size; // only at the start of a chunk
        memset(piece, 0xff, size);
        last = piece;
        last_size = (size + 127) / 128 * 128;
    }
    EXPECT_LE(gaps, 6u);
}

// Cold memory stays untouched, so no hot piece may be on its pages.
TEST(Meta, KindsShareNoPage)
{
    const auto page = [](void *piece) { return reinterpret_cast<uintptr_t>(piece) / PAGE_BYTES; };
    std::set<uintptr_t> hot_pages;
    std::set<uintptr_t> cold_pages;
    for (int i = 0; i < 20000; i++) {
        hot_pages.insert(page(meta_take(META_HOT, 64)));
        cold_pages.insert(page(meta_take(META_COLD, 64)));
    }
    for (uintptr_t each : hot_pages)
        EXPECT_EQ(cold_pages.count(each), 0u);
}

TEST(Meta, PiecesMayBeLargerThanAChunk)
{
    for (size_t size : {size_t{META_CHUNK_BYTES}, size_t{5} * META_CHUNK_BYTES + 1}) {
        char *piece = static_cast<char *>(meta_take(META_HOT, size));
        ASSERT_NE(piece, nullptr);
        EXPECT_TRUE(page_layer::reads(piece, size, 0));
        memset(piece, 1, size);
        EXPECT_NE(meta_take(META_HOT, 64), nullptr);
    }
}

TEST(Meta, BytesInUseAreCounted)
{
    const size_t before = load_relaxed(&meta_total_bytes);
    for (int i = 0; i < 8; i++)
        ASSERT_NE(meta_take(META_COLD, META_CHUNK_BYTES), nullptr);
    const size_t more = load_relaxed(&meta_total_bytes) - before;
    EXPECT_GE(more, 8u * META_CHUNK_BYTES);
    EXPECT_LE(more, 9u * META_CHUNK_BYTES);
}

TEST(Meta, RefusalGivesNullAndLaterWorks)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    for (enum meta_kind kind : {META_HOT, META_COLD}) {
        const size_t before = load_relaxed(&meta_total_bytes);
        os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
        EXPECT_EQ(meta_take(kind, META_CHUNK_BYTES), nullptr);
        EXPECT_EQ(meta_take(kind, META_CHUNK_BYTES), nullptr);
        os_fault_plan(0, 0, 0);
        EXPECT_EQ(load_relaxed(&meta_total_bytes), before);
        char *piece = static_cast<char *>(meta_take(kind, META_CHUNK_BYTES));
        ASSERT_NE(piece, nullptr);
        memset(piece, 1, META_CHUNK_BYTES);
    }
}

TEST(Meta, ASmallerChunkWillDo)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    ASSERT_NE(meta_take(META_HOT, 64), nullptr);
    for (int i = 0; i < 200; i++) { // one of them needs a new chunk
        os_fault_plan(0, 1, ENOMEM);
        void *piece = meta_take(META_HOT, 4096);
        os_fault_plan(0, 0, 0);
        ASSERT_NE(piece, nullptr);
        memset(piece, 1, 4096);
    }
}

// When the system refuses memory, free pages of an arena serve as metadata.
TEST(Meta, FreePagesServeWhenTheSystemRefuses)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    page_layer::start();
    struct span *run = pages_take(100 * os_page_size() >> PAGE_SHIFT, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    page_layer::fill(run, 0xf);
    pages_give(run);
    const size_t free_before = page_layer::stats().free_bytes;
    os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
    for (int i = 0; i < 60; i++) { // more than the rest of a chunk
        char *piece = static_cast<char *>(meta_take(META_HOT, 4000));
        ASSERT_NE(piece, nullptr);
        EXPECT_TRUE(page_layer::reads(piece, 4000, 0));
        memset(piece, 1, 4000);
        pages_verify();
    }
    os_fault_plan(0, 0, 0);
    EXPECT_LT(page_layer::stats().free_bytes, free_before);
}

TEST(Meta, ThreadsGetDifferentPieces)
{
    constexpr size_t kThreads = 8;
    constexpr size_t kPieces = 4000;
    std::vector<std::vector<uintptr_t>> taken(kThreads);
    std::vector<std::thread> threads;
    for (auto &mine : taken)
        threads.emplace_back([&mine] {
            for (size_t i = 0; i < kPieces; i++) {
                char *piece = static_cast<char *>(meta_take(META_HOT, 192));
                ASSERT_NE(piece, nullptr);
                ASSERT_TRUE(page_layer::reads(piece, 192, 0));
                memset(piece, 1, 192);
                mine.push_back(reinterpret_cast<uintptr_t>(piece));
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    std::vector<uintptr_t> all;
    for (const auto &mine : taken)
        all.insert(all.end(), mine.begin(), mine.end());
    std::sort(all.begin(), all.end());
    for (size_t i = 1; i < all.size(); i++)
        ASSERT_GE(all[i] - all[i - 1], 192u);
}

// Headers of spans: their alignment, their cold areas, and how they are recycled.

class Header : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        ASSERT_TRUE(lock_acquire(&page_layer::shard->lock));
        lock_release(&page_layer::shard->lock);
        for (uintptr_t &list : page_layer::shard->shared_headers)
            (void)tagged_pop_all(&list);
    }
};

TEST_F(Header, EachHasItsLineAndItsColdArea)
{
    for (unsigned units = 0; units < SIDE_UNIT_KINDS; units++) {
        struct span *span = headers_make(page_layer::shard, units, 1);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span) % 64, 0u);
        EXPECT_EQ(span->side_units, units);
        EXPECT_EQ(span->tag, SPAN_NONE);
        EXPECT_EQ(span->owner, 0u);
        char *behind = reinterpret_cast<char *>(span + 1);
        EXPECT_TRUE(page_layer::reads(behind, units * 64, 0));
        memset(behind, 0xff, units * 64);
    }
}

// A refill makes adjacent headers. No other shard has a header in one of their pairs of lines.
TEST_F(Header, ARefillMakesSomeThatLieTogether)
{
    for (unsigned units : {0u, 3u}) {
        struct page_shard *shard = page_layer::shard;
        ASSERT_TRUE(lock_acquire(&shard->lock));
        free_spans_settle(shard, nullptr);
        while (header_pop(shard, units))
            continue;
        store_relaxed(&shard->committed_pages, size_t{1} << 20);
        lock_release(&shard->lock);
        char *before = static_cast<char *>(meta_take(units == 0 ? META_HOT : META_COLD, 64));
        ASSERT_TRUE(headers_refill(shard, units));
        char *after = static_cast<char *>(meta_take(units == 0 ? META_HOT : META_COLD, 64));
        ASSERT_TRUE(lock_acquire(&shard->lock));
        free_spans_settle(shard, nullptr);
        std::set<struct span *> headers;
        while (struct span *span = header_pop(shard, units)) {
            EXPECT_EQ(span->side_units, units);
            EXPECT_EQ(shard_of(span), shard);
            headers.insert(span);
        }
        lock_release(&shard->lock);
        ASSERT_EQ(headers.size(), 8u);
        size_t bytes = sizeof(struct span) + units * 64;
        EXPECT_EQ(*headers.rbegin() - *headers.begin(), ptrdiff_t(7 * bytes / sizeof(struct span)));
        EXPECT_GE(reinterpret_cast<char *>(*headers.begin()) - before, 128);
        EXPECT_GE(after - reinterpret_cast<char *>(*headers.rbegin()), ptrdiff_t(bytes));
    }
}

// The lists that need no lock, and those of the lock, fill each other.
TEST_F(Header, ListsOfOneKindAreFilledFromTheOther)
{
    struct page_shard *shard = page_layer::shard;
    ASSERT_TRUE(lock_acquire(&shard->lock));
    free_spans_settle(shard, nullptr);
    while (header_pop(shard, 5))
        continue;
    struct span *one = headers_make(shard, 5, 1);
    header_push(one);
    lock_release(&shard->lock);
    EXPECT_EQ(header_take(shard, 5), one);
    struct span *two = header_take(shard, 5);
    header_return(one);
    header_return(two);
    ASSERT_TRUE(headers_refill(shard, 5));
    ASSERT_TRUE(lock_acquire(&shard->lock));
    free_spans_settle(shard, nullptr);
    std::set<struct span *> found;
    while (struct span *span = header_pop(shard, 5))
        found.insert(span);
    lock_release(&shard->lock);
    EXPECT_EQ(found, (std::set<struct span *>{one, two}));
}

TEST_F(Header, AreRecycledByTheSizeOfTheirColdArea)
{
    struct span *small = headers_make(page_layer::shard, 2, 1);
    struct span *large = headers_make(page_layer::shard, 6, 1);
    ASSERT_TRUE(lock_acquire(&page_layer::shard->lock));
    header_push(small);
    header_push(large);
    EXPECT_EQ(header_pop(page_layer::shard, 6), large);
    EXPECT_EQ(header_pop(page_layer::shard, 2), small);
    EXPECT_EQ(header_pop(page_layer::shard, 6), nullptr);
    lock_release(&page_layer::shard->lock);
}

// Descriptors that are recycled: fresh ones, returned ones, and many threads at once.

struct Descriptor {
    uint64_t words[9];
};

TEST(Descriptors, AFreshOneIsZeroAndAlignedToALine)
{
    static struct descriptor_pool list = {0, sizeof(Descriptor)};
    for (int i = 0; i < 100; i++) {
        auto *cell = static_cast<Descriptor *>(descriptor_take_from(&list));
        ASSERT_NE(cell, nullptr);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(cell) % 64, 0u);
        for (uint64_t word : cell->words)
            ASSERT_EQ(word, 0u);
        memset(cell, 1, sizeof *cell);
    }
}

TEST(Descriptors, OneGivenBackKeepsItsContentAndIsTakenNext)
{
    static struct descriptor_pool list = {0, sizeof(Descriptor)};
    static struct descriptor_pool other = {0, sizeof(Descriptor)};
    auto *first = static_cast<Descriptor *>(descriptor_take_from(&list));
    auto *second = static_cast<Descriptor *>(descriptor_take_from(&list));
    memset(first, 7, sizeof *first);
    descriptor_give_to(&list, second);
    descriptor_give_to(&list, first);
    EXPECT_NE(descriptor_take_from(&other), first);
    EXPECT_EQ(descriptor_take_from(&list), first);
    for (uint64_t word : first->words)
        EXPECT_EQ(word, 0x0707070707070707u);
    EXPECT_EQ(descriptor_take_from(&list), second);
}

TEST(Descriptors, ThreadsNeverHoldTheSameOne)
{
    static struct descriptor_pool list = {0, sizeof(Descriptor)};
    constexpr int kThreads = 4;
    std::vector<std::thread> threads;
    int faults[kThreads] = {};
    for (int self = 0; self < kThreads; self++)
        threads.emplace_back([&, self] {
            for (uint64_t round = 0; round < 20000; round++) {
                Descriptor *held[3];
                for (Descriptor *&cell : held) {
                    cell = static_cast<Descriptor *>(descriptor_take_from(&list));
                    cell->words[8] = round * kThreads + static_cast<uint64_t>(self);
                }
                for (Descriptor *cell : held) {
                    faults[self] +=
                        cell->words[8] != round * kThreads + static_cast<uint64_t>(self);
                    descriptor_give_to(&list, cell);
                }
            }
        });
    for (auto &thread : threads)
        thread.join();
    for (int count : faults)
        EXPECT_EQ(count, 0);
}

// Pages of an arena that become metadata: from behind the frontier or from a free run, between
// fences.

using fence_kit::expect_fenced;

class MetadataPagesDeathTest : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    // Steals as if all of every arena were committed.
    static char *steal_from_free_runs(size_t bytes)
    {
        std::vector<size_t> frontiers;
        for (size_t i = 0; i < arena_count(); i++)
            frontiers.push_back(std::exchange(arenas_added[i]->frontier, arenas_added[i]->pages));
        char *stolen = arena_pages_for_metadata(bytes);
        for (size_t i = 0; i < frontiers.size(); i++)
            arenas_added[i]->frontier = frontiers[i];
        return stolen;
    }
};

TEST_F(MetadataPagesDeathTest, PagesTakenAreBetweenFences)
{
    const size_t bytes = 2 * os_page_size();
    const size_t taken = 5 * bytes;
    struct span *first = pages_take(taken >> PAGE_SHIFT, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    const size_t committed = page_layer::stats().committed_bytes;
    const size_t free_bytes = page_layer::stats().free_bytes;
    char *fresh = arena_pages_for_metadata(bytes); // from behind the frontier
    expect_fenced(fresh, bytes);
    EXPECT_EQ(page_layer::stats().committed_bytes, committed);
    page_layer::fill(first, 1);
    pages_give(first);
    char *used = steal_from_free_runs(bytes);
    ASSERT_NE(used, nullptr);
    EXPECT_TRUE(page_layer::reads(used, bytes, 0));
    expect_fenced(used, bytes);
    EXPECT_LE(page_layer::stats().free_bytes, free_bytes + taken - bytes);
    pages_verify();
}

// A free run may end in the middle of a system page; pages that are stolen there need fences too.
TEST_F(MetadataPagesDeathTest, AlsoFromTheMiddleOfASystemPage)
{
    const size_t bytes = 2 * os_page_size();
    struct span *odd = pages_take((8 * bytes >> PAGE_SHIFT) + 1, os_page_size());
    struct span *behind = pages_take(1, PAGE_BYTES);
    ASSERT_TRUE(odd && behind);
    pages_give(odd);
    char *stolen = steal_from_free_runs(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(stolen) % os_page_size(), 0u);
    expect_fenced(stolen, bytes);
    pages_give(behind);
    pages_verify();
}

// No run is long enough before the loose runs of slabs are merged.
TEST_F(MetadataPagesDeathTest, AlsoFromWhatSlabsLeft)
{
    if (config_random_runs)
        GTEST_SKIP() << "the runs of slabs are merged at once";
    const size_t bytes = 2 * os_page_size();
    const size_t least = (bytes + 3 * os_page_size()) >> PAGE_SHIFT; // with fences, and a rest
    std::vector<struct span *> slabs(40);
    struct span *room = pages_take(slabs.size() * page_layer::kShapes[1].pages, PAGE_BYTES);
    ASSERT_NE(room, nullptr);
    pages_give(room);
    for (struct span *&slab : slabs)
        ASSERT_NE(slab = pages_take_slab(1), nullptr);
    std::vector<struct span *> others;
    for (struct span *span; (span = bins_find(page_layer::shard, least, 1)) != nullptr;)
        ASSERT_NE(others.emplace_back(pages_take(span->pages, PAGE_BYTES)), nullptr);
    for (struct span *slab : slabs)
        pages_give_slab(slab, 0);
    ASSERT_EQ(bins_find(page_layer::shard, least, 1), nullptr);
    expect_fenced(steal_from_free_runs(bytes), bytes);
    for (struct span *span : others)
        pages_give(span);
    pages_verify();
}

TEST_F(MetadataPagesDeathTest, NothingIsTakenWhileTheLockIsFrozen)
{
    struct span *run = pages_take(100, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    pages_give(run);
    const size_t bytes = 2 * os_page_size();
    pages_freeze();
    std::thread([=] { EXPECT_EQ(arena_pages_for_metadata(bytes), nullptr); }).join();
    pages_thaw();
    EXPECT_NE(arena_pages_for_metadata(bytes), nullptr);
    pages_verify();
}

// The table of fork runs: entries are used again, walks see the spans in use, and a full table
// takes no more.

using page_layer::kMiB;

void collect(struct span *span, char *start, void *context)
{
    static_cast<std::vector<std::pair<struct span *, char *>> *>(context)->push_back({span, start});
}

std::vector<std::pair<struct span *, char *>> all()
{
    std::vector<std::pair<struct span *, char *>> found;
    pages_each_outside(collect, &found);
    return found;
}

struct span *fork_run()
{
    struct span *run = fork_run_take(1, PAGE_BYTES, 0);
    if (run)
        run->tag = SPAN_LARGE;
    return run;
}

TEST(SpanTable, PlacesAreTakenAndLeft)
{
    page_layer::start();
    ASSERT_TRUE(all().empty());
    std::vector<struct span *> runs;
    while (all().size() == runs.size()) {
        ASSERT_LT(runs.size(), 2000u) << "the table has no end";
        runs.push_back(fork_run());
        ASSERT_NE(runs.back(), nullptr);
    }
    const size_t full = all().size();
    ASSERT_GT(full, 2u);
    EXPECT_EQ(all()[0].first, runs[0]);
    EXPECT_EQ(all()[0].second, runs[0]->base);
    runs[0]->tag = SPAN_MOVING;
    EXPECT_EQ(all().size(), full - 1) << "the span is not in use";
    runs[0]->tag = SPAN_LARGE;
    fork_run_give(runs.back()); // has no place
    EXPECT_EQ(all().size(), full);
    fork_run_give(runs[1]);
    EXPECT_EQ(all().size(), full - 1);
    runs[1] = fork_run();
    EXPECT_EQ(all()[1].first, runs[1]);
    // the base of a slab is a block before its start
    runs[1]->tag = SPAN_SLAB + 3;
    runs[1]->size_bytes = 16;
    EXPECT_EQ(all()[1].second, runs[1]->base + 16);
    runs[1]->pages = 1;
    runs.pop_back();
    for (struct span *run : runs)
        fork_run_give(run);
    EXPECT_TRUE(all().empty());
}

// A run that was taken while another thread forked is found by walks until it is given back.
TEST(SpanTable, WalksFindWhatWasTakenDuringAFork)
{
    page_layer::start();
    struct span *run = nullptr;
    struct span *slab = nullptr;
    pages_freeze();
    std::thread([&] {
        run = pages_take(5, PAGE_BYTES);
        slab = pages_take_slab(1);
    }).join();
    pages_thaw();
    ASSERT_TRUE(run && slab);
    const auto is_found = [](struct span *wanted) {
        std::vector<std::pair<struct span *, char *>> found;
        pages_each(collect, &found);
        size_t times = 0;
        for (auto &[span, start] : found)
            times += span == wanted;
        return times;
    };
    EXPECT_EQ(is_found(run), 1u);
    EXPECT_EQ(is_found(slab), 1u);
    pages_give(run);
    pages_give_slab(slab, 0);
    EXPECT_EQ(is_found(run), 0u);
    EXPECT_EQ(is_found(slab), 0u);
}

} // namespace metadata_test
