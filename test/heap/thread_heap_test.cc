// The state of a thread before its first block, the lists of slabs, the list of all heaps.

#include "heap/heap_layer.h"

namespace thread_heap_test
{

using heap_layer::in_thread;
using heap_layer::own_heap;

TEST(ThreadHeap, AThreadBeginsWithTheHeapThatHasNothing)
{
    in_thread([] {
        EXPECT_EQ(thread_heap, &no_heap);
        for (const struct span *slab : thread_heap->current) {
            EXPECT_EQ(slab, &empty_slab.header);
        }
    });
    EXPECT_EQ(slab_pop(&empty_slab.header), nullptr);
}

TEST(ThreadHeap, AListOfSlabsKeepsItsOrder)
{
    heap_start();
    struct heap *heap = own_heap();
    struct span *slabs[3];
    struct bin bin = {};
    for (struct span *&slab : slabs) {
        slab = slab_make(heap, 3);
        ASSERT_NE(slab, nullptr);
        bin_append(&bin, slab);
    }
    EXPECT_EQ(bin.first, slabs[0]);
    EXPECT_EQ(bin.last, slabs[2]);
    bin_remove(&bin, slabs[1]);
    EXPECT_EQ(slabs[0]->next, slabs[2]);
    EXPECT_EQ(*slab_prev(slabs[2]), slabs[0]);
    bin_remove(&bin, slabs[2]);
    EXPECT_EQ(bin.last, slabs[0]);
    bin_remove(&bin, slabs[0]);
    EXPECT_EQ(bin.first, nullptr);
    EXPECT_EQ(bin.last, nullptr);
    for (struct span *slab : slabs)
        slab_retire(slab);
}

TEST(ThreadHeap, TheHeapIsListedOnce)
{
    const struct heap *own = own_heap();
    int times = 0;
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        times += heap == own;
    EXPECT_EQ(times, 1);
}

} // namespace thread_heap_test
