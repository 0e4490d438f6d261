// Headers and what they keep.

#include <gtest/gtest.h>

#include "page/page_layer.h"

namespace
{

class Header : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        ASSERT_TRUE(lock_acquire(&pages_state.lock));
        lock_release(&pages_state.lock);
    }
};

TEST_F(Header, EachHasItsLineAndItsColdArea)
{
    for (unsigned units = 0; units < COLD_KINDS; units++) {
        struct span *span = header_make(units);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span) % 64, 0u);
        EXPECT_EQ(span->cold_64, units);
        EXPECT_EQ(span->tag, SPAN_NONE);
        EXPECT_EQ(span->owner, 0u);
        char *behind = reinterpret_cast<char *>(span + 1);
        EXPECT_TRUE(page_layer::reads(behind, units * 64, 0));
        memset(behind, 0xff, units * 64);
    }
}

TEST_F(Header, AreRecycledByTheSizeOfTheirColdArea)
{
    struct span *small = header_make(2);
    struct span *large = header_make(6);
    ASSERT_TRUE(lock_acquire(&pages_state.lock));
    header_push(small);
    header_push(large);
    EXPECT_EQ(header_pop(6), large);
    EXPECT_EQ(header_pop(2), small);
    EXPECT_EQ(header_pop(6), nullptr);
    lock_release(&pages_state.lock);
}

} // namespace
