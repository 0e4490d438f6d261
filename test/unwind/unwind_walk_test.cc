// The walk finds the stacks that the C runtime's unwinder finds, or refuses.

#include <alloca.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "unwind/by_frame.h"

extern "C" {
#include "unwind/unwind.h"
#include "unwind/unwind_rules.h"
#include "unwind/unwind_walk.h"
}

namespace unwind_walk_test
{

constexpr unsigned kMost = 200;

struct Outcome {
    unsigned equal = 0;
    unsigned refused = 0;
    std::string difference;
};
Outcome *outcome;

std::string text(const std::vector<uintptr_t> &frames)
{
    std::string all;
    for (uintptr_t frame : frames)
        all += std::to_string(frame) + " ";
    return all;
}

// Compares both from the caller on.
__attribute__((noinline)) void compare()
{
    const uintptr_t caller =
        reinterpret_cast<uintptr_t>(__builtin_extract_return_addr(__builtin_return_address(0)));
    uintptr_t walked[kMost];
    void *runtime[kMost + 8];
    const int got = unwind_walk(walked, kMost, caller, 0, 0);
    const int there = backtrace(runtime, kMost + 8);
    if (got < 0) {
        outcome->refused++;
        return;
    }
    std::vector<uintptr_t> expected;
    for (int i = 0; i < there; i++)
        if (!expected.empty() || reinterpret_cast<uintptr_t>(runtime[i]) == caller)
            expected.push_back(reinterpret_cast<uintptr_t>(runtime[i]));
    expected.resize(std::min<size_t>(expected.size(), kMost));
    const std::vector<uintptr_t> frames(walked, walked + got);
    if (frames == expected)
        outcome->equal++;
    else
        outcome->difference = text(frames) + "for " + text(expected);
}

void keep(void *pointer) { __asm__ volatile("" : : "r"(pointer) : "memory"); }

__attribute__((noinline)) void in_leaf(int)
{
    compare();
    keep(nullptr);
}

__attribute__((noinline)) void in_aligned_frame(int size)
{
    alignas(128) char buffer[256];
    keep(buffer);
    in_leaf(size);
    keep(buffer);
}

__attribute__((noinline)) void in_variable_frame(int size)
{
    char *buffer = static_cast<char *>(alloca(static_cast<size_t>(size) * 7 + 33));
    keep(buffer);
    in_aligned_frame(size);
    keep(buffer);
}

__attribute__((noinline)) void in_large_frame(int size)
{
    char buffer[100000];
    keep(buffer);
    in_variable_frame(size);
    keep(buffer);
}

__attribute__((noinline)) int in_recursion(int depth)
{
    if (depth == 0) {
        in_variable_frame(5);
        throw std::runtime_error("the end of the recursion");
    }
    const std::string destroyed(40, 'a');
    const int below = in_recursion(depth - 1);
    return below + static_cast<int>(destroyed.size());
}

int by_pointer(const void *left, const void *)
{
    in_leaf(*static_cast<const int *>(left));
    return 0;
}

void work()
{
    for (int i = 0; i < 40; i++) {
        in_large_frame(i);
        int two[2] = {1, 2};
        qsort(two, 2, sizeof two[0], by_pointer); // through frames of libc
        try {
            in_recursion(i);
        } catch (const std::exception &) {
            in_variable_frame(i); // between frames with clean-ups and the end
        }
    }
}

bool walk_is_there()
{
    struct unwind_object object;
    return unwind_object_of(reinterpret_cast<uintptr_t>(&work), &object);
}

class StackWalk : public testing::Test
{
  protected:
    void SetUp() override
    {
        unwind_prepare();
        if (!walk_is_there())
            GTEST_SKIP() << "a libc without _dl_find_object";
        outcome = &outcome_;
    }
    Outcome outcome_;
};

TEST_F(StackWalk, EqualsTheRuntimes)
{
    work();
    EXPECT_EQ(outcome_.difference, "");
    EXPECT_EQ(outcome_.refused, 0u);
    EXPECT_GE(outcome_.equal, 40u * 4);
}

TEST_F(StackWalk, EqualsTheRuntimesInThreads)
{
    std::thread(work).join();
    EXPECT_EQ(outcome_.difference, "");
    EXPECT_EQ(outcome_.refused, 0u);
    EXPECT_GE(outcome_.equal, 40u * 4);
}

void on_signal(int) { in_variable_frame(3); }

TEST_F(StackWalk, LeavesTheFramesOfSignalsToTheRuntime)
{
    ASSERT_NE(signal(SIGUSR1, on_signal), SIG_ERR);
    raise(SIGUSR1);
    EXPECT_EQ(outcome_.difference, "");
    EXPECT_EQ(outcome_.refused, 1u);
}

TEST_F(StackWalk, OsStackGoesOnThroughASignal)
{
    static unsigned depth;
    static uintptr_t frames[kMost];
    ASSERT_NE(signal(SIGUSR1, [](int) { depth = unwind_stack(frames, kMost, 0); }), SIG_ERR);
    raise(SIGUSR1);
    EXPECT_GE(depth, 4u) << "the handler, the return from it, and this test's callers";
}

ucontext_t caller_context;
ucontext_t own_context;

// A stack that the program made is distinguished from a thread's stack only by chance: the walk
// must be correct or refuse.
TEST_F(StackWalk, AStackOfTheProgramsOwnIsNoTrouble)
{
    constexpr size_t kBytes = 256 << 10;
    void *stack = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(stack, MAP_FAILED);
    ASSERT_EQ(getcontext(&own_context), 0);
    own_context.uc_stack.ss_sp = stack;
    own_context.uc_stack.ss_size = kBytes;
    own_context.uc_link = &caller_context;
    makecontext(&own_context, [] { in_large_frame(3); }, 0);
    ASSERT_EQ(swapcontext(&caller_context, &own_context), 0);
    EXPECT_EQ(outcome_.difference, "");
    EXPECT_EQ(outcome_.equal + outcome_.refused, 1u);
    munmap(stack, kBytes);
}

TEST_F(StackWalk, StopsAtItsCapacity)
{
    uintptr_t frames[3] = {0, 0, 4711};
    EXPECT_EQ(unwind_stack(frames, 2, 0), 2u);
    EXPECT_EQ(frames[2], 4711u);
}

__attribute__((noinline)) unsigned depth_by_frame(uintptr_t frame_pointer)
{
    const auto frame = reinterpret_cast<volatile uintptr_t *>(__builtin_frame_address(0));
    const uintptr_t before[] = {frame[0], frame[1]};
    uintptr_t frames[kMost];
    frame[0] = frame_pointer;
    frame[1] = reinterpret_cast<uintptr_t>(by_frame) + 1;
    const unsigned depth = unwind_stack(frames, kMost, 0);
    frame[0] = before[0];
    frame[1] = before[1];
    return depth;
}

// The C runtime's unwinder would read there.
TEST_F(StackWalk, EndsWhereAFramePointerLeadsNowhere)
{
    enum { BYTES = 1 << 20 };
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "qemu-user may say of each address that it can be read";
    uintptr_t first;
    if (unwind_stack(&first, 1, 0) == 0)
        GTEST_SKIP() << "no stack is walked here";
    void *gone = mmap(nullptr, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(gone, MAP_FAILED);
    const auto nowhere = reinterpret_cast<uintptr_t>(gone);
    for (uintptr_t frame_pointer :
         {uintptr_t{0}, uintptr_t{1}, uintptr_t{64}, nowhere, nowhere + BYTES / 2 + 3,
          UINTPTR_MAX / 2 - 15, UINTPTR_MAX - 63, UINTPTR_MAX - 15, UINTPTR_MAX}) {
        EXPECT_EQ(depth_by_frame(frame_pointer), 2U) << frame_pointer;
        std::thread([=] { EXPECT_EQ(depth_by_frame(frame_pointer), 2U) << frame_pointer; }).join();
    }
    munmap(gone, BYTES);
}

} // namespace unwind_walk_test
