// Blocks that a finder of groups chooses come from the group's heap, by whichever entry, and are
// ordinary blocks to everybody else; whatever stands in the way makes an ordinary block at once.
// One process a case.

#include "heap/heap_layer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

extern "C" {
#include "heap/by_site.h"
#include "watch/watch.h"
}

namespace
{

using heap_layer::kKiB;
using heap_layer::span_of;

struct program_heap *group;
struct program_heap *chosen; // what the finder says
std::atomic<int> asked;
bool finder_allocates;

struct program_heap *find()
{
    asked++;
    if (finder_allocates) {
        void *block = malloc_fast(40, malloc_slow);
        EXPECT_EQ(span_program(span_of(block)), nullptr);
        free_fast(block);
    }
    return chosen;
}

class BySite : public testing::Test
{
  protected:
    void SetUp() override
    {
        heap_start();
        finder_allocates = false;
        free_fast(malloc_fast(1, malloc_slow)); // the thread has a heap
        struct program_options options = {};
        options.of_sites = true;
        group = program_make(&options);
        ASSERT_NE(group, nullptr);
        heap_serve_sites(find);
    }
    void TearDown() override
    {
        chosen = nullptr;
        heap_verify_all();
    }
    static bool is_of_group(const void *block) { return span_program(span_of(block)) == group; }
};

// From here on only what lies between is of a site: the test's own blocks are not.
class Within
{
  public:
    explicit Within(struct program_heap *heap) { chosen = heap; }
    ~Within() { chosen = nullptr; }
};

TEST_F(BySite, EveryEntryIsServed)
{
    for (const size_t size : {size_t{1}, size_t{8}, size_t{40}, size_t{1000}, 20 * kKiB}) {
        void *blocks[4];
        {
            const Within within(group);
            blocks[0] = malloc_fast(size, malloc_slow);
            blocks[1] = heap_allocate_zeroed(size);
            blocks[2] = heap_allocate_aligned(size, 16);
            blocks[3] = heap_allocate_aligned(size, 64);
        }
        for (void *block : blocks) {
            EXPECT_TRUE(is_of_group(block)) << size;
            EXPECT_GE(heap_usable_size(block), size);
        }
        for (size_t i = 0; i < size; i++)
            ASSERT_EQ(static_cast<char *>(blocks[1])[i], 0);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks[3]) % 64, 0U);
        for (void *block : blocks)
            free_fast(block);
    }
    void *other = malloc_fast(40, malloc_slow);
    EXPECT_FALSE(is_of_group(other));
    free_fast(other);
}

TEST_F(BySite, LargeBlocksAndThoseOfNoBytesAreOrdinary)
{
    for (const size_t size : {size_t{0}, 64 * kKiB, 40 * 1024 * kKiB}) {
        const Within within(group);
        void *block = malloc_fast(size, malloc_slow);
        void *zeroed = heap_allocate_zeroed(size);
        EXPECT_FALSE(is_of_group(block)) << size;
        EXPECT_FALSE(is_of_group(zeroed)) << size;
        free_fast(block);
        free_fast(zeroed);
    }
}

TEST_F(BySite, AnyThreadFrees)
{
    std::vector<void *> blocks(5000);
    {
        const Within within(group);
        for (void *&block : blocks)
            block = malloc_fast(100, malloc_slow);
    }
    std::thread([&] {
        for (void *block : blocks)
            free_fast(block);
    }).join();
    struct program_stats stats;
    program_read_stats(group, &stats);
    EXPECT_EQ(stats.live_blocks, 0U);
}

TEST_F(BySite, ABlockGrowsInItsGroupAndOutOfItWhenItIsLarge)
{
    chosen = group;
    void *block = malloc_fast(40, malloc_slow);
    chosen = nullptr;
    memset(block, 7, 40);
    block = heap_resize(block, 400);
    EXPECT_TRUE(is_of_group(block));
    block = heap_resize(block, 100 * kKiB);
    EXPECT_FALSE(is_of_group(block));
    block = heap_resize(block, 50);
    EXPECT_FALSE(is_of_group(block));
    for (int i = 0; i < 40; i++)
        ASSERT_EQ(static_cast<char *>(block)[i], 7);
    free_fast(block);
}

