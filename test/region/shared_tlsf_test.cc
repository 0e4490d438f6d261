// TLSF with its lock: concurrent threads, and fork during their work.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "region/tlsf_arena.h"

extern "C" {
}

namespace shared_tlsf_test
{

using tlsf_test::Arena;
using tlsf_test::fault;
using tlsf_test::kKiB;
using tlsf_test::kMiB;
using tlsf_test::Random;
using tlsf_test::stats;

TEST(SharedTlsf, TheLockIsABlockOfTheHeap)
{
    Arena heap(64 * kKiB);
    cairn_tlsf_shared *shared = cairn_tlsf_share(heap);
    ASSERT_NE(shared, nullptr);
    EXPECT_EQ(stats(heap).used_blocks, 1u);
    void *block = cairn_tlsf_shared_alloc(shared, 100);
    EXPECT_EQ(cairn_tlsf_shared_usable(shared, block), 104u);
    EXPECT_EQ(cairn_tlsf_shared_resize(shared, block, 200), block);
    block = cairn_tlsf_shared_realloc(shared, block, 300);
    ASSERT_NE(block, nullptr);
    void *aligned = cairn_tlsf_shared_alloc_aligned(shared, 10, 256);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % 256, 0u);
    EXPECT_EQ(cairn_tlsf_shared_alloc_aligned(shared, 10, 48), nullptr);
    EXPECT_EQ(errno, EINVAL);
    cairn_tlsf_stats now;
    cairn_tlsf_shared_read_stats(shared, &now);
    EXPECT_EQ(now.used_blocks, 3u);
    cairn_tlsf_shared_free(shared, block);
    cairn_tlsf_shared_free(shared, aligned);
    EXPECT_EQ(cairn_tlsf_unshare(shared), heap.get());
    EXPECT_EQ(stats(heap).used_blocks, 0u);
    EXPECT_EQ(fault(heap), "");
}

