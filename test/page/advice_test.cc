// When the page layer advises the system to use huge pages, and how the heap grows while it does.
// Whether the system has huge pages is not checked: the tests read the marks "hg" (asked for) and
// "nh" (refused) of a mapping among VmFlags in /proc/self/smaps.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "os/resident.h"
#include "page/page_layer.h"

extern "C" {
#include "os/memory.h"
}

namespace advice_test
{

using page_layer::kMiB;

constexpr uint64_t kNever = 1000000;

void configure(enum huge_pages mode, size_t soft_limit_bytes = 0)
{
    const page_limits limits = {kNever, size_t{1} << 40, soft_limit_bytes, 0, mode};
    pages_configure(&limits);
}

// Whether the mapping that holds the address has the mark; false where the kernel does not report
// it.
bool has_mark(const char *address, const char *mark)
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
            return line.find(mark) != std::string::npos;
    }
    return false;
}

bool is_asked_for(const char *address) { return has_mark(address, " hg"); }

bool is_refused(const char *address) { return has_mark(address, " nh"); }

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
            pages_give_slab(slab, 0);
        configure(HUGE_PAGES_OFF);
        pages_trim(0);
        pages_verify();
    }
    // Takes slabs until `bytes` bytes are committed. `filled`: all their blocks count as handed
    // out.
    void grow_to(size_t bytes, bool filled = true)
    {
        while (page_layer::stats().committed_bytes < bytes) {
            if (forgets_cuts_)
                store_relaxed(&pages_state.small_pages, size_t{0});
            slabs_.push_back(page_layer::take_slab(1, filled));
            ASSERT_NE(slabs_.back(), nullptr);
        }
    }
    // The size from which a heap counts as large: what earlier cases left committed, or the
    // threshold.
    static size_t large()
    {
        const size_t there = page_layer::stats().committed_bytes;
        return there < HUGE_PAGES_FROM_BYTES ? HUGE_PAGES_FROM_BYTES : there;
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
    bool forgets_cuts_ = true; // independent of the huge pages that earlier cases cut
};

// Cases in which the kernel supports the advice and the option is `auto`.
class HugePagesAuto : public Advice
{
  protected:
    void SetUp() override
    {
        Advice::SetUp();
        if (config_fences || !kernel_has_huge_pages())
            GTEST_SKIP() << "this build or kernel uses no advice";
        configure(HUGE_PAGES_AUTO);
    }
};

TEST_F(Advice, NotNearALimit)
{
    if (os_page_size() != 4096)
        GTEST_SKIP() << "huge pages are longer here";
    configure(HUGE_PAGES_AUTO);
    const auto admitted = [](size_t bytes) { return limits_admit_huge_pages(bytes >> PAGE_SHIFT); };
    const size_t counted = pages_counted_bytes();
    EXPECT_TRUE(admitted(kMiB));
    pages_limit_hard(4 * (counted + 15 * kMiB)); // of which three quarters may be used
    EXPECT_TRUE(admitted(2 * counted + 45 * kMiB));
    EXPECT_FALSE(admitted(2 * counted + 46 * kMiB));
    pages_limit_soft(4 * (counted + 5 * kMiB));
    EXPECT_TRUE(admitted(2 * counted + 15 * kMiB));
    EXPECT_FALSE(admitted(2 * counted + 16 * kMiB));
    pages_limit_hard(0);
    EXPECT_FALSE(admitted(2 * counted + 16 * kMiB));
    pages_limit_soft(0);
    EXPECT_TRUE(admitted(2 * counted + 46 * kMiB));
    pages_press(true);
    EXPECT_FALSE(admitted(kMiB));
    pages_press(false);
    configure(HUGE_PAGES_OFF);
    EXPECT_FALSE(admitted(kMiB));
}

TEST_F(HugePagesAuto, OnlyALargeHeapAsks)
{
    grow_to(HUGE_PAGES_FROM_BYTES - 4 * kMiB);
    EXPECT_FALSE(any_is_asked_for());
    grow_to(HUGE_PAGES_FROM_BYTES + 40 * kMiB);
    EXPECT_TRUE(any_is_asked_for());
    EXPECT_FALSE(is_asked_for(slabs_.front()->base)) << "the former memory keeps its state";
    pages_verify();

    const struct arena *arena = arena_of(newest());
    ASSERT_NE(arena, nullptr);
    const auto end = reinterpret_cast<uintptr_t>(arena->base) + (arena->frontier << PAGE_SHIFT);
    EXPECT_TRUE(end % HUGE_PAGE_BYTES == 0 || !is_asked_for(reinterpret_cast<char *>(end) - 1))
        << "otherwise the kernel cannot use a whole huge page at the end";

    // Neither near a limit nor with the option off is the new memory advised.
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
    EXPECT_FALSE(is_asked_for(newest())) << "none of the memory was handed out";
}

