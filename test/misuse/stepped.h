// Double frees by two threads: one thread is stopped after its n-th instruction, for every n, other
// threads run, and the misuse must be reported for each n.
//
// Each n is a process of its own.
#ifndef TEST_MISUSE_STEPPED_H
#define TEST_MISUSE_STEPPED_H

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "base/stopped_thread.h"
#include "cairn/heap.h"

extern "C" {
#include "heap/heap.h"
}

namespace stepped
{

constexpr int kPassedExit = 17; // the misuse was not reported
constexpr int kOverExit = 18;   // the stepped call ended before its n-th instruction
constexpr int kTwiceExit = 19;  // a block was handed out twice

// Number of instructions between the owner's test and its store in
// TheOwnerAndAnotherAtTheSameInstant.
constexpr int kSameInstant = config_hardened ? 20 : 3;

using stopped_thread::StoppedThread;
using Work = StoppedThread::Work;

// Stops the thread after the given number of instructions; the process exits if the work ends
// before.
inline void stop_after(StoppedThread &stepped, long instructions)
{
    if (!stepped.stop_after(static_cast<size_t>(instructions)))
        _exit(kOverExit);
}

// A thread that runs during the stop. It may need what the stopped thread holds: so the constructor
// waits until the thread has ended, sleeps, or has spun for a while. A busy machine only makes that
// later.
class Beside
{
  public:
    explicit Beside(Work call)
        : thread_([=] {
              id_ = gettid();
              call();
              is_over_ = true;
          })
    {
        constexpr int kAsleep = 100; // looks in a row
        for (int asleep = 0; !is_over_ && asleep < kAsleep && !has_spun(); usleep(100))
            asleep = is_asleep() ? asleep + 1 : 0;
    }
    ~Beside() { thread_.join(); }

  private:
    bool is_asleep() const
    {
        const std::string path = "/proc/self/task/" + std::to_string(id_) + "/stat";
        std::string text;
        std::getline(std::ifstream(path), text);
        const size_t name_end = text.rfind(')');
        return name_end != std::string::npos && text.compare(name_end, 3, ") S") == 0;
    }
    bool has_spun()
    {
        clockid_t clock;
        struct timespec used = {};
        return pthread_getcpuclockid(thread_.native_handle(), &clock) == 0 &&
               clock_gettime(clock, &used) == 0 && (used.tv_sec != 0 || used.tv_nsec > 20000000);
    }

    std::atomic<pid_t> id_{0};
    std::atomic<bool> is_over_{false};
    std::thread thread_;
};

// Runs scenario(n) for every n. Each run must end with the report of a double free, except for up
// to `pass_unharmed` runs in which both frees were valid. If the report names the block's length,
// it must be `length`.
// Returns: the number of instructions that were tried.
inline long try_every_stop(void (*scenario)(long), long most, int pass_unharmed = 0,
                           const char *message = "cairn: double free of 0x",
                           const char *length = "(208-byte block)")
{
    for (long n = 1; n <= most; n++) {
        int out[2];
        if (pipe(out) != 0)
            abort();
        const pid_t child = fork();
        if (child == 0) {
            dup2(out[1], 2);
            close(out[0]);
            alarm(100);
            scenario(n);
            _exit(kPassedExit);
        }
        close(out[1]);
        std::string text;
        char buffer[512];
        for (ssize_t got; (got = read(out[0], buffer, sizeof buffer)) > 0;)
            text.append(buffer, static_cast<size_t>(got));
        close(out[0]);
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == kOverExit)
            return n - 1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == kPassedExit && pass_unharmed-- > 0)
            continue;
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
            << "stopped after instruction " << n << ": status " << status
            << (WIFEXITED(status) && WEXITSTATUS(status) == kTwiceExit ? ", handed out twice" : "");
        EXPECT_NE(text.find(message), std::string::npos)
            << "stopped after instruction " << n << ": " << text;
        EXPECT_TRUE(text.find("-byte block)") == std::string::npos ||
                    text.find(length) != std::string::npos)
            << "stopped after instruction " << n << ": " << text;
        if (testing::Test::HasFailure())
            return n;
    }
    return most;
}

class SteppedDoubleFree : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!stopped_thread::kCanStop)
            GTEST_SKIP() << "needs x86-64's trap flag";
    }
};

// A block that is the only one in a slab which is not current: when another thread frees it, the
// slab is released, and its memory may serve the block that it is moved to.
inline void *alone_in_a_slab()
{
    std::array<void *, 400> blocks;
    for (void *&block : blocks)
        block = cairn_malloc(200);
    for (void *block : blocks)
        if (block != blocks[0])
            cairn_free(block);
    return blocks[0];
}

} // namespace stepped

#endif
