// The choice of the next slab of a heap, and its trim.

#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "base/stopped_thread.h"
#include "heap/heap_layer.h"
#include "os/resident.h"

extern "C" {
#include "heap/remote.h"
#include "os/memory.h"
}

namespace refill_test
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;

class Refill : public heap_layer::OwnHeap
{
};

TEST_F(Refill, ASlabWithRoomIsUsedBeforeANewOne)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 4000; i++)
        blocks.push_back(allocate(64));
    const size_t slab_bytes = heap_layer::stats().slab_bytes;
    for (size_t i = 0; i < blocks.size(); i += 2)
        free_fast(blocks[i]);
    for (size_t i = 0; i < blocks.size(); i += 2)
        blocks[i] = allocate(64);
    // The quarantine keeps some slabs.
    EXPECT_LE(heap_layer::stats().slab_bytes, slab_bytes + (config_quarantine ? 32 * kKiB : 0));
    heap_layer::verify();
    for (void *block : blocks)
        free_fast(block);
}

// Otherwise each page has two faults: a block is read, since it must be zero, before it is written.
TEST_F(Refill, AClassThatFillsSlabsHasTheNextOnesPagesAtOnce)
{
    if (!config_zero_freed || CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "full builds only";
    void *probe = os_map(os_page_size());
    const bool kernel_can = os_populate(probe, os_page_size()) == 0;
    (void)os_unmap(probe, os_page_size());
    if (!kernel_can)
        GTEST_SKIP() << "the kernel is older than 5.14";
    std::vector<void *> blocks;
    while (thread_heap->slab_pages <= (3 << 20) / PAGE_BYTES)
        blocks.push_back(allocate(56));
    const struct span *last = page_map_find(blocks.back());
    const struct span *next = last;
    while (next == last) {
        blocks.push_back(allocate(56));
        next = page_map_find(blocks.back());
    }
    const size_t bytes = align_down(size_t{next->capacity} * next->size_bytes, os_page_size());
    EXPECT_EQ(resident_in(slab_start(next), bytes), bytes);
    for (void *block : blocks)
        free_fast(block);
}

// With nothing in the mailboxes a second try would only search again. Where system pages are long,
// the first try may end without a refusal: a part of a page cannot be purged.
TEST_F(Refill, AtTheHardLimitATakeIsRefusedOnceAtMost)
{
    pages_limit_hard(pages_counted_bytes());
    std::vector<void *> blocks;
    while (void *block = heap_take(thread_heap, class_of_size(2000)))
        blocks.push_back(block);
    const size_t before = heap_layer::stats().pages.refusals;
    EXPECT_EQ(heap_take(thread_heap, class_of_size(2000)), nullptr);
    EXPECT_LE(heap_layer::stats().pages.refusals, before + 1);
    pages_limit_hard(0);
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(Refill, EmptySlabsGoBack)
{
    for (size_t size : {size_t{16}, size_t{1000}, 3 * kKiB, 30 * kKiB}) {
        heap_trim(thread_heap);
        const size_t before = heap_layer::stats().slab_bytes;
        std::vector<void *> blocks;
        for (int i = 0; i < 2000; i++)
            blocks.push_back(allocate(size));
        for (void *block : blocks)
            free_fast(block);
        quarantine_flush(thread_heap);
        heap_layer::verify();
        EXPECT_LE(heap_layer::stats().slab_bytes, before + 600 * kKiB) << size;
        heap_trim(thread_heap);
        EXPECT_LE(heap_layer::stats().slab_bytes, before) << size;
    }
}

TEST_F(Refill, AnIdleHeapCostsLittle)
{
    in_thread([] {
        const size_t before = heap_layer::stats().slab_bytes;
        for (size_t size = 1; size < 2 * kKiB; size *= 2)
            free_fast(allocate(size));
        EXPECT_LE(heap_layer::stats().slab_bytes, before + 400 * kKiB);
    });
    EXPECT_LE(heap_layer::stats().slab_bytes, 200 * kKiB) << "small slabs stay for the next thread";
    (void)heaps_empty_run_caches();
    EXPECT_LE(heap_layer::stats().slab_bytes, 100 * kKiB)
        << "the slabs of the ended thread are given back";
}

// A thread that frees a block may be stopped before it posts the slab, while the owner collects the
// block, retires the slab, and takes it again. The post may then arrive at any instruction of the
// call that takes it. Each try, at every third, is a process of its own.
class RefillStepped : public testing::Test
{
  protected:
    static constexpr int kOver = 2, kNotOpen = 3, kNotKept = 4;
    static inline struct heap *heap;
    static inline struct span *kept; // a slab in the run cache
    static inline std::vector<void *> blocks;

    static void prepare()
    {
        std::vector<struct span *> slabs;
        while (slabs.size() < 3) { // the third one has one block
            blocks.push_back(allocate(200));
            struct span *slab = page_map_find(blocks.back());
            if (slabs.empty() || slabs.back() != slab)
                slabs.push_back(slab);
        }
        kept = slabs[1];
        for (void *block : blocks)
            if (page_map_find(block) == kept)
                free_fast(block);
        quarantine_flush(thread_heap);
        for (unsigned i = 1; i < slabs[2]->capacity; i++)
            blocks.push_back(allocate(200));
        heap = thread_heap;
        heap->turns = UINT8_MAX; // the next refill drains a mailbox, although a slab is kept
    }

    static int run(size_t n)
    {
        stopped_thread::StoppedThread owner([] { blocks.push_back(allocate(200)); }, prepare,
                                            [] { heap_verify(thread_heap); });
        if (load_relaxed(&kept->mail_state) != 0)
            _exit(kNotKept);
        if (!owner.stop_after(n))
            _exit(kOver);
        const bool open = load_relaxed(&kept->mail_state) == reinterpret_cast<uintptr_t>(heap);
        if (open)
            (void)remote_post(heap, kept);
        owner.finish();
        return open ? 0 : kNotOpen;
    }
};

TEST_F(RefillStepped, ALatePostOfASlabThatIsTaken)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "needs x86-64's trap flag";
    size_t posted = 0;
    for (size_t n = 1;; n += 3) {
        const pid_t process = fork();
        if (process == 0) {
            alarm(20);
            _exit(run(n));
        }
        int status = 0;
        ASSERT_EQ(waitpid(process, &status, 0), process);
        ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " after " << n;
        if (WEXITSTATUS(status) == kNotKept)
            GTEST_SKIP() << "this build keeps no empty slab of this size";
        if (WEXITSTATUS(status) == kOver)
            break;
        ASSERT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kNotOpen) << n;
        posted += WEXITSTATUS(status) == 0;
    }
    EXPECT_GT(posted, 7u);
}

} // namespace refill_test
