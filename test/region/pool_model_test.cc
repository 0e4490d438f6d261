// Random operations on pools against a shadow; the pool's verifier checks along the way.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "region/pool_holder.h"
#include "region/tlsf_arena.h"

namespace pool_model_test
{

using pool_test::fault;
using pool_test::Pool;
using pool_test::stats;
using tlsf_test::Random;

class PoolModel : public testing::TestWithParam<uint64_t>
{
};

INSTANTIATE_TEST_SUITE_P(Seeds, PoolModel, testing::Range<uint64_t>(1, 9));

struct Shadow {
    std::map<unsigned char *, unsigned char> live;
    std::vector<unsigned char *> order;
};

void get_one(cairn_pool_magazine *from, size_t size, Shadow &shadow, Random &random)
{
    auto *object = static_cast<unsigned char *>(cairn_pool_magazine_get(from));
    ASSERT_NE(object, nullptr);
    auto after = shadow.live.lower_bound(object);
    if (after != shadow.live.end()) {
        ASSERT_GE(after->first, object + size);
    }
    if (after != shadow.live.begin()) {
        ASSERT_LE(std::prev(after)->first + size, object);
    }
    const auto seed = static_cast<unsigned char>(random.next());
    memset(object, seed, size);
    shadow.live[object] = seed;
    shadow.order.push_back(object);
}

void put_one(cairn_pool_magazine *to, size_t size, Shadow &shadow, Random &random)
{
    if (shadow.order.empty())
        return;
    std::swap(shadow.order[random.below(shadow.order.size())], shadow.order.back());
    unsigned char *object = shadow.order.back();
    for (size_t i = 0; i < size; i++)
        ASSERT_EQ(object[i], shadow.live[object]);
    shadow.order.pop_back();
    shadow.live.erase(object);
    cairn_pool_magazine_put(to, object);
}

// Uses one magazine, or several whose objects mix.
void run(bool shared, uint64_t seed)
{
    Random random(seed);
    const size_t size = random.between(1, 300);
    Pool pool(size, 0, shared);
    std::vector<cairn_pool_magazine *> magazines = {
        reinterpret_cast<cairn_pool_magazine *>(pool.get())};
    for (int i = 0; shared && i < 3; i++)
        magazines.push_back(cairn_pool_attach(pool));
    Shadow shadow;
    for (int step = 0; step < 60000; step++) {
        const bool flood = step / 6000 % 2 == 0;
        cairn_pool_magazine *magazine = magazines[random.below(magazines.size())];
        if (random.below(10) < (flood ? 6u : 3u))
            get_one(magazine, size, shadow, random);
        else
            put_one(magazine, size, shadow, random);
        if (step % 3000 == 0)
            cairn_pool_trim(pool);
        if (step % 500 == 0) {
            ASSERT_EQ(fault(pool), "");
        }
        if (testing::Test::HasFatalFailure())
            return;
    }
    while (!shadow.order.empty())
        put_one(magazines[0], size, shadow, random);
    for (size_t i = 1; i < magazines.size(); i++)
        cairn_pool_detach(magazines[i]);
    EXPECT_EQ(fault(pool), "");
    EXPECT_EQ(stats(pool).live_objects, 0u);
    cairn_pool_trim(pool);
    EXPECT_EQ(stats(pool).slabs, 0u);
}

TEST_P(PoolModel, OneThread) { run(false, GetParam()); }
TEST_P(PoolModel, SeveralMagazines) { run(true, GetParam()); }

} // namespace pool_model_test
