// The goals of the frame allocators, in nanoseconds an operation, compared with the C library's
// malloc.
//
// build/release/bench/cairn-frame-bench --benchmark_repetitions=9
//     --benchmark_report_aggregates_only=true
//
// On a machine with other load, the row "min" of the repetitions is the figure. Malloc… is the C
// library's malloc, or the one in LD_PRELOAD.
//
// The lists are those of a public comparison of allocators (write-up B of the project's notes): 100
// million nodes of 8 bytes, built and freed. Rounds are warm: the first round, which has the page
// faults, is not timed here; `Cold` is one round of its own. "rss/payload" is the growth of the
// resident set while the list lives, divided by the bytes of the list. …Limit is the work without
// an allocator: the lower bound of the processor.
#include <benchmark/benchmark.h>
#include <cairn/fifo.h>
#include <cairn/ring.h>
#include <cairn/scope.h>
#include <cairn/stack.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace
{

constexpr size_t kNodes = 100'000'000;

struct Node {
    Node *next;
};

size_t resident_bytes()
{
    unsigned long size = 0, resident = 0;
    if (FILE *file = fopen("/proc/self/statm", "r")) {
        if (fscanf(file, "%lu %lu", &size, &resident) != 2)
            resident = 0;
        fclose(file);
    }
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void per_node(benchmark::State &state, size_t nodes)
{
    state.counters["ns/node"] = benchmark::Counter(static_cast<double>(nodes) * 1e-9,
                                                   benchmark::Counter::kIsIterationInvariantRate |
                                                       benchmark::Counter::kInvert);
}

double least(const std::vector<double> &values)
{
    return *std::min_element(values.begin(), values.end());
}

#define BENCH(function) BENCHMARK(function)->ComputeStatistics("min", least)

Node *build_on(cairn_stack *stack, size_t nodes)
{
    Node *list = nullptr;
    for (size_t i = 0; i < nodes; i++) {
        auto *node = static_cast<Node *>(cairn_stack_alloc(stack, sizeof(Node), alignof(Node)));
        node->next = list;
        list = node;
    }
    return list;
}

void StackList(benchmark::State &state)
{
    cairn_stack *stack = cairn_stack_new(nullptr);
    size_t before = resident_bytes();
    cairn_mark mark = cairn_stack_push(stack);
    build_on(stack, kNodes);
    double grown = static_cast<double>(resident_bytes() - before);
    cairn_stack_pop(stack, mark);
    for (auto _ : state) {
        mark = cairn_stack_push(stack);
        benchmark::DoNotOptimize(build_on(stack, kNodes));
        cairn_stack_pop(stack, mark);
    }
    cairn_stack_trim(stack, 0);
    state.counters["rss/payload"] = grown / static_cast<double>(kNodes * sizeof(Node));
    state.counters["left_MiB"] =
        (static_cast<double>(resident_bytes()) - static_cast<double>(before)) / 1048576;
    per_node(state, kNodes);
    cairn_stack_delete(stack);
}
BENCH(StackList)->Unit(benchmark::kMillisecond)->MinTime(1);

void StackListCold(benchmark::State &state)
{
    for (auto _ : state) {
        cairn_stack *stack = cairn_stack_new(nullptr);
        benchmark::DoNotOptimize(build_on(stack, kNodes));
        cairn_stack_delete(stack);
    }
    per_node(state, kNodes);
}
BENCH(StackListCold)->Unit(benchmark::kMillisecond)->Iterations(1);

void StackPushPop(benchmark::State &state)
{
    cairn_stack *stack = cairn_stack_new(nullptr);
    for (auto _ : state) {
        cairn_mark mark = cairn_stack_push(stack);
        benchmark::ClobberMemory();
        cairn_stack_pop(stack, mark);
    }
    cairn_stack_delete(stack);
}
BENCH(StackPushPop);

void ScopeOfNodes(benchmark::State &state)
{
    const auto nodes = static_cast<size_t>(state.range(0));
    for (auto _ : state) {
        t_scope;
        Node *list = nullptr;
        for (size_t i = 0; i < nodes; i++) {
            auto *node = static_cast<Node *>(t_alloc_aligned(sizeof(Node), alignof(Node)));
            node->next = list;
            list = node;
        }
        benchmark::DoNotOptimize(list);
    }
    per_node(state, nodes);
}
BENCH(ScopeOfNodes)->Arg(8)->Arg(64);

// The scope of a function with eight allocations and no loop: the processor often mispredicts the
// end of a loop, which costs more than the eight allocations.
void ScopeOfEight(benchmark::State &state)
{
    for (auto _ : state) {
        t_scope;
        Node *list = nullptr;
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++) {
            auto *node = static_cast<Node *>(t_alloc_aligned(sizeof(Node), alignof(Node)));
            node->next = list;
            list = node;
        }
        benchmark::DoNotOptimize(list);
    }
    per_node(state, 8);
}
BENCH(ScopeOfEight);

// A position in memory that is moved and reset, without limit, frame and check.
void ScopeLimit(benchmark::State &state)
{
    const auto nodes = static_cast<size_t>(state.range(0));
    std::vector<Node> memory(nodes);
    Node *position = memory.data();
    for (auto _ : state) {
        Node *start = position;
        Node *list = nullptr;
        for (size_t i = 0; i < nodes; i++) {
            Node *node = position;
            benchmark::DoNotOptimize(position = node + 1);
            node->next = list;
            list = node;
        }
        benchmark::DoNotOptimize(list);
        benchmark::DoNotOptimize(position = start);
    }
    per_node(state, nodes);
}
BENCH(ScopeLimit)->Arg(8)->Arg(64);

Node *build_on(cairn_fifo *fifo, size_t nodes)
{
    Node *list = nullptr;
    Node **tail = &list;
    for (size_t i = 0; i < nodes; i++) {
        auto *node = static_cast<Node *>(cairn_fifo_alloc(fifo, sizeof(Node), alignof(Node)));
        *tail = node;
        tail = &node->next;
    }
    *tail = nullptr;
    return list;
}

void free_on(cairn_fifo *fifo, Node *list)
{
    while (list) {
        Node *next = list->next;
        cairn_fifo_free(fifo, list);
        list = next;
    }
}

void FifoList(benchmark::State &state)
{
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    size_t before = resident_bytes();
    Node *list = build_on(fifo, kNodes);
    double grown = static_cast<double>(resident_bytes() - before);
    free_on(fifo, list);
    const bool frees = state.range(0) != 0;
    for (auto _ : state) {
        if (frees)
            state.PauseTiming();
        list = build_on(fifo, kNodes);
        benchmark::DoNotOptimize(list);
        if (frees)
            state.ResumeTiming();
        else
            state.PauseTiming();
        free_on(fifo, list);
        if (!frees)
            state.ResumeTiming();
    }
    state.counters["rss/payload"] = grown / static_cast<double>(kNodes * sizeof(Node));
    per_node(state, kNodes);
    cairn_fifo_delete(fifo);
}
BENCH(FifoList)->ArgName("frees")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->MinTime(1);

// Walks the list like the frees above, but frees nothing.
void ListWalkLimit(benchmark::State &state)
{
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    Node *list = build_on(fifo, kNodes);
    for (auto _ : state)
        for (Node *node = list; node; node = node->next)
            benchmark::DoNotOptimize(node);
    per_node(state, kNodes);
    free_on(fifo, list);
    cairn_fifo_delete(fifo);
}
BENCH(ListWalkLimit)->Unit(benchmark::kMillisecond)->MinTime(1);

void FifoListCold(benchmark::State &state)
{
    for (auto _ : state) {
        cairn_fifo *fifo = cairn_fifo_new(nullptr);
        free_on(fifo, build_on(fifo, kNodes));
        cairn_fifo_delete(fifo);
    }
    per_node(state, kNodes);
}
BENCH(FifoListCold)->Unit(benchmark::kMillisecond)->Iterations(1);

void FifoQueue(benchmark::State &state)
{
    const auto depth = static_cast<size_t>(state.range(0));
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    std::vector<void *> queue(depth);
    for (void *&object : queue)
        object = cairn_fifo_alloc(fifo, 8, 8);
    size_t at = 0;
    for (auto _ : state) {
        cairn_fifo_free(fifo, queue[at]);
        queue[at] = cairn_fifo_alloc(fifo, 8, 8);
        at = at + 1 == depth ? 0 : at + 1;
    }
    for (void *object : queue)
        cairn_fifo_free(fifo, object);
    cairn_fifo_delete(fifo);
}
BENCH(FifoQueue)->Arg(1)->Arg(1000);

// The cost of the queue above without an allocator.
void QueueLimit(benchmark::State &state)
{
    const auto depth = static_cast<size_t>(state.range(0));
    std::vector<void *> queue(depth);
    std::vector<void *> blocks(depth);
    size_t at = 0;
    for (auto _ : state) {
        benchmark::DoNotOptimize(queue[at]);
        queue[at] = blocks[at];
        at = at + 1 == depth ? 0 : at + 1;
    }
}
BENCH(QueueLimit)->Arg(1000);

// One object in 4096 outlives the others.
void FifoSurvivors(benchmark::State &state)
{
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    constexpr size_t kObjects = 8'000'000;
    std::vector<void *> window(1000), survivors;
    survivors.reserve(kObjects / 4096 + 1);
    double grown = 0;
    for (auto _ : state) {
        size_t before = resident_bytes();
        for (size_t i = 0; i < kObjects; i++) {
            void *&place = window[i % window.size()];
            cairn_fifo_free(fifo, place);
            place = cairn_fifo_alloc(fifo, 8, 8);
            if (i % 4096 == 0) {
                survivors.push_back(place);
                place = nullptr;
            }
        }
        grown = static_cast<double>(resident_bytes() - before);
        for (void *&object : window) {
            cairn_fifo_free(fifo, object);
            object = nullptr;
        }
        for (void *object : survivors)
            cairn_fifo_free(fifo, object);
        survivors.clear();
        cairn_fifo_trim(fifo, 0);
    }
    state.counters["rss_MiB"] = grown / 1048576;
    per_node(state, kObjects);
    cairn_fifo_delete(fifo);
}
BENCH(FifoSurvivors)->Unit(benchmark::kMillisecond);

Node *build_on(cairn_ring *ring, size_t nodes)
{
    Node *list = nullptr;
    for (size_t i = 0; i < nodes; i++) {
        auto *node = static_cast<Node *>(cairn_ring_alloc(ring, sizeof(Node), alignof(Node)));
        node->next = list;
        list = node;
    }
    return list;
}

void RingFrames(benchmark::State &state)
{
    const auto nodes = static_cast<size_t>(state.range(0));
    cairn_ring *ring = cairn_ring_new(nullptr);
    for (auto _ : state) {
        benchmark::DoNotOptimize(cairn_ring_open(ring));
        benchmark::DoNotOptimize(build_on(ring, nodes));
        cairn_ring_release(cairn_ring_seal(ring));
    }
    per_node(state, nodes);
    cairn_ring_close(ring);
}
BENCH(RingFrames)->Arg(8)->Arg(64);

// One thread makes frames, another walks their lists and releases them. They are handed over
// through an array; each side publishes its position once in 64 frames, so that the hand-over
// itself costs little.
struct Handover {
    static constexpr size_t kPlaces = 4096, kStep = 64;
    cairn_frame frames[kPlaces];
    alignas(64) std::atomic<size_t> made{0};
    alignas(64) std::atomic<size_t> taken{0};
    alignas(64) std::atomic<bool> over{false};
};

void consume(Handover &handover)
{
    size_t at = 0;
    for (;;) {
        size_t end = handover.made.load(std::memory_order_acquire);
        if (at == end) {
            if (handover.over.load(std::memory_order_acquire) && at == handover.made.load())
                return;
            std::this_thread::yield();
            continue;
        }
        for (; at < end; at++)
            cairn_ring_release(handover.frames[at % Handover::kPlaces]);
        handover.taken.store(at, std::memory_order_release);
    }
}

void RingTwoThreads(benchmark::State &state)
{
    const auto nodes = static_cast<size_t>(state.range(0));
    cairn_ring *ring = cairn_ring_new(nullptr);
    auto handover = std::make_unique<Handover>();
    std::thread consumer([&] { consume(*handover); });
    size_t made = 0;
    for (auto _ : state) {
        benchmark::DoNotOptimize(cairn_ring_open(ring));
        benchmark::DoNotOptimize(build_on(ring, nodes));
        handover->frames[made % Handover::kPlaces] = cairn_ring_seal(ring);
        if (++made % Handover::kStep == 0) {
            handover->made.store(made, std::memory_order_release);
            while (made - handover->taken.load(std::memory_order_acquire) >
                   Handover::kPlaces - Handover::kStep)
                std::this_thread::yield();
        }
    }
    handover->made.store(made, std::memory_order_release);
    handover->over.store(true, std::memory_order_release);
    consumer.join();
    per_node(state, nodes);
    cairn_ring_close(ring);
}
BENCH(RingTwoThreads)->Arg(8)->Arg(64)->UseRealTime();

// The list of the write-up: built in one frame, whose release leaves warm chunks for the next one.
void RingList(benchmark::State &state)
{
    cairn_ring *ring = cairn_ring_new(nullptr);
    for (int round = 0; round < 1; round++) {
        benchmark::DoNotOptimize(cairn_ring_open(ring));
        build_on(ring, kNodes);
        cairn_ring_release(cairn_ring_seal(ring));
    }
    for (auto _ : state) {
        benchmark::DoNotOptimize(cairn_ring_open(ring));
        benchmark::DoNotOptimize(build_on(ring, kNodes));
        cairn_ring_release(cairn_ring_seal(ring));
    }
    per_node(state, kNodes);
    cairn_ring_close(ring);
}
BENCH(RingList)->Unit(benchmark::kMillisecond)->MinTime(1);

void RingListCold(benchmark::State &state)
{
    for (auto _ : state) {
        cairn_ring *ring = cairn_ring_new(nullptr);
        benchmark::DoNotOptimize(cairn_ring_open(ring));
        benchmark::DoNotOptimize(build_on(ring, kNodes));
        cairn_ring_release(cairn_ring_seal(ring));
        cairn_ring_close(ring);
    }
    per_node(state, kNodes);
}
BENCH(RingListCold)->Unit(benchmark::kMillisecond)->Iterations(1);

constexpr size_t kMallocNodes = kNodes / 10;

Node *build_by_malloc()
{
    Node *list = nullptr;
    for (size_t i = 0; i < kMallocNodes; i++) {
        auto *node = static_cast<Node *>(malloc(sizeof(Node)));
        node->next = list;
        list = node;
    }
    return list;
}

void free_all(Node *list)
{
    while (list) {
        Node *next = list->next;
        free(list);
        list = next;
    }
}

void MallocList(benchmark::State &state)
{
    for (auto _ : state)
        free_all(build_by_malloc());
    per_node(state, kMallocNodes);
}
BENCH(MallocList)->Unit(benchmark::kMillisecond);

// The contended form of the write-up: another thread ends one list while the next is built.
template <class Build, class End> void contended(benchmark::State &state, Build build, End end)
{
    std::thread other;
    for (auto _ : state) {
        auto list = build();
        if (other.joinable())
            other.join();
        other = std::thread([=] { end(list); });
    }
    if (other.joinable())
        other.join();
    per_node(state, kMallocNodes);
}

void RingContended(benchmark::State &state)
{
    cairn_ring *ring = cairn_ring_new(nullptr);
    contended(
        state,
        [=] {
            benchmark::DoNotOptimize(cairn_ring_open(ring));
            benchmark::DoNotOptimize(build_on(ring, kMallocNodes));
            return cairn_ring_seal(ring);
        },
        [](cairn_frame frame) { cairn_ring_release(frame); });
    cairn_ring_close(ring);
}
BENCH(RingContended)->Unit(benchmark::kMillisecond)->UseRealTime();

void MallocContended(benchmark::State &state) { contended(state, build_by_malloc, free_all); }
BENCH(MallocContended)->Unit(benchmark::kMillisecond)->UseRealTime();

} // namespace

BENCHMARK_MAIN();
