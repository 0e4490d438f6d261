// Pools made and ended: arguments, layout, the typed form. A system that refuses: pool_oom_test.cc.

#include <gtest/gtest.h>

#include <cerrno>

#include "region/pool_holder.h"

namespace
{

using pool_test::fault;
using pool_test::Pool;
using pool_test::stats;

TEST(PoolSetUp, ArgumentsThatNoPoolCanHave)
{
    const size_t bad[][2] = {
        {0, 16}, {48, 3}, {48, 48}, {48, 4 << 20}, {0, 0}, {SIZE_MAX, 16}, {(64 << 20) + 1, 16}};
    for (const auto &pair : bad) {
        errno = 0;
        EXPECT_EQ(cairn_pool_new(pair[0], pair[1], nullptr), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
    cairn_pool_delete(nullptr);
    cairn_pool_detach(nullptr);
}

TEST(PoolSetUp, TheLargestObjects)
{
    Pool pool(64 << 20, 2 << 20);
    auto *first = static_cast<char *>(cairn_pool_get(pool));
    auto *second = static_cast<char *>(cairn_pool_get(pool));
    ASSERT_TRUE(first && second);
    first[0] = second[(64 << 20) - 1] = 1;
    EXPECT_EQ(fault(pool), "");
    cairn_pool_put(pool, second);
    cairn_pool_put(pool, first);
    EXPECT_EQ(fault(pool), "");
}

TEST(PoolSetUp, SmallObjectsCostLittleMoreThanThemselves)
{
    Pool pool(8, 8);
    for (int i = 0; i < 100000; i++)
        ASSERT_NE(cairn_pool_get(pool), nullptr);
    EXPECT_LE(static_cast<double>(stats(pool).slab_bytes), 1.18 * 800000);
    EXPECT_EQ(stats(pool).object_bytes, 8u);
}

CAIRN_POOL(number, long);

TEST(PoolSetUp, Typed)
{
    cairn_pool *numbers = number_pool_new(nullptr);
    long *number = number_pool_get(numbers);
    *number = 42;
    number_pool_put(numbers, number);
    EXPECT_EQ(stats(numbers).object_bytes, sizeof(long));
    cairn_pool_delete(numbers);
}

TEST(PoolSetUp, TheNameIsKept)
{
    cairn_pool_options options = {};
    options.name = "sessions";
    cairn_pool *pool = cairn_pool_new(48, 16, &options);
    EXPECT_STREQ(stats(pool).name, "sessions");
    cairn_pool_delete(pool);
}

} // namespace
