// The thread's own stack: scopes and their ends, the t_ functions, threads that start and end.

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csetjmp>
#include <stdexcept>
#include <vector>

#include "cairn/scope.h"
#include "frame/frame_kit.h"

namespace thread_stack_test
{

using namespace frame_kit;

size_t used()
{
    cairn_stack_stats stats;
    cairn_stack_read_stats(cairn_thread_stack(), &stats);
    return stats.used_bytes;
}

TEST(Scope, EndsWithItsBlock)
{
    size_t before = used();
    for (int i = 0; i < 1000; i++) {
        t_scope;
        EXPECT_NE(t_alloc(1000), nullptr);
        if (i % 3 == 0)
            continue;
        t_scope; // another one in the same block
        EXPECT_NE(t_alloc(100), nullptr);
    }
    EXPECT_EQ(used(), before);
}

int leaves_early(int how)
{
    t_scope;
    int *numbers = t_new_zero(int, 100);
    for (int i = 0; i < 100; i++) {
        t_scope;
        t_alloc(64);
        if (i == how)
            return numbers[i];
    }
    return -1;
}

TEST(Scope, EndsOnReturn)
{
    size_t before = used();
    EXPECT_EQ(leaves_early(5), 0);
    EXPECT_EQ(leaves_early(500), -1);
    EXPECT_EQ(used(), before);
}

void throws(int depth)
{
    t_scope;
    t_alloc(5000);
    if (depth == 0)
        throw std::runtime_error("far enough");
    throws(depth - 1);
}

TEST(Scope, EndsWhenAnExceptionPasses)
{
    size_t before = used();
    EXPECT_THROW(throws(50), std::runtime_error);
    EXPECT_EQ(used(), before);
}

jmp_buf back;
void jumps(int depth);
void (*volatile jumps_again)(int) = jumps; // volatile: the compiler would find endless recursion

void jumps(int depth)
{
    t_scope;
    t_alloc(5000);
    if (depth > 0)
        jumps_again(depth - 1);
    else
        longjmp(back, 1);
}

__attribute__((noinline)) void jumps_and_lands()
{
    if (setjmp(back) == 0)
        jumps_again(20);
}

void survives_jump()
{
    t_scope;
    jumps_and_lands();
    EXPECT_NE(t_alloc(10), nullptr);
}

TEST(Scope, LongjmpOverScopesIsSurvived)
{
    size_t before = used();
    testing::internal::CaptureStderr();
    survives_jump();
    std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said, frame_checked()
                        ? "cairn: stack \"thread\": pop of an outer frame ends 21 inner ones\n"
                        : "");
    EXPECT_EQ(used(), before);
}

/* The lines of a thread that allocates `kib` KiB, in a frame or outside of all. */
std::string said_by_a_thread(bool scoped, int kib)
{
    testing::internal::CaptureStderr();
    std::thread([scoped, kib] {
        cairn_mark mark = {};
        if (scoped)
            mark = t_push();
        for (int i = 0; i < kib; i++)
            EXPECT_NE(t_printf("%1000d", i), nullptr);
        t_pop(mark);
    }).join();
    return testing::internal::GetCapturedStderr();
}

TEST(Scope, AMissingOneIsReportedOnce)
{
    EXPECT_EQ(said_by_a_thread(true, 3 << 10), "");
    EXPECT_EQ(said_by_a_thread(false, 450), "") << "less than half a MiB";
    EXPECT_THAT(said_by_a_thread(false, 640),
                testing::MatchesRegex("cairn: stack \"thread\": [0-9]+ bytes without a t_scope, "
                                      "which stay until the thread ends\n"));
    EXPECT_EQ(said_by_a_thread(false, 3 << 10), "");
}

