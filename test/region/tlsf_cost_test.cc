// The instruction bounds of cairn/tlsf.h: the worst case of each operation is stepped through
// instruction by instruction and compared with the stated number. The child builds a heap for each
// case, stops, makes the one call, and stops again; the parent steps in between.
//
// The test runs only where the library is built as it is shipped: optimised, without sanitizer or
// verifiers.

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "region/tlsf_arena.h"

extern "C" {
#include "region/tlsf.h"
}

namespace tlsf_cost_test
{

using tlsf_test::Arena;
using tlsf_test::kMiB;
using tlsf_test::Random;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr bool kShipped = false;
#else
constexpr bool kShipped = !config_debug;
#endif

constexpr int kRefused = -1;

// Counts the instructions between two SIGUSR1 that the child raises.
long steps_between_signals(pid_t child)
{
    int status;
    long steps = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        return kRefused;
    for (;; steps++) {
        if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0 ||
            waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
            return kRefused;
        if (WSTOPSIG(status) == SIGUSR1)
            return steps;
    }
}

long measure(const std::function<void()> &call)
{
    const pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
        raise(SIGUSR1);
        call();
        raise(SIGUSR1);
        _exit(0);
    }
    const long steps = steps_between_signals(child);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return steps;
}

// The instructions of `call` beyond those of an empty call. The call happens in a child, so the
// heap of this process does not change.
long count(const std::function<void()> &call)
{
    const long with = measure(call);
    const long without = measure([] {});
    return with < 0 || without < 0 ? kRefused : with - without;
}

class TlsfCost : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!kShipped)
            GTEST_SKIP() << "counted in release builds only";
        if (measure([] {}) == kRefused)
            GTEST_SKIP() << "single-stepping is refused here";
    }

    char *take(size_t size)
    {
        void *block = cairn_tlsf_alloc(heap_, size);
        EXPECT_NE(block, nullptr);
        return static_cast<char *>(block);
    }

    void fill()
    {
        while (size_t size = tlsf_test::stats(heap_).largest_request_bytes)
            take(size);
    }

    Arena heap_{8 * kMiB};
};

// The search probes TLSF_LAST_PROBES blocks of the class. The last one fits, is unlinked from the
// middle of its list and split. The rest joins a list that has blocks, or starts one.
class TlsfCostOfRest : public TlsfCost, public testing::WithParamInterface<bool>
{
};
INSTANTIATE_TEST_SUITE_P(ListHasBlocks, TlsfCostOfRest, testing::Bool());

TEST_P(TlsfCostOfRest, AllocAtItsWorst)
{
    constexpr size_t kFloor = 65536 - 8;
    std::vector<char *> small;
    for (unsigned i = 0; i < TLSF_LAST_PROBES; i++) {
        small.push_back(take(kFloor));
        take(16);
    }
    char *fitting = take(kFloor + 1024);
    take(16);
    char *rest = take(504);
    take(16);
    fill();
    if (GetParam())
        cairn_tlsf_free(heap_, rest);
    cairn_tlsf_free(heap_, small.back());
    cairn_tlsf_free(heap_, fitting);
    for (size_t i = 0; i + 1 < small.size(); i++)
        cairn_tlsf_free(heap_, small[i]);
    void *found = nullptr;
    const long cost = count([&] { found = cairn_tlsf_alloc(heap_, kFloor + 512); });
    EXPECT_EQ(cairn_tlsf_alloc(heap_, kFloor + 512), fitting);
    EXPECT_GT(cost, 100);
    EXPECT_LE(cost, CAIRN_TLSF_ALLOC_INSTRUCTIONS);
    RecordProperty("instructions", static_cast<int>(cost));
    printf("alloc at its worst: %ld instructions\n", cost);
}

