// Misuse of a TLSF heap: one error a case with its exact message, found at the first call that can
// find it.

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <cstring>

#include "region/tlsf_arena.h"

namespace tlsf_fault_test
{

using testing::Eq;
using tlsf_test::Arena;
using tlsf_test::hex;
using tlsf_test::kMiB;

#define EXPECT_FAULT(statement, message)                                                           \
    EXPECT_EXIT(statement, testing::KilledBySignal(SIGABRT), Eq(std::string(message) + "\n"))

class TlsfFault : public testing::Test
{
  protected:
    TlsfFault() : heap_(kMiB)
    {
        for (char *&block : blocks_)
            block = static_cast<char *>(cairn_tlsf_alloc(heap_, 40));
    }

    std::string no_block(const char *verb, const void *pointer)
    {
        return std::string("cairn: TLSF ") + verb + " of " + hex(pointer) +
               ", which is not a block of heap " + hex(heap_.get());
    }
    std::string overrun(const void *pointer)
    {
        return "cairn: TLSF block " + hex(pointer) +
               " (40-byte block) was overrun: the header behind it is gone";
    }

    Arena heap_;
    char *blocks_[8];
};

TEST_F(TlsfFault, DoubleFree)
{
    cairn_tlsf_free(heap_, blocks_[1]);
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[1]),
                 "cairn: TLSF double free of " + hex(blocks_[1]));
}

// The header of the freed block has the size of all the free memory that begins with it.
TEST_F(TlsfFault, DoubleFreeOfTheBlockInFrontOfTheRest)
{
    char *last = static_cast<char *>(cairn_tlsf_alloc(heap_, 100));
    cairn_tlsf_free(heap_, last);
    EXPECT_FAULT(cairn_tlsf_free(heap_, last), "cairn: TLSF double free of " + hex(last));
}

TEST_F(TlsfFault, DoubleFreeAfterTheBlockMergedWithThoseAroundIt)
{
    for (int order = 0; order < 2; order++) {
        cairn_tlsf_free(heap_, blocks_[order ? 6 : 1]);
        cairn_tlsf_free(heap_, blocks_[order ? 4 : 3]);
        cairn_tlsf_free(heap_, blocks_[order ? 5 : 2]);
    }
    for (int i = 1; i <= 6; i++)
        EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[i]),
                     "cairn: TLSF double free of " + hex(blocks_[i]));
}

TEST_F(TlsfFault, FreeOfABlockThatIsInsideOfALargerOneNow)
{
    cairn_tlsf_free(heap_, blocks_[1]);
    cairn_tlsf_free(heap_, blocks_[2]);
    ASSERT_EQ(cairn_tlsf_alloc(heap_, 88), blocks_[1]);
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[2]),
                 "cairn: TLSF double free of " + hex(blocks_[2]));
    memset(blocks_[1], 'x', 88);
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[2]), no_block("free", blocks_[2]));
}

TEST_F(TlsfFault, InteriorPointer)
{
    memset(blocks_[1], 0x11, 40);
    for (int offset : {1, 8, 16, 32})
        EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[1] + offset),
                     no_block("free", blocks_[1] + offset));
}

TEST_F(TlsfFault, ForeignPointers)
{
    static int variable;
    Arena other(kMiB);
    void *others = cairn_tlsf_alloc(other, 40);
    void *const pointers[] = {&variable,
                              heap_.get(),
                              heap_.memory() + 64,
                              others,
                              heap_.memory() + kMiB,
                              reinterpret_cast<void *>(16),
                              reinterpret_cast<void *>(UINTPTR_MAX - 15)};
    for (void *pointer : pointers)
        EXPECT_FAULT(cairn_tlsf_free(heap_, pointer), no_block("free", pointer));
}

TEST_F(TlsfFault, ACopiedHeaderIsNoHeader)
{
    memcpy(blocks_[3] + 8, blocks_[1] - 8, 8);
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[3] + 16), no_block("free", blocks_[3] + 16));
}

TEST_F(TlsfFault, OtherVerbsOnAFreedBlock)
{
    cairn_tlsf_free(heap_, blocks_[1]);
    const std::string tail = " of freed block " + hex(blocks_[1]);
    EXPECT_FAULT((void)!cairn_tlsf_realloc(heap_, blocks_[1], 50), "cairn: TLSF realloc" + tail);
    EXPECT_FAULT(cairn_tlsf_resize(heap_, blocks_[1], 50), "cairn: TLSF resize" + tail);
    EXPECT_FAULT(cairn_tlsf_usable(heap_, blocks_[1]), "cairn: TLSF usable size" + tail);
}

TEST_F(TlsfFault, OtherVerbsOnNoBlock)
{
    char *no = blocks_[1] + 16;
    memset(blocks_[1], 0, 40);
    EXPECT_FAULT((void)!cairn_tlsf_realloc(heap_, no, 50), no_block("realloc", no));
    EXPECT_FAULT(cairn_tlsf_resize(heap_, no, 50), no_block("resize", no));
    EXPECT_FAULT(cairn_tlsf_usable(heap_, no), no_block("usable size", no));
}

