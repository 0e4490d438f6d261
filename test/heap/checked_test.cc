// From a pointer to the block that it is.

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;

TEST(Checked, ABlockInUseHasItsSlotAndSpan)
{
    for (size_t size : {size_t{24}, 3 * kKiB, 100 * kKiB, 64 * kMiB}) {
        void *block = allocate(size);
        struct span *span = checked_span(block, "realloc");
        EXPECT_EQ(span, span_of(block));
        if (span_is_slab(span)) {
            EXPECT_EQ(slab_block(span, checked_slot(block, span, "realloc")), block);
        }
        free_fast(block);
    }
}

TEST(CheckedDeathTest, WhatIsNoBlockInUseIsTold)
{
    for (size_t size : {size_t{24}, 3 * kKiB, 100 * kKiB}) {
        char *block = static_cast<char *>(allocate(size));
        EXPECT_DEATH((void)checked_span(block + 1, "realloc"), "realloc of interior pointer");
        EXPECT_DEATH((void)checked_span(&size, "realloc"), "which is not a Cairn block");
        free_fast(block);
        EXPECT_DEATH((void)checked_span(block, "realloc"), "realloc of freed block");
    }
}

} // namespace
