// Descriptors and runs, which all frame allocators share.

#include <set>
#include <vector>

#include "frame/frame_kit.h"

namespace frame_test
{

using namespace frame_kit;

TEST(FrameDescriptors, TheOneGivenBackComesNextWithItsContents)
{
    auto *descriptor = static_cast<uint64_t *>(descriptor_take(DESCRIPTOR_FIFO));
    ASSERT_NE(descriptor, nullptr);
    EXPECT_TRUE(is_aligned(descriptor, 64));
    descriptor[1] = 42;
    descriptor_give(DESCRIPTOR_FIFO, descriptor);
    EXPECT_EQ(descriptor_take(DESCRIPTOR_FIFO), descriptor);
    EXPECT_EQ(descriptor[1], 42u);
    descriptor[1] = 0;
    descriptor_give(DESCRIPTOR_FIFO, descriptor);
}

TEST(FrameDescriptors, KindsAreApart)
{
    void *descriptor = descriptor_take(DESCRIPTOR_STACK_BLOCK);
    descriptor_give(DESCRIPTOR_STACK_BLOCK, descriptor);
    void *other = descriptor_take(DESCRIPTOR_RING);
    EXPECT_NE(other, descriptor);
    descriptor_give(DESCRIPTOR_RING, other);
}

TEST(FrameDescriptors, ThreadsNeverShareOne)
{
    std::vector<std::thread> threads;
    for (uintptr_t id = 1; id <= 8; id++)
        threads.emplace_back([id] {
            for (int i = 0; i < 20000; i++) {
                uintptr_t *cells[3];
                for (uintptr_t *&descriptor : cells) {
                    descriptor = static_cast<uintptr_t *>(descriptor_take(DESCRIPTOR_STACK));
                    ASSERT_NE(descriptor, nullptr);
                    descriptor[2] = id;
                }
                ASSERT_NE(cells[0], cells[1]);
                for (uintptr_t *descriptor : cells) {
                    ASSERT_EQ(descriptor[2], id);
                    descriptor_give(DESCRIPTOR_STACK, descriptor);
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

} // namespace frame_test
