// realloc, usable size, sized free. Each case needs a process of its own, since growth in place
// depends on the memory behind the block.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

namespace resize_test
{

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;

char *filled(size_t size)
{
    char *block = static_cast<char *>(allocate(size));
    for (size_t i = 0; i < size; i++)
        block[i] = static_cast<char>(i * 7 + 1);
    return block;
}

bool holds(const char *block, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != static_cast<char>(i * 7 + 1))
            return false;
    return true;
}

TEST(Resize, FromEverySizeToEveryOther)
{
    const size_t sizes[] = {1,          16,       17,        100,           1024,
                            1025,       5 * kKiB, 32 * kKiB, 32 * kKiB + 1, 100 * kKiB,
                            300 * kKiB, 2 * kMiB, 33 * kMiB};
    for (size_t from : sizes)
        for (size_t to : sizes) {
            char *block = filled(from);
            char *moved = static_cast<char *>(heap_resize(block, to));
            ASSERT_NE(moved, nullptr) << from << " to " << to;
            EXPECT_GE(heap_usable_size(moved), to);
            EXPECT_TRUE(holds(moved, std::min(from, to))) << from << " to " << to;
            memset(moved, 1, to);
            free_fast(moved);
        }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

TEST(Resize, WithinItsClassABlockStays)
{
    char *block = filled(1000);
    EXPECT_EQ(heap_resize(block, 961), block);
    EXPECT_EQ(heap_resize(block, 1024 - CANARY_BYTES), block);
    free_fast(block);
}

TEST(Resize, ShrinkingGivesMemoryBack)
{
    char *block = filled(20 * kMiB);
    const size_t before = heap_layer::stats().live_bytes;
    block = static_cast<char *>(heap_resize(block, 50 * kKiB));
    EXPECT_LT(heap_layer::stats().live_bytes + 19 * kMiB, before);
    EXPECT_TRUE(holds(block, 50 * kKiB));
    block = static_cast<char *>(heap_resize(block, 10));
    EXPECT_LE(heap_layer::stats().live_bytes, 16u + 2 * CANARY_BYTES);
    EXPECT_TRUE(holds(block, 10));
    free_fast(block);
}

TEST(Resize, ALargeBlockGrowsIntoFreeMemoryBehindIt)
{
    char *block = filled(100 * kKiB);
    char *behind = static_cast<char *>(allocate(100 * kKiB));
    const bool neighbours = behind == block + 100 * kKiB;
    free_fast(behind);
    heaps_empty_run_caches(); // when cases share a process, they may keep the memory
    if (neighbours) {
        char *grown = static_cast<char *>(heap_resize(block, 150 * kKiB));
        EXPECT_EQ(grown, block);
        block = grown;
    }
    EXPECT_TRUE(holds(block, 100 * kKiB));
    free_fast(block);
}

TEST(Resize, GrowthBySmallStepsMovesSeldom)
{
    size_t moves = 0;
    char *block = filled(kMiB);
    char *in_the_way = static_cast<char *>(allocate(kMiB));
    for (size_t size = kMiB; size < 30 * kMiB; size += 64 * kKiB) {
        char *grown = static_cast<char *>(heap_resize(block, size));
        ASSERT_NE(grown, nullptr);
        moves += grown != block;
        block = grown;
    }
    EXPECT_LE(moves, 60u);
    EXPECT_TRUE(holds(block, kMiB));
    free_fast(block);
    free_fast(in_the_way);
}

TEST(Resize, ABlockThatGrowsByBytesKeepsItsContent)
{
    char *block = filled(100);
    size_t had = 100;
    for (size_t size = 100; size < 3 * kMiB; size += 100 + size / 50) {
        block = static_cast<char *>(heap_resize(block, size));
        ASSERT_NE(block, nullptr);
        ASSERT_TRUE(holds(block, had)) << size;
        for (; had < size; had++)
            block[had] = static_cast<char>(had * 7 + 1);
    }
    free_fast(block);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// Each thread's block keeps its content while another thread empties all caches.
TEST(Resize, BlocksThatGrowNeverShareAPage)
{
    constexpr int kThreads = 4;
    constexpr int kRounds = 200;
    std::atomic<int> going{kThreads};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++)
        threads.emplace_back([i, &going] {
            for (int round = 0; round < kRounds; round++) {
                auto *block = static_cast<char *>(allocate(64));
                size_t had = 0;
                for (size_t size = 64; size <= 512 * kKiB; size *= 2) {
                    block = static_cast<char *>(heap_resize(block, size));
                    for (size_t at = had; at < size; at += 2048)
                        block[at] = static_cast<char>(i + round);
                    had = size;
                }
                for (size_t at = 2048; at < had; at += 2048)
                    EXPECT_EQ(block[at], static_cast<char>(i + round));
                free_fast(block);
            }
            going--;
        });
    while (going != 0) {
        (void)heaps_empty_run_caches();
        for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
            run_cache_age(&heap->runs);
        pages_verify();
    }
    for (std::thread &thread : threads)
        thread.join();
}

TEST(Resize, AMediumBlockGrowsByAnEighthAtLeast)
{
    if (config_canaries)
        GTEST_SKIP() << "a block ends where the request ends";
    size_t moves = 0;
    char *block = filled(kKiB);
    for (size_t size = kKiB; size <= 32 * kKiB; size += 16) {
        char *grown = static_cast<char *>(heap_resize(block, size));
        moves += grown != block;
        block = grown;
        ASSERT_TRUE(span_is_slab(span_of(block)));
        const size_t most = (size < 6 * kKiB ? size * 4 / 3 : size * 9 / 8 * 9 / 8) + 16;
        ASSERT_LE(heap_usable_size(block), most) << size;
    }
    EXPECT_LE(moves, 26u);
    EXPECT_TRUE(holds(block, kKiB));
    free_fast(block);
}

TEST(Resize, AMediumBlockThatShrinksFillsThreeQuarters)
{
    char *block = filled(30 * kKiB);
    for (size_t size = 30 * kKiB; size > kKiB; size -= 16) {
        block = static_cast<char *>(heap_resize(block, size));
        ASSERT_LE(heap_usable_size(block), size * 4 / 3) << size;
    }
    EXPECT_TRUE(holds(block, kKiB + 1));
    heap_free_sized(block, kKiB + 16, 1);
}

TEST(Resize, SizedFreeAtEveryStepOfGrowth)
{
    for (size_t last = kKiB; last <= 34 * kKiB; last += 240) {
        void *block = allocate(1000);
        for (size_t size = 1000; size <= last; size += 120)
            block = heap_resize(block, size);
        heap_free_sized(block, 1000 + (last - 1000) / 120 * 120, 1);
    }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// Mappings that grow consist of whole huge pages, which may be a quarter longer than the block.
TEST(Resize, SizedFreeOfAGrownMapping)
{
    for (size_t size : {kMiB * 7 + 455303, kMiB * 9, kMiB * 33 + 1}) {
        void *block = heap_resize(allocate(kMiB * 2), kMiB * 5);
        heap_free_sized(heap_resize(block, size), size, 1);
    }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST(Resize, AFailedOneKeepsTheBlock)
{
    for (size_t size : {size_t{100}, 10 * kKiB, kMiB, 33 * kMiB}) {
        char *block = filled(size);
        EXPECT_EQ(heap_resize(block, SIZE_MAX), nullptr);
        EXPECT_EQ(heap_resize(block, SIZE_MAX / 2 + 1), nullptr);
        EXPECT_EQ(heap_resize(block, size_t{1} << 47), nullptr);
        EXPECT_TRUE(holds(block, size));
        free_fast(block);
    }
}

// A shrink that cannot happen in place moves the block, and must copy no more than fits.
TEST(Resize, AShrinkThatMovesCopiesNoMoreThanFits)
{
    char *block = filled(3 * kMiB);
    char *others[8];
    pages_freeze(); // as if another thread forked: no run can be split
    heap_layer::in_thread([&] {
        for (char *&other : others)
            other = filled(40 * kKiB);
        block = static_cast<char *>(heap_resize(block, 40 * kKiB));
    });
    pages_thaw();
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(holds(block, 40 * kKiB));
    free_fast(block);
    for (char *other : others) {
        EXPECT_TRUE(holds(other, 40 * kKiB)) << "overwritten";
        free_fast(other);
    }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST(Resize, UsableBytesAreUsable)
{
    std::vector<std::pair<char *, size_t>> blocks;
    for (size_t size = 0; size < 3 * kMiB; size = size * 5 / 4 + 1) {
        char *block = static_cast<char *>(allocate(size));
        const size_t usable = heap_usable_size(block);
        EXPECT_GE(usable, size);
        memset(block, static_cast<int>(blocks.size()), usable);
        blocks.emplace_back(block, usable);
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        const auto [block, usable] = blocks[i];
        for (size_t at = 0; at < usable; at++)
            ASSERT_EQ(block[at], static_cast<char>(i)) << "another block wrote here";
        free_fast(block);
    }
}

TEST(Resize, TheUsableSizeIsTheSameInEveryThread)
{
    for (size_t size : {size_t{1}, size_t{40}, size_t{2000}, 100 * kKiB, 33 * kMiB}) {
        void *block = allocate(size);
        const size_t usable = heap_usable_size(block);
        size_t seen = 0;
        void *theirs = nullptr;
        std::thread other([&] {
            seen = heap_usable_size(block);
            theirs = allocate(size);
        });
        other.join();
        EXPECT_EQ(seen, usable) << size;
        EXPECT_EQ(heap_usable_size(theirs), usable) << "for a block of an ended thread";
        free_fast(theirs);
        free_fast(block);
    }
    EXPECT_EQ(heap_usable_size(nullptr), 0u);
}

TEST(Resize, SizedFreeTakesEverySizeThatWasAskedFor)
{
    for (size_t size = 0; size < 40 * kMiB; size = size * 9 / 8 + 1)
        heap_free_sized(allocate(size), size, 1);
    for (size_t alignment = 8; alignment <= 8 * kMiB; alignment *= 2)
        for (size_t size : {size_t{0}, size_t{1}, size_t{300}, 20 * kKiB, 70 * kKiB})
            heap_free_sized(heap_allocate_aligned(size, alignment), size, alignment);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

TEST(Resize, SizedFreeAfterResize)
{
    for (size_t size :
         {size_t{10}, size_t{2000}, 100 * kKiB, 5 * kMiB, 40 * kMiB, 4 * kMiB, 33 * kKiB}) {
        void *block = heap_resize(filled(100 * kKiB), size);
        ASSERT_NE(block, nullptr);
        heap_free_sized(block, size, 1);
        block = heap_resize(filled(40 * kMiB), size);
        ASSERT_NE(block, nullptr);
        heap_free_sized(block, size, 1);
    }
}

TEST(Resize, SizedFreeOfAnAlignedBlockAfterResize)
{
    for (size_t alignment = 8; alignment <= 16 * kMiB; alignment *= 2)
        for (size_t before : {size_t{1}, size_t{6000}, 12 * kKiB, 20 * kKiB, 100 * kKiB})
            for (size_t size = 1; size < 200 * kKiB; size = size * 9 / 8 + 1)
                heap_free_sized(heap_resize(heap_allocate_aligned(before, alignment), size), size,
                                1);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

// Misuse.

TEST(ResizeDeathTest, FreedAndInteriorAndForeignPointers)
{
    char *block = filled(40);
    const auto resize_freed = [&] {
        free_fast(block);
        (void)heap_resize(block, 100);
    };
    EXPECT_EXIT(resize_freed(), testing::KilledBySignal(SIGABRT),
                "^cairn: realloc of freed block 0x[0-9a-f]+ \\(48-byte block\\)\n$");
    EXPECT_EXIT((void)heap_resize(block + 4, 100), testing::KilledBySignal(SIGABRT),
                "^cairn: realloc of interior pointer 0x[0-9a-f]+ \\(48-byte block at 0x");
    int local = 0;
    EXPECT_EXIT((void)heap_resize(&local, 100), testing::KilledBySignal(SIGABRT),
                "^cairn: realloc of 0x[0-9a-f]+, which is not a Cairn block\n$");
    EXPECT_EXIT((void)heap_usable_size(block + 4), testing::KilledBySignal(SIGABRT),
                "^cairn: malloc_usable_size of interior pointer");
    free_fast(block);
}

// A query of a size is checked as well, although the answer needs no call.
TEST(ResizeDeathTest, NothingButALiveBlockHasASize)
{
    for (size_t size : {size_t{40}, size_t{2000}, 100 * kKiB}) {
        char *block = filled(size);
        const auto ask_freed = [&] {
            free_fast(block);
            (void)heap_usable_size(block);
        };
        const auto ask_freed_of_other = [&] {
            std::thread other([&] { ask_freed(); });
            other.join();
        };
        const auto resize_freed = [&] {
            free_fast(block);
            (void)heap_resize(block, size);
        };
        EXPECT_EXIT(ask_freed(), testing::KilledBySignal(SIGABRT),
                    "^cairn: malloc_usable_size of freed block 0x");
        EXPECT_EXIT(ask_freed_of_other(), testing::KilledBySignal(SIGABRT),
                    "^cairn: malloc_usable_size of freed block 0x");
        EXPECT_EXIT(resize_freed(), testing::KilledBySignal(SIGABRT),
                    "^cairn: realloc of freed block 0x");
        EXPECT_EXIT((void)heap_usable_size(block + 1), testing::KilledBySignal(SIGABRT),
                    "^cairn: malloc_usable_size of ");
        EXPECT_EXIT((void)heap_resize(block + 1, size), testing::KilledBySignal(SIGABRT),
                    "^cairn: realloc of ");
        free_fast(block);
    }
}

TEST(ResizeDeathTest, SizedFreeWithAWrongSize)
{
    for (size_t size : {size_t{40}, 3 * kKiB, 100 * kKiB, 33 * kMiB}) {
        void *block = allocate(size);
        for (size_t wrong : {size / 2, size * 2, size_t{0}})
            EXPECT_EXIT(heap_free_sized(block, wrong, 1), testing::KilledBySignal(SIGABRT),
                        "^cairn: sized free of 0x[0-9a-f]+ with size " + std::to_string(wrong) +
                            " \\([0-9]+-byte block\\)\n$")
                << size;
        free_fast(block);
    }
}

// Hardened builds know the exact size of a block in a slab, full ones also that of a large block.
TEST(ResizeDeathTest, HardenedSizedFreeWithASizeOfTheSameClass)
{
    if (!config_canaries)
        GTEST_SKIP() << "only the class is known";
    for (size_t size : {size_t{40}, size_t{20000}, 100 * kKiB, 33 * kMiB})
        for (size_t alignment : {size_t{1}, size_t{64}, 64 * kKiB}) {
            void *block = heap_allocate_aligned(size, alignment);
            const bool known = span_is_slab(span_of(block)) || config_guarded_blocks;
            for (size_t wrong : {size - 10, size - 1, size + 1})
                if (known) {
                    EXPECT_EXIT(heap_free_sized(block, wrong, alignment),
                                testing::KilledBySignal(SIGABRT),
                                "^cairn: sized free of 0x[0-9a-f]+ with size " +
                                    std::to_string(wrong) + " \\([0-9]+-byte block\\)\n$")
                        << size << ", " << alignment;
                }
            heap_free_sized(block, size, alignment);
        }
}

TEST(Resize, SizedFreeOfAResizedBlock)
{
    for (size_t size : {size_t{100}, 20 * kKiB, 100 * kKiB, 5 * kMiB, 40 * kMiB}) {
        void *block = allocate(size);
        for (size_t now : {size - 3, size + 2, size * 2, size}) {
            block = heap_resize(block, now);
            ASSERT_NE(block, nullptr);
        }
        heap_free_sized(block, size, 1);
    }
}

TEST(ResizeDeathTest, SizedFreeTwice)
{
    void *block = allocate(40);
    const auto twice = [&] {
        heap_free_sized(block, 40, 1);
        heap_free_sized(block, 40, 1);
    };
    EXPECT_EXIT(twice(), testing::KilledBySignal(SIGABRT), "double free of");
    free_fast(block);
}

} // namespace resize_test
