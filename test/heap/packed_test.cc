// Packed slabs.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "heap/packed_layer.h"
#include "heap/sweep_layer.h"

extern "C" {
#include "os/memory.h"
}

namespace packed_test
{

// Packed slabs: when a heap begins to pack; no block is handed out twice, lost or misaligned; which
// frees are reported; when slabs are given back. Debug builds pack early, so the model tests, the
// fuzzers and the sweeps of failing calls cover packed slabs too.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::is_packed;
using heap_layer::kSlabBlocks;
using heap_layer::span_of;

class Packed : public heap_layer::PackingHeap
{
};

TEST_F(Packed, EmptySlabsGoBackAtOnce)
{
    for (bool remote : {false, true}) {
        std::vector<void *> blocks = take(8 * kSlabBlocks);
        std::shuffle(blocks.begin(), blocks.end(), std::minstd_rand(1));
        const size_t held = heap_layer::stats().slab_bytes;
        if (remote) {
            in_thread([&] { give(blocks); });
            heap_drain(heap_);
        } else {
            give(blocks);
        }
        EXPECT_LE(heap_layer::stats().slab_bytes, held - 6 * kSlabBlocks * PACKED_BYTES);
    }
}

TEST_F(Packed, AnotherThreadPostsOnce)
{
    std::vector<void *> blocks = take(3 * kSlabBlocks);
    in_thread([&] { give(blocks); });
    size_t queued = 0;
    const unsigned mailbox = remote_mailbox(PACKED_CLASS);
    // If a decay interval has ended, the other thread has looked at the slabs.
    for (const unsigned each : {mailbox, mailbox_of_looked_at(mailbox)})
        for (struct span *slab = heap_->mailboxes[each]; slab; slab = slab->mail_next) {
            EXPECT_FALSE(remote_move(heap_, nullptr, slab)) << "the slab is queued";
            ASSERT_LT(queued++, 5u) << "a cycle";
        }
    EXPECT_GE(queued, 3u);
}

TEST_F(Packed, AnEndedThreadsSlabsAreEmptiedByTheFreer)
{
    std::vector<void *> blocks;
    in_thread([&] {
        while (blocks.empty() || !is_packed(blocks.back()))
            blocks.push_back(allocate(8));
        for (size_t i = 0; i < 2 * kSlabBlocks; i++)
            blocks.push_back(allocate(8));
    });
    give(blocks);
}

// Random lifetimes on one thread, checked by content.
TEST_F(Packed, ChurnKeepsEveryBlock)
{
    std::minstd_rand random(7);
    std::vector<uint64_t *> blocks(20000);
    for (uint64_t step = 1; step < 400000; step++) {
        uint64_t *&block = blocks[random() % blocks.size()];
        if (block) {
            ASSERT_EQ(block[0] >> 32, reinterpret_cast<uintptr_t>(block) & UINT32_MAX);
            free_fast(block);
            block = nullptr;
        } else {
            block = static_cast<uint64_t *>(allocate(8));
            *block = reinterpret_cast<uintptr_t>(block) << 32 | (step & UINT32_MAX);
        }
        if (step % 100000 == 0)
            heap_trim(heap_);
    }
    for (uint64_t *block : blocks)
        free_fast(block);
}

// Many threads free and take the blocks that one thread keeps allocating.
TEST_F(Packed, FreesRaceWithTheHolder)
{
    constexpr size_t kSlots = 2048;
    std::vector<std::atomic<uint64_t *>> slots(kSlots);
    std::atomic<bool> stop{false};
    std::atomic<size_t> freed{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 3; i++)
        threads.emplace_back([&, i] {
            for (size_t at = i * 37; !stop; at++)
                if (uint64_t *block = slots[at % kSlots].exchange(nullptr)) {
                    EXPECT_EQ(*block, reinterpret_cast<uintptr_t>(block));
                    *block = 0;
                    free_fast(block);
                    freed++;
                }
        });
    std::vector<void *> kept;
    for (size_t round = 0; freed < 200000 && round < 50000000; round++) {
        uint64_t *block = static_cast<uint64_t *>(allocate(8));
        ASSERT_NE(block, nullptr);
        *block = reinterpret_cast<uintptr_t>(block);
        free_fast(slots[round * 7 % kSlots].exchange(block));
        if (round % 64 == 0)
            kept.push_back(allocate(8));
        if (kept.size() == 3000) {
            give(kept);
            kept.clear();
        }
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_GE(freed, 200000u);
    give(kept);
    for (auto &slot : slots)
        free_fast(slot.exchange(nullptr));
}

// The header that a thread reads after it marked its block free may have another owner by then.
// Only the heap orders the threads here, so ThreadSanitizer reports such a read.
TEST_F(Packed, AFreeLooksAtNothingThatGoesWithTheSlab)
{
    const std::vector<void *> blocks = take(3 * kSlabBlocks);
    struct span *slab = span_of(blocks[kSlabBlocks]);
    ASSERT_NE(slab, heap_->current[PACKED_CLASS]);
    std::vector<void *> first, rest, others;
    for (void *block : blocks) {
        const size_t offset = static_cast<size_t>(static_cast<char *>(block) - slab_start(slab));
        if (span_of(block) != slab)
            others.push_back(block);
        else
            (offset / (64 * PACKED_BYTES) == 1 ? first : rest).push_back(block);
    }
    ASSERT_EQ(first.size(), 64u) << "a whole word: its last free looks for an empty slab";
    ASSERT_EQ(first.size() + rest.size(), kSlabBlocks);
    std::atomic<int> step{0};
    const auto wait_for = [&](int wanted) {
        while (step.load(std::memory_order_relaxed) != wanted)
            usleep(100);
    };
    const auto freer = [&](int turn, const std::vector<void *> &mine) {
        wait_for(turn);
        give(mine);
        step.store(turn + 1, std::memory_order_relaxed);
        wait_for(3);
    };
    std::thread one([&] { freer(0, first); });
    std::thread two([&] { freer(1, rest); });
    wait_for(2);
    const size_t held = heap_layer::stats().slab_bytes;
    heap_drain(heap_);
    (void)run_cache_empty(&heap_->runs);
    EXPECT_LT(heap_layer::stats().slab_bytes, held) << "the empty slab is given back";
    const std::vector<void *> again = take(2 * kSlabBlocks); // and its header is used again
    step.store(3, std::memory_order_relaxed);
    one.join();
    two.join();
    give(others);
    give(again);
}

// In the child of a fork the thread's own heap continues to work; blocks of other threads are freed
// once.
TEST_F(Packed, ForkedChildrenFreeEverything)
{
    std::vector<void *> own = take(2 * kSlabBlocks);
    std::vector<void *> others;
    std::atomic<int> step{0};
    std::thread other([&] {
        while (others.empty() || !is_packed(others.back()))
            others.push_back(allocate(8));
        for (size_t i = 0; i < 2 * kSlabBlocks; i++)
            others.push_back(allocate(8));
        for (int i = 0; i < 100; i++) { // mail that no thread has read
            free_fast(own.back());
            own.pop_back();
        }
        step = 1;
        while (step == 1)
            usleep(1000);
    });
    while (step == 0)
        usleep(1000);
    const pid_t child = fork();
    if (child == 0) {
        give(own);
        give(others);
        std::vector<void *> more(3 * kSlabBlocks);
        for (void *&block : more)
            block = allocate(8);
        give(more);
        heap_verify(thread_heap);
        _exit(42);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << status;
    give(own);
    give(others);
    step = 2;
    other.join();
}

// Misuse.

class PackedDeathTest : public Packed
{
};

TEST_F(PackedDeathTest, DoubleFreesAreSeenWhateverTheThreads)
{
    std::vector<void *> blocks = take(200);
    void *block = blocks[100];
    const auto here = [&] { free_fast(block); };
    const auto there = [&] { in_thread(here); };
    const char *message = "double free of 0x[0-9a-f]+ \\(8-byte block\\)";
    EXPECT_DEATH((here(), here()), message);
    EXPECT_DEATH((there(), there()), message);
    EXPECT_DEATH((here(), there()), message);
    EXPECT_DEATH((there(), here()), message);
    EXPECT_DEATH((there(), heap_drain(heap_), here()), message);
    EXPECT_DEATH((give(blocks), here()), message);
    give(blocks);
}

TEST_F(PackedDeathTest, OtherFaultsNameTheBlock)
{
    std::vector<void *> blocks = take(10);
    char *block = static_cast<char *>(blocks[5]);
    char *unused = slab_start(span_of(block)) + kSlabBlocks * PACKED_BYTES - PACKED_BYTES;
    EXPECT_DEATH(free_fast(block + 3),
                 "free of interior pointer 0x[0-9a-f]+ \\(8-byte block at 0x[0-9a-f]+\\)");
    EXPECT_DEATH(in_thread([&] { free_fast(block + 3); }), "free of interior pointer");
    EXPECT_DEATH(free_fast(unused), "free of 0x[0-9a-f]+, which is not a Cairn block");
    EXPECT_DEATH(heap_free_sized(block, 9, 1), "sized free of 0x[0-9a-f]+ with size 9 \\(8-byte");
    EXPECT_DEATH(heap_free_sized(block, 8, 16), "sized free of 0x[0-9a-f]+ with size 8 \\(8-byte");
    EXPECT_DEATH(heap_free_sized(block, 1 << 20, 16),
                 "sized free of 0x[0-9a-f]+ with size 1048576 ");
    EXPECT_DEATH(heap_resize(block + 1, 4), "realloc of interior pointer");
    free_fast(block);
    EXPECT_DEATH(heap_usable_size(block),
                 "malloc_usable_size of freed block 0x[0-9a-f]+ \\(8-byte");
    EXPECT_DEATH(heap_resize(block, 4), "realloc of freed block 0x[0-9a-f]+ \\(8-byte block\\)");
    blocks.erase(blocks.begin() + 5);
    give(blocks);
}

TEST_F(PackedDeathTest, AForkedChildSeesASecondFree)
{
    void *block = nullptr;
    std::vector<void *> others;
    std::atomic<int> step{0};
    std::thread other([&] {
        while (block == nullptr || !is_packed(block))
            others.push_back(block = allocate(8));
        others.push_back(allocate(8)); // so that the slab stays
        step = 1;
        while (step == 1)
            usleep(1000);
    });
    while (step == 0)
        usleep(1000);
    const char *message = "double free of 0x[0-9a-f]+ \\(8-byte block\\)";
    EXPECT_DEATH((free_fast(block), free_fast(block)), message); // in a fork of this process
    give(others);
    step = 2;
    other.join();
}

// The words of packed slabs: every block once, and counted.

using heap_layer::kSlabBlocks;

class PackedWords : public heap_layer::PackingHeap
{
};

TEST_F(PackedWords, BlocksAreApart)
{
    const std::vector<void *> blocks = take(3 * kSlabBlocks + 7);
    EXPECT_EQ(std::set<void *>(blocks.begin(), blocks.end()).size(), blocks.size());
    for (size_t i = 0; i < blocks.size(); i++)
        *static_cast<size_t *>(blocks[i]) = i;
    for (size_t i = 0; i < blocks.size(); i++)
        ASSERT_EQ(*static_cast<size_t *>(blocks[i]), i);
    give(blocks);
}

TEST_F(PackedWords, CountsLiveBlocks)
{
    const size_t before = heap_layer::stats().live_blocks;
    std::vector<void *> blocks = take(1000);
    EXPECT_EQ(heap_layer::stats().live_blocks, before + 1000);
    for (int i = 0; i < 300; i++) {
        free_fast(blocks.back());
        blocks.pop_back();
    }
    EXPECT_EQ(heap_layer::stats().live_blocks, before + 700);
    give(blocks);
}

// The requests that are packed, and the slabs that serve them.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::span_of;

using heap_layer::is_packed;
using heap_layer::kSlabBlocks;

class PackedTake : public heap_layer::PackingHeap
{
};

TEST_F(PackedTake, BeginsWithManySmallestBlocks)
{
    if (before_.size() < 2)
        GTEST_SKIP() << "only as the first test of a process";
    EXPECT_GE(heap_->smallest_slabs, unsigned{PACKED_FROM_SLABS});
    EXPECT_FALSE(is_packed(before_[before_.size() - 2]));
    in_thread([] {
        void *block = allocate(8);
        EXPECT_FALSE(is_packed(block)) << "each heap starts packing for itself";
        free_fast(block);
    });
}

TEST_F(PackedTake, ServesUpToEightBytes)
{
    for (size_t size = 0; size <= 16; size++) {
        void *block = allocate(size);
        EXPECT_EQ(is_packed(block), size <= 8) << size;
        EXPECT_EQ(heap_usable_size(block), size <= 8 ? 8u : 16u);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % (size <= 8 ? 8 : 16), 0u);
        memset(block, 0xff, heap_usable_size(block));
        free_fast(block);
    }
}

bool keep_none(void *, size_t, size_t) { return false; }
void forget(void *) {}
const struct heap_profiler kProfiler = {keep_none, forget, [](void *, void *) {}};

TEST_F(PackedTake, GoesOnWhenTheProfilerIsDone)
{
    heap_profile_start(&kProfiler, 1, 1);
    for (int i = 0; i < 10; i++) {
        void *block = allocate(8);
        EXPECT_FALSE(is_packed(block));
        free_fast(block);
    }
    heap_profile_stop();
    free_fast(allocate(16)); // the heap follows
    for (size_t size = 0; size <= 16; size++) {
        void *block = allocate(size);
        EXPECT_EQ(is_packed(block), size <= 8) << size;
        free_fast(block);
    }
}

TEST_F(PackedTake, NeverForMoreThanEightBytesOfAlignment)
{
    for (size_t alignment : {1, 2, 8, 16, 32, 4096}) {
        void *block = heap_allocate_aligned(8, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
        EXPECT_EQ(is_packed(block), alignment <= 8) << alignment;
        heap_free_sized(block, 8, alignment);
    }
}

TEST_F(PackedTake, ZeroedBlocksAreZero)
{
    const std::vector<void *> blocks = take(200);
    for (void *block : blocks)
        memset(block, 0xee, 8);
    give(blocks);
    std::vector<void *> zeroed;
    for (int i = 0; i < 200; i++) {
        zeroed.push_back(heap_allocate_zeroed(8));
        EXPECT_EQ(*static_cast<uint64_t *>(zeroed.back()), 0u);
    }
    give(zeroed);
}

TEST_F(PackedTake, ResizesInPlaceUpToEightBytes)
{
    char *block = static_cast<char *>(allocate(3));
    memcpy(block, "ab", 3);
    EXPECT_EQ(heap_resize(block, 8), block);
    char *larger = static_cast<char *>(heap_resize(block, 9));
    EXPECT_FALSE(is_packed(larger));
    EXPECT_STREQ(larger, "ab");
    char *smaller = static_cast<char *>(heap_resize(larger, 1));
    ASSERT_NE(smaller, nullptr);
    EXPECT_EQ(*smaller, 'a');
    free_fast(smaller);
}

// A full slab is used again when several slots have free blocks, whichever thread freed them, and
// also if a sweep has looked at it in the mailbox, at the end of an interval.
TEST_F(PackedTake, AFullSlabServesAgain)
{
    enum { kOwn, kRemote, kRemoteSwept };
    for (int freed_by : {kOwn, kRemote, kRemoteSwept}) {
        std::vector<void *> blocks = take(4 * kSlabBlocks);
        struct span *slab = span_of(blocks[kSlabBlocks]);
        ASSERT_TRUE(slab_is_waiting(slab));
        std::set<void *> freed;
        for (void *&block : blocks)
            if (span_of(block) == slab && slab->fresh_slot == PACKED_SLOTS + 1 &&
                reinterpret_cast<uintptr_t>(block) % 512 == 0)
                freed.insert(std::exchange(block, nullptr));
        ASSERT_EQ(freed.size(), size_t{PACKED_SLOTS}) << "one block of each slot";
        const auto free_them = [&] { give({freed.begin(), freed.end()}); };
        if (freed_by == kOwn)
            free_them();
        else
            in_thread(free_them);
        for (int intervals = 0; freed_by == kRemoteSwept && intervals < 2; intervals++) {
            os_sleep_ms(2); // an interval is known by the millisecond of its begin
            store_relaxed(&pages_state.interval_start_ms, uint64_t{0});
            in_thread(pages_tick);
        }
        size_t again = 0;
        std::vector<void *> more = take(kSlabBlocks + PACKED_SLOTS);
        for (void *block : more)
            again += freed.count(block);
        EXPECT_EQ(again, size_t{PACKED_SLOTS}) << freed_by;
        give(blocks);
        give(more);
        heap_trim(heap_);
    }
}

// Free pages inside packed slabs are released, of blocks that the thread itself and others freed:
// never where a block lives or may be handed out, and the decay only releases pages that stayed
// free.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kSlabBlocks;

constexpr size_t kSlabs = 16;

uintptr_t page_of(const void *block)
{
    return align_down(reinterpret_cast<uintptr_t>(block), os_page_size());
}

// The resident pages among the pages of the blocks.
size_t resident_pages(const std::vector<void *> &blocks)
{
    std::vector<uintptr_t> pages;
    for (void *block : blocks)
        pages.push_back(page_of(block));
    std::sort(pages.begin(), pages.end());
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
    size_t resident = 0;
    for (uintptr_t page : pages) {
        unsigned char in_memory = 0;
        if (mincore(reinterpret_cast<void *>(page), 1, &in_memory) == 0)
            resident += in_memory & 1;
    }
    return resident;
}

class PackedSweep : public heap_layer::PackingHeap
{
  protected:
    void SetUp() override
    {
        PackingHeap::SetUp();
        if (IsSkipped())
            return;
        blocks_.resize(kSlabs * kSlabBlocks);
        for (void *&block : blocks_) {
            block = allocate(8);
            memset(block, 0x5a, 8);
        }
        std::sort(blocks_.begin(), blocks_.end());
    }
    void TearDown() override
    {
        for (void *block : kept_) {
            EXPECT_EQ(*static_cast<uint64_t *>(block), 0x5a5a5a5a5a5a5a5au);
            free_fast(block);
        }
        PackingHeap::TearDown();
    }

    // Frees all blocks but those of every eighth system page.
    void free_most()
    {
        for (void *block : blocks_)
            if (page_of(block) / os_page_size() % 8 == 0)
                kept_.push_back(block);
            else
                free_fast(block);
    }

    size_t kept_pages() const { return resident_pages(kept_); }

    // Bytes of slabs that are current, that wait, or that are not used up.
    static size_t slack() { return 3 * kSlabBlocks * PACKED_BYTES / os_page_size(); }

    std::vector<void *> blocks_, kept_;
};

TEST_F(PackedSweep, ATrimGivesBackWhatTheOwnerFreed)
{
    const size_t all = resident_pages(blocks_);
    free_most();
    (void)heap_release(0);
    EXPECT_LE(resident_pages(blocks_), kept_pages() + slack());
    EXPECT_LT(resident_pages(blocks_), all / 2);
}

TEST_F(PackedSweep, ATrimGivesBackWhatOthersFreed)
{
    in_thread([this] { free_most(); });
    (void)heap_release(0);
    EXPECT_LE(resident_pages(blocks_), kept_pages() + slack());
}

TEST_F(PackedSweep, ByTimeWhatStayedFree)
{
    const size_t all = resident_pages(blocks_);
    free_most();
    const size_t freed = resident_pages(blocks_);
    heap_layer::sweep_whole();
    EXPECT_EQ(resident_pages(blocks_), freed) << "the first sweep only records the free pages";
    heap_layer::sweep_whole();
    EXPECT_LE(resident_pages(blocks_), kept_pages() + slack());
    EXPECT_LT(resident_pages(blocks_), all / 2);
}

size_t counted()
{
    page_stats pages;
    pages_read_stats(&pages);
    return pages.counted_bytes;
}

// Released pages do not count towards the limits until they are taken again.
TEST_F(PackedSweep, WhatWentDoesNotCount)
{
    const size_t full = counted();
    free_most();
    (void)heap_release(0);
    heap_verify_given();
    EXPECT_LE(counted(), full - kSlabs * kSlabBlocks * 8 / 2);
    pages_limit_hard(counted() + 2 * kSlabBlocks * PACKED_BYTES);
    std::vector<void *> again;
    for (void *block; again.size() < blocks_.size() && (block = allocate(8)) != nullptr;)
        again.push_back(block);
    EXPECT_GT(again.size(), 0u);
    EXPECT_LT(again.size(), blocks_.size() / 2);
    EXPECT_LE(counted(), full);
    heap_verify_given();
    pages_limit_hard(0);
    for (void *block : again)
        free_fast(block);
}

// Released pages serve again, and are released again.
TEST_F(PackedSweep, WhatWentServesAgain)
{
    free_most();
    for (int round = 0; round < 3; round++) {
        (void)heap_release(0);
        EXPECT_LE(resident_pages(blocks_), kept_pages() + slack());
        std::vector<void *> again(blocks_.size() - kept_.size());
        for (void *&block : again) {
            block = allocate(8);
            memset(block, round, 8);
        }
        std::sort(again.begin(), again.end());
        EXPECT_EQ(std::unique(again.begin(), again.end()), again.end());
        for (void *block : again)
            free_fast(block);
    }
}

// Other threads free whole pages, each block once and with its content, while the holder sweeps and
// hands blocks out again. Eight blocks of each slab live on, so it stays.
TEST_F(PackedSweep, FreesRaceWithTheSweep)
{
    // The first blocks of each slab.
    const auto stays = [](const void *block) {
        const struct span *slab = heap_layer::span_of(block);
        return static_cast<const char *>(block) < slab_start(slab) + 64;
    };
    std::copy_if(blocks_.begin(), blocks_.end(), std::back_inserter(kept_), stays);
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++)
        threads.emplace_back([&] {
            for (size_t at; (at = next.fetch_add(512)) < blocks_.size();)
                for (size_t j = at; j < at + 512; j++)
                    if (!stays(blocks_[j])) {
                        EXPECT_EQ(*static_cast<uint64_t *>(blocks_[j]), 0x5a5a5a5a5a5a5a5au);
                        free_fast(blocks_[j]);
                    }
        });
    while (next.load() < blocks_.size()) {
        (void)heap_release(0);
        for (int i = 0; i < 600; i++) {
            kept_.push_back(allocate(8));
            memset(kept_.back(), 0x5a, 8);
        }
        heap_drain(heap_);
    }
    for (std::thread &thread : threads)
        thread.join();
    heap_trim(heap_);
}

// Another thread frees all blocks of a thread that is idle then.
class IdlePackedSweep : public heap_layer::PackingHeap
{
  protected:
    void SetUp() override
    {
        PackingHeap::SetUp();
        if (IsSkipped())
            return;
        owner_ = std::make_unique<heap_layer::IdleThread>();
        owner_->run([this] {
            while (blocks_.size() < 64 * kSlabBlocks) {
                blocks_.push_back(allocate(8));
                memset(blocks_.back(), 1, 8);
            }
        });
        all_ = heap_layer::resident(blocks_, 8);
        give(blocks_);
    }
    void TearDown() override
    {
        if (owner_)
            owner_->run([] { heap_trim(thread_heap); });
        owner_.reset();
        PackingHeap::TearDown();
    }
    // The smallest blocks, which are not packed yet, and the current slab of the thread.
    static size_t slack() { return 2 * kSlabBlocks * PACKED_BYTES + (PACKED_FROM_SLABS << 12); }

    std::unique_ptr<heap_layer::IdleThread> owner_;
    std::vector<void *> blocks_;
    size_t all_ = 0;
};

TEST_F(IdlePackedSweep, ATrimByAnotherThreadGivesThemBack)
{
    (void)heap_release(0);
    EXPECT_GT(all_, 60 * kSlabBlocks * PACKED_BYTES);
    EXPECT_LE(heap_layer::resident(blocks_, 8), slack());
    heap_verify_given();
}

TEST_F(IdlePackedSweep, TheyGoBackByTime)
{
    heap_layer::pass_intervals(8);
    EXPECT_LE(heap_layer::resident(blocks_, 8), slack());
    heap_verify_given();
}

// Released pages serve their owner again.
TEST_F(IdlePackedSweep, TheOwnerGoesOn)
{
    (void)heap_release(0);
    std::vector<void *> again;
    owner_->run([&] {
        for (size_t i = 0; i < 32 * kSlabBlocks; i++) {
            again.push_back(allocate(8));
            memset(again.back(), 2, 8);
        }
        heap_verify(thread_heap);
    });
    std::sort(again.begin(), again.end());
    EXPECT_EQ(std::unique(again.begin(), again.end()), again.end());
    heap_verify_given();
    give(again);
}

} // namespace packed_test
