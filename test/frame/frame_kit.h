// What the tests of the frame allocators share: patterns that show a foreign write, random numbers,
// faults.
#ifndef TEST_FRAME_FRAME_KIT_H
#define TEST_FRAME_FRAME_KIT_H

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

extern "C" {
#include "frame/frame.h"
}

namespace frame_kit
{

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

// The statement ends by SIGABRT with exactly this line, but for its "cairn: ", on stderr.
#define EXPECT_DEATH_LINE(statement, line)                                                         \
    EXPECT_EXIT(statement, testing::KilledBySignal(SIGABRT),                                       \
                testing::Eq("cairn: " + std::string(line) + "\n"))

// For a result that the test does not need, of a function that must not be ignored.
template <class T> void ignore(const T &) {}

inline std::string hex(const void *pointer)
{
    char text[32];
    snprintf(text, sizeof text, "0x%zx", reinterpret_cast<uintptr_t>(pointer));
    return text;
}

inline bool is_aligned(const void *pointer, size_t align)
{
    return reinterpret_cast<uintptr_t>(pointer) % align == 0;
}

// A block filled with bytes that follow from its tag; intact as long as nobody else writes there.
// In long pieces: byte by byte a sanitizer takes minutes on a machine that does much else.
class Paint
{
  public:
    static constexpr size_t kPeriod = 1 << 13; // what is shifted out below has no more bits

    Paint()
    {
        for (size_t i = 0; i < kPeriod; i++)
            bytes_[i] = static_cast<unsigned char>(i * 0x9e37 >> 5);
    }

    // Calls body(place, piece, bytes) for each piece of a block; false as soon as it does so.
    template <typename Body> bool each(size_t size, uint64_t tag, Body body) const
    {
        size_t from = tag * 31 % kPeriod;
        for (size_t done = 0, bytes; done < size; done += bytes, from = 0) {
            bytes = size - done < kPeriod - from ? size - done : kPeriod - from;
            if (!body(done, bytes_ + from, bytes))
                return false;
        }
        return true;
    }

  private:
    unsigned char bytes_[kPeriod];
};

inline const Paint the_paint; // made before main, so before any fork

inline void paint(void *block, size_t size, uint64_t tag)
{
    the_paint.each(size, tag, [block](size_t place, const unsigned char *piece, size_t bytes) {
        memcpy(static_cast<char *>(block) + place, piece, bytes);
        return true;
    });
}

inline bool is_painted(const void *block, size_t size, uint64_t tag)
{
    return the_paint.each(
        size, tag, [block](size_t place, const unsigned char *piece, size_t bytes) {
            return memcmp(static_cast<const char *>(block) + place, piece, bytes) == 0;
        });
}

class Random
{
  public:
    explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
    uint64_t next()
    {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_;
    }
    size_t below(size_t limit) { return static_cast<size_t>(next() % limit); }
    // Small sizes are the most frequent, large ones happen.
    size_t size(size_t most)
    {
        size_t limit = most >> below(12);
        return 1 + below(limit < 16 ? 16 : limit);
    }
    size_t align(unsigned most_shift) { return size_t{1} << below(most_shift + 1); }

  private:
    uint64_t state_;
};

template <class Body> void in_thread(Body body)
{
    std::thread thread(body);
    thread.join();
}

inline size_t resident_bytes()
{
    unsigned long size = 0;
    unsigned long resident = 0;
    if (FILE *file = fopen("/proc/self/statm", "r")) {
        if (fscanf(file, "%lu %lu", &size, &resident) != 2)
            resident = 0;
        fclose(file);
    }
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Sanitizers keep shadow memory, and debug builds canaries: measured sizes say nothing there.
inline bool measures_memory() { return !frame_checked() && !config_tsan; }

// Ends the failures of for_each_failure within its body, which then may look whether everything
// works again.
inline size_t &failing_calls_seen()
{
    static size_t seen;
    return seen;
}
inline void end_failures()
{
    size_t seen = os_fault_plan(0, 0, 0);
    if (failing_calls_seen() == SIZE_MAX)
        failing_calls_seen() = seen;
}

// Runs `body` with all system calls of the allocator failing from the first on, from the second on,
// …, until it gets by without a failing one. The body must work, or say false and leave everything
// usable. Debug builds only.
template <class Body> void for_each_failure(Body body)
{
    if (!config_debug)
        GTEST_SKIP() << "fault injection is part of debug builds";
    bool worked = false;
    for (size_t skip = 0; skip < 200 && !worked; skip++) {
        failing_calls_seen() = SIZE_MAX;
        os_fault_plan(skip, 1000, ENOMEM);
        worked = body();
        end_failures();
        EXPECT_TRUE(worked || failing_calls_seen() > skip) << "failed without a failing call";
    }
    EXPECT_TRUE(worked);
}

} // namespace frame_kit

#endif
