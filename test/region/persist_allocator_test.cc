// Blocks of a persistent heap: the rules of the common interface, growth, threads, and a long
// random run against a model with commits, aborts and reopens.

#include "region/persist_slots.h"

#include <atomic>
#include <thread>

namespace persist_allocator_test
{

using namespace persist;

class Allocator : public testing::Test
{
  protected:
    void SetUp() override { ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr); }
    void TearDown() override { cairn_persist_close(heap_); }

    Directory directory_;
    cairn_persist *heap_ = nullptr;
};

TEST_F(Allocator, KeepsTheRulesOfTheCommonInterface)
{
    const cairn_allocator from = cairn_persist_allocator(heap_);
    EXPECT_STREQ(from.operations->name, "persist");
    EXPECT_TRUE(cairn_allocator_can(from, CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_ANY_THREAD));
    errno = 5;
    char *block = allocate(heap_, 0);
    EXPECT_NE(block, nullptr);
    EXPECT_NE(allocate(heap_, 4 << 20), nullptr) << "grows";
    EXPECT_EQ(errno, 5);
    EXPECT_EQ(allocate(heap_, 10, 3), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(allocate(heap_, SIZE_MAX), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(allocate(heap_, 8, size_t{1} << 60), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(allocate(heap_, 10, 4096)) % 4096, 0u);
    EXPECT_EQ(cairn_allocator_resize(from, nullptr, 0, 10), nullptr);
    EXPECT_EQ(cairn_allocator_resize(from, block, 1, size_t{1} << 40), nullptr);
    release(heap_, nullptr);
    release(heap_, block);
    EXPECT_EQ(check(heap_), "");
}

TEST_F(Allocator, MisuseEndsInOneLine)
{
    char *block = allocate(heap_, 40);
    release(heap_, block);
    EXPECT_DEATH(release(heap_, block), "cairn: TLSF double free of 0x");
    EXPECT_DEATH(release(heap_, &block), "cairn: TLSF free of 0x.*which is not a block");
    EXPECT_DEATH(cairn_persist_close(reinterpret_cast<cairn_persist *>(directory_.file().data())),
                 "cairn: persist close of 0x[0-9a-f]+, which is not an open heap\n");
}

TEST_F(Allocator, OfAHeapForReadingOnly)
{
    char *block = allocate(heap_, 40);
    cairn_persist_set_root(heap_, "block", block);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    cairn_persist_close(heap_);
    heap_ = open_heap(directory_.file(), Options().only(CAIRN_PERSIST_READ_ONLY));
    ASSERT_NE(heap_, nullptr);
    block = static_cast<char *>(cairn_persist_get_root(heap_, "block"));
    EXPECT_EQ(allocate(heap_, 10), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(cairn_allocator_resize(cairn_persist_allocator(heap_), block, 40, 20), nullptr);
    EXPECT_DEATH(release(heap_, block),
                 "cairn: persist free of 0x[0-9a-f]+ in a heap that is open for reading only\n");
    EXPECT_DEATH(*static_cast<volatile char *>(block) = 1, "");
    cairn_persist_ticket ticket;
    EXPECT_EQ(cairn_persist_commit(heap_), EROFS);
    EXPECT_EQ(cairn_persist_commit_async(heap_, &ticket), EROFS);
    EXPECT_EQ(cairn_persist_wait(heap_, 0), EROFS);
    EXPECT_EQ(cairn_persist_abort(heap_), EROFS);
    EXPECT_EQ(cairn_persist_checkpoint(heap_), EROFS);
    EXPECT_EQ(cairn_persist_trim(heap_), EROFS);
    EXPECT_EQ(cairn_persist_grow(heap_, 1 << 30), EROFS);
    EXPECT_EQ(cairn_persist_set_root(heap_, "a", nullptr), EROFS);
    EXPECT_EQ(cairn_persist_remove_root(heap_, "block"), EROFS);
}

TEST_F(Allocator, ThreadsBesideCommits)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; t++)
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            std::vector<char *> blocks;
            while (!stop || !blocks.empty()) {
                if (!stop && (blocks.size() < 50 || random() % 2 == 0)) {
                    const size_t size = 1 + random() % 5000;
                    blocks.push_back(allocate(heap_, size));
                    memset(blocks.back(), static_cast<int>(t), size);
                } else {
                    std::swap(blocks[random() % blocks.size()], blocks.back());
                    release(heap_, blocks.back());
                    blocks.pop_back();
                }
            }
        });
    for (int i = 0; i < 100; i++) {
        EXPECT_EQ(cairn_persist_commit(heap_), 0);
        if (i % 20 == 0) { // the allocator's state in the log is always consistent
            copy_files(directory_.file(), directory_.file("copy"));
            const char *why = "";
            cairn_persist *copy = open_heap(directory_.file("copy"), Options(), &why);
            EXPECT_NE(copy, nullptr) << why;
            EXPECT_EQ(copy != nullptr ? check(copy) : "", "");
            cairn_persist_close(copy);
        }
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(check(heap_), "");
    EXPECT_EQ(stats_of(heap_).used_blocks, 0u);
}

TEST_F(Allocator, IsWholeAtEveryInstantOfItsGrowth)
{
    std::thread growing([&] {
        for (size_t size = 1 << 20; size <= 16 << 20; size += 1 << 16)
            EXPECT_EQ(cairn_persist_grow(heap_, size), 0);
    });
    for (size_t size = 0; size < 16 << 20;) {
        copy_files(directory_.file(), directory_.file("copy"));
        const char *why = "";
        cairn_persist *copy = open_heap(directory_.file("copy"), Options(), &why);
        EXPECT_NE(copy, nullptr) << why;
        if (copy == nullptr)
            break;
        EXPECT_EQ(check(copy), "");
        size = stats_of(copy).size_bytes;
        cairn_persist_close(copy);
    }
    growing.join();
}

TEST_F(Allocator, RandomRunsWithCommitsAbortsAndReopens)
{
    for (cairn_persist_tracking way : kWays) {
        Slots slots(static_cast<uint64_t>(way) + 17);
        const std::string path = directory_.file(kWayNames[way]);
        const Options options = Options().by(way).log(300 << 10);
        cairn_persist *heap = open_heap(path, options);
        if (heap == nullptr)
            continue; // this kernel does not support it
        ASSERT_TRUE(Slots::set_up(heap));
        slots.note_commit(1);
        ASSERT_EQ(cairn_persist_commit(heap), 0);
        for (int step = 0; step < 4000; step++) {
            ASSERT_TRUE(slots.change(heap, 50000));
            const size_t what = slots.draw(60);
            if (what == 0) {
                ASSERT_EQ(cairn_persist_abort(heap), 0);
                slots.note_abort(stats_of(heap).last_commit);
            } else if (what < 8) {
                slots.note_commit(stats_of(heap).last_commit + 1);
                ASSERT_EQ(cairn_persist_commit(heap), 0);
            } else if (what == 8) {
                cairn_persist_close(heap);
                ASSERT_NE(heap = open_heap(path, options), nullptr);
                slots.note_abort(stats_of(heap).last_commit);
            } else if (what == 9) {
                (void)cairn_persist_trim(heap);
            }
            if (what < 10) {
                slots.note_commit(UINT64_MAX);
                ASSERT_EQ(Slots::read(heap), slots.contents(UINT64_MAX))
                    << kWayNames[way] << ", step " << step << ", after " << what;
                ASSERT_EQ(check(heap), "") << step;
            }
        }
        cairn_persist_close(heap);
    }
}

} // namespace persist_allocator_test
