// A TLSF heap over a mapping of its own: the fixed region of 1 MiB, its deletion, and a system that
// refuses memory.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "region/tlsf_arena.h"

extern "C" {
#include "os/fault.h"
}

namespace mapped_tlsf_test
{

using tlsf_test::fault;
using tlsf_test::kMiB;
using tlsf_test::stats;

bool is_mapped(void *address)
{
    unsigned char state;
    return mincore(address, 1, &state) == 0;
}

TEST(MappedTlsf, OneMebibyteByDefault)
{
    cairn_tlsf *heap = cairn_tlsf_new(0);
    ASSERT_NE(heap, nullptr);
    EXPECT_EQ(fault(heap), "");
    EXPECT_LT(stats(heap).total_bytes, kMiB + 4096);
    void *block = cairn_tlsf_alloc(heap, kMiB);
    ASSERT_NE(block, nullptr);
    memset(block, 1, kMiB);
    EXPECT_EQ(cairn_tlsf_alloc(heap, 4096), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(cairn_tlsf_delete(heap), 0);
    EXPECT_FALSE(is_mapped(heap));
}

TEST(MappedTlsf, AnySize)
{
    for (size_t size : {size_t{1}, size_t{4096}, size_t{5000}, 3 * kMiB, 64 * kMiB, 1024 * kMiB}) {
        cairn_tlsf *heap = cairn_tlsf_new(size);
        ASSERT_NE(heap, nullptr) << size;
        EXPECT_EQ(fault(heap), "");
        EXPECT_NE(cairn_tlsf_alloc(heap, size), nullptr);
        EXPECT_EQ(cairn_tlsf_delete(heap), 0);
    }
    EXPECT_EQ(cairn_tlsf_delete(nullptr), 0);
}

// Its lock is a block of the heap, and fork acquires that lock.
TEST(MappedTlsf, AHeapThatIsSharedIsBusy)
{
    cairn_tlsf *heap = cairn_tlsf_new(0);
    cairn_tlsf_shared *shared = cairn_tlsf_share(heap);
    errno = 0;
    EXPECT_EQ(cairn_tlsf_delete(heap), EBUSY);
    EXPECT_EQ(errno, 0);
    void *block = cairn_tlsf_shared_alloc(shared, 100);
    EXPECT_NE(block, nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(100);
        cairn_tlsf_shared_free(shared, block);
        _exit(cairn_tlsf_shared_check(shared) == nullptr ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(cairn_tlsf_delete(cairn_tlsf_unshare(shared)), 0);
}

// The largest capacities for which a heap has 15 levels. Rounded up to pages it would have 16,
// whose descriptor leaves less room.
TEST(MappedTlsf, ABlockOfTheWholeCapacityFits)
{
    for (size_t size = 8 * kMiB - 400; size <= 8 * kMiB; size += 8) {
        cairn_tlsf *heap = cairn_tlsf_new(size);
        ASSERT_NE(heap, nullptr);
        EXPECT_NE(cairn_tlsf_alloc(heap, size), nullptr) << size;
        EXPECT_EQ(cairn_tlsf_delete(heap), 0);
    }
}

TEST(MappedTlsf, WhatTheSystemRefusesIsEnomem)
{
    for (size_t size : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 40}) {
        errno = 0;
        EXPECT_EQ(cairn_tlsf_new(size), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
}

TEST(MappedTlsf, AnySystemCallMayFail)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds only";
    int refused = 0;
    for (size_t skip = 0; skip < 6; skip++) {
        errno = 0;
        os_fault_plan(skip, 1, EAGAIN);
        cairn_tlsf *heap = cairn_tlsf_new(4 * kMiB);
        os_fault_plan(0, 0, 0);
        refused += heap == nullptr;
        ASSERT_EQ(errno, heap ? 0 : ENOMEM);
        if (heap) {
            EXPECT_NE(cairn_tlsf_alloc(heap, kMiB), nullptr);
            EXPECT_EQ(fault(heap), "");
        }
        cairn_tlsf_delete(heap);
    }
    EXPECT_GE(refused, 1);
}

} // namespace mapped_tlsf_test
