// Misuse of a pool: one error a case, and its exact message.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cairn/heap.h"
#include "region/pool_holder.h"

extern "C" {
#include "region/pool_layout.h"
}

namespace pool_fault_test
{

using pool_test::hex;
using pool_test::Pool;
using pool_test::stats;
using testing::Eq;

class PoolFaultSizes : public testing::TestWithParam<size_t>
{
};

INSTANTIATE_TEST_SUITE_P(Sizes, PoolFaultSizes,
                         testing::Values(1, 8, 24, 48, 1000, 4096, 65536, 131072, 1 << 20,
                                         3 << 20));

TEST_P(PoolFaultSizes, DoublePutAndInteriorPointers)
{
    Pool pool(GetParam(), 0);
    auto *first = static_cast<char *>(cairn_pool_get(pool));
    auto *second = static_cast<char *>(cairn_pool_get(pool));
    cairn_pool_put(pool, first);
    const size_t stride = stats(pool).object_bytes;
    const std::string size = std::to_string(stride) + "-byte object";
    EXPECT_EXIT(cairn_pool_put(pool, first), testing::KilledBySignal(SIGABRT),
                Eq("cairn: pool double put of " + hex(first) + " (" + size + ")\n"));
    for (size_t offset : {size_t{1}, stride / 2, stride - 1})
        if (offset > 0 && offset < stride) {
            EXPECT_EXIT(cairn_pool_put(pool, second + offset), testing::KilledBySignal(SIGABRT),
                        Eq("cairn: pool put of interior pointer " + hex(second + offset) + " (" +
                           size + " at " + hex(second) + ")\n"));
        }
}

std::string foreign(cairn_pool *pool, const void *pointer)
{
    return "cairn: pool put of " + hex(pointer) + ", which is not an object of pool " + hex(pool) +
           "\n";
}

TEST(PoolFault, ForeignPointers)
{
    static char variable[64];
    char local[64];
    Pool pool(48, 16);
    Pool other(48, 16);
    void *object = cairn_pool_get(pool);
    void *others = cairn_pool_get(other);
    void *heaps = cairn_malloc(48);
    void *large = cairn_malloc(1 << 20);
    auto *base = reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(object) & ~uintptr_t{0xffff});
    void *const pointers[] = {variable,
                              local,
                              others,
                              heaps,
                              large,
                              pool.get(),
                              base,
                              base + 64,
                              base - 16,
                              reinterpret_cast<void *>(1),
                              reinterpret_cast<void *>(48),
                              reinterpret_cast<void *>(uintptr_t{1} << 46),
                              static_cast<char *>(object) + (size_t{1} << 37) * 48,
                              reinterpret_cast<void *>(UINTPTR_MAX)};
    for (void *pointer : pointers)
        EXPECT_EXIT(cairn_pool_put(pool, pointer), testing::KilledBySignal(SIGABRT),
                    Eq(foreign(pool, pointer)));
    cairn_pool_put(pool, object); // from now on the fast path of the pool knows the slab
    for (void *pointer : pointers)
        EXPECT_EXIT(cairn_pool_put(pool, pointer), testing::KilledBySignal(SIGABRT),
                    Eq(foreign(pool, pointer)));
    cairn_free(heaps);
    cairn_free(large);
}

TEST(PoolFault, ObjectsOfASlabThatHasGone)
{
    Pool pool(48, 16);
    void *object = cairn_pool_get(pool);
    cairn_pool_put(pool, object);
    ASSERT_GT(cairn_pool_trim(pool), 0u);
    EXPECT_EXIT(cairn_pool_put(pool, object), testing::KilledBySignal(SIGABRT),
                Eq(foreign(pool, object)));
}

TEST(PoolFault, DoublePutOfAnObjectThatIsBackInItsSlab)
{
    Pool pool(48, 16);
    std::vector<void *> objects;
    for (int i = 0; i < 1000; i++)
        objects.push_back(cairn_pool_get(pool));
    void *kept = cairn_pool_get(pool);
    for (void *object : objects)
        cairn_pool_put(pool, object);
    for (size_t i : {size_t{0}, size_t{500}, size_t{999}})
        EXPECT_EXIT(cairn_pool_put(pool, objects[i]), testing::KilledBySignal(SIGABRT),
                    "^cairn: pool (double put of|put of " + hex(objects[i]) + ", which is not)");
    cairn_pool_put(pool, kept);
}

