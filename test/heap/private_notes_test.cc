// Notes of large blocks of private heaps.

#include <vector>

#include "heap/private_layer.h"

namespace private_notes_test
{

using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::span_of;
using heap_layer::stats;

class PrivateNotes : public heap_layer::PrivateHeapOfTest
{
};

TEST_F(PrivateNotes, AFreedRunBelongsToNoHeap)
{
    void *block = take(40 * kKiB);
    struct span *span = span_of(block);
    EXPECT_NE(span->owner, 0u);
    free_fast(block);
    EXPECT_EQ(span->owner, 0u);
    void *next = heap_layer::allocate(40 * kKiB);
    EXPECT_EQ(span_private_heap(span_of(next)), nullptr);
    free_fast(next);
}

TEST_F(PrivateNotes, NotesOfFreedBlocksServeNewOnes)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "freed blocks keep their headers and addresses for a while";
    std::vector<void *> blocks(50);
    for (auto &block : blocks)
        block = take(40 * kKiB);
    const size_t before = load_relaxed(&meta_total_bytes);
    for (int round = 0; round < 100; round++) {
        in_thread([&] {
            for (void *block : blocks)
                free_fast(block);
        });
        for (auto &block : blocks)
            block = take(40 * kKiB);
    }
    EXPECT_LE(load_relaxed(&meta_total_bytes), before + 64 * kKiB)
        << "more than the heaps of the threads";
}

// The state that a fork may copy: another thread had taken the tag of the block and not yet left
// its note.
TEST_F(PrivateNotes, AForksChildDoesNotCountABlockThatWasJustBeingFreed)
{
    struct span *stays = span_of(take(100 * kKiB));
    struct span *going = span_of(take(60 * kKiB));
    struct span *anew = span_of(take(50 * kKiB));
    const uint8_t tag = going->tag;
    const uintptr_t owner = anew->owner;
    going->tag = SPAN_KEPT;
    anew->owner = 0; // freed, and in use by the general heap since
    EXPECT_EQ(private_heap_recount_large(private_heap_), size_t{stays->pages} << PAGE_SHIFT);
    cairn_private_heap_stats stats;
    private_heap_read_stats(private_heap_, &stats);
    EXPECT_EQ(stats.large_blocks, 1u);
    going->tag = tag;
    going->owner = 0;
    EXPECT_NE(anew->owner, owner);
    EXPECT_TRUE(large_free(going, going->base));
    EXPECT_TRUE(large_free(anew, anew->base));
    private_heap_unreserve(private_heap_, held() - (size_t{stays->pages} << PAGE_SHIFT));
}

} // namespace private_notes_test
