// Hardened blocks: exact sizes, random order, blocks of 0 bytes.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "heap/harden_layer.h"

extern "C" {
#include "heap/slab_make.h"
}

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::span_of;

class Harden : public heap_layer::HardenedHeap
{
};

TEST_F(Harden, TheExactSizeIsKnownForEverySize)
{
    for (size_t size = config_void_blocks; size <= MEDIUM_MOST; size += 1 + size / 200) {
        char *block = static_cast<char *>(allocate(size));
        ASSERT_EQ(harden_size(span_of(block), block), size);
        memset(block, 0xff, size);
        ASSERT_EQ(harden_size(span_of(block), block), size) << "in use";
        free_fast(block);
    }
    heap_layer::verify();
}

TEST_F(Harden, ResizingInPlaceMovesTheCanaries)
{
    char *block = static_cast<char *>(allocate(200));
    for (size_t size : {size_t{190}, size_t{200}, size_t{186}}) {
        ASSERT_EQ(heap_resize(block, size), block);
        EXPECT_EQ(heap_usable_size(block), size);
        memset(block, 1, size);
    }
    free_fast(block);
}

TEST_F(Harden, SlotsComeInRandomOrder)
{
    size_t rising = 0;
    std::vector<char *> blocks;
    for (int i = 0; i < 2000; i++) {
        blocks.push_back(static_cast<char *>(allocate(100)));
        rising += i > 0 && blocks[i] > blocks[i - 1];
    }
    EXPECT_GT(rising, 800u);
    EXPECT_LT(rising, config_random_pages ? 1200u : 1300u); // groups of neighbours rise
    for (char *block : blocks)
        free_fast(block);
}

// With the room for its canary, too.
TEST_F(Harden, ABlockOf32KiBIsOfASlab)
{
    char *block = static_cast<char *>(allocate(32 * kKiB));
    ASSERT_TRUE(span_is_slab(span_of(block)));
    EXPECT_EQ(heap_usable_size(block), 32 * kKiB);
    EXPECT_EQ(heap_good_size(32 * kKiB), 32 * kKiB) << "what is larger is no slab's";
    memset(block, 1, 32 * kKiB);
    heap_free_sized(block, 32 * kKiB, 1);
    block = static_cast<char *>(heap_allocate_aligned(32 * kKiB, PAGE_BYTES));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % PAGE_BYTES, 0u);
    heap_free_sized(block, 32 * kKiB, PAGE_BYTES);
    block = static_cast<char *>(allocate(32 * kKiB + 1));
    EXPECT_FALSE(span_is_slab(span_of(block)));
    free_fast(block);
    heap_layer::verify();
}

// A program that walks over what it made meets it by the cache line, nearly in order.
TEST_F(Harden, InLightBuildsNeighboursComeTogether)
{
    if (config_random_pages)
        GTEST_SKIP() << "light builds only";
    constexpr unsigned kNeighbours = 8;
    std::set<unsigned> starts;
    unsigned in_order = 0;
    unsigned seen = 0;
    for (int round = 0; round < 20; round++) {
        struct span *slab = slab_make(heap_, small_class(64));
        ASSERT_NE(slab, nullptr);
        ASSERT_EQ(slab->capacity % kNeighbours, 0);
        const unsigned groups = slab->capacity / kNeighbours;
        const unsigned start = (slab_own(slab)->head - 1) / kNeighbours;
        starts.insert(start);
        std::set<unsigned> slots;
        for (unsigned slot = slab_own(slab)->head, i = 0; slot != LINK_END;
             slot = *slab_link(slab, slot), i++, seen++) {
            EXPECT_TRUE(slots.insert(slot).second);
            EXPECT_EQ((slot - 1) / kNeighbours, (start + i / kNeighbours) % groups);
            in_order += *slab_link(slab, slot) == slot + 1;
        }
        EXPECT_EQ(slots.size(), slab->capacity);
        slab_retire(slab);
    }
    EXPECT_GT(starts.size(), 5u);
    EXPECT_LT(in_order, seen / 5) << "one of eight";
    EXPECT_GT(in_order, seen / 15);
}

TEST_F(Harden, LongSlotsComeInRandomOrderByThirtyTwo)
{
    unsigned in_order = 0;
    unsigned seen = 0;
    for (int round = 0; round < 20; round++) {
        struct span *slab = slab_make(heap_, small_class(SMALL_MAX));
        ASSERT_NE(slab, nullptr);
        for (unsigned slot = slab_own(slab)->head; slot != LINK_END;
             slot = *slab_link(slab, slot), seen++)
            in_order += *slab_link(slab, slot) == slot + 1;
        slab_retire(slab);
    }
    EXPECT_LT(in_order, seen / 16) << "one of 32";
}

