// Servers: threads that allocate blocks that other threads free. The shape of `larson` follows
// Larson and Krishnan, "Memory allocation for long-running server applications", ISMM 1998; the
// others are usual shapes of the field.
#include <algorithm>
#include <atomic>
#include <math.h>
#include <sched.h>
#include <time.h>

#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

unsigned server_threads(Run &run)
{
    const unsigned preferred = processors() < 2 ? 2 : processors() > 16 ? 16 : processors();
    return run.threads(preferred);
}

// The blocks of a session outlive the thread that made them: every generation of threads takes over
// the slots of its neighbour's predecessor.
struct Session {
    void **slots;
    Sizes *sizes;
    size_t operations;
    uint64_t seed;
};

constexpr size_t kSlots = 5000; // slots of a session

void *serve(void *argument)
{
    Session *session = static_cast<Session *>(argument);
    Random random(session->seed);
    for (size_t i = 0; i < session->operations; i++) {
        void *&slot = session->slots[random.below(kSlots)];
        free(slot);
        slot = allocate_touched((*session->sizes)[random.next()]);
    }
    return nullptr;
}

void larson(Run &run)
{
    constexpr size_t kGenerations = 8;
    constexpr unsigned kThreadsMost = 64;
    unsigned threads = server_threads(run);
    threads = threads > kThreadsMost ? kThreadsMost : threads;
    const size_t operations = run.scaled(50000);
    Sizes sizes(8, kKiB, Sizes::kUniform);
    MappedArray<void *> slots(kSlots * threads);
    const unsigned busy = threads < processors() ? threads : processors();
    uint64_t seed = 0;
    run.time_passes(static_cast<double>(kGenerations * threads * operations) / busy, [&] {
        return time_ns([&] {
            for (size_t generation = 0; generation < kGenerations; generation++) {
                Session sessions[kThreadsMost];
                pthread_t handles[kThreadsMost];
                for (unsigned i = 0; i < threads; i++) {
                    void **own = &slots[(i + generation) % threads * kSlots];
                    sessions[i] = {own, &sizes, operations, seed++};
                    handles[i] = start_thread(serve, &sessions[i]);
                }
                for (unsigned i = 0; i < threads; i++) {
                    join(handles[i]);
                }
            }
        });
    });
    for (void *block : slots) {
        free(block);
    }
}

// A bounded queue of one producer and one consumer.
class Queue
{
  public:
    bool push(void *block)
    {
        const size_t head = head_.load(std::memory_order_relaxed);
        if (head - tail_.load(std::memory_order_acquire) == kCapacity) { // pairs with pop's release
            return false;
        }
        items_[head % kCapacity] = block;
        head_.store(head + 1, std::memory_order_release);
        return true;
    }

    void *pop()
    {
        const size_t tail = tail_.load(std::memory_order_relaxed);
        if (tail == head_.load(std::memory_order_acquire)) { // pairs with push's release
            return nullptr;
        }
        void *block = items_[tail % kCapacity];
        tail_.store(tail + 1, std::memory_order_release);
        return block;
    }

  private:
    static constexpr size_t kCapacity = 1024;
    alignas(64) std::atomic<size_t> head_; // written by the producer
    alignas(64) std::atomic<size_t> tail_; // written by the consumer
    alignas(64) void *items_[kCapacity];
};

// Pairs of threads, one of which allocates and the other frees.
void one_direction(Run &run)
{
    const unsigned pairs = (server_threads(run) + 1) / 2;
    const size_t count = run.scaled(500000 / pairs);
    Sizes sizes(16, 512, Sizes::kUniform);
    MappedArray<Queue> queues(pairs);
    Team team(2 * pairs);
    run.time_passes(static_cast<double>(count * pairs), [&] {
        return team.run([&](unsigned index) {
            Queue &queue = queues[index / 2];
            if (index % 2 == 0) {
                for (size_t i = 0; i < count; i++) {
                    void *block = allocate_touched(sizes[i]);
                    while (!queue.push(block)) {
                        sched_yield();
                    }
                }
                return;
            }
            for (size_t i = 0; i < count;) {
                void *block = queue.pop();
                if (block == nullptr) {
                    sched_yield();
                    continue;
                }
                free(block);
                i++;
            }
        });
    });
}