// With `enabled=always` the kernel uses huge pages without a request. The blocks of many
// threads that touch a few pages each would then fill them.
TEST_F(HugePagesAuto, ASparseHeapRefusesThem)
{
    for (int i = 0; i < 2; i++) { // the two growths that are examined
        grow_to(page_layer::stats().committed_bytes + 8 * kMiB, false);
        EXPECT_TRUE(is_refused(newest())) << "none of the memory was handed out";
    }
    struct span *run = pages_take(5 * kMiB >> PAGE_SHIFT, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    EXPECT_FALSE(is_refused(span_end(run) - 1)) << "the program may fill it";
    pages_give(run);
    configure(HUGE_PAGES_OFF);
    grow_to(page_layer::stats().committed_bytes + 8 * kMiB, false);
    EXPECT_FALSE(is_refused(newest())) << "the option leaves huge pages to the system";
}

TEST_F(HugePagesAuto, ADenseSmallHeapLeavesThemToTheSystem)
{
    if (page_layer::stats().committed_bytes >= 2 * kMiB)
        GTEST_SKIP() << "other cases ran in this process";
    grow_to(HUGE_PAGES_FROM_BYTES); // the last growth begins below this size
    EXPECT_FALSE(is_asked_for(newest()));
    EXPECT_FALSE(is_refused(newest()));
}

// Otherwise the kernel would put the remaining pages together again and so bring back the purged
// memory.
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
    pages_give_slab(other, 0);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_FALSE(is_asked_for(place));
    std::vector<char *> places;
    for (struct span *slab : slabs_) {
        places.push_back(slab->base);
        memset(slab->base, 1, PAGE_BYTES);
        pages_give_slab(slab, 0);
    }
    slabs_.clear();
    EXPECT_TRUE(pages_trim(0));
    for (size_t i = 0; i < places.size(); i += 128) // 2 MiB
        EXPECT_FALSE(is_asked_for(places[i])) << i;
    pages_verify();
}

// Dividing a huge page costs time and releases little memory, so the next growth uses small pages.
TEST_F(HugePagesAuto, ACutHugePageIsMadeUpForInSmallPages)
{
    grow_to(large() + 40 * kMiB);
    ASSERT_TRUE(is_asked_for(newest()));
    char *place = slabs_[slabs_.size() - 8 * 64]->base; // 8 MiB before
    const auto address = reinterpret_cast<uintptr_t>(place);
    char *huge = place - address % HUGE_PAGE_BYTES;
    memset(huge, 1, HUGE_PAGE_BYTES);
    EXPECT_EQ(arena_withdraw_advice(huge, HUGE_PAGE_BYTES), 0u)
        << "an undivided huge page is purged as a whole";
    huge += HUGE_PAGE_BYTES;
    memset(huge, 1, HUGE_PAGE_BYTES);
    const uint64_t before = os_calls[OS_CALL_ADVISE];
    EXPECT_EQ(pages_purge_part(huge, 2), 2u);
    const uint64_t first = os_calls[OS_CALL_ADVISE] - before;
    EXPECT_EQ(pages_purge_part(huge + (4 << PAGE_SHIFT), 2), 2u);
    EXPECT_EQ(os_calls[OS_CALL_ADVISE] - before - first, 1u)
        << "the huge page was divided once, before";
    EXPECT_GE(first, 2u);
    EXPECT_TRUE(page_layer::reads(huge + (6 << PAGE_SHIFT), kMiB, 1))
        << "the rest keeps its content";

    const size_t committed = page_layer::stats().committed_bytes;
    forgets_cuts_ = false;
    grow_to(committed + 4 * kMiB);
    EXPECT_FALSE(is_asked_for(newest()));
    forgets_cuts_ = true;
    grow_to(committed + 24 * kMiB);
    EXPECT_TRUE(is_asked_for(newest())) << "huge pages are tried again";
}

