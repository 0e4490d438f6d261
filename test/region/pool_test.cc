// The pool's get and put: objects of all shapes, reuse, exhaustion. pool_fault_test.cc tests
// misuse.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "region/pool_holder.h"

namespace pool_test
{

using pool_test::fault;
using pool_test::Pool;
using pool_test::stats;

struct Shape {
    size_t size;
    size_t align;
};

class PoolShapes : public testing::TestWithParam<Shape>
{
};

INSTANTIATE_TEST_SUITE_P(
    Shapes, PoolShapes,
    testing::Values(Shape{1, 1}, Shape{1, 0}, Shape{3, 1}, Shape{8, 8}, Shape{16, 16}, Shape{24, 8},
                    Shape{40, 64}, Shape{48, 16}, Shape{100, 4}, Shape{1000, 8}, Shape{4096, 4096},
                    Shape{5000, 16}, Shape{65536, 16}, Shape{8, 65536}, Shape{131072, 131072},
                    Shape{100000, 1 << 20}, Shape{1 << 20, 2 << 20}, Shape{3 << 20, 1 << 18}),
    [](const auto &shape) {
        return std::to_string(shape.param.size) + "_aligned_" + std::to_string(shape.param.align);
    });

TEST_P(PoolShapes, ObjectsAreAlignedDistinctAndKeepTheirContent)
{
    Pool pool(GetParam().size, GetParam().align);
    const size_t align = GetParam().align ? GetParam().align : 1;
    const size_t count = GetParam().size > 4096 ? 50 : 3000;
    std::vector<unsigned char *> objects;
    for (size_t i = 0; i < count; i++) {
        auto *object = static_cast<unsigned char *>(cairn_pool_get(pool));
        ASSERT_NE(object, nullptr);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(object) % align, 0u);
        memset(object, static_cast<int>(i * 7), GetParam().size);
        objects.push_back(object);
    }
    EXPECT_EQ(fault(pool), "");
    EXPECT_EQ(stats(pool).live_objects, count);
    EXPECT_EQ(stats(pool).object_bytes % align, 0u);
    for (size_t i = 0; i < count; i++) {
        ASSERT_EQ(objects[i][0], static_cast<unsigned char>(i * 7));
        ASSERT_EQ(objects[i][GetParam().size - 1], static_cast<unsigned char>(i * 7));
    }
    EXPECT_EQ(std::set<unsigned char *>(objects.begin(), objects.end()).size(), count);
    for (size_t i = 0; i < count; i += 2)
        cairn_pool_put(pool, objects[i]);
    EXPECT_EQ(fault(pool), "");
    for (size_t i = 1; i < count; i += 2)
        cairn_pool_put(pool, objects[i]);
    EXPECT_EQ(fault(pool), "");
    EXPECT_EQ(stats(pool).live_objects, 0u);
    cairn_pool_trim(pool);
    EXPECT_EQ(stats(pool).slabs, 0u);
    EXPECT_EQ(fault(pool), "");
}

TEST_P(PoolShapes, TheWalkShowsTheLiveObjects)
{
    Pool pool(GetParam().size, GetParam().align);
    std::set<void *> live;
    for (int i = 0; i < 300; i++) {
        void *object = cairn_pool_get(pool);
        if (i % 3 == 0)
            cairn_pool_put(pool, object);
        else
            live.insert(object);
    }
    std::set<void *> seen;
    const auto collect = [](void *object, void *context) {
        return static_cast<std::set<void *> *>(context)->insert(object).second;
    };
    cairn_pool_walk(pool, collect, &seen);
    EXPECT_EQ(seen, live);
}

TEST(Pool, TheObjectPutLastIsGotFirst)
{
    Pool pool(48, 16);
    void *first = cairn_pool_get(pool);
    void *second = cairn_pool_get(pool);
    cairn_pool_put(pool, first);
    cairn_pool_put(pool, second);
    EXPECT_EQ(cairn_pool_get(pool), second);
    EXPECT_EQ(cairn_pool_get(pool), first);
}

TEST(Pool, FreshObjectsLieSideBySide)
{
    Pool pool(48, 16);
    auto *last = static_cast<char *>(cairn_pool_get(pool));
    for (int i = 0; i < 90; i++) {
        auto *next = static_cast<char *>(cairn_pool_get(pool));
        ASSERT_EQ(next, last + 48);
        last = next;
    }
}

