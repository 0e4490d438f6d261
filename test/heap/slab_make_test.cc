// New slabs, in headers that served before.

#include <vector>

#include "heap/heap_layer.h"

namespace
{

struct heap *heap_of_test()
{
    alignas(64) static struct heap heap; // nobody else's: its address is all that the slab knows
    return &heap;
}

class SlabMake : public testing::TestWithParam<unsigned>
{
  protected:
    void SetUp() override
    {
        heap_start();
        slab_ = slab_make(heap_of_test(), GetParam());
        ASSERT_NE(slab_, nullptr);
    }

    const struct size_class &shape() const { return size_classes[GetParam()]; }

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

TEST_P(SlabMake, AReusedHeaderStartsClean)
{
    if (config_random_slots)
        GTEST_SKIP() << "all slots are in the list";
    for (int round = 0; round < 20; round++) {
        for (char *block : take_all())
            if (round % 2 == 0)
                push(block);
        slab_verify(slab_);
        slab_retire(slab_);
        slab_ = slab_make(heap_of_test(), GetParam());
        ASSERT_NE(slab_, nullptr);
        EXPECT_EQ(slab_live(slab_), 0u);
        for (unsigned i = 0; i <= shape().capacity; i++)
            ASSERT_EQ(*slab_link(slab_, i), LINK_LIVE) << "a link byte of its last life";
        slab_verify(slab_);
    }
    slab_retire(slab_);
    pages_verify();
}

INSTANTIATE_TEST_SUITE_P(Classes, SlabMake, testing::Values(0u, 1u, 7u, 20u, 31u, 32u, 63u, 111u));

} // namespace
