// Hardened blocks: exact sizes, random slots, canaries, quarantine, zero-size blocks.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "heap/harden_layer.h"

extern "C" {
#include "heap/slab_lists.h"
#include "os/memory.h"
}

namespace harden_test
{

// Hardened blocks: exact sizes, random order, blocks of 0 bytes.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::span_of;

class Harden : public heap_layer::HardenedHeap
{
};

TEST_F(Harden, TheExactSizeIsKnownForEverySize)
{
    for (size_t size = config_zero_size_blocks; size <= MEDIUM_REQUEST_MAX;
         size += 1 + size / 200) {
        char *block = static_cast<char *>(allocate(size));
        ASSERT_EQ(harden_size(span_of(block), block), size);
        memset(block, 0xff, size);
        ASSERT_EQ(harden_size(span_of(block), block), size) << "the size of the block in use";
        free_fast(block);
    }
    heap_layer::verify();
}

TEST_F(Harden, ResizingInPlaceMovesTheCanaries)
{
    char *block = static_cast<char *>(allocate(200));
    for (size_t size : {size_t{190}, size_t{200}, size_t{186}}) {
        ASSERT_EQ(heap_resize(block, size), block);
        EXPECT_EQ(heap_usable_size(block), size);
        memset(block, 1, size);
    }
    free_fast(block);
}

TEST_F(Harden, SlotsComeInRandomOrder)
{
    size_t rising = 0;
    std::vector<char *> blocks;
    for (int i = 0; i < 2000; i++) {
        blocks.push_back(static_cast<char *>(allocate(100)));
        rising += i > 0 && blocks[i] > blocks[i - 1];
    }
    EXPECT_GT(rising, 700u); // each slab rises or falls as a whole
    EXPECT_LT(rising, 1300u);
    for (char *block : blocks)
        free_fast(block);
}

// The slab also has room for the canary of the block.
TEST_F(Harden, ABlockOf32KiBIsOfASlab)
{
    char *block = static_cast<char *>(allocate(32 * kKiB));
    ASSERT_TRUE(span_is_slab(span_of(block)));
    EXPECT_EQ(heap_usable_size(block), 32 * kKiB);
    EXPECT_EQ(heap_good_size(32 * kKiB), 32 * kKiB) << "larger blocks are not in slabs";
    memset(block, 1, 32 * kKiB);
    heap_free_sized(block, 32 * kKiB, 1);
    block = static_cast<char *>(heap_allocate_aligned(32 * kKiB, PAGE_BYTES));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % PAGE_BYTES, 0u);
    heap_free_sized(block, 32 * kKiB, PAGE_BYTES);
    block = static_cast<char *>(allocate(32 * kKiB + 1));
    EXPECT_FALSE(span_is_slab(span_of(block)));
    free_fast(block);
    heap_layer::verify();
}

// The slots of a new slab in the order in which they are handed out, from 0 on.
std::vector<unsigned> order_of_new_slab(struct heap *heap, unsigned size_class)
{
    std::vector<unsigned> order;
    struct span *slab = slab_make(heap, size_class);
    if (slab == nullptr)
        return order;
    for (unsigned slot = slab_hot(slab)->head; slot != LINK_END; slot = *slab_link(slab, slot))
        order.push_back(slot - 1);
    slab_retire(slab);
    return order;
}

// The number of slots from which the first one of a slab is drawn; later ones are drawn from at
// least half as many.
unsigned first_choice(size_t size)
{
    if (!config_random_pages && size <= 512)
        return 10;
    return std::max(static_cast<unsigned>(PAGE_BYTES / size), 32u);
}

// Whether the order goes around the slab once from `start` on, with each slot at a time when it can
// be drawn.
bool goes_around(const std::vector<unsigned> &order, unsigned start, bool down, unsigned group)
{
    const auto count = static_cast<unsigned>(order.size());
    for (unsigned i = 0; i < count; i++) {
        const unsigned slot = order[i];
        const unsigned steps = (down ? start + count - 1 - slot : slot + count - start) % count;
        if (steps >= std::max(group, i + (group + 1) / 2))
            return false;
    }
    return true;
}