// The blocks on both sides are free, each in the middle of its list; the merged block's list has
// blocks.
TEST_F(TlsfCost, FreeAtItsWorst)
{
    char *large = take(328);
    take(16);
    char *others[3];
    for (char *&other : others) {
        other = take(104);
        take(16);
    }
    char *before = take(104);
    char *block = take(104);
    char *behind = take(104);
    take(16);
    for (char *freed : {large, others[0], before, others[1], behind, others[2]})
        cairn_tlsf_free(heap_, freed);
    const long cost = count([&] { cairn_tlsf_free(heap_, block); });
    cairn_tlsf_free(heap_, block);
    EXPECT_EQ(take(328), before);
    EXPECT_GT(cost, 50);
    EXPECT_LE(cost, CAIRN_TLSF_FREE_INSTRUCTIONS);
    printf("free at its worst: %ld instructions\n", cost);
}

// The blocks on both sides are the only ones in their powers of two, so their bits are cleared; the
// merged block sets the bits of another one.
TEST_F(TlsfCost, FreeThatChangesEveryBitmap)
{
    char *before = take(600);
    char *block = take(9000);
    char *behind = take(2500);
    fill();
    cairn_tlsf_free(heap_, before);
    cairn_tlsf_free(heap_, behind);
    const long cost = count([&] { cairn_tlsf_free(heap_, block); });
    cairn_tlsf_free(heap_, block);
    EXPECT_EQ(take(12000), before);
    EXPECT_LE(cost, CAIRN_TLSF_FREE_INSTRUCTIONS);
    printf("free that changes every bitmap: %ld instructions\n", cost);
}

// The pointers are in the oldest of many regions, which is looked up last.
TEST_F(TlsfCost, EachRegionCostsWhatTheHeaderSays)
{
    constexpr long kRegions = 20;
    char *blocks[3];
    for (char *&block : blocks)
        block = take(104);
    const long with_one = count([&] { cairn_tlsf_free(heap_, blocks[1]); });
    std::vector<char> more(kRegions * 8192);
    for (long i = 0; i < kRegions; i++)
        ASSERT_EQ(cairn_tlsf_add(heap_, &more[static_cast<size_t>(i) * 8192], 8192), 0);
    const auto allowed = [](long one) {
        return one + (kRegions + 1) * CAIRN_TLSF_REGION_INSTRUCTIONS;
    };
    const long with_many = count([&] { cairn_tlsf_free(heap_, blocks[1]); });
    EXPECT_GT(with_many, with_one);
    EXPECT_LE(with_many, allowed(with_one));
    EXPECT_LE(with_many, allowed(CAIRN_TLSF_FREE_INSTRUCTIONS));
    printf("free with %ld regions: %ld instructions, with one %ld\n", kRegions + 1, with_many,
           with_one);
}

// The cost of random operations stays below the bounds.
TEST_F(TlsfCost, RandomOperationsStayBelow)
{
    Random random(3);
    std::vector<char *> blocks(3000);
    long most_alloc = 0;
    long most_free = 0;
    long sum = 0;
    constexpr int kCounted = 300;
    for (int step = 0; step < 30000; step++) {
        char *&block = blocks[random.below(blocks.size())];
        const size_t size = random.between(16, 4096);
        if (step >= 30000 - kCounted) {
            const long cost = block ? count([&] { cairn_tlsf_free(heap_, block); })
                                    : count([&] { (void)!cairn_tlsf_alloc(heap_, size); });
            (block ? most_free : most_alloc) = std::max(block ? most_free : most_alloc, cost);
            sum += cost;
        }
        if (block)
            cairn_tlsf_free(heap_, block);
        block = block ? nullptr : take(size);
    }
    EXPECT_LE(most_alloc, CAIRN_TLSF_ALLOC_INSTRUCTIONS);
    EXPECT_LE(most_free, CAIRN_TLSF_FREE_INSTRUCTIONS);
    printf("random: alloc at most %ld, free at most %ld, mean %ld instructions\n", most_alloc,
           most_free, sum / kCounted);
}

} // namespace tlsf_cost_test
