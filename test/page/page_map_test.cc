// The page map, in this process and for a reader in another one.

#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "page/page_layer.h"

extern "C" {
#include "base/layout.h"
#include "os/fault.h"
#include "os/memory.h"
#include "page/state.h"
}

namespace page_map_test
{

// The page map: an entry that was set is found, and every other address leads to the null span.

constexpr uintptr_t kRegion = uintptr_t{1} << REGION_SHIFT;

// Only the map is touched at these addresses, which no mapping of this process has.
char *address(uintptr_t value) { return reinterpret_cast<char *>(value); }

class PageMap : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }
};

TEST_F(PageMap, ForeignAddressesFindTheNullSpan)
{
    int local = 0;
    for (const void *pointer :
         {static_cast<const void *>(nullptr), static_cast<const void *>(&local),
          static_cast<const void *>(address(1)), static_cast<const void *>(address(0x5000)),
          static_cast<const void *>(address(UINTPTR_MAX)),
          static_cast<const void *>(address(uintptr_t{1} << 47)),
          static_cast<const void *>(address(0xffff800000000000u))}) {
        EXPECT_EQ(page_map_find(pointer)->tag, SPAN_NONE) << pointer;
    }
    EXPECT_EQ(page_map.null_span.tag, SPAN_NONE);
    EXPECT_EQ(page_map.null_span.owner, 0u);
}

TEST_F(PageMap, FindsWhatWasSetAndNothingBeside)
{
    char *start = address(0x10 * kRegion + 0x123000);
    struct span *span = headers_make(page_layer::shard, 0, 1);
    ASSERT_NE(span, nullptr);
    ASSERT_EQ(page_map_cover(start, 8 * PAGE_BYTES), 0);
    EXPECT_EQ(page_map_find(start)->tag, SPAN_NONE);
    page_map_set(start + PAGE_BYTES, 3, span);
    EXPECT_EQ(page_map_find(start + PAGE_BYTES - 1)->tag, SPAN_NONE);
    EXPECT_EQ(page_map_find(start + PAGE_BYTES), span);
    EXPECT_EQ(page_map_find(start + 4 * PAGE_BYTES - 1), span);
    EXPECT_EQ(page_map_find(start + 4 * PAGE_BYTES)->tag, SPAN_NONE);
    page_map_set(start + 2 * PAGE_BYTES, 1, nullptr);
    EXPECT_EQ(page_map_find(start + PAGE_BYTES), span);
    EXPECT_EQ(page_map_find(start + 2 * PAGE_BYTES)->tag, SPAN_NONE);
    EXPECT_EQ(page_map_find(start + 3 * PAGE_BYTES), span);
    page_map_set(start, 8, nullptr);
}

TEST_F(PageMap, RunsCrossRegions)
{
    char *start = address(0x21 * kRegion - 2 * PAGE_BYTES);
    struct span *span = headers_make(page_layer::shard, 0, 1);
    ASSERT_EQ(page_map_cover(start, 4 * PAGE_BYTES), 0);
    page_map_set(start, 4, span);
    for (size_t page = 0; page < 4; page++)
        EXPECT_EQ(page_map_find(start + page * PAGE_BYTES), span);
    EXPECT_EQ(page_map_find(start + 4 * PAGE_BYTES)->tag, SPAN_NONE);
    EXPECT_EQ(page_map_find(start - 1)->tag, SPAN_NONE);
    page_map_set(start, 4, nullptr);
}

TEST_F(PageMap, MemoryForARangeWithoutEntriesGoesBack)
{
    const size_t pages_a_page = os_page_size() / sizeof(uint64_t); // of the map, for a page of it
    const size_t count = 4 * pages_a_page;
    char *start = address(0x31 * kRegion - 2 * pages_a_page * PAGE_BYTES);
    struct span *span = headers_make(page_layer::shard, 0, 1);
    ASSERT_NE(span, nullptr);
    ASSERT_EQ(page_map_cover(start, count * PAGE_BYTES), 0);
    const auto entry_is_resident = [&](size_t page) {
        const uintptr_t place = reinterpret_cast<uintptr_t>(start) + page * PAGE_BYTES;
        const auto entry = reinterpret_cast<uintptr_t>(page_map_entry(page_map_leaf(place), place));
        unsigned char state = 0;
        EXPECT_EQ(mincore(address(entry & ~(os_page_size() - 1)), 1, &state), 0);
        return (state & 1) != 0;
    };
    page_map_set(start, count, span);
    page_map_set(start + PAGE_BYTES, count - 2, nullptr);
    page_map_purge(start + PAGE_BYTES, count - 2);
    EXPECT_TRUE(entry_is_resident(0)) << "the page of the map has an entry";
    EXPECT_FALSE(entry_is_resident(pages_a_page)) << "up to the end of a region";
    EXPECT_FALSE(entry_is_resident(2 * pages_a_page)) << "from the next region's start";
    EXPECT_TRUE(entry_is_resident(3 * pages_a_page));
    EXPECT_EQ(page_map_find(start), span);
    EXPECT_EQ(page_map_find(start + pages_a_page * PAGE_BYTES)->tag, SPAN_NONE);
    EXPECT_EQ(page_map_find(start + (count - 1) * PAGE_BYTES), span);
    page_map_set(start + pages_a_page * PAGE_BYTES, 1, span);
    EXPECT_EQ(page_map_find(start + pages_a_page * PAGE_BYTES), span)
        << "the page of the map has entries again";
    page_map_set(start, count, nullptr);
}

