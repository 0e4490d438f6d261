// Memory that threads pass to each other, and the highest cost of a single call: threads that take
// turns, blocks whose thread has ended or waits, short-lived threads next to a large heap, the
// longest call.
#include <pthread.h>
#include <time.h>

#include "support.h"
#include "workload.h"

namespace bench
{
namespace
{

// Replaces `count` blocks, chosen at random, by new ones.
void replace(MappedArray<void *> &blocks, size_t count, Sizes &sizes, Random &random)
{
    for (size_t i = 0; i < count; i++) {
        void *&block = blocks[random.below(blocks.size())];
        free(block);
        block = allocate_touched(sizes[random.next()]);
    }
}

// Threads take turns, as under the lock of an interpreter: in a turn a thread replaces half of all
// live blocks, whichever thread made them. 40 MiB are live.
constexpr size_t kLiveBytes = 40 * kMiB, kLow = 16, kHigh = 256;

struct Turns {
    Turns(Run &run, unsigned thread_count)
        : threads(thread_count), rounds(2), blocks(run.scaled(kLiveBytes / ((kLow + kHigh) / 2))),
          sizes(kLow, kHigh, Sizes::kUniform)
    {
    }
    const unsigned threads, rounds;
    MappedArray<void *> blocks;
    Sizes sizes;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t next = PTHREAD_COND_INITIALIZER;
    unsigned turn = 0, arrivals = 0;
};

void *take_turns(void *argument)
{
    Turns &turns = *static_cast<Turns *>(argument);
    pthread_mutex_lock(&turns.mutex);
    const unsigned own = turns.arrivals++;
    Random random(own + 1);
    for (unsigned round = 0; round < turns.rounds; round++) {
        while (turns.turn % turns.threads != own)
            pthread_cond_wait(&turns.next, &turns.mutex);
        replace(turns.blocks, turns.blocks.size() / 2, turns.sizes, random);
        turns.turn++;
        pthread_cond_broadcast(&turns.next);
    }
    pthread_mutex_unlock(&turns.mutex);
    return nullptr;
}

template <unsigned count> void turns_of(Run &run)
{
    Turns turns(run, count);
    const size_t replaced = turns.blocks.size() / 2 * turns.rounds * count;
    pthread_t threads[count];
    const size_t before = resident_bytes();
    run.time_passes(static_cast<double>(replaced), [&] {
        turns.turn = turns.arrivals = 0;
        return time_ns([&] {
            for (pthread_t &thread : threads)
                thread = start_thread(take_turns, &turns);
            for (pthread_t thread : threads)
                join(thread);
        });
    });
    const size_t live = turns.blocks.size() * (kLow + kHigh) / 2;
    run.figure("peak_per_live",
               static_cast<double>(peak_resident_bytes() - before) / static_cast<double>(live), "");
}

// Blocks of one size that one thread makes.
struct Made {
    Made(size_t count, size_t block_bytes) : blocks(count), size(block_bytes) {}
    MappedArray<void *> blocks;
    size_t size;
    bool free_half = false;
};

void *make(void *argument)
{
    Made &made = *static_cast<Made *>(argument);
    for (void *&block : made.blocks)
        block = allocate_touched(made.size);
    for (size_t i = 0; made.free_half && i < made.blocks.size(); i += 2)
        free(made.blocks[i]);
    return nullptr;
}

void shuffle(MappedArray<void *> &blocks, Random &random)
{
    for (size_t i = blocks.size() - 1; i > 0; i--) {
        void *&other = blocks[random.below(i + 1)];
        void *block = blocks[i];
        blocks[i] = other;
        other = block;
    }
}

// Frees of blocks of another thread, which has ended or waits, in the order of allocation or at
// random.
template <size_t size, bool at_random, bool has_ended> void free_of_other(Run &run)
{
    Made made(run.scaled(64 * kMiB / size), size);
    Random random(3);
    Team team(2);
    run.time_passes(static_cast<double>(made.blocks.size()), [&] {
        if (has_ended)
            join(start_thread(make, &made));
        else
            team.run([&](unsigned index) {
                if (index == 0)
                    make(&made);
            });
        if (at_random)
            shuffle(made.blocks, random);
        return time_ns([&] {
            for (void *block : made.blocks)
                free(block);
        });
    });
}

// Blocks that a waiting thread has made are replaced at random, one after another, as where one
// thread reads the data that another one then serves.
void replace_of_other(Run &run)
{
    MappedArray<void *> blocks(5000);
    Sizes sizes(8, 1000, Sizes::kUniform);
    const size_t replaced = run.scaled(1'000'000);
    Random random(4);
    Team team(2);
    team.run([&](unsigned index) {
        for (size_t i = 0; index == 0 && i < blocks.size(); i++)
            blocks[i] = allocate_touched(sizes[random.next()]);
    });
    run.time_passes(static_cast<double>(replaced), [&] {
        return time_ns([&] { replace(blocks, replaced, sizes, random); });
    });
}

// Threads with one block each, one after another, while the process holds gigabytes that another
// thread has left half free.
void *live_shortly(void *argument)
{
    free(allocate_touched(100));
    return argument;
}

template <size_t gib> void short_threads(Run &run)
{
    Made made(run.scaled(gib * kGiB / 256), 256);
    made.free_half = true;
    join(start_thread(make, &made));
    const size_t threads = run.scaled(200);
    run.time_passes(static_cast<double>(threads), [&] {
        return time_ns([&] {
            for (size_t i = 0; i < threads; i++)
                join(start_thread(live_shortly, nullptr));
        });
    });
}

double processor_time_ns()
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// The longest of many calls, in CPU time of the calling thread.
struct Longest {
    double longest = 0, sum = 0;
    size_t calls = 0;

