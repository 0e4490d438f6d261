// Group D: the table of a write-up about a pool of 1 MiB with an address-sorted free list, with the
// processor's counters; and its statements on the reuse, merging and splitting of blocks.
#include <stdint.h>

#include "counters.h"
#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

constexpr size_t kPairs = 1000000, kBulk = 1000, kBulkRounds = 100;

// Times the passes, then counts one more.
template <class Body> void time_and_count(Run &run, size_t operations, Body body)
{
    run.time_passes(static_cast<double>(operations), [&] { return time_ns(body); });
    Counters counters;
    counters.start();
    body();
    counters.stop();
    counters.report(run, static_cast<double>(operations));
}

void four_bytes(Run &run)
{
    const size_t count = run.scaled(kPairs);
    time_and_count(run, count, [count] {
        for (size_t i = 0; i < count; i++) {
            free(allocate_touched(4));
        }
    });
}

void mixed(Run &run)
{
    const size_t count = run.scaled(kPairs);
    Sizes sizes(8, 512, Sizes::kUniform);
    time_and_count(run, count, [&] {
        for (size_t i = 0; i < count; i++) {
            free(allocate_touched(sizes[i]));
        }
    });
}

// A thousand blocks are allocated, then all are freed, in that order or in reverse.
void bulk(Run &run, bool reverse)
{
    const size_t rounds = run.scaled(kBulkRounds);
    MappedArray<void *> blocks(kBulk);
    time_and_count(run, rounds * kBulk, [&] {
        for (size_t round = 0; round < rounds; round++) {
            for (void *&block : blocks) {
                block = allocate_touched(64);
            }
            for (size_t i = 0; i < kBulk; i++) {
                free(blocks[reverse ? kBulk - 1 - i : i]);
            }
        }
    });
}

void bulk_in_order(Run &run) { bulk(run, false); }
void bulk_reverse(Run &run) { bulk(run, true); }

uintptr_t address(const void *block) { return reinterpret_cast<uintptr_t>(block); }

// Sizes at which a heap may merge and split page runs, from small to large.
constexpr size_t kShapeSizes[] = {256, 2 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB};
constexpr double kShapeSizeCount = sizeof kShapeSizes / sizeof kShapeSizes[0];

bool reuses(size_t size)
{
    void *first = allocate_touched(size);
    const uintptr_t at = address(first);
    free(first);
    void *second = allocate_touched(size);
    const bool same = address(second) == at;
    free(second);
    return same;
}

// Frees a row of sixteen blocks and allocates half of their sum.
// Returns: whether the new block is where they were.
bool merges(size_t size)
{
    constexpr size_t kRow = 16;
    void *row[kRow];
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (void *&block : row) {
        block = allocate_touched(size);
        low = address(block) < low ? address(block) : low;
        high = address(block) > high ? address(block) : high;
    }
    for (void *block : row) {
        free(block);
    }
    void *sum = allocate_touched(kRow / 2 * size);
    const bool within = address(sum) >= low && address(sum) < high + size;
    free(sum);
    return within;
}

// Frees a block of eight times the size and allocates four of the size.
// Returns: whether they are within it.
bool splits(size_t size)
{
    void *whole = allocate_touched(8 * size);
    const uintptr_t low = address(whole), high = low + 8 * size;
    free(whole);
    void *parts[4];
    bool within = true;
    for (void *&part : parts) {
        part = allocate_touched(size);
        within = within && address(part) >= low && address(part) < high;
    }
    for (void *part : parts) {
        free(part);
    }
    return within;
}

void shape(Run &run)
{
    double reused = 0, merged = 0, split = 0;
    for (size_t size : kShapeSizes) {
        reused += reuses(size);
        merged += merges(size);
        split += splits(size);
    }
    run.figure("reused_sizes", 100 * reused / kShapeSizeCount, "%");
    run.figure("merged_sizes", 100 * merged / kShapeSizeCount, "%");
    run.figure("split_sizes", 100 * split / kShapeSizeCount, "%");
}

const Workload kRows[] = {
    {"d-4-bytes", "D", "4 bytes", "warm_ns", "peak_rss", 64, four_bytes},
    {"d-mixed", "D", "mixed 8-512 B", "warm_ns", "peak_rss", 64, mixed},
    {"d-bulk", "D", "bulk 1000, then free", "warm_ns", "peak_rss", 64, bulk_in_order},
    {"d-reverse", "D", "bulk 1000, reverse free", "warm_ns", "peak_rss", 64, bulk_reverse},
    {"d-shape", "D", "reuse, merging and splitting", "", "", 64, shape},
};

} // namespace

const WorkloadTable kWriteupD = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
