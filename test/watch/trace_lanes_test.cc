// Lanes: each event once and in order, from concurrent threads and from signal handlers that
// interrupt their own thread within an event. Each case needs a process of its own.

#include "watch/trace_kit.h"

#include <atomic>
#include <csignal>
#include <thread>

extern "C" {
#include "watch/trace_file.h"
#include "watch/trace_lanes.h"
#include "watch/trace_stacks.h"
}

namespace trace_lanes_test
{

using trace_kit::Place;
using trace_kit::read;
using trace_kit::Reading;

std::string path;

// Begins a file without events of the heap.
void begin(const Place &place)
{
    path = place.path();
    ASSERT_TRUE(trace_file_place(path.data(), path.size(), 0));
    ASSERT_EQ(trace_stacks_make(), 0);
    ASSERT_EQ(trace_file_begin(0, 0), 0);
    trace_file_set_state(TRACE_FILE_ON);
}

uint64_t write_one(uint64_t address)
{
    struct trace_record record = {};
    record.address = address;
    record.size = address / 2;
    record.operation = TRACE_ALLOCATE;
    const uintptr_t frames[] = {0x1000 + address % 512, 0x2000, 0x3000};
    record.stack = trace_stacks_number(frames, 3, false);
    EXPECT_TRUE(trace_lanes_write(heap_traced_thread(), &record));
    return record.order;
}

TEST(TraceLanes, ThreadsWriteSideBySide)
{
    enum { THREADS = 8, EACH = 20000 };
    const Place place;
    begin(place);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < THREADS; i++)
        threads.emplace_back([i] {
            for (uint64_t j = 0; j < EACH; j++)
                write_one((i << 32) + 16 * j);
        });
    for (std::thread &thread : threads)
        thread.join();
    trace_file_end(TRACE_ENDED, TRACE_NO_REASON);
    Reading reading = read(place.file(getpid()));
    EXPECT_EQ(reading.error, "");
    ASSERT_EQ(reading.events.size(), size_t{THREADS} * EACH);
    EXPECT_EQ(reading.threads, uint32_t{THREADS});
    std::map<uint64_t, uint64_t> next;
    std::map<uint64_t, uint32_t> number;
    for (uint64_t i = 0; i < reading.events.size(); i++) {
        const struct trace_event &event = reading.events[i];
        uint64_t thread = event.address >> 32;
        ASSERT_EQ(event.order, i);
        ASSERT_EQ(event.address, (thread << 32) + 16 * next[thread]++);
        ASSERT_EQ(event.size, event.address / 2);
        ASSERT_EQ(number.emplace(thread, event.thread).first->second, event.thread);
        ASSERT_NE(event.stack, 0U);
    }
}

std::atomic<uint64_t> handled;

void handler(int)
{
    int saved = errno;
    write_one((uint64_t{1} << 40) + 8 * handled++);
    errno = saved;
}

TEST(TraceLanes, AHandlerInterruptsItsOwnThread)
{
    const Place place;
    begin(place);
    write_one(0); // gives the thread its number
    struct sigaction action = {};
    action.sa_handler = handler;
    ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
    std::atomic<bool> ends{false};
    pthread_t self = pthread_self();
    std::thread sender([&] {
        while (!ends)
            pthread_kill(self, SIGUSR1);
    });
    uint64_t own = 1;
    while (handled < 300 && own < 400000)
        write_one(8 * own++);
    ends = true;
    sender.join();
    trace_file_end(TRACE_ENDED, TRACE_NO_REASON);
    Reading reading = read(place.file(getpid()));
    EXPECT_EQ(reading.error, "");
    ASSERT_EQ(reading.events.size(), own + handled);
    uint64_t next = 0, next_handled = 0;
    for (const struct trace_event &event : reading.events) {
        if (event.address >> 40 == 1)
            ASSERT_EQ(event.address, (uint64_t{1} << 40) + 8 * next_handled++);
        else
            ASSERT_EQ(event.address, 8 * next++);
    }
}

} // namespace trace_lanes_test
