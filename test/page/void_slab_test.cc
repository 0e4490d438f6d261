// Zero-size slabs: addresses that fault, found by each of their pages, walked, bounded in number.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "page/page_layer.h"

namespace void_slab_test
{

constexpr unsigned kClass = 2;
constexpr size_t kBytes = page_layer::kShapes[kClass].pages * size_t{PAGE_BYTES};

class VoidSlab : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    // Takes a zero-size slab with slots of one page each, as the heap leaves one.
    static struct span *take()
    {
        struct span *slab = pages_take_zero_size_slab(kClass);
        if (slab) {
            slab->size_bytes = PAGE_BYTES;
            slab->base -= PAGE_BYTES;
        }
        return slab;
    }
    static void give(struct span *slab)
    {
        slab->base += PAGE_BYTES;
        pages_give_zero_size_slab(slab);
    }
    static char *start_of(const struct span *slab) { return slab->base + PAGE_BYTES; }
    static void collect(struct span *slab, char *start, void *context)
    {
        if (start == start_of(slab))
            static_cast<std::vector<struct span *> *>(context)->push_back(slab);
    }
    static std::vector<struct span *> listed()
    {
        std::vector<struct span *> slabs;
        pages_each_outside(collect, &slabs);
        return slabs;
    }
};

TEST_F(VoidSlab, EveryPageLeadsToIt)
{
    struct span *slab = take();
    ASSERT_NE(slab, nullptr);
    for (size_t at = 0; at < kBytes; at += PAGE_BYTES / 2) {
        char *start = nullptr;
        EXPECT_EQ(page_map_find(start_of(slab) + at), slab);
        EXPECT_EQ(pages_search(start_of(slab) + at, &start), slab);
        EXPECT_EQ(start, start_of(slab));
    }
    char *base = start_of(slab);
    EXPECT_EQ(slab_class(slab), kClass);
    EXPECT_EQ(listed(), std::vector<struct span *>{slab});
    give(slab);
    EXPECT_FALSE(page_map_holds(reinterpret_cast<uintptr_t>(base)));
    EXPECT_TRUE(listed().empty());
}

TEST_F(VoidSlab, AccessFaults)
{
    struct span *slab = take();
    volatile char *start = start_of(slab);
    EXPECT_DEATH(start[0] = 1, "");
    EXPECT_DEATH((void)start[kBytes - 1], "");
    give(slab);
}

TEST_F(VoidSlab, ItCountsAsNoMemory)
{
    struct span *slab = take();
    const page_stats stats = page_layer::stats();
    EXPECT_EQ(stats.huge_bytes, 0u);
    EXPECT_EQ(stats.committed_bytes, 0u);
    give(slab);
}

TEST_F(VoidSlab, ThereIsAnEndToThem)
{
    std::vector<struct span *> slabs;
    while (struct span *slab = take()) {
        slabs.push_back(slab);
        ASSERT_LE(slabs.size(), 100000u);
    }
    EXPECT_GE(slabs.size(), config_zero_size_blocks ? 1000u : 1u);
    std::vector<struct span *> found = listed();
    std::sort(found.begin(), found.end());
    std::vector<struct span *> expected = slabs;
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found, expected);
    give(slabs.back());
    slabs.back() = take(); // an entry and a header are free again
    ASSERT_NE(slabs.back(), nullptr);
    for (struct span *slab : slabs)
        give(slab);
    EXPECT_TRUE(listed().empty());
}

} // namespace void_slab_test
