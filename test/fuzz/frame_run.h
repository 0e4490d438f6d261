// Helpers of the harnesses of the stack, the FIFO and the ring: the start and the end of a run.
//
// A run begins with one byte of the input, which decides the options, and reads until the input is
// used up. At its end the other thread, if any, has ended, and no call fails any more, so that all
// live objects can be checked and freed.
#pragma once

#include <errno.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "fuzz/fuzz_input.h"

namespace fuzz
{

constexpr int kErrno = 4321; // no call sets this value

class FrameRun
{
  protected:
    explicit FrameRun(Input &input) : kind_(input.byte()) {}

    size_t kind() const { return kind_; }

    // Chooses the options that all three allocators have. One in five runs has a limit below
    // 2^(most_shift + 1), unless least_bytes is larger.
    template <class Options>
    void choose(Options &options, Input &input, unsigned most_shift, size_t least_bytes = 0)
    {
        options.max_bytes = kind_ % 5 == 0 ? std::max(input.size(most_shift), least_bytes) : 0;
        options.name = kind_ % 7 == 0 ? "a name that is longer than what is kept of it" : nullptr;
        bounded_ = options.max_bytes != 0;
    }

    // The run does not use the limit after all.
    void forget_limit() { bounded_ = false; }

    bool may_fail() const { return bounded_ || faults_.planned(); }
    bool is_bounded() const { return bounded_; }

    // Whether an allocation succeeded. An allocation may fail only where may_fail() allows that,
    // and errno was kErrno before.
    bool came(const void *address, size_t size) const
    {
        require(address || may_fail(), "no memory", nullptr, size);
        require(errno == (address ? kErrno : ENOMEM), "errno", address, static_cast<size_t>(errno));
        return address != nullptr;
    }

    void plan_faults(Input &input)
    {
        join();
        faults_.plan(input);
    }

    void end_faults()
    {
        join();
        faults_.end();
    }

    // Another thread runs the body, while this one continues; there is one such thread at a time.
    template <class Body> void elsewhere(Input &input, Body body)
    {
        other_ = std::thread(std::move(body));
        if (input.flag())
            join();
    }

    void join()
    {
        if (other_.joinable())
            other_.join();
    }

  private:
    const size_t kind_;
    bool bounded_ = false;
    Faults faults_;
    std::thread other_;
};

} // namespace fuzz
