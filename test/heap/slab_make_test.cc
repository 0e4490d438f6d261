// New slabs in headers that were used before.

#include <vector>

#include "heap/slab_layer.h"

namespace slab_make_test
{

using heap_layer::heap_of_test;

class SlabMake : public heap_layer::SlabOfClass
{
};

TEST_P(SlabMake, AReusedHeaderStartsClean)
{
    if (config_random_slots)
        GTEST_SKIP() << "all slots are in the list of free slots";
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
            ASSERT_EQ(*slab_link(slab_, i), LINK_LIVE) << "a link byte of the slab before";
        slab_verify(slab_);
    }
    slab_retire(slab_);
    pages_verify();
}

INSTANTIATE_TEST_SUITE_P(Classes, SlabMake, heap_layer::some_classes());

} // namespace slab_make_test
