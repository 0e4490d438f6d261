// Guarded blocks: their slots, their start by the option, and the reports of faults. Each case
// needs a process of its own, since one of them counts the slots.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "watch/guarded_layer.h"

extern "C" {
#include "base/check.h"
#include "os/fault.h"
#include "os/process.h"
}

namespace guarded_blocks_test
{

// Guarded blocks: their addresses, accessible bytes, the stacks that are kept, misuse. Each case
// needs a process of its own, since one of them needs an unused slot.

using namespace guarded_layer;

// Whether the kernel can read the byte, found without a fault.
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
        GTEST_SKIP() << "faults are injected in debug builds";
    os_fault_plan(0, 1, ENOMEM);
    EXPECT_EQ(guarded_allocate(64, 1), nullptr);
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(in_use(), 0u);
    void *block = guarded_allocate(64, 1);
    ASSERT_NE(block, nullptr);
    os_fault_plan(0, 2, ENOMEM);
    give_back(block); // stays readable, but is free
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
                block = static_cast<char *>(guarded_allocate(50, 1)); // NULL at times
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
    block[0] = 1; // still accessible in this process
    give_back(block);
}

// The pool of guarded slots: the order of reuse, its end, and the block of an address. Each case
// needs a process of its own, since one of them counts the slots.

using namespace guarded_layer;

TEST_F(Guarded, TheSlotFreedFirstIsUsedFirst)
{
    std::vector<struct guarded_slot *> order;
    for (int i = 0; i < SLOT_COUNT; i++) {
        void *block = guarded_allocate(64, 1);
        order.push_back(slot_of(block));
        give_back(block);
    }
    EXPECT_EQ(std::set<struct guarded_slot *>(order.begin(), order.end()).size(),
              size_t{SLOT_COUNT})
        << "a slot was reused before all others";
    for (struct guarded_slot *slot : order) {
        void *block = guarded_allocate(64, 1);
        EXPECT_EQ(slot_of(block), slot);
        give_back(block);
    }
}

TEST_F(Guarded, AFullPoolServesNobody)
{
    std::vector<void *> blocks;
    for (int i = 0; i < SLOT_COUNT; i++) {
        blocks.push_back(guarded_allocate(64, 1));
        ASSERT_NE(blocks.back(), nullptr);
    }
    EXPECT_EQ(guarded_allocate(64, 1), nullptr);
    EXPECT_EQ(in_use(), size_t{SLOT_COUNT});
    give_back(blocks[77]);
    blocks[77] = guarded_allocate(64, 1);
    EXPECT_NE(blocks[77], nullptr);
    for (void *block : blocks)
        give_back(block);
}

TEST_F(Guarded, PlacesAreFound)
{
    char *block = allocate_at(stands_right, 64);
    const auto expect_place = [&](const char *address, ptrdiff_t offset) {
        const struct guarded_place place = guarded_find(address);
        EXPECT_EQ(place.slot, slot_of(block)) << offset;
        EXPECT_EQ(place.offset, offset);
    };
    for (const ptrdiff_t offset : {0, 63, 64, 100, -1, -100, 2000})
        expect_place(block + offset, offset);
    give_back(block);
    expect_place(block + 5, 5);

    int local = 0;
    EXPECT_EQ(guarded_find(&local).slot, nullptr);
    EXPECT_EQ(guarded_find(nullptr).slot, nullptr);
    EXPECT_EQ(guarded_find(guarded_pool.start - 1).slot, nullptr);
    const size_t bytes = SLOT_COUNT * guarded_pool.slot_bytes + guarded_pool.page_bytes;
    EXPECT_EQ(guarded_find(guarded_pool.start + bytes).slot, nullptr);
    (void)guarded_find(guarded_pool.start + bytes - 1); // the last guard page
}

// Guarding as option `guard` starts it: malloc returns guarded blocks, and traps are reported.

using namespace guarded_layer;

void *allocate(size_t size) { return malloc_fast(size, malloc_slow); }

bool is_guarded(const void *block) { return page_map_find(block)->tag == SPAN_GUARDED; }

// In ctest each case is a process of its own; cases that run together share the guards of the
// first.
class Guards : public testing::Test
{
  protected:
    void SetUp() override
    {
        static const int error = guards_start(1);
        ASSERT_EQ(error, 0);
    }
};

