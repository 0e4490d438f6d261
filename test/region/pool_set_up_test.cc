// Pools made and ended: arguments, layout, exhaustion of the system at every call.

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "region/pool_holder.h"

extern "C" {
#include "os/os.h"
#include "page/page.h"
}

namespace {

using pool_test::fault;
using pool_test::Pool;
using pool_test::stats;

TEST(PoolSetUp, ArgumentsThatNoPoolCanHave)
{
    const size_t bad[][2] = {{0, 16},       {48, 3},         {48, 48},          {48, 4 << 20},
                             {0, 0},        {SIZE_MAX, 16},  {(64 << 20) + 1, 16}};
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

// One life of a pool. True when nothing failed; whatever fails, all else goes on.
bool life()
{
    cairn_pool_options options = {};
    options.shared = true;
    errno = 0;
    cairn_pool *pool = cairn_pool_new(100000, 16, &options);
    if (pool == nullptr) {
        EXPECT_EQ(errno, ENOMEM);
        return false;
    }
    bool failed = false;
    cairn_pool_magazine *magazine = cairn_pool_attach(pool);
    failed |= magazine == nullptr;
    std::vector<void *> objects;
    for (int i = 0; i < 200; i++) {
        errno = 0;
        void *object = magazine && i % 2 ? cairn_pool_magazine_get(magazine) : cairn_pool_get(pool);
        if (object) {
            *static_cast<char *>(object) = 1;
            objects.push_back(object);
        } else {
            EXPECT_EQ(errno, ENOMEM);
            failed = true;
        }
    }
    for (void *object : objects)
        cairn_pool_put(pool, object);
    EXPECT_EQ(fault(pool), "");
    cairn_pool_detach(magazine);
    EXPECT_EQ(stats(pool).live_objects, 0u);
    cairn_pool_delete(pool);
    return !failed;
}

TEST(PoolSetUp, AnySystemCallMayFail)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds only";
    ASSERT_TRUE(life());
    int struck = 0;
    for (size_t count : {size_t{1}, size_t{2}, SIZE_MAX / 2}) {
        for (size_t skip = 0; skip < 60; skip++) {
            pages_trim(0);
            os_fault_plan(skip, count, ENOMEM);
            struck += !life();
            os_fault_plan(0, 0, 0);
            ASSERT_TRUE(life()) << "after failure " << skip;
            if (HasFailure())
                return;
        }
    }
    EXPECT_GT(struck, 10);
}

} // namespace
