// The readable part of a stack: a thread's own stack is read up to its end, any other stack page by
// page, and checked each time.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

extern "C" {
#include "unwind/unwind.h"
#include "unwind/unwind_bounds.h"
}

namespace unwind_bounds_test
{

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

uintptr_t here()
{
    return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) & ~uintptr_t{15};
}

class StackBounds : public testing::Test
{
  protected:
    void SetUp() override { unwind_prepare(); }
};

TEST_F(StackBounds, AThreadsOwnStackIsReadToItsEnd)
{
    struct unwind_bounds bounds;
    ASSERT_TRUE(unwind_bounds_find(&bounds, here()));
    EXPECT_GT(bounds.end, here());
    EXPECT_EQ(bounds.readable, bounds.end);
    std::thread([] {
        struct unwind_bounds own;
        ASSERT_TRUE(unwind_bounds_find(&own, here()));
        EXPECT_EQ(own.readable, own.end);
        ASSERT_TRUE(unwind_bounds_find(&own, here() - 2 * kPage)) << "the stack has grown";
        EXPECT_EQ(own.readable, own.end);
    }).join();
}

TEST_F(StackBounds, NothingIsAboveAllStacks)
{
    struct unwind_bounds bounds;
    EXPECT_FALSE(unwind_bounds_find(&bounds, UINTPTR_MAX - 15));
}

void expect_paged(char *pages)
{
    struct unwind_bounds bounds;
    const auto start = reinterpret_cast<uintptr_t>(pages);
    ASSERT_TRUE(unwind_bounds_find(&bounds, start + kPage - 64));
    EXPECT_EQ(bounds.readable, start + kPage);
    EXPECT_TRUE(unwind_bounds_extend(&bounds, start + 3 * kPage - 8));
    EXPECT_EQ(bounds.readable, start + 3 * kPage);
    EXPECT_FALSE(unwind_bounds_extend(&bounds, start + 3 * kPage)) << "nothing is mapped there";
    ASSERT_EQ(mprotect(pages + 2 * kPage, kPage, PROT_NONE), 0);
    ASSERT_TRUE(unwind_bounds_find(&bounds, start + kPage - 64));
    EXPECT_TRUE(unwind_bounds_extend(&bounds, start + kPage));
    EXPECT_FALSE(unwind_bounds_extend(&bounds, start + 2 * kPage))
        << "only the former part is readable";
    ASSERT_EQ(mprotect(pages + 2 * kPage, kPage, PROT_READ | PROT_WRITE), 0);
}

TEST_F(StackBounds, AnotherStackIsLookedAtEachTime)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "qemu-user may say of each address that it can be read";
    char *pages = static_cast<char *>(
        mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(mprotect(pages + 3 * kPage, kPage, PROT_NONE), 0);
    expect_paged(pages);
    std::thread(expect_paged, pages).join();
    munmap(pages, 4 * kPage);
}

struct Part {
    char *pages; // the stacks of the threads end where these pages end
    size_t bytes;
    struct unwind_bounds found[2];
};

void *look_at_first_page(void *argument)
{
    auto *part = static_cast<Part *>(argument);
    for (struct unwind_bounds &bounds : part->found) {
        EXPECT_TRUE(unwind_bounds_find(&bounds, reinterpret_cast<uintptr_t>(part->pages) + 64));
        unwind_forget_thread();
    }
    return nullptr;
}

void look_in_thread(Part *part, size_t stack_bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(
        pthread_attr_setstack(&attributes, part->pages + part->bytes - stack_bytes, stack_bytes),
        0);
    ASSERT_EQ(pthread_create(&thread, &attributes, look_at_first_page, part), 0);
    ASSERT_EQ(pthread_join(thread, nullptr), 0);
    (void)pthread_attr_destroy(&attributes);
}

TEST_F(StackBounds, NothingIsKnownOfAStackThatIsForgotten)
{
    enum { BYTES = 2 << 20 };
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "qemu-user may say of each address that it can be read";
    void *pages = mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    Part part = {static_cast<char *>(pages), BYTES, {}};
    look_in_thread(&part, BYTES);
    for (const struct unwind_bounds &bounds : part.found)
        EXPECT_EQ(bounds.readable, bounds.end);
    ASSERT_EQ(mprotect(part.pages + kPage, kPage, PROT_NONE), 0);
    look_in_thread(&part, BYTES / 2);
    for (const struct unwind_bounds &bounds : part.found)
        EXPECT_EQ(bounds.readable, reinterpret_cast<uintptr_t>(pages) + kPage);
    munmap(pages, BYTES);
}

TEST_F(StackBounds, NoFrameIsSoLarge)
{
    struct unwind_bounds bounds;
    char *pages = static_cast<char *>(
        mmap(nullptr, 128 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages, MAP_FAILED);
    const auto start = reinterpret_cast<uintptr_t>(pages);
    // An emulator may have put the thread's own stack below.
    if (unwind_bounds_find(&bounds, start + 64) && bounds.readable < bounds.end) {
        EXPECT_FALSE(unwind_bounds_extend(&bounds, start + 100 * kPage));
        EXPECT_FALSE(unwind_bounds_extend(&bounds, bounds.end));
    }
    munmap(pages, 128 * kPage);
}

} // namespace unwind_bounds_test
