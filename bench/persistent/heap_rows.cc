// Rows about the persistent heap alone: finding written pages, allocation, recovery, the longest
// commits during checkpoints, and commits of many threads.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <thread>

#include "cairn_heap.h"
#include "rows.h"

namespace bench
{
namespace
{

constexpr size_t kMiB = 1 << 20;

// Calls body, which returns a sample, until the time is over, at least three times.
template <class Body> Samples repeat(double seconds, Body body)
{
    Samples samples;
    const double start = now_ns();
    while (now_ns() - start < seconds * 1e9 || samples.count() < 3) {
        samples.add(body());
    }
    return samples;
}

size_t count_dirty(const Heap &heap)
{
    size_t pages;
    check(cairn_persist_count_dirty(heap.get(), &pages) == 0, "cairn_persist_count_dirty");
    return pages;
}

} // namespace

void measure_finding(const Settings &settings)
{
    constexpr size_t kBytes = 1024 * kMiB;
    const Place place(settings, "finding");
    Heap heap(place.path(), 0, kBytes + 16 * kMiB, 0);
    char *block = heap.allocate(kBytes);
    uint64_t sum = 0; // maps all pages, which are mostly those of the file
    for (size_t i = 0; i < kBytes; i += kPageBytes) {
        sum += static_cast<unsigned char>(block[i]);
    }
    heap.commit();
    printf("| written pages of 1 GiB | ms to find | us a page beyond the first row |\n"
           "|---|---|---|\n");
    double none = 0;
    for (size_t pages : std::initializer_list<size_t>{0, 16, 256, 4096, 65536}) {
        size_t turn = sum;
        Samples times = repeat(settings.seconds / 4, [&] {
            for (size_t i = 0; i < pages; i++) {
                block[(turn + i) * 40503 % (kBytes / kPageBytes) * kPageBytes]++;
            }
            turn += pages;
            const double start = now_ns();
            const size_t found = count_dirty(heap);
            const double time = now_ns() - start;
            check(found >= pages, "pages that were written are found");
            heap.commit();
            return time;
        });
        none = pages == 0 ? times.at(0.5) : none;
        printf("| %zu | %.3f | %.3f |\n", pages, times.at(0.5) * 1e-6,
               pages == 0 ? 0.0 : (times.at(0.5) - none) / static_cast<double>(pages) * 1e-3);
        fflush(stdout);
    }
}

void measure_allocation(const Settings &settings)
{
    constexpr size_t kBatch = 1000;
    const Place place(settings, "allocation");
    Heap heap(place.path(), 0, 64 * kMiB, 0);
    const cairn_allocator allocator = cairn_persist_allocator(heap.get());
    printf("| bytes | ns an allocation and free, one after the other | ns an allocation, %zu in a "
           "row | ns a free | least ns an allocation |\n|---|---|---|---|---|\n",
           kBatch);
    std::vector<void *> blocks(kBatch);
    for (size_t size : std::initializer_list<size_t>{16, 64, 256, 1024, 4096}) {
        Samples pairs = repeat(settings.seconds / 4, [&] {
            const double start = now_ns();
            for (size_t i = 0; i < kBatch; i++) {
                void *block = cairn_allocator_alloc(allocator, size, 8);
                cairn_allocator_free(allocator, block, size);
            }
            return (now_ns() - start) / kBatch;
        });
        Samples frees;
        Samples allocations = repeat(settings.seconds / 4, [&] {
            const double start = now_ns();
            for (void *&block : blocks) {
                block = cairn_allocator_alloc(allocator, size, 8);
            }
            const double middle = now_ns();
            for (void *block : blocks) {
                cairn_allocator_free(allocator, block, size);
            }
            frees.add((now_ns() - middle) / kBatch);
            return (middle - start) / kBatch;
        });
        printf("| %zu | %.1f | %.1f | %.1f | %.1f |\n", size, pairs.at(0.5), allocations.at(0.5),
               frees.at(0.5), allocations.at(0));
        fflush(stdout);
    }
}

namespace
{

// Leaves a log, in a process of its own that ends without closing the heap.
void leave_log(const std::string &path, size_t log_bytes, size_t logged_bytes)
{
    const pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        Heap heap(path, 0, 160 * kMiB, log_bytes);
        char *block = heap.allocate(128 * kMiB);
        for (size_t at = 0; at < logged_bytes; at += kMiB) {
            for (size_t page = 0; page < 256; page++) {
                block[(at / kPageBytes + page) * 40503 % kRecords * kPageBytes] = 1;
            }
            heap.commit();
        }
        _exit(0);
    }
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "the process that leaves a log");
}

} // namespace