TEST(SharedTlsf, HasAllThatThePlainHeapHas)
{
    Arena heap(64 * kKiB);
    std::vector<char> more(16 * kKiB);
    cairn_tlsf_shared *shared = cairn_tlsf_share(heap);
    for (int round = 0; round < 2; round++) {
        auto *zeroed = static_cast<char *>(cairn_tlsf_shared_alloc_zero(shared, 1000));
        auto *array = static_cast<char *>(cairn_tlsf_shared_alloc_array(shared, 10, 100));
        auto *zeroed_array =
            static_cast<char *>(cairn_tlsf_shared_alloc_array_zero(shared, 10, 100));
        ASSERT_TRUE(zeroed && array && zeroed_array);
        for (int i = 0; i < 1000; i++)
            ASSERT_EQ(zeroed[i] | zeroed_array[i], 0);
        for (char *block : {zeroed, array, zeroed_array}) {
            memset(block, 1, 1000);
            cairn_tlsf_shared_free(shared, block);
        }
    }
    volatile size_t many = SIZE_MAX; // volatile: compilers warn of the constant
    errno = 0;
    EXPECT_EQ(cairn_tlsf_shared_alloc_array(shared, many, 16), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(cairn_tlsf_shared_alloc_array_zero(shared, 16, many), nullptr);
    EXPECT_EQ(cairn_tlsf_shared_add(shared, more.data(), more.size()), 0);
    cairn_tlsf_stats now;
    cairn_tlsf_shared_read_stats(shared, &now);
    EXPECT_EQ(now.regions, 2u);
    EXPECT_EQ(cairn_tlsf_shared_check(shared), nullptr);
    EXPECT_EQ(cairn_tlsf_shared_remove(shared, more.data()), 0);
    EXPECT_EQ(cairn_tlsf_shared_remove(shared, more.data()), EINVAL);
    size_t used = 0;
    const auto count_used = [](void *, size_t, bool is_used, void *context) {
        *static_cast<size_t *>(context) += is_used;
        return true;
    };
    cairn_tlsf_shared_walk(shared, count_used, &used);
    EXPECT_EQ(used, 1u); // the lock
    EXPECT_EQ(cairn_tlsf_shared_usable(shared, nullptr), 0u);
    cairn_tlsf_shared_free(shared, nullptr);
    EXPECT_EQ(cairn_tlsf_unshare(nullptr), nullptr);
    cairn_tlsf_unshare(shared);
}

TEST(SharedTlsf, AHeapIsSharedOnce)
{
    Arena heap(64 * kKiB);
    cairn_tlsf_shared *shared = cairn_tlsf_share(heap);
    errno = 0;
    EXPECT_EQ(cairn_tlsf_share(heap), nullptr);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_EQ(cairn_tlsf_unshare(shared), heap.get());
    shared = cairn_tlsf_share(heap);
    EXPECT_NE(shared, nullptr);
    cairn_tlsf_unshare(shared);
}

TEST(SharedTlsf, AnyUseAfterUnshareDies)
{
    Arena heap(64 * kKiB);
    cairn_tlsf_shared *shared = cairn_tlsf_share(heap);
    void *block = cairn_tlsf_shared_alloc(shared, 100);
    cairn_tlsf_unshare(shared);
    cairn_tlsf_stats stats;
    const auto visit = [](void *, size_t, bool, void *) { return true; };
    const std::string message =
        "cairn: TLSF shared heap " + tlsf_test::hex(shared) + ": used after it was unshared\n";
#define EXPECT_ENDED(statement)                                                                    \
    EXPECT_EXIT((void)!(statement), testing::KilledBySignal(SIGABRT), testing::Eq(message))
    EXPECT_ENDED(cairn_tlsf_shared_alloc(shared, 1));
    EXPECT_ENDED(cairn_tlsf_shared_alloc_zero(shared, 1));
    EXPECT_ENDED(cairn_tlsf_shared_alloc_array(shared, 1, 1));
    EXPECT_ENDED(cairn_tlsf_shared_alloc_array_zero(shared, 1, 1));
    EXPECT_ENDED(cairn_tlsf_shared_alloc_aligned(shared, 1, 64));
    EXPECT_ENDED(cairn_tlsf_shared_realloc(shared, block, 1));
    EXPECT_ENDED(cairn_tlsf_shared_resize(shared, block, 1));
    EXPECT_ENDED((cairn_tlsf_shared_free(shared, block), 0));
    EXPECT_ENDED(cairn_tlsf_shared_usable(shared, block));
    EXPECT_ENDED(cairn_tlsf_shared_add(shared, &stats, 1));
    EXPECT_ENDED(cairn_tlsf_shared_remove(shared, &stats));
    EXPECT_ENDED((cairn_tlsf_shared_walk(shared, visit, nullptr), 0));
    EXPECT_ENDED(cairn_tlsf_shared_check(shared));
    EXPECT_ENDED((cairn_tlsf_shared_read_stats(shared, &stats), 0));
    EXPECT_ENDED(cairn_tlsf_unshare(shared));
#undef EXPECT_ENDED
}

struct Reserve {
    cairn_tlsf_shared *shared;
    void *block;
};

// The function is called without the lock: otherwise its free would wait for ever.
TEST(SharedTlsf, TheOutOfMemoryFunctionMayFree)
{
    Arena heap(64 * kKiB);
    Reserve reserve = {};
    cairn_tlsf_set_out_of_memory(
        heap,
        [](void *context, size_t) {
            auto *held = static_cast<Reserve *>(context);
            const bool had_some = held->block != nullptr;
            cairn_tlsf_shared_free(held->shared, held->block);
            held->block = nullptr;
            return had_some;
        },
        &reserve);
    reserve.shared = cairn_tlsf_share(heap);
    reserve.block = cairn_tlsf_shared_alloc(reserve.shared, 40000);
    void *block = cairn_tlsf_shared_alloc(reserve.shared, 39000);
    EXPECT_NE(block, nullptr);
    void *second = cairn_tlsf_shared_alloc(reserve.shared, 10000);
    errno = 0;
    EXPECT_EQ(cairn_tlsf_shared_realloc(reserve.shared, block, 58000), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    cairn_tlsf_shared_free(reserve.shared, block);
    cairn_tlsf_shared_free(reserve.shared, second);
    cairn_tlsf_unshare(reserve.shared);
}

TEST(SharedTlsf, AFullHeapCannotBeShared)
{
    Arena heap(64 * kKiB);
    ASSERT_NE(cairn_tlsf_alloc(heap, stats(heap).largest_request_bytes), nullptr);
    errno = 0;
    EXPECT_EQ(cairn_tlsf_share(heap), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

// Random operations on blocks in which every byte identifies the block.
void storm(cairn_tlsf_shared *shared, uint64_t seed, const std::atomic<bool> &stop, size_t steps)
{
    Random random(seed);
    struct Block {
        char *start;
        size_t size;
    };
    std::vector<Block> blocks;
    const char mark = static_cast<char>(seed);
    for (size_t step = 0; step < steps && !stop; step++) {
        if (blocks.size() < 20 && random.below(2)) {
            const size_t size = random.below(2000);
            auto *start = static_cast<char *>(cairn_tlsf_shared_alloc(shared, size));
            if (start) {
                memset(start, mark, size);
                blocks.push_back({start, size});
            }
        } else if (!blocks.empty()) {
            std::swap(blocks[random.below(blocks.size())], blocks.back());
            for (size_t i = 0; i < blocks.back().size; i++)
                if (blocks.back().start[i] != mark)
                    abort();
            cairn_tlsf_shared_free(shared, blocks.back().start);
            blocks.pop_back();
        }
    }
    for (const Block &block : blocks)
        cairn_tlsf_shared_free(shared, block.start);
}

TEST(SharedTlsf, ThreadsFarAboveTheCores)
{
    Arena heap(256 * kKiB);
    cairn_tlsf_shared *shared = cairn_tlsf_share(heap);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 16; i++)
        threads.emplace_back([&, i] { storm(shared, i + 1, stop, 4000); });
    for (auto &thread : threads)
        thread.join();
    cairn_tlsf_unshare(shared);
    EXPECT_EQ(fault(heap), "");
    EXPECT_EQ(stats(heap).used_blocks, 0u);
}

// A child that is forked during the random operations has a consistent heap and a free lock.
TEST(SharedTlsf, ForkAmidTheStorm)
{
    Arena heap(256 * kKiB);
    cairn_tlsf_shared *shared = cairn_tlsf_share(heap);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 4; i++)
        threads.emplace_back([&, i] { storm(shared, i + 1, stop, SIZE_MAX); });
    for (int i = 0; i < 100; i++) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(100);
            if (cairn_tlsf_check(heap) != nullptr)
                _exit(1);
            for (int k = 0; k < 50; k++)
                cairn_tlsf_shared_free(shared, cairn_tlsf_shared_alloc(shared, 500));
            _exit(cairn_tlsf_check(heap) == nullptr ? 0 : 2);
        }
        int status;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0) << "child " << i;
    }
    stop = true;
    for (auto &thread : threads)
        thread.join();
    cairn_tlsf_unshare(shared);
    EXPECT_EQ(fault(heap), "");
}

} // namespace shared_tlsf_test
