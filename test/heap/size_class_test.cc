// Size classes: the mapping from sizes, the slabs' shapes, and the arithmetic that finds a slot.

#include <gtest/gtest.h>

#include <vector>

extern "C" {
#include "heap/size_class.h"
#include "heap/slab.h"
}

namespace
{

class SizeClass : public testing::Test
{
  protected:
    static void SetUpTestSuite() { size_classes_init(); }
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
    EXPECT_EQ(size_classes[SMALL_CLASSES - 1].size_bytes, unsigned{SMALL_MAX});
    EXPECT_EQ(size_classes[SIZED_CLASSES - 1].size_bytes, unsigned{MEDIUM_MAX});
}

TEST_F(SizeClass, VoidSlotsHaveEveryAlignmentUpToAPage)
{
    if (!config_void_blocks)
        GTEST_SKIP() << "full builds only";
    EXPECT_EQ(size_classes[VOID_CLASS].size_bytes, unsigned{PAGE_BYTES});
    EXPECT_EQ(size_classes[VOID_CLASS].capacity, unsigned{CAPACITY_MAX});
    EXPECT_NE(class_of_size(PAGE_BYTES), unsigned{VOID_CLASS});
}

TEST_F(SizeClass, EverySizeHasTheSmallestClassThatHoldsIt)
{
    unsigned smallest = 0;
    for (size_t size = 0; size <= MEDIUM_MAX; size++) {
        while (size_classes[smallest].size_bytes < size)
            smallest++;
        ASSERT_EQ(class_of_size(size), smallest) << size;
    }
}

TEST_F(SizeClass, WasteIsBounded)
{
    for (size_t size = 129; size <= MEDIUM_MAX; size++) {
        const size_t rounded = size_classes[class_of_size(size)].size_bytes;
        ASSERT_LE((rounded - size) * 8, rounded) << size;
    }
}

TEST_F(SizeClass, SlabsHoldWhatTheirShapeSays)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        const struct size_class &shape = size_classes[i];
        EXPECT_GE(shape.capacity, shape.size_bytes > MEDIUM_MOST ? 7 : 8);
        EXPECT_TRUE(shape.pages <= SLAB_PAGES_MOST || class_is_void(i));
        EXPECT_LE(shape.capacity, CAPACITY_MAX);
        EXPECT_LE(size_t{shape.capacity} * shape.size_bytes, size_t{shape.pages} << PAGE_SHIFT);
        EXPECT_GE(size_t{shape.cold_64} * 64,
                  size_t{LINKS_AT} + shape.capacity + 1 + SLAB_REMOTE_BYTES);
        EXPECT_LT(shape.cold_64, COLD_KINDS);
        const size_t wasted =
            (size_t{shape.pages} << PAGE_SHIFT) - shape.capacity * shape.size_bytes;
        EXPECT_LT(wasted, size_t{PAGE_BYTES}) << "each page has a part of a block: bound.h";
        EXPECT_LE(wasted * 8, size_t{shape.pages} << PAGE_SHIFT) << shape.size_bytes;
    }
}

TEST_F(SizeClass, AlignedSizesGetAClassWithThatAlignment)
{
    for (size_t alignment = 1; alignment <= PAGE_BYTES; alignment *= 2) {
        for (size_t size = 0; size <= MEDIUM_MAX; size += 1 + size / 100) {
            const unsigned i = class_of_aligned(size, alignment);
            if (i == CLASS_COUNT) {
                ASSERT_GT(size + alignment, size_t{MEDIUM_MAX}) << size << " at " << alignment;
                continue;
            }
            ASSERT_GE(size_classes[i].size_bytes, size);
            ASSERT_EQ(size_classes[i].size_bytes % alignment, 0u) << size << " at " << alignment;
        }
    }
    EXPECT_EQ(class_of_aligned(1, 2 * PAGE_BYTES), unsigned{CLASS_COUNT});
    EXPECT_EQ(class_of_aligned(MEDIUM_MAX + 1, 1), unsigned{CLASS_COUNT});
    EXPECT_EQ(class_of_aligned(SIZE_MAX, PAGE_BYTES), unsigned{CLASS_COUNT});
}

// Every class, every byte of a slab and a good deal around it.
TEST_F(SizeClass, TheSlotFormulaIsExactForEveryOffset)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        const struct size_class &shape = size_classes[i];
        const uintptr_t start = 0x7f1234560000;
        struct span slab = {};
        slab.base = reinterpret_cast<char *>(start - shape.size_bytes);
        slab.inverse = shape.inverse;
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
                ASSERT_EQ(slot, 0u) << "the slot that is none";
            else
                ASSERT_GT(slot, uint64_t{CAPACITY_MAX} + 1) << shape.size_bytes << " before start";
        }
    }
}

} // namespace
