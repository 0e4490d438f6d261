// Arenas: found by address, reserved in steps that shrink when the kernel refuses. Each case is a
// process of its own under ctest; run together they see each other's arenas.

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "page/page_layer.h"

namespace
{

class Arena : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    // The arena that the last call added: the one that was not there.
    struct arena *added(size_t pages)
    {
        const size_t before = arena_count();
        std::vector<struct arena *> known;
        for (size_t i = 0; i < before; i++)
            known.push_back(arena_at(i));
        if (arena_add(pages) != 0 || arena_count() != before + 1)
            return nullptr;
        for (size_t i = 0; i <= before; i++)
            if (i == before || known[i] != arena_at(i))
                return arena_at(i);
        return nullptr;
    }
};

TEST_F(Arena, HoldsItsAddressesAndNoOthers)
{
    struct arena *arena = added(1);
    ASSERT_NE(arena, nullptr);
    const size_t bytes = arena->pages << PAGE_SHIFT;
    EXPECT_GE(bytes, page_layer::kMiB);
    EXPECT_EQ(arena_find(arena->base), arena);
    EXPECT_EQ(arena_find(arena->base + bytes - 1), arena);
    EXPECT_NE(arena_find(arena->base + bytes), arena);
    EXPECT_NE(arena_find(arena->base - 1), arena);
    EXPECT_EQ(arena_find(nullptr), nullptr);
    EXPECT_EQ(arena_find(&arena), nullptr);
    EXPECT_EQ(arena_page(arena, arena->base + 5 * PAGE_BYTES + 17), 5u);
}

TEST_F(Arena, ListIsSortedByAddress)
{
    for (int i = 0; i < 5; i++)
        ASSERT_EQ(arena_add(1), 0);
    for (size_t i = 1; i < arena_count(); i++)
        EXPECT_LT(arena_at(i - 1)->base, arena_at(i)->base);
    for (size_t i = 0; i < arena_count(); i++)
        EXPECT_EQ(arena_find(arena_at(i)->base + PAGE_BYTES), arena_at(i));
}

TEST_F(Arena, TheFullestWithRoomIsTaken)
{
    struct arena *first = added(1);
    struct arena *second = added(1);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(arena_with_room(first->pages + second->pages + (size_t{1} << 21)), nullptr);
    first->frontier = first->pages - 10; // as if so much of it were committed
    EXPECT_EQ(arena_with_room(10), first);
    EXPECT_NE(arena_with_room(11), first);
    first->frontier = first->pages;
    EXPECT_NE(arena_with_room(1), first);
    first->frontier = 0;
}

TEST_F(Arena, StepsGrowWithTheHeapAndHoldWhatIsAsked)
{
    struct arena *large = added((300 * page_layer::kMiB) >> PAGE_SHIFT);
    ASSERT_NE(large, nullptr);
    EXPECT_GE(large->pages << PAGE_SHIFT, 300 * page_layer::kMiB);
    const size_t reserved = page_layer::stats().reserved_bytes;
    struct arena *next = added(1);
    ASSERT_NE(next, nullptr);
    EXPECT_GE(next->pages << PAGE_SHIFT, reserved / 4);
    EXPECT_EQ(page_layer::stats().reserved_bytes, reserved + (next->pages << PAGE_SHIFT));
}

TEST_F(Arena, BeyondTheBitmapIsRefused) { EXPECT_EQ(arena_add((size_t{1} << 20) + 1), -ENOMEM); }

TEST_F(Arena, RefusedReservationsShrink)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    os_fault_plan(0, 2, ENOMEM); // the first two sizes
    struct arena *small = added(3);
    os_fault_plan(0, 0, 0);
    ASSERT_NE(small, nullptr);
    EXPECT_LT(small->pages << PAGE_SHIFT, 64 * page_layer::kMiB);
    const size_t count = arena_count();
    os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
    EXPECT_EQ(arena_add(3), -ENOMEM);
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(arena_count(), count);
    EXPECT_EQ(arena_add(3), 0);
}

TEST_F(Arena, ThreadsAddTogether)
{
    const size_t before = arena_count();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([] {
            for (int round = 0; round < 5; round++)
                EXPECT_EQ(arena_add(1), 0);
        });
    for (std::thread &thread : threads)
        thread.join();
    ASSERT_EQ(arena_count(), before + 20);
    for (size_t i = 1; i < arena_count(); i++)
        EXPECT_LT(arena_at(i - 1)->base, arena_at(i)->base);
}

TEST(ArenaDeathTest, ReservedMemoryIsNotUsable)
{
    page_layer::start();
    ASSERT_EQ(arena_add(1), 0);
    volatile char *inside = arena_at(arena_count() - 1)->base + 100 * PAGE_BYTES;
    EXPECT_DEATH(*inside = 1, "");
}

} // namespace
