// The locks that fork holds: mutual exclusion, and their state on both sides of a fork.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

extern "C" {
#include "page/page.h"
}

namespace fork_locks_test
{

TEST(ForkLocks, ExcludeEachOther)
{
    struct fork_lock lock = {};
    int counter = 0; // guarded by the lock, as ThreadSanitizer checks
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] {
            for (int k = 0; k < 20000; k++) {
                fork_lock_acquire(&lock);
                counter++;
                fork_lock_release(&lock);
            }
        });
    for (auto &thread : threads)
        thread.join();
    EXPECT_EQ(counter, 8 * 20000);
    EXPECT_EQ(lock.lock.state, 0u);
}

// Several threads may watch one lock.
TEST(ForkLocks, ALockIsWatchedOnce)
{
    struct fork_lock locks[2] = {};
    for (struct fork_lock *lock : {&locks[0], &locks[1], &locks[0], &locks[1]})
        fork_lock_watch(lock);
    const pid_t child = fork();
    if (child == 0)
        _exit(locks[0].lock.state == 0 && locks[1].lock.state == 0 ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    fork_lock_unwatch(&locks[0]);
    EXPECT_EQ(locks[0].next, nullptr);
    EXPECT_EQ(locks[1].prev->next, &locks[1]);
    fork_lock_unwatch(&locks[1]);
}

// Two numbers that change under a watched lock are equal whenever the lock is free, and so in every
// child.
TEST(ForkLocks, AChildSeesWholeState)
{
    struct State {
        struct fork_lock lock = {};
        volatile long first = 0;
        volatile long second = 0;
    } states[5];
    for (auto &state : states)
        fork_lock_watch(&state.lock);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (auto &state : states)
        threads.emplace_back([&] {
            while (!stop) {
                fork_lock_acquire(&state.lock);
                state.first = state.first + 1;
                for (volatile int pause = 0; pause < 200; pause = pause + 1) {
                }
                state.second = state.second + 1;
                fork_lock_release(&state.lock);
            }
        });
    for (auto &state : states)
        // until the other thread works
        for (long first = 0; first == 0; std::this_thread::yield()) {
            fork_lock_acquire(&state.lock);
            first = state.first;
            fork_lock_release(&state.lock);
        }
    for (int i = 0; i < 10; i++) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(100);
            int torn = 0;
            for (auto &state : states) {
                fork_lock_acquire(&state.lock);
                torn += state.first != state.second;
                fork_lock_release(&state.lock);
            }
            _exit(torn);
        }
        int status;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0);
    }
    stop = true;
    for (auto &thread : threads)
        thread.join();
    for (auto &state : states) {
        EXPECT_GT(state.first, 0);
        fork_lock_unwatch(&state.lock);
    }
}

// Acts as a signal handler that forks while the library is between its own fork handlers: this
// handler is registered first, so it runs last before the fork.
struct ForkAmidAFork {
    ForkAmidAFork() { pthread_atfork(fork_once, nullptr, nullptr); }
    static void fork_once()
    {
        if (!wanted)
            return;
        wanted = false;
        const pid_t child = fork();
        if (child == 0)
            _exit(7);
        waitpid(child, &status, 0);
    }
    static inline bool wanted = false;
    static inline int status = -1;
} fork_amid_a_fork;

TEST(ForkLocks, AForkAmidAFork)
{
    struct fork_lock lock = {};
    fork_lock_watch(&lock);
    alarm(100);
    ForkAmidAFork::wanted = true;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    EXPECT_EQ(lock.lock.state, 0u);
    if (child == 0) {
        fork_lock_acquire(&lock);
        fork_lock_release(&lock);
        _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(WIFEXITED(ForkAmidAFork::status));
    EXPECT_EQ(WEXITSTATUS(ForkAmidAFork::status), 7);
    fork_lock_acquire(&lock); // the next fork takes it as well
    fork_lock_release(&lock);
    alarm(0);
    fork_lock_unwatch(&lock);
}

// As a signal handler that interrupts the holder of a watched lock.
TEST(ForkLocks, TheHolderMayFork)
{
    struct fork_lock lock = {};
    fork_lock_watch(&lock);
    alarm(100);
    fork_lock_acquire(&lock);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    const bool held = lock_is_mine(&lock.lock) && lock.lock.state == 1;
    fork_lock_release(&lock);
    fork_lock_acquire(&lock);
    fork_lock_release(&lock);
    if (child == 0)
        _exit(held ? 0 : 1);
    EXPECT_TRUE(held);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    alarm(0);
    fork_lock_unwatch(&lock);
}

TEST(ForkLocks, AnUnwatchedLockIsNotTouched)
{
    struct fork_lock first = {};
    struct fork_lock second = {};
    fork_lock_watch(&first);
    fork_lock_watch(&second);
    fork_lock_unwatch(&first);
    fork_lock_acquire(&first); // otherwise fork would wait for ever
    const pid_t child = fork();
    if (child == 0)
        _exit(first.lock.state != 1 || second.lock.state != 0);
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    fork_lock_release(&first);
    fork_lock_unwatch(&second);
}

} // namespace fork_locks_test
