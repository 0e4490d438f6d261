// The limits as they are set: each alone, and all at once.

#include <gtest/gtest.h>

#include "page/page_layer.h"

namespace
{

TEST(PageLimits, ByDefaultALargeHeapMayAskForHugePages)
{
    page_limits read;
    pages_read_limits(&read);
    EXPECT_EQ(read.huge_pages, HUGE_PAGES_AUTO);
}

TEST(PageLimits, WhatIsSetIsRead)
{
    page_layer::start();
    page_limits before;
    pages_read_limits(&before);
    page_limits limits = before;
    limits.decay_ms = 4711;
    limits.dirty_cap_bytes = 3 * page_layer::kMiB;
    limits.soft_limit_bytes = 1000 * page_layer::kMiB;
    limits.hard_limit_bytes = 2000 * page_layer::kMiB;
    pages_configure(&limits);
    page_limits read;
    pages_read_limits(&read);
    EXPECT_EQ(read.decay_ms, limits.decay_ms);
    EXPECT_EQ(read.dirty_cap_bytes, limits.dirty_cap_bytes);
    EXPECT_EQ(read.soft_limit_bytes, limits.soft_limit_bytes);
    EXPECT_EQ(read.hard_limit_bytes, limits.hard_limit_bytes);
    EXPECT_EQ(read.huge_pages, before.huge_pages);

    pages_limit_soft(0);
    pages_limit_hard(3000 * page_layer::kMiB);
    pages_read_limits(&read);
    EXPECT_EQ(read.soft_limit_bytes, 0u);
    EXPECT_EQ(read.hard_limit_bytes, 3000 * page_layer::kMiB);
    EXPECT_EQ(read.decay_ms, limits.decay_ms) << "these alone";
    pages_configure(&before);
}

} // namespace
