// Frees of other threads' blocks: which thread posts, which one collects, and that no slab is lost
// or given up too early. The model tests run this at random; here each step is caused.

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

namespace remote_test
{

using heap_layer::allocate;
using heap_layer::has_mail;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::mailbox_of;
using heap_layer::own_heap;
using heap_layer::span_of;

class Remote : public heap_layer::OwnHeap
{
};

TEST_F(Remote, TheFirstSinceTheCollectionPosts)
{
    char *first = static_cast<char *>(allocate(200));
    char *second = static_cast<char *>(allocate(200));
    struct span *slab = span_of(first);
    ASSERT_EQ(span_of(second), slab);
    struct span *&mailbox = mailbox_of(heap_, slab_class(slab));
    ASSERT_EQ(mailbox, nullptr);
    in_thread([&] { free_fast(first); });
    EXPECT_EQ(mailbox, slab);
    EXPECT_EQ(*slab_link(slab, static_cast<unsigned>(slab_slot(slab, first))), LINK_REMOTE);
    EXPECT_EQ(slab->owner, reinterpret_cast<uintptr_t>(heap_)) << "the owner keeps its fast path";
    EXPECT_FALSE(remote_move(heap_, nullptr, slab)) << "the slab is queued";
    in_thread([&] { free_fast(second); });
    EXPECT_EQ(mailbox, slab);
    EXPECT_EQ(slab->mail_next, nullptr) << "the second free needs no post";
    heap_drain(heap_);
    EXPECT_EQ(mailbox, nullptr);
    EXPECT_EQ(slab_remote(slab), 0u);
    ASSERT_TRUE(remote_move(heap_, nullptr, slab));
    remote_post(heap_, slab);
    EXPECT_EQ(mailbox, nullptr) << "a late post finds the slab closed";
    remote_open(heap_, slab);
}

// The block may be handed out again before the report.
TEST_F(Remote, ABlockThatWasFreeAtTheFirstLookIsRefused)
{
    void *block = allocate(200);
    EXPECT_DEATH(remote_free(block, heap_, span_of(block), LINK_REMOTE), "double free of 0x");
    free_fast(block);
}

TEST_F(Remote, ASlabIsQueuedOnce)
{
    std::vector<void *> blocks; // more than 64 slots, so several words of one slab
    for (int i = 0; i < 150; i++)
        blocks.push_back(allocate(16));
    in_thread([&] {
        for (void *block : blocks)
            free_fast(block);
    });
    size_t queued = 0;
    const unsigned size_class = slab_class(span_of(blocks[0]));
    for (struct span *slab = mailbox_of(heap_, size_class); slab; slab = slab->mail_next)
        ASSERT_LT(queued++, 8u) << "a cycle";
    EXPECT_GE(queued, 1u);
    heap_drain(heap_);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// No single free collects all frees of another thread.
TEST_F(Remote, AFreeCollectsFewSlabs)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine first";
    std::vector<void *> theirs, own;
    for (struct span *last = nullptr; theirs.size() < 100;) {
        void *block = allocate(512);
        (span_of(block) == last ? own : theirs).push_back(block);
        last = span_of(block);
    }
    const unsigned size_class = slab_class(span_of(theirs[0]));
    in_thread([&] {
        for (void *block : theirs)
            free_fast(block);
    });
    const auto queued = [&] {
        size_t slabs = 0;
        for (struct span *slab = mailbox_of(heap_, size_class); slab; slab = slab->mail_next)
            slabs++;
        return slabs;
    };
    const size_t first = queued();
    EXPECT_GE(first, 50u);
    for (void *block : own) {
        const size_t before = queued();
        free_fast(block);
        EXPECT_LE(before, queued() + 4);
    }
    EXPECT_LT(queued(), first) << "a thread that only frees collects, too";
}

// A full slab is in no list: enough frees by another thread list it again.
TEST_F(Remote, AFullSlabServesAgain)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine first";
    std::vector<void *> blocks;
    struct span *slab = nullptr;
    for (int i = 0; i < 2000; i++) {
        blocks.push_back(allocate(512));
        slab = slab ? slab : span_of(blocks[0]);
    }
    ASSERT_TRUE(slab_is_waiting(slab));
    size_t patience = slab_relist_after(slab);
    in_thread([&] {
        for (size_t i = 0; i < patience; i++)
            free_fast(blocks[i]);
    });
    std::vector<void *> more;
    bool back = false;
    for (int i = 0; i < 200 && !back; i++) {
        more.push_back(allocate(512));
        back = span_of(more.back()) == slab;
    }
    EXPECT_TRUE(back);
    for (size_t i = patience; i < blocks.size(); i++)
        free_fast(blocks[i]);
    for (void *block : more)
        free_fast(block);
}

