// Private heaps against a shadow model: several heaps with limits, random calls by several threads
// that free each other's blocks, and heaps that are deleted with blocks in use while the others
// continue.

#include <cairn/private_heap.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "model/shadow.h"

extern "C" {
#include "heap/heap.h"
}

namespace tenants_test
{

using model::kKiB;
using model::kMiB;
using model::Random;

struct Block {
    char *address;
    size_t size;
    uint64_t seed;
};

// The blocks of one heap that a thread holds.
class Holding
{
  public:
    void check_one(Random &random)
    {
        if (!blocks_.empty())
            check(blocks_[random.below(blocks_.size())]);
    }
    void add(Random &random, char *address, size_t size)
    {
        const Block block = {address, size, random.next()};
        model::fill(address, size, block.seed);
        blocks_.push_back(block);
    }
    Block take(Random &random)
    {
        std::swap(blocks_[random.below(blocks_.size())], blocks_.back());
        const Block block = blocks_.back();
        blocks_.pop_back();
        check(block);
        return block;
    }
    bool empty() const { return blocks_.empty(); }
    size_t count() const { return blocks_.size(); }
    void adopt(Holding &other)
    {
        blocks_.insert(blocks_.end(), other.blocks_.begin(), other.blocks_.end());
        other.blocks_.clear();
    }
    void forget() // after their heap was deleted
    {
        for (const Block &block : blocks_)
            check(block);
        blocks_.clear();
    }

  private:
    static void check(const Block &block)
    {
        if (model::first_wrong(block.address, block.size, block.seed, true) != block.size)
            abort();
    }
    std::vector<Block> blocks_;
};

size_t random_size(Random &random)
{
    switch (random.below(40)) {
    case 0:
        return random.below(200 * kKiB);
    case 1:
        return 33 * kKiB + random.below(8 * kKiB);
    case 2:
    case 3:
        return random.below(32 * kKiB);
    default:
        return random.below(600);
    }
}

struct Tenant {
    cairn_private_heap *heap = nullptr;
    std::vector<Holding> held; // one for each thread
};

void step(Tenant &tenant, Holding &mine, Random &random)
{
    const size_t size = random_size(random);
    const size_t choice = random.below(10);
    mine.check_one(random);
    if (choice < 5) {
        const size_t align = random.one_in(8) ? size_t{16} << random.below(9) : 1;
        char *block =
            static_cast<char *>(cairn_private_heap_alloc_aligned(tenant.heap, size, align));
        if (block != nullptr)
            mine.add(random, block, size);
    } else if (choice < 6 && !mine.empty()) {
        const Block block = mine.take(random);
        char *moved =
            static_cast<char *>(cairn_private_heap_realloc(tenant.heap, block.address, size));
        const size_t kept = std::min(size, block.size);
        if (moved != nullptr &&
            model::first_wrong(moved, kept, block.seed, kept == block.size) != kept)
            abort();
        mine.add(random, moved ? moved : block.address, moved ? size : block.size);
    } else if (!mine.empty()) {
        const Block block = mine.take(random);
        if (random.one_in(2))
            cairn_free(block.address);
        else
            cairn_private_heap_free(tenant.heap, block.address);
    }
}

constexpr size_t kTenants = 5, kThreads = 4;
constexpr size_t kRounds = config_tsan ? 6 : 25, kSteps = config_tsan ? 600 : 2500;

// The threads pause after every round: their blocks are compared with the heaps' own numbers,
// blocks change threads, and some heaps are deleted with blocks in use.
TEST(Tenants, EndAsTheyAreWhileOthersGoOn)
{
    Random random(20);
    Tenant tenants[kTenants];
    struct heap_stats before;
    heap_read_stats(&before);
    for (size_t round = 0; round < kRounds; round++) {
        for (Tenant &tenant : tenants) {
            if (tenant.heap != nullptr)
                continue;
            const cairn_private_heap_options options = {
                random.one_in(2) ? 0 : kMiB + random.below(8 * kMiB), nullptr, nullptr};
            tenant.heap = cairn_private_heap_new(&options);
            ASSERT_NE(tenant.heap, nullptr);
            tenant.held.resize(kThreads);
        }
        std::vector<std::thread> threads;
        for (size_t t = 0; t < kThreads; t++)
            threads.emplace_back([&tenants, t, seed = random.next()] {
                Random own(seed);
                for (size_t i = 0; i < kSteps; i++) {
                    Tenant &tenant = tenants[own.below(kTenants)];
                    step(tenant, tenant.held[t], own);
                }
            });
        for (auto &thread : threads)
            thread.join();
        for (Tenant &tenant : tenants) {
            size_t held = 0;
            for (const Holding &holding : tenant.held)
                held += holding.count();
            cairn_private_heap_stats stats;
            cairn_private_heap_read_stats(tenant.heap, &stats);
            ASSERT_EQ(stats.live_blocks, held);
            ASSERT_GE(stats.held_bytes, stats.live_bytes);
            ASSERT_LE(stats.held_bytes, stats.peak_bytes);
            ASSERT_TRUE(stats.limit_bytes == 0 || stats.peak_bytes <= stats.limit_bytes);
            const size_t from = random.below(kThreads);
            tenant.held[(from + 1) % kThreads].adopt(tenant.held[from]);
            if (!random.one_in(3) && round + 1 < kRounds)
                continue;
            for (Holding &holding : tenant.held)
                holding.forget();
            ASSERT_EQ(cairn_private_heap_delete(tenant.heap), 0);
            tenant.heap = nullptr;
        }
        heap_verify_all();
    }
    struct heap_stats after;
    heap_read_stats(&after);
    EXPECT_EQ(after.live_blocks, before.live_blocks);
}

} // namespace tenants_test
