// Numbers of stacks: one for each stack while the table has room, and always a number with the
// right frames. Each case needs a process of its own.

#include "watch/trace_kit.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <memory>
#include <random>
#include <thread>

#include "unwind/by_frame.h"

extern "C" {
#include "watch/trace_file.h"
#include "watch/trace_stacks.h"
}

namespace trace_stacks_test
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

// Compares the stacks in the file with their numbers.
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

// There are more stacks than the table holds.
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
    unwind_prepare();
    uint32_t numbers[2];
    for (volatile int i = 0; i < 2; i = i + 1) // from one call site
        numbers[i] = trace_stacks_find(heap_traced_thread());
    EXPECT_EQ(numbers[0], numbers[1]);
}

// The memory for the stacks of two threads that end at one address.
enum { LONG = 8 << 20, SHORT = 1 << 20, DEEP = 6 << 20, COROUTINE = 64 << 10 };
struct Threads {
    char *place = nullptr;
    uintptr_t identity[2] = {};
    ucontext_t context, caller;
    unsigned depth = 0;
};
Threads *threads_of_one_place;

char *coroutine_stack() { return threads_of_one_place->place + LONG / 2; }

void run_at(char *stack, size_t bytes, void *(*body)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstack(&attributes, stack, bytes), 0);
    ASSERT_EQ(pthread_create(&thread, &attributes, body, nullptr), 0);
    ASSERT_EQ(pthread_join(thread, nullptr), 0);
    (void)pthread_attr_destroy(&attributes);
}

void look_twice()
{
    uintptr_t frames[TRACE_DEPTH];
    for (volatile int i = 0; i < 2; i = i + 1) {
        threads_of_one_place->depth = unwind_stack(frames, TRACE_DEPTH, 0);
        (void)trace_stacks_find(heap_traced_thread());
    }
}

void *be_deep(void *)
{
    auto *deep = static_cast<volatile char *>(__builtin_alloca(DEEP));
    deep[0] = 1;
    threads_of_one_place->identity[0] = thread_identity();
    (void)heap_traced_thread();
    look_twice();
    return nullptr;
}

// The outermost frame pointer points to an address of the former stack that is unmapped now.
__attribute__((noinline)) void be_coroutine()
{
    auto *const frame = reinterpret_cast<volatile uintptr_t *>(__builtin_frame_address(0));
    frame[0] = reinterpret_cast<uintptr_t>(coroutine_stack()) + 2 * COROUTINE;
    frame[1] = reinterpret_cast<uintptr_t>(by_frame) + 1;
    look_twice();
    swapcontext(&threads_of_one_place->context, &threads_of_one_place->caller);
}

void *run_coroutine(void *)
{
    Threads *own = threads_of_one_place;
    own->identity[1] = thread_identity();
    (void)heap_traced_thread();
    EXPECT_EQ(getcontext(&own->context), 0);
    own->context.uc_stack.ss_sp = coroutine_stack();
    own->context.uc_stack.ss_size = COROUTINE;
    own->context.uc_link = nullptr;
    makecontext(&own->context, be_coroutine, 0);
    swapcontext(&own->caller, &own->context);
    return nullptr;
}

TEST(TraceStacks, BelievesNothingOfAThreadThatIsGone)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "qemu-user may say of each address that it can be read";
    const Place place;
    ASSERT_EQ(trace_modules_make(), 0);
    begin(place);
    unwind_prepare();
    auto own = std::make_unique<Threads>();
    threads_of_one_place = own.get();
    void *mapped = mmap(nullptr, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    own->place = static_cast<char *>(mapped);
    run_at(own->place, LONG, be_deep);
    if (own->depth == 0)
        GTEST_SKIP() << "no stack is walked here";
    char *coroutine = coroutine_stack();
    ASSERT_EQ(munmap(own->place, static_cast<size_t>(coroutine - own->place)), 0);
    char *behind = coroutine + COROUTINE;
    ASSERT_EQ(munmap(behind, static_cast<size_t>(own->place + LONG - SHORT - behind)), 0);
    run_at(own->place + LONG - SHORT, SHORT, run_coroutine);
    EXPECT_EQ(own->identity[0], own->identity[1]);
    EXPECT_GE(own->depth, 1U);
    munmap(coroutine, COROUTINE);
    munmap(own->place + LONG - SHORT, SHORT);
}

} // namespace trace_stacks_test
