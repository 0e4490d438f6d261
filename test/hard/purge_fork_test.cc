// A fork while a thread gives free memory back to the system, without the page lock: the child has
// that memory as free as its parent.
//
// The linker leads the library's calls of os_purge and os_unmap here (--wrap), so that a fork can
// be put where the system call is.

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
int __real_os_purge(void *start, size_t size_bytes);
int __wrap_os_purge(void *start, size_t size_bytes);
int __real_os_unmap(void *start, size_t size_bytes);
int __wrap_os_unmap(void *start, size_t size_bytes);
}

namespace
{

void (*g_meanwhile)();
const char *g_meanwhile_at; // when this goes back, unless it is nullptr
void (*g_while_frozen)();

void run_once(void (*&function)())
{
    if (void (*wanted)() = std::exchange(function, nullptr))
        wanted();
}

// Registered before the library's own handler, and so called after that.
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

// Nothing is lost, it can be given back, and no sum is wrong afterwards. 0, or what is wrong.
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

// The thread comes back from the system call while the lock is frozen, and goes round it.
TEST_F(PurgeFork, ByAnotherThreadThatMeetsIt)
{
    static std::atomic<int> step;
    g_meanwhile = [] {
        step = 1;
        while (step != 2)
            std::this_thread::yield();
    };
    static std::thread purger;
    purger = std::thread([] { (void)purge_pages(1); });
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
    pages_give(pages_take(1, PAGE_BYTES)); // settles what was deferred
    EXPECT_TRUE(pages_trim(0));
}

void fork_here()
{
    const pid_t child = fork();
    g_is_child = child == 0;
    if (!g_is_child)
        wait_for(child);
}

// As a signal handler's: the child goes on with the system call, and has its memory once.
TEST_F(PurgeFork, ByTheSameThread)
{
    g_meanwhile = fork_here;
    EXPECT_TRUE(pages_trim(0));
    if (g_is_child)
        _exit(check_child());
}

// The memory that the child goes on to give back was not counted in it any more.
TEST_F(PurgeFork, ByTheSameThreadWhileRoomGoesBack)
{
    if (config_room) { // else it is as above
        pages_give_huge(pages_map_growing(4 * page_layer::kMiB));
        ASSERT_NE(room_pages(), 0u);
    }
    g_meanwhile = fork_here;
    EXPECT_TRUE(pages_trim(0));
    if (g_is_child)
        _exit(check_child());
}

// A run that is left to the end, since a page of it is locked, lies outside the bins when another
// one is given back, and so it is in the child. There nothing is locked.
void fork_while_one_is_left(void (*meanwhile)())
{
    struct span *runs[] = {pages_take(2 * kPages, PAGE_BYTES), pages_take(1, PAGE_BYTES),
                           pages_take(kPages / 4, PAGE_BYTES), pages_take(1, PAGE_BYTES)};
    for (struct span *run : runs)
        page_layer::fill(run, 1);
    char *locked = runs[0]->base;
    const size_t page = os_page_size();
    // A call of its own: the sanitizers' mlock does nothing. Where it is refused nothing is left.
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
