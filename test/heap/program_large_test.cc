// Large blocks of first-class heaps: their list, their notes, what they count for.

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::own_heap;
using heap_layer::span_of;

class ProgramLarge : public heap_layer::OwnHeap
{
  protected:
    void SetUp() override
    {
        OwnHeap::SetUp();
        const struct program_options none = {};
        program_ = program_make(&none);
        ASSERT_NE(program_, nullptr);
    }
    void TearDown() override
    {
        program_end(program_);
        OwnHeap::TearDown();
    }
    size_t held()
    {
        program_stats stats;
        program_read_stats(program_, &stats);
        return stats.held_bytes;
    }
    void *take(size_t size)
    {
        struct span *span = program_allocate_large(program_, size, PAGE_BYTES);
        return span ? span->base : nullptr;
    }

    struct program_heap *program_ = nullptr;
};

TEST_F(ProgramLarge, CountsItsPagesWhileItIsInUse)
{
    void *blocks[] = {take(33 * kKiB), take(kMiB), take(33 * kMiB), take(50 * kKiB)};
    size_t pages = 0;
    for (void *block : blocks) {
        ASSERT_NE(block, nullptr);
        pages += span_of(block)->pages;
    }
    EXPECT_EQ(held(), pages << PAGE_SHIFT);
    for (void *block : blocks)
        free_fast(block);
    EXPECT_EQ(held(), 0u);
}

// Whether what is taken is longer than what was asked for, or a run that was kept.
TEST_F(ProgramLarge, TheLimitHoldsToThePage)
{
    for (size_t size = 33 * kKiB; size < 40 * kMiB; size += size / 3 + 5) {
        program_set_limit(program_, size);
        for (int round = 0; round < 3; round++) { // freed ones are kept
            void *block = take(size);
            EXPECT_LE(held(), size) << size;
            if (block)
                free_fast(block);
            free_fast(heap_layer::allocate(size + 3 * PAGE_BYTES));
        }
        const size_t page = os_page_size();
        program_set_limit(program_, (size + page - 1) / page * page);
        void *block = take(size);
        if (!config_guarded_blocks) {
            EXPECT_NE(block, nullptr) << size;
        }
        if (block)
            free_fast(block);
        EXPECT_EQ(held(), 0u);
    }
    program_set_limit(program_, 0);
}

// A race that ThreadSanitizer would see.
TEST_F(ProgramLarge, StatisticsAreReadWhileABlockIsResized)
{
    bool stop = false;
    std::thread resizing([this, &stop] {
        own_heap();
        void *block = take(5 * kMiB);
        for (size_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++)
            block = heap_resize(block, (i % 2 == 0 ? 3 : 5) * kMiB);
        free_fast(block);
    });
    for (int i = 0; i < 2000; i++) {
        program_stats stats;
        program_read_stats(program_, &stats);
        EXPECT_LE(stats.large_blocks, 2u);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    resizing.join();
}

TEST_F(ProgramLarge, AFreedRunBelongsToNoHeap)
{
    void *block = take(40 * kKiB);
    struct span *span = span_of(block);
    EXPECT_NE(span->owner, 0u);
    free_fast(block);
    EXPECT_EQ(span->owner, 0u);
    void *next = heap_layer::allocate(40 * kKiB);
    EXPECT_EQ(span_program(span_of(next)), nullptr);
    free_fast(next);
}

TEST_F(ProgramLarge, NotesOfFreedBlocksServeNewOnes)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "freed blocks keep their headers and addresses for a while";
    std::vector<void *> blocks(50);
    for (auto &block : blocks)
        block = take(40 * kKiB);
    const size_t before = meta_bytes();
    for (int round = 0; round < 100; round++) {
        in_thread([&] {
            for (void *block : blocks)
                free_fast(block);
        });
        for (auto &block : blocks)
            block = take(40 * kKiB);
    }
    EXPECT_LE(meta_bytes(), before + 64 * kKiB) << "but for the heaps of the threads";
}

TEST_F(ProgramLarge, TheEndFreesThoseInUseAlone)
{
    std::vector<void *> blocks(30);
    for (auto &block : blocks)
        block = take(100 * kKiB);
    for (size_t i = 0; i < blocks.size(); i += 3)
        free_fast(blocks[i]);
    void *other = heap_layer::allocate(100 * kKiB); /* one of those runs, perhaps */
    program_end_large(program_);
    EXPECT_EQ(held(), 0u);
    EXPECT_NE(page_map_find(other)->tag, SPAN_KEPT);
    free_fast(other);
}

TEST_F(ProgramLarge, ARequestBeyondEverythingFails)
{
    EXPECT_EQ(take(SIZE_MAX), nullptr);
    EXPECT_EQ(take(PTRDIFF_MAX), nullptr);
    EXPECT_EQ(held(), 0u) << "and counts for nothing";
}

// What a fork may copy: another thread was between taking the block's tag and leaving its note.
TEST_F(ProgramLarge, AForksChildDoesNotCountABlockThatWasJustBeingFreed)
{
    struct span *stays = span_of(take(100 * kKiB));
    struct span *going = span_of(take(60 * kKiB));
    struct span *anew = span_of(take(50 * kKiB));
    const uint8_t tag = going->tag;
    const uintptr_t owner = anew->owner;
    going->tag = SPAN_KEPT;
    anew->owner = 0; // freed, and the general heap's by now
    EXPECT_EQ(program_recount_large(program_), size_t{stays->pages} << PAGE_SHIFT);
    program_stats stats;
    program_read_stats(program_, &stats);
    EXPECT_EQ(stats.large_blocks, 1u);
    going->tag = tag;
    going->owner = 0;
    EXPECT_NE(anew->owner, owner);
    EXPECT_TRUE(large_free(going));
    EXPECT_TRUE(large_free(anew));
    program_unreserve(program_, held() - (size_t{stays->pages} << PAGE_SHIFT));
}

} // namespace
