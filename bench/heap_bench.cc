// Micro-benchmarks of each fast path of the heap, with Google Benchmark. The cases are built into
// two programs: cairn-bench-api calls the cairn_ names of libcairn, cairn-bench-libc those of libc,
// which are the system's or those of a preloaded library (BENCH_API_LIBC chooses at compile time).
#include <benchmark/benchmark.h>

#include <atomic>
#include <new>
#include <stdint.h>
#include <stdlib.h>
#include <thread>
#include <vector>

#if !BENCH_API_LIBC
#include "cairn/heap.h"
#endif

namespace
{

#if BENCH_API_LIBC
void *api_malloc(size_t size) { return malloc(size); }
void *api_calloc(size_t size) { return calloc(1, size); }
void *api_realloc(void *block, size_t size) { return realloc(block, size); }
void api_free(void *block) { free(block); }
// Before C23, the sized free of libc's side is that of C++.
void *api_new(size_t size) { return operator new(size); }
void api_free_sized(void *block, size_t size) { operator delete(block, size); }
#else
void *api_malloc(size_t size) { return cairn_malloc(size); }
void *api_calloc(size_t size) { return cairn_calloc(1, size); }
void *api_realloc(void *block, size_t size) { return cairn_realloc(block, size); }
void api_free(void *block) { cairn_free(block); }
void *api_new(size_t size) { return cairn_malloc(size); }
void api_free_sized(void *block, size_t size) { cairn_free_sized(block, size); }
#endif

size_t size_of(const benchmark::State &state) { return static_cast<size_t>(state.range(0)); }

void *use(void *block)
{
    benchmark::DoNotOptimize(block);
    *static_cast<volatile char *>(block) = 1;
    return block;
}

void malloc_free(benchmark::State &state)
{
    const size_t size = size_of(state);
    for (auto _ : state) {
        api_free(use(api_malloc(size)));
    }
}
BENCHMARK(malloc_free)->Arg(8)->Arg(16)->Arg(64)->Arg(256)->Arg(1024)->Arg(4096);
BENCHMARK(malloc_free)->Arg(32 << 10)->Arg(256 << 10)->Arg(4 << 20);

void calloc_free(benchmark::State &state)
{
    const size_t size = size_of(state);
    for (auto _ : state) {
        api_free(use(api_calloc(size)));
    }
}
BENCHMARK(calloc_free)->Arg(16)->Arg(256)->Arg(4096)->Arg(256 << 10);

void new_delete_sized(benchmark::State &state)
{
    const size_t size = size_of(state);
    for (auto _ : state) {
        api_free_sized(use(api_new(size)), size);
    }
}
BENCHMARK(new_delete_sized)->Arg(16)->Arg(64)->Arg(1024);

// A thousand blocks before the first is freed: more than a cache of recent blocks holds.
void malloc_free_1000(benchmark::State &state)
{
    const size_t size = size_of(state);
    std::vector<void *> blocks(1000);
    for (auto _ : state) {
        for (void *&block : blocks) {
            block = use(api_malloc(size));
        }
        for (void *block : blocks) {
            api_free(block);
        }
    }
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(blocks.size()));
}
BENCHMARK(malloc_free_1000)->Arg(8)->Arg(64)->Arg(512)->Arg(4096);

void realloc_in_place(benchmark::State &state)
{
    void *block = use(api_malloc(100));
    size_t size = 100;
    for (auto _ : state) {
        size ^= 1; // 100 and 101 bytes are one class in every heap
        block = use(api_realloc(block, size));
    }
    api_free(block);
}
BENCHMARK(realloc_in_place);

// Doubles a block from 64 bytes to the size, and frees it.
void realloc_doubling(benchmark::State &state)
{
    const size_t last = size_of(state);
    for (auto _ : state) {
        void *block = nullptr;
        for (size_t size = 64; size <= last; size *= 2) {
            block = use(api_realloc(block, size));
        }
        api_free(block);
    }
}
BENCHMARK(realloc_doubling)->Arg(4 << 10)->Arg(1 << 20);

// A batch is given to a second thread, which frees it while this one waits: the time per block is
// that of the free by another thread, and the allocation is not timed.
class Helper
{
  public:
    explicit Helper(std::vector<void *> &blocks) : blocks_(blocks), thread_([this] { live(); }) {}

    ~Helper()
    {
        order_.store(kStop, std::memory_order_release);
        thread_.join();
    }

    void free_all()
    {
        order_.store(kFree, std::memory_order_release);
        while (order_.load(std::memory_order_acquire) != kIdle) {
            std::this_thread::yield();
        }
    }

  private:
    enum Order { kIdle, kFree, kStop };

    void live()
    {
        for (;;) {
            const Order order = order_.load(std::memory_order_acquire);
            if (order == kStop) {
                return;
            }
            if (order == kIdle) {
                std::this_thread::yield();
                continue;
            }
            for (void *block : blocks_) {
                api_free(block);
            }
            order_.store(kIdle, std::memory_order_release);
        }
    }

    std::vector<void *> &blocks_;
    std::atomic<Order> order_{kIdle};
    std::thread thread_;
};

void remote_free(benchmark::State &state)
{
    const size_t size = size_of(state);
    std::vector<void *> blocks(10000);
    Helper helper(blocks);
    for (auto _ : state) {
        state.PauseTiming();
        for (void *&block : blocks) {
            block = use(api_malloc(size));
        }
        state.ResumeTiming();
        helper.free_all();
    }
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(blocks.size()));
}
BENCHMARK(remote_free)->Arg(16)->Arg(64)->Arg(1024)->UseRealTime();

} // namespace

BENCHMARK_MAIN();
