// Threads' ends and fork: the handlers are called when, and as often as, they should be.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

extern "C" {
#include "base/atomic.h"
#include "os/os.h"
}

namespace
{

// Written by a thread that ends, read after it was joined.
std::string ends;
int again;

void thread_end(void *value)
{
    ends += static_cast<const char *>(value);
    if (again > 0) {
        again--;
        os_thread_end_arm(value);
    }
}

std::string forks;

TEST(Thread, CannotBeArmedWithoutAHandler)
{
    char value[] = "x";
    EXPECT_EQ(os_thread_end_arm(value), -EAGAIN);
}

TEST(Thread, TheHandlerRunsAtEachArmedThreadsEnd)
{
    ASSERT_EQ(os_thread_end_register(thread_end), 0);
    char first[] = "a";
    char second[] = "b";
    std::thread([] {}).join();
    EXPECT_EQ(ends, "") << "a thread that was not armed";
    std::thread([&] {
        EXPECT_EQ(os_thread_end_arm(first), 0);
        EXPECT_EQ(ends, "");
    }).join();
    EXPECT_EQ(ends, "a");
    std::thread([&] {
        EXPECT_EQ(os_thread_end_arm(first), 0);
        EXPECT_EQ(os_thread_end_arm(second), 0); // the last value counts
    }).join();
    EXPECT_EQ(ends, "ab");

    ends.clear();
    again = 2;
    std::thread([&] { EXPECT_EQ(os_thread_end_arm(first), 0); }).join();
    EXPECT_EQ(ends, "aaa") << "armed again while destructors run";
}

TEST(Thread, ForkHandlersRunOnBothSides)
{
    ASSERT_EQ(os_fork_register([] { forks += "before "; }, [] { forks += "parent"; },
                               [] { forks += "child"; }),
              0);
    const pid_t child = fork();
    if (child == 0)
        _exit(forks == "before child" ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(forks, "before parent");
}

uint32_t started; // atomic: the kernel's number of the thread

void note_start() { store_release(&started, os_thread_id()); }

TEST(Thread, IsStartedAndNobodyJoinsIt)
{
    for (int round = 0; round < 10; round++) {
        store_relaxed(&started, 0u);
        ASSERT_EQ(os_thread_start(note_start, "cairn"), 0);
        for (int i = 0; i < 30000 && load_acquire(&started) == 0; i++)
            os_sleep_ms(1);
        EXPECT_NE(load_acquire(&started), 0u);
        EXPECT_NE(load_acquire(&started), os_thread_id());
    }
}

} // namespace
