// The pool's verifier names every kind of damage, its statistics add up, and its walk stops on
// request.

#include <gtest/gtest.h>

#include <vector>

#include "region/pool_holder.h"

extern "C" {
#include "region/pool_layout.h"
}

namespace pool_inspect_test
{

using pool_test::fault;
using pool_test::Pool;
using pool_test::stats;

class PoolDamage : public testing::Test
{
  protected:
    PoolDamage() : pool_(48, 16)
    {
        for (int i = 0; i < 3000; i++)
            objects_.push_back(cairn_pool_get(pool_));
        for (int i = 0; i < 1500; i++) {
            cairn_pool_put(pool_, objects_.back());
            objects_.pop_back();
        }
    }

    struct pool_slab *slab() { return slab_of(pool_, objects_[0]); }
    struct pool_slab *partial() { return slab_from(pool_.get()->partial.next, partial); }
    uint8_t *state(void *object)
    {
        return state_of(pool_, slab_of(pool_, object),
                        number_of(pool_, slab_of(pool_, object), object));
    }

    Pool pool_;
    std::vector<void *> objects_;
};

TEST_F(PoolDamage, IsNamed)
{
    struct cairn_pool *pool = pool_.get();
    const auto damaged = [&](auto &place, auto value) {
        const auto before = place;
        place = static_cast<decltype(before)>(value);
        std::string text = fault(pool_);
        place = before;
        EXPECT_EQ(fault(pool_), "");
        return text;
    };
    struct cairn_pool_entry *top = pool->own.view.top - 1;
    EXPECT_EQ(fault(pool_), "");
    EXPECT_EQ(damaged(*state(objects_[0]), 7), "an object's state is wrong");
    EXPECT_EQ(damaged(*state(objects_[0]), 0), "an object is nowhere, or twice in magazines");
    EXPECT_EQ(damaged(slab_bits(slab())[0], 1), "an object in its slab is in use");
    EXPECT_EQ(damaged(partial()->free_count, 1), "a slab's free objects are not those counted");
    EXPECT_EQ(damaged(partial()->first_word, 1000), "a slab's first word is wrong");
    EXPECT_EQ(damaged(pool->slabs, 1), "the slabs are not those counted");
    EXPECT_EQ(damaged(pool->free_objects, 1), "the free objects are not those counted");
    EXPECT_EQ(damaged(top->object, &pool_), "a magazine holds what is not the pool's");
    EXPECT_EQ(damaged(top->state, top->state + 1), "a magazine holds what is no object");
    EXPECT_EQ(damaged(*top->state, 1), "an object in a magazine is elsewhere, too");
    EXPECT_EQ(damaged(pool->own.view.limit, pool->own.entries), "a magazine is broken");
    EXPECT_EQ(damaged(pool->own.view.recent[3], 65536),
              "a magazine knows a slab that the pool has not");
    EXPECT_EQ(damaged(pool->own.view.recent[3], reinterpret_cast<uintptr_t>(objects_[1])),
              "a magazine knows a slab that the pool has not");
}

TEST_F(PoolDamage, StatisticsAddUp)
{
    const cairn_pool_stats now = stats(pool_);
    EXPECT_EQ(now.live_objects, 1500u);
    EXPECT_EQ(now.slab_bytes, now.slabs * 65536);
    EXPECT_EQ(now.live_objects + now.free_objects, now.slabs * pool_.get()->capacity);
}

TEST_F(PoolDamage, TheWalkStopsWhenTold)
{
    int calls = 0;
    const auto twice = [](void *, void *context) { return ++*static_cast<int *>(context) < 2; };
    cairn_pool_walk(pool_, twice, &calls);
    EXPECT_EQ(calls, 2);
}

} // namespace pool_inspect_test