// As in a fork, or in a signal handler that has interrupted the holder.
TEST_F(BySite, NobodyWaitsForTheGroupsLock)
{
    chosen = group;
    void *block = malloc_fast(40, malloc_slow);
    fork_lock_acquire(&group->lock);
    void *other = malloc_fast(40, malloc_slow);
    chosen = nullptr;
    EXPECT_FALSE(is_of_group(other));
    block = heap_resize(block, 4000);
    EXPECT_FALSE(is_of_group(block));
    programs_trim();
    fork_lock_release(&group->lock);
    free_fast(block);
    free_fast(other);
}

TEST_F(BySite, AFinderThatAllocatesIsNotAskedAgain)
{
    chosen = group;
    finder_allocates = true;
    asked = 0;
    void *block = malloc_fast(40, malloc_slow);
    chosen = nullptr;
    EXPECT_EQ(asked, 1);
    EXPECT_TRUE(is_of_group(block));
    free_fast(block);
}

TEST_F(BySite, TheProgramDoesNotSeeTheGroup)
{
    chosen = group;
    void *block = malloc_fast(40, malloc_slow);
    chosen = nullptr;
    EXPECT_TRUE(is_of_group(block));
    EXPECT_EQ(program_of_block(block, "test"), nullptr);
    free_fast(block);
}

std::vector<std::pair<char, void *>> *heard;

void note(char what, void *block)
{
    if (heard && heard->size() < heard->capacity())
        heard->emplace_back(what, block);
}

TEST_F(BySite, ATracerHearsOfItsBlocks)
{
    static const struct heap_tracer tracer = {
        [](void *block, size_t, size_t, bool) {
            note('a', block);
            return block;
        },
        [](void *block, bool resize) { note(resize ? 'b' : 'f', block); },
        [](void *block, size_t, bool began) { note(began ? 'e' : 's', block); }};
    std::vector<std::pair<char, void *>> all;
    all.reserve(100);
    heap_trace_start(&tracer);
    heard = &all;
    chosen = group;
    void *block = malloc_fast(100, malloc_slow);
    chosen = nullptr;
    void *now = heap_resize(block, 700);
    EXPECT_TRUE(is_of_group(now));
    free_fast(now);
    heard = nullptr;
    heap_trace_stop();
    const std::vector<std::pair<char, void *>> expected = {
        {'a', block}, {'b', block}, {'e', now}, {'f', now}};
    EXPECT_EQ(all, expected);
}

TEST_F(BySite, TheProfilerSamplesItsBlocks)
{
    ASSERT_EQ(profile_start(64, 1), 0);
    std::vector<void *> blocks(3000);
    chosen = group;
    for (size_t i = 0; i < blocks.size(); i++)
        blocks[i] = malloc_fast(1 + i % 2000, malloc_slow);
    chosen = nullptr;
    struct profile_figures figures;
    profile_read(&figures);
    EXPECT_GT(figures.live_samples, 1000U);
    for (void *block : blocks)
        free_fast(block);
    profile_read(&figures);
    EXPECT_EQ(figures.live_samples, 0U);
    profile_stop();
}

TEST_F(BySite, AChildOfForkGoesOn)
{
    chosen = group;
    void *block = malloc_fast(40, malloc_slow);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        void *own = malloc_fast(40, malloc_slow);
        const bool served = is_of_group(own);
        free_fast(own);
        free_fast(block);
        _exit(served ? 0 : 1);
    }
    chosen = nullptr;
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    free_fast(block);
}

TEST_F(BySite, ManyThreadsAtOnce)
{
    constexpr int kThreads = 4;
    constexpr int kRounds = 3000;
    std::atomic<int> served{0};
    chosen = group;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; t++)
        threads.emplace_back([&] {
            void *kept[64] = {};
            for (int i = 0; i < kRounds; i++) {
                free_fast(kept[i % 64]);
                kept[i % 64] = malloc_fast(16 + static_cast<size_t>(i) % 500, malloc_slow);
                served += is_of_group(kept[i % 64]);
            }
            for (void *block : kept)
                free_fast(block);
        });
    for (std::thread &thread : threads)
        thread.join();
    chosen = nullptr;
    EXPECT_GT(served, 0);
    struct program_stats stats;
    program_read_stats(group, &stats);
    EXPECT_EQ(stats.large_blocks, 0U);
}

} // namespace