// A walk over blocks in order of allocation moves through memory in one direction, which the
// processor's prefetching follows. It begins at a page's start, so that few pages are used first.
TEST_F(Harden, SlotsComeAroundTheSlabInOneDirection)
{
    for (const size_t size :
         {size_t{16}, size_t{48}, size_t{64}, size_t{512}, size_t{SMALL_BLOCK_MAX}}) {
        unsigned ups = 0;
        unsigned downs = 0;
        for (int round = 0; round < 40; round++) {
            const auto order = order_of_new_slab(heap_, small_class(size));
            const std::set<unsigned> slots(order.begin(), order.end());
            ASSERT_EQ(slots.size(), order.size()) << "each slot once";
            ASSERT_EQ(order.size(), size_classes[small_class(size)].capacity);
            bool up = false;
            bool down = false;
            for (size_t at = 0; at < order.size() * size; at += PAGE_BYTES) {
                const auto start = static_cast<unsigned>((at + size - 1) / size % order.size());
                up |= goes_around(order, start, false, first_choice(size));
                down |= goes_around(order, start, true, first_choice(size));
            }
            EXPECT_TRUE(up || down) << size << " bytes";
            ups += up;
            downs += down;
        }
        EXPECT_GT(ups, 2u) << size << " bytes";
        EXPECT_GT(downs, 2u) << size << " bytes";
    }
}

// The guarantees of docs/HARDENING.md: the most probable distance from a slot to the next one, and
// the first slot of a slab.
TEST_F(Harden, TheNextSlotCannotBeGuessed)
{
    struct promise {
        size_t size;
        unsigned light, full; // the best guess is right in less than one of this many cases
    };
    for (const promise &at : {promise{16, 8, 200}, promise{32, 8, 100}, promise{64, 8, 56},
                              promise{512, 8, 28}, promise{size_t{SMALL_BLOCK_MAX}, 26, 26}}) {
        std::vector<unsigned> distances(2 * CAPACITY_MAX + 1);
        std::set<unsigned> firsts;
        unsigned seen = 0;
        size_t slots = 0;
        for (int round = 0; round < 600; round++) {
            const auto order = order_of_new_slab(heap_, small_class(at.size));
            ASSERT_FALSE(order.empty());
            slots = order.size();
            firsts.insert(order[0]);
            for (size_t i = 1; i < order.size(); i++, seen++)
                distances[CAPACITY_MAX + order[i] - order[i - 1]]++;
        }
        const unsigned best = *std::max_element(distances.begin(), distances.end());
        EXPECT_LT(best, seen / (config_random_pages ? at.full : at.light)) << at.size << " bytes";
        if (config_random_pages)
            EXPECT_GT(firsts.size(), slots * 3 / 4) << at.size << " bytes";
        else
            EXPECT_GE(firsts.size(), 10u) << at.size << " bytes";
    }
}

// A slab whose slots do not fill the last group must not begin with that group: the first two slots
// would often be neighbours.
TEST_F(Harden, NoSlabBeginsWithAShortGroup)
{
    constexpr unsigned kRounds = 2000;
    for (const size_t size : {size_t{96}, size_t{480}, size_t{960}}) {
        if (!config_random_pages && size <= 512)
            continue; // light builds draw these from a few slots
        std::vector<unsigned> distances(2 * CAPACITY_MAX + 1);
        for (unsigned round = 0; round < kRounds; round++) {
            const auto order = order_of_new_slab(heap_, small_class(size));
            ASSERT_GE(order.size(), 2u);
            distances[CAPACITY_MAX + order[1] - order[0]]++;
        }
        EXPECT_LT(*std::max_element(distances.begin(), distances.end()), kRounds / 15) << size;
    }
}

class ZeroSizeBlocks : public Harden
{
  protected:
    void SetUp() override
    {
        Harden::SetUp();
        if (!config_zero_size_blocks)
            GTEST_SKIP() << "full builds only";
    }
};

