// Growth: the same work by 1 to 64 threads, in heaps of 10 MiB to 8 GiB, and the fork
// of a large one. Times of threads are those of one processor, so that a heap that scales has the
// same figure in every row.
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

// Each thread replaces random blocks of a live set of its own; the sum of operations is the same
// for all numbers of threads.
void threads(Run &run, unsigned count)
{
    constexpr size_t kSlots = 1000;
    const size_t operations = run.scaled(8000000, 64) / count;
    Sizes sizes(16, 512, Sizes::kDoublings);
    MappedArray<void *> slots(kSlots * count);
    Team team(count);
    run.time_passes(static_cast<double>(operations * count), [&] {
        return team.processor_ns(team.run([&](unsigned index) {
            Random random(index);
            for (size_t i = 0; i < operations; i++) {
                void *&slot = slots[index * kSlots + random.below(kSlots)];
                free(slot);
                slot = allocate_touched(sizes[random.next()]);
            }
        }));
    });
    team.run([&](unsigned index) {
        for (size_t i = index * kSlots; i < (index + 1) * kSlots; i++) {
            free(slots[i]);
        }
    });
}

template <unsigned count> void threads_of(Run &run) { threads(run, count); }

// The blocks of a heap of so many bytes.
struct Heap {
    static constexpr size_t kMeanSize = 240; // of the sizes below

    Heap(const Run &run, size_t bytes) : slots(run.scaled(bytes / kMeanSize, 16)) {}

    void fill()
    {
        for (size_t i = 0; i < slots.size(); i++) {
            slots[i] = allocate_touched(sizes[i]);
        }
    }

    MappedArray<void *> slots;
    Sizes sizes{16, kKiB, Sizes::kDoublings};
};

// Random blocks of a heap that is filled to so many bytes are replaced.
void heap(Run &run, size_t bytes)
{
    const size_t operations = run.scaled(500000);
    Heap heap(run, bytes);
    MappedArray<void *> &slots = heap.slots;
    const double fill_ns = time_ns([&] { heap.fill(); });
    run.figure("fill_ns", fill_ns / static_cast<double>(slots.size()), "ns");
    Random random(7);
    run.time_passes(static_cast<double>(operations), [&] {
        return time_ns([&] {
            for (size_t i = 0; i < operations; i++) {
                void *&slot = slots[random.below(slots.size())];
                free(slot);
                slot = allocate_touched(heap.sizes[random.next()]);
            }
        });
    });
}

template <size_t mib> void heap_of(Run &run) { heap(run, mib * kMiB); }

// The copy of a process that holds so much in small blocks: fork, and the end of the child.
void fork_of(Run &run, size_t bytes)
{
    const size_t forks = run.scaled(10);
    Heap heap(run, bytes);
    heap.fill();
    run.time_passes(static_cast<double>(forks), [&] {
        return time_ns([&] {
            for (size_t i = 0; i < forks; i++) {
                const pid_t child = fork();
                if (child == 0) {
                    _exit(0);
                }
                int status = 1;
                if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
                    fail("fork");
                }
            }
        });
    });
}

template <size_t mib> void fork_of_heap(Run &run) { fork_of(run, mib * kMiB); }

const Workload kRows[] = {
    {"threads-1", "scaling", "1 thread", "warm_ns", "peak_rss", 64, threads_of<1>},
    {"threads-2", "scaling", "2 threads", "warm_ns", "peak_rss", 64, threads_of<2>},
    {"threads-4", "scaling", "4 threads", "warm_ns", "peak_rss", 64, threads_of<4>},
    {"threads-8", "scaling", "8 threads", "warm_ns", "peak_rss", 128, threads_of<8>},
    {"threads-16", "scaling", "16 threads", "warm_ns", "peak_rss", 128, threads_of<16>},
    {"threads-32", "scaling", "32 threads", "warm_ns", "peak_rss", 256, threads_of<32>},
    {"threads-64", "scaling", "64 threads", "warm_ns", "peak_rss", 512, threads_of<64>},
    {"heap-10m", "scaling", "heap of 10 MiB", "warm_ns", "peak_rss", 64, heap_of<10>},
    {"heap-100m", "scaling", "heap of 100 MiB", "warm_ns", "peak_rss", 256, heap_of<100>},
    {"heap-1g", "scaling", "heap of 1 GiB", "warm_ns", "peak_rss", 1600, heap_of<1024>},
    {"heap-2g", "scaling", "heap of 2 GiB", "warm_ns", "peak_rss", 3200, heap_of<2048>},
    {"heap-8g", "scaling", "heap of 8 GiB", "warm_ns", "peak_rss", 12800, heap_of<8192>},
    {"fork-2g", "scaling", "fork of a heap of 2 GiB", "warm_ns", "peak_rss", 3200,
     fork_of_heap<2048>},
};

} // namespace

const WorkloadTable kScaling = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
