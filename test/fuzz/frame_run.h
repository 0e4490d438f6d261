// What the harnesses of the stack, the FIFO and the ring share: how a run opens and ends.
//
// A run begins with one byte of the input, from which the options follow, and reads from it until
// it is used up. At its end the other thread, if there is one, has gone, and nothing fails any
// more, so that whatever is still alive can be checked and given back.
#pragma once

#include <errno.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "fuzz/fuzz_input.h"

namespace fuzz
{

constexpr int kErrno = 4321; // no call sets it

class FrameRun
{
  protected:
    explicit FrameRun(Input &input) : kind_(input.byte()) {}

    size_t kind() const { return kind_; }

    // The options that all three have; one in five runs has a limit below 2^(most_shift + 1), if
    // the least one is.
    template <class Options>
    void choose(Options &options, Input &input, unsigned most_shift, size_t least_bytes = 0)
    {
        options.max_bytes = kind_ % 5 == 0 ? std::max(input.size(most_shift), least_bytes) : 0;
        options.name = kind_ % 7 == 0 ? "a name that is longer than what is kept of it" : nullptr;
        bounded_ = options.max_bytes != 0;
    }

    // The run does without options after all.
    void forget_limit() { bounded_ = false; }

    bool may_fail() const { return bounded_ || faults_.planned(); }
    bool is_bounded() const { return bounded_; }

    // Whether an allocation succeeded, which it may not have for a reason only; errno was kErrno.
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

    // Another thread does this, while this one goes on; there is one at a time.
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
