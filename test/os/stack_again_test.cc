// A stack that is found by what the one before left is the one that a walk from the start finds,
// whatever changed in between: the innermost frames, some in the middle, or all of them.

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <string.h>

#include <random>
#include <thread>
#include <vector>

extern "C" {
#include "os/os.h"
}

namespace
{

enum { FRAMES = 300 };

class StackAgain : public testing::Test
{
  protected:
    void SetUp() override { os_stack_prepare(); }
};

struct Looker {
    std::mt19937 random{1};
    std::vector<struct os_stack_memo> memo{1};
    size_t equal = 0, different = 0, refused = 0, kept = 0;
};

__attribute__((noinline)) void look(Looker *looker)
{
    static thread_local uintptr_t frames[FRAMES];
    unsigned before = looker->memo[0].first;
    unsigned depth = os_stack(frames, FRAMES, 0);
    int first = os_stack_again(&looker->memo[0]);
    if (first < 0) {
        looker->refused++;
        return;
    }
    looker->kept += looker->memo[0].first >= before;
    const struct os_stack_step *steps = &looker->memo[0].steps[first];
    bool equal = depth == static_cast<unsigned>(OS_MEMO_STEPS - first);
    for (unsigned i = 1; equal && i < depth; i++) // the first is a place in this function
        equal = steps[i].address == frames[i];
    ++(equal ? looker->equal : looker->different);
}

__attribute__((noinline)) void descend(Looker *looker, int levels);

__attribute__((noinline)) void descend_with_room(Looker *looker, int levels)
{
    auto *room = static_cast<volatile char *>(__builtin_alloca(16 + looker->random() % 500));
    room[0] = 1;
    descend(looker, levels - 1);
    room[1] = 1;
}

__attribute__((noinline)) void descend_twice(Looker *looker, int levels)
{
    look(looker);
    descend(looker, levels - 1);
    descend(looker, levels - 3);
    look(looker);
}

void descend(Looker *looker, int levels)
{
    if (levels <= 0)
        look(looker);
    else if (looker->random() % 3 == 0)
        descend_with_room(looker, levels);
    else if (looker->random() % 4 == 0)
        descend_twice(looker, levels);
    else
        descend(looker, levels - 1);
    volatile int no_tail_call = levels;
    (void)no_tail_call;
}

void check(const Looker &made)
{
    if (made.refused > 0 && made.equal == 0)
        GTEST_SKIP() << "no stack is walked here";
    EXPECT_EQ(made.different, 0U);
    EXPECT_GT(made.equal, 100U);
    EXPECT_GT(made.kept, 0U);
}

TEST_F(StackAgain, IsTheStackThatIsThere)
{
    Looker looker;
    for (int i = 0; i < 200; i++)
        descend(&looker, 1 + static_cast<int>(looker.random() % 25));
    check(looker);
}

TEST_F(StackAgain, OneMemoServesManyThreadsInTurn)
{
    Looker looker;
    for (int i = 0; i < 40; i++)
        std::thread([&] { descend(&looker, 1 + static_cast<int>(looker.random() % 25)); }).join();
    check(looker);
}

TEST_F(StackAgain, StacksThatAreAlikeHaveOneHash)
{
    Looker looker;
    std::vector<uint64_t> hashes;
    for (volatile int i = 0; i < 3; i = i + 1) {
        int first = os_stack_again(&looker.memo[0]);
        if (first < 0)
            GTEST_SKIP() << "no stack is walked here";
        hashes.push_back(looker.memo[0].steps[first].hash);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
    EXPECT_EQ(hashes[1], hashes[2]);
}

__attribute__((noinline)) int look_beside(Looker *looker)
{
    int first = os_stack_again(&looker->memo[0]);
    volatile int no_tail_call = first;
    return no_tail_call;
}

// A program with coroutines has many stacks below one end, and the memo's may be gone.
TEST_F(StackAgain, TouchesNothingOfAStackThatIsGone)
{
    Looker looker;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    auto *room = static_cast<char *>(__builtin_alloca(2 * page));
    memset(room, 0, 2 * page);
    const uintptr_t gone = (reinterpret_cast<uintptr_t>(room) + page - 1) / page * page;
    const int first = look_beside(&looker);
    if (first < 0)
        GTEST_SKIP() << "no stack is walked here";
    for (unsigned i = looker.memo[0].first; i < OS_MEMO_STEPS; i++) {
        struct os_stack_step *step = &looker.memo[0].steps[i];
        step->stack = gone + 8 * (i % 64) + 8;
        step->address_at = gone + 8 * (i % 64);
        step->frame_at = step->frame_at != 0 ? step->address_at - 8 * (i % 64 != 0) : 0;
    }
    ASSERT_EQ(mprotect(reinterpret_cast<void *>(gone), page, PROT_NONE), 0);
    const int again = look_beside(&looker);
    ASSERT_EQ(mprotect(reinterpret_cast<void *>(gone), page, PROT_READ | PROT_WRITE), 0);
    EXPECT_EQ(again, first);
}

__attribute__((noinline)) int deep(Looker *looker, int levels)
{
    int below = levels > 0 ? deep(looker, levels - 1) : os_stack_again(&looker->memo[0]);
    volatile int no_tail_call = below;
    return no_tail_call;
}

TEST_F(StackAgain, RefusesWhatIsDeeperThanItHolds)
{
    Looker looker;
    EXPECT_LT(deep(&looker, 2 * OS_MEMO_STEPS), 0);
    look(&looker);
    EXPECT_EQ(looker.different, 0U);
}

} // namespace
