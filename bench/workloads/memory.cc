// Fragmentation: phases of different sizes; after each one, a scattered part of its blocks
// survives.
#include <algorithm>
#include <string.h>

#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

struct Phase {
    size_t low, high;
    unsigned survivors_percent;
};

// Small blocks first, then larger ones that should use the memory of the small ones, and back.
constexpr Phase kPhases[] = {
    {16, 64, 10},         {100, 400, 10},
    {kKiB, 4 * kKiB, 10}, {32, 128, 10},
    {300, 900, 10},       {8 * kKiB, 64 * kKiB, 10},
    {16, 256, 10},        {2 * kKiB, 16 * kKiB, 10},
};
constexpr size_t kPhaseBytes = 64 * kMiB;

struct Block {
    void *memory;
    size_t size;
};

// Frees a part of the blocks. Survivors stay where they are in the array, and the others leave it.
size_t thin_out(MappedArray<Block> &blocks, size_t first, size_t count, unsigned percent,
                Random &random, size_t *live_bytes)
{
    size_t kept = first;
    for (size_t i = first; i < count; i++) {
        if (random.below(100) < percent) {
            blocks[kept++] = blocks[i];
        } else {
            free(blocks[i].memory);
            *live_bytes -= blocks[i].size;
        }
    }
    return kept;
}

// The peak is compared with the maximum of live bytes, the end with the live bytes at that time.
void fragmentation(Run &run)
{
    MappedArray<Block> blocks(run.scaled(4000000, 1000));
    const size_t phase_bytes = run.scaled(kPhaseBytes);
    Random random(5);
    size_t count = 0, live_bytes = 0, live_most = 0, operations = 0;
    const size_t before = resident_bytes();
    const double spent_ns = time_ns([&] {
        for (const Phase &phase : kPhases) {
            const size_t first = count;
            for (size_t bytes = 0; bytes < phase_bytes && count < blocks.size();) {
                const size_t size = random.between(phase.low, phase.high);
                blocks[count] = {checked(malloc(size)), size};
                memset(blocks[count].memory, 1, size);
                count++;
                bytes += size;
                live_bytes += size;
            }
            operations += count - first;
            live_most = std::max(live_most, live_bytes);
            count = thin_out(blocks, first, count, phase.survivors_percent, random, &live_bytes);
        }
    });
    const double at_end = static_cast<double>(resident_bytes() - before);
    const double at_peak = static_cast<double>(peak_resident_bytes() - before);
    run.figure("warm_ns", spent_ns / static_cast<double>(operations), "ns");
    run.figure("peak_per_live", at_peak / static_cast<double>(live_most), "");
    run.figure("end_per_live", at_end / static_cast<double>(live_bytes), "");
    for (size_t i = 0; i < count; i++) {
        free(blocks[i].memory);
    }
}

const Workload kRows[] = {
    {"fragmentation", "field", "fragmentation by phases", "warm_ns", "peak_per_live", 1024,
     fragmentation},
};

} // namespace

const WorkloadTable kMemory = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
