// Statistics by size and by thread: the rows for a known number of blocks.
#include "heap_layer.h"

#include <thread>
#include <vector>

namespace heap_rows_test
{

using heap_layer::allocate;
using heap_layer::span_of;

std::vector<cairn_heap_class_stats> classes()
{
    std::vector<cairn_heap_class_stats> rows(heap_read_classes(nullptr, 0));
    EXPECT_EQ(heap_read_classes(rows.data(), rows.size()), rows.size());
    return rows;
}

std::vector<cairn_heap_thread_stats> threads()
{
    std::vector<cairn_heap_thread_stats> rows(heap_read_threads(nullptr, 0) + 4);
    rows.resize(heap_read_threads(rows.data(), rows.size()));
    return rows;
}

cairn_heap_thread_stats row_of(const struct heap *heap)
{
    for (const cairn_heap_thread_stats &row : threads())
        if (row.heap == heap)
            return row;
    ADD_FAILURE() << "no row for that heap";
    return {};
}

TEST(HeapRows, ASizesBlocksAreCounted)
{
    void *first = allocate(100);
    unsigned size_class = slab_class(span_of(first));
    cairn_heap_class_stats before = classes()[size_class];
    EXPECT_EQ(before.block_bytes, span_of(first)->size_bytes);
    std::vector<void *> blocks(1000);
    for (void *&block : blocks)
        block = allocate(100);
    cairn_heap_class_stats row = classes()[size_class];
    EXPECT_EQ(row.live_blocks, before.live_blocks + 1000);
    EXPECT_GT(row.slabs, before.slabs);
    EXPECT_EQ(row.live_blocks + row.free_blocks, row.slabs * size_classes[size_class].capacity);
    EXPECT_EQ(row.slab_bytes, row.slabs * size_classes[size_class].pages * PAGE_BYTES);
    for (void *block : blocks)
        free_fast(block);
    EXPECT_EQ(classes()[size_class].live_blocks, before.live_blocks);
    free_fast(first);
}

TEST(HeapRows, NoMoreRowsAreWrittenThanThereIsRoomFor)
{
    cairn_heap_class_stats rows[3] = {{}, {}, {12345, 0, 0, 0, 0}};
    EXPECT_GE(heap_read_classes(rows, 2), unsigned{SIZED_CLASSES});
    EXPECT_EQ(rows[2].block_bytes, 12345u);
    heap_layer::own_heap();
    EXPECT_GE(heap_read_threads(nullptr, 0), 1u);
}

TEST(HeapRows, AThreadsBlocksAreItsHeaps)
{
    const struct heap *other = nullptr;
    std::vector<void *> blocks(500);
    std::thread thread([&] {
        other = heap_layer::own_heap();
        cairn_heap_thread_stats before = row_of(other);
        for (void *&block : blocks)
            block = allocate(200);
        cairn_heap_thread_stats row = row_of(other);
        EXPECT_TRUE(row.is_current);
        EXPECT_FALSE(row.is_orphan);
        EXPECT_EQ(row.live_blocks, before.live_blocks + 500);
        EXPECT_EQ(row.live_bytes, before.live_bytes + 500 * span_of(blocks[0])->size_bytes);
    });
    thread.join();
    cairn_heap_thread_stats row = row_of(other);
    EXPECT_FALSE(row.is_current);
    EXPECT_TRUE(row.is_orphan);
    EXPECT_GE(row.live_blocks, 500u);
    for (void *block : blocks)
        free_fast(block);
}

} // namespace heap_rows_test
