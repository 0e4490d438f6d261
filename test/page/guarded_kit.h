// Fixtures of the tests of guarded and revoked blocks.
#pragma once

#include <gtest/gtest.h>

#include "page/page_layer.h"

namespace guarded_kit
{

class Blocks : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        (void)revoked_purge(SIZE_MAX);
    }

    static struct span *map(size_t size, size_t alignment = PAGE_BYTES, size_t spare = 0)
    {
        struct span *span = pages_map_guarded(size, alignment, spare);
        EXPECT_NE(span, nullptr);
        return span;
    }
    static void touch(volatile char *at) { *at = 1; }
};

} // namespace guarded_kit
