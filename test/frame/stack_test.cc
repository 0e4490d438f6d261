// The stack: allocation, frames, seal, realloc, misuse, and random use against a shadow.

#include "cairn/stack.h"

#include <sys/wait.h>

#include <csetjmp>
#include <memory>
#include <vector>

#include "frame/frame_kit.h"

namespace
{

using namespace frame_kit;

struct Delete {
    void operator()(cairn_stack *stack) const { cairn_stack_delete(stack); }
};
using Stack = std::unique_ptr<cairn_stack, Delete>;

Stack make(cairn_stack_options options = {}) { return Stack(cairn_stack_new(&options)); }

size_t used(const Stack &stack)
{
    cairn_stack_stats stats;
    cairn_stack_read_stats(stack.get(), &stats);
    return stats.used_bytes;
}

size_t frames(const Stack &stack)
{
    cairn_stack_stats stats;
    cairn_stack_read_stats(stack.get(), &stats);
    return stats.frames;
}

TEST(Stack, EveryAlignmentIsHonoured)
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

TEST(Stack, BlocksLieSideBySide)
{
    if (frame_checked())
        GTEST_SKIP() << "canaries lie between the blocks of checked stacks";
    Stack stack = make();
    char *first = static_cast<char *>(cairn_stack_alloc(stack.get(), 8, 8));
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 8, 8), first + 8);
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 3, 1), first + 16);
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 16, 4), first + 24);
}

TEST(Stack, SizeZeroIsABlockOfItsOwn)
{
    Stack stack = make();
    void *first = cairn_stack_alloc(stack.get(), 0, 1);
    void *second = cairn_stack_alloc(stack.get(), 0, 1);
    EXPECT_NE(first, nullptr);
    EXPECT_NE(first, second);
}

TEST(Stack, RefusesWhatCannotBe)
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
    EXPECT_EQ(cairn_stack_alloc(stack.get(), PTRDIFF_MAX, huge), nullptr); // their sum is 0
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

TEST(Stack, ZeroFormsAreZeroAlsoInUsedMemory)
{
    Stack stack = make();
    cairn_mark mark = cairn_stack_push(stack.get());
    memset(cairn_stack_alloc(stack.get(), 1000, 8), 0xff, 1000);
    cairn_stack_pop(stack.get(), mark);
    auto *bytes = static_cast<char *>(cairn_stack_alloc_array_zero(stack.get(), 100, 10, 8));
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(bytes[i], 0);
}

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

// The verifier takes a block that was left without anything in it, and spare ones alone, for sound.
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

TEST(Stack, ReallocOfTheNewestGrowsInPlace)
{
    if (frame_checked())
        GTEST_SKIP() << "checked stacks grow within what is committed only";
    cairn_stack_options options = {};
    options.reserve = 64 * kMiB;
    Stack stack = make(options);
    char *block = static_cast<char *>(cairn_stack_alloc(stack.get(), 10, 1));
    paint(block, 10, 1);
    for (size_t size = 10; size < 32 * kMiB; size *= 3)
        ASSERT_EQ(cairn_stack_realloc(stack.get(), block, size, 3 * size, 1), block);
    EXPECT_TRUE(is_painted(block, 10, 1));
}

TEST(Stack, ReallocMovesAndKeepsContents)
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

TEST(Stack, FailedReallocKeepsTheBlock)
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

TEST(Stack, ReallocAtTheMaximumKeepsTheBlock)
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

// Misuse.

TEST(Stack, RefusedFirstBlockIsSpare)
{
    if (!config_debug)
        GTEST_SKIP() << "fault injection is part of debug builds";
    Stack stack = make({kMiB, 0, nullptr});
    os_fault_plan(1, 2, ENOMEM); // the reservation works, access to it is refused, twice
    EXPECT_EQ(cairn_stack_alloc(stack.get(), 100, 8), nullptr);
    EXPECT_EQ(os_fault_plan(0, 0, 0), 3u);
    cairn_stack_trim(stack.get(), 0);
    EXPECT_NE(cairn_stack_alloc(stack.get(), 100, 8), nullptr);
}

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
    cairn_stack_alloc(stack.get(), 64, 8); // the record's bytes are still there, below the position
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
    std::string line = "stack \"stack\": realloc of " + hex(block) + ", which is of an outer frame";
    EXPECT_DEATH_LINE(cairn_stack_realloc(stack.get(), block, 100, 200, 8), line);
    EXPECT_DEATH_LINE(cairn_stack_realloc(stack.get(), block, 100, 50, 8), line);
    cairn_stack_alloc(stack.get(), 10 * kMiB, 8); // the frame goes on in another block
    EXPECT_DEATH_LINE(cairn_stack_realloc(stack.get(), block, 100, 200, 8), line);
    cairn_stack_push(stack.get());
    EXPECT_DEATH_LINE(cairn_stack_realloc(stack.get(), block, 100, 200, 8), line);
}

TEST(StackDeathTest, ReallocOfAForeignBlock)
{
    Stack stack = make();
    cairn_stack_alloc(stack.get(), 100, 8);
    static char foreign[16];
    EXPECT_DEATH_LINE(cairn_stack_realloc(stack.get(), foreign, 8, 16, 8),
                      "stack \"stack\": realloc of " + hex(foreign) + ", which is not in it");
}

TEST(StackDeathTest, WrongThread)
{
    Stack stack = make();
    cairn_mark mark = cairn_stack_push(stack.get());
    void *block = cairn_stack_alloc(stack.get(), 8, 8);
    std::string line = "stack \"stack\": used by a thread that does not own it";
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_alloc(stack.get(), 8, 8); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_push(stack.get()); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_pop(stack.get(), mark); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_realloc(stack.get(), block, 8, 16, 8); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_seal(stack.get()); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_trim(stack.get(), 0); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_reset(stack.get()); }), line);
}

// Random use against a shadow: every live block keeps its contents, every frame ends exactly its
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

} // namespace
