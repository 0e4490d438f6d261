// The stack: frames, seal, owners, and random use against a shadow. stack_alloc_test.cc tests
// blocks, and stack_misuse_test.cc misuse.

#include "cairn/stack.h"

#include <sys/wait.h>

#include <csetjmp>
#include <vector>

#include "frame/frame_kit.h"
#include "frame/stack_kit.h"

extern "C" {
#include "os/fault.h"
#include "os/process.h"
}

namespace stack_test
{

using namespace frame_kit;
using namespace stack_kit;

TEST(Stack, PopGivesThePlaceBack)
{
    Stack stack = make();
    cairn_stack_alloc(stack.get(), 100, 8);
    size_t before = used(stack);
    cairn_mark mark = cairn_stack_push(stack.get());
    for (int i = 0; i < 100000; i++)
        ASSERT_NE(cairn_stack_alloc(stack.get(), 40, 8), nullptr);
    EXPECT_GT(used(stack), before + 4000000);
    cairn_stack_pop(stack.get(), mark);
    EXPECT_EQ(used(stack), before);
    EXPECT_EQ(frames(stack), 0u);
}

// The verifier accepts a block that was left empty, and a stack that has only spare blocks.
TEST(Stack, BlocksMayBeEmpty)
{
    Stack stack = make();
    cairn_stack_alloc(stack.get(), 8, 8);
    cairn_stack_reset(stack.get());
    EXPECT_NE(cairn_stack_alloc(stack.get(), 100 * kKiB, 8), nullptr);
    cairn_stack_pop(stack.get(), cairn_stack_push(stack.get()));
}

TEST(Stack, DeepFrames)
{
    Stack stack = make();
    std::vector<cairn_mark> marks;
    std::vector<char *> blocks;
    for (size_t i = 0; i < 20000; i++) {
        marks.push_back(cairn_stack_push(stack.get()));
        blocks.push_back(static_cast<char *>(cairn_stack_alloc(stack.get(), 1 + i % 90, 1)));
        paint(blocks.back(), 1 + i % 90, i);
    }
    for (size_t i = marks.size(); i-- > 0;) {
        ASSERT_TRUE(is_painted(blocks[i], 1 + i % 90, i));
        cairn_stack_pop(stack.get(), marks[i]);
    }
    EXPECT_EQ(frames(stack), 0u);
}

TEST(Stack, MaximumIsKeptAndNotForEver)
{
    cairn_stack_options options = {};
    options.max_bytes = 300 * kKiB;
    Stack stack = make(options);
    for (int round = 0; round < 3; round++) {
        cairn_mark mark = cairn_stack_push(stack.get());
        size_t count = 0;
        while (cairn_stack_alloc(stack.get(), 1000, 8))
            count++;
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_LE(count, 300 * kKiB / 1000);
        EXPECT_GE(count, 300 * kKiB / 1100 / 2);
        cairn_stack_pop(stack.get(), mark);
    }
}

TEST(Stack, SealHoldsForItsFrameOnly)
{
    Stack stack = make();
    cairn_mark outer = cairn_stack_push(stack.get());
    cairn_stack_alloc(stack.get(), 8, 8);
    cairn_stack_seal(stack.get());
    size_t before = used(stack);
    for (int i = 0; i < 3; i++) {
        cairn_mark inner = cairn_stack_push(stack.get());
        EXPECT_NE(cairn_stack_alloc(stack.get(), 8, 8), nullptr);
        cairn_mark innermost = cairn_stack_push(stack.get());
        EXPECT_NE(cairn_stack_alloc(stack.get(), 8, 8), nullptr);
        cairn_stack_pop(stack.get(), innermost);
        cairn_stack_pop(stack.get(), inner);
        EXPECT_EQ(used(stack), before);
        EXPECT_DEATH_LINE(cairn_stack_alloc(stack.get(), 8, 8),
                          "stack \"stack\": allocation while sealed");
    }
    cairn_stack_unseal(stack.get());
    EXPECT_NE(cairn_stack_alloc(stack.get(), 8, 8), nullptr);
    cairn_stack_seal(stack.get());
    cairn_stack_pop(stack.get(), outer);
    EXPECT_NE(cairn_stack_alloc(stack.get(), 8, 8), nullptr);
}

TEST(Stack, ResetEndsEverything)
{
    Stack stack = make();
    for (int i = 0; i < 3; i++) {
        cairn_stack_alloc(stack.get(), 3 * kMiB, 8);
        cairn_stack_push(stack.get());
        cairn_stack_alloc(stack.get(), 100, 8);
        cairn_stack_seal(stack.get());
        cairn_stack_reset(stack.get());
        EXPECT_EQ(used(stack), 0u);
        EXPECT_EQ(frames(stack), 0u);
    }
}

TEST(Stack, LongjmpOverFramesIsSurvived)
{
    Stack stack = make();
    for (int round = 0; round < 100; round++) {
        cairn_mark mark = cairn_stack_push(stack.get());
        size_t before = used(stack);
        static jmp_buf back;
        if (setjmp(back) == 0) {
            for (int i = 0; i < 10; i++) {
                cairn_stack_push(stack.get());
                cairn_stack_alloc(stack.get(), 20000, 8);
            }
            longjmp(back, 1);
        }
        EXPECT_GT(used(stack), before);
        testing::internal::CaptureStderr();
        cairn_stack_pop(stack.get(), mark);
        EXPECT_EQ(testing::internal::GetCapturedStderr(),
                  frame_checked()
                      ? "cairn: stack \"stack\": pop of an outer frame ends 10 inner ones\n"
                      : "");
        EXPECT_EQ(frames(stack), 0u);
        EXPECT_EQ(used(stack), 0u);
    }
}

TEST(Stack, AdoptHandsOver)
{
    Stack stack = make();
    void *block = cairn_stack_alloc(stack.get(), 100, 8);
    paint(block, 100, 5);
    in_thread([&] {
        cairn_stack_adopt(stack.get());
        EXPECT_TRUE(is_painted(block, 100, 5));
        EXPECT_NE(cairn_stack_alloc(stack.get(), 100, 8), nullptr);
    });
    cairn_stack_adopt(stack.get());
    EXPECT_NE(cairn_stack_alloc(stack.get(), 100, 8), nullptr);
}

TEST(Stack, ChildOfForkOwnsWhatItsThreadOwned)
{
    Stack stack = make();
    cairn_mark mark = cairn_stack_push(stack.get());
    void *block = cairn_stack_alloc(stack.get(), 1000, 8);
    paint(block, 1000, 9);
    pid_t child = fork();
    if (child == 0) {
        bool good = is_painted(block, 1000, 9);
        for (int i = 0; i < 10000; i++)
            good = good && cairn_stack_alloc(stack.get(), 100, 8) != nullptr;
        cairn_stack_pop(stack.get(), mark);
        _exit(good && frames(stack) == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(is_painted(block, 1000, 9));
    cairn_stack_pop(stack.get(), mark);
}

// A child can adopt and delete a stack whose thread it does not have.
TEST(Stack, ChildOfForkMayAdoptThoseOfOtherThreads)
{
    cairn_stack *stack = nullptr;
    void *block = nullptr;
    in_thread([&] {
        stack = cairn_stack_new(nullptr);
        cairn_mark mark = cairn_stack_push(stack);
        block = cairn_stack_alloc(stack, 100 * kKiB, 8);
        paint(block, 100 * kKiB, 4);
        EXPECT_NE(mark.frame, nullptr);
    });
    pid_t child = fork();
    if (child == 0) {
        cairn_stack_adopt(stack);
        bool good = is_painted(block, 100 * kKiB, 4);
        for (int i = 0; i < 1000; i++)
            good = good && cairn_stack_alloc(stack, 1000, 8) != nullptr;
        _exit(good && cairn_stack_delete(stack) == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    cairn_stack_adopt(stack);
    EXPECT_TRUE(is_painted(block, 100 * kKiB, 4));
    EXPECT_EQ(cairn_stack_delete(stack), 0);
}

TEST(Stack, RefusedFirstBlockIsSpare)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    cairn_stack_options options = {};
    options.reserve_bytes = kMiB;
    Stack stack = make(options);
    os_fault_plan(1, 2, ENOMEM); // the reservation works, but access is refused twice
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 100, 8), nullptr);
    EXPECT_EQ(os_fault_plan(0, 0, 0), 3u);
    cairn_stack_trim(stack.get(), 0);
    EXPECT_NE(cairn_stack_alloc(stack.get(), 100, 8), nullptr);
}

// Random use against a shadow: every live block keeps its content, and every frame ends exactly its
// blocks.
struct ShadowBlock {
    char *block;
    size_t size;
    size_t align;
    uint64_t tag;
};
struct ShadowFrame {
    cairn_mark mark;
    size_t first;
};

class Model
{
  public:
    explicit Model(uint64_t seed) : random_(seed), stack_(make()) {}

    void step()
    {
        size_t dice = random_.below(100);
        if (dice < 60)
            alloc();
        else if (dice < 75)
            push();
        else if (dice < 90)
            pop();
        else if (dice < 98)
            realloc();
        else if (dice < 99)
            cairn_stack_trim(stack_.get(), random_.below(kMiB));
        else
            verify();
    }
    void verify() const
    {
        for (const ShadowBlock &block : blocks_)
            ASSERT_TRUE(is_painted(block.block, block.size, block.tag));
        ASSERT_EQ(frames(stack_), frames_.size());
    }

  private:
    void alloc()
    {
        ShadowBlock block = {nullptr, random_.size(400 * kKiB), random_.align(14), random_.next()};
        block.block = static_cast<char *>(cairn_stack_alloc(stack_.get(), block.size, block.align));
        ASSERT_NE(block.block, nullptr);
        ASSERT_TRUE(is_aligned(block.block, block.align));
        paint(block.block, block.size, block.tag);
        blocks_.push_back(block);
    }
    void push() { frames_.push_back({cairn_stack_push(stack_.get()), blocks_.size()}); }
    void pop()
    {
        if (frames_.empty())
            return;
        size_t keep = random_.below(20) != 0 ? frames_.size() - 1 : random_.below(frames_.size());
        size_t first = frames_[keep].first;
        for (size_t i = first; i < blocks_.size(); i++)
            ASSERT_TRUE(is_painted(blocks_[i].block, blocks_[i].size, blocks_[i].tag));
        testing::internal::CaptureStderr();
        cairn_stack_pop(stack_.get(), frames_[keep].mark);
        testing::internal::GetCapturedStderr();
        frames_.resize(keep);
        blocks_.resize(first);
    }
    void realloc()
    {
        size_t first = frames_.empty() ? 0 : frames_.back().first;
        if (first == blocks_.size())
            return;
        size_t which =
            random_.below(2) ? blocks_.size() - 1 : first + random_.below(blocks_.size() - first);
        ShadowBlock &block = blocks_[which];
        size_t size = random_.size(400 * kKiB);
        auto *moved = static_cast<char *>(
            cairn_stack_realloc(stack_.get(), block.block, block.size, size, block.align));
        ASSERT_NE(moved, nullptr);
        ASSERT_TRUE(is_aligned(moved, block.align));
        ASSERT_TRUE(is_painted(moved, size < block.size ? size : block.size, block.tag));
        block.block = moved;
        block.size = size;
        paint(moved, size, block.tag);
    }

    Random random_;
    Stack stack_;
    std::vector<ShadowBlock> blocks_;
    std::vector<ShadowFrame> frames_;
};

TEST(StackModel, RandomUse)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        Model model(seed);
        for (int i = 0; i < 4000 && !testing::Test::HasFatalFailure(); i++)
            model.step();
        model.verify();
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed;
    }
}

