// The goals of the region allocators: TLSF in 64 MiB with blocks of 16 to 4096 bytes, the fixed
// region of 1 MiB, and the pool of objects, compared with the C library's malloc where that can do
// the work.
//
// build/release/bench/cairn-region-bench --benchmark_repetitions=9 --benchmark_format=json
//
// On a shared machine the least of the repetitions is the figure, since load only adds. "ns" is the
// time of one operation, an allocation or a free, including the loop; "least_ns" is that of the
// fastest batch of 8000 operations, a third of a millisecond that other load may not have
// disturbed.
#include <benchmark/benchmark.h>
#include <cairn/pool.h>
#include <cairn/tlsf.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace
{

constexpr size_t kMiB = 1 << 20;
constexpr size_t kHeap = 64 * kMiB;
constexpr size_t kLeast = 16;
constexpr size_t kMost = 4096;

class Random
{
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    size_t below(size_t limit)
    {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<size_t>((state_ >> 33) * limit >> 31);
    }
    size_t size() { return kLeast + below(kMost - kLeast + 1); }

  private:
    uint64_t state_;
};

void per_operation(benchmark::State &state, double operations)
{
    state.counters["ns"] =
        benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate |
                                                  benchmark::Counter::kInvert);
}

double seconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// 64 MiB of touched memory, aligned to huge pages, and with them on request.
class Memory
{
  public:
    explicit Memory(bool huge = false)
    {
        mapping_ = mmap(nullptr, kHeap + 2 * kMiB, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const auto address = reinterpret_cast<uintptr_t>(mapping_);
        start_ = reinterpret_cast<char *>((address + 2 * kMiB - 1) & ~(2 * kMiB - 1));
        madvise(start_, kHeap, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        memset(start_, 1, kHeap);
    }
    ~Memory() { munmap(mapping_, kHeap + 2 * kMiB); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    cairn_tlsf *heap() { return cairn_tlsf_init(start_, kHeap); }

  private:
    void *mapping_;
    char *start_;
};

double least(const std::vector<double> &values)
{
    return *std::min_element(values.begin(), values.end());
}

struct Tlsf {
    cairn_tlsf *heap;
    void *alloc(size_t size) const { return cairn_tlsf_alloc(heap, size); }
    void free(void *block) const { cairn_tlsf_free(heap, block); }
};

struct Libc {
    void *alloc(size_t size) const { return malloc(size); }
    void free(void *block) const { ::free(block); }
};

// Allocates nothing: the cost of the measurement alone.
struct Nothing {
    void *alloc(size_t size) const { return reinterpret_cast<void *>(size); }
    void free(void *) const {}
};

// A given percentage of the heap is live: a random block is freed and one of a random size
// allocated.
template <class Heap> void steady(benchmark::State &state, Heap heap)
{
    constexpr size_t kSteps = 4000;
    Random random(5);
    std::vector<void *> blocks;
    const size_t goal = kHeap / 100 * static_cast<size_t>(state.range(0));
    for (size_t live = 0; live < goal; live += kMost / 2)
        blocks.push_back(heap.alloc(random.size()));
    std::vector<std::pair<uint32_t, uint32_t>> steps(kSteps);
    double least_seconds = 1;
    for (auto _ : state) {
        for (auto &step : steps)
            step = {static_cast<uint32_t>(random.below(blocks.size())),
                    static_cast<uint32_t>(random.size())};
        const double from = seconds();
        for (const auto &step : steps) {
            heap.free(blocks[step.first]);
            blocks[step.first] = heap.alloc(step.second);
        }
        const double passed = seconds() - from;
        state.SetIterationTime(passed);
        least_seconds = std::min(least_seconds, passed);
    }
    for (void *block : blocks)
        heap.free(block);
    per_operation(state, 2 * kSteps);
    state.counters["least_ns"] = least_seconds * 1e9 / (2 * kSteps);
}

void TlsfSteady(benchmark::State &state)
{
    Memory memory(state.range(1) != 0);
    steady(state, Tlsf{memory.heap()});
}
void LibcSteady(benchmark::State &state) { steady(state, Libc{}); }
BENCHMARK(TlsfSteady)
    ->ArgNames({"percent", "huge"})
    ->ArgsProduct({{50, 75, 90}, {0, 1}})
    ->UseManualTime();
BENCHMARK(LibcSteady)->ArgName("percent")->Arg(50)->Arg(75)->Arg(90)->UseManualTime();

// The cost of the steps above for the processor and the memory alone. free has to read the header
// of its block, then that of the block behind, whose address follows from the size in the first,
// and branches on both; alloc reads the header of a free block, and so on. All are cold lines with
// unpredictable content, so the processor waits for them.
void SteadyLimit(benchmark::State &state)
{
    constexpr size_t kSteps = 4000;
    Memory memory(state.range(1) != 0);
    const Tlsf heap{memory.heap()};
    Random random(5);
    std::vector<char *> blocks; // each begins with its size
    const size_t goal = kHeap / 100 * static_cast<size_t>(state.range(0));
    for (size_t live = 0; live < goal; live += kMost / 2) {
        const size_t size = random.size();
        blocks.push_back(static_cast<char *>(heap.alloc(size)));
        memcpy(blocks.back(), &size, sizeof size);
    }
    std::vector<std::pair<uint32_t, uint32_t>> steps(kSteps);
    double least_seconds = 1;
    for (auto _ : state) {
        for (auto &step : steps)
            step = {static_cast<uint32_t>(random.below(blocks.size())),
                    static_cast<uint32_t>(random.below(blocks.size()))};
        const double from = seconds();
        for (const auto &step : steps) {
            size_t size;
            memcpy(&size, blocks[step.first], sizeof size);
            if (blocks[step.first][size] & 1)
                benchmark::ClobberMemory();
            else
                benchmark::DoNotOptimize(size);
            if (*blocks[step.second] & 1)
                benchmark::ClobberMemory();
            else
                benchmark::DoNotOptimize(size);
        }
        const double passed = seconds() - from;
        state.SetIterationTime(passed);
        least_seconds = std::min(least_seconds, passed);
    }
    per_operation(state, 2 * kSteps);
    state.counters["least_ns"] = least_seconds * 1e9 / (2 * kSteps);
}
BENCHMARK(SteadyLimit)
    ->ArgNames({"percent", "huge"})
    ->ArgsProduct({{50, 90}, {0, 1}})
    ->UseManualTime();

uint64_t ticks()
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#endif
}

double ticks_per_ns()
{
    const double start = seconds();
    const uint64_t from = ticks();
    double passed;
    do
        passed = seconds() - start;
    while (passed < 0.02);
    return static_cast<double>(ticks() - from) / (passed * 1e9);
}

// Each operation is timed by itself. The cost of the counter, about 10 ns, is in the figures.
template <class Heap> void latency(benchmark::State &state, Heap heap)
{
    constexpr size_t kOperations = 1000000;
    const double scale = 1 / ticks_per_ns();
    Random random(7);
    std::vector<void *> blocks(24000);
    std::vector<double> times(kOperations);
    for (auto _ : state) {
        for (double &time : times) {
            void *&block = blocks[random.below(blocks.size())];
            const size_t size = random.size();
            const uint64_t from = ticks();
            if (block) {
                heap.free(block);
                block = nullptr;
            } else {
                block = heap.alloc(size);
            }
            time = static_cast<double>(ticks() - from) * scale;
        }
    }
    std::sort(times.begin(), times.end());
    state.counters["p50_ns"] = times[kOperations / 2];
    state.counters["p99_ns"] = times[kOperations / 100 * 99];
    state.counters["p999_ns"] = times[kOperations / 1000 * 999];
}

void TlsfLatency(benchmark::State &state)
{
    Memory memory(state.range(0) != 0);
    latency(state, Tlsf{memory.heap()});
}
void LibcLatency(benchmark::State &state) { latency(state, Libc{}); }
void TimerLatency(benchmark::State &state) { latency(state, Nothing{}); }
BENCHMARK(TlsfLatency)
    ->ArgName("huge")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(1)
    ->ComputeStatistics("min", least);
BENCHMARK(LibcLatency)->Iterations(1)->ComputeStatistics("min", least);
BENCHMARK(TimerLatency)->Iterations(1)->ComputeStatistics("min", least);

struct Block {
    void *start;
    size_t size;
};

// The requested bytes at the first failed request, in percent of the heap: by filling alone, and
// while two of five steps free a random block.
void TlsfUntilFailure(benchmark::State &state)
{
    Memory memory;
    double sum = 0;
    for (auto _ : state) {
        for (uint64_t seed = 1; seed <= 5; seed++) {
            Random random(seed);
            cairn_tlsf *heap = memory.heap();
            std::vector<Block> blocks;
            size_t live = 0;
            for (;;) {
                if (state.range(0) != 0 && !blocks.empty() && random.below(5) < 2) {
                    std::swap(blocks[random.below(blocks.size())], blocks.back());
                    cairn_tlsf_free(heap, blocks.back().start);
                    live -= blocks.back().size;
                    blocks.pop_back();
                    continue;
                }
                const size_t size = random.size();
                void *block = cairn_tlsf_alloc(heap, size);
                if (!block)
                    break;
                blocks.push_back({block, size});
                live += size;
            }
            sum += 100.0 * static_cast<double>(live) / kHeap;
        }
    }
    state.counters["percent"] = sum / 5;
}
BENCHMARK(TlsfUntilFailure)->ArgName("churn")->Arg(0)->Arg(1)->Iterations(1);

// The heap is full, every other block at random is freed, then the sizes change: the percentage of
// the freed memory that serves the new blocks.
void TlsfShift(benchmark::State &state)
{
    Memory memory;
    double sum = 0;
    const auto low = static_cast<size_t>(state.range(0));
    const auto high = static_cast<size_t>(state.range(1));
    for (auto _ : state) {
        for (uint64_t seed = 1; seed <= 5; seed++) {
            Random random(seed);
            cairn_tlsf *heap = memory.heap();
            std::vector<Block> blocks;
            for (;;) {
                const size_t size = random.size();
                void *block = cairn_tlsf_alloc(heap, size);
                if (!block)
                    break;
                blocks.push_back({block, size});
            }
            size_t freed = 0;
            for (const Block &block : blocks) {
                if (random.below(2)) {
                    cairn_tlsf_free(heap, block.start);
                    freed += block.size;
                }
            }
            size_t regained = 0;
            for (;;) {
                const size_t size = low + random.below(high - low + 1);
                if (!cairn_tlsf_alloc(heap, size))
                    break;
                regained += size;
            }
            sum += 100.0 * static_cast<double>(regained) / static_cast<double>(freed);
        }
    }
    state.counters["percent"] = sum / 5;
}
BENCHMARK(TlsfShift)
    ->ArgNames({"from", "to"})
    ->Args({16, 4096})
    ->Args({2048, 4096})
    ->Args({3000, 8192})
    ->Args({4096, 8192})
    ->Iterations(1);

// The workloads of a public 1 MiB pool: cycles of one size, of mixed sizes, and 1000 blocks at a
// time that are freed in their order and in reverse.
template <class Heap> void fixed_pool(benchmark::State &state, Heap heap)
{
    constexpr size_t kBlocks = 1000;
    std::vector<void *> blocks(kBlocks);
    Random random(9);
    for (auto _ : state) {
        switch (state.range(0)) {
        case 0:
        case 1:
            for (size_t i = 0; i < kBlocks; i++) {
                void *block = heap.alloc(state.range(0) == 0 ? 4 : 8 + random.below(505));
                benchmark::DoNotOptimize(block);
                heap.free(block);
            }
            break;
        case 2:
            for (void *&block : blocks)
                block = heap.alloc(64);
            for (void *block : blocks)
                heap.free(block);
            break;
        case 3:
            for (void *&block : blocks)
                block = heap.alloc(64);
            for (size_t i = kBlocks; i > 0; i--)
                heap.free(blocks[i - 1]);
            break;
        }
    }
    static const char *const names[] = {"4 bytes", "8 to 512 bytes", "bulk", "bulk, reverse"};
    state.SetLabel(names[state.range(0)]);
    per_operation(state, 2 * kBlocks);
}

void TlsfFixedPool(benchmark::State &state)
{
    cairn_tlsf *heap = cairn_tlsf_new(0);
    fixed_pool(state, Tlsf{heap});
    cairn_tlsf_delete(heap);
}
void LibcFixedPool(benchmark::State &state) { fixed_pool(state, Libc{}); }
BENCHMARK(TlsfFixedPool)->ArgName("kind")->DenseRange(0, 3);
BENCHMARK(LibcFixedPool)->ArgName("kind")->DenseRange(0, 3);

// A given number of objects of 48 bytes is got, then put; "pair" is one get and one put.
template <class Get, class Put> void pairs(benchmark::State &state, Get get, Put put)
{
    const auto count = static_cast<size_t>(state.range(0));
    std::vector<void *> objects(count);
    for (auto _ : state) {
        if (count == 1) {
            void *object = get();
            benchmark::DoNotOptimize(object);
            put(object);
        } else {
            for (void *&object : objects)
                object = get();
            for (void *object : objects)
                put(object);
        }
    }
    state.counters["ns/pair"] = benchmark::Counter(static_cast<double>(count) * 1e-9,
                                                   benchmark::Counter::kIsIterationInvariantRate |
                                                       benchmark::Counter::kInvert);
}

void Pool(benchmark::State &state)
{
    cairn_pool *pool = cairn_pool_new(48, 16, nullptr);
    pairs(
        state, [=] { return cairn_pool_get(pool); },
        [=](void *object) { cairn_pool_put(pool, object); });
    cairn_pool_delete(pool);
}

void PoolShared(benchmark::State &state)
{
    cairn_pool_options options = {};
    options.shared = true;
    cairn_pool *pool = cairn_pool_new(48, 16, &options);
    pairs(
        state, [=] { return cairn_pool_get(pool); },
        [=](void *object) { cairn_pool_put(pool, object); });
    cairn_pool_delete(pool);
}

void PoolMagazine(benchmark::State &state)
{
    cairn_pool_options options = {};
    options.shared = true;
    cairn_pool *pool = cairn_pool_new(48, 16, &options);
    cairn_pool_magazine *magazine = cairn_pool_attach(pool);
    pairs(
        state, [=] { return cairn_pool_magazine_get(magazine); },
        [=](void *object) { cairn_pool_magazine_put(magazine, object); });
    cairn_pool_detach(magazine);
    cairn_pool_delete(pool);
}

void LibcPairs(benchmark::State &state)
{
    pairs(
        state, [] { return malloc(48); }, [](void *object) { free(object); });
}

// Many objects of 8 bytes are got, then put in their order, after a first round.
template <class Get, class Put> void bulk(benchmark::State &state, Get get, Put put)
{
    std::vector<void *> objects(static_cast<size_t>(state.range(0)));
    double get_seconds = 0, put_seconds = 0;
    bool counted = false;
    for (auto _ : state) {
        do {
            const double start = seconds();
            for (void *&object : objects)
                object = get();
            const double middle = seconds();
            for (void *object : objects)
                put(object);
            get_seconds = middle - start;
            put_seconds = seconds() - middle;
        } while (!std::exchange(counted, true));
        state.SetIterationTime(get_seconds + put_seconds);
    }
    const auto count = static_cast<double>(objects.size());
    state.counters["get_ns"] = get_seconds * 1e9 / count;
    state.counters["pair_ns"] = (get_seconds + put_seconds) * 1e9 / count;
}

void PoolBulk(benchmark::State &state)
{
    cairn_pool *pool = cairn_pool_new(8, 8, nullptr);
    bulk(
        state, [=] { return cairn_pool_get(pool); },
        [=](void *object) { cairn_pool_put(pool, object); });
    cairn_pool_delete(pool);
}
void LibcBulk(benchmark::State &state)
{
    bulk(
        state, [] { return malloc(8); }, [](void *object) { free(object); });
}
BENCHMARK(PoolBulk)->ArgName("objects")->Arg(20000000)->Iterations(2)->UseManualTime();
BENCHMARK(LibcBulk)->ArgName("objects")->Arg(20000000)->Iterations(2)->UseManualTime();

BENCHMARK(Pool)->ArgName("objects")->Arg(1)->Arg(100)->Arg(10000);
BENCHMARK(PoolShared)->ArgName("objects")->Arg(1)->Arg(100)->Arg(10000);
BENCHMARK(PoolMagazine)->ArgName("objects")->Arg(1)->Arg(100)->Arg(10000);
BENCHMARK(LibcPairs)->ArgName("objects")->Arg(1)->Arg(100)->Arg(10000);

} // namespace

BENCHMARK_MAIN();
