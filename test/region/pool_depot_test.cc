// Slabs of a pool are made, emptied, kept and released; several threads use one pool.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "region/pool_holder.h"
#include "region/tlsf_arena.h"

extern "C" {
#include "base/test_delay.h"
#include "region/pool_layout.h"
}

namespace pool_depot_test
{

using pool_test::fault;
using pool_test::Pool;
using pool_test::stats;
using tlsf_test::Random;

TEST(PoolDepot, EmptySlabsGoBackButForOne)
{
    Pool pool(64, 64);
    std::vector<void *> objects;
    for (int i = 0; i < 20000; i++)
        objects.push_back(cairn_pool_get(pool));
    EXPECT_GE(stats(pool).slabs, 20u);
    for (void *object : objects)
        cairn_pool_put(pool, object);
    EXPECT_LE(stats(pool).slabs, 3u); // the objects of the magazine are in one or two slabs
    EXPECT_EQ(fault(pool), "");
    const size_t slabs = stats(pool).slabs;
    EXPECT_EQ(cairn_pool_trim(pool), 65536u * slabs);
    EXPECT_EQ(stats(pool).slabs, 0u);
    EXPECT_EQ(cairn_pool_trim(pool), 0u);
}

// A put looks the slab up by its address in a small table. Two slabs in use must not share an
// entry, since alternating puts to them would all take the slow path.
TEST(PoolDepot, SlabsOfArenasNextToEachOtherHavePlacesOfTheirOwn)
{
    const uintptr_t slab_bytes = 1 << CAIRN_POOL_RECENT_SHIFT, arena_bytes = 8 << 20;
    for (uintptr_t arena : {uintptr_t{0x7f0000000000}, uintptr_t{0x555500000000} + arena_bytes}) {
        std::set<size_t> beside, far;
        for (uintptr_t slab = 0; slab < CAIRN_POOL_RECENT; slab++)
            beside.insert(cairn_pool_recent_place(arena + slab * slab_bytes));
        EXPECT_EQ(beside.size(), size_t{CAIRN_POOL_RECENT});
        for (uintptr_t number = 0; number < 4; number++)
            far.insert(cairn_pool_recent_place(arena + number * arena_bytes));
        EXPECT_EQ(far.size(), 4u);
    }
}

TEST(PoolDepot, ASurvivorKeepsItsSlabOnly)
{
    Pool pool(64, 64);
    std::vector<void *> objects;
    for (int i = 0; i < 20000; i++)
        objects.push_back(cairn_pool_get(pool));
    for (size_t i = 0; i < objects.size(); i++)
        if (i != 10000)
            cairn_pool_put(pool, objects[i]);
    cairn_pool_trim(pool);
    EXPECT_EQ(stats(pool).slabs, 1u);
    EXPECT_EQ(stats(pool).live_objects, 1u);
    EXPECT_EQ(fault(pool), "");
}

TEST(PoolDepot, MemoryComesFromThePageLayerAndGoesBack)
{
    struct page_stats before, during, after;
    pages_read_stats(&before);
    {
        Pool pool(1000, 8);
        for (int i = 0; i < 5000; i++)
            ASSERT_NE(cairn_pool_get(pool), nullptr);
        pages_read_stats(&during);
    }
    pages_read_stats(&after);
    const auto used = [](const page_stats &stats) {
        return stats.committed_bytes - stats.free_bytes;
    };
    EXPECT_GE(used(during) - used(before), 5000u * 1000);
    EXPECT_EQ(used(after), used(before));
}

// Three threads find the pool empty at once and each makes a slab, of which one is needed. The
// others are released at once, so that no trim finds slabs that were counted once and hold live
// objects.
TEST(PoolDepot, ThreadsThatGrowAtOnceLeaveOneEmptySlab)
{
    Pool pool(200000, 16, true);
    struct pool_slab *slabs[3];
    for (struct pool_slab *&slab : slabs)
        slab = pool_slab_make(pool);
    for (struct pool_slab *slab : slabs) {
        ASSERT_NE(slab, nullptr);
        pool_lock(pool);
        depot_add(pool, slab);
        pool_unlock(pool);
        EXPECT_EQ(fault(pool), "");
    }
    EXPECT_EQ(stats(pool).slabs, 1u);
    std::vector<void *> live;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 9; i++)
            live.push_back(cairn_pool_get(pool));
        cairn_pool_put(pool, live.back());
        live.pop_back();
        cairn_pool_trim(pool);
        EXPECT_EQ(fault(pool), "");
        EXPECT_EQ(stats(pool).live_objects, live.size());
    }
    for (void *object : live)
        cairn_pool_put(pool, object);
    cairn_pool_trim(pool);
    EXPECT_EQ(stats(pool).slabs, 0u);
}

