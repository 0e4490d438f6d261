// Revoked blocks: the addresses of freed guarded blocks, and the memory that is kept from them.

#include <cerrno>
#include <iterator>

#include "os/resident.h"
#include "page/guarded_kit.h"

extern "C" {
#include "os/fault.h"
#include "os/memory.h"
}

namespace revoked_test
{

using page_layer::kMiB;
using Revoked = guarded_kit::Blocks;
using RevokedDeathTest = Revoked;

TEST_F(RevokedDeathTest, FreedAddressesFault)
{
    struct span *span = map(kMiB);
    char *base = span->base;
    pages_give_guarded(span);
    EXPECT_DEATH(touch(base), "");
    EXPECT_DEATH(touch(base + kMiB - 1), "");
}

uint64_t system_calls()
{
    uint64_t calls = 0;
    for (const uint64_t &kind : os_calls)
        calls += load_relaxed(&kind);
    return calls;
}

// A cycle takes two system calls: one moves the memory, one removes access. Making and removing
// mappings for a new block between guards would take nine.
TEST_F(RevokedDeathTest, CyclesKeepTheirGuards)
{
    constexpr size_t kRounds = 1000;
    constexpr size_t kBytes = 25 * PAGE_BYTES;
    const char *freed = nullptr;
    auto cycle = [&freed] {
        struct span *span = map(kBytes);
        ASSERT_NE(span->base, freed) << "the address was reused too early";
        ASSERT_TRUE(page_layer::reads(span->base, kBytes, 0));
        page_layer::fill(span, 1);
        freed = span->base;
        pages_give_guarded(span);
    };
    for (size_t i = 0; i < kRounds; i++)
        cycle();
    const uint64_t before = system_calls();
    for (size_t i = 0; i < kRounds; i++)
        cycle();
    EXPECT_LE(system_calls() - before, 2 * kRounds + kRounds / 10);

    struct span *span = map(kBytes);
    EXPECT_DEATH(touch(span->base - 1), "");
    EXPECT_DEATH(touch(page_layer::end_of(span)), "");
    EXPECT_DEATH(touch(const_cast<char *>(freed)), "");
    pages_give_guarded(span);
}

// The pattern of zlib: all buffers of a stream are freed, then those of the next stream are
// allocated.
TEST_F(Revoked, BurstsOfALengthNeedNoNewMappings)
{
    constexpr size_t kRounds = 300;
    constexpr size_t kBytes = 16 * PAGE_BYTES;
    struct span *burst[4];
    auto round = [&burst] {
        for (struct span *&span : burst)
            page_layer::fill(span = map(kBytes), 1);
        for (struct span *span : burst)
            pages_give_guarded(span);
    };
    for (size_t i = 0; i < kRounds; i++)
        round();
    const uint64_t before = system_calls();
    for (size_t i = 0; i < kRounds; i++)
        round();
    EXPECT_LE(system_calls() - before, 3 * kRounds * std::size(burst));
}

// Frees and allocates until addresses of that length wait with memory.
void fill_some(size_t size_bytes)
{
    for (int i = 0; i < 1000; i++) {
        struct span *span = pages_map_guarded(size_bytes, PAGE_BYTES, 0);
        ASSERT_NE(span, nullptr);
        page_layer::fill(span, 1);
        pages_give_guarded(span);
    }
}

TEST_F(Revoked, FilledAddressesServeWithoutASystemCall)
{
    constexpr size_t kBytes = 25 * PAGE_BYTES;
    fill_some(kBytes);
    const uint64_t before = system_calls();
    struct span *span = map(kBytes);
    EXPECT_EQ(system_calls(), before);
    EXPECT_EQ(resident_in(span->base, kBytes), kBytes);
    EXPECT_TRUE(page_layer::reads(span->base, kBytes, 0));
    pages_give_guarded(span);
}

TEST_F(Revoked, FilledAddressesServeAnotherLength)
{
    constexpr size_t kBytes = 25 * PAGE_BYTES;
    fill_some(kBytes);
    const size_t kept = load_relaxed(&revoked_memory_pages);
    ASSERT_GE(kept, 25u);
    struct span *span = map(kBytes - PAGE_BYTES);
    EXPECT_EQ(load_relaxed(&revoked_memory_pages), kept - 25);
    EXPECT_EQ(resident_in(span->base, kBytes - PAGE_BYTES), kBytes - PAGE_BYTES);
    EXPECT_TRUE(page_layer::reads(span->base, kBytes - PAGE_BYTES, 0));
    pages_give_guarded(span);
}

TEST_F(RevokedDeathTest, FilledAddressesFaultWhenTheirMemoryWentBack)
{
    constexpr size_t kPages = 25;
    fill_some(kPages * PAGE_BYTES);
    (void)revoked_purge(SIZE_MAX);
    EXPECT_EQ(load_relaxed(&revoked_memory_pages), 0u);
    EXPECT_EQ(revoked_take(kPages, true), nullptr);
    int some = 0;
    while (struct span *span = revoked_take(kPages, false)) {
        EXPECT_DEATH(touch(span->base), "");
        some++;
    }
    EXPECT_GE(some, 1);
}

// A block's memory moves away before its addresses fault: for a moment another thread may write to
// new memory at these addresses.
TEST_F(Revoked, WhatIsWrittenLateIsNotHandedOut)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "qemu purges no memory that was moved";
    constexpr size_t kBytes = 25 * PAGE_BYTES;
    fill_some(kBytes);
    for (int i = 0; i < 1000; i++) {
        struct span *span = map(kBytes);
        char *base = span->base;
        ASSERT_TRUE(page_layer::reads(base, kBytes, 0)) << i;
        const bool moves = i % 2 == 0; // otherwise the block never had memory
        if (moves)
            page_layer::fill(span, 1);
        else
            ASSERT_EQ(os_purge(base, kBytes), 0);
        pages_give_guarded(span);
        if (moves) {
            ASSERT_EQ(os_protect(base, kBytes, OS_WRITE), 0);
            touch(base);
            ASSERT_EQ(os_protect(base, kBytes, OS_NONE), 0);
        }
        (void)revoked_purge(SIZE_MAX); // the next block gets new memory
    }
}

