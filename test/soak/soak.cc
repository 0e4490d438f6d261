// Soak: many threads of mixed load over all entry points for as long as wanted, on the shadow model
// with its hashes; the resident memory is sampled along the way and has to stay flat.
//
// usage: soak [THREADS] [SECONDS] [GROWTH]      64 lanes, 10 seconds, 5 % when not given
//
// Each of the lanes is a row of short-lived threads, and all free each other's blocks; THREADS run
// at a time. Prints a line a sample: seconds, resident KiB, live KiB (as the heap counts them),
// then the fit. Fails when the mean of the last quarter of the samples is more than GROWTH per cent
// above that of the second (the first is for warming up), a block is not what it was, or something
// is left at the end.

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "model/threads.h"

extern "C" {
#include "heap/heap.h"
#include "heap/refill.h"
}

namespace
{

using model::kKiB;
using model::kMiB;
using model::Lanes;
using model::Shadow;

struct Sample {
    double seconds;
    double resident_kib;
};

double resident_kib()
{
    unsigned long size = 0;
    unsigned long resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == nullptr || fscanf(file, "%lu %lu", &size, &resident) != 2)
        abort();
    fclose(file);
    return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / kKiB;
}

double seconds_since(std::chrono::steady_clock::time_point start)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<Sample> sample_for(double seconds)
{
    const auto start = std::chrono::steady_clock::now();
    std::vector<Sample> samples;
    const double step = std::max(seconds / 120, 0.05);
    printf("%10s %12s %12s\n", "seconds", "resident KiB", "live KiB");
    for (double now = 0; now < seconds; now = seconds_since(start)) {
        samples.push_back({now, resident_kib()});
        const struct cairn_mallinfo2 info = cairn_mallinfo2();
        printf("%10.1f %12.0f %12zu\n", now, samples.back().resident_kib,
               (info.uordblks + info.hblkhd) / kKiB);
        fflush(stdout);
        usleep(static_cast<useconds_t>(step * 1e6));
    }
    return samples;
}

double mean(const std::vector<Sample> &samples, size_t from, size_t to)
{
    double sum = 0;
    for (size_t i = from; i < to; i++)
        sum += samples[i].resident_kib;
    return sum / static_cast<double>(to - from);
}

// Least squares over the samples from `from` on: KiB a second.
double slope(const std::vector<Sample> &samples, size_t from)
{
    const double count = static_cast<double>(samples.size() - from);
    double x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = from; i < samples.size(); i++) {
        x += samples[i].seconds;
        y += samples[i].resident_kib;
        xx += samples[i].seconds * samples[i].seconds;
        xy += samples[i].seconds * samples[i].resident_kib;
    }
    return (count * xy - x * y) / (count * xx - x * x);
}

bool is_flat(const std::vector<Sample> &samples, double growth_most)
{
    const size_t quarter = samples.size() / 4;
    if (quarter == 0)
        return false;
    const double second = mean(samples, quarter, 2 * quarter);
    const double last = mean(samples, samples.size() - quarter, samples.size());
    const double growth = (last / second - 1) * 100;
    printf("resident: second quarter %.0f KiB, last quarter %.0f KiB, growth %+.2f %% (at most "
           "%.2f); fit after the first quarter %+.2f KiB/s\n",
           second, last, growth, growth_most, slope(samples, quarter));
    return growth <= growth_most;
}

// After the last thread's end: all blocks are whole, none over another, all can be freed.
bool finish(Lanes &lanes)
{
    Shadow all(1, 1 << 16, SIZE_MAX);
    lanes.collect(all);
    all.check_all();
    const size_t count = all.blocks().size();
    all.release_all();
    cairn_malloc_trim(0);
    heap_verify_all();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        heap_verify(heap);
    const struct cairn_mallinfo2 info = cairn_mallinfo2();
    printf("threads %zu, blocks handed over %zu, checked at the end %zu; left %zu bytes; resident "
           "%.0f KiB\n",
           lanes.threads_run(), lanes.handed_over(), count, info.uordblks + info.hblkhd,
           resident_kib());
    return info.uordblks + info.hblkhd == 0;
}

} // namespace

int main(int argc, char **argv)
{
    const size_t threads = argc > 1 ? strtoull(argv[1], nullptr, 10) : 64;
    const unsigned seconds = argc > 2 ? static_cast<unsigned>(atoi(argv[2])) : 10;
    const double growth_most = argc > 3 ? atof(argv[3]) : 5;
    if (threads == 0 || threads > 1000 || seconds == 0) {
        fprintf(stderr, "usage: soak [THREADS] [SECONDS] [GROWTH]\n");
        return 2;
    }
    Lanes lanes(seconds, threads, 300, 4 * kMiB, seconds);
    lanes.start(SIZE_MAX, 2000);
    const std::vector<Sample> samples = sample_for(seconds);
    lanes.join();
    const bool clean = finish(lanes);
    const bool flat = is_flat(samples, growth_most);
    printf("%s\n", clean && flat ? "soak: clean" : "soak: FAILED");
    return clean && flat ? 0 : 1;
}
