// Many threads on the shadow model: more threads than processors, short-lived, freeing each other's
// blocks; and forks during their work, whose children continue.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "model/threads.h"

extern "C" {
#include "heap/heap.h"
#include "heap/refill.h"
}

// ThreadSanitizer reports a thread of the parent that had ended and was not joined at the fork as
// leaked by the child.
extern "C" const char *__tsan_default_options();
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }

namespace parallel_test
{

using model::kMiB;
using model::Lanes;
using model::Shadow;

// The runtime of a sanitizer cannot start threads in the child of a threaded process, nor can
// qemu-user.
#if CAIRN_TEST_EMULATED
constexpr bool kChildrenMayThread = false;
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kChildrenMayThread = false;
#elif defined(__has_feature)
constexpr bool kChildrenMayThread =
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
constexpr bool kChildrenMayThread = true;
#endif

size_t many_threads() { return 4 * std::max(2u, std::thread::hardware_concurrency()); }

// Verifies all heaps.
// Threads: no other thread runs.
void verify_everything()
{
    heap_verify_all();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        heap_verify(heap);
}

// The blocks that the lanes left are intact, do not overlap, and can all be freed by this thread.
void finish(Lanes &lanes, uint64_t seed)
{
    Shadow all(seed, 1 << 16, SIZE_MAX);
    lanes.collect(all);
    verify_everything();
    all.check_all();
    all.release_all();
    cairn_malloc_trim(0);
    verify_everything();
    EXPECT_EQ(cairn_mallinfo2().uordblks, 0u) << "seed " << seed;
    EXPECT_EQ(cairn_mallinfo2().hblkhd, 0u) << "seed " << seed;
}

TEST(Parallel, BlocksAreHandedOver)
{
    constexpr uint64_t kSeed = 11;
    Lanes lanes(kSeed, many_threads(), 400, 24 * kMiB);
    lanes.start(10, 1500);
    lanes.join();
    EXPECT_GT(lanes.handed_over(), 1000u);
    finish(lanes, kSeed);
}

TEST(Parallel, ThreadsComeAndGo)
{
    constexpr uint64_t kSeed = 12;
    Lanes lanes(kSeed, many_threads(), 100, 2 * kMiB);
    lanes.start(1000, 40);
    lanes.join();
    EXPECT_GT(lanes.threads_run(), many_threads() * 10);
    finish(lanes, kSeed);
}

TEST(Parallel, TwoThreadsPassEverything)
{
    constexpr uint64_t kSeed = 13;
    Lanes lanes(kSeed, 2, 60, 8 * kMiB);
    lanes.start(20, 4000);
    lanes.join();
    finish(lanes, kSeed);
}

// Fork.

void *run_shadow(void *shadow)
{
    static_cast<Shadow *>(shadow)->run(500);
    return nullptr;
}

void leave_if_wrong(bool right, const char *what)
{
    if (right)
        return;
    perror(what);
    _exit(1);
}

void wait_for_clean(pid_t child)
{
    int status = 0;
    leave_if_wrong(waitpid(child, &status, 0) == child, "waitpid");
    leave_if_wrong(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child of a child");
}

// The child checks its blocks, of any thread, and continues to work, with threads where it may
// start them.
[[noreturn]] void live_on(Shadow &shadow, Shadow (&others)[2], int depth)
{
    alarm(100);
    heap_verify_all();
    shadow.check_all();
    shadow.run(300);
    if (kChildrenMayThread) {
        pthread_t threads[2];
        for (size_t i = 0; i < 2; i++)
            model::start_thread(&threads[i], run_shadow, &others[i]);
        shadow.run(200);
        for (pthread_t thread : threads)
            pthread_join(thread, nullptr);
    }
    if (depth > 0) {
        const pid_t child = fork();
        leave_if_wrong(child >= 0, "fork");
        if (child == 0)
            live_on(shadow, others, depth - 1);
        wait_for_clean(child);
    }
    shadow.release_all();
    for (Shadow &other : others)
        other.release_all();
    cairn_malloc_trim(0);
    verify_everything();
    _exit(0);
}

TEST(Parallel, ForkedChildrenGoOn)
{
    constexpr uint64_t kSeed = 14;
    Lanes lanes(kSeed, many_threads(), 100, 4 * kMiB, 600);
    lanes.start(SIZE_MAX, 200);
    Shadow own(kSeed, 200, 16 * kMiB);
    Shadow others[2] = {{kSeed + 1, 100, 4 * kMiB}, {kSeed + 2, 100, 4 * kMiB}};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    // A fork takes seconds under ThreadSanitizer, and longer on a busy machine: at least two are
    // made.
    for (int forks = 0; forks < 150 && (forks < 2 || std::chrono::steady_clock::now() < end);
         forks++) {
        own.run(100);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0)
            live_on(own, others, forks % 3);
        own.run(100);
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
            << "seed " << kSeed << ", child " << forks << ": status " << status;
    }
    lanes.stop();
    lanes.join();
    own.release_all();
    finish(lanes, kSeed);
}

} // namespace parallel_test