// The caller's memory is used first, and all of it is the caller's again afterwards.

TEST(StackBuffer, IsUsedFirstAndThenTheStackGrows)
{
    for (size_t offset : {0, 1, 8, 63}) {
        std::vector<char> memory(10000 + offset);
        cairn_stack_options options = {};
        options.buffer = memory.data() + offset;
        options.buffer_bytes = 10000;
        Stack stack = make(options);
        ASSERT_NE(stack, nullptr);
        cairn_stack_alloc(stack.get(), 100, 8);
        for (int round = 0; round < 3; round++) {
            cairn_mark mark = cairn_stack_push(stack.get());
            char *block = static_cast<char *>(cairn_stack_alloc(stack.get(), 5000, 8));
            EXPECT_GE(block, memory.data() + offset);
            EXPECT_LE(block + 5000, memory.data() + offset + 10000);
            paint(block, 5000, 1);
            for (int i = 0; i < 100; i++) {
                void *more = cairn_stack_alloc(stack.get(), 3000, 64);
                ASSERT_TRUE(more != nullptr && is_aligned(more, 64));
                paint(more, 3000, 2);
            }
            EXPECT_TRUE(is_painted(block, 5000, 1));
            cairn_stack_pop(stack.get(), mark);
            cairn_stack_trim(stack.get(), 0);
        }
        stack.reset();
        memset(memory.data(), 0, memory.size());
    }
}