// What is made together lies together, but nobody knows where.
TEST_F(Harden, SlotsOfAPageComeTogether)
{
    if (!config_random_pages)
        GTEST_SKIP() << "full builds only";
    const unsigned size_class = small_class(64);
    struct span *slab = slab_make(heap_, size_class);
    ASSERT_NE(slab, nullptr);
    const unsigned a_page = PAGE_BYTES / 64;
    std::set<uintptr_t> pages;
    unsigned in_order = 0;
    unsigned seen = 0;
    uintptr_t page = 0;
    for (unsigned slot = slab_own(slab)->head; slot != LINK_END;
         slot = *slab_link(slab, slot), seen++) {
        const auto at = reinterpret_cast<uintptr_t>(slab_block(slab, slot)) / PAGE_BYTES;
        if (at != page) {
            EXPECT_TRUE(pages.insert(at).second) << "each page once";
            page = at;
        }
        in_order += *slab_link(slab, slot) == slot + 1;
    }
    EXPECT_EQ(seen, slab->capacity);
    EXPECT_EQ(pages.size(), (slab->capacity + a_page - 1) / a_page);
    EXPECT_LT(in_order, slab->capacity / 4);
    slab_retire(slab);
}

class VoidBlocks : public Harden
{
  protected:
    void SetUp() override
    {
        Harden::SetUp();
        if (!config_void_blocks)
            GTEST_SKIP() << "full builds only";
    }
};

TEST_F(VoidBlocks, EveryFormOfZeroBytesIsOne)
{
    std::vector<void *> blocks = {allocate(0), heap_allocate_zeroed(0)};
    for (size_t alignment = 1; alignment <= PAGE_BYTES; alignment *= 2) {
        blocks.push_back(heap_allocate_aligned(0, alignment));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % alignment, 0u);
    }
    EXPECT_EQ(std::set<void *>(blocks.begin(), blocks.end()).size(), blocks.size());
    EXPECT_EQ(heap_layer::stats().live_blocks, blocks.size());
    EXPECT_EQ(heap_layer::stats().live_bytes, 0u);
    for (void *block : blocks) {
        EXPECT_TRUE(slab_is_void(span_of(block)));
        EXPECT_EQ(heap_usable_size(block), 0u);
        heap_free_sized(block, 0, 16);
    }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

TEST_F(VoidBlocks, AreNotHandedOutTwice)
{
    std::set<void *> blocks;
    for (int i = 0; i < 5000; i++)
        EXPECT_TRUE(blocks.insert(allocate(0)).second);
    heap_layer::verify();
    size_t count = 0;
    for (void *block : blocks) {
        if (count++ % 2)
            free_fast(block);
        else
            in_thread([block] { free_fast(block); });
    }
    heap_trim(heap_);
    heap_layer::verify();
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    EXPECT_EQ(heap_layer::stats().slab_bytes, 0u);
}

// One that comes and goes alone does not cost a mapping each time.
TEST_F(VoidBlocks, TheLastSlabIsKept)
{
    void *block = allocate(0);
    struct span *slab = span_of(block);
    free_fast(block);
    quarantine_flush(heap_);
    block = allocate(0);
    EXPECT_EQ(span_of(block), slab);
    free_fast(block);
}

TEST_F(VoidBlocks, Resize)
{
    void *block = heap_resize(allocate(0), 100);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(heap_usable_size(block), 100u);
    free_fast(block);
    block = heap_resize(allocate(0), 100 * kKiB);
    ASSERT_NE(block, nullptr);
    free_fast(block);
}

TEST_F(VoidBlocks, ServedOtherwiseWhenThereAreTooMany)
{
    std::vector<void *> blocks;
    while (blocks.empty() || slab_is_void(span_of(blocks.back()))) {
        blocks.push_back(allocate(0));
        ASSERT_NE(blocks.back(), nullptr);
        ASSERT_LE(blocks.size(), 1000000u);
    }
    EXPECT_GE(blocks.size(), 200000u);
    EXPECT_EQ(heap_usable_size(blocks.back()), 0u);
    heap_free_sized(blocks.back(), 0, 1);
    blocks.pop_back();
    for (void *block : blocks)
        free_fast(block);
    heap_trim(heap_);
    EXPECT_TRUE(slab_is_void(span_of(blocks[0] = allocate(0))));
    free_fast(blocks[0]);
    heap_layer::verify();
}

TEST_F(VoidBlocks, SamplingLeavesThemAlone)
{
    heap_arm(heap_, 0);
    heap_disarm(heap_);
    void *block = allocate(0);
    EXPECT_TRUE(slab_is_void(span_of(block)));
    free_fast(block);
}

} // namespace
