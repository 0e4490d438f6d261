// Random operations on a TLSF heap against a shadow that knows every block's address, size and
// content; the heap's own verifier checks along the way.

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "region/tlsf_arena.h"

namespace tlsf_model_test
{

using tlsf_test::Arena;
using tlsf_test::fault;
using tlsf_test::kKiB;
using tlsf_test::Random;
using tlsf_test::stats;

class Model
{
  public:
    Model(cairn_tlsf *heap, uint64_t seed, size_t size_most)
        : heap_(heap), random_(seed), size_most_(size_most)
    {
    }

    void step()
    {
        const size_t kind = random_.below(10);
        const bool flood = steps_++ / 1000 % 2 == 0; // the number of blocks rises and falls
        if (kind < (flood ? 6 : 2))
            allocate();
        else if (kind < 8)
            release();
        else if (kind == 8)
            reallocate();
        else
            resize();
    }

    void release_all()
    {
        while (!blocks_.empty())
            release();
    }

    // Compares the heap's walk over its blocks with the shadow.
    void compare()
    {
        ASSERT_EQ(fault(heap_), "");
        seen_.clear();
        cairn_tlsf_walk(heap_, visit, this);
        ASSERT_EQ(seen_.size(), blocks_.size());
        for (const auto &entry : blocks_) {
            ASSERT_EQ(seen_.count(entry.first), 1u);
            ASSERT_GE(seen_[entry.first], entry.second.size);
            check_content(entry.first, entry.second);
        }
        ASSERT_EQ(stats(heap_).used_blocks, blocks_.size());
    }

    size_t failures() const { return failures_; }

  private:
    struct Block {
        size_t size;
        uint8_t seed;
    };

    static bool visit(void *pointer, size_t size, bool used, void *context)
    {
        if (used)
            static_cast<Model *>(context)->seen_[static_cast<char *>(pointer)] = size;
        return true;
    }

    size_t random_size()
    {
        const size_t most = random_.below(20) == 0 ? size_most_ * 8 : size_most_;
        return random_.below(random_.between(1, most));
    }

    std::map<char *, Block>::iterator pick()
    {
        auto at = blocks_.lower_bound(low_ + random_.below(static_cast<size_t>(high_ - low_) + 1));
        return at == blocks_.end() ? blocks_.begin() : at;
    }

    void enter(void *pointer, size_t size)
    {
        char *start = static_cast<char *>(pointer);
        auto after = blocks_.lower_bound(start);
        if (after != blocks_.end()) {
            ASSERT_LE(start + size, after->first);
        }
        if (after != blocks_.begin()) {
            auto before = std::prev(after);
            ASSERT_LE(before->first + before->second.size, start);
        }
        const Block block = {size, static_cast<uint8_t>(random_.next())};
        for (size_t i = 0; i < size; i++)
            start[i] = static_cast<char>(block.seed + i * 13);
        blocks_[start] = block;
        low_ = low_ && low_ < start ? low_ : start;
        high_ = high_ > start ? high_ : start;
    }

    void check_content(const char *start, const Block &block, size_t most = SIZE_MAX)
    {
        for (size_t i = 0; i < block.size && i < most; i++)
            ASSERT_EQ(start[i], static_cast<char>(block.seed + i * 13)) << "byte " << i;
    }

    void allocate()
    {
        const size_t size = random_size();
        const bool aligned = random_.below(8) == 0;
        const size_t align = aligned ? size_t{1} << random_.below(13) : 16;
        void *pointer =
            aligned ? cairn_tlsf_alloc_aligned(heap_, size, align) : cairn_tlsf_alloc(heap_, size);
        if (!pointer) {
            failures_++;
            const size_t largest = stats(heap_).largest_request_bytes;
            ASSERT_TRUE(aligned || largest < size || largest == 0) << size << " of " << largest;
            return;
        }
        ASSERT_EQ(reinterpret_cast<uintptr_t>(pointer) % align, 0u);
        enter(pointer, size);
    }

    void release()
    {
        if (blocks_.empty())
            return;
        auto at = pick();
        check_content(at->first, at->second);
        cairn_tlsf_free(heap_, at->first);
        blocks_.erase(at);
    }