void measure_recovery(const Settings &settings)
{
    printf("| log, MiB | commits recovered | ms to open |\n|---|---|---|\n");
    for (size_t logged : std::initializer_list<size_t>{1, 8, 31, 60}) {
        uint64_t commits = 0;
        Samples times = repeat(settings.seconds / 2, [&] {
            const Place place(settings, "recovery");
            leave_log(place.path(), 128 * kMiB, logged * kMiB);
            const double start = now_ns();
            const Heap heap(place.path(), 0, 0, 0);
            const double time = now_ns() - start;
            commits = heap.stats().recovered_commits;
            return time;
        });
        printf("| %zu | %llu | %.1f |\n", logged, static_cast<unsigned long long>(commits),
               times.at(0.5) * 1e-6);
        fflush(stdout);
    }
}

void measure_stalls(const Settings &settings)
{
    printf("| pages a commit | commits/s | median ms | p99 ms | p99.9 ms | most ms | MiB logged | "
           "commits | bytes logged a byte of live dirty pages |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    for (size_t pages : std::initializer_list<size_t>{16, 64, 256}) {
        const Place place(settings, "stalls");
        Heap heap(place.path(), CAIRN_PERSIST_WRITERS_PAUSE, 160 * kMiB, 16 * kMiB);
        char *block = heap.allocate(128 * kMiB);
        size_t turn = 0;
        const double start = now_ns();
        Samples times = repeat(settings.seconds * 5, [&] {
            for (size_t i = 0; i < pages; i++) {
                block[(turn + i) * 40503 % kRecords * kPageBytes]++;
            }
            turn += pages;
            const double begin = now_ns();
            heap.commit();
            return now_ns() - begin;
        });
        const double seconds = (now_ns() - start) * 1e-9;
        const cairn_persist_stats stats = heap.stats();
        const auto bytes = static_cast<double>(stats.logged_bytes);
        printf("| %zu | %.0f | %.2f | %.2f | %.2f | %.2f | %.0f | %zu | %.3f |\n", pages,
               static_cast<double>(times.count()) / seconds, times.at(0.5) * 1e-6,
               times.at(0.99) * 1e-6, times.at(0.999) * 1e-6, times.at(1) * 1e-6, bytes / kMiB,
               times.count(), bytes / (static_cast<double>(stats.logged_pages) * kPageBytes));
        fflush(stdout);
    }
}

void measure_groups(const Settings &settings)
{
    printf("| threads | commits/s | median ms | p99.9 ms | commits an fdatasync |\n"
           "|---|---|---|---|---|\n");
    for (unsigned count : std::initializer_list<unsigned>{1, 2, 4, 16, 64}) {
        const Place place(settings, "groups");
        Heap heap(place.path(), 0, 160 * kMiB, 0);
        char *block = heap.allocate(64 * kPageBytes);
        heap.commit();
        const uint64_t syncs = heap.stats().syncs;
        std::mutex writing; // a transaction is written and captured under it as a whole
        std::vector<Samples> times(count);
        std::vector<std::thread> threads;
        const double start = now_ns();
        for (unsigned i = 0; i < count; i++) {
            threads.emplace_back([&, i] {
                times[i] = repeat(settings.seconds, [&] {
                    cairn_persist_ticket ticket;
                    const double begin = now_ns();
                    {
                        const std::lock_guard<std::mutex> guard(writing);
                        block[i * kPageBytes]++;
                        check(cairn_persist_commit_async(heap.get(), &ticket) == 0, "commit_async");
                    }
                    check(cairn_persist_wait(heap.get(), ticket) == 0, "cairn_persist_wait");
                    return now_ns() - begin;
                });
            });
        }
        Samples all;
        for (unsigned i = 0; i < count; i++) {
            threads[i].join();
            for (size_t n = 0; n < times[i].count(); n++) {
                all.add(
                    times[i].at(static_cast<double>(n) / static_cast<double>(times[i].count())));
            }
        }
        const double seconds = (now_ns() - start) * 1e-9;
        const auto commits = static_cast<double>(all.count());
        printf("| %u | %.0f | %.2f | %.2f | %.1f |\n", count, commits / seconds, all.at(0.5) * 1e-6,
               all.at(0.999) * 1e-6, commits / static_cast<double>(heap.stats().syncs - syncs));
        fflush(stdout);
    }
}

} // namespace bench