TEST_F(PageMap, LastPagesOfARegionAndOfTheAddressSpace)
{
    struct span *span = headers_make(page_layer::shard, 0, 1);
    char *last = address(REGION_COUNT * kRegion - PAGE_BYTES);
    ASSERT_EQ(page_map_cover(last, PAGE_BYTES), 0);
    page_map_set(last, 1, span);
    EXPECT_EQ(page_map_find(last + PAGE_BYTES - 1), span);
    page_map_set(last, 1, nullptr);
    EXPECT_EQ(page_map_cover(last, PAGE_BYTES + 1), -EADDRNOTAVAIL);
    EXPECT_EQ(page_map_cover(address(uintptr_t{1} << 52), PAGE_BYTES), -EADDRNOTAVAIL);
    EXPECT_EQ(page_map_find(address(REGION_COUNT * kRegion))->tag, SPAN_NONE);
}

TEST_F(PageMap, RefusedMemoryIsAnErrorAndLaterWorks)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    ASSERT_EQ(page_map_cover(address(0x34 * kRegion), 1), 0); // uses the spare leaf
    char *start = address(0x33 * kRegion);
    for (size_t call = 0; call < 3; call++) {
        os_fault_plan(call, 1, ENOMEM);
        EXPECT_NE(page_map_cover(start, PAGE_BYTES), 0) << call;
        os_fault_plan(0, 0, 0);
        EXPECT_EQ(page_map_find(start)->tag, SPAN_NONE);
    }
    ASSERT_EQ(page_map_cover(start, PAGE_BYTES), 0);
    struct span *span = headers_make(page_layer::shard, 0, 1);
    page_map_set(start, 1, span);
    EXPECT_EQ(page_map_find(start), span);
    page_map_set(start, 1, nullptr);
}

TEST_F(PageMap, WhatIsPreparedCannotFail)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    ASSERT_EQ(page_map_cover(address(0x34 * kRegion), 1), 0); // uses the spare leaf
    struct span *span = headers_make(page_layer::shard, 0, 1);
    char *start = address(0x46 * kRegion - 5 * PAGE_BYTES);
    struct page_map_spares spares;
    os_fault_plan(2, SIZE_MAX / 2, ENOMEM);
    EXPECT_NE(page_map_prepare(kRegion, &spares), 0);
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(spares.leaf, nullptr);
    ASSERT_EQ(page_map_prepare(2 * kRegion, &spares), 0);
    os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
    page_map_cover_prepared(start, 2 * kRegion, &spares); // in three regions
    EXPECT_EQ(os_fault_plan(0, 0, 0), 0u) << "system calls";
    EXPECT_EQ(spares.leaf, nullptr);
    for (size_t at : {size_t{0}, size_t{kRegion}, 2 * size_t{kRegion} - PAGE_BYTES}) {
        EXPECT_EQ(page_map_find(start + at)->tag, SPAN_NONE);
        page_map_set(start + at, 1, span);
        EXPECT_EQ(page_map_find(start + at), span);
        page_map_set(start + at, 1, nullptr);
    }
    // A range that has its leaf needs no spare one.
    ASSERT_EQ(page_map_prepare(PAGE_BYTES, &spares), 0);
    page_map_cover_prepared(start, PAGE_BYTES, &spares);
    EXPECT_NE(spares.leaf, nullptr);
    page_map_drop(&spares);
    EXPECT_EQ(spares.leaf, nullptr);
}