// Every length and value of an overrun is reported, unless it writes the bytes that the header has
// already.
TEST_F(TlsfFault, OverrunOfTheNextHeader)
{
    for (size_t length = 1; length <= 8; length++) {
        for (int value : {0, 0xff, 0x61}) {
            const auto overrun_and_free = [&] {
                char before[8];
                memcpy(before, blocks_[1] + 40, 8);
                memset(blocks_[1] + 40, value, length);
                if (memcmp(before, blocks_[1] + 40, length) == 0)
                    blocks_[1][40] = static_cast<char>(~before[0]);
                cairn_tlsf_free(heap_, blocks_[1]);
            };
            EXPECT_FAULT(overrun_and_free(), overrun(blocks_[1]));
        }
    }
}

TEST_F(TlsfFault, AnOverrunThatTheNeighbourFindsNamesTheBlockThatWasOverrun)
{
    memset(blocks_[1], 0, 41);
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[2]), overrun(blocks_[1]));
    EXPECT_FAULT((void)!cairn_tlsf_realloc(heap_, blocks_[2], 90), overrun(blocks_[1]));
    EXPECT_FAULT(cairn_tlsf_usable(heap_, blocks_[2]), overrun(blocks_[1]));
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[1]), overrun(blocks_[1]));
    memset(blocks_[1], 0, 40 + 2 * 48); // and the headers of two more blocks
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[3]), overrun(blocks_[1]));
    cairn_tlsf_free(heap_, blocks_[0]); // the block before it is sound
}

TEST_F(TlsfFault, AnOverrunIntoAFreeBlockNamesTheBlockThatWasOverrun)
{
    cairn_tlsf_free(heap_, blocks_[2]);
    memset(blocks_[1], 0, 41);
    EXPECT_FAULT((void)!cairn_tlsf_alloc(heap_, 40), overrun(blocks_[1]));
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[1]), overrun(blocks_[1]));
}

TEST_F(TlsfFault, AWriteOverTheEndOfFreedMemory)
{
    cairn_tlsf_free(heap_, blocks_[1]);
    memset(blocks_[1] + 40, 0, 8);
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[2]), "cairn: TLSF free memory in front of block " +
                                                         hex(blocks_[2]) + " was written to");
}

TEST_F(TlsfFault, OverrunFoundByRealloc)
{
    memset(blocks_[1], 0, 48);
    EXPECT_FAULT((void)!cairn_tlsf_realloc(heap_, blocks_[1], 100), overrun(blocks_[1]));
}

TEST_F(TlsfFault, OverrunOfTheEndOfARegion)
{
    cairn_tlsf_stats stats = tlsf_test::stats(heap_);
    char *last = static_cast<char *>(cairn_tlsf_alloc(heap_, stats.largest_request_bytes));
    last[stats.largest_request_bytes] = static_cast<char>(~last[stats.largest_request_bytes]);
    EXPECT_EXIT(cairn_tlsf_free(heap_, last), testing::KilledBySignal(SIGABRT),
                "^cairn: TLSF block " + hex(last) +
                    " \\([0-9]+-byte block\\) was overrun: the "
                    "header behind it is gone\n$");
}

// The top bytes of a header, which an underrun overwrites first, hold the size.
TEST_F(TlsfFault, UnderrunOfTheOwnHeader)
{
    blocks_[1][-1] = 1;
    EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[1]),
                 "cairn: TLSF block " + hex(blocks_[1]) + ": its header was written to");
}

TEST_F(TlsfFault, AWriteIntoFreedMemoryThatMeetsTheLinks)
{
    cairn_tlsf_free(heap_, blocks_[1]);
    cairn_tlsf_free(heap_, blocks_[3]);
    memset(blocks_[3], 'x', 40);
    EXPECT_FAULT((void)!cairn_tlsf_alloc(heap_, 40),
                 "cairn: TLSF free block " + hex(blocks_[3]) + " was written to");
}

TEST_F(TlsfFault, AWriteIntoFreedMemoryFoundWhenItsNeighbourMerges)
{
    cairn_tlsf_free(heap_, blocks_[1]);
    cairn_tlsf_free(heap_, blocks_[3]); // head of the list; blocks_[1] has a predecessor
    const auto link_and_free = [&](int link, int neighbour) {
        memset(blocks_[1] + 8 * link, 0x18, 8);
        cairn_tlsf_free(heap_, blocks_[neighbour]);
    };
    for (int link : {0, 1})
        for (int neighbour : {0, 2})
            EXPECT_FAULT(link_and_free(link, neighbour),
                         "cairn: TLSF free block " + hex(blocks_[1]) + " was written to");
}

TEST_F(TlsfFault, AWriteIntoFreedMemoryThatMeetsTheBoundaryTag)
{
    cairn_tlsf_free(heap_, blocks_[1]);
    for (size_t value : {size_t{0}, size_t{16}, size_t{96}, SIZE_MAX}) {
        memcpy(blocks_[1] + 32, &value, 8);
        EXPECT_FAULT(cairn_tlsf_free(heap_, blocks_[2]),
                     "cairn: TLSF free memory in front of block " + hex(blocks_[2]) +
                         " was written to");
    }
}