TEST(StackBuffer, FixedTakesNothingElse)
{
    alignas(64) char memory[16 * kKiB];
    cairn_stack_options options = {};
    options.buffer = memory;
    options.buffer_bytes = sizeof memory;
    options.fixed = true;
    Stack stack = make(options);
    for (int round = 0; round < 3; round++) {
        cairn_mark mark = cairn_stack_push(stack.get());
        size_t count = 0;
        while (char *block = static_cast<char *>(cairn_stack_alloc(stack.get(), 100, 8))) {
            ASSERT_TRUE(block >= memory && block + 100 <= memory + sizeof memory);
            paint(block, 100, count++);
        }
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_GE(count, (sizeof memory - 256) / (frame_checked() ? 192 : 104));
        cairn_stack_pop(stack.get(), mark);
    }
    cairn_stack_stats stats;
    cairn_stack_read_stats(stack.get(), &stats);
    EXPECT_EQ(stats.blocks, 1u);
    EXPECT_EQ(stats.reserved_bytes, sizeof memory);
    cairn_stack_reset(stack.get());
    EXPECT_EQ(used(stack), 0u);
}

// The stack must not purge the caller's memory: the purge would also clear bytes of the caller in
// the last page.
TEST(StackBuffer, IsNotGivenBack)
{
    if (memory_marks_active())
        GTEST_SKIP() << "unused memory of the stack cannot be written to";
    std::vector<char> memory(64 * kKiB);
    cairn_stack_options options = {};
    options.buffer = memory.data();
    options.buffer_bytes = memory.size();
    Stack stack = make(options);
    cairn_mark mark = cairn_stack_push(stack.get());
    for (int interval = 0; interval < 2; interval++) {
        memset(memory.data() + 40 * kKiB, 7, 8 * kKiB); // not used by the stack
        cairn_stack_trim(stack.get(), 0);
        os_sleep_ms(FRAME_DECAY_MS + 50);
        for (int i = 0; i < CAIRN_STACK_PUSH_TICK; i++)
            cairn_stack_pop(stack.get(), cairn_stack_push(stack.get()));
        EXPECT_EQ(memory[44 * kKiB], 7);
    }
    cairn_stack_pop(stack.get(), mark);
}

TEST(StackBuffer, RefusesWhatIsNone)
{
    char memory[256];
    cairn_stack_options options = {};
    options.fixed = true;
    errno = 0;
    EXPECT_EQ(cairn_stack_new(&options), nullptr);
    EXPECT_EQ(errno, EINVAL);
    options.buffer = memory;
    options.buffer_bytes = 127;
    EXPECT_EQ(cairn_stack_new(&options), nullptr);
    options.buffer_bytes = SIZE_MAX;
    EXPECT_EQ(cairn_stack_new(&options), nullptr);
    options.buffer_bytes = 128;
    Stack stack = make(options);
    ASSERT_NE(stack, nullptr);
}

} // namespace stack_test
