// A program that uses a single allocator of Cairn forks while another thread is inside the page
// layer: the child must find that layer consistent, whichever allocator started it.
//
// Each case runs in a process of its own (a threadsafe death test starts this program anew), since
// the set-up of one allocator would serve the others. The other thread holds the lock of the layer
// when fork is called: with fork handlers fork waits for it, without them the child waits for ever.
//
// The first use of an allocator must not make a state that only its thread can end: it may wait for
// a fork in a system call or in libc, and the child would wait for ever. The linker redirects the
// library's calls of two functions to this file, to stop a thread there (--wrap).

#include <cairn/fifo.h>
#include <cairn/heap.h>
#include <cairn/pages.h>
#include <cairn/pool.h>
#include <cairn/private_heap.h>
#include <cairn/ring.h>
#include <cairn/scope.h>
#include <cairn/stack.h>
#include <cairn/tlsf.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

extern "C" {
#include "page/state.h"

int __real_os_huge_pages(void *start, size_t size_bytes, bool on);
int __wrap_os_huge_pages(void *start, size_t size_bytes, bool on);
int __real_os_fork_register(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));
int __wrap_os_fork_register(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));
}

namespace
{

constexpr size_t kBytes = size_t{1} << 20;

std::atomic<bool> g_held;

void *hold_shard(void *)
{
    if (!lock_acquire(&page_shards[0].lock))
        abort();
    g_held = true;
    usleep(50000);
    lock_release(&page_shards[0].lock);
    return nullptr;
}

std::atomic<bool> g_stops, g_stopped;

// Forks and ends the process, with 0 when the child could use the allocator within `seconds`. The
// other thread continues once the child is there.
template <typename Use>
[[noreturn]] void end_after_child(Use use, pthread_t other, unsigned seconds)
{
    const pid_t child = fork();
    g_stops = false;
    if (child == 0) {
        alarm(seconds);
        use();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    pthread_join(other, nullptr);
    if (WIFSIGNALED(status))
        fprintf(stderr, "the child ended by signal: %s\n", strsignal(WTERMSIG(status)));
    _exit(status == 0 ? 0 : 1);
}

// Ends the process, with 0 when the child could continue. `use` takes pages each time it is called.
template <typename Use> [[noreturn]] void fork_while_pages_are_locked(Use use)
{
    use();
    pthread_t thread;
    if (pthread_create(&thread, nullptr, hold_shard, nullptr) != 0)
        _exit(2);
    while (!g_held)
        usleep(100);
    end_after_child(use, thread, 100);
}

void stop_here()
{
    g_stopped = g_stops.load();
    while (g_stops)
        usleep(100);
}

// Ends the process, with 0 when the child could continue. Another thread is within its first use of
// an allocator when fork is called, or past it.
template <typename Use> [[noreturn]] void fork_during_the_first(Use use)
{
    static std::atomic<bool> done;
    g_stops = true;
    pthread_t thread;
    const auto run = [](void *argument) -> void * {
        (*static_cast<Use *>(argument))();
        done = true;
        return nullptr;
    };
    if (pthread_create(&thread, nullptr, run, &use) != 0)
        _exit(2);
    while (!g_stopped && !done)
        usleep(100);
    end_after_child(use, thread, 20);
}

void fill(void *block, size_t bytes)
{
    if (block == nullptr)
        _exit(3);
    memset(block, 1, bytes);
}

class LoneAllocatorDeathTest : public testing::Test
{
  protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

#define EXPECT_CHILD_GOES_ON(use)                                                                  \
    EXPECT_EXIT(fork_while_pages_are_locked(use), testing::ExitedWithCode(0), "")

TEST_F(LoneAllocatorDeathTest, Pages)
{
    EXPECT_CHILD_GOES_ON([] { fill(cairn_pages_map(kBytes, 4096, 0), kBytes); });
}

TEST_F(LoneAllocatorDeathTest, HeapWithLargeBlocksOnly)
{
    EXPECT_CHILD_GOES_ON([] { fill(cairn_malloc(kBytes), kBytes); });
}

TEST_F(LoneAllocatorDeathTest, HeapWithZeroedLargeBlocksOnly)
{
    EXPECT_CHILD_GOES_ON([] { fill(cairn_calloc(1, kBytes), kBytes); });
}

TEST_F(LoneAllocatorDeathTest, HeapWithAlignedLargeBlocksOnly)
{
    EXPECT_CHILD_GOES_ON([] { fill(cairn_aligned_alloc(65536, kBytes), kBytes); });
}

TEST_F(LoneAllocatorDeathTest, HeapWithSmallBlocksOnly)
{
    EXPECT_CHILD_GOES_ON([] {
        for (size_t done = 0; done < kBytes; done += 1000)
            fill(cairn_malloc(1000), 1000);
    });
}

TEST_F(LoneAllocatorDeathTest, Stack)
{
    EXPECT_CHILD_GOES_ON(
        [] { fill(cairn_stack_alloc(cairn_stack_new(nullptr), kBytes, 16), kBytes); });
}

TEST_F(LoneAllocatorDeathTest, Scopes)
{
    EXPECT_CHILD_GOES_ON([] { fill(t_alloc(kBytes), kBytes); }); // t_scope: not needed
}

TEST_F(LoneAllocatorDeathTest, Fifo)
{
    EXPECT_CHILD_GOES_ON(
        [] { fill(cairn_fifo_alloc(cairn_fifo_new(nullptr), kBytes, 16), kBytes); });
}

TEST_F(LoneAllocatorDeathTest, Ring)
{
    EXPECT_CHILD_GOES_ON([] {
        cairn_ring *ring = cairn_ring_new(nullptr);
        [[maybe_unused]] const cairn_frame frame = cairn_ring_open(ring);
        fill(cairn_ring_alloc(ring, kBytes, 16), kBytes);
    });
}

TEST_F(LoneAllocatorDeathTest, Pool)
{
    EXPECT_CHILD_GOES_ON([] {
        cairn_pool *pool = cairn_pool_new(1000, 8, nullptr);
        for (size_t done = 0; done < kBytes; done += 1000)
            fill(cairn_pool_get(pool), 1000);
    });
}

TEST_F(LoneAllocatorDeathTest, Tlsf)
{
    EXPECT_CHILD_GOES_ON(
        [] { fill(cairn_tlsf_alloc(cairn_tlsf_new(2 * kBytes), kBytes), kBytes); });
}

#define EXPECT_CHILD_BEGINS(use)                                                                   \
    EXPECT_EXIT(fork_during_the_first(use), testing::ExitedWithCode(0), "")

TEST_F(LoneAllocatorDeathTest, FirstBlockDuringAFork)
{
    EXPECT_CHILD_BEGINS([] { fill(cairn_malloc(100), 100); });
}

TEST_F(LoneAllocatorDeathTest, FirstPrivateHeapDuringAFork)
{
    EXPECT_CHILD_BEGINS([] {
        cairn_private_heap *heap = cairn_private_heap_new(nullptr);
        fill(cairn_private_heap_alloc(heap, 100), 100);
    });
}

TEST_F(LoneAllocatorDeathTest, FirstSharedTlsfDuringAFork)
{
    EXPECT_CHILD_BEGINS([] {
        cairn_tlsf_shared *heap = cairn_tlsf_share(cairn_tlsf_new(kBytes));
        fill(cairn_tlsf_shared_alloc(heap, 100), 100);
    });
}

} // namespace

int __wrap_os_huge_pages(void *start, size_t size_bytes, bool on)
{
    stop_here();
    return __real_os_huge_pages(start, size_bytes, on);
}

int __wrap_os_fork_register(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    stop_here();
    return __real_os_fork_register(before, in_parent, in_child);
}
