// Group C: the table of a write-up about a threaded malloc with bins, tcache and mmap. Its rows run
// on one thread, like its own, and on eight at once.
#include <string.h>

#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

constexpr unsigned kThreads = 8;
constexpr size_t kPairs = 200000, kBatch = 100000, kMixed = 200000, kChains = 500;

// Reports the time of `body(thread)` per operation, as time of one processor.
template <class Body>
void time_team(Run &run, unsigned threads, size_t operations_a_thread, Body body)
{
    Team team(threads);
    run.time_passes(static_cast<double>(threads * operations_a_thread),
                    [&] { return team.processor_ns(team.run(body)); });
}

void single(Run &run, unsigned threads)
{
    const size_t count = run.scaled(kPairs);
    time_team(run, threads, count, [count](unsigned) {
        for (size_t i = 0; i < count; i++) {
            free(allocate_touched(64));
        }
    });
}

// The two halves of a batch are two rows; the other half of each runs untimed.
void batch(Run &run, unsigned threads, bool time_the_frees)
{
    const size_t count = run.scaled(kBatch / threads);
    MappedArray<void *> blocks(count * threads);
    Team team(threads);
    run.time_passes(static_cast<double>(count * threads), [&] {
        const double alloc_ns = team.run([&](unsigned index) {
            for (size_t i = index * count; i < (index + 1) * count; i++) {
                blocks[i] = allocate_touched(64);
            }
        });
        const double free_ns = team.run([&](unsigned index) {
            for (size_t i = index * count; i < (index + 1) * count; i++) {
                free(blocks[i]);
            }
        });
        return team.processor_ns(time_the_frees ? free_ns : alloc_ns);
    });
}

void mixed(Run &run, unsigned threads)
{
    const size_t count = run.scaled(kMixed);
    Sizes sizes(16, 4 * kKiB, Sizes::kDoublings);
    time_team(run, threads, count, [&](unsigned index) {
        for (size_t i = 0; i < count; i++) {
            free(allocate_touched(sizes[index * 4099 + i]));
        }
    });
}

// 16 bytes doubled to 64 KiB, each new half written; the operation is the step.
void realloc_chain(Run &run, unsigned threads)
{
    constexpr size_t kFirst = 16, kLast = 64 * kKiB, kSteps = 13;
    const size_t chains = run.scaled(kChains);
    time_team(run, threads, chains * kSteps, [chains](unsigned) {
        for (size_t chain = 0; chain < chains; chain++) {
            char *block = nullptr;
            size_t had = 0;
            for (size_t size = kFirst; size <= kLast; size *= 2) {
                block = static_cast<char *>(checked(realloc(block, size)));
                memset(block + had, 1, size - had);
                had = size;
            }
            free(block);
        }
    });
}

// Each thread keeps a hundred blocks of mixed sizes and replaces them in turn.
void multithreaded(Run &run)
{
    constexpr size_t kSlots = 100;
    const unsigned threads = run.threads(kThreads);
    const size_t count = run.scaled(kPairs);
    Sizes sizes(16, kKiB, Sizes::kUniform);
    time_team(run, threads, count, [&](unsigned index) {
        void *slots[kSlots] = {};
        for (size_t i = 0; i < count; i++) {
            void *&slot = slots[i % kSlots];
            free(slot);
            slot = allocate_touched(sizes[index * 4099 + i]);
        }
        for (void *slot : slots) {
            free(slot);
        }
    });
}

void single_1(Run &run) { single(run, 1); }
void single_8(Run &run) { single(run, run.threads(kThreads)); }
void batch_alloc_1(Run &run) { batch(run, 1, false); }
void batch_alloc_8(Run &run) { batch(run, run.threads(kThreads), false); }
void batch_free_1(Run &run) { batch(run, 1, true); }
void batch_free_8(Run &run) { batch(run, run.threads(kThreads), true); }
void mixed_1(Run &run) { mixed(run, 1); }
void mixed_8(Run &run) { mixed(run, run.threads(kThreads)); }
void realloc_1(Run &run) { realloc_chain(run, 1); }
void realloc_8(Run &run) { realloc_chain(run, run.threads(kThreads)); }

const Workload kRows[] = {
    {"c-single", "C", "single alloc+free", "warm_ns", "peak_rss", 64, single_1},
    {"c-batch-alloc", "C", "batch alloc", "warm_ns", "peak_rss", 64, batch_alloc_1},
    {"c-batch-free", "C", "batch free", "warm_ns", "peak_rss", 64, batch_free_1},
    {"c-mixed", "C", "mixed sizes", "warm_ns", "peak_rss", 64, mixed_1},
    {"c-realloc", "C", "realloc chain", "warm_ns", "peak_rss", 64, realloc_1},
    {"c-threads", "C", "multithreaded, 8 threads", "warm_ns", "peak_rss", 128, multithreaded},
    {"c-single-8", "C", "single alloc+free, 8 threads", "warm_ns", "peak_rss", 128, single_8},
    {"c-batch-alloc-8", "C", "batch alloc, 8 threads", "warm_ns", "peak_rss", 128, batch_alloc_8},
    {"c-batch-free-8", "C", "batch free, 8 threads", "warm_ns", "peak_rss", 128, batch_free_8},
    {"c-mixed-8", "C", "mixed sizes, 8 threads", "warm_ns", "peak_rss", 128, mixed_8},
    {"c-realloc-8", "C", "realloc chain, 8 threads", "warm_ns", "peak_rss", 128, realloc_8},
};

} // namespace

const WorkloadTable kWriteupC = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
