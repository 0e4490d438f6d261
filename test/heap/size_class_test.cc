// Size classes: the mapping from sizes, the shapes of slabs, and the arithmetic that finds a slot.

#include <gtest/gtest.h>

#include <vector>

extern "C" {
#include "heap/lifecycle.h"
#include "heap/size_class.h"
#include "heap/slab.h"
}

namespace size_class_test
{

class SizeClass : public testing::Test
{
  protected:
    static void SetUpTestSuite() { heap_start(); }
};

TEST_F(SizeClass, SizesRiseAndAreMultiplesOf16)
{
    for (unsigned i = 0; i < SIZED_CLASSES; i++) {
        EXPECT_EQ(size_classes[i].size_bytes % 16, 0u);
        if (i > 0) {
            EXPECT_GT(size_classes[i].size_bytes, size_classes[i - 1].size_bytes);
        }
    }
    EXPECT_EQ(size_classes[0].size_bytes, 16u);
    EXPECT_EQ(size_classes[SMALL_CLASSES - 1].size_bytes, unsigned{SMALL_BLOCK_MAX});
    EXPECT_EQ(size_classes[SIZED_CLASSES - 1].size_bytes, unsigned{MEDIUM_BLOCK_MAX});
}

TEST_F(SizeClass, VoidSlotsHaveEveryAlignmentUpToAPage)
{
    if (!config_zero_size_blocks)
        GTEST_SKIP() << "full builds only";
    EXPECT_EQ(size_classes[ZERO_SIZE_CLASS].size_bytes, unsigned{PAGE_BYTES});
    EXPECT_EQ(size_classes[ZERO_SIZE_CLASS].capacity, unsigned{CAPACITY_MAX});
    EXPECT_NE(class_of_size(PAGE_BYTES), unsigned{ZERO_SIZE_CLASS});
}

TEST_F(SizeClass, EverySizeHasTheSmallestClassThatHoldsIt)
{
    unsigned smallest = 0;
    for (size_t size = 0; size <= MEDIUM_BLOCK_MAX; size++) {
        while (size_classes[smallest].size_bytes < size)
            smallest++;
        ASSERT_EQ(class_of_size(size), smallest) << size;
    }
}

TEST_F(SizeClass, WasteIsBounded)
{
    for (size_t size = 129; size <= MEDIUM_BLOCK_MAX; size++) {
        const size_t rounded = size_classes[class_of_size(size)].size_bytes;
        ASSERT_LE((rounded - size) * 8, rounded) << size;
    }
}

TEST_F(SizeClass, SlabsHoldWhatTheirShapeSays)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        const struct slab_shape &shape = size_classes[i];
        EXPECT_GE(shape.capacity, shape.size_bytes > MEDIUM_REQUEST_MAX ? 7 : 8);
        EXPECT_TRUE(shape.pages <= SLAB_PAGES_MAX || class_is_zero_size(i));
        EXPECT_LE(shape.capacity, CAPACITY_MAX);
        const size_t slot_bytes = class_is_packed(i) ? size_t{PACKED_SLOT_BYTES} : shape.size_bytes;
        const size_t link_bytes = class_is_packed(i) ? 8 : 1;
        EXPECT_LE(shape.capacity * slot_bytes, size_t{shape.pages} << PAGE_SHIFT);
        EXPECT_GE(size_t{shape.side_units} * 64,
                  LINKS_AT + 1 + shape.capacity * link_bytes + SLAB_COLD_BYTES);
        EXPECT_LT(shape.side_units, SIDE_UNIT_KINDS);
        // Only packed slabs have headers with a cold area of their size: see packed.c.
        EXPECT_EQ(config_packed && shape.side_units == size_classes[CLASS_COUNT - 1].side_units,
                  class_is_packed(i));
        const size_t wasted = (size_t{shape.pages} << PAGE_SHIFT) - shape.capacity * slot_bytes;
        EXPECT_LT(wasted, size_t{PAGE_BYTES}) << "each page has a part of a block: see limits.h";
        const size_t part = shape.size_bytes > MEDIUM_REQUEST_MAX ? 8 : 40;
        EXPECT_LE(wasted * part, size_t{shape.pages} << PAGE_SHIFT) << shape.size_bytes;
    }
}

TEST_F(SizeClass, AlignedSizesGetAClassWithThatAlignment)
{
    for (size_t alignment = 1; alignment <= PAGE_BYTES; alignment *= 2) {
        for (size_t size = 0; size <= MEDIUM_BLOCK_MAX; size += 1 + size / 100) {
            const unsigned i = class_of_aligned(size, alignment);
            if (i == CLASS_COUNT) {
                ASSERT_GT(size + alignment, size_t{MEDIUM_BLOCK_MAX})
                    << size << " at " << alignment;
                continue;
            }
            ASSERT_GE(size_classes[i].size_bytes, size);
            ASSERT_EQ(size_classes[i].size_bytes % alignment, 0u) << size << " at " << alignment;
        }
    }
    for (size_t alignment = 2 * PAGE_BYTES; alignment <= size_t{64} << 10; alignment *= 2) {
        const bool in_slab = !config_hardened && alignment <= MEDIUM_REQUEST_MAX;
        const size_t fewer_pages = alignment - PAGE_BYTES;
        EXPECT_EQ(class_of_aligned(fewer_pages, alignment), unsigned{CLASS_COUNT}) << alignment;
        EXPECT_EQ(class_of_aligned(fewer_pages + 1, alignment),
                  in_slab ? class_of_size(alignment) : unsigned{CLASS_COUNT})
            << alignment;
    }
    EXPECT_EQ(class_of_aligned(MEDIUM_BLOCK_MAX + 1, 1), unsigned{CLASS_COUNT});
    EXPECT_EQ(class_of_aligned(SIZE_MAX, PAGE_BYTES), unsigned{CLASS_COUNT});
}

// Every class, with every byte of a slab and many addresses around it.
TEST_F(SizeClass, TheSlotFormulaIsExactForEveryOffset)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        const struct slab_shape &shape = size_classes[i];
        const uintptr_t start = 0x7f1234560000;
        struct span slab = {};
        slab.base = reinterpret_cast<char *>(start - shape.size_bytes);
        slab.size_inverse = shape.inverse;
        const size_t bytes = size_t{shape.pages} << PAGE_SHIFT;
        for (size_t offset = 0; offset < bytes; offset++) {
            const uint64_t slot = slab_slot(&slab, reinterpret_cast<void *>(start + offset));
            if (offset % shape.size_bytes == 0)
                ASSERT_EQ(slot, offset / shape.size_bytes + 1);
            else
                ASSERT_GT(slot, uint64_t{CAPACITY_MAX} + 1) << shape.size_bytes << " at " << offset;
        }
        for (size_t before = 1; before <= 4 * PAGE_BYTES; before++) {
            const uint64_t slot = slab_slot(&slab, reinterpret_cast<void *>(start - before));
            if (before == shape.size_bytes)
                ASSERT_EQ(slot, 0u) << "the number that is no slot";
            else
                ASSERT_GT(slot, uint64_t{CAPACITY_MAX} + 1) << shape.size_bytes << " before start";
        }
    }
}

} // namespace size_class_test