// Threads that empty the pool together by chance, while one of them trims it.
TEST(PoolDepot, ThreadsGrowAndTrimAtOnce)
{
    constexpr int kThreads = 6;
    constexpr int kRounds = 150;
    if constexpr (config_test_delays)
        test_delay_seed = 19;
    Pool pool(20000, 16, true);
    std::atomic<int> faults{0};
    std::vector<std::thread> threads;
    for (int self = 1; self <= kThreads; self++)
        threads.emplace_back([&, self] {
            void *objects[40];
            for (int round = 0; round < kRounds; round++) {
                for (void *&object : objects) {
                    object = cairn_pool_get(pool);
                    *static_cast<int *>(object) = self;
                }
                if (self == 1)
                    cairn_pool_trim(pool);
                for (void *object : objects) {
                    faults += *static_cast<int *>(object) != self;
                    cairn_pool_put(pool, object);
                }
                if (self == 2)
                    faults += cairn_pool_check(pool) != nullptr;
            }
        });
    for (auto &thread : threads)
        thread.join();
    if constexpr (config_test_delays)
        test_delay_seed = 0;
    EXPECT_EQ(faults, 0);
    EXPECT_EQ(fault(pool), "");
    EXPECT_EQ(stats(pool).live_objects, 0u);
    cairn_pool_trim(pool);
    EXPECT_EQ(stats(pool).slabs, 0u);
}

// Each thread gets objects, marks them, and hands half of them to the next thread, which puts them.
void relay(bool attached)
{
    constexpr int kThreads = 8;
    constexpr int kRounds = 200;
    constexpr size_t kBatch = 100;
    Pool pool(40, 8, true);
    std::atomic<std::vector<void *> *> boxes[kThreads] = {};
    std::vector<std::thread> threads;
    std::atomic<int> faults{0};
    for (int self = 0; self < kThreads; self++)
        threads.emplace_back([&, self] {
            auto *magazine = attached ? cairn_pool_attach(pool)
                                      : reinterpret_cast<cairn_pool_magazine *>(pool.get());
            for (int round = 0; round < kRounds; round++) {
                auto *batch = new std::vector<void *>;
                for (size_t i = 0; i < kBatch; i++) {
                    void *object = cairn_pool_magazine_get(magazine);
                    memset(object, self, 40);
                    batch->push_back(object);
                }
                for (void *object : *batch)
                    for (int i = 0; i < 40; i++)
                        faults += static_cast<char *>(object)[i] != self;
                batch = boxes[(self + 1) % kThreads].exchange(batch, std::memory_order_acq_rel);
                if (batch)
                    for (void *object : *batch)
                        cairn_pool_magazine_put(magazine, object);
                delete batch;
            }
            if (attached)
                cairn_pool_detach(magazine);
        });
    for (auto &thread : threads)
        thread.join();
    EXPECT_EQ(faults, 0);
    for (auto &box : boxes) {
        for (void *object : *box.load())
            cairn_pool_put(pool, object);
        delete box.load();
    }
    EXPECT_EQ(fault(pool), "");
    EXPECT_EQ(stats(pool).live_objects, 0u);
}

TEST(PoolDepot, ThreadsShareAPoolThroughItsLock) { relay(false); }
TEST(PoolDepot, ThreadsShareAPoolThroughTheirMagazines) { relay(true); }

// A child that is forked during gets and puts has a consistent pool and a free lock.
TEST(PoolDepot, ForkAmidTheStorm)
{
    Pool pool(3000, 8, true);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            Random random(i);
            std::vector<void *> objects(300);
            while (!stop) {
                void *&object = objects[random.below(objects.size())];
                if (object)
                    cairn_pool_put(pool, object);
                object = object ? nullptr : cairn_pool_get(pool);
            }
            for (void *object : objects)
                cairn_pool_put(pool, object);
        });
    for (int i = 0; i < 30; i++) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(100);
            if (cairn_pool_check(pool) != nullptr)
                _exit(2);
            void *objects[500]; // no vector: AddressSanitizer's malloc does not survive fork here
            for (void *&object : objects)
                object = cairn_pool_get(pool);
            for (void *object : objects)
                cairn_pool_put(pool, object);
            const size_t slabs = stats(pool).slabs;
            cairn_pool_trim(pool);
            _exit(stats(pool).slabs > slabs);
        }
        int status;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0) << "child " << i;
    }
    stop = true;
    for (auto &thread : threads)
        thread.join();
    EXPECT_EQ(fault(pool), "");
    EXPECT_EQ(stats(pool).live_objects, 0u);
}

TEST(PoolDepot, TheMagazineThatAThreadLeftIsDetachedByAnother)
{
    Pool pool(40, 8, true);
    cairn_pool_magazine *left;
    std::thread([&] {
        left = cairn_pool_attach(pool);
        cairn_pool_magazine_put(left, cairn_pool_magazine_get(left));
    }).join();
    EXPECT_EQ(fault(pool), "");
    EXPECT_GT(stats(pool).live_objects, 0u);
    cairn_pool_detach(left);
    EXPECT_EQ(stats(pool).live_objects, 0u);
}

} // namespace pool_depot_test
