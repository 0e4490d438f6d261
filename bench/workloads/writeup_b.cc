// Group B: Intersec's workload. A list of nodes of 8 bytes is built and ended, three rounds; in the
// contended form a second thread ends the list while the first builds the next one.
//
// Each way to keep a list is a class: make() builds a list, end() ends it, adopt() makes the
// calling thread the builder. With malloc every node is freed by itself; the frame of a stack or
// ring ends as a whole, which is the intended use of these allocators.
#include <algorithm>
#include <atomic>

#include "frames.h"
#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

constexpr int kRounds = 3;
constexpr uint64_t kPublishEvery = 4096; // nodes

struct Node {
    Node *next;
};
static_assert(sizeof(Node) == 8, "the payload is 8 bytes a node");

// The number of nodes that each side has handled, for the peak of live nodes; one cache line each.
struct alignas(64) Progress {
    std::atomic<uint64_t> nodes{0}; // written by one thread
};

struct Lists {
    Progress built, freed;
    uint64_t live_most = 0; // builder only

    void publish_built(uint64_t nodes)
    {
        const uint64_t before = built.nodes.load(std::memory_order_relaxed);
        built.nodes.store(before + nodes, std::memory_order_relaxed);
        const uint64_t gone = freed.nodes.load(std::memory_order_relaxed);
        live_most = std::max(live_most, before + nodes - gone);
    }

    void publish_freed(uint64_t nodes)
    {
        const uint64_t before = freed.nodes.load(std::memory_order_relaxed);
        freed.nodes.store(before + nodes, std::memory_order_relaxed);
    }
};

// Makes `count` nodes, each from the node before, and returns the last. The values that a node
// needs are passed by value: in registers, as in a loop written out.
template <class MakeAfter>
Node *make_nodes(Lists &lists, uint64_t count, Node *last, MakeAfter make_after)
{
    for (uint64_t left = count; left != 0;) {
        const uint64_t batch = std::min(left, kPublishEvery);
        for (uint64_t i = 0; i < batch; i++) {
            last = make_after(last);
        }
        lists.publish_built(batch);
        left -= batch;
    }
    return last;
}

// The head of the list is the newest node.
template <class Allocate> Node *build(Lists &lists, uint64_t count, Allocate allocate)
{
    return make_nodes(lists, count, nullptr, [allocate](Node *newest) {
        Node *node = static_cast<Node *>(checked(allocate()));
        node->next = newest;
        return node;
    });
}

// The head of the list is the oldest node.
template <class Allocate> Node *build_in_order(Lists &lists, uint64_t count, Allocate allocate)
{
    Node before_first = {nullptr};
    Node *newest = make_nodes(lists, count, &before_first, [allocate](Node *last) {
        Node *node = static_cast<Node *>(checked(allocate()));
        last->next = node;
        return node;
    });
    newest->next = nullptr;
    return before_first.next;
}

// Frees the nodes from the head on.
template <class Free> void tear_down(Lists &lists, uint64_t count, Node *head, Free free_node)
{
    for (uint64_t left = count; left != 0;) {
        const uint64_t batch = std::min(left, kPublishEvery);
        for (uint64_t i = 0; i < batch; i++) {
            Node *next = head->next;
            free_node(head);
            head = next;
        }
        lists.publish_freed(batch);
        left -= batch;
    }
}

class ByMalloc
{
  public:
    using List = Node *;

    void adopt() {}
    List make(Lists &lists, uint64_t nodes)
    {
        return build(lists, nodes, [] { return malloc(sizeof(Node)); });
    }
    void end(Lists &lists, List list, uint64_t nodes)
    {
        tear_down(lists, nodes, list, [](Node *node) { free(node); });
    }
};

class ByMallocInOrder : public ByMalloc
{
  public:
    List make(Lists &lists, uint64_t nodes)
    {
        return build_in_order(lists, nodes, [] { return malloc(sizeof(Node)); });
    }
};

class OnStack
{
  public:
    using List = cairn_mark;

    ~OnStack() { cairn_stack_delete(stack_); }
    List make(Lists &lists, uint64_t nodes)
    {
        const cairn_mark mark = cairn_stack_push(stack_);
        build(lists, nodes,
              [stack = stack_] { return cairn_stack_alloc(stack, sizeof(Node), alignof(Node)); });
        return mark;
    }
    void end(Lists &lists, List list, uint64_t nodes)
    {
        cairn_stack_pop(stack_, list);
        lists.publish_freed(nodes);
    }

  private:
    cairn_stack *stack_ = static_cast<cairn_stack *>(checked(cairn_stack_new(nullptr)));
};

class OnFifo
{
  public:
    using List = Node *;

    ~OnFifo() { cairn_fifo_delete(fifo_); }
    List make(Lists &lists, uint64_t nodes)
    {
        return build_in_order(lists, nodes, [fifo = fifo_] {
            return cairn_fifo_alloc(fifo, sizeof(Node), alignof(Node));
        });
    }
    void end(Lists &lists, List list, uint64_t nodes)
    {
        tear_down(lists, nodes, list, [fifo = fifo_](Node *node) { cairn_fifo_free(fifo, node); });
    }

  private:
    cairn_fifo *fifo_ = static_cast<cairn_fifo *>(checked(cairn_fifo_new(nullptr)));
};

class OnRing
{
  public:
    using List = cairn_frame;

