// The description of the page layer leads a reader from an address to its span.
#include "page_layer.h"

#include <gtest/gtest.h>
#include <string.h>

extern "C" {
#include "base/layout.h"
#include "page/state.h"
}

namespace
{

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

// As a reader outside does it: by the description only.
const char *header_of(uintptr_t address)
{
    const char *map = static_cast<const char *>(page_layout.page_map);
    const char *leaf =
        map + word_at(map + page_layout.map_root, (address >> page_layout.region_shift) * 8);
    uintptr_t page =
        (address & ((uintptr_t{1} << page_layout.region_shift) - 1)) >> page_layout.page_shift;
    return leaf + word_at(leaf + page_layout.leaf_entries, page * 8);
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
        const void *arena = arena_at(i);
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

} // namespace