TEST_F(TlsfFault, AWalkMeetsDamage)
{
    memset(blocks_[1], 0, 48);
    const auto visit = [](void *, size_t, bool, void *) { return true; };
    EXPECT_FAULT(cairn_tlsf_walk(heap_, visit, nullptr),
                 "cairn: TLSF heap " + hex(heap_.get()) + " is damaged at " + hex(blocks_[2]));
}

// Two regions with inaccessible memory between them and on both sides.
class TlsfFaultWithAGap : public testing::Test
{
  protected:
    TlsfFaultWithAGap()
        : space_(static_cast<char *>(
              mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
          first_(space_ + kMiB / 4), second_(space_ + kMiB / 2)
    {
        mprotect(first_, kRegion, PROT_READ | PROT_WRITE);
        mprotect(second_, kRegion, PROT_READ | PROT_WRITE);
        heap_ = cairn_tlsf_init(first_, kRegion);
        EXPECT_EQ(cairn_tlsf_add(heap_, second_, kRegion), 0);
    }
    ~TlsfFaultWithAGap() override { munmap(space_, kMiB); }

    static constexpr size_t kRegion = 65536;
    char *space_;
    char *first_;
    char *second_;
    cairn_tlsf *heap_;
};

TEST_F(TlsfFaultWithAGap, PointersOutsideOfTheRegionsAreForeign)
{
    char *const pointers[] = {space_,
                              first_ - 16,
                              first_,
                              first_ + 64,
                              first_ + kRegion,
                              first_ + kRegion + 16,
                              second_ - kMiB / 8,
                              second_ - 16,
                              second_,
                              second_ + 8,
                              second_ + 16,
                              second_ + 24,
                              second_ + kRegion,
                              second_ + kRegion + 16,
                              space_ + kMiB - 16};
    for (char *pointer : pointers) {
        const std::string tail =
            " of " + hex(pointer) + ", which is not a block of heap " + hex(heap_);
        EXPECT_FAULT(cairn_tlsf_free(heap_, pointer), "cairn: TLSF free" + tail);
        EXPECT_FAULT((void)!cairn_tlsf_realloc(heap_, pointer, 50), "cairn: TLSF realloc" + tail);
        EXPECT_FAULT(cairn_tlsf_resize(heap_, pointer, 50), "cairn: TLSF resize" + tail);
        EXPECT_FAULT(cairn_tlsf_usable(heap_, pointer), "cairn: TLSF usable size" + tail);
    }
}

TEST_F(TlsfFaultWithAGap, BlocksOfBothRegionsServe)
{
    std::vector<void *> blocks;
    while (void *block = cairn_tlsf_alloc(heap_, 1000))
        blocks.push_back(block);
    EXPECT_GT(blocks.size(), 115u);
    for (void *block : blocks)
        cairn_tlsf_free(heap_, block);
    EXPECT_EQ(tlsf_test::fault(heap_), "");
    EXPECT_EQ(cairn_tlsf_remove(heap_, second_), 0);
}

// The verifier runs on damaged heaps: it names a link into the gap and does not follow it.
TEST_F(TlsfFaultWithAGap, TheVerifierFollowsNoLinkIntoTheGap)
{
    void *freed = cairn_tlsf_alloc(heap_, 40);
    void *behind = cairn_tlsf_alloc(heap_, 40);
    void *other = cairn_tlsf_alloc(heap_, 40);
    void *last = cairn_tlsf_alloc(heap_, 40);
    const int64_t gap = second_ - kMiB / 8 + 8 - reinterpret_cast<char *>(heap_);
    int64_t next = 0;
    cairn_tlsf_free(heap_, freed);
    memcpy(freed, &gap, sizeof gap);
    EXPECT_EQ(tlsf_test::fault(heap_), "a list is broken");
    memcpy(freed, &next, sizeof next);
    cairn_tlsf_free(heap_, other); // now the head of their list
    memcpy(&next, other, sizeof next);
    memcpy(other, &gap, sizeof gap);
    EXPECT_EQ(tlsf_test::fault(heap_), "a free block is not in its list");
    memcpy(other, &next, sizeof next);
    EXPECT_EQ(tlsf_test::fault(heap_), "");
    memcpy(static_cast<char *>(freed) + 8, &gap, sizeof gap);
    EXPECT_EQ(tlsf_test::fault(heap_), "a free block is not in its list");
    EXPECT_NE(behind, last);
}

TEST_F(TlsfFault, DeleteOfAHeapOverTheCallersMemory)
{
    EXPECT_FAULT((void)cairn_tlsf_delete(heap_), "cairn: TLSF delete of " + hex(heap_.get()) +
                                                     ", which is not a heap of cairn_tlsf_new");
}

} // namespace tlsf_fault_test
