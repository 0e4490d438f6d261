// Memory that is released while the threads that it belonged to stay alive and idle: the resident
// part after two seconds, and after the heap was requested to release all it can.
//
// returned          four threads free 512 MiB of mixed blocks; another one does ordinary work
// returned-asleep   four threads free 512 MiB; then no thread does anything
// producer-idle     a thread makes 256 MiB of small blocks; another one frees them, then works
// producer-idle-8   a thread makes 64 MiB of 8-byte blocks; another one frees them, then works
// all-idle          16 threads make and free 64 MiB of small blocks; then no thread does anything
// second-trim       a trim of a heap that did not change since the last one
// shrink-1g         realloc of a block of 1 GiB to 800 MiB
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

// Calls malloc_trim(0), or the equivalent of the allocator behind malloc, from this thread. An
// allocator without such a function keeps its memory.
// Returns: whether there is one.
bool trim()
{
    Dl_info info;
    if (dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) == 0) {
        return false;
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
    } else {
        return false;
    }
    return true;
}

void sleep_two_seconds()
{
    const timespec pause = {2, 0};
    nanosleep(&pause, nullptr);
}

// Other work of a program: small blocks, a few at a time, with pauses.
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

void report_given(Run &run, size_t before)
{
    run.figure("after_2s_kib", kib_above(before), "KiB");
    run.figure("trim_ms", time_ns([] { trim(); }) / 1e6, "ms");
    run.figure("after_trim_kib", kib_above(before), "KiB");
}

template <bool asleep> void returned(Run &run)
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
    // The threads take turns block by block, so that their blocks are mixed.
    team.run([&](unsigned index) {
        for (size_t i = index; i < blocks.size(); i += kThreads) {
            const size_t size = sizes[i];
            blocks[i] = checked(malloc(size));
            memset(blocks[i], 1, size);
        }
    });
    run.figure("filled_kib", kib_above(before), "KiB");
    const double spent_ns = team.run([&](unsigned index) {
        for (size_t i = index; i < blocks.size(); i += kThreads) {
            free(blocks[i]);
        }
    });
    run.figure("free_ns", spent_ns / static_cast<double>(blocks.size()), "ns");
    run.figure("freed_kib", kib_above(before), "KiB");
    if (asleep) {
        sleep_two_seconds();
    } else {
        ordinary_activity(kActivityNs);
    }
    report_given(run, before);
}

constexpr size_t kSmallLow = 16, kSmallHigh = 4 * kKiB;

// Makes and fills blocks of `bytes` in total, from index `first` on.
// Returns: the index behind the last.
size_t fill(MappedArray<void *> &blocks, size_t first, size_t bytes, uint64_t seed,
            size_t low = kSmallLow, size_t high = kSmallHigh)
{
    Random random(seed);
    for (size_t made = 0; made < bytes && first < blocks.size(); first++) {
        const size_t size = random.between(low, high);
        blocks[first] = checked(malloc(size));
        memset(blocks[first], 1, size);
        made += size;
    }
    return first;
}

template <size_t mib, size_t low, size_t high> void producer_idle(Run &run)
{
    const size_t bytes = run.scaled(mib * kMiB);
    MappedArray<void *> blocks(bytes / high * 4 + 64);
    Team team(2); // the first is idle, the second frees
    const size_t before = resident_bytes();
    size_t count = 0;
    team.run([&](unsigned index) {
        if (index == 0) {
            count = fill(blocks, 0, bytes, 1, low, high);
        }
    });
    run.figure("filled_kib", kib_above(before), "KiB");
    team.run([&](unsigned index) {
        if (index == 1) {
            const double spent_ns = time_ns([&] {
                for (size_t i = 0; i < count; i++) {
                    free(blocks[i]);
                }
            });
            run.figure("free_ns", spent_ns / static_cast<double>(count), "ns");
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
    sleep_two_seconds();
    report_given(run, before);
}

// The heap has free pages before the first trim, and a million live blocks.
void second_trim(Run &run)
{
    MappedArray<void *> blocks(run.scaled(2000000));
    for (void *&block : blocks) {
        block = allocate_touched(100);
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        if (i / 1000 % 2 == 0) {
            free(blocks[i]);
        }
    }
    const double first_ns = time_ns([] { trim(); });
    bool has_trim = false;
    const double second_ns = time_ns([&] { has_trim = trim(); });
    if (has_trim) {
        run.figure("first_us", first_ns / 1000, "us");
        run.figure("second_us", second_ns / 1000, "us");
    } else {
        run.not_available("first_us", "us");
        run.not_available("second_us", "us");
    }
}

void shrink(Run &run)
{
    const size_t from = run.scaled(kGiB), to = run.scaled(800 * kMiB);
    const size_t before = resident_bytes();
    void *block = checked(malloc(from));
    touch_pages(block, from);
    const double spent_ns = time_ns([&] { block = checked(realloc(block, to)); });
    run.figure("realloc_us", spent_ns / 1000, "us");
    run.figure("kept_kib", kib_above(before), "KiB");
    free(block);
}

const Workload kRows[] = {
    {"returned", "memory", "512 MiB freed by 4 threads: kept after 2 s", "", "after_2s_kib", 1024,
     returned<false>},
    {"returned-asleep", "memory", "512 MiB freed by 4 threads, all sleep: kept", "free_ns",
     "after_2s_kib", 1024, returned<true>},
    {"producer-idle", "memory", "256 MiB freed by another thread: kept after 2 s", "",
     "after_2s_kib", 1024, producer_idle<256, kSmallLow, kSmallHigh>},
    {"producer-idle-8", "memory", "64 MiB of 8-byte blocks freed by another thread", "free_ns",
     "after_trim_kib", 1024, producer_idle<64, 8, 8>},
    {"all-idle", "memory", "64 MiB freed by 16 threads, all idle: kept after a trim", "",
     "after_trim_kib", 512, all_idle},
    {"second-trim", "memory", "second trim, a million live blocks", "second_us", "peak_rss", 512,
     second_trim},
    {"shrink-1g", "memory", "realloc of 1 GiB to 800 MiB: kept", "realloc_us", "kept_kib", 2100,
     shrink},
};

} // namespace

const WorkloadTable kReturned = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
