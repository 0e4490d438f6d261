// Helpers of the tests of the frame allocators: patterns that reveal foreign writes, random
// numbers, injected failures.
#ifndef TEST_FRAME_FRAME_KIT_H
#define TEST_FRAME_FRAME_KIT_H

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
#include "os/fault.h"
}

namespace frame_kit
{

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

// The statement ends by SIGABRT, with exactly "cairn: " and this line on stderr.
#define EXPECT_DEATH_LINE(statement, line)                                                         \
    EXPECT_EXIT(statement, testing::KilledBySignal(SIGABRT),                                       \
                testing::Eq("cairn: " + std::string(line) + "\n"))

// Discards a result that the test does not need, of a function whose result must be used.
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

// Fills a block with bytes that follow from its tag, and checks that no other writer changed them.
// The check works in long pieces, because single bytes take minutes with a sanitizer on a busy
// machine.
class Paint
{
  public:
    static constexpr size_t kPeriod = 1 << 13; // the pattern repeats after this number of bytes

    Paint()
    {
        for (size_t i = 0; i < kPeriod; i++)
            bytes_[i] = static_cast<unsigned char>(i * 0x9e37 >> 5);
    }

    // Calls body(place, piece, bytes) for each piece of a block, until it returns false.
    // Returns: false if a call did.
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

inline const Paint the_paint; // made before main, and so before any fork

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
    // A random size up to `most`; small sizes are the most frequent.
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

// Whether measured sizes are those of the fast builds: sanitizers add shadow memory, and debug
// builds canaries.
inline bool measures_memory() { return !frame_checked() && !config_tsan; }

// Ends the injected failures within a body of for_each_failure(), which can then check that
// everything works again.
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

// Runs `body` with all system calls of the allocator failing from the first call on, then from the
// second on, and further, until a run meets no failing call. The body must succeed, or return false
// and leave everything usable. Needs a debug build.
template <class Body> void for_each_failure(Body body)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
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
