// Pages: a cached run is mapped and unmapped, compared with the system's mmap and munmap.
//
// build/release/bench/cairn-pages-bench --benchmark_repetitions=9
//     --benchmark_report_aggregates_only=true
//
// The argument is the number of pages of the run. "touched" writes a byte of each page, like a user
// of the run: memory from mmap then costs a fault a page, and memory from the cache is already
// resident.
#include <benchmark/benchmark.h>
#include <cairn/pages.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

namespace
{

constexpr size_t kPage = 4096;

double least(const std::vector<double> &values)
{
    return *std::min_element(values.begin(), values.end());
}

template <class Map, class Unmap> void pairs(benchmark::State &state, Map map, Unmap unmap)
{
    const size_t size = static_cast<size_t>(state.range(0)) * kPage;
    const bool touched = state.range(1) != 0;
    for (auto _ : state) {
        auto *run = static_cast<volatile char *>(map(size));
        for (size_t at = 0; touched && at < size; at += kPage)
            run[at] = 1;
        unmap(const_cast<char *>(run), size);
    }
}

void Pages(benchmark::State &state)
{
    pairs(
        state, [](size_t size) { return cairn_pages_map(size, kPage, 0); }, cairn_pages_unmap);
}

void Mmap(benchmark::State &state)
{
    pairs(
        state,
        [](size_t size) {
            return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        },
        munmap);
}

void arguments(benchmark::internal::Benchmark *bench)
{
    bench->ArgNames({"pages", "touched"})->ArgsProduct({{1, 16}, {0, 1}});
    bench->ComputeStatistics("min", least);
}
BENCHMARK(Pages)->Apply(arguments);
BENCHMARK(Pages)->Name("PagesOnFourThreads")->Apply(arguments)->Threads(4);
BENCHMARK(Mmap)->Apply(arguments);

} // namespace

BENCHMARK_MAIN();
