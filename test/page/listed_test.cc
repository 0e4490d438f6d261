// Lists of spans that lie in no arena: places are used again, walks see what is in use, and a full
// list says so.

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "page/page_layer.h"

extern "C" {
#include "page/listed.h"
}

namespace
{

using page_layer::kMiB;

bool collect(struct span *span, char *start, void *context)
{
    static_cast<std::vector<std::pair<struct span *, char *>> *>(context)->push_back({span, start});
    return true;
}

std::vector<std::pair<struct span *, char *>> all(const struct span_list &list)
{
    std::vector<std::pair<struct span *, char *>> found;
    EXPECT_TRUE(listed_each(&list, collect, &found));
    return found;
}

TEST(Listed, PlacesAreTakenAndLeft)
{
    struct span *places[2] = {};
    const struct span_list list = {places, 2};
    struct span large = {};
    struct span slab = {};
    char memory[64];
    large.tag = SPAN_LARGE;
    large.base = memory;
    slab.tag = SPAN_SLAB + 3;
    slab.base = memory;
    slab.size_bytes = 16;
    EXPECT_TRUE(listed_add(&list, &large));
    EXPECT_TRUE(listed_add(&list, &slab));
    EXPECT_FALSE(listed_add(&list, &large)) << "it is full";
    ASSERT_EQ(all(list).size(), 2u);
    EXPECT_EQ(all(list)[0].second, memory);
    EXPECT_EQ(all(list)[1].second, memory + 16) << "a slab's base is a block early";
    slab.tag = SPAN_MOVING;
    EXPECT_EQ(all(list).size(), 1u) << "not in use";
    EXPECT_TRUE(listed_remove(&list, &large));
    EXPECT_FALSE(listed_remove(&list, &large));
    EXPECT_TRUE(listed_add(&list, &large));
    EXPECT_EQ(all(list).size(), 1u);
}

// What was taken while another thread forked is found by walks until it is given back.
TEST(Listed, WalksFindWhatWasTakenDuringAFork)
{
    page_layer::start();
    struct span *run = nullptr;
    struct span *slab = nullptr;
    pages_freeze();
    std::thread([&] {
        run = pages_take(5, PAGE_BYTES);
        slab = pages_take_slab(1);
    }).join();
    pages_thaw();
    ASSERT_TRUE(run && slab);
    const auto is_found = [](struct span *wanted) {
        std::vector<std::pair<struct span *, char *>> found;
        pages_each([](struct span *span, char *start,
                      void *context) { return collect(span, start, context); },
                   &found);
        size_t times = 0;
        for (auto &[span, start] : found)
            times += span == wanted;
        return times;
    };
    EXPECT_EQ(is_found(run), 1u);
    EXPECT_EQ(is_found(slab), 1u);
    pages_give(run);
    pages_give_slab(slab);
    EXPECT_EQ(is_found(run), 0u);
    EXPECT_EQ(is_found(slab), 0u);
}

} // namespace
