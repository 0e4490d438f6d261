// Helpers of the fuzzing harnesses: the input as a sequence of small decisions, and the end of a
// run that found an error.
//
// An input that is used up returns zeros, so that every input is a complete run. Each decision
// takes a fixed number of bytes, so that a mutation of one does not change the others.
//
// Threads: an Input belongs to one thread at a time.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/shadow.h"

extern "C" {
#include "os/fault.h"
}

namespace fuzz
{

using model::kKiB;
using model::kMiB;
using model::opaque;

[[noreturn]] inline void fail(const char *what, const void *address, size_t number)
{
    fprintf(stderr, "fuzz: %s: %p, %zu\n", what, address, number);
    abort();
}

inline void require(bool right, const char *what, const void *address = nullptr, size_t number = 0)
{
    if (!right)
        fail(what, address, number);
}

inline bool is_aligned(const void *address, size_t alignment)
{
    return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

class Input
{
  public:
    Input(const uint8_t *data, size_t size) : at_(data), end_(data + size) {}

    bool done() const { return at_ == end_; }
    size_t byte() { return done() ? 0 : *at_++; }
    size_t below(size_t limit) { return byte() % limit; } // limit at most 256
    bool flag() { return (byte() & 1) != 0; }

    size_t number16()
    {
        const size_t low = byte();
        return low | byte() << 8;
    }

    // A size from 0 to nearly 2^(most_shift + 1), three of four below 8 KiB: a power of two, or
    // that plus a 16-bit fraction of it, or minus one.
    size_t size(unsigned most_shift)
    {
        const size_t kind = byte();
        const unsigned shifts = (kind & 6) == 0 || most_shift < 13 ? most_shift + 1 : 13;
        const size_t power = size_t{1} << kind / 8 % shifts;
        const size_t fraction = number16();
        return power + power * fraction / 65536 - (kind & 1);
    }

    size_t alignment(unsigned most_shift) { return size_t{1} << below(most_shift + 1); }

    // A size that no allocator can serve: beyond the address space, or close to an overflow.
    size_t beyond()
    {
        static const size_t kBorders[] = {size_t{1} << 48, size_t{1} << 62, PTRDIFF_MAX, SIZE_MAX};
        const size_t border = kBorders[below(4)];
        const size_t off = byte();
        return opaque(border == SIZE_MAX ? border - off : border - 64 + off);
    }

    // The next `count` bytes as an input of their own.
    Input part(size_t count)
    {
        const size_t left = static_cast<size_t>(end_ - at_);
        const Input part(at_, count < left ? count : left);
        at_ = part.end_;
        return part;
    }

  private:
    const uint8_t *at_;
    const uint8_t *end_;
};

// Requires that every byte of an object follows from its seed.
inline void require_contents(const char *address, size_t size, uint64_t seed)
{
    const size_t wrong = model::first_wrong(address, size, seed, true);
    require(wrong == size, "contents", address, wrong);
}

// Makes system calls fail (in debug builds) and records that failures are to be expected. Only one
// thread runs when a plan is made or ended.
class Faults
{
  public:
    ~Faults() { end(); }

    void plan(Input &input)
    {
        static const int kErrors[] = {ENOMEM, EPERM, EAGAIN};
        const size_t skip = input.below(16);
        const size_t count = 1 + input.below(16);
        os_fault_plan(skip, count, kErrors[input.below(3)]);
        planned_ = true;
    }

    // Ends all failures.
    void end()
    {
        os_fault_plan(0, 0, 0);
        planned_ = false;
    }

    bool planned() const { return planned_; }

  private:
    bool planned_ = false;
};

} // namespace fuzz
