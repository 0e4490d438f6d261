// Use before the dynamic linker has set up thread-local storage. Real early callers are in
// test/hard; here the two states that they meet are made by hand.
// One process a case: what is early is early once.

#include <gtest/gtest.h>

#include "heap/heap_layer.h"

extern "C" void (*const front_early)(void);

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;

TEST(Early, TheLinkerHasAReferenceToResolve)
{
    ASSERT_NE(front_early, nullptr);
    front_early(); // what it resolved to does nothing
}

TEST(Early, AZeroWordGetsItsValue)
{
    in_thread([] {
        thread_heap = nullptr;
        heap_set_up_thread();
        EXPECT_EQ(thread_heap, &no_heap);
        void *block = allocate(10);
        EXPECT_NE(block, nullptr);
        struct heap *heap = thread_heap;
        heap_set_up_thread();
        EXPECT_EQ(thread_heap, heap) << "a heap that is there stays";
        free_fast(block);
    });
}

// The linker lays the initial value over the word after the first blocks were taken.
TEST(Early, BlocksOutliveTheWord)
{
    in_thread([] {
        char *block = static_cast<char *>(allocate(100));
        memset(block, 1, 100);
        struct heap *first = thread_heap;
        thread_heap = const_cast<struct heap *>(&no_heap);
        void *next = allocate(100);
        EXPECT_NE(next, nullptr);
        EXPECT_NE(thread_heap, first);
        EXPECT_EQ(block[99], 1);
        free_fast(block); // as another thread's
        free_fast(next);
    });
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST(Early, FreeOfNullBeforeTheWordHasItsValue)
{
    in_thread([] {
        thread_heap = nullptr;
        free_fast(nullptr);
        heap_set_up_thread();
    });
}

} // namespace
