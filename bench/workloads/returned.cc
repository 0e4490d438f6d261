// Memory given back, while threads that it belonged to stay alive, idle: how much stays resident
// after two seconds, and how much after the heap is asked for all it can give?
//   returned       four threads free 512 MiB of mixed blocks; another one goes about ordinary work
//   producer-idle  a thread makes 256 MiB of small blocks; another one frees them, then as above
//   all-idle       16 threads make and free 64 MiB of small blocks; then nobody does anything
#include <atomic>
#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

constexpr unsigned kThreads = 4;
constexpr double kActivityNs = 2e9;

template <class Function> Function find(const char *name)
{
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

bool object_has(const char *name, const void *malloc_base)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, name);
    return symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fbase == malloc_base;
}

// malloc_trim(0), or what the allocator behind malloc calls it, from this thread. An allocator
// without any keeps what it has.
void trim()
{
    Dl_info info;
    if (dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) == 0) {
        return;
    }
    if (object_has("malloc_trim", info.dli_fbase)) {
        malloc_trim(0);
    } else if (object_has("mi_collect", info.dli_fbase)) {
        find<void (*)(bool)>("mi_collect")(true);
    } else if (object_has("mallctl", info.dli_fbase)) {
        using Control = int (*)(const char *, void *, size_t *, void *, size_t);
        // 4096 is jemalloc's MALLCTL_ARENAS_ALL.
        find<Control>("mallctl")("arena.4096.purge", nullptr, nullptr, nullptr, 0);
    } else if (object_has("MallocExtension_ReleaseFreeMemory", info.dli_fbase)) {
        find<void (*)()>("MallocExtension_ReleaseFreeMemory")();
    }
}

// What a program does beside: small blocks, a few at a time, with pauses.
void ordinary_activity(double duration_ns)
{
    Sizes sizes(16, 4 * kKiB, Sizes::kDoublings);
    constexpr size_t kSlots = 200;
    void *slots[kSlots] = {};
    size_t drawn = 0;
    for (const double end = now_ns() + duration_ns; now_ns() < end;) {
        for (size_t i = 0; i < kSlots; i++) {
            void *&slot = slots[drawn % kSlots];
            free(slot);
            slot = allocate_touched(sizes[drawn++]);
        }
        const timespec pause = {0, 1000000};
        nanosleep(&pause, nullptr);
    }
    for (void *slot : slots) {
        free(slot);
    }
}

double kib_above(size_t before)
{
    const size_t now = resident_bytes();
    return now > before ? static_cast<double>(now - before) / kKiB : 0;
}

void returned(Run &run)
{
    const size_t bytes_a_thread = run.scaled(512 * kMiB / kThreads);
    Sizes sizes(16, 256 * kKiB, Sizes::kDoublings);
    double mean = 0;
    for (size_t i = 0; i < Sizes::kCount; i++) {
        mean += static_cast<double>(sizes[i]) / Sizes::kCount;
    }
    const size_t count = static_cast<size_t>(static_cast<double>(bytes_a_thread) / mean) + 1;
    MappedArray<void *> blocks(count * kThreads);
    Team team(kThreads);
    const size_t before = resident_bytes();
    // The threads take turns block by block, so that their blocks lie mixed.
    team.run([&](unsigned index) {
        for (size_t i = index; i < blocks.size(); i += kThreads) {
            const size_t size = sizes[i];
            blocks[i] = checked(malloc(size));
            memset(blocks[i], 1, size);
        }
    });
    run.figure("filled_kib", kib_above(before), "KiB");
    team.run([&](unsigned index) {
        for (size_t i = index; i < blocks.size(); i += kThreads) {
            free(blocks[i]);
        }
    });
    run.figure("freed_kib", kib_above(before), "KiB");
    ordinary_activity(kActivityNs);
    run.figure("after_2s_kib", kib_above(before), "KiB");
    run.figure("trim_ms", time_ns([] { trim(); }) / 1e6, "ms");
    run.figure("after_trim_kib", kib_above(before), "KiB");
}

void report_given(Run &run, size_t before)
{
    run.figure("after_2s_kib", kib_above(before), "KiB");
    run.figure("trim_ms", time_ns([] { trim(); }) / 1e6, "ms");
    run.figure("after_trim_kib", kib_above(before), "KiB");
}

constexpr size_t kSmallLow = 16, kSmallHigh = 4 * kKiB;

// Blocks of `bytes` in all, filled, from `first` on; the place behind the last.
size_t fill(MappedArray<void *> &blocks, size_t first, size_t bytes, uint64_t seed)
{
    Random random(seed);
    for (size_t made = 0; made < bytes && first < blocks.size(); first++) {
        const size_t size = random.between(kSmallLow, kSmallHigh);
        blocks[first] = checked(malloc(size));
        memset(blocks[first], 1, size);
        made += size;
    }
    return first;
}

void producer_idle(Run &run)
{
    const size_t bytes = run.scaled(256 * kMiB);
    MappedArray<void *> blocks(bytes / kSmallHigh * 4 + 64);
    Team team(2); // the first is idle, the second frees
    const size_t before = resident_bytes();
    size_t count = 0;
    team.run([&](unsigned index) {
        if (index == 0) {
            count = fill(blocks, 0, bytes, 1);
        }
    });
    run.figure("filled_kib", kib_above(before), "KiB");
    team.run([&](unsigned index) {
        if (index == 1) {
            for (size_t i = 0; i < count; i++) {
                free(blocks[i]);
            }
            ordinary_activity(kActivityNs);
        }
    });
    report_given(run, before);
}

void all_idle(Run &run)
{
    constexpr unsigned kIdle = 16;
    const size_t bytes = run.scaled(64 * kMiB / kIdle);
    const size_t most = bytes / kSmallHigh * 4 + 64;
    MappedArray<void *> blocks(most * kIdle);
    Team team(kIdle);
    const size_t before = resident_bytes();
    team.run([&](unsigned index) {
        const size_t end = fill(blocks, index * most, bytes, index + 1);
        for (size_t i = index * most; i < end; i++) {
            free(blocks[i]);
        }
    });
    run.figure("freed_kib", kib_above(before), "KiB");
    const timespec pause = {2, 0};
    nanosleep(&pause, nullptr);
    report_given(run, before);
}

const Workload kRows[] = {
    {"returned", "memory", "512 MiB freed by 4 threads: kept after 2 s", "", "after_2s_kib", 1024,
     returned},
    {"producer-idle", "memory", "256 MiB freed by another thread: kept after 2 s", "",
     "after_2s_kib", 1024, producer_idle},
    {"all-idle", "memory", "64 MiB freed by 16 threads, all idle: kept after a trim", "",
     "after_trim_kib", 512, all_idle},
};

} // namespace

const WorkloadTable kReturned = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
