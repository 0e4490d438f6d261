// Group A: the table of a write-up about a C heap with tcache and boundary tags. 100,000 operations
// a pass on one thread; and its figure of memory for each requested byte.
#include <string.h>

#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

constexpr size_t kOperations = 100000;

void cycle(Run &run)
{
    const size_t count = run.scaled(kOperations);
    run.time_passes(static_cast<double>(count), [&] {
        return time_ns([&] {
            for (size_t i = 0; i < count; i++) {
                free(allocate_touched(64));
            }
        });
    });
}

void live(Run &run)
{
    MappedArray<void *> blocks(run.scaled(kOperations));
    run.time_passes(static_cast<double>(blocks.size()),
                    [&] { return time_fill_and_empty(blocks); });
}

void random_sizes(Run &run)
{
    const size_t count = run.scaled(kOperations);
    Sizes sizes(1, 128, Sizes::kUniform);
    run.time_passes(static_cast<double>(count), [&] {
        return time_ns([&] {
            for (size_t i = 0; i < count; i++) {
                free(allocate_touched(sizes[i]));
            }
        });
    });
}

// One block grows from 16 bytes to 16 KiB in steps of 16; the operation is the step.
void realloc_chain(Run &run)
{
    constexpr size_t kStep = 16, kSteps = 1024;
    const size_t chains = run.scaled(kOperations / kSteps);
    run.time_passes(static_cast<double>(chains * kSteps), [&] {
        return time_ns([&] {
            for (size_t chain = 0; chain < chains; chain++) {
                char *block = nullptr;
                for (size_t step = 1; step <= kSteps; step++) {
                    block = static_cast<char *>(checked(realloc(block, step * kStep)));
                    block[step * kStep - 1] = 1;
                }
                free(block);
            }
        });
    });
}

void random_calloc(Run &run)
{
    const size_t count = run.scaled(kOperations);
    Sizes sizes(1, 1024, Sizes::kUniform);
    run.time_passes(static_cast<double>(count), [&] {
        return time_ns([&] {
            for (size_t i = 0; i < count; i++) {
                void *block = checked(calloc(1, sizes[i]));
                touch(block, sizes[i]);
                free(block);
            }
        });
    });
}

// Ten live slots; a random one is freed and filled again with a random size.
void churn(Run &run)
{
    constexpr size_t kSlots = 10;
    const size_t count = run.scaled(kOperations);
    Sizes sizes(1, 128, Sizes::kUniform);
    Sizes picks(0, kSlots - 1, Sizes::kUniform, 2);
    run.time_passes(static_cast<double>(count), [&] {
        return time_ns([&] {
            void *slots[kSlots] = {};
            for (size_t i = 0; i < count; i++) {
                void *&slot = slots[picks[i]];
                free(slot);
                slot = allocate_touched(sizes[i]);
            }
            for (void *slot : slots) {
                free(slot);
            }
        });
    });
}

// Fills memory with live blocks, every byte written, and compares the resident bytes with the
// requested ones.
void memory_per_byte(Run &run, size_t asked_most, size_t low, size_t high, Sizes::Shape shape)
{
    Sizes sizes(low, high, shape);
    double mean = 0;
    for (size_t i = 0; i < Sizes::kCount; i++) {
        mean += static_cast<double>(sizes[i]) / Sizes::kCount;
    }
    const double wanted = static_cast<double>(run.scaled(asked_most)) / mean;
    MappedArray<void *> blocks(static_cast<size_t>(wanted) + 1);
    size_t asked = 0;
    const size_t before = resident_bytes();
    const double fill_ns = time_ns([&] {
        for (size_t i = 0; i < blocks.size(); i++) {
            blocks[i] = checked(malloc(sizes[i]));
            memset(blocks[i], 1, sizes[i]);
            asked += sizes[i];
        }
    });
    const size_t after = resident_bytes();
    run.figure("bytes_per_byte", static_cast<double>(after - before) / static_cast<double>(asked),
               "");
    run.figure("asked_mib", static_cast<double>(asked) / kMiB, "MiB");
    run.figure("fill_ns", fill_ns / static_cast<double>(blocks.size()), "ns");
    for (void *block : blocks) {
        free(block);
    }
}

void memory_1_64(Run &run) { memory_per_byte(run, 64 * kMiB, 1, 64, Sizes::kUniform); }

void memory_mixed(Run &run) { memory_per_byte(run, 256 * kMiB, 8, 16 * kKiB, Sizes::kDoublings); }

void memory_1k_31k(Run &run) { memory_per_byte(run, 256 * kMiB, kKiB, 31 * kKiB, Sizes::kUniform); }

void memory_70k_970k(Run &run)
{
    memory_per_byte(run, 256 * kMiB, 70 * kKiB, 970 * kKiB, Sizes::kUniform);
}

const Workload kRows[] = {
    {"a-cycle", "A", "malloc/free cycle, 64 B", "warm_ns", "peak_rss", 64, cycle},
    {"a-live", "A", "malloc 100k live, then free", "warm_ns", "peak_rss", 64, live},
    {"a-random", "A", "random sizes 1-128 B", "warm_ns", "peak_rss", 64, random_sizes},
    {"a-realloc", "A", "realloc chain", "warm_ns", "peak_rss", 64, realloc_chain},
    {"a-calloc", "A", "random calloc/free", "warm_ns", "peak_rss", 64, random_calloc},
    {"a-churn", "A", "churn over 10 live slots", "warm_ns", "peak_rss", 64, churn},
    {"a-memory-1-64", "A", "memory a byte asked, 1-64 B", "fill_ns", "bytes_per_byte", 256,
     memory_1_64},
    {"a-memory-mixed", "A", "memory a byte asked, 8 B-16 KiB", "fill_ns", "bytes_per_byte", 512,
     memory_mixed},
    {"a-memory-1k-31k", "A", "memory a byte asked, 1-31 KiB", "fill_ns", "bytes_per_byte", 512,
     memory_1k_31k},
    {"a-memory-70k-970k", "A", "memory a byte asked, 70-970 KiB", "fill_ns", "bytes_per_byte", 512,
     memory_70k_970k},
};

} // namespace

const WorkloadTable kWriteupA = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
