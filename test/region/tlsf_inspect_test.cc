// TLSF's walk, statistics and verifier. The verifier must name every kind of damage and survive
// any.

#include <gtest/gtest.h>

#include <cstring>

#include "region/tlsf_arena.h"

extern "C" {
#include "region/tlsf.h"
}

namespace tlsf_inspect_test
{

using tlsf_test::Arena;
using tlsf_test::fault;
using tlsf_test::kKiB;
using tlsf_test::Random;
using tlsf_test::stats;

struct Seen {
    void *pointer;
    size_t size;
    bool used;
};

bool collect(void *pointer, size_t size, bool used, void *context)
{
    static_cast<std::vector<Seen> *>(context)->push_back({pointer, size, used});
    return true;
}

TEST(TlsfInspect, TheWalkShowsEveryBlockInOrder)
{
    Arena heap(64 * kKiB);
    void *first = cairn_tlsf_alloc(heap, 100);
    void *second = cairn_tlsf_alloc(heap, 200);
    void *third = cairn_tlsf_alloc(heap, 300);
    cairn_tlsf_free(heap, second);
    std::vector<Seen> seen;
    cairn_tlsf_walk(heap, collect, &seen);
    ASSERT_EQ(seen.size(), 4u);
    EXPECT_TRUE(seen[0].pointer == first && seen[0].size == 104 && seen[0].used);
    EXPECT_TRUE(seen[1].pointer == second && seen[1].size == 200 && !seen[1].used);
    EXPECT_TRUE(seen[2].pointer == third && seen[2].size == 312 && seen[2].used);
    EXPECT_FALSE(seen[3].used);
    EXPECT_EQ(seen[3].size + 8 + 112 + 208 + 320, stats(heap).total_bytes);
}

TEST(TlsfInspect, TheWalkStopsWhenTold)
{
    Arena heap(64 * kKiB);
    for (int i = 0; i < 5; i++)
        ASSERT_NE(cairn_tlsf_alloc(heap, 100), nullptr);
    int calls = 0;
    const auto twice = [](void *, size_t, bool, void *context) {
        return ++*static_cast<int *>(context) < 2;
    };
    cairn_tlsf_walk(heap, twice, &calls);
    EXPECT_EQ(calls, 2);
}

TEST(TlsfInspect, TheVisitorMayFreeWhatItIsShown)
{
    Arena heap(64 * kKiB);
    std::vector<void *> blocks;
    for (int i = 0; i < 50; i++)
        blocks.push_back(cairn_tlsf_alloc(heap, 100));
    for (int i = 0; i < 50; i += 3)
        cairn_tlsf_free(heap, blocks[static_cast<size_t>(i)]);
    const auto free_it = [](void *pointer, size_t, bool used, void *context) {
        if (used)
            cairn_tlsf_free(static_cast<cairn_tlsf *>(context), pointer);
        return true;
    };
    cairn_tlsf_walk(heap, free_it, heap.get());
    EXPECT_EQ(stats(heap).used_blocks, 0u);
    EXPECT_EQ(fault(heap), "");
}

TEST(TlsfInspect, Statistics)
{
    Arena heap(64 * kKiB);
    const size_t total = stats(heap).total_bytes;
    void *block = cairn_tlsf_alloc(heap, 1000);
    EXPECT_EQ(stats(heap).used_bytes, 1008u);
    EXPECT_EQ(stats(heap).used_blocks, 1u);
    cairn_tlsf_free(heap, block);
    EXPECT_EQ(stats(heap).used_bytes, 0u);
    EXPECT_EQ(stats(heap).least_free_bytes, total - 1008);
    EXPECT_EQ(stats(heap).largest_request_bytes, total - 8);
    EXPECT_EQ(stats(heap).regions, 1u);
}

// A request of the reported largest size succeeds, and a larger one fails.
TEST(TlsfInspect, TheLargestRequestIsExact)
{
    Random random(7);
    for (int round = 0; round < 200; round++) {
        Arena heap(64 * kKiB);
        std::vector<void *> blocks;
        while (void *block = cairn_tlsf_alloc(heap, random.below(3000)))
            blocks.push_back(block);
        for (void *block : blocks)
            if (random.below(2))
                cairn_tlsf_free(heap, block);
        const size_t largest = stats(heap).largest_request_bytes;
        ASSERT_EQ(cairn_tlsf_alloc(heap, largest + 1), nullptr);
        ASSERT_NE(cairn_tlsf_alloc(heap, largest), nullptr);
    }
}

// A heap with blocks of all kinds, and ways to damage it.
class TlsfDamage : public testing::Test
{
  protected:
    TlsfDamage() : heap_(64 * kKiB)
    {
        for (char *&block : blocks_)
            block = static_cast<char *>(cairn_tlsf_alloc(heap_, 40));
        cairn_tlsf_free(heap_, blocks_[1]);
        cairn_tlsf_free(heap_, blocks_[3]);
        cairn_tlsf_free(heap_, blocks_[5]);
    }

