// Blocks that a thread borrows from slabs of other threads: threads that take turns need memory for
// the live blocks, not for the blocks that each of them made.
//
// Each case needs a process of its own, because a process remembers how its threads ran.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "heap/sweep_layer.h"

extern "C" {
#include "heap/refill.h"
#include "heap/remote.h"
#include "page/limits.h"
}

namespace borrow_test
{

using heap_layer::allocate;
using heap_layer::IdleThread;
using heap_layer::kMiB;
using heap_layer::span_of;

class Borrow : public heap_layer::OwnHeap
{
  protected:
    void SetUp() override
    {
        OwnHeap::SetUp();
        if (config_hardened)
            GTEST_SKIP() << "hardened builds do not borrow";
    }

    // Allocates blocks in another thread and frees all of them in this one.
    void free_all_of(IdleThread &owner, size_t count, size_t size)
    {
        std::vector<void *> blocks;
        owner.run([&] {
            for (size_t i = 0; i < count; i++)
                blocks.push_back(allocate(size));
            heap = thread_heap;
        });
        lent = blocks;
        for (void *block : blocks)
            free_fast(block);
    }
    // The owner uses its slabs again, while borrowed blocks of them are in use. Then all blocks are
    // freed.
    static void use_again(IdleThread &owner, size_t count, size_t size, std::vector<void *> &blocks)
    {
        std::sort(blocks.begin(), blocks.end());
        EXPECT_EQ(std::unique(blocks.begin(), blocks.end()), blocks.end());
        owner.run([&] {
            std::vector<void *> own = heap_layer::allocate_many(count, size);
            heap_layer::verify();
            for (void *block : own) {
                EXPECT_FALSE(std::binary_search(blocks.begin(), blocks.end(), block));
                free_fast(block);
            }
            heap_layer::verify();
        });
        for (void *block : blocks)
            free_fast(block);
        owner.run([] { heap_layer::verify(); });
    }
    bool is_lent(void *block) const { return slab_heap(span_of(block)) == heap; }

