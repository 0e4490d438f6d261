// Stack traces: the chain of callers.

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

extern "C" {
#include "os/process.h"
#include "unwind/unwind.h"
}

namespace unwind_test
{

constexpr unsigned kMost = 32;

struct Stack {
    uintptr_t frames[kMost];
    unsigned depth;
};

__attribute__((noinline)) void inner(Stack *stack, unsigned capacity, uintptr_t from)
{
    stack->depth = unwind_stack(stack->frames, capacity, from);
    __asm__ volatile("" ::: "memory");
}

// A call through a pointer, so that compilers make no copy for its argument.
void (*volatile call_inner)(Stack *, unsigned, uintptr_t) = inner;

__attribute__((noinline)) void call(Stack *stack, unsigned capacity, uintptr_t from)
{
    call_inner(stack, capacity, from);
    __asm__ volatile("" ::: "memory");
}

void (*volatile outer)(Stack *, unsigned, uintptr_t) = call;

// Whether the address is in the function, whose code is short.
template <typename Function> bool is_within(uintptr_t address, Function function)
{
    const uintptr_t start = reinterpret_cast<uintptr_t>(function);
    return address > start && address < start + 400;
}

class StackTrace : public testing::Test
{
  protected:
    void SetUp() override { unwind_prepare(); }
};

TEST_F(StackTrace, NamesTheCallersInnermostFirst)
{
    Stack stack = {};
    outer(&stack, kMost, 0);
    ASSERT_GE(stack.depth, 3u);
    unsigned at = 0;
    while (at < stack.depth && !is_within(stack.frames[at], inner))
        at++;
    ASSERT_LT(at + 1, stack.depth);
    EXPECT_TRUE(is_within(stack.frames[at + 1], call));
}

TEST_F(StackTrace, KeepsWithinItsCapacity)
{
    Stack stack = {};
    stack.frames[2] = 4711;
    outer(&stack, 2, 0);
    EXPECT_EQ(stack.depth, 2u);
    EXPECT_EQ(stack.frames[2], 4711u);
}

TEST_F(StackTrace, BeginsAtTheInstruction)
{
    Stack whole = {};
    Stack part = {};
    for (volatile int i = 0; i < 2; i = i + 1) // one call site for both
        outer(i == 0 ? &whole : &part, kMost, i == 0 ? 0 : whole.frames[2]);
    ASSERT_GE(whole.depth, 3u);
    EXPECT_EQ(part.frames[0], whole.frames[2]);
    EXPECT_EQ(part.depth, whole.depth - 2);
}

TEST_F(StackTrace, AnUnknownInstructionChangesNothing)
{
    Stack whole = {};
    Stack same = {};
    for (Stack *stack : {&whole, &same})
        outer(stack, kMost, stack == &same ? 1 : 0);
    EXPECT_EQ(same.depth, whole.depth);
}

// Makes the call that tests whether memory is readable fail from now on in this thread.
bool forbid_asking()
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(StackTrace, IsWholeWhereAFilterForbidsToAsk)
{
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "AddressSanitizer itself sets the signal mask when a thread ends";
#endif
    std::thread([] {
        Stack stacks[2] = {};
        auto *pages = static_cast<volatile char *>(__builtin_alloca(64 << 10));
        pages[0] = 1;
        unwind_forget_thread();
        for (volatile int i = 0; i < 2; i = i + 1) {
            outer(&stacks[i], kMost, 0);
            unwind_forget_thread();
            if (i == 0 && !forbid_asking())
                return;
        }
        EXPECT_EQ(stacks[0].depth, stacks[1].depth);
    }).join();
}

TEST_F(StackTrace, ThreadsHaveNumbers)
{
    EXPECT_EQ(os_thread_id(), static_cast<uint32_t>(getpid()));
    uint32_t other = 0;
    std::thread([&other] { other = os_thread_id(); }).join();
    EXPECT_NE(other, os_thread_id());
    EXPECT_NE(other, 0u);
}

} // namespace unwind_test
