// The blocks of a stack: growth from block to block, one reserved range, purging, and refusals by
// the system.

#include <sys/mman.h>

#include <vector>

#include "cairn/stack.h"
#include "frame/frame_kit.h"

extern "C" {
#include "os/memory.h"
#include "os/process.h"
}

namespace stack_block_test
{

using namespace frame_kit;

cairn_stack_stats stats(cairn_stack *stack)
{
    cairn_stack_stats result;
    cairn_stack_read_stats(stack, &result);
    return result;
}

void fill(cairn_stack *stack, size_t bytes)
{
    for (size_t done = 0; done < bytes; done += 4000) {
        void *block = cairn_stack_alloc(stack, 4000, 8);
        ASSERT_NE(block, nullptr);
        memset(block, 1, 4000);
    }
}

TEST(StackBlock, BlocksGrowEightfold)
{
    cairn_stack *stack = cairn_stack_new(nullptr);
    EXPECT_EQ(stats(stack).blocks, 0u);
    cairn_stack_alloc(stack, 8, 8);
    EXPECT_EQ(stats(stack).blocks, 1u);
    EXPECT_EQ(stats(stack).reserved_bytes, 64 * kKiB);
    fill(stack, 20 * kMiB);
    EXPECT_EQ(stats(stack).blocks, 4u);
    cairn_stack_delete(stack);
}

TEST(StackBlock, AReservedRangeIsOneBlock)
{
    cairn_stack_options options = {};
    options.reserve_bytes = 256 * kMiB;
    cairn_stack *stack = cairn_stack_new(&options);
    fill(stack, 100 * kMiB);
    EXPECT_EQ(stats(stack).blocks, 1u);
    EXPECT_EQ(stats(stack).reserved_bytes, 256 * kMiB);
    cairn_stack_delete(stack);
}

TEST(StackBlock, AFrameMayBeginInOneBlockAndEndInAnother)
{
    cairn_stack *stack = cairn_stack_new(nullptr);
    std::vector<cairn_mark> marks;
    for (int i = 0; i < 40; i++) {
        marks.push_back(cairn_stack_push(stack));
        fill(stack, 100 * kKiB);
    }
    EXPECT_GE(stats(stack).blocks, 3u);
    for (size_t i = marks.size(); i-- > 0;) {
        cairn_stack_pop(stack, marks[i]);
        ASSERT_EQ(stats(stack).frames, i);
    }
    EXPECT_EQ(stats(stack).used_bytes, 0u);
    cairn_stack_delete(stack);
}

TEST(StackBlock, TrimKeepsWhatIsAsked)
{
    cairn_stack *stack = cairn_stack_new(nullptr);
    size_t before = resident_bytes();
    cairn_mark mark = cairn_stack_push(stack);
    fill(stack, 100 * kMiB);
    cairn_stack_pop(stack, mark);
    if (measures_memory()) {
        EXPECT_GT(resident_bytes(), before + 90 * kMiB);
        EXPECT_GT(cairn_stack_trim(stack, 10 * kMiB), 80 * kMiB);
        EXPECT_LT(resident_bytes(), before + 11 * kMiB);
    }
    cairn_stack_trim(stack, 0);
    EXPECT_LT(stats(stack).resident_bytes, 64 * kKiB);
    if (measures_memory()) {
        EXPECT_LT(resident_bytes(), before + kMiB);
    }
    fill(stack, 10 * kMiB);
    cairn_stack_delete(stack);
}

TEST(StackBlock, UnneededMemoryGoesBackUnderALongFrame)
{
    cairn_stack *stack = cairn_stack_new(nullptr);
    cairn_stack_push(stack); // lives for ever
    cairn_mark mark = cairn_stack_push(stack);
    fill(stack, 50 * kMiB);
    cairn_stack_pop(stack, mark);
    size_t full = stats(stack).resident_bytes;
    for (int interval = 0; interval < 3; interval++) {
        os_sleep_ms(FRAME_DECAY_MS + 50);
        for (int i = 0; i < CAIRN_STACK_PUSH_TICK; i++) {
            mark = cairn_stack_push(stack);
            fill(stack, 16 * kKiB);
            cairn_stack_pop(stack, mark);
        }
    }
    if (measures_memory()) {
        EXPECT_GT(full, 50 * kMiB);
    }
    EXPECT_LT(stats(stack).resident_bytes, 512 * kKiB);
    cairn_stack_delete(stack);
}

// A frame that outgrew the reserve and lives on leaves a block whose memory above the position
// cannot be reached until the frame ends.
TEST(StackBlock, MemoryOfAnOutgrownBlockGoesBack)
{
    for (bool by_trim : {true, false}) {
        cairn_stack_options options = {};
        options.reserve_bytes = 8 * kMiB;
        cairn_stack *stack = cairn_stack_new(&options);
        cairn_stack_alloc(stack, 100, 8);
        cairn_mark mark = cairn_stack_push(stack);
        fill(stack, 7 * kMiB);
        cairn_stack_pop(stack, mark);
        cairn_stack_push(stack); // lives for ever
        ASSERT_NE(cairn_stack_alloc(stack, 9 * kMiB, 8), nullptr);
        ASSERT_EQ(stats(stack).blocks, 2u);
        if (by_trim) {
            cairn_stack_trim(stack, 0);
        } else {
            for (int interval = 0; interval < 3; interval++) {
                os_sleep_ms(FRAME_DECAY_MS + 50);
                for (int i = 0; i < CAIRN_STACK_PUSH_TICK; i++)
                    cairn_stack_pop(stack, cairn_stack_push(stack));
            }
        }
        EXPECT_LT(stats(stack).resident_bytes, 11 * kMiB); // with one step of growth
        cairn_stack_delete(stack);
    }
}

// Spare blocks count towards the maximum.
TEST(StackBlock, TheMaximumHoldsForBlocksThatWereLeft)
{
    cairn_stack_options options = {};
    options.reserve_bytes = 8 * kMiB;
    options.max_bytes = 12 * kMiB;
    cairn_stack *stack = cairn_stack_new(&options);
    fill(stack, 2 * kMiB);
    for (int round = 0; round < 3; round++) {
        cairn_mark mark = cairn_stack_push(stack);
        ASSERT_NE(cairn_stack_alloc(stack, 7 * kMiB, 8), nullptr);
        EXPECT_LE(stats(stack).resident_bytes, options.max_bytes);
        cairn_stack_pop(stack, mark);
        mark = cairn_stack_push(stack);
        fill(stack, 5 * kMiB);
        EXPECT_LE(stats(stack).resident_bytes, options.max_bytes);
        cairn_stack_pop(stack, mark);
    }
    cairn_stack_delete(stack);
}

// A block ends where a newer range begins: the block must not grow into that range.
TEST(StackBlock, ABlockBelowANewerRangeDoesNotGrowIntoIt)
{
    if (frame_checked())
        GTEST_SKIP() << "checked stacks have canaries between their blocks";
    constexpr size_t kFirst = 64 * kKiB;
    constexpr size_t kNext = kMiB;
    auto *hole = static_cast<char *>(
        mmap(nullptr, kFirst + kNext, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(hole, MAP_FAILED);
    munmap(hole, kFirst);
    cairn_stack_options options = {};
    options.reserve_bytes = kFirst;
    std::vector<cairn_stack *> stacks; // all but the last fill other holes
    char *block = nullptr;
    for (int i = 0; i < 5000 && !(block >= hole && block < hole + kFirst); i++) {
        stacks.push_back(cairn_stack_new(&options));
        block = static_cast<char *>(cairn_stack_alloc(stacks.back(), 8, 8));
        ASSERT_NE(block, nullptr);
    }
    munmap(hole + kFirst, kNext);
    cairn_stack *stack = stacks.back();
    size_t first_bytes = stats(stack).reserved_bytes;
    cairn_stack_push(stack);
    size_t size = first_bytes - stats(stack).used_bytes;
    block = static_cast<char *>(cairn_stack_alloc(stack, size, 8)); // up to the end
    ASSERT_NE(block, nullptr);
    paint(block, size, 1);
    cairn_mark mark = cairn_stack_push(stack); // needs the next range
    cairn_stack_pop(stack, mark);              // and leaves it empty
    ASSERT_EQ(stats(stack).blocks, 2u);
    size_t used = stats(stack).used_bytes;
    EXPECT_EQ(cairn_stack_realloc(stack, block, size, size - 800, 8), block);
    EXPECT_EQ(stats(stack).used_bytes, used);
    auto *moved = static_cast<char *>(cairn_stack_realloc(stack, block, size - 800, size + 800, 8));
    EXPECT_NE(moved, block);
    EXPECT_TRUE(is_painted(moved, size - 800, 1));
    for (cairn_stack *each : stacks)
        cairn_stack_delete(each);
}

// The run of pages that a stack takes next may begin right where the caller's buffer ends: a block
// that ends there must not be taken for the newest of that run.
TEST(StackBlock, ARunBehindTheCallersBufferDoesNotTouchIt)
{
    constexpr size_t kBuffer = 128 * kKiB;
    const size_t kRun = 64 * kKiB + os_page_size(); // of the block behind a buffer
    std::vector<struct span *> runs;
    struct span *behind = nullptr;
    do {
        if (behind != nullptr)
            runs.push_back(behind);
        runs.push_back(run_take(kBuffer, PAGE_BYTES));
        behind = run_take(kRun, PAGE_BYTES);
        ASSERT_TRUE(runs.back() != nullptr && behind != nullptr);
    } while (runs.size() < 1000 && behind->base != runs.back()->base + kBuffer);
    run_give(behind); // the next run of this length is here
    cairn_stack_options options = {};
    options.buffer = runs.back()->base;
    options.buffer_bytes = kBuffer;
    cairn_stack *stack = cairn_stack_new(&options);
    auto *block = static_cast<char *>(cairn_stack_alloc(stack, 64, 8));
    const size_t tail = frame_checked() ? 16 : 0; // a canary
    const auto whole = static_cast<size_t>(runs.back()->base + kBuffer - block) - tail;
    ASSERT_EQ(cairn_stack_realloc(stack, block, 64, whole, 8), block); // up to the end
    const cairn_mark mark = cairn_stack_push(stack);                   // needs the next block
    cairn_stack_pop(stack, mark);                                      // and leaves it empty
    ASSERT_EQ(stats(stack).blocks, 2u);
    const size_t used = stats(stack).used_bytes;
    EXPECT_EQ(cairn_stack_realloc(stack, block, whole, 640, 8), block);
    EXPECT_EQ(stats(stack).used_bytes, used);
    cairn_stack_pop(stack, cairn_stack_push(stack)); // verifies the stack
    cairn_stack_delete(stack);
    for (struct span *run : runs)
        run_give(run);
}

TEST(StackBlock, NeededMemoryStays)
{
    if (frame_checked())
        GTEST_SKIP() << "checked stacks make ended frames inaccessible";
    cairn_stack *stack = cairn_stack_new(nullptr);
    for (int interval = 0; interval < 3; interval++) {
        for (int i = 0; i < 3; i++) {
            cairn_mark mark = cairn_stack_push(stack);
            fill(stack, 5 * kMiB);
            cairn_stack_pop(stack, mark);
        }
        EXPECT_GT(stats(stack).resident_bytes, 5 * kMiB);
        os_sleep_ms(FRAME_DECAY_MS + 50);
    }
    cairn_stack_delete(stack);
}

TEST(StackBlock, EveryRefusalOfTheSystemIsSurvived)
{
    for_each_failure([] {
        cairn_stack *stack = cairn_stack_new(nullptr);
        if (stack == nullptr)
            return false;
        bool worked = true;
        std::vector<cairn_mark> marks;
        for (int i = 0; i < 10; i++) {
            marks.push_back(cairn_stack_push(stack));
            auto *block = static_cast<char *>(cairn_stack_alloc(stack, 300 * kKiB, 8));
            if (block != nullptr)
                memset(block, 1, 300 * kKiB);
            else
                EXPECT_EQ(errno, ENOMEM);
            worked = worked && block != nullptr && marks.back().frame != nullptr;
        }
        while (!marks.empty()) {
            cairn_stack_pop(stack, marks.back());
            marks.pop_back();
        }
        EXPECT_EQ(stats(stack).used_bytes, 0u);
        cairn_stack_trim(stack, 0);
        end_failures();
        EXPECT_NE(cairn_stack_alloc(stack, 100 * kKiB, 8), nullptr);
        cairn_stack_delete(stack);
        return worked;
    });
}

} // namespace stack_block_test