    block *header(int i) { return reinterpret_cast<block *>(blocks_[i] - 8); }
    struct cairn_tlsf *raw() { return heap_.get(); }

    Arena heap_;
    char *blocks_[7];
};

TEST_F(TlsfDamage, IsNamed)
{
    EXPECT_EQ(fault(heap_), "");
    const auto damaged = [&](auto change) {
        std::vector<char> before(heap_.memory(), heap_.memory() + 64 * kKiB);
        change();
        std::string text = fault(heap_);
        memcpy(heap_.memory(), before.data(), before.size());
        EXPECT_EQ(fault(heap_), "");
        return text;
    };
    const unsigned list = tlsf_class_of(48);
    EXPECT_EQ(damaged([&] { raw()->magic++; }), "there is no heap");
    EXPECT_EQ(damaged([&] { header(2)->word ^= 1; }), "the tag of a block is wrong");
    EXPECT_EQ(damaged([&] { header(0)->word += uint64_t{1} << 60; }),
              "the size of a block is wrong");
    EXPECT_EQ(damaged([&] { header(0)->word ^= BLOCK_PREVIOUS_FREE; }),
              "a block is wrong about the one in front of it");
    EXPECT_EQ(damaged([&] { header(2)->word |= BLOCK_FREE; }), "two free blocks are neighbours");
    EXPECT_EQ(damaged([&] { blocks_[1][32]++; }),
              "the boundary tag of a free block is not its size");
    EXPECT_EQ(damaged([&] { header(1)->prev++; }), "a free block is not in its list");
    EXPECT_EQ(damaged([&] { header(1)->next = header(3)->prev; }), "a list does not lead back");
    EXPECT_EQ(damaged([&] { header(1)->next = place_of(heap_, header(0)); }),
              "a list holds what does not belong there");
    EXPECT_EQ(damaged([&] { header(1)->next = place_of(heap_, header(3)); }),
              "a list does not lead back");
    EXPECT_EQ(damaged([&] { raw()->head[list] = 0; }), "a free block is not in its list");
    EXPECT_EQ(damaged([&] { raw()->head[list + 1] = raw()->head[list]; }), "a bitmap is wrong");
    EXPECT_EQ(damaged([&] { raw()->second[0] = 0; }), "a bitmap is wrong");
    EXPECT_EQ(damaged([&] { raw()->first ^= uint64_t{1} << 40; }), "a bitmap is wrong");
    EXPECT_EQ(damaged([&] { raw()->free_bytes += 16; }), "the free bytes are not those counted");
    EXPECT_EQ(damaged([&] { raw()->used_blocks++; }), "the blocks in use are not those counted");
    EXPECT_EQ(damaged([&] { raw()->total_bytes++; }), "the regions are not those counted");
    EXPECT_EQ(damaged([&] { raw()->region_count = 0; }), "the list of regions is broken");
    EXPECT_EQ(damaged([&] { region_at(heap_, raw()->regions)->size_bytes += 16; }),
              "the list of regions is broken");
    EXPECT_EQ(damaged([&] { region_at(heap_, raw()->regions)->size_bytes -= 16; }),
              "the size of a block is wrong");
}

// After arbitrary damage the verifier must return, with any verdict.
TEST_F(TlsfDamage, AnyDamageIsSurvived)
{
    Random random(11);
    const std::vector<char> before(heap_.memory(), heap_.memory() + 64 * kKiB);
    for (int round = 0; round < 20000; round++) {
        const size_t places = 1 + random.below(4);
        for (size_t i = 0; i < places; i++) {
            const size_t at = random.below(4 * kKiB) & ~size_t{7};
            uint64_t value = random.next();
            if (random.below(2)) // a value that occurs in sound heaps
                memcpy(&value, &before[random.below(4 * kKiB) & ~size_t{7}], 8);
            memcpy(heap_.memory() + at, &value, 8);
        }
        (void)fault(heap_);
        memcpy(heap_.memory(), before.data(), before.size());
    }
    EXPECT_EQ(fault(heap_), "");
}

} // namespace tlsf_inspect_test