    template <class Call> void time(Call call)
    {
        const double start = processor_time_ns();
        call();
        const double spent = processor_time_ns() - start;
        longest = spent > longest ? spent : longest;
        sum += spent;
        calls++;
    }

    // Replaces random blocks of the first `count` for some seconds.
    void replace(MappedArray<void *> &blocks, size_t count, double seconds)
    {
        Random random(5);
        for (const double end = now_ns() + seconds * 1e9; now_ns() < end;)
            for (int i = 0; i < 1000; i++)
                time([block = &blocks[random.below(count)]] {
                    free(*block);
                    *block = allocate_touched(256);
                });
    }

    void report(Run &run) const
    {
        run.figure("longest_us", longest / 1000, "us");
        run.figure("mean_ns", sum / static_cast<double>(calls), "ns");
    }
};

// The longest pair of a free and a malloc in the three seconds after half of the heap was freed at
// random.
template <size_t gib> void longest_pair(Run &run)
{
    Made made(run.scaled(gib * kGiB / 256), 256);
    make(&made);
    Random random(5);
    const size_t half = made.blocks.size() / 2;
    shuffle(made.blocks, random);
    for (size_t i = half; i < made.blocks.size(); i++)
        free(made.blocks[i]);
    Longest longest;
    longest.replace(made.blocks, half, 3);
    longest.report(run);
}

// The longest time of 16 frees of blocks of an idle thread, and of a pair of calls in the two
// seconds after. The clock costs more than a free, so it reads groups.
void longest_free(Run &run)
{
    constexpr size_t kGroup = 16;
    Made made(run.scaled(kGiB / 256), 256);
    Team team(2);
    team.run([&](unsigned index) {
        if (index == 0)
            make(&made);
    });
    Longest longest;
    for (size_t i = 0; i + kGroup <= made.blocks.size(); i += kGroup)
        longest.time([first = &made.blocks[i]] {
            for (size_t k = 0; k < kGroup; k++) {
                free(first[k]);
                first[k] = nullptr;
            }
        });
    longest.replace(made.blocks, 1, 2);
    longest.report(run);
}

const Workload kRows[] = {
    {"turns-8", "field", "8 threads in turn, 40 MiB live", "warm_ns", "peak_rss", 1024,
     turns_of<8>},
    {"turns-16", "field", "16 threads in turn, 40 MiB live", "warm_ns", "peak_rss", 1536,
     turns_of<16>},
    {"turns-32", "field", "32 threads in turn, 40 MiB live", "warm_ns", "peak_rss", 3072,
     turns_of<32>},
    {"ended-in-order", "field", "free of an ended thread's blocks", "warm_ns", "peak_rss", 512,
     free_of_other<64, false, true>},
    {"ended-at-random", "field", "free of an ended thread's blocks, at random", "warm_ns",
     "peak_rss", 512, free_of_other<64, true, true>},
    {"ended-1000-bytes", "field", "free of its blocks of 1000 bytes, at random", "warm_ns",
     "peak_rss", 512, free_of_other<1000, true, true>},
    {"alive-in-order", "field", "free of a waiting thread's blocks", "warm_ns", "peak_rss", 512,
     free_of_other<64, false, false>},
    {"alive-at-random", "field", "free of a waiting thread's blocks, at random", "warm_ns",
     "peak_rss", 512, free_of_other<64, true, false>},
    {"alive-1000-bytes", "field", "free of its blocks of 1000 bytes, at random", "warm_ns",
     "peak_rss", 512, free_of_other<1000, true, false>},
    {"alive-replaced", "field", "a waiting thread's blocks, replaced at random", "warm_ns",
     "peak_rss", 64, replace_of_other},
    {"short-threads-0g", "scaling", "short threads, empty heap", "warm_ns", "peak_rss", 64,
     short_threads<0>},
    {"short-threads-1g", "scaling", "short threads next to 1 GiB, half free", "warm_ns", "peak_rss",
     2048, short_threads<1>},
    {"short-threads-3g", "scaling", "short threads next to 3 GiB, half free", "warm_ns", "peak_rss",
     4800, short_threads<3>},
    {"longest-pair-2g", "scaling", "longest free and malloc, 2 GiB half free", "longest_us",
     "peak_rss", 3200, longest_pair<2>},
    {"longest-pair-8g", "scaling", "longest free and malloc, 8 GiB half free", "longest_us",
     "peak_rss", 12800, longest_pair<8>},
    {"longest-free-1g", "scaling", "longest free of 1 GiB of an idle thread", "longest_us",
     "peak_rss", 1600, longest_free},
};

} // namespace

const WorkloadTable kHandedOver = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