    void reallocate()
    {
        if (blocks_.empty())
            return;
        auto at = pick();
        const Block old = at->second;
        const size_t size = random_size() + 1;
        char *moved = static_cast<char *>(cairn_tlsf_realloc(heap_, at->first, size));
        if (!moved) {
            failures_++;
            check_content(at->first, old);
            return;
        }
        check_content(moved, old, size);
        blocks_.erase(at);
        enter(moved, size);
    }

    void resize()
    {
        if (blocks_.empty())
            return;
        auto at = pick();
        const Block old = at->second;
        char *start = at->first;
        const size_t size = random_size();
        void *resized = cairn_tlsf_resize(heap_, start, size);
        ASSERT_TRUE(resized == start || resized == nullptr);
        ASSERT_TRUE(resized || size > old.size);
        check_content(start, old, resized ? size : SIZE_MAX);
        if (resized) {
            blocks_.erase(at);
            enter(start, size);
        }
    }

    cairn_tlsf *heap_;
    Random random_;
    size_t size_most_;
    std::map<char *, Block> blocks_;
    std::map<char *, size_t> seen_;
    char *low_ = nullptr;
    char *high_ = nullptr;
    size_t failures_ = 0;
    size_t steps_ = 0;
};

class TlsfModel : public testing::TestWithParam<uint64_t>
{
};

INSTANTIATE_TEST_SUITE_P(Seeds, TlsfModel, testing::Range<uint64_t>(1, 9));

void run(cairn_tlsf *heap, uint64_t seed, size_t size_most, bool must_fail)
{
    Model model(heap, seed, size_most);
    for (int step = 0; step < 30000; step++) {
        model.step();
        if (step % 500 == 0)
            model.compare();
        if (testing::Test::HasFatalFailure())
            return;
    }
    model.compare();
    EXPECT_EQ(model.failures() > 0, must_fail);
    model.release_all();
    EXPECT_EQ(fault(heap), "");
    EXPECT_EQ(stats(heap).free_bytes, stats(heap).total_bytes);
}

TEST_P(TlsfModel, SmallBlocksWithRoom) { run(Arena(512 * kKiB), GetParam(), 100, false); }

TEST_P(TlsfModel, MixedBlocksOnTheEdgeOfExhaustion)
{
    run(Arena(64 * kKiB), GetParam(), 2000, true);
}

TEST_P(TlsfModel, SeveralRegions)
{
    Arena heap(64 * kKiB, 8);
    // One region is below the heap and one above it in some order, with any alignment.
    std::vector<char> regions[] = {std::vector<char>(50001), std::vector<char>(60000)};
    for (auto &region : regions)
        ASSERT_EQ(cairn_tlsf_add(heap, region.data() + GetParam(), region.size() - GetParam()), 0);
    run(heap, GetParam(), 2000, true);
    for (auto &region : regions)
        EXPECT_EQ(cairn_tlsf_remove(heap, region.data() + GetParam()), 0);
    EXPECT_EQ(fault(heap), "");
}

// Random operations on a heap that is moved to another address after a few operations: nothing in
// it is an absolute address.
TEST_P(TlsfModel, AMovedHeapGoesOn)
{
    const size_t size = 64 * kKiB;
    Random random(GetParam());
    std::vector<char *> homes;
    for (int i = 0; i < 3; i++)
        homes.push_back(static_cast<char *>(std::aligned_alloc(4096, size)));
    char *home = homes[0];
    ASSERT_EQ(reinterpret_cast<char *>(cairn_tlsf_init(home, size)), home);
    std::vector<size_t> places;
    for (int step = 0; step < 5000; step++) {
        auto *heap = reinterpret_cast<cairn_tlsf *>(home);
        if (random.below(2)) {
            char *block = static_cast<char *>(cairn_tlsf_alloc(heap, random.below(1000)));
            if (block)
                places.push_back(static_cast<size_t>(block - home));
        } else if (!places.empty()) {
            std::swap(places[random.below(places.size())], places.back());
            cairn_tlsf_free(heap, home + places.back());
            places.pop_back();
        }
        if (step % 20 == 0) {
            char *next = homes[random.below(homes.size())];
            memmove(next, home, size);
            if (next != home)
                memset(home, 0xee, size);
            home = next;
            ASSERT_EQ(fault(reinterpret_cast<cairn_tlsf *>(home)), "");
        }
    }
    for (char *memory : homes)
        std::free(memory);
}

} // namespace tlsf_model_test
