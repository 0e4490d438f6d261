// When the system is asked for huge pages, and what a growing heap asks for. Whether it has them to
// give is its own affair: what is looked at is the mapping's mark, "hg" among VmFlags.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "page/page_layer.h"

namespace
{

using page_layer::kMiB;

constexpr uint64_t kNever = 1000000;

void configure(enum huge_pages mode, size_t soft_limit_bytes = 0)
{
    const page_limits limits = {kNever, size_t{1} << 40, soft_limit_bytes, 0, mode};
    pages_configure(&limits);
}

// Whether the mapping that holds the address is marked; false where the kernel does not tell.
bool is_asked_for(const char *address)
{
    std::ifstream maps("/proc/self/smaps");
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        uintptr_t from = 0;
        uintptr_t to = 0;
        char dash = 0;
        std::istringstream text(line);
        if (text >> std::hex >> from >> dash >> to && dash == '-')
            here = from <= wanted && wanted < to;
        else if (here && line.rfind("VmFlags:", 0) == 0)
            return line.find(" hg") != std::string::npos;
    }
    return false;
}

bool kernel_has_huge_pages()
{
    if (os_page_size() != 4096)
        return false;
    void *probe = os_map(4 * kMiB);
    const bool has = probe && os_huge_pages(probe, 4 * kMiB, true) == 0 &&
                     is_asked_for(static_cast<char *>(probe));
    (void)os_unmap(probe, 4 * kMiB);
    return has;
}

class Advice : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }
    void TearDown() override
    {
        for (struct span *slab : slabs_)
            pages_give_slab(slab);
        configure(HUGE_PAGES_OFF);
        pages_trim(0);
        pages_verify();
    }
    // Slabs until so much is committed, whose blocks are handed out or not.
    void grow_to(size_t bytes, bool filled = true)
    {
        while (page_layer::stats().committed_bytes < bytes) {
            slabs_.push_back(page_layer::take_slab(1, filled));
            ASSERT_NE(slabs_.back(), nullptr);
        }
    }
    // What is there already, of the case before, or what it takes.
    static size_t large()
    {
        const size_t there = page_layer::stats().committed_bytes;
        return there < ADVICE_FROM_BYTES ? ADVICE_FROM_BYTES : there;
    }
    bool any_is_asked_for() const
    {
        for (size_t i = 0; i < slabs_.size(); i += 128) // 2 MiB
            if (is_asked_for(slabs_[i]->base))
                return true;
        return false;
    }
    char *newest() const { return slabs_.back()->base; }
    std::vector<struct span *> slabs_;
};

// Where the system can be asked, and is.
class HugePagesAuto : public Advice
{
  protected:
    void SetUp() override
    {
        Advice::SetUp();
        if (config_fences || !kernel_has_huge_pages())
            GTEST_SKIP() << "nothing is asked for here";
        configure(HUGE_PAGES_AUTO);
    }
};

TEST_F(Advice, NotNearALimit)
{
    if (os_page_size() != 4096)
        GTEST_SKIP() << "huge pages are longer";
    EXPECT_TRUE(advice_admits(100 * kMiB, kMiB, 0));
    EXPECT_TRUE(advice_admits(70 * kMiB, 5 * kMiB, 100 * kMiB));
    EXPECT_FALSE(advice_admits(70 * kMiB, 6 * kMiB, 100 * kMiB));
    EXPECT_FALSE(advice_admits(SIZE_MAX / 2, 0, 100 * kMiB));
}

TEST_F(HugePagesAuto, OnlyALargeHeapAsks)
{
    grow_to(ADVICE_FROM_BYTES - 8 * kMiB);
    EXPECT_FALSE(any_is_asked_for());
    grow_to(ADVICE_FROM_BYTES + 40 * kMiB);
    EXPECT_TRUE(any_is_asked_for());
    EXPECT_FALSE(is_asked_for(slabs_.front()->base)) << "what was there before stays as it was";
    pages_verify();

    const struct arena *arena = arena_find(newest());
    ASSERT_NE(arena, nullptr);
    const auto end = reinterpret_cast<uintptr_t>(arena->base) + (arena->frontier << PAGE_SHIFT);
    EXPECT_TRUE(end % HUGE_PAGE_BYTES == 0 || !is_asked_for(reinterpret_cast<char *>(end) - 1))
        << "else the kernel can not give the last one whole";

    // Near a limit no more is asked for, and switched off neither.
    for (const bool off : {false, true}) {
        const size_t counted = page_layer::stats().counted_bytes;
        configure(off ? HUGE_PAGES_OFF : HUGE_PAGES_AUTO, off ? 0 : counted + 24 * kMiB);
        grow_to(page_layer::stats().committed_bytes + 12 * kMiB);
        EXPECT_FALSE(is_asked_for(newest()));
    }
}

TEST_F(HugePagesAuto, ASparseHeapDoesNotAsk)
{
    grow_to(large() + 64 * kMiB, false);
    EXPECT_FALSE(is_asked_for(newest())) << "nothing of it was handed out";
}

// The system put what was left together again, and so brought back what had gone.
TEST_F(HugePagesAuto, WhatGoesBackIsAskedForNoMore)
{
    grow_to(large() + 40 * kMiB);
    ASSERT_TRUE(is_asked_for(newest()));
    EXPECT_EQ(pages_purge_part(newest(), 1), 1u);
    EXPECT_FALSE(is_asked_for(newest()));
    struct span *other = slabs_[slabs_.size() - 16 * 64]; // 16 MiB before
    ASSERT_TRUE(is_asked_for(other->base));
    char *place = other->base;
    std::swap(slabs_[slabs_.size() - 16 * 64], slabs_.back());
    slabs_.pop_back();
    memset(place, 1, PAGE_BYTES);
    pages_give_slab(other);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_FALSE(is_asked_for(place));
    std::vector<char *> places;
    for (struct span *slab : slabs_) {
        places.push_back(slab->base);
        memset(slab->base, 1, PAGE_BYTES);
        pages_give_slab(slab);
    }
    slabs_.clear();
    EXPECT_TRUE(pages_trim(0));
    for (size_t i = 0; i < places.size(); i += 128) // 2 MiB
        EXPECT_FALSE(is_asked_for(places[i])) << i;
    pages_verify();
}

