// Numbers of stacks: one a stack while the table has room, and always one whose frames are right.
// One process a case.

#include "watch/trace_kit.h"

#include <random>
#include <thread>

extern "C" {
#include "watch/trace_file.h"
#include "watch/trace_modules.h"
#include "watch/trace_stacks.h"
}

namespace
{

using trace_kit::Place;

std::string path;

void begin(const Place &place)
{
    path = place.path();
    ASSERT_TRUE(trace_file_place(path.data(), path.size(), 0));
    ASSERT_EQ(trace_stacks_make(), 0);
    ASSERT_EQ(trace_file_begin(0, 0), 0);
    trace_file_set_state(TRACE_FILE_ON);
}

std::vector<uintptr_t> frames_of(uint64_t which)
{
    std::minstd_rand random(static_cast<unsigned>(which));
    std::vector<uintptr_t> frames(1 + random() % TRACE_DEPTH);
    for (uintptr_t &frame : frames)
        frame = 0x10000 + random() % 1000;
    frames[0] = 0x20000 + which;
    return frames;
}

uint32_t number_of(uint64_t which)
{
    std::vector<uintptr_t> frames = frames_of(which);
    return trace_stacks_number(frames.data(), static_cast<unsigned>(frames.size()), false);
}

// What the file says of the numbers.
void check(const Place &place, const std::map<uint32_t, uint64_t> &given)
{
    char *error = nullptr;
    struct trace *trace = trace_open(place.file(getpid()).c_str(), &error);
    ASSERT_NE(trace, nullptr) << error;
    struct trace_event event;
    EXPECT_FALSE(trace_next(trace, &event));
    EXPECT_EQ(trace_error(trace), nullptr);
    for (const auto &[number, which] : given) {
        uint64_t frames[TRACE_DEPTH];
        unsigned depth = trace_stack(trace, number, frames, nullptr);
        ASSERT_EQ(std::vector<uintptr_t>(frames, frames + depth), frames_of(which)) << number;
    }
    trace_close(trace);
}

TEST(TraceStacks, AStackHasOneNumber)
{
    const Place place;
    begin(place);
    std::map<uint32_t, uint64_t> given;
    for (uint64_t which = 0; which < 5000; which++)
        given[number_of(which)] = which;
    EXPECT_EQ(given.size(), 5000U);
    for (const auto &[number, which] : given)
        EXPECT_EQ(number_of(which), number);
    EXPECT_EQ(trace_stacks_count(), 5000U);
    EXPECT_EQ(trace_stacks_number(nullptr, 0, false), 0U);
    check(place, given);
}

// More than the table holds.
TEST(TraceStacks, AFullTableForgetsButDoesNotLie)
{
    const Place place;
    begin(place);
    std::map<uint32_t, uint64_t> given;
    for (int round = 0; round < 2; round++)
        for (uint64_t which = 0; which < 140000; which++)
            given[number_of(which)] = which;
    EXPECT_GT(trace_stacks_count(), 140000U);
    EXPECT_EQ(given.size(), trace_stacks_count());
    check(place, given);
}

TEST(TraceStacks, ThreadsAgree)
{
    enum { THREADS = 6 };
    const Place place;
    begin(place);
    std::map<uint32_t, uint64_t> given[THREADS];
    std::vector<std::thread> threads;
    for (auto &own : given)
        threads.emplace_back([&own] {
            for (uint64_t which = 0; which < 3000; which++)
                own[number_of(which)] = which;
        });
    for (std::thread &thread : threads)
        thread.join();
    for (const auto &own : given)
        check(place, own);
}

TEST(TraceStacks, FindsItsCallers)
{
    const Place place;
    ASSERT_EQ(trace_modules_make(), 0);
    begin(place);
    os_stack_prepare();
    uint32_t numbers[2];
    for (volatile int i = 0; i < 2; i = i + 1) // from one place
        numbers[i] = trace_stacks_find(heap_traced_thread());
    EXPECT_EQ(numbers[0], numbers[1]);
}

} // namespace
