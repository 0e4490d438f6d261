// Misuse of first-class heaps and their blocks: one fault a case, the exact line, then SIGABRT.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/compiler.h"
#include "cairn/heap.h"
#include "cairn/heaps.h"

namespace
{

#define EXPECT_FAULT(statement, expected)                                                          \
    EXPECT_EXIT(statement, testing::KilledBySignal(SIGABRT), expected)

using testing::Eq;

std::string hex(const void *pointer)
{
    char text[32];
    snprintf(text, sizeof text, "0x%zx", reinterpret_cast<uintptr_t>(pointer));
    return text;
}

void use(void *) {}

class HeapsMisuse : public testing::Test
{
  protected:
    void TearDown() override
    {
        cairn_heap_delete(heap_);
        cairn_heap_delete(other_);
    }
    std::string not_of(const char *operation, const void *block, cairn_heap *heap)
    {
        return "cairn: " + std::string(operation) + " of " + hex(block) +
               ", which is not a block of heap " + hex(heap) + "\n";
    }
    std::string ended() { return "cairn: heap " + hex(heap_) + ": used after its end\n"; }

    cairn_heap *heap_ = cairn_heap_new(nullptr);
    cairn_heap *other_ = cairn_heap_new(nullptr);
};

TEST_F(HeapsMisuse, AHeapThatHasEnded)
{
    EXPECT_FAULT(
        {
            cairn_heap_delete(heap_);
            cairn_heap_delete(heap_);
        },
        Eq(ended()));
    EXPECT_FAULT(
        {
            cairn_heap_delete(heap_);
            use(cairn_heap_alloc(heap_, 10));
        },
        Eq(ended()));
    cairn_heap_own_stats stats;
    EXPECT_FAULT(
        {
            cairn_heap_delete(heap_);
            cairn_heap_read_own_stats(heap_, &stats);
        },
        Eq(ended()));
}

TEST_F(HeapsMisuse, AHeapThatHasEndedAndWhoseMemoryIsAnothersNow)
{
    EXPECT_FAULT(
        {
            cairn_heap_delete(heap_);
            if (cairn_heap_new(nullptr) == heap_)
                _exit(1);
            use(cairn_heap_alloc(heap_, 10));
        },
        Eq(ended()));
}

TEST_F(HeapsMisuse, NoHeapAtAll)
{
    EXPECT_FAULT(use(cairn_heap_alloc(nullptr, 10)), Eq("cairn: heap 0x0: used after its end\n"));
}

TEST_F(HeapsMisuse, TheBlockOfAnotherHeap)
{
    for (size_t size : {size_t{10}, size_t{5000}, size_t{100000}}) {
        void *block = cairn_heap_alloc(other_, size);
        EXPECT_FAULT(cairn_heap_free(heap_, block), Eq(not_of("free", block, heap_)));
        EXPECT_FAULT(use(cairn_heap_realloc(heap_, block, 20)),
                     Eq(not_of("realloc", block, heap_)));
        EXPECT_FAULT(use(cairn_heap_resize(heap_, block, 20)), Eq(not_of("resize", block, heap_)));
        cairn_heap_free(other_, block);
    }
}

TEST_F(HeapsMisuse, ABlockOfTheGeneralHeap)
{
    for (size_t size : {size_t{10}, size_t{5000}, size_t{100000}}) {
        void *block = cairn_malloc(size);
        EXPECT_FAULT(cairn_heap_free(heap_, block), Eq(not_of("free", block, heap_)));
        cairn_free(block);
    }
}

TEST_F(HeapsMisuse, ADoubleFree)
{
    void *block = cairn_heap_alloc(heap_, 40);
    const std::string size = "48"; // with a canary, too
    const std::string expected =
        "cairn: double free of " + hex(block) + " (" + size + "-byte block)\n";
    EXPECT_FAULT(
        {
            cairn_free(block);
            cairn_free(block);
        },
        Eq(expected));
    EXPECT_FAULT(
        {
            cairn_heap_free(heap_, block);
            cairn_heap_free(heap_, block);
        },
        Eq(expected));
    EXPECT_FAULT(cairn_heap_free(heap_, static_cast<char *>(block) + 16),
                 Eq("cairn: free of interior pointer " + hex(static_cast<char *>(block) + 16) +
                    " (" + size + "-byte block at " + hex(block) + ")\n"));
    cairn_free(block);
}

TEST_F(HeapsMisuse, ALargeBlockFreedTwice)
{
    void *block = cairn_heap_alloc(heap_, 100000);
    EXPECT_FAULT(
        {
            cairn_heap_free(heap_, block);
            cairn_heap_free(heap_, block);
        },
        Eq("cairn: double free of " + hex(block) + " (its memory is free)\n"));
    cairn_free(block);
}

// Its pages serve nobody else yet.
TEST_F(HeapsMisuse, ABlockOfAHeapThatHasEnded)
{
    for (size_t size : {size_t{1}, size_t{100}, size_t{5000}, size_t{100000}}) {
        char *block = static_cast<char *>(cairn_heap_alloc(heap_, size));
        const std::string place = hex(block);
        EXPECT_FAULT(
            {
                cairn_heap_delete(heap_);
                cairn_free(block);
            },
            testing::ContainsRegex("^cairn: (double )?free of " + place + "[^\n]*\n$"));
        EXPECT_FAULT(
            {
                cairn_heap_delete(heap_);
                use(cairn_realloc(block, size + 1));
            },
            testing::ContainsRegex("^cairn: realloc of [^\n]*" + place + "[^\n]*\n$"));
    }
}

// A heap of this process: in a child of fork the blocks of its parent's heaps are not looked at.
TEST_F(HeapsMisuse, AnOverflowIsFoundAtTheEndOfTheHeap)
{
    if (!config_canaries)
        GTEST_SKIP() << "hardened builds guard the end of a block";
    volatile size_t size = 40;
    EXPECT_FAULT(
        {
            cairn_heap *heap = cairn_heap_new(nullptr);
            char *volatile block = static_cast<char *>(cairn_heap_alloc(heap, size));
            block[size] = 1;
            cairn_heap_delete(heap);
        },
        "^cairn: overflow of 0x[0-9a-f]+ \\(48-byte block\\)\n$");
}

} // namespace
