// Guarded blocks: where they stand, what is accessible, the stacks that are kept, misuse.
// One process a case: one of them asks for a slot that no other has used.

#include "watch/guarded_layer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace
{

using namespace guarded_layer;

// Whether the kernel could read the byte, found without a fault.
bool is_accessible(const char *byte)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    const bool could = write(ends[1], byte, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return could;
}

TEST_F(Guarded, BlocksOfEverySizeAndAlignment)
{
    std::vector<size_t> sizes = {SLOT_BLOCK_MAX};
    for (size_t size = 0; size < SLOT_BLOCK_MAX; size = size * 3 / 2 + 1)
        sizes.push_back(size);
    for (size_t alignment = 1; alignment <= guarded_pool.page_bytes; alignment *= 2)
        for (const size_t size : sizes) {
            char *block = static_cast<char *>(guarded_allocate(size, alignment));
            ASSERT_NE(block, nullptr) << size << " at " << alignment;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u);
            EXPECT_EQ(heap_usable_size(block), size);
            memset(block, 1, size);
            give_back(block);
        }
    EXPECT_EQ(guarded_allocate(SLOT_BLOCK_MAX + 1, 1), nullptr);
    EXPECT_EQ(guarded_allocate(1, guarded_pool.page_bytes * 2), nullptr);
}

TEST_F(Guarded, BothEndsAreSeen)
{
    int right = 0;
    int left = 0;
    for (int i = 0; i < 400; i++) {
        void *block = guarded_allocate(48, 1);
        right += stands_right(block, 48);
        left += stands_left(block, 48);
        give_back(block);
    }
    EXPECT_EQ(right + left, 400);
    EXPECT_GT(right, 200);
    EXPECT_GT(left, 40);
}

TEST_F(Guarded, NeighboursAndFreedBlocksAreInaccessible)
{
    for (const size_t size : {size_t{16}, size_t{4096}, size_t{5008}, size_t{SLOT_BLOCK_MAX}}) {
        char *block = allocate_at(stands_right, size);
        ASSERT_NE(block, nullptr);
        EXPECT_TRUE(is_accessible(block) && is_accessible(block + size - 1));
        EXPECT_FALSE(is_accessible(block + size));
        EXPECT_FALSE(is_accessible(block - guarded_pool.page_bytes));
        give_back(block);
        EXPECT_FALSE(is_accessible(block) || is_accessible(block + size - 1));
        block = allocate_at(stands_left, size);
        ASSERT_NE(block, nullptr);
        EXPECT_FALSE(is_accessible(block - 1));
        give_back(block);
    }
}

TEST_F(Guarded, AFreshBlockHoldsNothingOfAFormerOne)
{
    for (int i = 0; i < 2 * SLOT_COUNT; i++) {
        char *block = static_cast<char *>(guarded_allocate(100, 1));
        for (int j = 0; j < 100; j++)
            ASSERT_EQ(block[j], 0);
        memset(block, 0x5a, 100);
        give_back(block);
    }
}

TEST_F(Guarded, BothStacksAreKept)
{
    void *block = guarded_allocate(64, 1);
    struct guarded_slot *slot = slot_of(block);
    EXPECT_GT(slot->allocated.depth, 2u);
    EXPECT_EQ(slot->allocated.thread, os_thread_id());
    uint32_t other = 0;
    std::thread([&] {
        other = os_thread_id();
        give_back(block);
    }).join();
    EXPECT_GT(slot->freed.depth, 1u);
    EXPECT_EQ(slot->freed.thread, other);
}

TEST_F(Guarded, MisuseDies)
{
    char *block = static_cast<char *>(guarded_allocate(100, 1));
    const std::string made = stack("allocated");
    const std::string freed = stack("freed");
    const std::string now = stack("misused");
    EXPECT_DEATH(give_back(block + 16),
                 "^cairn: free of interior pointer 0x[0-9a-f]+ \\(100-byte block at "
                 "0x[0-9a-f]+\\)\n" +
                     made + now + "$");
    EXPECT_DEATH((give_back(block), give_back(block)),
                 "^cairn: double free of 0x[0-9a-f]+ \\(100-byte block\\)\n" + made + freed + now +
                     "$");
    EXPECT_DEATH((give_back(block), heap_resize(block, 200)),
                 "^cairn: realloc of freed block 0x[0-9a-f]+ \\(100-byte block\\)\n" + made +
                     freed + now + "$");
    EXPECT_DEATH((block[100] = 1, give_back(block)),
                 "^cairn: overflow of 0x[0-9a-f]+ \\(100-byte block\\): 0x[0-9a-f]+ was written, "
                 "found by free\n" +
                     made + now + "$");
    give_back(block);
}

TEST_F(Guarded, DamageBeforeABlockIsFoundByFree)
{
    char *block = allocate_at(stands_right, 64);
    EXPECT_DEATH((block[-5] = 1, give_back(block)), "^cairn: underflow of 0x[0-9a-f]+ ");
    give_back(block);
}

TEST_F(Guarded, WhereNoBlockEverWas)
{
    char *start = guarded_pool.start + (SLOT_COUNT - 1) * guarded_pool.slot_bytes;
    if (slot_was_used(slot_of(start)))
        GTEST_SKIP() << "needs a process of its own";
    EXPECT_DEATH(give_back(start + 16),
                 "^cairn: free of 0x[0-9a-f]+, which is not a Cairn block\n$");
}

TEST_F(Guarded, RefusedProtectionServesNobody)
{
    if (!config_debug)
        GTEST_SKIP() << "no fault injection in release builds";
    os_fault_plan(0, 1, ENOMEM);
    EXPECT_EQ(guarded_allocate(64, 1), nullptr);
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(in_use(), 0u);
    void *block = guarded_allocate(64, 1);
    ASSERT_NE(block, nullptr);
    os_fault_plan(0, 2, ENOMEM);
    give_back(block); // stays readable, is free all the same
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(in_use(), 0u);
    EXPECT_DEATH(give_back(block), "^cairn: double free of ");
}

TEST_F(Guarded, ManyThreads)
{
    std::vector<std::thread> threads;
    for (unsigned id = 1; id <= 4; id++)
        threads.emplace_back([id] {
            std::vector<char *> blocks(100);
            for (unsigned i = 0; i < 4000; i++) {
                char *&block = blocks[i * 31 % blocks.size()];
                if (block) {
                    for (unsigned j = 0; j < 50; j++)
                        ASSERT_EQ(block[j], static_cast<char>(id));
                    give_back(block);
                }
                block = static_cast<char *>(guarded_allocate(50, 1)); // NULL now and then
                if (block)
                    memset(block, static_cast<int>(id), 50);
            }
            for (char *block : blocks)
                if (block)
                    give_back(block);
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST_F(Guarded, AChildOfForkHasItsOwn)
{
    char *block = static_cast<char *>(guarded_allocate(50, 1));
    const pid_t child = fork();
    if (child == 0) {
        give_back(block);
        void *other = guarded_allocate(50, 1);
        _exit(other != nullptr && in_use() == 1 ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    block[0] = 1; // still accessible here
    give_back(block);
}

} // namespace
