// Descriptors and runs, which all frame allocators share.

#include <set>
#include <vector>

#include "frame/frame_kit.h"

namespace
{

using namespace frame_kit;

TEST(Cell, TheOneGivenBackComesNextWithItsContents)
{
    auto *cell = static_cast<uint64_t *>(cell_take(CELL_FIFO));
    ASSERT_NE(cell, nullptr);
    EXPECT_TRUE(is_aligned(cell, 64));
    cell[1] = 42;
    cell_give(CELL_FIFO, cell);
    EXPECT_EQ(cell_take(CELL_FIFO), cell);
    EXPECT_EQ(cell[1], 42u);
    cell[1] = 0;
    cell_give(CELL_FIFO, cell);
}

TEST(Cell, KindsAreApart)
{
    void *cell = cell_take(CELL_STACK_BLOCK);
    cell_give(CELL_STACK_BLOCK, cell);
    void *other = cell_take(CELL_RING);
    EXPECT_NE(other, cell);
    cell_give(CELL_RING, other);
}

TEST(Cell, ThreadsNeverShareOne)
{
    std::vector<std::thread> threads;
    for (uintptr_t id = 1; id <= 8; id++)
        threads.emplace_back([id] {
            for (int i = 0; i < 20000; i++) {
                uintptr_t *cells[3];
                for (uintptr_t *&cell : cells) {
                    cell = static_cast<uintptr_t *>(cell_take(CELL_STACK));
                    ASSERT_NE(cell, nullptr);
                    cell[2] = id;
                }
                ASSERT_NE(cells[0], cells[1]);
                for (uintptr_t *cell : cells) {
                    ASSERT_EQ(cell[2], id);
                    cell_give(CELL_STACK, cell);
                }
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST(Run, IsNoBlockOfTheHeap)
{
    struct span *span = run_take(100 * kKiB, 2 * kMiB);
    ASSERT_NE(span, nullptr);
    EXPECT_TRUE(is_aligned(span->base, 2 * kMiB));
    EXPECT_EQ(run_bytes(span), 100 * kKiB);
    EXPECT_EQ(span->tag, SPAN_RUN);
    memset(span->base, 1, run_bytes(span));
    run_give(span);
    EXPECT_EQ(run_take(SIZE_MAX, 4096), nullptr);
}

TEST(Frame, NamesAreCutToFit)
{
    char name[FRAME_NAME_BYTES];
    frame_copy_name(name, "a name of far more than its room", "other");
    EXPECT_STREQ(name, "a name of far more than");
    frame_copy_name(name, nullptr, "other");
    EXPECT_STREQ(name, "other");
}

} // namespace
