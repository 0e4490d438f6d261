// The background thread: decay without a call of the program, memory of threads that sleep, fork,
// start and stop; and it uses nothing of the general heap. No case depends on its speed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cairn/heap.h"
#include "cairn/stats.h"
#include "heap/heap_layer.h"

extern "C" {
#include "os/process.h"
#include "watch/watch.h"
}

namespace background_test
{

using heap_layer::set_decay;

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint64_t kWaitMs = 30000; // more than any machine needs

bool comes_true(const std::function<bool()> &condition)
{
    const uint64_t start_ms = os_now_ms();
    while (!condition())
        if (os_now_ms() - start_ms > kWaitMs)
            return false;
        else
            os_sleep_ms(5);
    return true;
}

page_stats stats()
{
    page_stats now;
    pages_read_stats(&now);
    return now;
}

// Frees written memory, in this thread's heap and in the page layer.
void free_much(size_t block_bytes)
{
    std::vector<void *> blocks(4 * kMiB / block_bytes);
    for (void *&block : blocks)
        memset(block = cairn_malloc(block_bytes), 1, block_bytes);
    for (void *block : blocks)
        cairn_free(block);
}

class Background : public testing::Test
{
  protected:
    void SetUp() override { set_decay(100); }

    void TearDown() override
    {
        background_stop();
        EXPECT_TRUE(comes_true([] { return !background_runs(); }));
        set_decay(1000);
    }
};

TEST_F(Background, IsNotThereUnlessAskedFor)
{
    EXPECT_FALSE(background_runs());
    free_much(100000);
    EXPECT_FALSE(background_runs());
}

TEST_F(Background, FreeMemoryGoesBackThoughNobodyCalls)
{
    ASSERT_EQ(background_start(), 0);
    EXPECT_TRUE(background_runs());
    EXPECT_EQ(background_start(), 0) << "the thread runs already";
    free_much(100000);
    EXPECT_TRUE(comes_true([] { return stats().dirty_bytes == 0; })) << stats().dirty_bytes;
    EXPECT_TRUE(comes_true([] { return background_rounds() > 0; })) << "it ends soon";
}

TEST_F(Background, SoDoesWhatASleepingThreadKeeps)
{
    int ready[2];
    int done[2];
    ASSERT_EQ(pipe(ready), 0);
    ASSERT_EQ(pipe(done), 0);
    const size_t before = stats().counted_bytes;
    std::thread sleeper([&] {
        free_much(3000);
        char byte = 0;
        (void)!write(ready[1], &byte, 1);
        (void)!read(done[0], &byte, 1);
    });
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    ASSERT_EQ(background_start(), 0);
    EXPECT_TRUE(comes_true([&] { return stats().counted_bytes < before + kMiB; }))
        << before << " " << stats().counted_bytes;
    ASSERT_EQ(write(done[1], &byte, 1), 1);
    sleeper.join();
    for (const int end : {ready[0], ready[1], done[0], done[1]})
        close(end);
}

TEST_F(Background, TakesNothingOfTheGeneralHeap)
{
    ASSERT_EQ(background_start(), 0);
    ASSERT_TRUE(comes_true([] { return background_rounds() > 0; }));
    cairn_heap_stats before;
    cairn_heap_stats after;
    cairn_heap_read_stats(&before);
    const uint64_t rounds = background_rounds();
    ASSERT_TRUE(comes_true([&] { return background_rounds() > rounds + 5; }));
    cairn_heap_read_stats(&after);
    EXPECT_EQ(after.thread_heaps, before.thread_heaps);
    EXPECT_LE(after.allocated_blocks, before.allocated_blocks);
}

TEST_F(Background, StartsAndStops)
{
    for (int round = 0; round < 20; round++) {
        ASSERT_EQ(background_start(), 0);
        if (round % 3 == 0)
            os_sleep_ms(2);
        background_stop();
        background_stop();
    }
    EXPECT_TRUE(comes_true([] { return !background_runs(); }));
}

uint64_t blocked_signals(const std::string &task)
{
    FILE *file = fopen(("/proc/self/task/" + task + "/status").c_str(), "r");
    char line[256];
    unsigned long blocked = 0;
    while (file && fgets(line, sizeof line, file) != nullptr)
        (void)sscanf(line, "SigBlk: %lx", &blocked);
    if (file)
        fclose(file);
    return blocked;
}

TEST_F(Background, ItsSignalsAreBlockedAndTheCallersAreNot)
{
    const uint64_t own = blocked_signals(std::to_string(os_thread_id()));
    const uint64_t rounds = background_rounds();
    ASSERT_EQ(background_start(), 0);
    ASSERT_TRUE(comes_true([&] { return background_rounds() > rounds; }));
    EXPECT_EQ(blocked_signals(std::to_string(os_thread_id())), own);
    uint64_t blocked = 0;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::ifstream(task.path() / "comm") >> name;
        if (name == "cairn")
            blocked = blocked_signals(task.path().filename());
    }
    for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGALRM, SIGCHLD, SIGPROF})
        EXPECT_NE(blocked >> (number - 1) & 1, 0u) << number;
}

