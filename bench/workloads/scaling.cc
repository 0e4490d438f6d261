// Growth: equal work by 1 to 64 threads, in heaps of 10 MiB to 8 GiB, and the fork of a large heap
// or next to threads.
// Times of threads are those of one processor, so that a heap that scales has one figure in all
// rows.
#include <atomic>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

// Each thread replaces random blocks of a live set of its own; the sum of operations does not
// depend on the number of threads.
void threads(Run &run, unsigned count, size_t live, size_t total, Sizes &&sizes)
{
    const size_t operations = run.scaled(total, 64) / count;
    MappedArray<void *> slots(live * count);
    Team team(count);
    run.time_passes(static_cast<double>(operations * count), [&] {
        return team.processor_ns(team.run([&](unsigned index) {
            Random random(index);
            for (size_t i = 0; i < operations; i++) {
                void *&slot = slots[index * live + random.below(live)];
                free(slot);
                slot = allocate_touched(sizes[random.next()]);
            }
        }));
    });
    team.run([&](unsigned index) {
        for (size_t i = index * live; i < (index + 1) * live; i++) {
            free(slots[i]);
        }
    });
}

template <unsigned count> void threads_of(Run &run)
{
    threads(run, count, 1000, 8000000, Sizes(16, 512, Sizes::kDoublings));
}

template <unsigned count, size_t live, size_t low_kib, size_t high_kib> void medium(Run &run)
{
    threads(run, count, live, 1000000, Sizes(low_kib * kKiB, high_kib * kKiB, Sizes::kUniform));
}

// The blocks of a heap of the given number of bytes.
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

// Random blocks of a heap that is filled to the given number of bytes are replaced.
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

// Copies the process so often; each child runs the body and ends.
template <class Body> double fork_ns(size_t forks, Body body)
{
    return time_ns([&] {
        for (size_t i = 0; i < forks; i++) {
            const pid_t child = fork();
            if (child == 0) {
                body();
                _exit(0);
            }
            int status = 1;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
                fail("fork");
            }
        }
    });
}

// Copies a process that holds the given number of bytes in small blocks. The children do nothing,
// or make a block of each of 64 sizes.
template <size_t mib, bool allocates> void fork_of_heap(Run &run)
{
    const size_t forks = run.scaled(10);
    Heap heap(run, mib * kMiB);
    heap.fill();
    run.time_passes(static_cast<double>(forks), [&] {
        return fork_ns(forks, [] {
            for (size_t size = 16; allocates && size <= kKiB; size += 16) {
                allocate_touched(size);
            }
        });
    });
}

// Copies a process while two threads replace blocks: the memory that each fork leaves behind.
void fork_next_to_threads(Run &run)
{
    constexpr size_t kSlots = 1000;
    const size_t forks = run.scaled(500);
    Sizes sizes(16, 512, Sizes::kDoublings);
    MappedArray<void *> slots(3 * kSlots);
    Team team(3);
    std::atomic<bool> done{false};
    double spent_ns = 0, grown_bytes = 0;
    team.run([&](unsigned index) {
        if (index == 0) {
            fork_ns(forks / 5, [] {});
            const size_t before = resident_bytes();
            spent_ns = fork_ns(forks, [] {});
            const size_t after = resident_bytes();
            grown_bytes = after > before ? static_cast<double>(after - before) : 0;
            done.store(true);
        }
        Random random(index);
        while (!done.load()) {
            void *&slot = slots[index * kSlots + random.below(kSlots)];
            free(slot);
            slot = allocate_touched(sizes[random.next()]);
        }
    });
    run.figure("warm_ns", spent_ns / static_cast<double>(forks), "ns");
    run.figure("kept_bytes", grown_bytes / static_cast<double>(forks), "B");
}

// A saver in the background, as Redis has it: the parent writes to a fiftieth of its blocks while
// the child lives. The kernel copies each page, or huge page, at its first write.
void fork_and_write(Run &run)
{
    Heap heap(run, 512 * kMiB);
    heap.fill();
    int ends[2];
    if (pipe(ends) != 0) {
        fail("pipe");
    }
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    const size_t before = private_bytes();
    const size_t writes = heap.slots.size() / 50 + 1;
    Random random(9);
    const double spent_ns = time_ns([&] {
        for (size_t i = 0; i < writes; i++) {
            touch(heap.slots[random.below(heap.slots.size())], 1);
        }
    });
    run.figure("warm_ns", spent_ns / static_cast<double>(writes), "ns");
    run.figure("copied_kib", static_cast<double>(private_bytes() - before) / kKiB, "KiB");
    close(ends[1]);
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fail("fork");
    }
}

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
     fork_of_heap<2048, false>},
    {"fork-refill-1g", "scaling", "fork of 1 GiB, children that allocate", "warm_ns", "peak_rss",
     1600, fork_of_heap<1024, true>},
    {"fork-threads", "scaling", "forks next to threads that allocate", "warm_ns", "peak_rss", 256,
     fork_next_to_threads},
    {"fork-write", "scaling", "writes to 512 MiB while a child lives", "warm_ns", "copied_kib",
     1600, fork_and_write},
    {"medium-32k-1", "medium", "1-32 KiB, 1 live", "warm_ns", "peak_rss", 64, medium<1, 1, 1, 32>},
    {"medium-32k-64", "medium", "1-32 KiB, 64 live", "warm_ns", "peak_rss", 64,
     medium<1, 64, 1, 32>},
    {"medium-32k-1-threads", "medium", "1-32 KiB, 1 live in each of 64 threads", "warm_ns",
     "peak_rss", 1024, medium<64, 1, 1, 32>},
    {"medium-32k-64-threads", "medium", "1-32 KiB, 64 live in each of 64 threads", "warm_ns",
     "peak_rss", 1024, medium<64, 64, 1, 32>},
    {"medium-256k-1", "medium", "32-256 KiB, 1 live", "warm_ns", "peak_rss", 64,
     medium<1, 1, 32, 256>},
    {"medium-256k-64", "medium", "32-256 KiB, 64 live", "warm_ns", "peak_rss", 128,
     medium<1, 64, 32, 256>},
    {"medium-256k-1-threads", "medium", "32-256 KiB, 1 live in each of 64 threads", "warm_ns",
     "peak_rss", 1024, medium<64, 1, 32, 256>},
    {"medium-256k-64-threads", "medium", "32-256 KiB, 64 live in each of 64 threads", "warm_ns",
     "peak_rss", 2048, medium<64, 64, 32, 256>},
};

} // namespace

const WorkloadTable kScaling = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