TEST_F(ZeroSizeBlocks, EveryFormOfZeroBytesIsOne)
{
    std::vector<void *> blocks = {allocate(0), heap_allocate_zeroed(0)};
    for (size_t alignment = 1; alignment <= PAGE_BYTES; alignment *= 2) {
        blocks.push_back(heap_allocate_aligned(0, alignment));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % alignment, 0u);
    }
    EXPECT_EQ(std::set<void *>(blocks.begin(), blocks.end()).size(), blocks.size());
    EXPECT_EQ(heap_layer::stats().live_blocks, blocks.size());
    EXPECT_EQ(heap_layer::stats().live_bytes, 0u);
    for (void *block : blocks) {
        EXPECT_TRUE(slab_is_zero_size(span_of(block)));
        EXPECT_EQ(heap_usable_size(block), 0u);
        heap_free_sized(block, 0, 16);
    }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

TEST_F(ZeroSizeBlocks, AreNotHandedOutTwice)
{
    std::set<void *> blocks;
    for (int i = 0; i < 5000; i++)
        EXPECT_TRUE(blocks.insert(allocate(0)).second);
    heap_layer::verify();
    size_t count = 0;
    for (void *block : blocks) {
        if (count++ % 2)
            free_fast(block);
        else
            in_thread([block] { free_fast(block); });
    }
    heap_trim(heap_);
    heap_layer::verify();
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    EXPECT_EQ(heap_layer::stats().slab_bytes, 0u);
}

// A single block of 0 bytes that is made and freed repeatedly must not need a mapping each time.
TEST_F(ZeroSizeBlocks, TheLastSlabIsKept)
{
    void *block = allocate(0);
    struct span *slab = span_of(block);
    free_fast(block);
    quarantine_flush(heap_);
    block = allocate(0);
    EXPECT_EQ(span_of(block), slab);
    free_fast(block);
}

TEST_F(ZeroSizeBlocks, Resize)
{
    void *block = heap_resize(allocate(0), 100);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(heap_usable_size(block), 100u);
    free_fast(block);
    block = heap_resize(allocate(0), 100 * kKiB);
    ASSERT_NE(block, nullptr);
    free_fast(block);
}

TEST_F(ZeroSizeBlocks, ServedOtherwiseWhenThereAreTooMany)
{
    std::vector<void *> blocks;
    while (blocks.empty() || slab_is_zero_size(span_of(blocks.back()))) {
        blocks.push_back(allocate(0));
        ASSERT_NE(blocks.back(), nullptr);
        ASSERT_LE(blocks.size(), 1000000u);
    }
    EXPECT_GE(blocks.size(), 200000u);
    EXPECT_EQ(heap_usable_size(blocks.back()), 0u);
    heap_free_sized(blocks.back(), 0, 1);
    blocks.pop_back();
    for (void *block : blocks)
        free_fast(block);
    heap_trim(heap_);
    EXPECT_TRUE(slab_is_zero_size(span_of(blocks[0] = allocate(0))));
    free_fast(blocks[0]);
    heap_layer::verify();
}

TEST_F(ZeroSizeBlocks, GuardsLeaveThemAlone)
{
    heap_divert_class(heap_, 0);
    heap_divert_none(heap_);
    void *block = allocate(0);
    EXPECT_TRUE(slab_is_zero_size(span_of(block)));
    free_fast(block);
}

// The fast paths of hardened builds: blocks are zero when freed, and when handed out.

using heap_layer::allocate;
using heap_layer::kKiB;

class HardenFast : public heap_layer::HardenedHeap
{
};

using HardenFastDeathTest = HardenFast;

TEST_F(HardenFastDeathTest, AWriteAfterFreeIsSeenAtReuse)
{
    if (!config_zero_freed)
        GTEST_SKIP() << "full builds only";
    for (size_t size : {size_t{8}, size_t{40}, size_t{1000}, 9 * kKiB}) {
        for (size_t at : {size_t{0}, size / 2, size - 1}) {
            const auto write_after_free = [&] {
                volatile char *block = static_cast<char *>(allocate(size));
                char *pointer = const_cast<char *>(block);
                free_fast(pointer);
                block[at] = 1;
                quarantine_flush(heap_);
                for (int i = 0; i < 4000; i++)
                    (void)allocate(size);
            };
            EXPECT_EXIT(write_after_free(), testing::KilledBySignal(SIGABRT),
                        "^cairn: write after free to 0x[0-9a-f]+ \\([0-9]+-byte block\\)\n$")
                << size << " at " << at;
        }
    }
}

