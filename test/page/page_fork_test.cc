// Fork: what the child finds, and threads that meet one half-way.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>
#include <vector>

#include "page/page_layer.h"

namespace
{

class PageFork : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    // The exit status of a child that runs it; what is buffered is written once.
    template <typename Function> static int in_child(Function function)
    {
        fflush(nullptr);
        const pid_t child = fork();
        if (child == 0)
            _exit(function());
        int status = 1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        return status;
    }
};

bool in_child_was_called = false;

TEST_F(PageFork, TheChildHasTheLayerWhole)
{
    pages_on_fork([] { in_child_was_called = true; });
    struct span *run = pages_take(20, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    page_layer::fill(run, 3);
    EXPECT_EQ(in_child([&] {
                  if (!in_child_was_called || !page_layer::reads(run->base, 20 * PAGE_BYTES, 3))
                      return 1;
                  pages_give(run);
                  pages_verify();
                  return pages_take(20, PAGE_BYTES) != nullptr ? 0 : 2;
              }),
              0);
    EXPECT_FALSE(in_child_was_called) << "the parent goes on";
    pages_give(run);
    pages_verify();
    pages_on_fork(nullptr);
}

TEST_F(PageFork, WhatWasDeferredBeforeIsNotLostToTheChild)
{
    struct span *run = pages_take(6, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    const size_t free_bytes = page_layer::stats().free_bytes;
    page_map_set(run->base, 1, nullptr); // as give does
    run->tag = SPAN_MOVING;
    run->dirty_pages = run->pages;
    defer(run);
    EXPECT_EQ(in_child([&] {
                  pages_verify();
                  return page_layer::stats().free_bytes == free_bytes + 6 * PAGE_BYTES ? 0 : 1;
              }),
              0);
    EXPECT_EQ(page_layer::stats().free_bytes, free_bytes + 6 * PAGE_BYTES);
    pages_verify();
}

// Growth that meets a fork half-way is not out of memory.
TEST_F(PageFork, GrowthDuringForksDoesNotFail)
{
    std::atomic<bool> done{false};
    std::thread grower([&] {
        std::vector<struct span *> spans;
        for (int i = 0; i < 1500; i++) { // each more than one step of growth; never touched
            struct span *span = pages_take(1100, PAGE_BYTES);
            EXPECT_NE(span, nullptr);
            if (span == nullptr)
                break;
            spans.push_back(span);
        }
        done = true;
        for (struct span *span : spans)
            pages_give(span);
    });
    while (!done) {
        pages_freeze();
        pages_thaw();
        usleep(20);
    }
    grower.join();
}

} // namespace
