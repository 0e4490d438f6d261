// Which requests are packed, and from which slab.

#include <set>
#include <vector>

#include "heap/packed_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::span_of;

using heap_layer::is_packed;
using heap_layer::kSlabBlocks;

class PackedTake : public heap_layer::PackingHeap
{
};

TEST_F(PackedTake, BeginsWithManySmallestBlocks)
{
    if (before_.size() < 2)
        GTEST_SKIP() << "only as the first test of a process";
    EXPECT_GE(heap_->smallest_slabs, unsigned{PACKED_FROM_SLABS});
    EXPECT_FALSE(is_packed(before_[before_.size() - 2]));
    in_thread([] {
        void *block = allocate(8);
        EXPECT_FALSE(is_packed(block)) << "every heap for itself";
        free_fast(block);
    });
}

TEST_F(PackedTake, ServesUpToEightBytes)
{
    for (size_t size = 0; size <= 16; size++) {
        void *block = allocate(size);
        EXPECT_EQ(is_packed(block), size <= 8) << size;
        EXPECT_EQ(heap_usable_size(block), size <= 8 ? 8u : 16u);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % (size <= 8 ? 8 : 16), 0u);
        memset(block, 0xff, heap_usable_size(block));
        free_fast(block);
    }
}

bool keep_none(void *, size_t, size_t) { return false; }
void forget(void *) {}
const struct heap_profiler kProfiler = {keep_none, forget, [](void *, void *) {}};

TEST_F(PackedTake, GoesOnWhenTheProfilerIsDone)
{
    heap_profile_start(&kProfiler, 1, 1);
    for (int i = 0; i < 10; i++) {
        void *block = allocate(8);
        EXPECT_FALSE(is_packed(block));
        free_fast(block);
    }
    heap_profile_stop();
    free_fast(allocate(16)); // the heap follows
    for (size_t size = 0; size <= 16; size++) {
        void *block = allocate(size);
        EXPECT_EQ(is_packed(block), size <= 8) << size;
        free_fast(block);
    }
}

TEST_F(PackedTake, NeverForMoreThanEightBytesOfAlignment)
{
    for (size_t alignment : {1, 2, 8, 16, 32, 4096}) {
        void *block = heap_allocate_aligned(8, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
        EXPECT_EQ(is_packed(block), alignment <= 8) << alignment;
        heap_free_sized(block, 8, alignment);
    }
}

TEST_F(PackedTake, ZeroedBlocksAreZero)
{
    const std::vector<void *> blocks = take(200);
    for (void *block : blocks)
        memset(block, 0xee, 8);
    give(blocks);
    std::vector<void *> zeroed;
    for (int i = 0; i < 200; i++) {
        zeroed.push_back(heap_allocate_zeroed(8));
        EXPECT_EQ(*static_cast<uint64_t *>(zeroed.back()), 0u);
    }
    give(zeroed);
}

TEST_F(PackedTake, ResizesInPlaceUpToEightBytes)
{
    char *block = static_cast<char *>(allocate(3));
    memcpy(block, "ab", 3);
    EXPECT_EQ(heap_resize(block, 8), block);
    char *larger = static_cast<char *>(heap_resize(block, 9));
    EXPECT_FALSE(is_packed(larger));
    EXPECT_STREQ(larger, "ab");
    char *smaller = static_cast<char *>(heap_resize(larger, 1));
    ASSERT_NE(smaller, nullptr);
    EXPECT_EQ(*smaller, 'a');
    free_fast(smaller);
}

// A full slab is gone back to when several words have free blocks, whoever freed them.
TEST_F(PackedTake, AFullSlabServesAgain)
{
    for (bool remote : {false, true}) {
        std::vector<void *> blocks = take(4 * kSlabBlocks);
        struct span *slab = span_of(blocks[kSlabBlocks]);
        ASSERT_TRUE(slab_is_waiting(slab));
        std::set<void *> freed;
        for (void *&block : blocks)
            if (span_of(block) == slab && slab->limit == PACKED_WORDS &&
                reinterpret_cast<uintptr_t>(block) % 512 == 0)
                freed.insert(std::exchange(block, nullptr));
        ASSERT_EQ(freed.size(), size_t{PACKED_WORDS}) << "one of each word";
        const auto free_them = [&] { give({freed.begin(), freed.end()}); };
        if (remote)
            in_thread(free_them);
        else
            free_them();
        size_t again = 0;
        std::vector<void *> more = take(kSlabBlocks + PACKED_WORDS);
        for (void *block : more)
            again += freed.count(block);
        EXPECT_EQ(again, size_t{PACKED_WORDS});
        give(blocks);
        give(more);
        heap_trim(heap_);
    }
}

} // namespace