TEST_F(HardenFastDeathTest, ASizedFreeNamesTheExactSize)
{
    for (size_t size : {size_t{1}, size_t{40}, size_t{1000}, 9 * kKiB}) {
        void *block = allocate(size);
        for (size_t wrong : {size - 1, size + 1}) {
            EXPECT_EXIT(heap_free_sized(block, wrong, 1), testing::KilledBySignal(SIGABRT),
                        "^cairn: sized free of 0x[0-9a-f]+ with size " + std::to_string(wrong) +
                            " \\([0-9]+-byte block\\)\n$");
        }
        const auto twice = [&] {
            heap_free_sized(block, size, 1);
            heap_free_sized(block, size, 1);
        };
        EXPECT_EXIT(twice(), testing::KilledBySignal(SIGABRT), "^cairn: double free of ");
        heap_free_sized(block, size, 1);
    }
    heap_layer::verify();
}

TEST_F(HardenFast, BlocksAreZeroWhenTheyAreHandedOut)
{
    if (!config_zero_freed)
        GTEST_SKIP() << "full builds only";
    for (int i = 0; i < 20000; i++) {
        const size_t size = static_cast<size_t>(1 + i * 37 % 3000);
        char *block = static_cast<char *>(allocate(size));
        for (size_t at = 0; at < size; at++)
            ASSERT_EQ(block[at], 0);
        memset(block, 0xee, size);
        free_fast(block);
    }
}

long page_faults()
{
    struct rusage usage;
    EXPECT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

// A page that is read before it is written has two faults; the first access must be a write.
TEST_F(HardenFast, AFreshPageOfAMediumBlockFaultsOnce)
{
#ifndef __x86_64__
    GTEST_SKIP() << "other processors read a word first";
#endif
    if (!config_zero_freed || config_tsan || os_page_size() != PAGE_BYTES)
        GTEST_SKIP() << "full builds only, and the page size must be that of the heap";
    constexpr size_t kBytes = 24 * kKiB;
    constexpr size_t kBlocks = 200;
    for (int i = 0; i < 8; i++)
        (void)allocate(kBytes);
    const long before = page_faults();
    for (size_t i = 0; i < kBlocks; i++)
        memset(allocate(kBytes), 1, kBytes);
    const auto pages = static_cast<long>(kBlocks * kBytes / PAGE_BYTES);
    EXPECT_LE(page_faults() - before, pages + pages / 4);
}

// Canaries: every byte next to a block's end.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::span_of;

class Canary : public heap_layer::HardenedHeap
{
};

using CanaryDeathTest = Canary;

// Any value that is written next to a block's end is found, for any size: also the zero byte of a
// string.
// Light builds: what a dangling pointer to an object reads first is no address.
TEST_F(CanaryDeathTest, ACallThroughAFreedObjectFaults)
{
    if (config_zero_freed)
        GTEST_SKIP() << "this build zeroes freed blocks";
    for (size_t size : {16, 48, 200, 1000, 20000}) {
        auto **object = static_cast<void (**)()>(allocate(size));
        *object = [] {};
        free_fast(object);
        uint64_t word;
        memcpy(&word, object, sizeof word);
        EXPECT_EQ(word, FREED_WORD) << size;
        EXPECT_DEATH((*object)(), "") << size;
    }
}

TEST_F(CanaryDeathTest, OneByteTooFar)
{
    for (size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{24}, size_t{40},
                        size_t{41}, size_t{1000}, size_t{3001}, MEDIUM_REQUEST_MAX + size_t{0}}) {
        if (config_zero_size_blocks && size == 0)
            continue;
        char *block = static_cast<char *>(allocate(size));
        const std::string message = "^cairn: overflow of 0x[0-9a-f]+ \\(" +
                                    std::to_string(span_of(block)->size_bytes) +
                                    "-byte block\\)\n$";
        const auto overflow = [&](char value) {
            block[size] = block[size] == value ? static_cast<char>(value + 1) : value;
            free_fast(block);
        };
        EXPECT_EXIT(overflow(0), testing::KilledBySignal(SIGABRT), message) << size;
        EXPECT_EXIT(overflow(65), testing::KilledBySignal(SIGABRT), message) << size;
        const auto elsewhere = [&] {
            block[size]++;
            in_thread([&] { free_fast(block); });
        };
        EXPECT_EXIT(elsewhere(), testing::KilledBySignal(SIGABRT), message) << size;
        const auto resized = [&] {
            block[size]++;
            (void)heap_resize(block, size + 1);
        };
        EXPECT_EXIT(resized(), testing::KilledBySignal(SIGABRT), message) << size;
        const auto asked = [&] {
            block[size]++;
            (void)heap_usable_size(block);
        };
        EXPECT_EXIT(asked(), testing::KilledBySignal(SIGABRT), message) << size;
        const auto sized = [&] {
            block[size]++;
            heap_free_sized(block, size, 1);
        };
        EXPECT_EXIT(sized(), testing::KilledBySignal(SIGABRT), message) << size;
        const auto far = [&] {
            block[span_of(block)->size_bytes - 1]++;
            heap_free_sized(block, size, 1);
        };
        EXPECT_EXIT(far(), testing::KilledBySignal(SIGABRT), message) << size;
        free_fast(block);
    }
}