// Every thread allocates for a random other one, and frees the blocks that others sent to it.
void many_directions(Run &run)
{
    const unsigned threads = run.threads(4);
    const size_t count = run.scaled(200000);
    Sizes sizes(16, 512, Sizes::kUniform);
    MappedArray<Queue> queues(threads * threads); // [from * threads + to]
    MappedArray<std::atomic<unsigned>> senders(1);
    Team team(threads);
    run.time_passes(static_cast<double>(count * threads), [&] {
        senders[0].store(threads);
        return team.processor_ns(team.run([&](unsigned self) {
            Random random(self);
            const auto receive = [&] {
                for (unsigned from = 0; from < threads; from++) {
                    while (void *block = queues[from * threads + self].pop()) {
                        free(block);
                    }
                }
            };
            for (size_t i = 0; i < count; i++) {
                const unsigned to = static_cast<unsigned>(random.below(threads));
                void *block = allocate_touched(sizes[i]);
                while (!queues[self * threads + to].push(block)) {
                    receive();
                    sched_yield();
                }
                if (i % 64 == 0) {
                    receive();
                }
            }
            senders[0].fetch_sub(1); // after its last push
            while (senders[0].load() != 0) {
                receive();
                sched_yield();
            }
            receive();
        }));
    });
}

constexpr size_t kLeft = 32; // blocks that a short-lived thread leaves to its starter

struct Short {
    Sizes *sizes;
    uint64_t seed;
    void *left[kLeft];
};

void *live_shortly(void *argument)
{
    Short *self = static_cast<Short *>(argument);
    for (size_t i = 0; i < kLeft; i++) {
        void *own = allocate_touched((*self->sizes)[self->seed + 2 * i]);
        self->left[i] = allocate_touched((*self->sizes)[self->seed + 2 * i + 1]);
        free(own);
    }
    return nullptr;
}

// Short-lived threads, four at a time; the operation is a thread.
void thread_churn(Run &run)
{
    constexpr size_t kAtOnce = 4;
    const size_t groups = run.scaled(100);
    Sizes sizes(16, 2 * kKiB, Sizes::kDoublings);
    uint64_t seed = 0;
    run.time_passes(static_cast<double>(groups * kAtOnce), [&] {
        return time_ns([&] {
            for (size_t group = 0; group < groups; group++) {
                Short shorts[kAtOnce];
                pthread_t handles[kAtOnce];
                for (size_t i = 0; i < kAtOnce; i++) {
                    shorts[i].sizes = &sizes;
                    shorts[i].seed = 97 * seed++;
                    handles[i] = start_thread(live_shortly, &shorts[i]);
                }
                for (size_t i = 0; i < kAtOnce; i++) {
                    join(handles[i]);
                    for (void *block : shorts[i].left) {
                        free(block);
                    }
                }
            }
        });
    });
}

constexpr size_t kOwn = 100; // blocks of a thread that leaves none

void *live_alone(void *argument)
{
    Sizes &sizes = *static_cast<Sizes *>(argument);
    void *blocks[kOwn];
    for (size_t i = 0; i < kOwn; i++) {
        blocks[i] = allocate_touched(sizes[i]);
    }
    for (void *block : blocks) {
        free(block);
    }
    return nullptr;
}

// Threads one after another, each from its start to its end.
void thread_alone(Run &run)
{
    const size_t threads = run.scaled(500);
    Sizes sizes(16, 512, Sizes::kDoublings);
    run.time_passes(static_cast<double>(threads), [&] {
        return time_ns([&] {
            for (size_t i = 0; i < threads; i++) {
                join(start_thread(live_alone, &sizes));
            }
        });
    });
}

// A histogram of the times of calls, in ticks, with 32 steps in each doubling.
class Latencies
{
  public:
    template <class Call> void time(Call call)
    {
        const uint64_t start = now_ticks();
        call();
        const double spent = static_cast<double>(now_ticks() - start);
        counts_[step_of(spent)]++;
        longest_ = std::max(longest_, spent);
    }

    void add(const Latencies &other)
    {
        for (size_t step = 0; step < kCount; step++) {
            counts_[step] += other.counts_[step];
        }
        longest_ = std::max(longest_, other.longest_);
    }

    // The time that this share of the calls does not exceed.
    double at(double share) const
    {
        double all = 0, below = 0;
        for (const size_t count : counts_) {
            all += static_cast<double>(count);
        }
        size_t step = 0;
        while (step + 1 < kCount && (below += static_cast<double>(counts_[step])) < share * all) {
            step++;
        }
        return time_of(step);
    }

