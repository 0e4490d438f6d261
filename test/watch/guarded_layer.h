// Helpers of the tests of guarded blocks.
#pragma once

#include <gtest/gtest.h>
#include <string.h>

extern "C" {
#include "heap/heap.h"
#include "watch/guards.h"
#include "watch/watch.h"
}

namespace guarded_layer
{

inline struct guarded_slot *slot_of(const void *block)
{
    return reinterpret_cast<struct guarded_slot *>(page_map_find(block));
}

inline void give_back(void *block) { guarded_free(block, page_map_find(block)); }

inline bool stands_right(const void *block, size_t size)
{
    return (reinterpret_cast<uintptr_t>(block) + size) % guarded_pool.page_bytes == 0;
}
inline bool stands_left(const void *block, size_t)
{
    return reinterpret_cast<uintptr_t>(block) % guarded_pool.page_bytes == 0;
}

// Allocates until a block is at a place that suits the test, and frees the others.
template <typename Place> char *allocate_at(Place place, size_t size)
{
    for (int i = 0; i < 1000; i++) {
        char *block = static_cast<char *>(guarded_allocate(size, 1));
        if (block == nullptr || place(block, size))
            return block;
        give_back(block);
    }
    return nullptr;
}

class Guarded : public testing::Test
{
  protected:
    void SetUp() override
    {
        // malloc returns none, only the tests request some
        static const int error = guards_start(UINT32_MAX);
        ASSERT_EQ(error, 0);
        ASSERT_EQ(in_use(), 0u);
    }

    static size_t in_use()
    {
        size_t blocks, bytes;
        guarded_count(&blocks, &bytes);
        return blocks;
    }
};

// The lines after the first: the stacks of allocation and free, and that of the fault.
inline std::string frames() { return "(cairn:     0x[0-9a-f]+[^\n]*\n)+"; }
inline std::string stack(const char *what)
{
    return std::string("cairn:   ") + what + " by thread [0-9]+:\n" + frames();
}

} // namespace guarded_layer
