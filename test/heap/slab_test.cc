// A single slab: slots are handed out and taken back, and verified.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "heap/slab_layer.h"

namespace slab_test
{

using heap_layer::heap_of_test;

class Slab : public heap_layer::SlabOfClass
{
};

TEST_P(Slab, IsEmptyAtFirst)
{
    EXPECT_EQ(slab_live(slab_), 0u);
    EXPECT_EQ(slab_->capacity, shape().capacity);
    EXPECT_EQ(slab_heap(slab_), heap_of_test());
    EXPECT_EQ(slab_class(slab_), GetParam());
    slab_verify(slab_);
    slab_retire(slab_);
}

TEST_P(Slab, HandsOutEverySlotOnce)
{
    const std::vector<char *> blocks = take_all();
    EXPECT_EQ(blocks.size(), shape().capacity);
    EXPECT_EQ(std::set<char *>(blocks.begin(), blocks.end()).size(), blocks.size());
    for (char *block : blocks) {
        EXPECT_EQ(page_map_find(block), slab_);
        EXPECT_EQ(page_map_find(block + shape().size_bytes - 1), slab_);
        memset(block, 1, shape().size_bytes);
        EXPECT_EQ(slab_block(slab_, slot(block)), block);
    }
    EXPECT_EQ(slab_live(slab_), shape().capacity);
    EXPECT_EQ(slab_pop(slab_), nullptr);
    slab_verify(slab_);
    slab_retire(slab_);
}

TEST_P(Slab, TheBlockFreedLastComesFirst)
{
    const std::vector<char *> blocks = take_all();
    push(blocks[3]);
    push(blocks[6]);
    slab_verify(slab_);
    EXPECT_EQ(slab_live(slab_), blocks.size() - 2);
    EXPECT_EQ(slab_pop(slab_), blocks[6]);
    EXPECT_EQ(slab_pop(slab_), blocks[3]);
    EXPECT_EQ(slab_pop(slab_), nullptr);
    slab_retire(slab_);
}

TEST_P(Slab, RandomTakingAndGivingKeepsTheCounts)
{
    std::mt19937 random(GetParam());
    std::vector<char *> live;
    for (int round = 0; round < 3000; round++) {
        if (random() % 2 == 0) {
            if (void *block = slab_pop(slab_)) {
                EXPECT_EQ(std::count(live.begin(), live.end(), block), 0);
                live.push_back(static_cast<char *>(block));
            } else {
                EXPECT_EQ(live.size(), shape().capacity);
            }
        } else if (!live.empty()) {
            std::swap(live[random() % live.size()], live.back());
            push(live.back());
            live.pop_back();
        }
        ASSERT_EQ(slab_live(slab_), live.size());
        slab_verify(slab_);
    }
    slab_retire(slab_);
}

INSTANTIATE_TEST_SUITE_P(Classes, Slab, heap_layer::some_classes());

TEST(SlabDeathTest, TheVerifierFindsABrokenList)
{
    if (!config_debug || config_random_slots)
        GTEST_SKIP() << "the verifier runs in debug builds; the slots taken are 1 to 4";
    heap_start();
    struct span *slab = slab_make(heap_of_test(), 2);
    for (int i = 0; i < 4; i++)
        ASSERT_NE(slab_pop(slab), nullptr);
    slab_push(slab, 2);
    slab_push(slab, 3);
    slab_verify(slab);
    const auto with_link = [slab](unsigned slot, uint8_t value) {
        *slab_link(slab, slot) = value;
        slab_verify(slab);
    };
    EXPECT_DEATH(with_link(2, 3), "internal error") << "a cycle";
    EXPECT_DEATH(with_link(2, 60), "internal error") << "a slot that was never handed out";
    EXPECT_DEATH(with_link(3, LINK_END), "internal error") << "a free slot that is in no list";
}

} // namespace slab_test