TEST_F(Remote, AnEmptiedSlabIsGivenBack)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 3000; i++)
        blocks.push_back(allocate(1000));
    const size_t slab_bytes = heap_layer::stats().slab_bytes;
    in_thread([&] {
        for (void *block : blocks)
            free_fast(block);
    });
    heap_trim(heap_);
    EXPECT_LT(heap_layer::stats().slab_bytes, slab_bytes / 50);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// The first free of a block takes over its slab, and all later ones are local.
TEST_F(Remote, WhoFreesAnEndedThreadsBlockReclaimsItsSlab)
{
    std::vector<void *> blocks;
    struct heap *other = nullptr;
    in_thread([&] {
        for (int i = 0; i < 1000; i++)
            blocks.push_back(allocate(300));
        other = thread_heap;
    });
    ASSERT_NE(other, heap_);
    ASSERT_EQ(load_relaxed(&other->state), uint32_t{HEAP_ORPHAN});
    struct span *slab = span_of(blocks[0]);
    free_fast(blocks[0]);
    EXPECT_EQ(slab_heap(slab), heap_);
    EXPECT_EQ(load_relaxed(&other->state), uint32_t{HEAP_ORPHAN});
    heap_layer::verify();
    for (size_t i = 1; i < blocks.size(); i++)
        free_fast(blocks[i]);
    EXPECT_FALSE(has_mail(other));
    EXPECT_EQ(other->slab_pages, 0u);
    heap_drain(heap_); // the first block of each slab
    heap_layer::verify();
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// A thread that never allocates does not read its mail otherwise.
TEST_F(Remote, AThreadThatOnlyFreesBlocksOfEndedThreadsKeepsNoSlabs)
{
    const size_t before = heap_layer::stats().slab_bytes;
    for (int round = 0; round < 100; round++) {
        std::vector<void *> blocks;
        in_thread([&] {
            for (size_t size = 16; size <= 4000; size += size / 2)
                blocks.push_back(allocate(size));
        });
        for (void *block : blocks)
            free_fast(block);
    }
    EXPECT_LE(heap_layer::stats().slab_bytes, before + 4 * 1024 * kKiB);
}

// Blocks that other threads freed before are collected by the thread that has the slab then.
TEST_F(Remote, AReclaimedSlabBringsItsRemoteFrees)
{
    std::vector<void *> blocks;
    struct heap *other = nullptr;
    std::atomic<int> step{0};
    std::thread owner([&] {
        for (int i = 0; i < 50; i++)
            blocks.push_back(allocate(300));
        other = thread_heap;
        step = 1;
        while (step != 2)
            std::this_thread::yield();
    });
    while (step != 1)
        std::this_thread::yield();
    struct span *slab = span_of(blocks[0]);
    uint8_t link = 0; // a thread marks the block, and posts late
    ASSERT_TRUE(remote_mark(slab, static_cast<unsigned>(slab_slot(slab, blocks[1])), &link));
    step = 2;
    owner.join();
    free_fast(blocks[0]);
    EXPECT_EQ(slab_heap(slab), heap_);
    EXPECT_EQ(slab_remote(slab), 0u) << "both frees are collected";
    EXPECT_TRUE(remote_post(other, slab)) << "a late post reaches the heap that has the slab";
    EXPECT_TRUE(has_mail(heap_));
    EXPECT_FALSE(has_mail(other));
    heap_drain(heap_);
    for (size_t i = 2; i < blocks.size(); i++)
        free_fast(blocks[i]);
    heap_trim(heap_);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST_F(Remote, ASecondFreeOfAReclaimedBlockIsReported)
{
    void *block = nullptr, *next = nullptr;
    in_thread([&] {
        block = allocate(300);
        next = allocate(300);
    });
    free_fast(block);
    EXPECT_DEATH(free_fast(block), "double free of 0x");
    EXPECT_DEATH(in_thread([&] { free_fast(block); }), "double free of 0x");
    free_fast(next);
    EXPECT_DEATH(free_fast(next), "double free of 0x");
}

// The heap of an ended thread is like an idle one for a thread that cannot hold it.
TEST_F(Remote, MailOfAHeldHeapWaits)
{
    std::vector<void *> blocks;
    struct heap *other = nullptr;
    in_thread([&] {
        for (size_t size : {16, 300, 2000, 9000}) // mailboxes of several classes
            blocks.push_back(allocate(size));
        other = thread_heap;
    });
    ASSERT_TRUE(heap_try_hold(other));
    for (void *block : blocks)
        free_fast(block);
    EXPECT_TRUE(has_mail(other)) << "another thread holds the heap's lists";
    EXPECT_FALSE(heap_try_hold(other));
    heap_drain(other);
    heap_return(other);
    EXPECT_EQ(load_relaxed(&other->state), uint32_t{HEAP_ORPHAN});
    EXPECT_FALSE(has_mail(other));
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// Many threads free blocks in the slabs of a thread that keeps allocating from them.
TEST_F(Remote, FreesRaceWithTheOwner)
{
    constexpr size_t kSlots = 512;
    std::vector<std::atomic<void *>> slots(kSlots);
    std::atomic<bool> stop{false};
    std::atomic<size_t> freed{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            for (size_t at = i * 37; !stop; at = (at + 1) % kSlots)
                if (void *block = slots[at % kSlots].exchange(nullptr)) {
                    memset(block, 0xee, 40);
                    free_fast(block);
                    freed++;
                }
        });
    for (size_t round = 0; freed < 50000 && round < 50000000; round++) {
        void *block = allocate(40 + round % 3 * 50);
        memset(block, 0x11, 40);
        free_fast(slots[round * 7 % kSlots].exchange(block));
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_GE(freed, 50000u);
    for (auto &slot : slots)
        free_fast(slot.exchange(nullptr));
    heap_trim(heap_);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

// A free that is late at step (2) reads mail_state of a header that may serve a slab of another
// heap by then. ThreadSanitizer checks that the maker of that slab is ordered after the free.
TEST_F(Remote, ALateFreeMayLookAtAHeaderThatServesAnew)
{
    struct heap *late = nullptr;
    in_thread([&] { late = own_heap(); });
    ASSERT_NE(late, heap_);
    const unsigned size_class = class_of_size(1000);
    struct span *slab = slab_make(heap_, size_class);
    ASSERT_NE(slab, nullptr);
    const auto retire = [this](struct span *empty) {
        while (!remote_move(heap_, nullptr, empty))
            heap_forget_mail(heap_); // a late post: the slab is in no list
        slab_retire(empty);
    };
    retire(slab);
    std::atomic<bool> stop{false};
    std::thread thread([&] {
        while (!stop.load(std::memory_order_relaxed))
            remote_post(late, slab);
    });
    size_t served_again = 0;
    for (size_t round = 0; round < 2000; round++) {
        struct span *again = slab_make(heap_, size_class);
        ASSERT_NE(again, nullptr);
        served_again += again == slab;
        retire(again);
    }
    stop = true;
    thread.join();
    EXPECT_GT(served_again, 0u);
    EXPECT_FALSE(has_mail(late));
}

// Misuse.

TEST(RemoteDeathTest, DoubleFreesAreSeenWhateverTheThreads)
{
    void *block = allocate(40);
    void *other = allocate(40);
    const auto twice_by_another = [&] {
        in_thread([&] {
            free_fast(block);
            free_fast(block);
        });
    };
    const auto by_two_threads = [&] {
        in_thread([&] { free_fast(block); });
        in_thread([&] { free_fast(block); });
    };
    const auto owner_then_other = [&] {
        free_fast(block);
        in_thread([&] { free_fast(block); });
    };
    const auto other_then_owner = [&] {
        in_thread([&] { free_fast(block); });
        free_fast(block);
    };
    const auto interior_by_another = [&] {
        in_thread([&] { free_fast(static_cast<char *>(block) + 16); });
    };
    const char *message = "double free of 0x[0-9a-f]+ \\(48-byte block\\)";
    EXPECT_DEATH(twice_by_another(), message);
    EXPECT_DEATH(by_two_threads(), message);
    EXPECT_DEATH(owner_then_other(), message);
    EXPECT_DEATH(other_then_owner(), message);
    EXPECT_DEATH(interior_by_another(), "interior pointer 0x[0-9a-f]+ \\(48-byte block at 0x");
    free_fast(block);
    free_fast(other);
}

// Other threads freed all blocks of some slabs, and their owner has not collected them. If a second
// free emptied the mailbox first, it would give the slabs back and then report something else, or
// read memory that is gone. This also covers the first block of a slab, which determines its start.
TEST(RemoteDeathTest, TheOwnersSecondFreeOfWhatOthersFreedWithAllOfItsSlab)
{
    (void)own_heap();
    for (const size_t size : {size_t{40}, size_t{3000}}) {
        const size_t capacity = size_classes[class_of_size(size)].capacity;
        std::map<struct span *, std::set<void *>> slabs;
        for (size_t i = 0; i < 6 * capacity; i++) {
            void *block = allocate(size);
            slabs[span_of(block)].insert(block);
        }
        const auto after_others = [&](auto misuse) { // a forked child has no mail
            in_thread([&] {
                for (auto &[slab, blocks] : slabs)
                    for (void *block : blocks)
                        free_fast(block);
            });
            misuse();
        };
        for (auto &[slab, blocks] : slabs)
            for (void *block : {*blocks.begin(), *blocks.rbegin()}) {
                char address[40];
                snprintf(address, sizeof address, "%p \\(%u", block, slab->size_bytes);
                const std::string named = address + std::string("-byte block\\)");
                EXPECT_DEATH(after_others([=] { free_fast(block); }), "double free of " + named);
                EXPECT_DEATH(after_others([=] { heap_free_sized(block, size, 1); }),
                             "double free of " + named);
                EXPECT_DEATH(after_others([=] { heap_resize(block, 100000); }),
                             "realloc of freed block " + named);
            }
        for (auto &[slab, blocks] : slabs)
            for (void *block : blocks)
                free_fast(block);
    }
}

} // namespace remote_test
