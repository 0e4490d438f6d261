// A fork while a thread purges free memory without the page lock: that memory is as free in the
// child as in its parent.
//
// The linker redirects the library's calls of os_purge and os_unmap to this file (--wrap), so that
// a fork runs at the time of the system call.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include "page/page_layer.h"

extern "C" {
#include "os/memory.h"
}

extern "C" {
int __real_os_purge(void *start, size_t size_bytes);
int __wrap_os_purge(void *start, size_t size_bytes);
int __real_os_unmap(void *start, size_t size_bytes);
int __wrap_os_unmap(void *start, size_t size_bytes);
}

namespace
{

void (*g_meanwhile)();
const char *g_meanwhile_at; // run g_meanwhile at the purge of this address, nullptr: at any
void (*g_while_frozen)();

void run_once(void (*&function)())
{
    if (void (*wanted)() = std::exchange(function, nullptr))
        wanted();
}

// Registered before the library's own handler, and therefore called after it.
struct InFork {
    InFork()
    {
        pthread_atfork([] { run_once(g_while_frozen); }, nullptr, nullptr);
    }
} in_fork;

} // namespace

int __wrap_os_purge(void *start, size_t size_bytes)
{
    const char *first = static_cast<char *>(start);
    if (g_meanwhile_at == nullptr ||
        (first <= g_meanwhile_at && g_meanwhile_at < first + size_bytes))
        run_once(g_meanwhile);
    return __real_os_purge(start, size_bytes);
}

int __wrap_os_unmap(void *start, size_t size_bytes)
{
    run_once(g_meanwhile);
    return __real_os_unmap(start, size_bytes);
}

namespace
{

constexpr size_t kPages = 1000;
size_t g_free_bytes;
bool g_is_child;
int g_status = -1;

// Checks in the child that no memory is lost, that it can be purged, and that all sums are correct
// afterwards.
// Returns: 0, or the number of the failed check.
int check_child()
{
    pages_verify();
    if (page_layer::stats().free_bytes != g_free_bytes)
        return 1;
    (void)pages_trim(0);
    const page_stats stats = page_layer::stats();
    if (stats.free_bytes != g_free_bytes || stats.dirty_bytes != 0)
        return 2;
    if (stats.counted_bytes != stats.committed_bytes - stats.free_bytes)
        return 3;
    struct span *run = pages_take(kPages, PAGE_BYTES);
    pages_verify();
    return run && page_layer::stats().free_bytes < g_free_bytes ? 0 : 4;
}

void wait_for(pid_t child) { EXPECT_EQ(waitpid(child, &g_status, 0), child); }

class PurgeFork : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        struct span *run = pages_take(kPages, PAGE_BYTES);
        ASSERT_NE(run, nullptr);
        page_layer::fill(run, 1);
        pages_give(run);
        g_free_bytes = page_layer::stats().free_bytes;
        ASSERT_GE(page_layer::stats().dirty_bytes, kPages << PAGE_SHIFT);
    }
    void TearDown() override
    {
        EXPECT_EQ(g_meanwhile, nullptr);
        EXPECT_TRUE(WIFEXITED(g_status) && WEXITSTATUS(g_status) == 0) << g_status;
        EXPECT_EQ(page_layer::stats().free_bytes, g_free_bytes);
        EXPECT_EQ(page_layer::stats().dirty_bytes, 0u);
        pages_verify();
    }
};

void fork_in_a_thread()
{
    std::thread([] {
        const pid_t child = fork();
        if (child == 0)
            _exit(check_child());
        wait_for(child);
    }).join();
}

TEST_F(PurgeFork, ByAnotherThread)
{
    g_meanwhile = fork_in_a_thread;
    EXPECT_TRUE(pages_trim(0));
}

// The thread returns from the system call while the lock is frozen, and defers its work.
TEST_F(PurgeFork, ByAnotherThreadThatMeetsIt)
{
    static std::atomic<int> step;
    g_meanwhile = [] {
        step = 1;
        while (step != 2)
            std::this_thread::yield();
    };
    static std::thread purger;
    purger = std::thread([] { (void)purge_pages(kPages); });
    while (step != 1)
        std::this_thread::yield();
    g_while_frozen = [] {
        step = 2;
        purger.join();
    };
    const pid_t child = fork();
    if (child == 0)
        _exit(check_child());
    wait_for(child);
    EXPECT_EQ(g_while_frozen, nullptr);
    pages_give(pages_take(1, PAGE_BYTES)); // settles the deferred work
    EXPECT_TRUE(pages_trim(0));
}

void fork_here()
{
    const pid_t child = fork();
    g_is_child = child == 0;
    if (!g_is_child)
        wait_for(child);
}

// A fork like that of a signal handler: the child continues with the system call, and must have its
// memory exactly once.
TEST_F(PurgeFork, ByTheSameThread)
{
    g_meanwhile = fork_here;
    EXPECT_TRUE(pages_trim(0));
    if (g_is_child)
        _exit(check_child());
}

// The memory that the child continues to release must no longer be counted in it.
TEST_F(PurgeFork, ByTheSameThreadWhileRoomGoesBack)
{
    if (config_kept_mappings) { // hardened builds have none, and repeat the case above
        pages_give_huge(pages_map_growing(4 * page_layer::kMiB));
        ASSERT_NE(kept_mapping_pages(), 0u);
    }
    g_meanwhile = fork_here;
    EXPECT_TRUE(pages_trim(0));
    if (g_is_child)
        _exit(check_child());
}

// A run with a locked page cannot be purged. The run is outside the bins while another run is
// purged, and also in the child, where no page is locked.
void fork_while_one_is_left(void (*meanwhile)())
{
    struct span *runs[] = {pages_take(2 * kPages, PAGE_BYTES), pages_take(1, PAGE_BYTES),
                           pages_take(kPages / 4, PAGE_BYTES), pages_take(1, PAGE_BYTES)};
    for (struct span *run : runs)
        page_layer::fill(run, 1);
    char *locked = runs[0]->base;
    const size_t page = os_page_size();
    // The system call is made directly: mlock of the sanitizers does nothing. Where it is refused,
    // every run is purged.
    const bool is_locked = syscall(SYS_mlock, locked, page) == 0;
    pages_give(runs[0]);
    g_meanwhile_at = runs[2]->base;
    pages_give(runs[2]);
    g_free_bytes = page_layer::stats().free_bytes;
    g_meanwhile = meanwhile;
    EXPECT_TRUE(pages_trim(0));
    if (g_is_child)
        _exit(check_child());
    EXPECT_EQ(page_layer::stats().dirty_bytes, is_locked ? page : 0);
    syscall(SYS_munlock, locked, page);
    pages_give(runs[1]);
    pages_give(runs[3]);
    (void)pages_trim(0);
    g_free_bytes = page_layer::stats().free_bytes;
}

TEST_F(PurgeFork, ByTheSameThreadWhileARunIsLeft) { fork_while_one_is_left(fork_here); }

TEST_F(PurgeFork, ByAnotherThreadWhileARunIsLeft)
{
    fork_while_one_is_left(fork_in_a_thread);
}

} // namespace
