// Group B: Intersec's workload. A list of nodes of 8 bytes is built and freed, three rounds; in the
// contended form a second thread frees the list while the first builds the next one.
#include <algorithm>
#include <atomic>

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

// How many nodes each side has handled, for the peak of live nodes; one cache line each.
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

Node *build(Lists &lists, uint64_t count)
{
    Node *head = nullptr;
    for (uint64_t left = count; left != 0;) {
        const uint64_t batch = std::min(left, kPublishEvery);
        for (uint64_t i = 0; i < batch; i++) {
            Node *node = static_cast<Node *>(checked(malloc(sizeof(Node))));
            node->next = head;
            head = node;
        }
        lists.publish_built(batch);
        left -= batch;
    }
    return head;
}

void tear_down(Lists &lists, Node *head)
{
    while (head != nullptr) {
        uint64_t batch = 0;
        for (; batch < kPublishEvery && head != nullptr; batch++) {
            Node *next = head->next;
            free(head);
            head = next;
        }
        lists.publish_freed(batch);
    }
}

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

// The peak is the process's: in the contended form it falls in the middle of a round.
void report_memory(Run &run, const Lists &lists, size_t before)
{
    const double payload = static_cast<double>(lists.live_most) * sizeof(Node);
    const double grown = static_cast<double>(peak_resident_bytes() - before);
    run.figure("rss_per_payload", grown / payload, "");
}

void uncontended(Run &run)
{
    Lists lists;
    double alloc_ns[kRounds], free_ns[kRounds], total_ns = 0;
    const size_t before = resident_bytes();
    for (int round = 0; round < kRounds; round++) {
        Node *head = nullptr;
        alloc_ns[round] = time_ns([&] { head = build(lists, run.nodes()); });
        free_ns[round] = time_ns([&] { tear_down(lists, head); });
        total_ns += alloc_ns[round] + free_ns[round];
    }
    report(run, lists, alloc_ns, free_ns, total_ns);
    report_memory(run, lists, before);
}

void contended(Run &run)
{
    Lists lists;
    double alloc_ns[kRounds], free_ns[kRounds] = {};
    Node *previous = nullptr;
    Team team(2);
    const size_t before = resident_bytes();
    double total_ns = 0;
    for (int round = 0; round <= kRounds; round++) {
        Node *head = nullptr;
        total_ns += team.run([&](unsigned index) {
            if (index == 0 && round < kRounds) {
                alloc_ns[round] = time_ns([&] { head = build(lists, run.nodes()); });
            } else if (index == 1 && round > 0) {
                free_ns[round - 1] = time_ns([&] { tear_down(lists, previous); });
            }
        });
        previous = head;
    }
    report(run, lists, alloc_ns, free_ns, total_ns);
    report_memory(run, lists, before);
}

const Workload kRows[] = {
    {"b-uncontended", "B", "list of 8-byte nodes, three rounds", "total_ms", "peak_rss", 0,
     uncontended},
    {"b-contended", "B", "the same, freed by a second thread", "total_ms", "peak_rss", 0,
     contended},
};

} // namespace

const WorkloadTable kWriteupB = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