TEST_F(Guards, EveryBlockIsGuarded)
{
    for (const size_t size : {size_t{0}, size_t{1}, size_t{100}, size_t{1024}, size_t{30000}}) {
        if (config_zero_size_blocks && size == 0)
            continue; // an access to a block of 0 bytes faults in any case
        void *block = allocate(size);
        EXPECT_TRUE(is_guarded(block)) << size;
        EXPECT_EQ(heap_usable_size(block), size);
        free_fast(block);
        block = heap_allocate_aligned(size, 256);
        EXPECT_TRUE(is_guarded(block)) << size;
        free_fast(block);
    }
    void *large = allocate(100000);
    EXPECT_FALSE(is_guarded(large));
    free_fast(large);
}

// This includes an aligned block of up to 8 bytes, whose class is that of 9 bytes.
TEST_F(Guards, ASizedFreeNamesTheSizeThatWasAskedFor)
{
    for (size_t alignment = 1; alignment <= 64; alignment *= 2)
        for (size_t size = config_zero_size_blocks ? 1 : 0; size <= 40; size++) {
            void *block = heap_allocate_aligned(size, alignment);
            ASSERT_TRUE(is_guarded(block)) << size << ", " << alignment;
            EXPECT_EQ(heap_usable_size(block), size) << alignment;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << size;
            heap_free_sized(block, size, alignment);
        }
}

TEST_F(Guards, AFullPoolLeavesTheRestToTheHeap)
{
    void *blocks[2 * SLOT_COUNT];
    size_t guarded = 0;
    for (void *&block : blocks) {
        block = allocate(100);
        ASSERT_NE(block, nullptr);
        guarded += is_guarded(block);
        memset(block, 1, 100);
    }
    EXPECT_EQ(guarded, size_t{SLOT_COUNT});
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(Guards, TrapsAreReported)
{
    char *block = static_cast<char *>(allocate(100));
    while (!stands_right(block, 112)) {
        free_fast(block);
        block = static_cast<char *>(allocate(100));
    }
    volatile char *bytes = block;
    EXPECT_DEATH(bytes[112] = 1, "cairn: overflow: [a-z]+ of 0x[0-9a-f]+, 12 bytes behind a "
                                 "100-byte block at 0x[0-9a-f]+\n" +
                                     stack("allocated") + stack("misused"));
    free_fast(block);
    EXPECT_DEATH(bytes[50] = 1, "cairn: use after free: [a-z]+ of 0x[0-9a-f]+ \\(100-byte block "
                                "at 0x[0-9a-f]+\\)\n" +
                                    stack("allocated") + stack("freed") + stack("misused"));
}

TEST_F(Guards, ItCannotBeStartedWithoutMemory)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    const struct guarded_pool saved = guarded_pool;
    for (size_t skip = 0; skip < 3; skip++) {
        guarded_pool = {};
        os_fault_plan(skip, 1, ENOMEM);
        EXPECT_NE(guarded_start(), 0) << skip;
        os_fault_plan(0, 0, 0);
        EXPECT_EQ(guarded_pool.start, nullptr);
    }
    guarded_pool = saved;
}

// The text of the report for each kind of fault. The cases of Guards check that the handler
// is called.

using namespace guarded_layer;

class FaultReport : public Guarded
{
  protected:
    // Reports an access at the address, and ends the process.
    static void tell(const char *address, enum os_fault_kind kind)
    {
        const struct os_fault fault = {address, kind, 0};
        _exit(report_fault(&fault) ? 0 : 1);
    }
    static auto exits(int code) { return testing::ExitedWithCode(code); }
};

TEST_F(FaultReport, NamesTheKindTheAccessAndTheBlock)
{
    char *block = allocate_at(stands_right, 64);
    const std::string at = " of 0x[0-9a-f]+";
    const std::string in = " 64-byte block at 0x[0-9a-f]+\n";
    const std::string stacks = stack("allocated") + stack("misused") + "$";
    EXPECT_EXIT(tell(block + 64, OS_FAULT_READ), exits(0),
                "^cairn: overflow: read" + at + ", 0 bytes behind a" + in + stacks);
    EXPECT_EXIT(tell(block + 80, OS_FAULT_WRITE), exits(0),
                "^cairn: overflow: write" + at + ", 16 bytes behind a" + in + stacks);
    EXPECT_EXIT(tell(block - 10, OS_FAULT_UNKNOWN), exits(0),
                "^cairn: underflow: access" + at + ", 10 bytes before a" + in + stacks);
    give_back(block);
    EXPECT_EXIT(tell(block + 5, OS_FAULT_WRITE), exits(0),
                "^cairn: use after free: write" + at + " \\(64-byte block at 0x[0-9a-f]+\\)\n" +
                    stack("allocated") + stack("freed") + stack("misused") + "$");
}

