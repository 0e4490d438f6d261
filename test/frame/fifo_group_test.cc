// The longest run of free segments in a group, and the choice of a group for a run.

extern "C" {
#include "frame/fifo_state.h"
}

#include "frame/fifo_kit.h"

namespace fifo_group_test
{

using namespace fifo_kit;

unsigned counted(uint32_t mask)
{
    unsigned longest = 0;
    for (unsigned start = 1; start < GROUP_SEGMENTS; start++) {
        unsigned length = 0;
        while (start + length < GROUP_SEGMENTS && (mask >> (start + length) & 1) != 0)
            length++;
        longest = length > longest ? length : longest;
    }
    return longest > RUN_SEGMENTS ? unsigned{RUN_SEGMENTS} : longest;
}

TEST(FifoGroup, LongestRunOfAMask)
{
    Random random(1);
    EXPECT_EQ(longest_run(0), 0u);
    EXPECT_EQ(longest_run(1), 0u) << "the first segment is shorter than the others";
    EXPECT_EQ(longest_run(UINT32_MAX), unsigned{RUN_SEGMENTS});
    static struct fifo_group group;
    for (int i = 0; i < 100000; i++) {
        uint32_t mask = static_cast<uint32_t>(random.next() & random.next()) |
                        bits_of(random.below(20), random.below(12));
        ASSERT_EQ(longest_run(mask), counted(mask)) << mask;
        if (longest_run(mask) == 0)
            continue;
        auto first = static_cast<size_t>(longest_run_of(&group, mask) - group.segments);
        ASSERT_GT(first, 0u);
        ASSERT_EQ(mask & bits_of(first, longest_run(mask)), bits_of(first, longest_run(mask)));
    }
}

TEST(FifoGroup, TheGroupWithTheLongestRunIsChosen)
{
    static struct fifo fifo;
    static struct fifo_group groups[3];
    groups[0].free_mask = bits_of(3, 2);
    groups[1].free_mask = bits_of(1, 7);
    groups[1].spare_mask = bits_of(2, 3);
    groups[2].free_mask = bits_of(20, 12) | bits_of(1, 12);
    for (struct fifo_group &group : groups)
        group_list_by_runs(&fifo, &group);
    EXPECT_EQ(group_with_run(&fifo, RUN_FREE, 1), &groups[2]);
    EXPECT_EQ(group_with_run(&fifo, RUN_FREE, 12), &groups[2]);
    EXPECT_EQ(group_with_run(&fifo, RUN_FREE, 13), nullptr);
    EXPECT_EQ(group_with_run(&fifo, RUN_SPARE, 3), &groups[1]);
    EXPECT_EQ(group_with_run(&fifo, RUN_SPARE, 4), nullptr);
    group_unlist(&fifo, &groups[2]);
    EXPECT_EQ(group_with_run(&fifo, RUN_FREE, 7), &groups[1]);
    groups[1].free_mask = 0;
    group_list_by_runs(&fifo, &groups[1]);
    EXPECT_EQ(group_with_run(&fifo, RUN_FREE, 1), &groups[0]);
    EXPECT_EQ(group_with_run(&fifo, RUN_FREE, 3), nullptr);
}

} // namespace fifo_group_test