    struct heap *heap = nullptr; // the heap of the other thread
    std::vector<void *> lent;
};

TEST_F(Borrow, AThreadThatNeedsAnotherSlabTakesWhatItFreedOfOthers)
{
    IdleThread owner;
    free_all_of(owner, 5000, 100);
    std::vector<void *> blocks;
    size_t borrowed = 0;
    for (int i = 0; i < 3000; i++) {
        blocks.push_back(allocate(100));
        borrowed += is_lent(blocks.back());
    }
    EXPECT_GE(borrowed, 2000u);
    EXPECT_EQ(heap_layer::stats().live_blocks, blocks.size());
    std::sort(blocks.begin(), blocks.end());
    EXPECT_EQ(std::unique(blocks.begin(), blocks.end()), blocks.end());
    owner.run([&] { // the owner collects and uses the rest
        for (int i = 0; i < 5000; i++)
            blocks.push_back(allocate(100));
    });
    std::sort(blocks.begin(), blocks.end());
    EXPECT_EQ(std::unique(blocks.begin(), blocks.end()), blocks.end());
    for (void *block : blocks)
        free_fast(block);
    (void)heap_release(0);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    owner.run([] { heap_layer::verify(); });
}

// Medium blocks, whose slabs count each block while they are current, and a class of which the
// thread has no slab yet.
TEST_F(Borrow, TheFirstBlocksOfAThreadToo)
{
    for (size_t size : {100, 1500, 4000}) {
        IdleThread owner;
        free_all_of(owner, 400, size);
        std::vector<void *> blocks(1, allocate(size));
        EXPECT_TRUE(is_lent(blocks.back())) << size;
        while (is_lent(blocks.back()))
            blocks.push_back(allocate(size));
        EXPECT_GE(blocks.size(), std::min<size_t>(200, 60000 / size));
        heap_layer::verify();
        use_again(owner, 400, size, blocks);
    }
    (void)heap_release(0);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// A sleeping thread has one current slab of each class. Those of many threads take as much memory
// as all the live blocks.
TEST_F(Borrow, FromCurrentSlabsToo)
{
    for (size_t size : {24, 100, 1500, 4000}) {
        IdleThread owner;
        const size_t count = size_classes[class_of_size(size)].capacity / 2;
        free_all_of(owner, count, size);
        std::vector<void *> blocks = heap_layer::allocate_many(count, size);
        ptrdiff_t borrowed = 0;
        for (void *block : blocks)
            borrowed += is_lent(block);
        EXPECT_GE(borrowed, std::min<ptrdiff_t>(count, 60)) << size;
        use_again(owner, 1000, size, blocks); // it is put aside, and is current again
    }
    (void)heap_release(0);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// Each free of a borrowed block would be remote, although no other thread uses the slab.
TEST_F(Borrow, SlabsOfAnEndedThreadAreReclaimed)
{
    constexpr size_t kCount = 5000, kSize = 100;
    std::vector<void *> blocks(kCount);
    heap_layer::in_thread([&] {
        for (void *&block : blocks)
            block = allocate(kSize);
        heap = thread_heap;
    });
    heap_layer::free_while_held({heap}, blocks);
    ASSERT_TRUE(is_lent(blocks.back()));
    const size_t before = heap_layer::stats().slab_bytes;
    size_t borrowed = 0;
    for (void *&block : blocks) {
        block = allocate(kSize);
        borrowed += is_lent(block);
    }
    EXPECT_EQ(borrowed, 0u);
    EXPECT_LE(heap_layer::stats().slab_bytes, before + 64 * heap_layer::kKiB);
    heap_layer::verify();
    for (void *block : blocks)
        free_fast(block);
}

// The mailboxes of many ended threads hold empty slabs, and one malloc must not retire all of them.
TEST_F(Borrow, OneCallDrainsAFewSlabsOfEndedThreads)
{
    constexpr size_t kHeaps = 20, kSlabs = 20, kSize = 4000;
    const size_t slab_bytes = size_t{size_classes[class_of_size(kSize)].pages} << PAGE_SHIFT;
    std::vector<std::unique_ptr<IdleThread>> threads;
    std::vector<struct heap *> heaps;
    std::vector<void *> blocks;
    for (size_t i = 0; i < kHeaps; i++) {
        threads.push_back(std::make_unique<IdleThread>());
        threads.back()->run([&] {
            for (size_t bytes = 0; bytes < kSlabs * slab_bytes; bytes += kSize)
                blocks.push_back(allocate(kSize));
            heaps.push_back(thread_heap);
        });
    }
    threads.clear();
    heap_layer::free_while_held(heaps, blocks);
    const size_t before = heap_layer::stats().slab_bytes;
    (void)borrow_fill(thread_heap, class_of_size(kSize));
    EXPECT_GE(heap_layer::stats().slab_bytes + 64 * slab_bytes, before);
    heap_release(0);
}

// Threads in turn needed their number times the live memory. Blocks of a page and more are borrowed
// also by threads that run at the same time.
TEST_F(Borrow, LongBlocksToo)
{
    for (size_t size : {5000, 9000, 20000, 32000}) {
        IdleThread owner;
        free_all_of(owner, 100, size);
        std::array<IdleThread, 2> threads;
        std::vector<void *> blocks;
        size_t borrowed = 0;
        for (size_t step = 0; step < 80; step++)
            threads[step % 2].run([&] {
                blocks.push_back(allocate(size));
                borrowed += is_lent(blocks.back());
            });
        EXPECT_GE(borrowed, 60u) << size;
        use_again(owner, 100, size, blocks);
    }
    (void)heap_release(0);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// A heap that grows next to sleeping threads looked at their mail before each slab. The mail here
// is of another class that shares the mailbox.
TEST_F(Borrow, SearchesInVainBecomeRare)
{
    const unsigned own_class = class_of_size(1500);
    unsigned other_class = own_class;
    do
        other_class = (other_class + 1) % SIZED_CLASSES;
    while (remote_mailbox(other_class) != remote_mailbox(own_class));
    IdleThread owner;
    free_all_of(owner, 10, size_classes[other_class].size_bytes);
    struct span *&mailbox = heap_layer::mailbox_of(heap, other_class);
    ASSERT_NE(mailbox, nullptr);
    std::vector<void *> blocks;
    struct span *last = nullptr;
    size_t slabs = 0, searches = 0;
    while (slabs < 500) {
        blocks.push_back(allocate(1500));
        slabs += span_of(blocks.back()) != last;
        last = span_of(blocks.back());
        if (mailbox == nullptr) { // its slabs are among those that were looked at
            searches++;
            const unsigned number = remote_mailbox(other_class);
            struct span *looked_at = remote_take_mail(heap, mailbox_of_looked_at(number));
            if (looked_at != nullptr)
                remote_return_mail(heap, number, looked_at);
        }
    }
    EXPECT_GE(searches, 3u);
    EXPECT_LE(searches, 20u) << "one in 63 slabs, after the first ones";
    for (void *block : blocks)
        free_fast(block);
}

// A thread finds at once what others have freed while it did not run.
TEST_F(Borrow, ANewTurnSearchesAtOnce)
{
    constexpr size_t kSize = 1000;
    IdleThread owner, other;
    std::vector<void *> blocks = heap_layer::allocate_many(20000, kSize); // many searches in vain
    other.run([&] {                                                       // so that a turn ends
        for (void *block : heap_layer::allocate_many(20000, kSize))
            blocks.push_back(block);
    });
    free_all_of(owner, 1000, kSize);
    const unsigned size_class = class_of_size(kSize);
    const size_t room = 2 * size_classes[size_class].capacity;
    size_t tries = 0;
    do
        blocks.push_back(allocate(kSize));
    while (!is_lent(blocks.back()) && ++tries < 10 * room);
    EXPECT_LE(tries, room);
    for (void *block : blocks)
        free_fast(block);
}

// A block that was borrowed before the guards were on would be handed out without their choice.
TEST_F(Borrow, NothingIsHandedOutWhileAHookIsOn)
{
    IdleThread owner;
    free_all_of(owner, 1000, 100);
    std::vector<void *> blocks;
    do
        blocks.push_back(allocate(100));
    while (!is_lent(blocks.back()));
    hooks_set(HOOK_TRACED);
    size_t borrowed = 0;
    for (int i = 0; i < 200; i++) {
        blocks.push_back(allocate(100));
        borrowed += is_lent(blocks.back());
    }
    EXPECT_EQ(borrowed, 0u);
    for (void *block : lent) {
        struct span *slab = span_of(block);
        ASSERT_NE(*slab_link(slab, slab_slot(slab, block)), LINK_BORROWED);
    }
    for (void *block : blocks)
        free_fast(block);
}

// No thread returned the blocks that another one had borrowed before it went to sleep.
TEST_F(Borrow, ATrimAndDecayReturnWhatASleepingThreadHasBorrowed)
{
    for (bool by_trim : {true, false}) {
        IdleThread owner, borrower;
        free_all_of(owner, 1000, 100);
        void *block = nullptr;
        borrower.run([&] { block = allocate(100); });
        ASSERT_TRUE(is_lent(block));
        const auto borrowed = [&] {
            return std::count_if(lent.begin(), lent.end(), [](void *each) {
                struct span *slab = span_of(each);
                return slab_heap(slab) && *slab_link(slab, slab_slot(slab, each)) == LINK_BORROWED;
            });
        };
        ASSERT_GE(borrowed(), 7);
        if (by_trim)
            (void)heap_release(0);
        else
            heap_layer::pass_intervals(3);
        EXPECT_EQ(borrowed(), 0);
        free_fast(block);
        owner.run([] { heap_trim(thread_heap); });
        borrower.run([] { heap_trim(thread_heap); });
        EXPECT_EQ(heap_layer::stats().slab_bytes, 0u) << by_trim;
    }
}

// Runs `body` in the child of a fork. Returns: whether it returned true there.
template <typename Body> bool in_child(Body body)
{
    const pid_t child = fork();
    if (child == 0)
        _exit(body() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// No thread was left in the child that could return them.
TEST_F(Borrow, TheChildOfAForkHasWhatOthersHadBorrowed)
{
    std::vector<void *> blocks = heap_layer::allocate_many(5000, 100);
    IdleThread borrower;
    for (void *block : blocks)
        borrower.run([=] { free_fast(block); });
    borrower.run([&] {
        (void)borrow_fill(heap_layer::own_heap(), class_of_size(100));
        EXPECT_NE(borrow_take(thread_heap, class_of_size(100)), nullptr);
    });
    const auto is_whole = [&] {
        heap_trim(thread_heap);
        const auto is_borrowed = [](void *block) {
            struct span *slab = span_of(block);
            return slab_heap(slab) == thread_heap &&
                   *slab_link(slab, slab_slot(slab, block)) == LINK_BORROWED;
        };
        EXPECT_EQ(std::count_if(blocks.begin(), blocks.end(), is_borrowed), 0);
        EXPECT_LE(heap_layer::stats().slab_bytes, size_t{64} << 10); // a block is in use
        return !HasFailure();
    };
    EXPECT_TRUE(in_child(is_whole));
}

// Nothing is allocated from an inherited slab.
TEST_F(Borrow, TheChildOfAForkHandsOutNoBlockOfAnInheritedSlab)
{
    IdleThread owner;
    free_all_of(owner, 1000, 100);
    std::vector<void *> blocks;
    do
        blocks.push_back(allocate(100));
    while (!is_lent(blocks.back()));
    const auto borrows_none = [&] {
        size_t borrowed = 0;
        for (int i = 0; i < 200; i++)
            borrowed += is_lent(allocate(100));
        return borrowed == 0;
    };
    EXPECT_TRUE(in_child(borrows_none));
    for (void *block : blocks)
        free_fast(block);
}

// The pages of a slab that a release gave count again once a block of the slab is borrowed, so the
// next release gives them again.
TEST_F(Borrow, AReleaseFindsTheSlabsThatWereBorrowedFrom)
{
    constexpr size_t kSize = 1000;
    IdleThread owner;
    std::vector<void *> blocks;
    owner.run([&] {
        blocks = heap_layer::allocate_many(2000, kSize);
        heap = thread_heap;
    });
    void *last = blocks[500]; // the only block in use in its slab, which is aside
    struct span *slab = span_of(last);
    owner.run([&] {
        for (void *&block : blocks)
            if (block != last && span_of(block) == slab) {
                free_fast(block);
                block = nullptr;
            }
    });
    (void)heap_release(0);
    const size_t given = slab_count_given(slab);
    ASSERT_GT(given, 0u);
    free_fast(last);
    struct heap *own = heap_layer::own_heap();
    ASSERT_TRUE(borrow_fill(own, slab_class(slab)));
    ASSERT_EQ(borrow_take(own, slab_class(slab)), last);
    ASSERT_EQ(slab_count_given(slab), 0u);
    owner.run([&] { heap_drain(heap); }); // so that nothing is left to collect
    (void)heap_release(0);
    EXPECT_GE(slab_count_given(slab), given);
    free_fast(last);
    owner.run([&] {
        for (void *block : blocks)
            if (block && block != last)
                free_fast(block);
    });
}

// Each thread in turn frees the blocks of the others and makes as many.
void take_turns(size_t size)
{
    constexpr size_t kThreads = 8, kRounds = 3;
    const size_t count = 4 * kMiB / size;
    std::vector<IdleThread> threads(kThreads);
    std::vector<void *> blocks(count);
    const size_t before = heap_layer::stats().slab_bytes;
    size_t most = 0;
    for (size_t turn = 0; turn < kRounds * kThreads; turn++) {
        threads[turn % kThreads].run([&] {
            for (void *&block : blocks) {
                free_fast(block);
                block = allocate(size);
            }
        });
        most = std::max(most, heap_layer::stats().slab_bytes - before);
    }
    EXPECT_LE(most, 4 * kMiB * 2) << size << ": 8 threads needed 8 times the live memory";
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(Borrow, ThreadsThatTakeTurnsNeedMemoryForWhatIsLive) { take_turns(200); }

TEST_F(Borrow, ThreadsThatTakeTurnsNeedMemoryForLongBlocksToo)
{
    take_turns(5000);
    take_turns(14000);
}

// Each case is a process of its own: a child of a fork would not know the first free.
TEST_F(Borrow, ASecondFreeOfABorrowedBlockIsReported)
{
    for (bool by_another : {false, true})
        EXPECT_DEATH(
            {
                IdleThread owner;
                free_all_of(owner, 1000, 100);
                while (!is_lent(allocate(100)))
                    ;
                for (void *block : lent) {
                    struct span *slab = span_of(block);
                    if (*slab_link(slab, slab_slot(slab, block)) != LINK_BORROWED)
                        continue;
                    if (by_another)
                        heap_layer::in_thread([&] { free_fast(block); });
                    free_fast(block);
                }
            },
            "double free of 0x");
}

TEST_F(Borrow, WhatIsNotHandedOutGoesBackWithATrim)
{
    IdleThread owner;
    free_all_of(owner, 1000, 100);
    std::vector<void *> blocks;
    do
        blocks.push_back(allocate(100));
    while (!is_lent(blocks.back()));
    heap_trim(heap_);
    for (void *block : lent) {
        struct span *slab = span_of(block);
        ASSERT_NE(*slab_link(slab, slab_slot(slab, block)), LINK_BORROWED);
    }
    for (void *block : blocks)
        free_fast(block);
    owner.run([] {
        heap_trim(thread_heap);
        heap_layer::verify();
    });
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// Sweeps treat the pages of a borrowed block as in use.
TEST_F(Borrow, SweepsLeaveBorrowedBlocksAlone)
{
    IdleThread owner;
    free_all_of(owner, 3000, 100);
    std::vector<void *> blocks;
    for (int i = 0; i < 1500; i++) {
        blocks.push_back(allocate(100));
        memset(blocks.back(), 0x5a, 100);
    }
    heap_layer::in_thread([] { (void)heap_release(0); });
    for (void *block : blocks)
        for (int i = 0; i < 100; i++)
            ASSERT_EQ(static_cast<char *>(block)[i], 0x5a);
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(Borrow, OwnersBorrowersAndSweepersStorm)
{
    constexpr size_t kSlots = 2000;
    std::vector<std::atomic<unsigned char *>> slots(kSlots);
    std::vector<std::thread> threads;
    std::atomic<bool> stop{false};
    for (unsigned i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            unsigned random = i + 1;
            for (int round = 0; round < 60000; round++) {
                random = random * 1664525 + 1013904223;
                const size_t size = 32 + random / 64 % 4 * 32;
                auto *block = static_cast<unsigned char *>(allocate(size));
                if (round % 16 == 0) // threads that run at the same time would rarely borrow
                    (void)borrow_fill(thread_heap, class_of_size(size));
                memset(block, static_cast<int>(size), size);
                unsigned char *old = slots[random / 8192 % kSlots].exchange(block);
                if (old) {
                    ASSERT_EQ(old[old[0] - 1], old[0]);
                    free_fast(old);
                }
            }
        });
    std::thread sweeper([&] {
        while (!stop)
            (void)heap_release(0);
    });
    for (std::thread &thread : threads)
        thread.join();
    stop = true;
    sweeper.join();
    for (auto &slot : slots)
        free_fast(slot.exchange(nullptr));
    (void)heap_release(0);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// A thread that ran alone for a second made slabs of its own, until 64 MiB were used up for the
// life of the process.
TEST_F(Borrow, AThreadThatRunsAloneForLongBorrowsAsBefore)
{
    constexpr size_t kCount = 40000, kSize = 100;
    IdleThread owner;
    std::vector<void *> blocks(kCount);
    owner.run([&] {
        for (void *&block : blocks)
            block = allocate(kSize);
        heap = thread_heap;
    });
    size_t lent_blocks = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    while (std::chrono::steady_clock::now() < end) {
        lent_blocks = 0;
        for (void *&block : blocks) {
            free_fast(block);
            block = allocate(kSize);
            lent_blocks += is_lent(block);
        }
    }
    EXPECT_GE(lent_blocks, kCount / 2);
    for (void *block : blocks)
        free_fast(block);
}

// Two threads that run at the same time would write the lines of the same slabs again and again.
TEST_F(Borrow, ThreadsThatRunAtTheSameTimeMakeSlabsOfTheirOwn)
{
    constexpr size_t kSteps = 80, kSize = 100, kEachStep = 300;
    IdleThread owner;
    free_all_of(owner, 2 * kSteps * kEachStep, kSize);
    std::array<IdleThread, 2> threads;
    std::vector<void *> blocks;
    size_t borrowed = 0;
    for (size_t step = 0; step < kSteps; step++)
        threads[step % 2].run([&] {
            for (size_t i = 0; i < kEachStep; i++) {
                blocks.push_back(allocate(kSize));
                borrowed += step >= kSteps / 2 && is_lent(blocks.back());
            }
        });
    EXPECT_LE(borrowed, kSteps * kEachStep / 20);
    for (void *block : blocks)
        free_fast(block);
}

// Where the hard limit refuses a slab, what others have freed is left.
TEST_F(Borrow, AThreadBorrowsBeforeTheHardLimitRefuses)
{
    constexpr size_t kSize = 100;
    IdleThread owner;
    free_all_of(owner, 5000, kSize);
    std::array<IdleThread, 2> threads; // they run at the same time, so they do not borrow
    std::vector<void *> blocks;
    for (size_t step = 0; step < 80; step++)
        threads[step % 2].run([&] {
            for (void *block : heap_layer::allocate_many(300, kSize))
                blocks.push_back(block);
        });
    free_all_of(owner, 5000, kSize);
    pages_limit_hard(PAGE_BYTES);
    threads[0].run([&] {
        for (size_t i = 0; i < 2000; i++)
            blocks.push_back(allocate(kSize));
    });
    pages_limit_hard(0);
    EXPECT_EQ(std::count(blocks.begin(), blocks.end(), nullptr), 0);
    for (void *block : blocks)
        free_fast(block);
}

// Counts the pages with a block in use that do not count for the limits, of blocks of a page each.
void count_uncounted(struct span *slab, char *, void *context)
{
    if (!span_is_slab(slab) || slab_heap(slab) == nullptr || slab->size_bytes != PAGE_BYTES)
        return;
    const uint64_t given = slab_cold(slab)->swept.given;
    for (unsigned slot = 1; slot < slab->fresh_slot; slot++) {
        const uint8_t link = *slab_link(slab, slot);
        *static_cast<size_t *>(context) +=
            (given >> (slot - 1) & 1) != 0 && (link_shows_use(link) || link == LINK_BORROWED);
    }
}

// At the hard limit an owner tries to use a slab with purged pages, and its pages are refused. A
// thread that borrows meanwhile must not find the slab current.
TEST_F(Borrow, NoPagesThatTheHardLimitRefuses)
{
    constexpr size_t kSize = PAGE_BYTES - 96;
    IdleThread owner, other;
    const auto take = [](std::vector<void *> &to, std::atomic<int> &ready) {
        for (ready++; ready < 2;)
            ;
        for (int i = 0; i < 200; i++)
            to.push_back(allocate(kSize));
    };
    for (int round = 0; round < 400; round++) {
        std::vector<void *> blocks, left, own, others;
        owner.run([&] { blocks = heap_layer::allocate_many(64, kSize); });
        for (size_t i = 0; i < blocks.size(); i++)
            if (i % 4 != 1)
                left.push_back(blocks[i]);
            else
                free_fast(blocks[i]);
        owner.run([] { heap_drain(thread_heap); }); // lists the slabs
        for (size_t i = 0; i < left.size(); i++)
            if (i % 3 != 0)
                free_fast(left[i]); // posts them
            else
                own.push_back(left[i]);
        (void)heap_release(0);
        pages_limit_hard(limits_counted_pages() << PAGE_SHIFT);
        std::atomic<int> ready{0};
        std::thread at_once([&] { other.run([&] { take(others, ready); }); });
        owner.run([&] { take(own, ready); });
        at_once.join();
        size_t uncounted = 0;
        pages_each(count_uncounted, &uncounted);
        pages_limit_hard(0);
        for (const std::vector<void *> &some : {own, others})
            for (void *block : some)
                free_fast(block);
        for (IdleThread *thread : {&owner, &other})
            thread->run([] { heap_trim(thread_heap); });
        ASSERT_EQ(uncounted, 0u) << "in round " << round;
    }
}

// Its look takes back all borrowed blocks of its slabs, as if threads of the parent had borrowed
// them. No slab comes to it before, and none that it has not looked at leaves it.
TEST_F(Borrow, AHeapThatLooksAfterAForkReclaimsNoSlabAndLosesNone)
{
    for (int looking : {0, 1, 2}) {
        const bool looks = looking != 0;
        void *block = nullptr;
        struct heap *ended = nullptr;
        heap_layer::in_thread([&] {
            block = allocate(100);
            ended = thread_heap;
        });
        struct heap *one = looking == 1 ? heap_ : ended;
        store_relaxed(&one->look_after_fork, looks);
        struct span *slab = heap_layer::span_of(block);
        free_fast(block);
        EXPECT_EQ(slab_heap(slab) == ended, looks) << looking;
        heap_trim(heap_);
        (void)heap_release(0);
    }
}

} // namespace borrow_test
