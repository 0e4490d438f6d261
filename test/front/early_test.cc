// Use before the dynamic linker has set up thread-local storage. test/hard has real early callers;
// here the two states that they meet are made by hand. Each case needs a process of its own, since
// these states exist only once.

#include <gtest/gtest.h>

#include "heap/heap_layer.h"

extern "C" void (*const front_early)(void);

namespace early_test
{

using heap_layer::allocate;
using heap_layer::in_thread;

TEST(Early, TheLinkerHasAReferenceToResolve)
{
    ASSERT_NE(front_early, nullptr);
    front_early(); // the function that it resolved to does nothing
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
        EXPECT_EQ(thread_heap, heap) << "an existing heap is kept";
        free_fast(block);
    });
}

// The linker writes the initial value over the word after the first blocks were allocated.
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
        free_fast(block); // as a block of another thread
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

} // namespace early_test