TEST(PoolFault, AnyUseAfterTheEnd)
{
    for (bool shared : {false, true}) {
        cairn_pool_options options = {};
        options.shared = shared;
        cairn_pool *pool = cairn_pool_new(48, 16, &options);
        cairn_pool_magazine *magazine = shared ? cairn_pool_attach(pool) : nullptr;
        void *object = cairn_pool_get(pool);
        cairn_pool_put(pool, cairn_pool_get(pool));
        if (shared)
            cairn_pool_magazine_put(magazine, cairn_pool_magazine_get(magazine));
        cairn_pool_detach(magazine);
        ASSERT_EQ(cairn_pool_delete(pool), 0);
        cairn_pool_stats stats;
        const auto visit = [](void *, void *) { return true; };
        const std::string message = "cairn: pool " + hex(pool) + ": used after its end\n";
#define EXPECT_ENDED(statement)                                                                    \
    EXPECT_EXIT((void)!(statement), testing::KilledBySignal(SIGABRT), Eq(message))
        EXPECT_ENDED(cairn_pool_get(pool));
        EXPECT_ENDED(cairn_pool_get_zero(pool));
        EXPECT_ENDED((cairn_pool_put(pool, object), 0));
        EXPECT_ENDED(cairn_pool_trim(pool));
        EXPECT_ENDED((cairn_pool_walk(pool, visit, nullptr), 0));
        EXPECT_ENDED((cairn_pool_read_stats(pool, &stats), 0));
        EXPECT_ENDED(cairn_pool_check(pool));
        EXPECT_ENDED(cairn_pool_attach(pool));
        EXPECT_ENDED(cairn_pool_delete(pool));
        EXPECT_ENDED(cairn_pool_allocator(pool).context);
#undef EXPECT_ENDED
        if (!shared)
            continue;
        const std::string of_magazine =
            "cairn: pool magazine " + hex(magazine) + ": used after its end\n";
        EXPECT_EXIT((void)!cairn_pool_magazine_get(magazine), testing::KilledBySignal(SIGABRT),
                    Eq(of_magazine));
        EXPECT_EXIT((void)!cairn_pool_magazine_get_zero(magazine), testing::KilledBySignal(SIGABRT),
                    Eq(of_magazine));
        EXPECT_EXIT(cairn_pool_magazine_put(magazine, object), testing::KilledBySignal(SIGABRT),
                    Eq(of_magazine));
        EXPECT_EXIT(cairn_pool_detach(magazine), testing::KilledBySignal(SIGABRT), Eq(of_magazine));
    }
}

// The state that two threads leave that put an object at the same instant, so that both checks
// passed.
class PoolPutTwiceAtOnce : public testing::Test
{
  protected:
    PoolPutTwiceAtOnce()
        : pool_(48, 16, true), first_(cairn_pool_attach(pool_)), second_(cairn_pool_attach(pool_)),
          object_(cairn_pool_magazine_get(first_))
    {
        struct pool_slab *slab = slab_of(pool_, object_);
        cairn_pool_magazine_put(first_, object_);
        *state_of(pool_, slab, number_of(pool_, slab, object_)) = OBJECT_LIVE;
        cairn_pool_magazine_put(second_, object_);
        message_ = "cairn: pool double put of " + hex(object_) + " (48-byte object)\n";
    }
    ~PoolPutTwiceAtOnce() override
    {
        first_->view.top--; // takes the second entry back
        cairn_pool_detach(first_);
        cairn_pool_detach(second_);
    }

    Pool pool_;
    cairn_pool_magazine *first_;
    cairn_pool_magazine *second_;
    void *object_;
    std::string message_;
};

TEST_F(PoolPutTwiceAtOnce, DiesWhenItIsGotTwice)
{
    const auto get_twice = [&] {
        if (cairn_pool_magazine_get(first_) != object_)
            abort();
        (void)!cairn_pool_magazine_get(second_);
    };
    EXPECT_EXIT(get_twice(), testing::KilledBySignal(SIGABRT), Eq(message_));
}

TEST_F(PoolPutTwiceAtOnce, DiesWhenItReturnsToItsSlabTwice)
{
    const auto detach_both = [&] {
        cairn_pool_detach(first_);
        cairn_pool_detach(second_);
    };
    EXPECT_EXIT(detach_both(), testing::KilledBySignal(SIGABRT), Eq(message_));
}

TEST_F(PoolPutTwiceAtOnce, DiesWhenItReturnsToItsSlabInUse)
{
    const auto get_and_detach = [&] {
        (void)!cairn_pool_magazine_get(first_);
        cairn_pool_detach(second_);
    };
    EXPECT_EXIT(get_and_detach(), testing::KilledBySignal(SIGABRT), Eq(message_));
}

TEST_F(PoolPutTwiceAtOnce, DiesWhenBothEntriesAreInOneMagazine)
{
    const auto detach = [&] {
        second_->view.top[0] = second_->view.top[-1];
        second_->view.top++;
        cairn_pool_detach(second_);
    };
    EXPECT_EXIT(detach(), testing::KilledBySignal(SIGABRT), Eq(message_));
}

// The heap does not accept memory of a pool as one of its blocks.
TEST(PoolFault, FreeOfAnObject)
{
    Pool pool(65536, 4096);
    auto *object = static_cast<char *>(cairn_pool_get(pool));
    void *base = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(object) & ~uintptr_t{0xffff});
    for (void *pointer : {static_cast<void *>(object), base, static_cast<void *>(pool.get())})
        EXPECT_EXIT(cairn_free(pointer), testing::KilledBySignal(SIGABRT),
                    "^cairn: free of (interior pointer )?" + hex(pointer));
}

} // namespace pool_fault_test
