// Fixtures of the tests of single slabs: a slab of each of several classes, in a heap without a
// thread.
#pragma once

#include <vector>

#include "heap/heap_layer.h"

namespace heap_layer
{

inline struct heap *heap_of_test()
{
    alignas(64) static struct heap heap; // used by no other test: the slab knows only its address
    return &heap;
}

// The parameter is the class. The test retires the slab.
class SlabOfClass : public testing::TestWithParam<unsigned>
{
  protected:
    void SetUp() override
    {
        heap_start();
        slab_ = slab_make(heap_of_test(), GetParam());
        ASSERT_NE(slab_, nullptr);
    }

    const struct slab_shape &shape() const { return size_classes[GetParam()]; }

    std::vector<char *> take_all()
    {
        std::vector<char *> blocks;
        while (void *block = slab_pop(slab_))
            blocks.push_back(static_cast<char *>(block));
        return blocks;
    }

    void push(const char *block) { slab_push(slab_, slot(block)); }
    unsigned slot(const char *block) const
    {
        return static_cast<unsigned>(slab_slot(slab_, block));
    }

    struct span *slab_ = nullptr;
};

inline auto some_classes()
{
    return testing::Values(0u, 1u, 7u, 20u, 31u, 32u, 50u, SIZED_CLASSES - 1u);
}

} // namespace heap_layer