TEST_F(CanaryDeathTest, ADoubleFreeIsNotTakenForAnOverflow)
{
    char *block = static_cast<char *>(allocate(40));
    const auto twice = [&] {
        free_fast(block);
        free_fast(block);
    };
    EXPECT_EXIT(twice(), testing::KilledBySignal(SIGABRT), "^cairn: double free of ");
    free_fast(block);
}

// Freed blocks that wait in quarantine.

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::span_of;

class Quarantine : public heap_layer::HardenedHeap
{
};

TEST_F(Quarantine, AFreedBlockIsZeroAndWaits)
{
    if (!config_quarantine)
        GTEST_SKIP() << "full builds only";
    for (size_t size : {size_t{40}, size_t{1000}, 9 * kKiB}) {
        char *block = static_cast<char *>(allocate(size));
        struct span *slab = span_of(block);
        memset(block, 1, size);
        free_fast(block);
        const unsigned slot = static_cast<unsigned>(slab_slot(slab, block));
        EXPECT_EQ(*slab_link(slab, slot), LINK_QUARANTINED);
        EXPECT_EQ(slab_live(slab) + 1, slab_used(slab));
        for (size_t i = 0; i < slab->size_bytes; i++)
            ASSERT_EQ(block[i], 0) << i;
        quarantine_flush(heap_);
        EXPECT_NE(*slab_link(slab, slot), LINK_QUARANTINED);
        heap_layer::verify();
    }
}

TEST_F(Quarantine, QuarantineIsBoundedAndRandom)
{
    if (!config_quarantine)
        GTEST_SKIP() << "full builds only";
    quarantine_flush(heap_);
    std::set<size_t> delays;
    for (int round = 0; round < 50; round++) {
        void *block = allocate(64);
        struct span *slab = span_of(block);
        const unsigned slot = static_cast<unsigned>(slab_slot(slab, block));
        void *keeper = allocate(64); // keeps its slab in use
        free_fast(block);
        size_t frees = 0;
        for (; *slab_link(slab, slot) == LINK_QUARANTINED && frees < 20000; frees++)
            free_fast(allocate(300));
        EXPECT_LT(frees, 20000u);
        delays.insert(frees);
        free_fast(keeper);
    }
    EXPECT_GT(delays.size(), 30u);
    quarantine_flush(heap_);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

TEST_F(Quarantine, BlocksOfOtherThreadsWaitToo)
{
    if (!config_quarantine)
        GTEST_SKIP() << "full builds only";
    void *block = allocate(64);
    struct span *slab = span_of(block);
    in_thread([&] { free_fast(block); });
    heap_drain(heap_);
    EXPECT_EQ(*slab_link(slab, static_cast<unsigned>(slab_slot(slab, block))), LINK_QUARANTINED);
    quarantine_flush(heap_);
    heap_layer::verify();
}

} // namespace harden_test