// A huge page of which a single block was handed out is wholly resident, also where nothing was
// written.
TEST_F(HugePagesAuto, ATrimGivesBackTheRestOfAHugePage)
{
    grow_to(large() + 24 * kMiB);
    const struct arena *arena = arena_of(newest());
    char *end = arena->base + (arena->frontier << PAGE_SHIFT);
    char *last = end - HUGE_PAGE_BYTES;
    const size_t bytes = size_t{page_layer::kShapes[1].pages} << PAGE_SHIFT;
    while (newest() < last)
        slabs_.push_back(page_layer::take_slab(1, true));
    ASSERT_LT(newest(), last + kMiB) << "the heap is filled from its start";
    ASSERT_TRUE(is_asked_for(newest()));
    char *used = newest();
    char *rest = used + bytes;
    memset(used, 1, bytes);
    (void)pages_trim(0);
    EXPECT_EQ(resident_in(rest, static_cast<size_t>(end - rest)), 0u);
    EXPECT_EQ(resident_in(used, bytes), bytes);
    EXPECT_TRUE(page_layer::reads(used, bytes, 1));
    EXPECT_FALSE(pages_trim(0)) << "nothing can be released";
    pages_verify();
}

// The density of a heap of small blocks says nothing about how much of a long run will be touched.
TEST_F(HugePagesAuto, ALongRunOfADenseHeapDoesNotAsk)
{
    grow_to(large() + 24 * kMiB);
    ASSERT_TRUE(is_asked_for(newest()));
    while (!grow_is_touched())
        slabs_.push_back(page_layer::take_slab(1, true));
    const size_t bytes = 5 * kMiB; // a small part of the heap
    struct span *span = pages_take(bytes >> PAGE_SHIFT, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    EXPECT_FALSE(is_asked_for(span->base + bytes / 2));
    pages_give(span);
}

// malloc does not know whether the program will fill the block.
TEST_F(HugePagesAuto, ALongBlockIsAskedForWhereItIsASmallPart)
{
    struct span *span = pages_map_huge(1024 * kMiB, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    pages_expect_filled(span);
    EXPECT_FALSE(is_asked_for(span->base)) << "the block may be sparse";
    pages_give_huge(span);
    pages_trim(0); // it no longer counts

    grow_to(large() + 7 * 40 * kMiB);
    const size_t bytes = page_layer::stats().counted_bytes / kMiB / 10 * kMiB;
    span = pages_map_huge(bytes, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    pages_expect_filled(span);
    EXPECT_TRUE(is_asked_for(span->base));
    EXPECT_TRUE(is_asked_for(page_layer::end_of(span) - 1))
        << "the block is one mapping, so that it can move";
    struct span *second = pages_map_huge(bytes, PAGE_BYTES);
    ASSERT_NE(second, nullptr);
    pages_expect_filled(second);
    EXPECT_FALSE(is_asked_for(second->base)) << "all blocks together are a large part";
    pages_give_huge(second);
    pages_give_huge(span);
}

// A block that has grown was filled up to its former length.
TEST_F(HugePagesAuto, ABlockThatGrows)
{
    struct span *span = pages_map_growing(8 * kMiB);
    ASSERT_NE(span, nullptr);
    EXPECT_FALSE(is_asked_for(span->base));
    ASSERT_TRUE(pages_resize_huge(span, pages_growing_bytes(16 * kMiB), true));
    EXPECT_FALSE(is_asked_for(span->base)) << "the block is short and the heap is small";
    ASSERT_TRUE(pages_resize_huge(span, pages_growing_bytes(40 * kMiB), true));
    EXPECT_TRUE(is_asked_for(span->base));
    EXPECT_TRUE(is_asked_for(page_layer::end_of(span) - 1));

    struct span *leaps = pages_map_growing(16 * kMiB);
    ASSERT_NE(leaps, nullptr);
    ASSERT_TRUE(pages_resize_huge(leaps, 1024 * kMiB, true));
    EXPECT_FALSE(is_asked_for(leaps->base)) << "most of the block was never touched";
    pages_give_huge(leaps);

    grow_to(large() + 64 * kMiB);
    struct span *shorter = pages_map_growing(10 * kMiB);
    ASSERT_NE(shorter, nullptr);
    ASSERT_TRUE(pages_resize_huge(shorter, pages_growing_bytes(12 * kMiB), true));
    EXPECT_TRUE(is_asked_for(shorter->base)) << "the block is small compared with the heap";
    pages_give_huge(shorter);
    pages_give_huge(span);
}

// Linux 6.7 and later align mappings whose length is a multiple of the huge page.
TEST_F(HugePagesAuto, ABlockThatGrowsIsAsLongAsHugePages)
{
    EXPECT_EQ(pages_growing_bytes(2 * kMiB), 2 * kMiB + 2 * kMiB / 8);
    EXPECT_EQ(pages_growing_bytes(8 * kMiB), 10 * kMiB);
    EXPECT_EQ(pages_growing_bytes(10 * kMiB), 12 * kMiB);
    EXPECT_EQ(pages_growing_bytes(SIZE_MAX / 4) % HUGE_PAGE_BYTES, 0u);
}

} // namespace advice_test
