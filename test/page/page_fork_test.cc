// Fork: the state of the page layer in the child, and threads that take and give memory during a
// fork.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>
#include <vector>

#include "page/page_layer.h"

extern "C" {
#include "base/tagged.h"
}

namespace page_fork_test
{

class PageFork : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    // Runs `function` in a child. Buffered output is written once, before the fork.
    // Returns: the exit status of the child.
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
    EXPECT_FALSE(in_child_was_called) << "the function runs in the child only";
    pages_give(run);
    pages_verify();
    pages_on_fork(nullptr);
}

TEST_F(PageFork, WhatWasDeferredBeforeIsNotLostToTheChild)
{
    struct span *run = pages_take(6, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    const size_t free_bytes = page_layer::stats().free_bytes;
    page_map_set(run->base, 1, nullptr); // the first step of pages_give
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

// Takes slabs of each shape in another thread while the lock is frozen, as a thread would during a
// fork.
std::vector<struct span *> take_while_frozen()
{
    std::vector<struct span *> slabs;
    pages_freeze();
    std::thread([&] {
        for (unsigned i = 0; i < 24; i++)
            slabs.push_back(pages_take_slab(i % 3));
    }).join();
    pages_thaw();
    return slabs;
}

void give_all(const std::vector<struct span *> &slabs)
{
    for (struct span *slab : slabs) {
        slab->owner = 0;
        pages_give_slab(slab, 0);
    }
}

// Headers that were given back serve the threads of the next fork.
TEST_F(PageFork, ManyForksMakeNoMoreHeadersThanOne)
{
    for (int i = 0; i < 3; i++)
        give_all(take_while_frozen());
    const size_t before = load_relaxed(&meta_total_bytes);
    for (int i = 0; i < 500; i++) {
        const std::vector<struct span *> slabs = take_while_frozen();
        for (struct span *slab : slabs)
            ASSERT_NE(slab, nullptr);
        give_all(slabs);
    }
    EXPECT_EQ(load_relaxed(&meta_total_bytes), before);
    pages_verify();
}

// Each growth needs a header; a growth that meets a fork leaves its header for the next one.
TEST_F(PageFork, GrowthThatMeetsForksMakesNoHeaders)
{
    give_all(take_while_frozen());
    ASSERT_NE(meta_take(META_HOT, 1), nullptr); // the chunk for the headers of growths
    const size_t before = load_relaxed(&meta_total_bytes);
    for (int i = 0; i < 1000; i++) {
        pages_freeze();
        std::thread([] { EXPECT_EQ(pages_grow(page_layer::shard, 1), -EAGAIN); }).join();
        pages_thaw();
    }
    EXPECT_EQ(load_relaxed(&meta_total_bytes), before);
    pages_verify();
}

// A header that a thread takes while the locks are frozen, and gives back with a run, serves again
// at the next fork.
TEST_F(PageFork, HeadersThatBecomeThoseOfRunsServeTheNextFork)
{
    const auto fork_once = [] {
        pages_freeze();
        struct span *header = nullptr;
        std::thread([&] { header = header_take(page_layer::shard, 0); }).join();
        pages_thaw();
        ASSERT_NE(header, nullptr);
        ASSERT_TRUE(lock_acquire(&page_layer::shard->lock));
        header_push(header);
        lock_release(&page_layer::shard->lock);
    };
    for (int i = 0; i < 20; i++)
        fork_once();
    const size_t before = load_relaxed(&meta_total_bytes);
    for (int i = 0; i < 3000; i++)
        fork_once();
    EXPECT_EQ(load_relaxed(&meta_total_bytes), before);
    pages_verify();
}

// Headers that other threads may take without a lock, and pieces of metadata.
TEST_F(PageFork, TheChildHasTheHeadersAndTheChunksOfItsParent)
{
    struct span *header = header_take(page_layer::shard, 0);
    ASSERT_NE(header, nullptr);
    std::atomic<bool> over{false};
    std::thread other([&] {
        while (!over)
            std::this_thread::yield();
    });
    header_return(header);
    const size_t bytes = load_relaxed(&meta_total_bytes);
    EXPECT_EQ(in_child([&] {
                  return header_take(page_layer::shard, 0) == header &&
                                 meta_take(META_HOT, 128) != nullptr &&
                                 load_relaxed(&meta_total_bytes) == bytes
                             ? 0
                             : 1;
              }),
              0);
    over = true;
    other.join();
    EXPECT_EQ(header_take(page_layer::shard, 0), header);
    header_return(header);
    pages_verify();
}

// The page lock is frozen first and thawed last. A thread whose shard is not frozen and has no room
// adds no arena meanwhile, and does not wait for the forking thread.
TEST_F(PageFork, AThreadThatNeedsAnArenaTakesAForkRun)
{
    enum { PAGES = 1 << 16 };
    const size_t before = load_relaxed(&meta_total_bytes);
    lock_freeze(&pages_state.lock);
    std::thread([] {
        for (int i = 0; i < 100; i++) {
            struct span *run = pages_take(PAGES, PAGE_BYTES);
            ASSERT_NE(run, nullptr);
            EXPECT_EQ(arena_of(run->base), nullptr);
            pages_give(run);
        }
    }).join();
    lock_thaw(&pages_state.lock);
    EXPECT_LE(load_relaxed(&meta_total_bytes), before + 64 * 1024);
    pages_verify();
}

// Two threads replace runs while the process forks often, like a server that forks for each
// request.
TEST_F(PageFork, ThreadsThatReplaceRunsDuringForksMakeFewHeaders)
{
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    store_relaxed(&pages_state.shard_count, 3u);
    for (uint8_t i = 0; i < 2; i++)
        threads.emplace_back([&over, i] {
            own_shard = i;
            std::vector<struct span *> slabs(16, nullptr);
            for (unsigned turn = 0; !over; turn++) {
                struct span *&slab = slabs[turn * 7 % slabs.size()];
                if (slab)
                    give_all({slab});
                slab = pages_take_slab(turn % 3);
                EXPECT_NE(slab, nullptr);
                struct span *run = pages_take(turn % 5 + 1, PAGE_BYTES);
                EXPECT_NE(run, nullptr);
                pages_give(run);
            }
            for (struct span *slab : slabs)
                if (slab)
                    give_all({slab});
        });
    const size_t before = load_relaxed(&meta_total_bytes);
    for (int i = 0; i < 1000; i++) {
        pages_freeze();
        usleep(50);
        pages_thaw();
        usleep(5);
    }
    over = true;
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_LE(load_relaxed(&meta_total_bytes), before + 512 * 1024);
    pages_verify();
}

// A growth that meets a fork must not be mistaken for a lack of memory.
TEST_F(PageFork, GrowthDuringForksDoesNotFail)
{
    std::atomic<bool> done{false};
    std::thread grower([&] {
        std::vector<struct span *> spans;
        for (int i = 0; i < 1500; i++) { // each exceeds one step of growth and is never touched
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

} // namespace page_fork_test
