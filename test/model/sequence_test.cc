// Random operations of one thread over all entry points and sizes from 0 to 64 MiB, against the
// shadow model. CAIRN_MODEL_SEED=n runs seed n instead of the fresh one.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <chrono>

#include "model/shadow.h"

extern "C" {
#include "heap/heap.h"
}

namespace sequence_test
{

using model::kMiB;
using model::Shadow;

uint64_t fresh_seed()
{
    const char *wanted = getenv("CAIRN_MODEL_SEED");
    if (wanted)
        return strtoull(wanted, nullptr, 10);
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

constexpr size_t kStepsPerRound = 500;

void run_sequence(uint64_t seed, size_t most_blocks, size_t most_bytes, size_t steps)
{
    printf("seed %llu\n", static_cast<unsigned long long>(seed));
    fflush(stdout); // so that the seed is printed if the heap aborts
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(15);
    Shadow shadow(seed, most_blocks, most_bytes);
    for (size_t done = 0; done < steps && std::chrono::steady_clock::now() < end;
         done += kStepsPerRound) {
        shadow.run(kStepsPerRound);
        const struct cairn_mallinfo2 info = cairn_mallinfo2();
        ASSERT_GE(info.uordblks + info.hblkhd, shadow.bytes()) << "seed " << seed;
        if (config_debug)
            heap_verify_all();
    }
    shadow.check_all();
    shadow.release_all();
    heap_verify_all();
    EXPECT_EQ(cairn_mallinfo2().uordblks, 0u) << "seed " << seed;
    EXPECT_EQ(cairn_mallinfo2().hblkhd, 0u) << "seed " << seed;
}

TEST(Sequence, Seed1) { run_sequence(1, 600, 200 * kMiB, 40000); }

TEST(Sequence, Seed2ManyBlocks) { run_sequence(2, 8000, 128 * kMiB, 100000); }

TEST(Sequence, Seed3FewBlocks) { run_sequence(3, 12, 128 * kMiB, 40000); }

TEST(Sequence, FreshSeed) { run_sequence(fresh_seed(), 1500, 200 * kMiB, 40000); }

} // namespace sequence_test