// The libc stops a thread by these signals when its ids or its cancellation change: a thread that
// blocks them delays setuid.
TEST_F(Background, TheSignalsOfLibcAreNotBlocked)
{
    const uint64_t rounds = background_rounds();
    ASSERT_EQ(background_start(), 0);
    ASSERT_TRUE(comes_true([&] { return background_rounds() > rounds; }));
    uint64_t blocked = 0; // blocked by all threads of that name, of which one may be about to end
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::ifstream(task.path() / "comm") >> name;
        if (name == "cairn")
            blocked |= blocked_signals(task.path().filename());
    }
    for (const int number : {32, 33, 34})
        EXPECT_EQ(blocked >> (number - 1) & 1, 0u) << number;
    EXPECT_NE(blocked >> (40 - 1) & 1, 0u);
}

// Runs the body in a child of fork.
// Returns: its exit status.
int in_child(int (*body)())
{
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(200);
        _exit(body());
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
}

// A stop and a restart run at once in the child: the thread is stopped, whichever is first.
TEST_F(Background, OneThatIsOwedToAChildIsStopped)
{
    if (config_tsan)
        GTEST_SKIP() << "ThreadSanitizer supports no threads in a child of a threaded process";
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "the emulator ends a child that starts a thread";
    for (int round = 0; round < 8; round++) {
        ASSERT_EQ(background_start(), 0);
        EXPECT_EQ(in_child([] {
                      if (!background_is_owed)
                          return 1;
                      os_sleep_ms(BACKGROUND_CHILD_WAITS_MS + 1);
                      std::atomic<int> ready{0};
                      std::thread other([&] {
                          for (ready++; ready != 2;) {
                          }
                          background_restart();
                      });
                      for (ready++; ready != 2;) {
                      }
                      background_stop();
                      other.join();
                      const bool runs = background_runs();
                      background_restart();
                      return runs || background_runs() ? 2 : 0;
                  }),
                  0);
        background_stop();
    }
}

TEST_F(Background, AChildOfForkStartsItsOwnWhenItGoesOn)
{
    if (config_tsan)
        GTEST_SKIP() << "ThreadSanitizer supports no threads in a child of a threaded process";
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "the emulator ends a child that starts a thread";
    ASSERT_EQ(background_start(), 0);
    static void *(*allocate)(); // a child has its value, too
    for (void *(*one)() :
         {+[] { return cairn_malloc(50000); }, +[] { return cairn_calloc(2, 25000); },
          +[] { return cairn_aligned_alloc(4096, 50000); }}) {
        allocate = one;
        EXPECT_EQ(in_child([] {
                      if (background_runs())
                          return 1;
                      if (!os_may_start_within_malloc())
                          return 0;
                      std::vector<void *> kept;
                      return comes_true([&kept] {
                          kept.push_back(allocate());
                          return background_runs();
                      })
                                 ? 0
                                 : 2;
                  }),
                  0);
    }
    EXPECT_TRUE(background_runs());
}

TEST_F(Background, AChildThatIsNotAskedHasNone)
{
    ASSERT_EQ(background_start(), 0);
    background_stop();
    EXPECT_EQ(in_child([] {
                  os_sleep_ms(BACKGROUND_CHILD_WAITS_MS + 20);
                  for (int i = 0; i < 100; i++)
                      cairn_free(cairn_malloc(50000));
                  return background_runs() ? 1 : 0;
              }),
              0);
}

TEST_F(Background, ForksAmidItsWork)
{
    set_decay(1);
    ASSERT_EQ(background_start(), 0);
    for (int round = 0; round < 50 && !HasFailure(); round++) {
        free_much(5000);
        EXPECT_EQ(in_child([] {
                      if (config_tsan || CAIRN_TEST_EMULATED)
                          background_stop(); // a slow child starts a thread, and this ends it
                      free_much(5000);
                      return heap_release(0) ? 0 : 0;
                  }),
                  0);
    }
}

// Daemons close descriptors that they do not know, and reuse these numbers.
TEST_F(Background, ItsDescriptorsMayBeClosedAndTheirNumbersUsed)
{
    ASSERT_EQ(background_start(), 0);
    ASSERT_TRUE(comes_true([] { return background_rounds() > 0; }));
    for (int number = 3; number < 1000; number++)
        if (number < 10 || number >= 400)
            (void)close(number);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
    for (int number = 500; number < 510; number++)
        ASSERT_EQ(dup2(ends[0], number), number);
    ASSERT_EQ(write(ends[1], "all of the program's", 20), 20);
    const uint64_t before = background_rounds();
    EXPECT_TRUE(comes_true([&] { return background_rounds() > before + 2; }));
    char text[32];
    EXPECT_EQ(read(ends[0], text, sizeof text), 20);
    background_stop();
    EXPECT_FALSE(background_runs());
    for (int number = 500; number < 510; number++)
        EXPECT_EQ(close(number), 0) << number;
    close(ends[0]);
    close(ends[1]);
}

} // namespace background_test
