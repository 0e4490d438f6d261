// The goals of the frame allocators, in nanoseconds an operation, beside the C library's malloc.
//
//   build/release/bench/frame_bench --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
//
// The lists are those of a public comparison of allocators (write-up B of the project's notes): 100 million nodes of 8
// bytes, built and freed. Warm rounds: the first round, which pays the page faults, is not timed here; `Cold` is one
// round of its own. "rss/payload" is the growth of the resident set while the list lives, divided by its bytes.
#include <benchmark/benchmark.h>
#include <cairn/scope.h>
#include <cairn/stack.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr size_t kNodes = 100'000'000;

struct Node {
  Node *next;
};

size_t resident_bytes() {
  unsigned long size = 0, resident = 0;
  if (FILE *file = fopen("/proc/self/statm", "r")) {
    if (fscanf(file, "%lu %lu", &size, &resident) != 2) resident = 0;
    fclose(file);
  }
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void per_node(benchmark::State &state, size_t nodes) {
  state.counters["ns/node"] = benchmark::Counter(
      static_cast<double>(nodes) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

Node *build_on(cairn_stack *stack, size_t nodes) {
  Node *list = nullptr;
  for (size_t i = 0; i < nodes; i++) {
    auto *node = static_cast<Node *>(cairn_stack_alloc(stack, sizeof(Node), alignof(Node)));
    node->next = list;
    list = node;
  }
  return list;
}

void StackList(benchmark::State &state) {
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
  state.counters["left_MiB"] = (static_cast<double>(resident_bytes()) - static_cast<double>(before)) / 1048576;
  per_node(state, kNodes);
  cairn_stack_delete(stack);
}
BENCHMARK(StackList)->Unit(benchmark::kMillisecond)->MinTime(1);

void StackListCold(benchmark::State &state) {
  for (auto _ : state) {
    cairn_stack *stack = cairn_stack_new(nullptr);
    benchmark::DoNotOptimize(build_on(stack, kNodes));
    cairn_stack_delete(stack);
  }
  per_node(state, kNodes);
}
BENCHMARK(StackListCold)->Unit(benchmark::kMillisecond)->Iterations(1);

void StackPushPop(benchmark::State &state) {
  cairn_stack *stack = cairn_stack_new(nullptr);
  for (auto _ : state) {
    cairn_mark mark = cairn_stack_push(stack);
    benchmark::ClobberMemory();
    cairn_stack_pop(stack, mark);
  }
  cairn_stack_delete(stack);
}
BENCHMARK(StackPushPop);

void ScopeOfNodes(benchmark::State &state) {
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
BENCHMARK(ScopeOfNodes)->Arg(8)->Arg(64);

void MallocList(benchmark::State &state) {
  for (auto _ : state) {
    Node *list = nullptr;
    for (size_t i = 0; i < kNodes / 10; i++) {
      auto *node = static_cast<Node *>(malloc(sizeof(Node)));
      node->next = list;
      list = node;
    }
    while (list) {
      Node *next = list->next;
      free(list);
      list = next;
    }
  }
  per_node(state, kNodes / 10);
}
BENCHMARK(MallocList)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
