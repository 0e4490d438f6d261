// Fault injection: exactly the planned calls fail, and only in debug builds.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <thread>
#include <vector>

extern "C" {
#include "os/fault.h"
#include "os/memory.h"
}

namespace fault_test
{

class Fault : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_ = static_cast<char *>(os_map(os_page_size()));
        ASSERT_NE(page_, nullptr);
        os_fault_plan(0, 0, 0);
    }
    void TearDown() override
    {
        os_fault_plan(0, 0, 0);
        os_unmap(page_, os_page_size());
    }

    // The results of `count` calls.
    std::vector<int> calls(size_t count)
    {
        std::vector<int> results;
        for (size_t i = 0; i < count; i++)
            results.push_back(os_purge(page_, os_page_size()));
        return results;
    }

    char *page_ = nullptr;
};

TEST_F(Fault, ReleaseBuildsIgnoreThePlan)
{
    if (config_debug)
        GTEST_SKIP() << "debug builds obey the plan";
    os_fault_plan(0, 100, ENOMEM);
    EXPECT_EQ(calls(3), (std::vector<int>{0, 0, 0}));
    EXPECT_EQ(os_fault_plan(0, 0, 0), 0u);
}

TEST_F(Fault, PlannedCallsFail)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    os_fault_plan(2, 3, EPERM);
    EXPECT_EQ(calls(7), (std::vector<int>{0, 0, -EPERM, -EPERM, -EPERM, 0, 0}));
    EXPECT_EQ(os_fault_plan(0, 1, ENOMEM), 7u);
    EXPECT_EQ(calls(2), (std::vector<int>{-ENOMEM, 0}));
    EXPECT_EQ(os_fault_plan(0, 0, 0), 2u);
    EXPECT_EQ(calls(2), (std::vector<int>{0, 0}));
}

TEST_F(Fault, EachSoManyThCallFails)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    os_fault_plan_every(1, 5, 2, EINTR);
    EXPECT_EQ(calls(8), (std::vector<int>{0, -EINTR, 0, -EINTR, 0, -EINTR, 0, 0}));
    EXPECT_EQ(os_fault_plan(0, 0, 0), 8u);
}

TEST_F(Fault, EveryCallThatCanFailIsCounted)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    const size_t size = os_page_size();
    os_fault_plan(0, SIZE_MAX / 2, EAGAIN);
    EXPECT_EQ(os_reserve(size), nullptr);
    EXPECT_EQ(os_map(size), nullptr);
    EXPECT_EQ(os_commit(page_, size), -EAGAIN);
    EXPECT_EQ(os_protect(page_, size, OS_READ), -EAGAIN);
    EXPECT_EQ(os_purge(page_, size), -EAGAIN);
    EXPECT_EQ(os_populate(page_, size), -EAGAIN);
    EXPECT_EQ(os_huge_pages(page_, size, true), -EAGAIN);
    EXPECT_EQ(os_divide_huge_page(page_, size), -EAGAIN);
    EXPECT_EQ(os_resize(page_, size, 2 * size), -EAGAIN);
    EXPECT_EQ(os_move(page_, size, 2 * size), nullptr);
    EXPECT_EQ(os_move_onto(page_, size, page_ + size), OS_KEPT);
    EXPECT_FALSE(os_reserve_at(page_ + size, size));
    EXPECT_EQ(os_unmap(page_, size), -EAGAIN); // two calls: a range that stays is purged
    EXPECT_EQ(os_fault_plan(0, 0, 0), 14u);
    page_[0] = 1; // none of the calls had an effect
}

TEST_F(Fault, ThreadsShareThePlan)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    os_fault_plan(100, 50, ENOMEM);
    std::vector<std::thread> threads;
    std::vector<size_t> failures(4);
    for (size_t &mine : failures)
        threads.emplace_back([&mine, this] {
            for (int i = 0; i < 100; i++)
                mine += os_purge(page_, os_page_size()) == -ENOMEM;
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(failures[0] + failures[1] + failures[2] + failures[3], 50u);
    EXPECT_EQ(os_fault_plan(0, 0, 0), 400u);
}

} // namespace fault_test