TEST(Pool, PutAndTheMagazineBothKeepContentAndErrno)
{
    Pool pool(48, 16);
    void *object = cairn_pool_get(pool);
    memset(object, 'x', 48);
    errno = 77;
    cairn_pool_put(pool, object);
    cairn_pool_put(pool, nullptr);
    EXPECT_EQ(cairn_pool_get(pool), object);
    EXPECT_EQ(errno, 77);
    EXPECT_EQ(static_cast<char *>(object)[47], 'x');
}

TEST(Pool, AChildOfForkHasTheObjects)
{
    Pool pool(48, 16);
    std::vector<char *> objects;
    for (int i = 0; i < 5000; i++)
        objects.push_back(static_cast<char *>(cairn_pool_get(pool)));
    for (char *object : objects)
        *object = 5;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        bool good = fault(pool).empty();
        for (char *object : objects) {
            good = good && *object == 5;
            cairn_pool_put(pool, object);
        }
        good = good && stats(pool).live_objects == 0 && cairn_pool_get(pool) != nullptr;
        _exit(good && fault(pool).empty() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(stats(pool).live_objects, objects.size());
    for (char *object : objects)
        cairn_pool_put(pool, object);
}

// An out-of-memory function that frees one object of the pool per call, while it has some.
struct Reserve {
    cairn_pool *pool;
    std::vector<void *> objects;
    size_t calls = 0;
    size_t size_bytes = 0;
};

bool release_one(void *context, size_t size_bytes)
{
    auto *reserve = static_cast<Reserve *>(context);
    reserve->calls++;
    reserve->size_bytes = size_bytes;
    errno = 5;
    if (reserve->objects.empty())
        return false;
    cairn_pool_put(reserve->pool, reserve->objects.back());
    reserve->objects.pop_back();
    return true;
}

TEST(Pool, OutOfMemoryAsksTheProgram)
{
    for (bool shared : {false, true}) {
        Reserve reserve;
        cairn_pool_options options = {};
        options.max_objects = 3;
        options.shared = shared;
        options.out_of_memory = release_one;
        options.out_of_memory_context = &reserve;
        reserve.pool = cairn_pool_new(48, 16, &options);
        for (int i = 0; i < 3; i++)
            reserve.objects.push_back(cairn_pool_get(reserve.pool));
        EXPECT_EQ(reserve.calls, 0u);
        errno = 0;
        for (size_t i = 1; i <= 3; i++) {
            EXPECT_NE(cairn_pool_get(reserve.pool), nullptr);
            EXPECT_EQ(reserve.calls, i);
            EXPECT_EQ(reserve.size_bytes, 48u);
        }
        EXPECT_EQ(errno, 0);
        EXPECT_EQ(cairn_pool_get(reserve.pool), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(reserve.calls, 4u);
        EXPECT_EQ(cairn_pool_delete(reserve.pool), 0);
    }
}

TEST(Pool, AMaximumIsExactAndNotSticky)
{
    for (size_t size : {size_t{8}, size_t{48}, size_t{32} << 10, size_t{2} << 20}) {
        for (size_t most : {size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{63}, size_t{64},
                            size_t{65}, size_t{3000}}) {
            if (size * most > size_t{1} << 30)
                continue;
            cairn_pool_options options = {};
            options.max_objects = most;
            cairn_pool *pool = cairn_pool_new(size, 0, &options);
            for (int round = 0; round < 2; round++) {
                std::vector<void *> objects;
                errno = 0;
                while (void *object = cairn_pool_get(pool))
                    objects.push_back(object);
                EXPECT_EQ(errno, ENOMEM);
                EXPECT_EQ(objects.size(), most) << size;
                EXPECT_EQ(stats(pool).live_objects, most);
                EXPECT_EQ(fault(pool), "");
                cairn_pool_put(pool, objects.back());
                EXPECT_EQ(cairn_pool_get(pool), objects.back());
                EXPECT_EQ(cairn_pool_get(pool), nullptr);
                for (size_t i = 0; i < most; i++)
                    cairn_pool_put(pool, objects[i]);
                cairn_pool_trim(pool);
                EXPECT_EQ(fault(pool), "");
            }
            cairn_pool_delete(pool);
        }
    }
}

} // namespace pool_test
