// Pages of an arena are committed once, by the thread that claimed them. Two threads at the
// frontier must not commit the same pages: the slower one would make accessible what the faster
// one, or its program, has protected since.
//
// The linker redirects the library's calls of os_commit to this file (--wrap), so that the work of
// another thread runs between a thread's read of the frontier and its system call.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>
#include <utility>
#include <vector>

#include "page/page_layer.h"

extern "C" {
int __real_os_commit(void *start, size_t size_bytes);
int __wrap_os_commit(void *start, size_t size_bytes);
}

namespace
{

void (*g_meanwhile)();
std::vector<std::pair<char *, char *>> g_commits;

void while_committing(void (*meanwhile)()) { g_meanwhile = meanwhile; }

} // namespace

int __wrap_os_commit(void *start, size_t size_bytes)
{
    if (void (*meanwhile)() = std::exchange(g_meanwhile, nullptr)) {
        std::thread(meanwhile).join();
    }
    if (arena_of(start))
        g_commits.emplace_back(static_cast<char *>(start), static_cast<char *>(start) + size_bytes);
    return __real_os_commit(start, size_bytes);
}

namespace
{

char *commit(size_t pages)
{
    int error = 0;
    return arena_commit(&page_shards[0], &pages, pages, ARENA_EXACTLY, &error);
}

TEST(Claim, PagesAreCommittedOnce)
{
    page_layer::start();
    ASSERT_EQ(arena_add(&page_shards[0], 4000), 0);
    g_commits.reserve(100);
    for (int i = 0; i < 20; i++) {
        while_committing([] { EXPECT_NE(commit(40), nullptr); });
        EXPECT_NE(commit(60), nullptr);
    }
    ASSERT_EQ(g_commits.size(), 40u);
    for (const auto &one : g_commits)
        for (const auto &other : g_commits)
            EXPECT_TRUE(&one == &other || one.second <= other.first || other.second <= one.first);
}

char *g_protected;

TEST(Claim, WhatWasProtectedStaysSo)
{
    page_layer::start();
    ASSERT_EQ(arena_add(&page_shards[0], 4000), 0);
    while_committing([] {
        g_protected = commit(40);
        ASSERT_NE(g_protected, nullptr);
        ASSERT_EQ(mprotect(g_protected, PAGE_BYTES, PROT_NONE), 0); // a fence
    });
    ASSERT_NE(commit(60), nullptr);
    EXPECT_EXIT(*const_cast<volatile char *>(g_protected) = 1, testing::KilledBySignal(SIGSEGV),
                "");
}

} // namespace
