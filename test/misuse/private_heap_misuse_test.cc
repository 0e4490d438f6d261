// Misuse of private heaps and their blocks: one error a case, the exact line, then SIGABRT.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/compiler.h"
#include "cairn/heap.h"
#include "cairn/private_heap.h"

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

class PrivateHeapMisuse : public testing::Test
{
  protected:
    void TearDown() override
    {
        cairn_private_heap_delete(heap_);
        cairn_private_heap_delete(other_);
    }
    std::string not_of(const char *operation, const void *block, cairn_private_heap *heap)
    {
        return "cairn: " + std::string(operation) + " of " + hex(block) +
               ", which is not a block of heap " + hex(heap) + "\n";
    }
    std::string ended()
    {
        return "cairn: heap " + hex(heap_) + ": used after cairn_private_heap_delete\n";
    }

    cairn_private_heap *heap_ = cairn_private_heap_new(nullptr);
    cairn_private_heap *other_ = cairn_private_heap_new(nullptr);
};

TEST_F(PrivateHeapMisuse, AHeapThatHasEnded)
{
    EXPECT_FAULT(
        {
            cairn_private_heap_delete(heap_);
            cairn_private_heap_delete(heap_);
        },
        Eq(ended()));
    EXPECT_FAULT(
        {
            cairn_private_heap_delete(heap_);
            use(cairn_private_heap_alloc(heap_, 10));
        },
        Eq(ended()));
    cairn_private_heap_stats stats;
    EXPECT_FAULT(
        {
            cairn_private_heap_delete(heap_);
            cairn_private_heap_read_stats(heap_, &stats);
        },
        Eq(ended()));
}

TEST_F(PrivateHeapMisuse, AHeapThatHasEndedAndWhoseMemoryIsAnothersNow)
{
    EXPECT_FAULT(
        {
            cairn_private_heap_delete(heap_);
            if (cairn_private_heap_new(nullptr) == heap_)
                _exit(1);
            use(cairn_private_heap_alloc(heap_, 10));
        },
        Eq(ended()));
}

TEST_F(PrivateHeapMisuse, NoHeapAtAll)
{
    EXPECT_FAULT(use(cairn_private_heap_alloc(nullptr, 10)),
                 Eq("cairn: heap 0x0: used after cairn_private_heap_delete\n"));
}

TEST_F(PrivateHeapMisuse, TheBlockOfAnotherHeap)
{
    for (size_t size : {size_t{10}, size_t{5000}, size_t{100000}}) {
        void *block = cairn_private_heap_alloc(other_, size);
        EXPECT_FAULT(cairn_private_heap_free(heap_, block), Eq(not_of("free", block, heap_)));
        EXPECT_FAULT(use(cairn_private_heap_realloc(heap_, block, 20)),
                     Eq(not_of("realloc", block, heap_)));
        EXPECT_FAULT(use(cairn_private_heap_resize(heap_, block, 20)),
                     Eq(not_of("resize", block, heap_)));
        cairn_private_heap_free(other_, block);
    }
}

TEST_F(PrivateHeapMisuse, ABlockOfTheGeneralHeap)
{
    for (size_t size : {size_t{10}, size_t{5000}, size_t{100000}}) {
        void *block = cairn_malloc(size);
        EXPECT_FAULT(cairn_private_heap_free(heap_, block), Eq(not_of("free", block, heap_)));
        cairn_free(block);
    }
}

TEST_F(PrivateHeapMisuse, ADoubleFree)
{
    void *block = cairn_private_heap_alloc(heap_, 40);
    const std::string size = "48"; // also with a canary
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
            cairn_private_heap_free(heap_, block);
            cairn_private_heap_free(heap_, block);
        },
        Eq(expected));
    EXPECT_FAULT(cairn_private_heap_free(heap_, static_cast<char *>(block) + 16),
                 Eq("cairn: free of interior pointer " + hex(static_cast<char *>(block) + 16) +
                    " (" + size + "-byte block at " + hex(block) + ")\n"));
    cairn_free(block);
}

TEST_F(PrivateHeapMisuse, ALargeBlockFreedTwice)
{
    void *block = cairn_private_heap_alloc(heap_, 100000);
    EXPECT_FAULT(
        {
            cairn_private_heap_free(heap_, block);
            cairn_private_heap_free(heap_, block);
        },
        Eq("cairn: double free of " + hex(block) + " (its memory is free)\n"));
    cairn_free(block);
}

// The pages of the deleted heap are not in use again yet.
TEST_F(PrivateHeapMisuse, ABlockOfAHeapThatHasEnded)
{
    for (size_t size : {size_t{1}, size_t{100}, size_t{5000}, size_t{100000}}) {
        char *block = static_cast<char *>(cairn_private_heap_alloc(heap_, size));
        const std::string place = hex(block);
        EXPECT_FAULT(
            {
                cairn_private_heap_delete(heap_);
                cairn_free(block);
            },
            testing::ContainsRegex("^cairn: (double )?free of " + place + "[^\n]*\n$"));
        EXPECT_FAULT(
            {
                cairn_private_heap_delete(heap_);
                use(cairn_realloc(block, size + 1));
            },
            testing::ContainsRegex("^cairn: realloc of [^\n]*" + place + "[^\n]*\n$"));
    }
}

// The heap is made in the child: a child of fork does not check the blocks of its parent's heaps.
TEST_F(PrivateHeapMisuse, AnOverflowIsFoundAtTheEndOfTheHeap)
{
    if (!config_canaries)
        GTEST_SKIP() << "hardened builds guard the end of a block";
    volatile size_t size = 40;
    EXPECT_FAULT(
        {
            cairn_private_heap *heap = cairn_private_heap_new(nullptr);
            char *volatile block = static_cast<char *>(cairn_private_heap_alloc(heap, size));
            block[size] = 1;
            cairn_private_heap_delete(heap);
        },
        "^cairn: overflow of 0x[0-9a-f]+ \\(48-byte block\\)\n$");
}

} // namespace
