// A pool behind the common interface: the guarantees of cairn/allocator.h.

#include <gtest/gtest.h>

#include <cerrno>

#include "region/pool_holder.h"

namespace adapted_pool_test
{

using pool_test::Pool;
using pool_test::stats;

TEST(AdaptedPool, OneSizeForAllThatFits)
{
    Pool pool(100, 32);
    const cairn_allocator allocator = cairn_pool_allocator(pool);
    for (size_t size : {0, 1, 100, 128}) {
        void *object = cairn_allocator_alloc(allocator, size, 32);
        ASSERT_NE(object, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(object) % 32, 0u);
        EXPECT_EQ(cairn_allocator_resize(allocator, object, size, 128), object);
        EXPECT_EQ(cairn_allocator_resize(allocator, object, 128, 129), nullptr);
        cairn_allocator_free(allocator, object, 128);
    }
    EXPECT_EQ(cairn_allocator_resize(allocator, nullptr, 1, 1), nullptr);
    cairn_allocator_free(allocator, nullptr, 1);
    EXPECT_EQ(stats(pool).live_objects, 0u);
}

TEST(AdaptedPool, Failures)
{
    Pool pool(100, 32);
    const cairn_allocator allocator = cairn_pool_allocator(pool);
    errno = 0;
    EXPECT_EQ(cairn_allocator_alloc(allocator, 129, 16), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(cairn_allocator_alloc(allocator, 10, 64), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(cairn_allocator_alloc(allocator, 10, 3), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST(AdaptedPool, Capabilities)
{
    Pool plain(100, 32);
    Pool shared(100, 32, true);
    EXPECT_TRUE(cairn_allocator_can(cairn_pool_allocator(plain), CAIRN_CAN_FREE | CAIRN_ONE_SIZE));
    EXPECT_FALSE(cairn_allocator_can(cairn_pool_allocator(plain), CAIRN_ANY_THREAD));
    EXPECT_TRUE(cairn_allocator_can(cairn_pool_allocator(shared), CAIRN_ANY_THREAD));
}

} // namespace adapted_pool_test
