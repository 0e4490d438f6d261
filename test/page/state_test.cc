// Work that is deferred until the page lock is free: nothing is lost, whichever thread defers it.

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "page/page_layer.h"

namespace state_test
{

TEST(State, WhatThreadsDeferIsInTheListOnce)
{
    constexpr size_t kThreads = 4;
    constexpr size_t kSpans = 2000;
    page_layer::start();
    ASSERT_TRUE(
        lock_acquire(&page_layer::shard->lock)); // no thread settles the list during this time
    std::vector<std::vector<struct span *>> mine(kThreads);
    std::vector<std::thread> threads;
    for (auto &spans : mine)
        threads.emplace_back([&spans] {
            for (size_t i = 0; i < kSpans; i++) {
                spans.push_back(headers_make(page_layer::shard, 0, 1));
                spans.back()->pages = 0;
                defer(spans.back());
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    std::set<struct span *> waiting;
    for (struct span *span = page_layer::shard->deferred; span != nullptr; span = span->next)
        EXPECT_TRUE(waiting.insert(span).second);
    lock_release(&page_layer::shard->lock);
    for (const auto &spans : mine)
        for (struct span *span : spans)
            EXPECT_EQ(waiting.count(span), 1U);
    struct span *run = pages_take(1, PAGE_BYTES); // settles the deferred list
    ASSERT_NE(run, nullptr);
    EXPECT_EQ(page_layer::shard->deferred, nullptr);
    pages_give(run);
    pages_verify();
}

} // namespace state_test
