// Metadata memory: dense, zero, aligned, never handed out twice.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "page/page_layer.h"

namespace {

TEST(Meta, PiecesAreZeroAlignedAndDense)
{
    char *last = static_cast<char *>(meta_take(META_HOT, 1));
    ASSERT_NE(last, nullptr);
    size_t last_size = 64;
    size_t gaps = 0;
    for (size_t size = 1; size < 5000; size += 37) {
        char *piece = static_cast<char *>(meta_take(META_HOT, size));
        ASSERT_NE(piece, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0u);
        EXPECT_TRUE(page_layer::reads(piece, size, 0));
        gaps += piece != last + last_size; // only from chunk to chunk
        memset(piece, 0xff, size);
        last = piece;
        last_size = (size + 63) / 64 * 64;
    }
    EXPECT_LE(gaps, 3u);
}

TEST(Meta, KindsLieApart)
{
    const auto chunk = [](void *piece) {
        return reinterpret_cast<uintptr_t>(piece) / META_CHUNK_BYTES;
    };
    std::set<uintptr_t> hot_chunks;
    std::set<uintptr_t> cold_chunks;
    for (int i = 0; i < 10000; i++) {
        hot_chunks.insert(chunk(meta_take(META_HOT, 64)));
        cold_chunks.insert(chunk(meta_take(META_COLD, 64)));
    }
    for (uintptr_t each : hot_chunks)
        EXPECT_EQ(cold_chunks.count(each), 0u);
}

TEST(Meta, AWholeChunkIsTheMost)
{
    char *piece = static_cast<char *>(meta_take(META_HOT, META_CHUNK_BYTES));
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % META_CHUNK_BYTES, 0u);
    memset(piece, 1, META_CHUNK_BYTES);
    EXPECT_NE(meta_take(META_HOT, 64), nullptr);
}

TEST(Meta, BytesInUseAreCounted)
{
    const size_t before = meta_bytes();
    for (int i = 0; i < 8; i++)
        ASSERT_NE(meta_take(META_COLD, META_CHUNK_BYTES), nullptr);
    EXPECT_EQ(meta_bytes() - before, 8u * META_CHUNK_BYTES);
}

TEST(Meta, RefusalGivesNullAndLosesNothing)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    for (size_t call = 0; call < 4; call++) {
        const size_t before = meta_bytes();
        os_fault_plan(call, 1, ENOMEM);
        void *piece = meta_take(META_COLD, META_CHUNK_BYTES);
        os_fault_plan(0, 0, 0);
        if (piece != nullptr)
            memset(piece, 1, META_CHUNK_BYTES);
        else {
            EXPECT_EQ(meta_bytes(), before) << call;
        }
        if (call == 0) {
            EXPECT_EQ(piece, nullptr);
        }
    }
    EXPECT_NE(meta_take(META_COLD, META_CHUNK_BYTES), nullptr);
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
