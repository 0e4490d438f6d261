// Pools made and deleted: arguments, layout, the typed form. pool_oom_test.cc tests a system that
// refuses memory.

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "region/pool_holder.h"

namespace pool_set_up_test
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
    EXPECT_EQ(cairn_pool_delete(nullptr), 0);
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
    number = number_pool_get_zero(numbers);
    EXPECT_EQ(*number, 0);
    EXPECT_EQ(stats(numbers).object_bytes, sizeof(long));
    EXPECT_EQ(cairn_pool_delete(numbers), 0);
}

TEST(PoolSetUp, TypedMagazines)
{
    cairn_pool_options options = {};
    options.shared = true;
    cairn_pool *numbers = number_pool_new(&options);
    cairn_pool_magazine *magazine = number_pool_attach(numbers);
    long *number = number_magazine_get(magazine);
    *number = 42;
    number_magazine_put(magazine, number);
    EXPECT_EQ(number_magazine_get_zero(magazine), number);
    EXPECT_EQ(*number, 0);
    number_pool_put(numbers, number);
    cairn_pool_detach(magazine);
    EXPECT_EQ(cairn_pool_delete(numbers), 0);
}

TEST(PoolSetUp, ZeroedObjectsAreZeroToTheirEnd)
{
    for (bool shared : {false, true}) {
        Pool pool(100, 32, shared);
        cairn_pool_magazine *magazine = shared ? cairn_pool_attach(pool) : nullptr;
        for (int i = 0; i < 300; i++) {
            auto *object =
                static_cast<char *>(magazine && i % 2 ? cairn_pool_magazine_get_zero(magazine)
                                                      : cairn_pool_get_zero(pool));
            ASSERT_NE(object, nullptr);
            for (int byte = 0; byte < 128; byte++)
                ASSERT_EQ(object[byte], 0);
            memset(object, 1, 128);
            if (i % 3)
                cairn_pool_put(pool, object);
        }
        cairn_pool_detach(magazine);
    }
}

TEST(PoolSetUp, AMagazineNeedsASharedPool)
{
    Pool pool(48, 16);
    errno = 0;
    EXPECT_EQ(cairn_pool_attach(pool), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST(PoolSetUp, APoolWithAttachedMagazinesIsBusy)
{
    cairn_pool_options options = {};
    options.shared = true;
    cairn_pool *pool = cairn_pool_new(48, 16, &options);
    cairn_pool_magazine *first = cairn_pool_attach(pool);
    cairn_pool_magazine *second = cairn_pool_attach(pool);
    void *object = cairn_pool_magazine_get(first);
    EXPECT_EQ(cairn_pool_delete(pool), EBUSY);
    cairn_pool_detach(first);
    EXPECT_EQ(cairn_pool_delete(pool), EBUSY);
    EXPECT_EQ(fault(pool), "");
    cairn_pool_put(pool, object);
    cairn_pool_detach(second);
    EXPECT_NE(cairn_pool_get(pool), nullptr); // objects in use end with the pool
    errno = 0;
    EXPECT_EQ(cairn_pool_delete(pool), 0);
    EXPECT_EQ(errno, 0);
}

// After a fork no thread of the child can detach a magazine that another thread was using.
TEST(PoolSetUp, InAChildMagazinesFromBeforeTheForkEndWithThePool)
{
    cairn_pool_options options = {};
    options.shared = true;
    cairn_pool *pool = cairn_pool_new(48, 16, &options);
    cairn_pool_magazine *magazine = cairn_pool_attach(pool);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        cairn_pool_magazine *own = cairn_pool_attach(pool);
        const bool busy = cairn_pool_delete(pool) == EBUSY;
        cairn_pool_detach(own);
        _exit(busy && cairn_pool_delete(pool) == 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(cairn_pool_delete(pool), EBUSY);
    cairn_pool_detach(magazine);
    EXPECT_EQ(cairn_pool_delete(pool), 0);
}

TEST(PoolSetUp, DescriptorsServeAgain)
{
    cairn_pool *first = cairn_pool_new(48, 16, nullptr);
    EXPECT_EQ(cairn_pool_delete(first), 0);
    cairn_pool *second = cairn_pool_new(100, 4, nullptr);
    EXPECT_EQ(second, first);
    EXPECT_EQ(stats(second).object_bytes, 100u);
    EXPECT_EQ(fault(second), "");
    EXPECT_EQ(cairn_pool_delete(second), 0);
}

TEST(PoolSetUp, TheNameIsKept)
{
    cairn_pool_options options = {};
    options.name = "sessions";
    cairn_pool *pool = cairn_pool_new(48, 16, &options);
    EXPECT_STREQ(stats(pool).name, "sessions");
    cairn_pool_delete(pool);
}

} // namespace pool_set_up_test