    double longest() const { return longest_; }

  private:
    static constexpr size_t kSteps = 32, kCount = 40 * kSteps;

    static size_t step_of(double ticks)
    {
        int doublings = 0;
        const double fraction = frexp(std::max(ticks, 1.0), &doublings); // in [0.5, 1)
        const size_t step = static_cast<size_t>((fraction * 2 - 1) * kSteps);
        return std::min(static_cast<size_t>(doublings - 1) * kSteps + step, kCount - 1);
    }

    static double time_of(size_t step)
    {
        return ldexp(1 + (static_cast<double>(step % kSteps) + 0.5) / kSteps,
                     static_cast<int>(step / kSteps));
    }

    size_t counts_[kCount] = {};
    double longest_ = 0;
};

// The requests of a service: bursts of calls with pauses between them. Of a hundred blocks one has
// 32 KiB to 1 MiB; another thread frees each fifth one. Every single call is timed.
struct Service {
    static constexpr size_t kLive = 10000, kBurst = 2000;
    Service() : slots(kLive), inbox(1), mallocs(1), frees(1) {}

    void allocate(void *&slot)
    {
        const size_t size = random.below(100) == 0 ? random.between_by_doublings(32 * kKiB, kMiB)
                                                   : random.between_by_doublings(16, kKiB);
        mallocs[0].time([&] { slot = malloc(size); });
        touch(checked(slot), size);
    }

    void burst(Service &next)
    {
        for (size_t i = 0; i < kBurst; i++) {
            void *&slot = slots[random.below(kLive)];
            if (slot != nullptr && (random.below(5) != 0 || !next.inbox[0].push(slot))) {
                frees[0].time([&] { free(slot); });
            }
            allocate(slot);
        }
        while (void *block = inbox[0].pop()) {
            frees[0].time([&] { free(block); });
        }
    }

    MappedArray<void *> slots;
    MappedArray<Queue> inbox;
    MappedArray<Latencies> mallocs, frees;
    Random random{1};
};

void report_latencies(Run &run, const Latencies &calls, double tick_ns,
                      const char *const (&names)[5])
{
    constexpr double kShares[] = {0.5, 0.99, 0.999, 0.9999};
    for (size_t i = 0; i < 4; i++) {
        run.figure(names[i], calls.at(kShares[i]) * tick_ns, "ns");
    }
    run.figure(names[4], calls.longest() * tick_ns, "ns");
}

void service(Run &run)
{
    static Service services[2];
    services[1].random = Random(2);
    const size_t bursts = run.scaled(1000);
    Team team(2);
    const uint64_t start = now_ticks();
    const double spent_ns = team.run([&](unsigned index) {
        const timespec pause = {0, 100000};
        for (size_t i = 0; i < bursts; i++) {
            services[index].burst(services[1 - index]);
            nanosleep(&pause, nullptr);
        }
    });
    const double tick_ns = spent_ns / static_cast<double>(now_ticks() - start);
    services[0].mallocs[0].add(services[1].mallocs[0]);
    services[0].frees[0].add(services[1].frees[0]);
    run.figure("warm_ns", spent_ns / static_cast<double>(2 * bursts * Service::kBurst), "ns");
    report_latencies(
        run, services[0].mallocs[0], tick_ns,
        {"malloc_p50_ns", "malloc_p99_ns", "malloc_p999_ns", "malloc_p9999_ns", "malloc_max_ns"});
    report_latencies(
        run, services[0].frees[0], tick_ns,
        {"free_p50_ns", "free_p99_ns", "free_p999_ns", "free_p9999_ns", "free_max_ns"});
}

const Workload kRows[] = {
    {"larson", "field", "server: blocks outlive their thread", "warm_ns", "peak_rss", 512, larson},
    {"one-direction", "field", "producer/consumer, one direction", "warm_ns", "peak_rss", 256,
     one_direction},
    {"many-directions", "field", "producer/consumer, 4 threads", "warm_ns", "peak_rss", 256,
     many_directions},
    {"thread-churn", "field", "short threads (a thread)", "warm_ns", "peak_rss", 256, thread_churn},
    {"thread-alone", "field", "a thread with 100 blocks, start to end", "warm_ns", "peak_rss", 64,
     thread_alone},
    {"service", "field", "latency of single calls, 2 threads with bursts", "malloc_p999_ns",
     "peak_rss", 512, service},
};

} // namespace

const WorkloadTable kServer = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