    ~OnRing()
    {
        adopt();
        cairn_ring_close(ring_);
    }
    void adopt() { cairn_ring_adopt(ring_); }
    List make(Lists &lists, uint64_t nodes)
    {
        checked(cairn_ring_open(ring_).chunk);
        build(lists, nodes,
              [ring = ring_] { return cairn_ring_alloc(ring, sizeof(Node), alignof(Node)); });
        return cairn_ring_seal(ring_);
    }
    void end(Lists &lists, List list, uint64_t nodes)
    {
        cairn_ring_release(list);
        lists.publish_freed(nodes);
    }

  private:
    cairn_ring *ring_ = static_cast<cairn_ring *>(checked(cairn_ring_new(nullptr)));
};

void report(Run &run, const Lists &lists, const double (&alloc_ns)[kRounds],
            const double (&free_ns)[kRounds], double total_ns)
{
    const double nodes = static_cast<double>(run.nodes());
    run.figure("total_ms", total_ns / 1e6, "ms");
    run.figure("cold_alloc_ns", alloc_ns[0] / nodes, "ns");
    run.figure("cold_free_ns", free_ns[0] / nodes, "ns");
    run.figure("warm_alloc_ns", (alloc_ns[1] + alloc_ns[2]) / 2 / nodes, "ns");
    run.figure("warm_free_ns", (free_ns[1] + free_ns[2]) / 2 / nodes, "ns");
    run.figure("nodes", nodes, "");
    run.figure("live_rounds", static_cast<double>(lists.live_most) / nodes, "");
}

// The peak is that of the process: in the contended form it occurs in the middle of a round.
void report_memory(Run &run, const Lists &lists, size_t before)
{
    const double payload = static_cast<double>(lists.live_most) * sizeof(Node);
    const double grown = static_cast<double>(peak_resident_bytes() - before);
    run.figure("rss_per_payload", grown / payload, "");
}

template <class Way> void one_thread(Run &run)
{
    Lists lists;
    double alloc_ns[kRounds], free_ns[kRounds], total_ns = 0;
    const size_t before = resident_bytes();
    Way way;
    for (int round = 0; round < kRounds; round++) {
        typename Way::List list;
        alloc_ns[round] = time_ns([&] { list = way.make(lists, run.nodes()); });
        free_ns[round] = time_ns([&] { way.end(lists, list, run.nodes()); });
        total_ns += alloc_ns[round] + free_ns[round];
    }
    report(run, lists, alloc_ns, free_ns, total_ns);
    report_memory(run, lists, before);
}

template <class Way> void two_threads(Run &run)
{
    Lists lists;
    double alloc_ns[kRounds], free_ns[kRounds] = {};
    typename Way::List previous = {};
    Team team(2);
    const size_t before = resident_bytes();
    Way way;
    team.run([&](unsigned index) {
        if (index == 0) {
            way.adopt();
        }
    });
    double total_ns = 0;
    for (int round = 0; round <= kRounds; round++) {
        typename Way::List list = {};
        total_ns += team.run([&](unsigned index) {
            if (index == 0 && round < kRounds) {
                alloc_ns[round] = time_ns([&] { list = way.make(lists, run.nodes()); });
            } else if (index == 1 && round > 0) {
                free_ns[round - 1] = time_ns([&] { way.end(lists, previous, run.nodes()); });
            }
        });
        previous = list;
    }
    report(run, lists, alloc_ns, free_ns, total_ns);
    report_memory(run, lists, before);
}

// Whether the library under test has the function `name`, here `function`; then it serves the row.
template <class Function> bool served_by(Run &run, const char *name, Function *function)
{
    if (function == nullptr) {
        return false;
    }
    run.served_by(name, reinterpret_cast<void *>(function));
    return true;
}

constexpr char kStack[] = "cairn_stack_new", kFifo[] = "cairn_fifo_new", kRing[] = "cairn_ring_new";

void stack(Run &run)
{
    const bool own = served_by(run, kStack, cairn_stack_new);
    (own ? one_thread<OnStack> : one_thread<ByMalloc>)(run);
}

void fifo(Run &run)
{
    const bool own = served_by(run, kFifo, cairn_fifo_new);
    (own ? one_thread<OnFifo> : one_thread<ByMallocInOrder>)(run);
}

void ring(Run &run)
{
    const bool own = served_by(run, kRing, cairn_ring_new);
    (own ? one_thread<OnRing> : one_thread<ByMalloc>)(run);
}

void ring_contended(Run &run)
{
    const bool own = served_by(run, kRing, cairn_ring_new);
    (own ? two_threads<OnRing> : two_threads<ByMalloc>)(run);
}

const Workload kRows[] = {
    {"b-uncontended", "B", "list of 8-byte nodes, three rounds", "total_ms", "peak_rss", 0,
     one_thread<ByMalloc>},
    {"b-contended", "B", "list of 8-byte nodes, freed by a second thread", "total_ms", "peak_rss",
     0, two_threads<ByMalloc>},
    {"b-stack", "B", "the list on Cairn's stack; peers: malloc, newest freed first", "total_ms",
     "peak_rss", 0, stack, kStack},
    {"b-fifo", "B", "the list in Cairn's FIFO; peers: malloc, oldest freed first", "total_ms",
     "peak_rss", 0, fifo, kFifo},
    {"b-ring", "B", "the list in a frame of Cairn's ring; peers: as b-uncontended", "total_ms",
     "peak_rss", 0, ring, kRing},
    {"b-ring-contended", "B", "the list in a ring, freed by a second thread; peers: as b-contended",
     "total_ms", "peak_rss", 0, ring_contended, kRing},
};

} // namespace

const WorkloadTable kWriteupB = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