// Addresses that wait for a block of their length may hold memory that the kernel refused to purge.
TEST_F(Revoked, WaitingAddressesReadZero)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    constexpr size_t kBytes = 25 * PAGE_BYTES;
    for (int i = 0; i < 1000; i++) {
        struct span *span = pages_map_guarded(kBytes, PAGE_BYTES, 0);
        if (span == nullptr)
            continue;
        ASSERT_TRUE(page_layer::reads(span->base, kBytes, 0)) << i;
        page_layer::fill(span, 1);
        pages_give_guarded(span);
        os_fault_plan(0, 100, ENOMEM);
        (void)revoked_purge(SIZE_MAX);
        os_fault_plan(0, 0, 0);
    }
}

TEST_F(Revoked, FreedAddressesAreGivenBackInTheEnd)
{
    for (int i = 0; i < 2000; i++)
        pages_give_guarded(map(8 * kMiB)); // 16 GiB of addresses if all stayed reserved
    page_stats stats;
    pages_read_stats(&stats);
    EXPECT_EQ(stats.huge_count, 0u);
    EXPECT_EQ(stats.huge_bytes, 0u);
}

// The memory of a freed block serves the next block at another address and reads zero; the old
// addresses fault.
TEST_F(RevokedDeathTest, KeptMemoryServesTheNextBlockElsewhere)
{
    struct span *span = map(3 * kMiB);
    char *base = span->base;
    memset(base, 1, 3 * kMiB);
    pages_give_guarded(span);
    EXPECT_EQ(load_relaxed(&revoked_memory_pages), 3 * kMiB / PAGE_BYTES);
    if (config_guarded_blocks) {
        EXPECT_EQ(page_layer::stats().dirty_bytes, 3 * kMiB);
        EXPECT_EQ(page_layer::stats().free_bytes, 3 * kMiB);
    }
    EXPECT_DEATH(touch(base), "");

    struct span *next = map(3 * kMiB - PAGE_BYTES);
    EXPECT_EQ(load_relaxed(&revoked_memory_pages), 0u);
    EXPECT_NE(next->base, base);
    EXPECT_EQ(resident_in(next->base, page_layer::bytes_of(next)), page_layer::bytes_of(next));
    EXPECT_TRUE(page_layer::reads(next->base, page_layer::bytes_of(next), 0));
    EXPECT_TRUE(next->zero);
    EXPECT_DEATH(touch(base), "");
    EXPECT_DEATH(touch(base + 3 * kMiB - 1), "");
    EXPECT_DEATH(touch(next->base + page_layer::bytes_of(next)), "");
    ASSERT_TRUE(pages_resize_guarded(next, 8 * kMiB, true)) << "the block is still one mapping";
    pages_give_guarded(next);
}