TEST_F(FaultReport, ForeignFaultsAreNotItsBusiness)
{
    char local = 0;
    for (const char *address : {&local, static_cast<char *>(nullptr), guarded_pool.start - 1,
                                guarded_pool.start + SLOT_COUNT * guarded_pool.slot_bytes - 1})
        EXPECT_EXIT(tell(address, OS_FAULT_READ), exits(1), "^$");
}

// A program whose own handler of SIGSEGV continues may meet further faults, in other threads.
TEST_F(FaultReport, AnotherThreadReportsTheNextFault)
{
    char *block = allocate_at(stands_right, 64);
    const auto report_twice = [&] {
        const struct os_fault read = {block + 64, OS_FAULT_READ, 0};
        const struct os_fault write = {block + 80, OS_FAULT_WRITE, 0};
        report_fault(&read);
        std::thread([&] { report_fault(&write); }).join();
        _exit(0);
    };
    EXPECT_EXIT(report_twice(), exits(0),
                "^cairn: overflow: read [^\n]*\n" + stack("allocated") + stack("misused") +
                    "cairn: overflow: write [^\n]*\n" + stack("allocated") + stack("misused") +
                    "$");
    give_back(block);
}

TEST_F(FaultReport, AWrongFreeMayBeRefused)
{
    if (config_hardened)
        GTEST_SKIP() << "hardened builds end the process";
    char *block = static_cast<char *>(guarded_allocate(64, 1));
    const std::string stacks = stack("allocated") + stack("misused");
    EXPECT_EXIT(
        {
            heap_go_on_after_wrong_frees();
            guarded_free(block + 1, &slot_of(block)->span);
            std::thread([block] { guarded_free(block + 2, &slot_of(block)->span); }).join();
            _exit(slot_of(block)->state == SLOT_LIVE && heap_count_wrong_frees() == 2 ? 0 : 1);
        },
        exits(0),
        "^cairn: free of interior pointer [^\n]*\n" + stacks +
            "cairn: free of interior pointer [^\n]*\n" + stacks + "$");
    give_back(block);
}

TEST_F(FaultReport, OneThreadReports)
{
    char *block = static_cast<char *>(guarded_allocate(64, 1));
    EXPECT_EXIT(
        {
            std::vector<std::thread> threads;
            for (int i = 0; i < 4; i++)
                threads.emplace_back([block] { report_guarded("free", slot_of(block), "once"); });
            for (std::thread &thread : threads)
                thread.join();
        },
        testing::KilledBySignal(SIGABRT),
        "^cairn: once\n" + stack("allocated") + stack("misused") + "$");
    give_back(block);
}

// A signal handler may misuse a block while its thread reports. Another thread still waits until
// the outer report is complete.
TEST_F(FaultReport, AReportWithinAReportDoesNotEndIt)
{
    if (config_hardened)
        GTEST_SKIP() << "hardened builds end the process";
    static void *block;
    block = guarded_allocate(64, 1);
    static std::thread other;
    static std::atomic<bool> interrupted{false};
    const auto interrupt = [](void *, const char *, size_t) {
        if (interrupted.exchange(true))
            return;
        report_guarded("free", slot_of(block), "inner");
        other = std::thread([] { report_guarded("free", slot_of(block), "other"); });
        os_sleep_ms(100);
    };
    const std::string stacks = stack("allocated") + stack("misused");
    EXPECT_EXIT(
        {
            heap_go_on_after_wrong_frees();
            report_to(REPORT_ERROR, interrupt, nullptr);
            report_guarded("free", slot_of(block), "outer");
            other.join();
            _exit(0);
        },
        exits(0),
        "^cairn: outer\ncairn: inner\n" + stacks + stacks + "cairn: other\n" + stacks + "$");
    give_back(block);
}

// The reporting thread does not exist in a child of fork.
TEST_F(FaultReport, AChildDoesNotWaitForAThreadOfItsParent)
{
    if (config_hardened)
        GTEST_SKIP() << "hardened builds end the process";
    static void *block;
    block = guarded_allocate(64, 1);
    const auto fork_off = [](void *, const char *line, size_t) {
        if (strcmp(line, "cairn: parent") != 0)
            return;
        const pid_t child = fork();
        if (child == 0) {
            alarm(100);
            report_guarded("free", slot_of(block), "child");
            _exit(0);
        }
        waitpid(child, nullptr, 0);
    };
    const std::string stacks = stack("allocated") + stack("misused");
    EXPECT_EXIT(
        {
            heap_go_on_after_wrong_frees();
            report_to(REPORT_ERROR, fork_off, nullptr);
            report_guarded("free", slot_of(block), "parent");
            _exit(0);
        },
        exits(0), "^cairn: parent\ncairn: child\n" + stacks + stacks + "$");
    give_back(block);
}

} // namespace guarded_blocks_test