// Each was zeroed and divided for little, and its memory stayed the process's.
TEST_F(HugePagesAuto, ACutHugePageIsMadeUpForInSmallPages)
{
    grow_to(large() + 40 * kMiB);
    ASSERT_TRUE(is_asked_for(newest()));
    char *place = slabs_[slabs_.size() - 8 * 64]->base; // 8 MiB before
    const auto address = reinterpret_cast<uintptr_t>(place);
    char *huge = place - address % HUGE_PAGE_BYTES;
    memset(huge, 1, HUGE_PAGE_BYTES);
    EXPECT_EQ(arena_withdraw_advice(huge, HUGE_PAGE_BYTES), 0u) << "not cut: all of it goes";
    huge += HUGE_PAGE_BYTES;
    memset(huge, 1, HUGE_PAGE_BYTES);
    const uint64_t before = os_calls[OS_CALL_ADVISE];
    EXPECT_EQ(pages_purge_part(huge, 2), 2u);
    const uint64_t first = os_calls[OS_CALL_ADVISE] - before;
    EXPECT_EQ(pages_purge_part(huge + (4 << PAGE_SHIFT), 2), 2u);
    EXPECT_EQ(os_calls[OS_CALL_ADVISE] - before - first, 1u) << "divided once, before";
    EXPECT_GE(first, 2u);
    EXPECT_TRUE(page_layer::reads(huge + (6 << PAGE_SHIFT), kMiB, 1)) << "the rest stays";

    const size_t committed = page_layer::stats().committed_bytes;
    grow_to(committed + 4 * kMiB);
    EXPECT_FALSE(is_asked_for(newest()));
    grow_to(committed + 24 * kMiB);
    EXPECT_TRUE(is_asked_for(newest())) << "tried again";
}

// A huge page of which one block was handed out is resident whole, though nothing was ever there.
TEST_F(HugePagesAuto, ATrimGivesBackTheRestOfAHugePage)
{
    grow_to(large() + 24 * kMiB);
    const struct arena *arena = arena_find(newest());
    char *end = arena->base + (arena->frontier << PAGE_SHIFT);
    char *last = end - HUGE_PAGE_BYTES;
    const size_t bytes = size_t{page_layer::kShapes[1].pages} << PAGE_SHIFT;
    while (newest() < last)
        slabs_.push_back(page_layer::take_slab(1, true));
    ASSERT_LT(newest(), last + kMiB) << "filled from its start";
    ASSERT_TRUE(is_asked_for(newest()));
    char *used = newest();
    char *rest = used + bytes;
    memset(used, 1, bytes);
    (void)pages_trim(0);
    EXPECT_EQ(os_resident(rest, static_cast<size_t>(end - rest)), 0u);
    EXPECT_EQ(os_resident(used, bytes), bytes);
    EXPECT_TRUE(page_layer::reads(used, bytes, 1));
    EXPECT_FALSE(pages_trim(0)) << "nothing is left to give back";
    pages_verify();
}

// What became of a heap of small blocks says nothing of a long one.
TEST_F(HugePagesAuto, ALongRunOfADenseHeapDoesNotAsk)
{
    grow_to(large() + 24 * kMiB);
    ASSERT_TRUE(is_asked_for(newest()));
    while (!dense_is_filled())
        slabs_.push_back(page_layer::take_slab(1, true));
    struct span *span = pages_take(24 * kMiB >> PAGE_SHIFT, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    EXPECT_FALSE(is_asked_for(span->base + 12 * kMiB));
    pages_give(span);
}

TEST_F(HugePagesAuto, LongBlocksThatWillBeFilled)
{
    struct span *span = pages_map_huge(ADVICE_FROM_BYTES, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    EXPECT_FALSE(is_asked_for(span->base)) << "it may be sparse";
    pages_expect_filled(span);
    EXPECT_TRUE(is_asked_for(span->base));
    EXPECT_TRUE(is_asked_for(page_layer::end_of(span) - 1)) << "one mapping, so that it can move";
    pages_give_huge(span);

    span = pages_map_huge(ADVICE_FROM_BYTES / 2, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    pages_expect_filled(span);
    EXPECT_FALSE(is_asked_for(span->base)) << "there is little beside it";
    ASSERT_TRUE(pages_resize_huge(span, ADVICE_FROM_BYTES, true));
    EXPECT_TRUE(is_asked_for(span->base)) << "it has grown";
    EXPECT_TRUE(is_asked_for(page_layer::end_of(span) - 1));

    struct span *beside = pages_map_huge(2 * ADVICE_FROM_BYTES, PAGE_BYTES);
    struct span *shorter = pages_map_huge(ADVICE_FROM_BYTES / 2, PAGE_BYTES);
    ASSERT_TRUE(beside != nullptr && shorter != nullptr);
    grow_to(page_layer::stats().committed_bytes + ADVICE_FROM_BYTES);
    pages_expect_filled(shorter);
    EXPECT_TRUE(is_asked_for(shorter->base)) << "little beside what there is";
    for (struct span *huge : {span, beside, shorter})
        pages_give_huge(huge);
}

} // namespace