TEST_F(Revoked, KeptMemoryServesOnlyBlocksOfLikeLength)
{
    struct span *span = map(3 * kMiB);
    memset(span->base, 1, 3 * kMiB);
    pages_give_guarded(span);
    struct span *shorter = map(kMiB);
    struct span *longer = map(4 * kMiB);
    EXPECT_EQ(load_relaxed(&revoked_memory_pages), 3 * kMiB / PAGE_BYTES);
    EXPECT_EQ(resident_in(longer->base, 4 * kMiB), 0u);
    pages_give_guarded(shorter);
    pages_give_guarded(longer);
}

// Clearing memory of which little was used would bring in pages that the block never had.
TEST_F(Revoked, WhatWasHardlyUsedHasNoMemoryWhenItIsHandedOut)
{
    struct span *span = map(3 * kMiB);
    memset(span->base, 1, 2 * kMiB);
    pages_give_guarded(span);
    struct span *next = map(3 * kMiB);
    EXPECT_EQ(resident_in(next->base, 3 * kMiB), 0u);
    EXPECT_TRUE(page_layer::reads(next->base, 3 * kMiB, 0));
    pages_give_guarded(next);
}

// For a short block, new pages for the part that will be used cost more than clearing all of it.
TEST_F(Revoked, OfAShortBlockAQuarterIsEnough)
{
    constexpr size_t kBytes = 64 * PAGE_BYTES;
    struct span *span = map(kBytes);
    memset(span->base, 1, kBytes / 4);
    pages_give_guarded(span);
    span = map(kBytes);
    EXPECT_EQ(resident_in(span->base, kBytes), kBytes);
    EXPECT_TRUE(page_layer::reads(span->base, kBytes, 0));
    memset(span->base, 1, kBytes / 8);
    pages_give_guarded(span);
    span = map(kBytes);
    EXPECT_EQ(resident_in(span->base, kBytes), 0u);
    EXPECT_TRUE(page_layer::reads(span->base, kBytes, 0));
    pages_give_guarded(span);
}

TEST_F(Revoked, KeptMemoryIsBoundedByTheCap)
{
    page_layer::configure(1000, 8 * kMiB);
    struct span *spans[20];
    for (struct span *&span : spans)
        memset((span = map(kMiB))->base, 1, kMiB);
    for (struct span *span : spans)
        pages_give_guarded(span);
    EXPECT_GE(load_relaxed(&revoked_memory_pages), 6 * kMiB / PAGE_BYTES);
    EXPECT_LE(load_relaxed(&revoked_memory_pages), 10 * kMiB / PAGE_BYTES);
    page_layer::configure(1000, 0);
    struct span *span = map(4 * kMiB);
    memset(span->base, 1, 4 * kMiB);
    const size_t before = load_relaxed(&revoked_memory_pages);
    pages_give_guarded(span);
    EXPECT_LE(load_relaxed(&revoked_memory_pages), before);
}

TEST_F(Revoked, KeptMemoryGoesBackOnDemandAndByAge)
{
    page_layer::configure(20, 64 * kMiB);
    for (const bool by_age : {false, true}) {
        struct span *spans[4];
        for (struct span *&span : spans)
            memset((span = map(kMiB))->base, 1, kMiB);
        for (struct span *span : spans)
            pages_give_guarded(span);
        ASSERT_GE(load_relaxed(&revoked_memory_pages), 2 * kMiB / PAGE_BYTES);
        if (!by_age && config_guarded_blocks) {
            EXPECT_TRUE(pages_trim(0));
        }
        for (int i = 0; by_age && i < 4; i++) {
            usleep(30000);
            pages_tick();
            if (!config_guarded_blocks)
                revoked_decay();
        }
        if (!config_guarded_blocks)
            (void)revoked_purge(SIZE_MAX);
        EXPECT_EQ(load_relaxed(&revoked_memory_pages), 0u);
    }
}

} // namespace revoked_test
