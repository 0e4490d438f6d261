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
    EXPECT_LT(rising, 1200u);
    for (char *block : blocks)
        free_fast(block);
}

// What is made together lies together, but nobody knows where.
TEST_F(Harden, SlotsOfAPageComeTogether)
{
    const unsigned size_class = small_class(64);
    struct span *slab = slab_make(heap_, size_class);
    ASSERT_NE(slab, nullptr);
    const unsigned a_page = PAGE_BYTES / 64;
    std::set<uintptr_t> pages;
    unsigned in_order = 0;
    unsigned seen = 0;
    uintptr_t page = 0;
    for (unsigned slot = slab->head; slot != LINK_END; slot = *slab_link(slab, slot), seen++) {
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
