// Fixtures of the tests of hardened blocks.
#pragma once

#include "heap/heap_layer.h"

extern "C" {
#include "heap/harden.h"
}

namespace heap_layer
{

class HardenedHeap : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!config_hardened)
            GTEST_SKIP() << "this build has no hardening";
        heap_ = own_heap();
    }

    struct heap *heap_ = nullptr;
};

} // namespace heap_layer
