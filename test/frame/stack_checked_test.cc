// Checked stacks find errors that the fast ones cannot: writes outside blocks, and uses of ended
// frames.

#include "cairn/stack.h"
#include "frame/frame_kit.h"

namespace stack_checked_test
{

using namespace frame_kit;

// Whether the stack itself reports the error. AddressSanitizer reports such an access first.
bool finds_itself() { return frame_checked() && !memory_marks_active(); }

class StackCheckedDeathTest : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!finds_itself())
            GTEST_SKIP() << "no checked stacks, or a memory checker that reports first";
        stack_ = cairn_stack_new(nullptr);
        cairn_stack_alloc(stack_, 8, 8); // so that the frame does not begin at the start of a page
        mark_ = cairn_stack_push(stack_);
    }
    void TearDown() override
    {
        if (stack_ != nullptr)
            cairn_stack_reset(stack_);
        cairn_stack_delete(stack_);
    }
    cairn_stack *stack_ = nullptr;
    cairn_mark mark_ = {};
};

TEST_F(StackCheckedDeathTest, WritePastTheEnd)
{
    for (size_t size : {1, 8, 15, 16, 24, 1000}) {
        auto *block = static_cast<char *>(cairn_stack_alloc(stack_, size, 1));
        EXPECT_DEATH_LINE(
            {
                block[size] = 0;
                cairn_stack_pop(stack_, mark_);
            },
            "stack \"stack\": write past the end of " + hex(block) + " (" + std::to_string(size) +
                "-byte block)");
    }
}

TEST_F(StackCheckedDeathTest, WriteBeforeTheStart)
{
    auto *block = static_cast<char *>(cairn_stack_alloc(stack_, 24, 8));
    cairn_stack_alloc(stack_, 24, 8);
    EXPECT_DEATH_LINE(
        {
            block[-1] = 0;
            cairn_stack_pop(stack_, mark_);
        },
        "stack \"stack\": write before the start of " + hex(block));
}

TEST_F(StackCheckedDeathTest, ReallocWithAWrongSize)
{
    void *block = cairn_stack_alloc(stack_, 24, 8);
    EXPECT_DEATH_LINE(ignore(cairn_stack_realloc(stack_, block, 32, 64, 8)),
                      "stack \"stack\": realloc of " + hex(block) +
                          " with old size 32 (24-byte block)");
}

TEST_F(StackCheckedDeathTest, EndedFramesCannotBeRead)
{
    auto *small = static_cast<unsigned char *>(cairn_stack_alloc(stack_, 24, 8));
    auto *large = static_cast<char *>(cairn_stack_alloc(stack_, 100 * kKiB, 8));
    memset(small, 1, 24);
    cairn_stack_pop(stack_, mark_);
    EXPECT_EQ(small[0], 0xdd);
    EXPECT_EXIT(static_cast<volatile char *>(large)[50 * kKiB] = 1,
                testing::KilledBySignal(SIGSEGV), "");
}

TEST(StackChecked, MemoryOfEndedFramesServesAgain)
{
    cairn_stack *stack = cairn_stack_new(nullptr);
    for (int i = 0; i < 20; i++) {
        cairn_mark mark = cairn_stack_push(stack);
        for (int j = 0; j < 10; j++)
            memset(cairn_stack_alloc(stack, 200 * kKiB, 8), j, 200 * kKiB);
        cairn_stack_pop(stack, mark);
    }
    cairn_stack_delete(stack);
}

} // namespace stack_checked_test
