// Misuse of stacks: each error ends the process with its message, in every build.

#include "cairn/scope.h"
#include "cairn/stack.h"
#include "frame/frame_kit.h"
#include "frame/stack_kit.h"

namespace stack_misuse_test
{

using namespace frame_kit;
using namespace stack_kit;

TEST(StackDeathTest, PopWithoutPush)
{
    Stack stack = make();
    cairn_mark mark = cairn_stack_push(stack.get());
    cairn_stack_pop(stack.get(), mark);
    EXPECT_DEATH_LINE(cairn_stack_pop(stack.get(), mark), "stack \"stack\": pop without a push");
}

TEST(StackDeathTest, SecondPop)
{
    cairn_stack_options options = {};
    options.name = "mine";
    Stack stack = make(options);
    cairn_stack_push(stack.get());
    cairn_mark mark = cairn_stack_push(stack.get());
    cairn_stack_pop(stack.get(), mark);
    std::string line = "stack \"mine\": pop with a mark that is not open";
    EXPECT_DEATH_LINE(cairn_stack_pop(stack.get(), mark), line);
    // the bytes of the record are still there, below the position
    cairn_stack_alloc(stack.get(), 64, 8);
    EXPECT_DEATH_LINE(cairn_stack_pop(stack.get(), mark), line);
    cairn_mark same_place = cairn_stack_push(stack.get());
    cairn_stack_pop(stack.get(), same_place);
    cairn_stack_push(stack.get());
    EXPECT_DEATH_LINE(cairn_stack_pop(stack.get(), same_place), line);
}

TEST(StackDeathTest, ReallocOfAnOuterFramesBlock)
{
    Stack stack = make();
    void *block = cairn_stack_alloc(stack.get(), 100, 8);
    cairn_stack_push(stack.get());
    std::string line =
        "stack \"stack\": realloc of " + hex(block) + ", which belongs to an outer frame";
    EXPECT_DEATH_LINE(ignore(cairn_stack_realloc(stack.get(), block, 100, 200, 8)), line);
    EXPECT_DEATH_LINE(ignore(cairn_stack_realloc(stack.get(), block, 100, 50, 8)), line);
    cairn_stack_alloc(stack.get(), 10 * kMiB, 8); // the frame continues in another block
    EXPECT_DEATH_LINE(ignore(cairn_stack_realloc(stack.get(), block, 100, 200, 8)), line);
    cairn_stack_push(stack.get());
    EXPECT_DEATH_LINE(ignore(cairn_stack_realloc(stack.get(), block, 100, 200, 8)), line);
}

TEST(StackDeathTest, ReallocOfAForeignBlock)
{
    Stack stack = make();
    cairn_stack_alloc(stack.get(), 100, 8);
    static char foreign[16];
    EXPECT_DEATH_LINE(ignore(cairn_stack_realloc(stack.get(), foreign, 8, 16, 8)),
                      "stack \"stack\": realloc of " + hex(foreign) + ", which is not in it");
}

// The inline functions of a thread's own stack check no owner, so it cannot move to another thread
// or end before its thread.
TEST(StackDeathTest, AThreadsOwnStackStaysWithIt)
{
    cairn_stack *stack = cairn_thread_stack();
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_adopt(stack); }),
                      "stack \"thread\": adoption of a thread's own stack");
    cairn_stack_adopt(stack); // its thread owns it already
    EXPECT_EQ(cairn_stack_delete(stack), EBUSY);
    EXPECT_NE(t_alloc(8), nullptr); /* t_scope: not needed */
}

} // namespace stack_misuse_test
