// False sharing: whether the heap places blocks of different threads in one cache line. Active: it
// gives neighbouring blocks to threads that allocate at one time. Passive: a thread frees a block
// next to another thread's block and gets it again. After Berger et al., "Hoard", ASPLOS 2000.
#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

constexpr size_t kSize = 8, kWrites = 2000, kBlocks = 500;

void write_often(void *block)
{
    volatile char *bytes = static_cast<volatile char *>(block);
    for (size_t i = 0; i < kWrites; i++) {
        bytes[i % kSize] = static_cast<char>(bytes[i % kSize] + 1);
    }
}

void write_blocks(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *block = allocate_touched(kSize);
        write_often(block);
        free(block);
    }
}

unsigned sharing_threads(Run &run) { return run.threads(processors() < 2 ? 2 : processors()); }

// The operation is a block with all its writes.
void active(Run &run)
{
    Team team(sharing_threads(run));
    const size_t count = run.scaled(kBlocks);
    run.time_passes(static_cast<double>(count * team.count()), [&] {
        return team.processor_ns(team.run([count](unsigned) { write_blocks(count); }));
    });
}

void passive(Run &run)
{
    Team team(sharing_threads(run));
    const size_t count = run.scaled(kBlocks);
    MappedArray<void *> given(team.count());
    run.time_passes(static_cast<double>(count * team.count()), [&] {
        for (void *&block : given) {
            block = allocate_touched(kSize); // probably neighbours
        }
        return team.processor_ns(team.run([&](unsigned index) {
            free(given[index]);
            write_blocks(count);
        }));
    });
}

const Workload kRows[] = {
    {"sharing-active", "field", "false sharing, active", "warm_ns", "peak_rss", 64, active},
    {"sharing-passive", "field", "false sharing, passive", "warm_ns", "peak_rss", 64, passive},
};

} // namespace

const WorkloadTable kSharing = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