TEST(ThreadStack, NewIsZeroAndAligned)
{
    t_scope;
    memset(t_alloc(4096), 0xff, 4096);
    {
        t_scope;
        memset(t_alloc(4096), 0xff, 4096);
    }
    for (int i = 0; i < 64; i++)
        EXPECT_EQ(static_cast<char *>(t_alloc_zero(64))[i], 0);
    struct alignas(64) Line {
        char bytes[64];
    };
    Line *lines = t_new_zero(Line, 10);
    EXPECT_TRUE(is_aligned(lines, 64));
    for (char byte : lines[9].bytes)
        EXPECT_EQ(byte, 0);
    EXPECT_TRUE(is_aligned(t_alloc(1), alignof(max_align_t)));
    EXPECT_TRUE(is_aligned(t_new(Line, 2), 64));
    errno = 0;
    EXPECT_EQ(t_new_zero(Line, SIZE_MAX / 2), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

void put_down(void *context)
{
    t_scope;
    static_cast<std::string *>(context)->append(t_strdup("x"));
}

TEST(ThreadStack, HooksRunAtTheScopesEnd)
{
    std::string text;
    {
        t_scope;
        ASSERT_EQ(t_defer(put_down, &text), 0);
        EXPECT_EQ(text, "");
    }
    EXPECT_EQ(text, "x");
    EXPECT_THROW(
        {
            t_scope;
            ASSERT_EQ(t_defer(put_down, &text), 0);
            throw std::runtime_error("x");
        },
        std::runtime_error);
    EXPECT_EQ(text, "xx");
}

TEST(ThreadStack, HooksOfNoScopeRunAtTheThreadsEnd)
{
    std::string text;
    in_thread([&] {
        ASSERT_EQ(t_defer(put_down, &text), 0); // t_scope: not needed
        ASSERT_EQ(t_defer(put_down, &text), 0); // t_scope: not needed
        EXPECT_EQ(text, "");
    });
    EXPECT_EQ(text, "xx");
}

TEST(ThreadStack, Strings)
{
    t_scope;
    EXPECT_STREQ(t_strdup("cairn"), "cairn");
    EXPECT_STREQ(t_strdup(""), "");
    EXPECT_STREQ(t_strndup("cairn", 3), "cai");
    EXPECT_STREQ(t_strndup("cairn", 30), "cairn");
    const char unterminated[3] = {'a', 'b', 'c'};
    EXPECT_STREQ(t_strndup(unterminated, 3), "abc");
    EXPECT_STREQ(t_printf("%d %s", 42, "stones"), "42 stones");
    std::string longer(5000, 'x');
    EXPECT_EQ(t_printf("<%s>", longer.c_str()), "<" + longer + ">");
    for (int width = 120; width < 136; width++)
        EXPECT_EQ(strlen(t_printf("%*d", width, 7)), static_cast<size_t>(width));
    int numbers[3] = {1, 2, 3};
    auto *copy = static_cast<int *>(t_dup(numbers, sizeof numbers));
    EXPECT_EQ(copy[2], 3);
}

TEST(ThreadStack, ReallocGrows)
{
    t_scope;
    char *text = static_cast<char *>(t_alloc(10));
    paint(text, 10, 1);
    for (size_t size = 10; size < kMiB; size *= 2) {
        text = static_cast<char *>(t_realloc(text, size, 2 * size));
        ASSERT_TRUE(is_painted(text, 10, 1));
    }
    EXPECT_NE(t_realloc(nullptr, 0, 10), nullptr);
}

TEST(ThreadStack, EveryThreadHasItsOwnAndItsEndGivesItBack)
{
    size_t before = resident_bytes();
    for (int round = 0; round < 200; round++)
        in_thread([] {
            t_scope;
            memset(t_alloc(2 * kMiB), 1, 2 * kMiB);
            for (int i = 0; i < 100; i++) {
                t_scope;
                EXPECT_NE(t_alloc(100), nullptr);
            }
        });
    if (measures_memory()) {
        EXPECT_LT(resident_bytes(), before + 8 * kMiB);
    }
}

TEST(ThreadStack, ManyThreadsAtOnce)
{
    std::vector<std::thread> threads;
    for (uint64_t id = 0; id < 32; id++)
        threads.emplace_back([id] {
            for (uint64_t i = 0; i < 300; i++) {
                t_scope;
                size_t size = 1 + i * 37 % 5000;
                void *block = t_alloc(size);
                paint(block, size, id * 1000 + i);
                std::this_thread::yield();
                ASSERT_TRUE(is_painted(block, size, id * 1000 + i));
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

// The only thread of the child has the stack of the thread that forked, with its frames; a thread
// that the child starts has its own.
TEST(ThreadStack, ChildOfForkHasTheForkingThreads)
{
    in_thread([] {
        t_scope;
        char *text = t_printf("%d before the fork", 1);
        pid_t child = fork();
        if (child == 0) {
            bool good = strcmp(text, "1 before the fork") == 0;
            for (int i = 0; i < 1000; i++) {
                t_scope;
                good = good && t_alloc(1000) != nullptr;
            }
            if (!config_tsan) // ThreadSanitizer supports no threads in a child
                in_thread([&good] {
                    t_scope;
                    good = good && t_strdup("a new thread's") != nullptr;
                });
            _exit(good && strcmp(text, "1 before the fork") == 0 ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
        EXPECT_STREQ(text, "1 before the fork");
    });
}

TEST(ThreadStackDeathTest, PopOfAnotherThreadsMark)
{
    cairn_mark mark = t_push();
    EXPECT_DEATH_LINE(in_thread([&] { t_pop(mark); }),
                      "stack \"thread\": used by a thread that does not own it");
    EXPECT_DEATH_LINE(in_thread([&] {
                          t_scope;
                          t_pop(mark);
                      }),
                      "stack \"thread\": pop with a mark that is not open");
    t_pop(mark);
    EXPECT_DEATH_LINE(t_pop(mark), "stack \"thread\": pop without a push");
}

TEST(ThreadStack, EveryRefusalOfTheSystemIsSurvived)
{
    for_each_failure([] {
        bool worked = true;
        in_thread([&] {
            t_scope;
            for (int i = 0; i < 5; i++) {
                t_scope;
                worked = t_alloc(100 * kKiB) != nullptr && worked;
                worked = t_printf("%d", i) != nullptr && worked;
            }
        });
        return worked;
    });
}

} // namespace thread_stack_test
