// The pool of guarded slots: the order of reuse, its end, and which block an address belongs to.
// One process a case: one of them counts the slots.

#include "watch/guarded_layer.h"

#include <set>
#include <vector>

namespace
{

using namespace guarded_layer;

TEST_F(Guarded, TheSlotFreedFirstIsUsedFirst)
{
    std::vector<struct guarded_slot *> order;
    for (int i = 0; i < SLOT_COUNT; i++) {
        void *block = guarded_allocate(64, 1);
        order.push_back(slot_of(block));
        give_back(block);
    }
    EXPECT_EQ(std::set<struct guarded_slot *>(order.begin(), order.end()).size(),
              size_t{SLOT_COUNT})
        << "no slot again before all others";
    for (struct guarded_slot *slot : order) {
        void *block = guarded_allocate(64, 1);
        EXPECT_EQ(slot_of(block), slot);
        give_back(block);
    }
}

TEST_F(Guarded, AFullPoolServesNobody)
{
    std::vector<void *> blocks;
    for (int i = 0; i < SLOT_COUNT; i++) {
        blocks.push_back(guarded_allocate(64, 1));
        ASSERT_NE(blocks.back(), nullptr);
    }
    EXPECT_EQ(guarded_allocate(64, 1), nullptr);
    EXPECT_EQ(in_use(), size_t{SLOT_COUNT});
    give_back(blocks[77]);
    blocks[77] = guarded_allocate(64, 1);
    EXPECT_NE(blocks[77], nullptr);
    for (void *block : blocks)
        give_back(block);
}

TEST_F(Guarded, PlacesAreFound)
{
    char *block = allocate_at(stands_right, 64);
    const auto expect_place = [&](const char *address, ptrdiff_t offset) {
        const struct guarded_place place = guarded_find(address);
        EXPECT_EQ(place.slot, slot_of(block)) << offset;
        EXPECT_EQ(place.offset, offset);
    };
    for (const ptrdiff_t offset : {0, 63, 64, 100, -1, -100, 2000})
        expect_place(block + offset, offset);
    give_back(block);
    expect_place(block + 5, 5);

    int local = 0;
    EXPECT_EQ(guarded_find(&local).slot, nullptr);
    EXPECT_EQ(guarded_find(nullptr).slot, nullptr);
    EXPECT_EQ(guarded_find(guarded_pool.start - 1).slot, nullptr);
    const size_t bytes = SLOT_COUNT * guarded_pool.slot_bytes + guarded_pool.page_bytes;
    EXPECT_EQ(guarded_find(guarded_pool.start + bytes).slot, nullptr);
    (void)guarded_find(guarded_pool.start + bytes - 1); // the last guard page
}

} // namespace
