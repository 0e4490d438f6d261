// The description of the heap layer: a reader in another process finds classes, link bytes and
// thread heaps by it.
#include "heap_layer.h"

extern "C" {
#include "base/layout.h"
}

namespace heap_layout_test
{

using heap_layer::allocate;
using heap_layer::span_of;

uint64_t value_of(const void *start, layout_field place)
{
    uint64_t value = 0;
    memcpy(&value, static_cast<const char *>(start) + place.offset, place.bytes);
    return value;
}

TEST(HeapLayout, SaysWhatTheClassesAre)
{
    const char *classes = static_cast<const char *>(heap_layout.size_classes);
    void *block = allocate(100);
    const struct span *slab = span_of(block);
    const char *row = classes + slab_class(slab) * heap_layout.size_class_bytes;
    EXPECT_EQ(value_of(row, heap_layout.class_size_bytes), slab->size_bytes);
    EXPECT_EQ(value_of(row, heap_layout.class_capacity), slab->capacity);
    EXPECT_EQ(value_of(row, heap_layout.class_pages), size_classes[slab_class(slab)].pages);
    free_fast(block);
}

TEST(HeapLayout, LeadsToTheLinkByteOfABlock)
{
    char *block = static_cast<char *>(allocate(100));
    const struct span *slab = span_of(block);
    size_t slot = static_cast<size_t>(block - slab->base) / slab->size_bytes;
    const uint8_t *link = reinterpret_cast<const uint8_t *>(slab + 1) + heap_layout.links_at + slot;
    EXPECT_EQ(*link, heap_layout.link_live);
    free_fast(block);
    EXPECT_NE(*link, heap_layout.link_live);
}

// A slab that became full is aside, and the one that replaced it is not.
TEST(HeapLayout, SaysWhichSlabsAreAside)
{
    std::vector<void *> blocks;
    blocks.push_back(allocate(100));
    const struct span *first = span_of(blocks.front());
    while (span_of(blocks.back()) == first)
        blocks.push_back(allocate(100));
    const auto use = [](const struct span *slab) {
        return value_of(reinterpret_cast<const char *>(slab + 1 + slab->side_units) -
                            heap_layout.cold_area_bytes,
                        heap_layout.cold_use) &
               heap_layout.use_mask;
    };
    EXPECT_EQ(use(first), heap_layout.use_aside);
    EXPECT_NE(use(span_of(blocks.back())), heap_layout.use_aside);
    for (void *block : blocks)
        free_fast(block);
}

TEST(HeapLayout, LeadsToTheThreadHeaps)
{
    const char *own = reinterpret_cast<const char *>(heap_layer::own_heap());
    void *block = allocate(100);
    EXPECT_EQ(span_of(block)->owner & ~uintptr_t{heap_layout.owner_tags},
              reinterpret_cast<uintptr_t>(own));
    free_fast(block);
    uint64_t heap;
    memcpy(&heap, heap_layout.all_heaps, sizeof heap);
    bool found = false;
    while (heap != 0) {
        found |= heap == reinterpret_cast<uintptr_t>(own);
        heap = value_of(reinterpret_cast<const char *>(heap), heap_layout.heap_next);
    }
    EXPECT_TRUE(found);
    EXPECT_EQ(value_of(own, heap_layout.heap_state), heap_layout.state_active);
}

} // namespace heap_layout_test
