// Blocks on the stack: alignment, sizes, realloc; hooks; the out-of-memory function.

#include <string>
#include <vector>

#include "cairn/stack.h"
#include "frame/frame_kit.h"
#include "frame/stack_kit.h"

extern "C" {
#include "os/fault.h"
}

namespace stack_alloc_test
{

using namespace frame_kit;
using namespace stack_kit;

TEST(StackAlloc, EveryAlignmentIsHonoured)
{
    Stack stack = make();
    for (int round = 0; round < 3; round++)
        for (size_t align = 1; align <= 8 * kMiB; align *= 2) {
            volatile size_t variable = align;
            void *block = cairn_stack_alloc(stack.get(), 24, variable);
            ASSERT_NE(block, nullptr);
            ASSERT_TRUE(is_aligned(block, align));
            memset(block, 1, 24);
        }
    EXPECT_TRUE(is_aligned(cairn_stack_alloc(stack.get(), 1, 1), 1));
    EXPECT_TRUE(is_aligned(cairn_stack_alloc(stack.get(), 1, 64), 64));
    EXPECT_TRUE(is_aligned(cairn_stack_alloc(stack.get(), 1, 4096), 4096));
}

TEST(StackAlloc, BlocksLieSideBySide)
{
    if (frame_checked())
        GTEST_SKIP() << "checked stacks have canaries between their blocks";
    Stack stack = make();
    char *first = static_cast<char *>(cairn_stack_alloc(stack.get(), 8, 8));
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 8, 8), first + 8);
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 3, 1), first + 16);
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 16, 4), first + 24);
}

TEST(StackAlloc, SizeZeroIsABlockOfItsOwn)
{
    Stack stack = make();
    void *first = cairn_stack_alloc(stack.get(), 0, 1);
    void *second = cairn_stack_alloc(stack.get(), 0, 1);
    EXPECT_NE(first, nullptr);
    EXPECT_NE(first, second);
}

