// Which slab a heap allocates from next, and its trim.

#include <vector>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;

class HeapSlabs : public heap_layer::OwnHeap
{
};

TEST_F(HeapSlabs, ASlabWithRoomIsUsedBeforeANewOne)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 4000; i++)
        blocks.push_back(allocate(64));
    const size_t slab_bytes = heap_layer::stats().slab_bytes;
    for (size_t i = 0; i < blocks.size(); i += 2)
        free_fast(blocks[i]);
    for (size_t i = 0; i < blocks.size(); i += 2)
        blocks[i] = allocate(64);
    // Quarantine keeps some for itself.
    EXPECT_LE(heap_layer::stats().slab_bytes, slab_bytes + (config_quarantine ? 32 * kKiB : 0));
    heap_layer::verify();
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(HeapSlabs, EmptySlabsGoBack)
{
    for (size_t size : {size_t{16}, size_t{1000}, 3 * kKiB, 30 * kKiB}) {
        heap_trim(thread_heap);
        const size_t before = heap_layer::stats().slab_bytes;
        std::vector<void *> blocks;
        for (int i = 0; i < 2000; i++)
            blocks.push_back(allocate(size));
        for (void *block : blocks)
            free_fast(block);
        quarantine_flush(thread_heap);
        heap_layer::verify();
        EXPECT_LE(heap_layer::stats().slab_bytes, before + 600 * kKiB) << size;
        heap_trim(thread_heap);
        EXPECT_LE(heap_layer::stats().slab_bytes, before) << size;
    }
}

TEST_F(HeapSlabs, AnIdleHeapCostsLittle)
{
    in_thread([] {
        const size_t before = heap_layer::stats().slab_bytes;
        for (size_t size = 1; size < 2 * kKiB; size *= 2)
            free_fast(allocate(size));
        EXPECT_LE(heap_layer::stats().slab_bytes, before + 400 * kKiB);
    });
    EXPECT_LE(heap_layer::stats().slab_bytes, 100 * kKiB) << "an ended thread's slabs are gone";
}

} // namespace
