// A thread that is stopped before the n-th instruction of its work, and goes on when it is told to:
// so a test looks at every window of a protocol. By the processor's single steps, x86-64 only.
#ifndef TEST_FRAME_STOPPED_THREAD_H
#define TEST_FRAME_STOPPED_THREAD_H

#include <csignal>
#include <functional>
#include <thread>

#include <sched.h>
#include <ucontext.h>

#include "frame/frame_kit.h"

namespace frame_kit
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

class StoppedThread
{
  public:
    // Returns when the work is stopped, or done.
    StoppedThread(size_t instruction, std::function<void()> work)
    {
        struct sigaction action = {};
        action.sa_sigaction = on_step;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGTRAP, &action, nullptr);
        store_relaxed(&left_, instruction);
        store_relaxed(&state_, RUNNING);
        thread_ = std::thread([this, work] {
            begin_steps();
            work();
            end_steps();
            was_done_ = load_acquire(&state_) == RUNNING;
            store_release(&state_, DONE);
        });
        while (load_acquire(&state_) == RUNNING)
            sched_yield();
    }
    // Lets it end. Whether the work had ended before the instruction came.
    bool join()
    {
        int stopped = STOPPED;
        compare_swap_acq_rel(&state_, &stopped, GOES_ON);
        thread_.join();
        return was_done_;
    }

  private:
    enum { RUNNING, STOPPED, GOES_ON, DONE };

    static void on_step(int, siginfo_t *, void *context)
    {
        if (left_-- > 0)
            return;
        end_steps_of(static_cast<ucontext_t *>(context));
        store_release(&state_, static_cast<int>(STOPPED));
        while (load_acquire(&state_) == STOPPED)
            sched_yield();
    }

    static inline size_t left_;
    static inline int state_; // atomic
    std::thread thread_;
    bool was_done_ = false;
};

} // namespace frame_kit

#endif