TEST(StackAlloc, RefusesWhatCannotBe)
{
    Stack stack = make();
    for (size_t size :
         {SIZE_MAX, SIZE_MAX - 7, SIZE_MAX - 4096, size_t{PTRDIFF_MAX}, size_t{PTRDIFF_MAX} + 1}) {
        errno = 0;
        EXPECT_EQ(cairn_stack_alloc(stack.get(), size, 8), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    volatile size_t huge = size_t{1} << 63;
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 8, huge), nullptr);
    EXPECT_EQ(cairn_stack_alloc(stack.get(), PTRDIFF_MAX, huge), nullptr); // their sum wraps to 0
    errno = 0;
    EXPECT_EQ(cairn_stack_alloc_array(stack.get(), SIZE_MAX / 4, 8, 8), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    for (size_t align : {size_t{0}, size_t{3}, size_t{48}}) {
        errno = 0;
        EXPECT_EQ(cairn_stack_alloc(stack.get(), 8, align), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
    EXPECT_NE(cairn_stack_alloc(stack.get(), 8, 8), nullptr);
}

TEST(StackAlloc, ZeroFormsAreZeroAlsoInUsedMemory)
{
    Stack stack = make();
    cairn_mark mark = cairn_stack_push(stack.get());
    memset(cairn_stack_alloc(stack.get(), 1000, 8), 0xff, 1000);
    cairn_stack_pop(stack.get(), mark);
    auto *bytes = static_cast<char *>(cairn_stack_alloc_array_zero(stack.get(), 100, 10, 8));
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(bytes[i], 0);
}

TEST(StackAlloc, ReallocOfTheNewestGrowsInPlace)
{
    if (frame_checked())
        GTEST_SKIP() << "checked stacks grow only within committed memory";
    cairn_stack_options options = {};
    options.reserve_bytes = 64 * kMiB;
    Stack stack = make(options);
    char *block = static_cast<char *>(cairn_stack_alloc(stack.get(), 10, 1));
    paint(block, 10, 1);
    for (size_t size = 10; size < 32 * kMiB; size *= 3)
        ASSERT_EQ(cairn_stack_realloc(stack.get(), block, size, 3 * size, 1), block);
    EXPECT_TRUE(is_painted(block, 10, 1));
}

TEST(StackAlloc, ReallocMovesAndKeepsContents)
{
    Stack stack = make();
    void *block = cairn_stack_alloc(stack.get(), 100, 16);
    paint(block, 100, 7);
    cairn_stack_alloc(stack.get(), 8, 8);
    void *moved = cairn_stack_realloc(stack.get(), block, 100, 5000, 16);
    ASSERT_NE(moved, block);
    EXPECT_TRUE(is_painted(moved, 100, 7));
    EXPECT_TRUE(is_aligned(moved, 16));
    EXPECT_EQ(cairn_stack_realloc(stack.get(), moved, 5000, 50, 16), moved);
    EXPECT_TRUE(is_painted(moved, 50, 7));
    EXPECT_NE(cairn_stack_realloc(stack.get(), nullptr, 0, 10, 8), nullptr);
}

TEST(StackAlloc, FailedReallocKeepsTheBlock)
{
    Stack stack = make();
    void *block = cairn_stack_alloc(stack.get(), 100, 8);
    paint(block, 100, 3);
    size_t before = used(stack);
    EXPECT_EQ(cairn_stack_realloc(stack.get(), block, 100, size_t{1} << 60, 8), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(is_painted(block, 100, 3));
    EXPECT_EQ(used(stack), before);
}

TEST(StackAlloc, ReallocAtTheMaximumKeepsTheBlock)
{
    cairn_stack_options options = {};
    options.max_bytes = 256 * kKiB;
    Stack stack = make(options);
    void *block = cairn_stack_alloc(stack.get(), 50 * kKiB, 8);
    paint(block, 50 * kKiB, 3);
    EXPECT_EQ(cairn_stack_realloc(stack.get(), block, 50 * kKiB, kMiB, 8), nullptr);
    EXPECT_TRUE(is_painted(block, 50 * kKiB, 3));
    EXPECT_NE(cairn_stack_alloc(stack.get(), 8, 8), nullptr);
}

// Where the memory behind the block is too short, realloc moves the block and does not touch the
// rest.
TEST(StackAlloc, ReallocThatDoesNotFitInItsBlockMovesToTheNext)
{
    Stack stack = make();
    cairn_stack_push(stack.get());
    void *block = cairn_stack_alloc(stack.get(), 50 * kKiB, 8);
    paint(block, 50 * kKiB, 3);
    cairn_allocator allocator = cairn_stack_allocator(stack.get());
    size_t before = used(stack);
    EXPECT_EQ(cairn_allocator_resize(allocator, block, 50 * kKiB, 3 * kMiB), nullptr);
    EXPECT_EQ(used(stack), before);
    cairn_stack_stats stats;
    cairn_stack_read_stats(stack.get(), &stats);
    EXPECT_EQ(stats.blocks, 1u);
    void *moved = cairn_stack_realloc(stack.get(), block, 50 * kKiB, 3 * kMiB, 8);
    ASSERT_NE(moved, nullptr);
    EXPECT_NE(moved, block);
    EXPECT_TRUE(is_painted(moved, 50 * kKiB, 3));
}

TEST(StackAlloc, Copies)
{
    Stack stack = make();
    int numbers[3] = {1, 2, 3};
    auto *copy =
        static_cast<int *>(cairn_stack_dup(stack.get(), numbers, sizeof numbers, alignof(int)));
    EXPECT_EQ(copy[2], 3);
    EXPECT_STREQ(cairn_stack_strdup(stack.get(), "cairn"), "cairn");
    EXPECT_STREQ(cairn_stack_strdup(stack.get(), ""), "");
    EXPECT_STREQ(cairn_stack_strndup(stack.get(), "cairn", 3), "cai");
    EXPECT_STREQ(cairn_stack_strndup(stack.get(), "cairn", 30), "cairn");
    const char unterminated[3] = {'a', 'b', 'c'};
    EXPECT_STREQ(cairn_stack_strndup(stack.get(), unterminated, 3), "abc");
}

// Hooks record that they were called.
struct Called {
    std::string *order;
    char letter;
    cairn_stack *stack;
};

void note(void *context)
{
    auto *called = static_cast<Called *>(context);
    called->order->push_back(called->letter);
}

// Defers a hook whose context is in the frame that the hook belongs to.
void defer(cairn_stack *stack, std::string &order, char letter, void (*hook)(void *) = note)
{
    auto *called = static_cast<Called *>(cairn_stack_alloc(stack, sizeof(Called), alignof(Called)));
    *called = {&order, letter, stack};
    ASSERT_EQ(cairn_stack_defer(stack, hook, called), 0);
}

TEST(StackDefer, HooksRunWhenTheirFrameEndsTheLastFirst)
{
    Stack stack = make();
    std::string order;
    cairn_mark outer = cairn_stack_push(stack.get());
    defer(stack.get(), order, 'a');
    defer(stack.get(), order, 'b');
    cairn_mark inner = cairn_stack_push(stack.get());
    cairn_stack_alloc(stack.get(), 100, 8);
    defer(stack.get(), order, 'c');
    cairn_stack_pop(stack.get(), inner);
    EXPECT_EQ(order, "c");
    cairn_stack_pop(stack.get(), cairn_stack_push(stack.get()));
    EXPECT_EQ(order, "c");
    cairn_stack_pop(stack.get(), outer);
    EXPECT_EQ(order, "cba");
    EXPECT_EQ(used(stack), 0u);
}

TEST(StackDefer, ThePopOfAnOuterFrameRunsThoseOfInnerOnes)
{
    Stack stack = make();
    std::string order;
    defer(stack.get(), order, 'a'); // outside any frame: runs when the stack ends
    cairn_mark outer = cairn_stack_push(stack.get());
    defer(stack.get(), order, 'b');
    for (int i = 0; i < 3; i++) {
        cairn_stack_push(stack.get());
        cairn_stack_alloc(stack.get(), 2 * kMiB, 8); // the stack moves to another block
        defer(stack.get(), order, static_cast<char>('c' + i));
    }
    testing::internal::CaptureStderr();
    cairn_stack_pop(stack.get(), outer);
    testing::internal::GetCapturedStderr();
    EXPECT_EQ(order, "edcb");
    cairn_stack_reset(stack.get());
    EXPECT_EQ(order, "edcba");
    cairn_stack_push(stack.get());
    defer(stack.get(), order, 'f');
    stack.reset();
    EXPECT_EQ(order, "edcbaf");
}

// A hook may use the stack, also for another hook, and sees the whole frame.
TEST(StackDefer, AHookMayAllocateAndDefer)
{
    Stack stack = make();
    static std::string order;
    order.clear();
    cairn_mark mark = cairn_stack_push(stack.get());
    auto *text = static_cast<char *>(cairn_stack_alloc(stack.get(), 1000, 8));
    paint(text, 1000, 5);
    defer(stack.get(), order, 'a', [](void *context) {
        auto *called = static_cast<Called *>(context);
        cairn_mark inner = cairn_stack_push(called->stack);
        EXPECT_NE(cairn_stack_alloc(called->stack, kMiB, 8), nullptr);
        cairn_stack_pop(called->stack, inner);
        defer(called->stack, *called->order, 'z');
        note(context);
    });
    defer(stack.get(), order, 'b');
    cairn_stack_pop(stack.get(), mark);
    EXPECT_EQ(order, "baz");
    EXPECT_EQ(used(stack), 0u);
}

TEST(StackDefer, RefusesNoFunction)
{
    Stack stack = make();
    EXPECT_EQ(cairn_stack_defer(stack.get(), nullptr, nullptr), EINVAL);
    char memory[128];
    cairn_stack_options options = {};
    options.buffer = memory;
    options.buffer_bytes = sizeof memory;
    options.fixed = true;
    std::string order;
    Called called = {&order, 'x', nullptr}; // lives longer than the stack, whose end calls `note`
    Stack small = make(options);
    int result = 0;
    for (int i = 0; i < 10 && result == 0; i++)
        result = cairn_stack_defer(small.get(), note, &called);
    EXPECT_EQ(result, ENOMEM);
    cairn_stack_reset(small.get());
    EXPECT_NE(cairn_stack_defer(small.get(), note, &called), EINVAL);
}

TEST(StackDeferDeathTest, AHookThatEndsItsOwnFrame)
{
    Stack stack = make();
    cairn_stack_push(stack.get());
    struct Both {
        cairn_stack *stack;
        cairn_mark mark;
    };
    static Both both;
    both = {stack.get(), cairn_stack_push(stack.get())};
    ASSERT_EQ(cairn_stack_defer(
                  stack.get(), [](void *) { cairn_stack_pop(both.stack, both.mark); }, nullptr),
              0);
    EXPECT_DEATH_LINE(cairn_stack_pop(stack.get(), both.mark),
                      "stack \"stack\": pop with a mark that is not open");
}

// The out-of-memory function.
struct Reserve {
    int left;
    std::vector<size_t> asked;
    cairn_stack *other;
};

bool give(void *context, size_t size_bytes)
{
    auto *reserve = static_cast<Reserve *>(context);
    reserve->asked.push_back(size_bytes);
    errno = 77; // overwritten, to show that the allocation restores errno
    return reserve->left-- > 0;
}

TEST(StackOutOfMemory, IsAskedUntilItSaysNo)
{
    alignas(64) char memory[4096];
    Reserve reserve = {2, {}, nullptr};
    cairn_stack_options options = {};
    options.buffer = memory;
    options.buffer_bytes = sizeof memory;
    options.fixed = true;
    options.out_of_memory = give;
    options.out_of_memory_context = &reserve;
    Stack stack = make(options);
    errno = 0;
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 5000, 8), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(reserve.asked, (std::vector<size_t>{5000, 5000, 5000}));
    reserve = {0, {}, nullptr};
    while (cairn_stack_push(stack.get()).frame != nullptr)
        continue;
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(reserve.asked, (std::vector<size_t>{sizeof(struct cairn_stack_frame)}));
    reserve.asked.clear();
    EXPECT_EQ(cairn_stack_alloc(stack.get(), SIZE_MAX, 8), nullptr); // no memory could serve it
    EXPECT_EQ(reserve.asked.size(), 0u);
}

// Memory that the function frees serves the request: here the function ends the injected failures
// of the system.
TEST(StackOutOfMemory, WhatItFreesServes)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    Reserve reserve = {1, {}, nullptr};
    cairn_stack_options options = {};
    options.out_of_memory = [](void *context, size_t size_bytes) {
        os_fault_plan(0, 0, 0); // now the system has memory
        return give(context, size_bytes);
    };
    options.out_of_memory_context = &reserve;
    Stack stack = make(options);
    os_fault_plan(0, 1000, ENOMEM);
    errno = 5;
    EXPECT_NE(cairn_stack_alloc(stack.get(), 3 * kMiB, 8), nullptr);
    EXPECT_EQ(errno, 5);
    EXPECT_EQ(reserve.asked, (std::vector<size_t>{3 * kMiB}));
}

} // namespace stack_alloc_test
