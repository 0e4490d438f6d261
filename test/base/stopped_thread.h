// A thread that is stopped after the n-th instruction of its work and continues on request, so that
// a test can look at every window of a protocol. The test uses the single steps of the processor,
// on x86-64 only.
#ifndef TEST_BASE_STOPPED_THREAD_H
#define TEST_BASE_STOPPED_THREAD_H

#include <csignal>
#include <functional>
#include <thread>

#include <ucontext.h>

extern "C" {
#include "base/atomic.h"
#include "base/compiler.h"
#include "base/host.h"
}

namespace stopped_thread
{

#if defined(__x86_64__)
constexpr bool kCanStop = !config_tsan;
constexpr long long kTrapFlag = 0x100;
inline void begin_steps()
{
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
}
inline void end_steps()
{
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}
inline void end_steps_of(ucontext_t *context) { context->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag; }
#else
constexpr bool kCanStop = false;
inline void begin_steps() {}
inline void end_steps() {}
inline void end_steps_of(ucontext_t *) {}
#endif

// The thread prepares, is stopped during its work, and runs the rest at full speed. One object
// exists at a time.
class StoppedThread
{
  public:
    using Work = std::function<void()>;

    // Returns when the thread is prepared.
    explicit StoppedThread(Work work, Work prepare = [] {}, Work after = [] {})
    {
        struct sigaction action = {};
        action.sa_sigaction = on_step;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGTRAP, &action, nullptr);
        store_relaxed(&state_, PREPARING);
        thread_ = std::thread([=] {
            prepare();
            set(READY);
            wait_while(READY);
            begin_steps();
            work();
            end_steps();
            if (load_acquire(&state_) == RUNNING) { // it was not stopped
                set(DONE);
                wait_while(DONE);
            }
            after();
        });
        wait_while(PREPARING);
    }
    // Starts the work or continues it, and returns when it is stopped or has ended.
    // Returns: whether it is stopped.
    bool stop_after(size_t instructions)
    {
        return stop_when([=]() mutable { return instructions-- == 0; });
    }
    // Starts the work or continues it until the first instruction after which is_so() is true.
    // Returns: whether it is stopped.
    bool stop_when(std::function<bool()> is_so)
    {
        is_so_ = std::move(is_so);
        set(RUNNING);
        wait_while(RUNNING);
        return load_acquire(&state_) == STOPPED;
    }
    // Lets the thread run to its end.
    void finish()
    {
        set(GOES_ON);
        thread_.join();
    }

  private:
    enum : uint32_t { PREPARING, READY, RUNNING, STOPPED, DONE, GOES_ON };

    // Sleeps, since a thread that yields may wait long for its turn while other programs run.
    static void wait_while(uint32_t state)
    {
        while (load_acquire(&state_) == state)
            host_wait(&state_, state);
    }
    static void set(uint32_t state)
    {
        store_release(&state_, state);
        host_wake(&state_, UINT32_MAX);
    }
    static void on_step(int, siginfo_t *, void *context)
    {
        if (!is_so_())
            return;
        set(STOPPED);
        wait_while(STOPPED);
        if (load_acquire(&state_) == GOES_ON)
            end_steps_of(static_cast<ucontext_t *>(context));
    }

    static inline std::function<bool()> is_so_;
    static inline uint32_t state_; // atomic
    std::thread thread_;
};

} // namespace stopped_thread

#endif