TEST_F(PageMap, ThreadsMakeLeavesTogether)
{
    constexpr size_t kThreads = 8;
    std::vector<std::thread> threads;
    std::vector<struct span *> spans;
    for (size_t i = 0; i < kThreads; i++)
        spans.push_back(headers_make(page_layer::shard, 0, 1));
    for (size_t i = 0; i < kThreads; i++)
        threads.emplace_back([i, &spans] {
            for (uintptr_t region = 0x100; region < 0x140; region++) {
                char *mine = address(region * kRegion + i * PAGE_BYTES);
                ASSERT_EQ(page_map_cover(mine, PAGE_BYTES), 0);
                page_map_set(mine, 1, spans[i]);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    for (uintptr_t region = 0x100; region < 0x140; region++)
        for (size_t i = 0; i < kThreads; i++)
            ASSERT_EQ(page_map_find(address(region * kRegion + i * PAGE_BYTES)), spans[i]);
}

// Where a region has no leaf, its entry points at the root, which is then read as a leaf: entries
// of other regions must lead to null spans.
TEST_F(PageMap, RootEntriesReadAsALeafsLeadToNullSpans)
{
    struct span *span = headers_make(page_layer::shard, 0, 1);
    for (uintptr_t region : {uintptr_t{0x77}, uintptr_t{0x1234}, uintptr_t{0x1ffff}}) {
        char *start = address(region * kRegion);
        ASSERT_EQ(page_map_cover(start, PAGE_BYTES), 0);
        page_map_set(start, 1, span);
        // The pages whose entries would be at the places of these regions in the root.
        for (uintptr_t absent : {uintptr_t{0x3}, uintptr_t{0x2222}, uintptr_t{0x3fff0}}) {
            ASSERT_EQ(page_map.root[absent], 0u);
            const char *page = address(absent * kRegion + region * PAGE_BYTES);
            ASSERT_EQ(page_map_find(page)->tag, SPAN_NONE);
            ASSERT_EQ(page_map_find(page)->owner, 0u);
            ASSERT_NE(page_map_find(page), span);
        }
        page_map_set(start, 1, nullptr);
    }
}

TEST(PageMapDeathTest, NullSpansAreReadOnly)
{
    page_layer::start();
    ASSERT_EQ(page_map_cover(address(0x35 * kRegion), 1), 0);
    ASSERT_EQ(page_map_cover(address(0x36 * kRegion), 1), 0);
    for (uintptr_t region : {0x2, 0x35, 0x36}) {
        volatile auto *null_span = page_map_find(address(region * kRegion));
        EXPECT_DEATH(null_span->owner = 1, "");
    }
}

// The description `page_layout` leads a reader in another process from an address to its span.

uint64_t word_at(const void *start, uint64_t offset)
{
    uint64_t word;
    memcpy(&word, static_cast<const char *>(start) + offset, sizeof word);
    return word;
}

uint64_t value_of(const void *start, layout_field place)
{
    uint64_t value = 0;
    memcpy(&value, static_cast<const char *>(start) + place.offset, place.bytes);
    return value;
}

// The byte at an offset, which may be negative: the sum is one of addresses.
const char *at(const char *start, uint64_t offset)
{
    return reinterpret_cast<const char *>(reinterpret_cast<uintptr_t>(start) + offset);
}

// The header of the address's span, found as a reader in another process finds it: by the
// description alone.
const char *header_of(uintptr_t address)
{
    const char *map = static_cast<const char *>(page_layout.page_map);
    const char *leaf =
        at(map, word_at(map + page_layout.map_root, (address >> page_layout.region_shift) * 8));
    uintptr_t page =
        (address & ((uintptr_t{1} << page_layout.region_shift) - 1)) >> page_layout.page_shift;
    return at(leaf, word_at(leaf + page_layout.leaf_entries, page * 8));
}

TEST(PageLayout, LeadsFromAnAddressToItsSpan)
{
    struct span *span = pages_take(5, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    const char *header = header_of(reinterpret_cast<uintptr_t>(span->base));
    EXPECT_EQ(header, reinterpret_cast<const char *>(span));
    EXPECT_EQ(value_of(header, page_layout.span_tag), page_layout.tag_large);
    EXPECT_EQ(value_of(header, page_layout.span_base), reinterpret_cast<uintptr_t>(span->base));
    EXPECT_EQ(value_of(header, page_layout.span_pages), 5u);
    pages_give(span);
}

TEST(PageLayout, LeadsToTheArenasAndTheirCounts)
{
    struct span *span = pages_take(1, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    uint64_t count = word_at(page_layout.arena_count, 0);
    ASSERT_EQ(count, arena_count());
    bool found = false;
    for (uint64_t i = 0; i < count; i++) {
        const void *arena = arenas_added[i];
        EXPECT_EQ(word_at(page_layout.arenas, 8 * i), reinterpret_cast<uintptr_t>(arena));
        uint64_t base = value_of(arena, page_layout.arena_base);
        uint64_t bytes = value_of(arena, page_layout.arena_pages) << page_layout.page_shift;
        found |= reinterpret_cast<uintptr_t>(span->base) - base < bytes;
    }
    EXPECT_TRUE(found);
    EXPECT_EQ(value_of(page_layout.state, page_layout.state_committed_pages),
              pages_state.committed_pages);
    pages_give(span);
}

} // namespace page_map_test
