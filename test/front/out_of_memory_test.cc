// The callbacks of the program for the whole process: cairn/callbacks.h.

#include <errno.h>
#include <gtest/gtest.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/stopped_thread.h"
#include "cairn/callbacks.h"
#include "cairn/heap.h"

extern "C" {
#include "base/check.h"
#include "front/out_of_memory.h"
}

namespace out_of_memory_test
{

// More than any machine has, and less than PTRDIFF_MAX.
constexpr size_t kTooMuch = size_t{1} << 60;

struct Asked {
    int calls = 0;
    size_t size = 0;
    int until = 1 << 20;

    static bool note(void *context, size_t size)
    {
        Asked *asked = static_cast<Asked *>(context);
        asked->size = size;
        volatile size_t much = kTooMuch;
        EXPECT_EQ(cairn_malloc(much), nullptr)
            << "an allocation within the function does not call it";
        return ++asked->calls < asked->until;
    }
};

class OutOfMemory : public testing::Test
{
  protected:
    void SetUp() override { cairn_set_out_of_memory(Asked::note, &asked_); }
    void TearDown() override { cairn_set_out_of_memory(nullptr, nullptr); }
    Asked asked_;
};

TEST_F(OutOfMemory, EveryFunctionAsksSoOften)
{
    volatile size_t size = kTooMuch;
    void *block = cairn_malloc(10);
    void *none = nullptr;
    const auto asks = [&](const void *result) {
        EXPECT_EQ(result, nullptr);
        EXPECT_EQ(asked_.calls, CAIRN_OUT_OF_MEMORY_TRIES);
        EXPECT_EQ(asked_.size, kTooMuch);
        EXPECT_EQ(errno, ENOMEM);
        asked_.calls = errno = 0;
    };
    asks(cairn_malloc(size));
    asks(cairn_calloc(size, 1));
    asks(cairn_realloc(block, size));
    asks(cairn_aligned_alloc(64, size));
    asks(cairn_memalign(64, size));
    asks(cairn_recallocarray(block, 10, size, 1));
    asks(cairn_malloc_batch(1, size, &none) == 0 ? nullptr : block);
    EXPECT_EQ(cairn_posix_memalign(&none, 64, size), ENOMEM);
    EXPECT_EQ(asked_.calls, CAIRN_OUT_OF_MEMORY_TRIES);
    cairn_free(block);
}

TEST_F(OutOfMemory, OneThatGivesUpIsAskedNoMore)
{
    asked_.until = 3;
    volatile size_t size = kTooMuch;
    EXPECT_EQ(cairn_malloc(size), nullptr);
    EXPECT_EQ(asked_.calls, 3);
}

TEST_F(OutOfMemory, WhatNoHeapCouldHoldIsNotAskedFor)
{
    volatile size_t size = SIZE_MAX;
    EXPECT_EQ(cairn_malloc(size), nullptr);
    EXPECT_EQ(cairn_calloc(size, 2), nullptr);
    EXPECT_EQ(asked_.calls, 0);
}

TEST_F(OutOfMemory, WithoutOneNobodyIsAsked)
{
    cairn_set_out_of_memory(nullptr, nullptr);
    volatile size_t size = kTooMuch;
    EXPECT_EQ(cairn_malloc(size), nullptr);
    EXPECT_EQ(asked_.calls, 0);
}

// Two functions, each of which knows its own context.
struct Pair {
    static inline int own[2];
    static inline int wrong;
    template <int I> static bool check(void *context, size_t)
    {
        wrong += context != &own[I];
        return false;
    }
    static void set(int i) { cairn_set_out_of_memory(i == 0 ? check<0> : check<1>, &own[i]); }
    static void ask()
    {
        int tries = 0;
        (void)memory_asked_of_process(100, &tries);
    }
};

// One thread is stopped after each of its instructions while it replaces the function, and while it
// is about to call it.
TEST(OutOfMemoryStepped, AFunctionIsCalledWithItsOwnContext)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "needs x86-64's trap flag";
    for (const bool sets : {true, false})
        for (const int others : {1, 2, 8}) {
            bool stopped = true;
            for (size_t n = 0; stopped; n++) {
                Pair::set(0);
                stopped_thread::StoppedThread other([sets] { sets ? Pair::set(1) : Pair::ask(); });
                stopped = other.stop_after(n);
                Pair::ask();
                for (int i = 0; i < others; i++)
                    Pair::set((i + 1) % 2);
                other.finish();
                Pair::ask();
                ASSERT_EQ(Pair::wrong, 0)
                    << "after instruction " << n << (sets ? " of set" : " of ask");
                EXPECT_TRUE(stopped || n > 5);
            }
        }
    cairn_set_out_of_memory(nullptr, nullptr);
}

void collect(void *context, const char *line, size_t length)
{
    std::string *text = static_cast<std::string *>(context);
    *text += std::string(line) + "|" + std::to_string(length) + "\n";
}

TEST(Lines, TheLogGoesToItsFunctionInPlaceOfStderr)
{
    std::string log;
    cairn_set_log_function(collect, &log);
    testing::internal::CaptureStderr();
    cairn_malloc_stats();
    report("a %s", "word");
    cairn_set_log_function(nullptr, nullptr);
    report("to stderr");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "cairn: to stderr\n");
    EXPECT_NE(log.find("cairn: allocated "), std::string::npos);
    EXPECT_NE(log.find("cairn: a word|13\n"), std::string::npos);
}

// Two threads are in the log function at the same time, and the one that entered first leaves
// first. The lines of both are passed afterwards, too.
TEST(Lines, ThreadsMayLeaveTheLogFunctionInAnyOrder)
{
    static std::atomic<int> inside{0};
    static std::atomic<int> may_leave{0};
    static std::atomic<int> lines{0};
    cairn_set_log_function(
        [](void *, const char *, size_t) {
            lines++;
            const int mine = ++inside;
            while (may_leave < mine)
                std::this_thread::yield();
        },
        nullptr);
    testing::internal::CaptureStderr();
    std::thread second([] {
        while (inside < 1)
            std::this_thread::yield();
        report("second");
        report("second again");
    });
    std::thread last([] {
        while (inside < 2)
            std::this_thread::yield();
        may_leave = 1;
    });
    report("first"); // leaves while the second is inside
    may_leave = 4;
    last.join();
    second.join();
    report("first again");
    cairn_set_log_function(nullptr, nullptr);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(lines, 4);
}

void write_it(void *context, const char *line, size_t length)
{
    const char *before = static_cast<const char *>(context);
    if (write(2, before, strlen(before)) < 0 || write(2, line, length) < 0)
        _exit(1);
    die("within");
}

// A fault within the error function ends the process, without another call of that function.
TEST(LinesDeathTest, AnErrorIsToldOnceItIsWritten)
{
    static char before[] = "told: ";
    cairn_set_error_function(write_it, before);
    EXPECT_EXIT(die("fault %u", 7u), testing::KilledBySignal(SIGABRT),
                "^cairn: fault 7\ntold: cairn: fault 7cairn: within\n$");
    void *block = cairn_malloc(40);
    EXPECT_EXIT(
        {
            cairn_free(block);
            cairn_free(block);
        },
        testing::KilledBySignal(SIGABRT),
        "^cairn: double free of .*\ntold: cairn: double free of .*cairn: within\n$");
    cairn_set_error_function(nullptr, nullptr);
    cairn_free(block);
}

} // namespace out_of_memory_test
