// Metadata memory: dense, zero, aligned, never handed out twice, and what is done when it runs out.
// One process a case: a case may use up what the next one would find.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "page/page_layer.h"

namespace
{

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
        gaps += piece != last + last_size; // only from chunk to chunk
        memset(piece, 0xff, size);
        last = piece;
        last_size = (size + 127) / 128 * 128;
    }
    EXPECT_LE(gaps, 6u);
}

// Cold memory stays untouched, so nothing hot may lie on its pages.
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
    const size_t before = meta_bytes();
    for (int i = 0; i < 8; i++)
        ASSERT_NE(meta_take(META_COLD, META_CHUNK_BYTES), nullptr);
    const size_t more = meta_bytes() - before;
    EXPECT_GE(more, 8u * META_CHUNK_BYTES);
    EXPECT_LE(more, 9u * META_CHUNK_BYTES);
}

TEST(Meta, RefusalGivesNullAndLaterWorks)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    for (enum meta_kind kind : {META_HOT, META_COLD}) {
        const size_t before = meta_bytes();
        os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
        EXPECT_EQ(meta_take(kind, META_CHUNK_BYTES), nullptr);
        EXPECT_EQ(meta_take(kind, META_CHUNK_BYTES), nullptr);
        os_fault_plan(0, 0, 0);
        EXPECT_EQ(meta_bytes(), before);
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

// When the system gives nothing more, free pages of an arena serve.
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

// Lines come in pairs, and none is of two threads, unless their rows fall together.
TEST(Meta, SmallPiecesOfAThreadLieTogether)
{
    constexpr size_t kSizes[] = {64, 128, 320, 1088, 64, 192};
    struct Taker {
        uintptr_t row = 0;
        size_t behind = 0; // pieces that follow the one before
        std::set<uintptr_t> pairs;
    };
    for (enum meta_kind kind : {META_HOT, META_COLD}) {
        std::vector<Taker> takers(2);
        std::atomic<size_t> there = 0;
        std::vector<std::thread> threads;
        for (Taker &taker : takers)
            threads.emplace_back([&] {
                for (there++; there != takers.size();)
                    sched_yield();
                taker.row = (thread_identity() >> PAGE_SHIFT) % 8;
                char *end = nullptr;
                for (int round = 0; round < 200; round++)
                    for (size_t size : kSizes) {
                        char *piece = static_cast<char *>(meta_take_near(kind, size));
                        ASSERT_NE(piece, nullptr);
                        ASSERT_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0u);
                        ASSERT_TRUE(page_layer::reads(piece, size, 0));
                        memset(piece, 1, size);
                        taker.behind += piece == end;
                        end = piece + size;
                        for (char *line = piece; line < end; line += 64)
                            taker.pairs.insert(reinterpret_cast<uintptr_t>(line) / 128);
                    }
            });
        for (std::thread &thread : threads)
            thread.join();
        if (takers[0].row == takers[1].row)
            GTEST_SKIP() << "both threads take from one row";
        for (const Taker &taker : takers)
            EXPECT_GT(taker.behind, kind == META_COLD ? 600u : 200u);
        for (uintptr_t pair : takers[0].pairs)
            ASSERT_EQ(takers[1].pairs.count(pair), 0u) << "kind " << kind;
    }
}

TEST(Meta, AForksChildTakesFromItsOwnChunks)
{
    char *before = static_cast<char *>(meta_take(META_HOT, 128));
    char *near_before = static_cast<char *>(meta_take_near(META_HOT, 64));
    meta_forget_chunks();
    char *after = static_cast<char *>(meta_take(META_HOT, 128));
    ASSERT_NE(after, nullptr);
    EXPECT_NE(after, before + 128);
    EXPECT_TRUE(page_layer::reads(after, 128, 0));
    EXPECT_NE(meta_take_near(META_HOT, 64), near_before + 64);
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

} // namespace
