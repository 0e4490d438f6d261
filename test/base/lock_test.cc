// The futex lock: exclusion, ownership, rank, and the freeze that prevents deadlocks of fork.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

extern "C" {
#include "base/check.h"
#include "base/lock.h"
}

namespace lock_test
{

TEST(Lock, ExcludesOtherThreads)
{
    struct lock lock = {};
    size_t counter = 0; // plain: only the lock protects it
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] {
            for (int round = 0; round < 5000; round++) {
                ASSERT_TRUE(lock_acquire(&lock));
                counter++;
                if (round % 512 == 0)
                    usleep(50); // other threads sleep on the futex during this time
                lock_release(&lock);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(counter, 8u * 5000);
    EXPECT_EQ(lock.state, 0u);
}

// A waiting thread must not write the lock's cache line, which the holder needs.
TEST(Lock, AWaitingThreadReadsAndPausesLongerEachTime)
{
    void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    auto *state = static_cast<uint32_t *>(page);
    for (uint32_t held : {1u, 2u}) {
        *state = held;
        ASSERT_EQ(mprotect(page, 4096, PROT_READ), 0);
        unsigned pauses = 1;
        EXPECT_FALSE(lock_spin(state, &pauses));
        EXPECT_EQ(pauses, 2u * LOCK_PAUSES_MAX);
        EXPECT_FALSE(lock_spin(state, &pauses)) << "the pauses are over";
        ASSERT_EQ(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
    }
    for (uint32_t other : {0u, 3u}) { // free, frozen
        *state = other;
        unsigned pauses = 4;
        EXPECT_TRUE(lock_spin(state, &pauses));
        EXPECT_EQ(pauses, 8u);
    }
    munmap(page, 4096);
}

TEST(Lock, KnowsItsOwner)
{
    struct lock lock = {};
    EXPECT_FALSE(lock_is_mine(&lock));
    ASSERT_TRUE(lock_acquire(&lock));
    EXPECT_TRUE(lock_is_mine(&lock));
    std::thread([&] { EXPECT_FALSE(lock_is_mine(&lock)); }).join();
    lock_release(&lock);
    EXPECT_FALSE(lock_is_mine(&lock));
}

TEST(Lock, NobodyWaitsForAFrozenLock)
{
    struct lock lock = {};
    lock_freeze(&lock);
    std::thread([&] { EXPECT_FALSE(lock_acquire(&lock)); }).join();
    lock_thaw(&lock);
    std::thread([&] {
        ASSERT_TRUE(lock_acquire(&lock));
        lock_release(&lock);
    }).join();
}

// A signal handler forks between the fork handlers of the fork that it interrupted.
TEST(Lock, AForkWithinAForkLeavesTheLockFree)
{
    for (bool held : {false, true}) { // held by the thread that a first handler interrupted
        struct lock lock = {};
        if (held) {
            ASSERT_TRUE(lock_acquire(&lock));
        }
        lock_freeze(&lock);
        EXPECT_EQ(lock_is_frozen_whole(&lock), !held);
        for (int round = 0; round < 2; round++) {
            lock_freeze(&lock);
            EXPECT_FALSE(lock_is_frozen_whole(&lock));
            lock_thaw(&lock);
            std::thread([&] { EXPECT_FALSE(lock_acquire(&lock)) << "still frozen"; }).join();
        }
        EXPECT_EQ(lock_is_frozen_whole(&lock), !held);
        lock_thaw(&lock);
        EXPECT_EQ(lock_is_mine(&lock), held);
        if (held)
            lock_release(&lock);
        EXPECT_EQ(lock.state, 0u);
        std::thread([&] {
            ASSERT_TRUE(lock_acquire(&lock));
            lock_release(&lock);
        }).join();
    }
}

// Threads that sleep on the lock when another one forks must wake up and use another way.
// The lock that is frozen first does not make the second one look as if this thread held it.
TEST(Lock, AForkFreezesSeveralInAnyOrder)
{
    struct lock locks[2] = {};
    locks[0].rank = 1;
    std::atomic<bool> over{false};
    std::atomic<int> inside{0};
    std::thread other([&] {
        while (!over)
            if (lock_acquire(&locks[1])) {
                EXPECT_EQ(inside++, 0);
                inside--;
                lock_release(&locks[1]);
            }
    });
    for (int round = 0; round < 20000; round++) {
        lock_freeze(&locks[0]);
        lock_freeze(&locks[1]);
        EXPECT_EQ(inside++, 0);
        EXPECT_TRUE(lock_is_frozen_whole(&locks[1]));
        inside--;
        lock_thaw(&locks[1]);
        lock_thaw(&locks[0]);
    }
    over = true;
    other.join();
    EXPECT_TRUE(lock_acquire(&locks[1]));
    lock_release(&locks[1]);
}

TEST(Lock, ATryDoesNotWait)
{
    struct lock lock = {};
    ASSERT_TRUE(lock_try_acquire(&lock));
    std::thread([&] { EXPECT_FALSE(lock_try_acquire(&lock)); }).join();
    lock_release(&lock);
    lock_freeze(&lock);
    std::thread([&] { EXPECT_FALSE(lock_try_acquire(&lock)); }).join();
    lock_thaw(&lock);
    std::thread([&] {
        ASSERT_TRUE(lock_try_acquire(&lock));
        lock_release(&lock);
    }).join();
}

TEST(Lock, FreezeSendsWaitersAway)
{
    for (int round = 0; round < 20; round++) {
        struct lock lock = {};
        ASSERT_TRUE(lock_acquire(&lock));
        std::atomic<int> sent_away{0};
        std::atomic<int> arrived{0};
        std::vector<std::thread> waiters;
        for (int i = 0; i < 4; i++)
            waiters.emplace_back([&] {
                arrived++;
                if (lock_acquire(&lock))
                    lock_release(&lock);
                else
                    sent_away++;
            });
        while (arrived != 4)
            usleep(10);
        usleep(round % 4 * 500); // in some rounds the waiters spin, in some they sleep
        lock_freeze(&lock);      // held already: as if a signal handler forked
        for (std::thread &waiter : waiters)
            waiter.join();
        EXPECT_EQ(sent_away, 4);
        lock_thaw(&lock);
        EXPECT_TRUE(lock_is_mine(&lock)) << "the thaw released the lock of the interrupted code";
        lock_release(&lock);
        EXPECT_TRUE(lock_acquire(&lock));
        lock_release(&lock);
    }
}

// A thread that a release wakes, and that a freeze then sends away, must pass the wake-up on to the
// threads that still sleep.
TEST(Lock, FreezeLosesNoWakeUp)
{
    alarm(200); // if a wake-up is lost, the second waiter sleeps for ever
    for (int round = 0; round < 20; round++) {
        struct lock lock = {};
        ASSERT_TRUE(lock_acquire(&lock));
        std::vector<std::thread> waiters;
        for (int i = 0; i < 2; i++)
            waiters.emplace_back([&] {
                if (lock_acquire(&lock))
                    lock_release(&lock);
            });
        usleep(20000); // both sleep now
        lock_release(&lock);
        lock_freeze(&lock); // usually before the woken thread runs
        usleep(5000);
        lock_thaw(&lock);
        for (std::thread &waiter : waiters)
            waiter.join();
    }
    alarm(0);
}

// Two threads are about to sleep when a third one freezes the lock. The first announces itself
// late, checks the lock and leaves; the second has checked before and is about to wait. The
// announcement must fail: otherwise the second thread sleeps on a frozen lock. One thread plays all
// steps here. The model of the lock in test/proof covers this order.
TEST(Lock, ALateAnnouncementPutsNobodyToSleep)
{
    struct lock lock = {};
    lock_freeze(&lock);
    constexpr uint32_t kWaited = 2;
    uint32_t held = 1;
    EXPECT_FALSE(__atomic_compare_exchange_n(&lock.state, &held, kWaited, false, __ATOMIC_ACQ_REL,
                                             __ATOMIC_ACQUIRE));
    EXPECT_NE(held, kWaited) << "the value that the other thread's wait compares with";
    lock_thaw(&lock);
    EXPECT_EQ(lock.state, 0u);
}

TEST(Lock, TwoForksAtOnceTakeTurns)
{
    struct lock lock = {};
    int inside = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            for (int round = 0; round < 200; round++) {
                lock_freeze(&lock);
                EXPECT_EQ(++inside, 1);
                inside--;
                lock_thaw(&lock);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

// The processor time that this thread has used, in microseconds.
long used_us()
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

// A thread that wants to fork sleeps while another thread forks.
TEST(Lock, AFreezeSleepsWhileAnotherThreadForks)
{
    constexpr unsigned kForkUs = 400000;
    struct lock lock = {};
    std::vector<std::thread> threads;
    lock_freeze(&lock);
    for (int i = 0; i < 3; i++)
        threads.emplace_back([&] {
            const long before = used_us();
            lock_freeze(&lock);
            EXPECT_LT(used_us() - before, long{kForkUs} / 10);
            lock_thaw(&lock);
        });
    usleep(kForkUs);
    lock_thaw(&lock);
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(lock.state, 0u);
}

// On one processor, a real-time thread that spins for a thread of lower priority would keep that
// thread from running.
TEST(Lock, TwoRealTimeThreadsForkOnOneProcessor)
{
    EXPECT_EXIT(
        {
            // The time for which a real-time thread runs without sleeping.
            rlimit limit;
            limit.rlim_cur = limit.rlim_max = 2000000;
            setrlimit(RLIMIT_RTTIME, &limit);
            alarm(100);
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(sched_getcpu(), &one);
            sched_setaffinity(0, sizeof one, &one);
            const auto prioritise = [](int priority) {
                const sched_param parameter = {priority};
                if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter) != 0)
                    _exit(77);
            };
            static struct lock lock = {};
            prioritise(1);
            lock_freeze(&lock);
            std::atomic<bool> began{false};
            std::thread other([&] { // runs until it sleeps, or for ever
                prioritise(2);
                began = true;
                lock_freeze(&lock);
                lock_thaw(&lock);
            });
            while (!began)
                usleep(100);
            lock_thaw(&lock);
            other.join();
            _exit(0);
        },
        [](int status) {
            return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
        },
        "");
}

TEST(LockDeathTest, RanksRise)
{
    if (!config_debug)
        GTEST_SKIP() << "ranks are checked in debug builds";
    struct lock low = {};
    struct lock high = {};
    low.rank = 1;
    high.rank = 2;
    const auto acquire = [](struct lock *first, struct lock *second) {
        if (lock_acquire(first) && lock_acquire(second))
            _exit(0);
    };
    EXPECT_EXIT(acquire(&low, &high), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(acquire(&high, &low), testing::KilledBySignal(SIGABRT), "internal error");
}

} // namespace lock_test
