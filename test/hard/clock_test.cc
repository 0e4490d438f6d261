// The clock of the decay, controlled by the test: it jumps ahead, jumps to the end of time, stops,
// and runs backwards. (CLOCK_MONOTONIC never runs backwards, but a process that is restored from a
// checkpoint on another machine may see that.) Contents are always correct, and once the clock is
// correct again, memory is released as it should be.
//
// The linker redirects the library's calls of os_now_ms and os_now_us to this file (--wrap).

#include <cairn/fifo.h>
#include <cairn/ring.h>
#include <cairn/stack.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "model/shadow.h"

extern "C" {
#include "frame/frame.h"
#include "heap/heap.h"

uint64_t __wrap_os_now_ms(void);
uint64_t __wrap_os_now_us(void);
}

namespace
{

using model::kKiB;
using model::kMiB;
using model::Shadow;

constexpr uint64_t kStart = 1000000;
std::atomic<uint64_t> g_now{kStart};
std::atomic<size_t> g_looks;

size_t dirty_bytes()
{
    struct heap_stats stats;
    heap_read_stats(&stats);
    return stats.pages.dirty_bytes;
}

void leave_dirty(size_t bytes)
{
    std::vector<void *> blocks;
    for (size_t done = 0; done < bytes; done += kMiB) {
        blocks.push_back(cairn_malloc(kMiB));
        ASSERT_NE(blocks.back(), nullptr);
        memset(model::opaque(blocks.back()), 1, kMiB);
    }
    for (void *block : blocks)
        cairn_free(block);
}

// Takes slow paths, one in 64 of which reads the clock.
void pass()
{
    for (int i = 0; i < 80; i++)
        cairn_free(model::opaque(cairn_malloc(100 * kKiB)));
}

// Every allocator that decays, at work, with its contents checked.
class World
{
  public:
    World() : shadow_(31, 300, 48 * kMiB)
    {
        stack_ = cairn_stack_new(nullptr);
        fifo_ = cairn_fifo_new(nullptr);
        ring_ = cairn_ring_new(nullptr);
    }

    ~World()
    {
        shadow_.release_all();
        cairn_stack_delete(stack_);
        cairn_fifo_close(fifo_);
        cairn_ring_close(ring_);
    }

    void work()
    {
        shadow_.run(200);
        shadow_.check_all();
        const cairn_mark mark = cairn_stack_push(stack_);
        std::vector<char *> blocks;
        cairn_frame frame = cairn_ring_open(ring_);
        for (size_t i = 0; i < 60; i++) {
            const size_t size = 1 + i * i * 13;
            blocks.push_back(static_cast<char *>(cairn_stack_alloc(stack_, size, 8)));
            blocks.push_back(static_cast<char *>(cairn_fifo_alloc(fifo_, size, 8)));
            blocks.push_back(static_cast<char *>(cairn_ring_alloc(ring_, size, 8)));
            for (size_t j = blocks.size() - 3; j < blocks.size(); j++) {
                ASSERT_NE(blocks[j], nullptr);
                model::fill(blocks[j], size, j);
            }
        }
        cairn_ring_seal(ring_);
        for (size_t j = 0; j < blocks.size(); j++) {
            const size_t size = 1 + (j / 3) * (j / 3) * 13;
            ASSERT_EQ(model::first_wrong(blocks[j], size, j, true), size);
            if (j % 3 == 1)
                cairn_fifo_free(fifo_, blocks[j]);
        }
        cairn_ring_release(frame);
        cairn_stack_pop(stack_, mark);
        heap_verify_all();
    }

    size_t ring_spare() const
    {
        cairn_ring_stats stats;
        cairn_ring_read_stats(ring_, &stats);
        return stats.spare_bytes;
    }

    // Uses at least two chunks at once, and then none.
    void leave_spare_chunks()
    {
        std::vector<cairn_frame> frames;
        for (int i = 0; i < 50; i++) {
            frames.push_back(cairn_ring_open(ring_));
            ASSERT_NE(cairn_ring_alloc(ring_, 100 * kKiB, 8), nullptr);
            cairn_ring_seal(ring_);
        }
        for (cairn_frame frame : frames)
            cairn_ring_release(frame);
    }

  private:
    Shadow shadow_;
    cairn_stack *stack_;
    cairn_fifo *fifo_;
    cairn_ring *ring_;
};

// With a clock that runs, memory that stays free for two intervals is released.
void expect_decay(World &world)
{
    leave_dirty(30 * kMiB);
    EXPECT_GE(dirty_bytes(), 10 * kMiB);
    world.leave_spare_chunks();
    EXPECT_GE(world.ring_spare(), kMiB);
    for (int i = 0; i < 12; i++) {
        g_now += 400;
        pass();
        world.leave_spare_chunks();
    }
    EXPECT_LE(dirty_bytes(), 4 * kMiB);
}

class ClockJump : public testing::TestWithParam<uint64_t>
{
};

TEST_P(ClockJump, DoesNoHarm)
{
    World world;
    for (int i = 0; i < 4; i++) {
        world.work();
        g_now += GetParam(); // the last steps may wrap around, as unsigned time does
        world.work();
    }
    EXPECT_GT(g_looks, 0u) << "the library does not use the test's clock";
    expect_decay(world);
    world.work();
    g_now = kStart;
}

constexpr uint64_t kDay = 86400000;

// Ahead by less than an interval, several intervals, years, half of time; back by a second and a
// day.
INSTANTIATE_TEST_SUITE_P(Steps, ClockJump,
                         testing::Values(1, 499, 1000, 60000, 1000 * 365 * kDay, uint64_t{1} << 62,
                                         UINT64_MAX / 2, uint64_t{0} - 1000, uint64_t{0} - kDay));

// Without time nothing decays. The cap learns that these 200 MiB are needed again, and keeps no
// more (docs/dev/decisions, 37).
TEST(Clock, Stopped)
{
    World world;
    cairn_malloc_trim(0);
    for (int i = 0; i < 5; i++) {
        world.work();
        leave_dirty(200 * kMiB);
        EXPECT_LE(dirty_bytes(), 220 * kMiB);
    }
    expect_decay(world); // and works again
    g_now = kStart;
}

// A jump of the clock releases the memory that was free, in parts at the next looks, and only once.
TEST(Clock, OneJumpOneInterval)
{
    cairn_malloc_trim(0);
    leave_dirty(30 * kMiB);
    pass();
    const size_t before = dirty_bytes();
    EXPECT_GE(before, 10 * kMiB);
    // the first interval records the low-water mark, the second one purges
    for (int i = 0; i < 2; i++) {
        g_now += 1000 * kDay;
        pass();
        g_now += 100; // less than an interval, and time for 200 MiB
        pass();
    }
    EXPECT_LE(dirty_bytes(), 4 * kMiB);
    struct heap_stats stats;
    heap_read_stats(&stats);
    const size_t purged = stats.pages.purged_bytes;
    pass();
    heap_read_stats(&stats);
    EXPECT_LE(stats.pages.purged_bytes - purged, 0u);
    g_now = kStart;
}

// Ten pairs of malloc and free a second, which the fast paths serve.
void live_slowly(int seconds)
{
    for (int i = 0; i < 5 * seconds; i++) {
        g_now += 200;
        for (const size_t size : {300, 2000})
            cairn_free(model::opaque(cairn_malloc(size)));
    }
}

TEST(Clock, AFewCallsASecondReturnMemory)
{
    cairn_malloc_trim(0);
    live_slowly(1);
    for (int burst = 0; burst < 3; burst++) {
        leave_dirty(130 * kMiB);
        EXPECT_TRUE(burst != 0 || dirty_bytes() > 4 * kMiB) << "the cap learns from it";
        live_slowly(6);
        EXPECT_LE(dirty_bytes(), 4 * kMiB) << "burst " << burst;
    }
    g_now = kStart;
}

// Most calls before the quiet time are fast, so the counts of frees are as large as they get.
TEST(Clock, AThreadThatBecomesSlowReturnsMemory)
{
    cairn_malloc_trim(0);
    leave_dirty(130 * kMiB);
    for (int i = 0; i < 100000; i++)
        for (const size_t size : {300, 2000})
            cairn_free(model::opaque(cairn_malloc(size)));
    live_slowly(8); // 16 cycles of the longer block until the first look
    EXPECT_LE(dirty_bytes(), 4 * kMiB);
    g_now = kStart;
}

// Medium blocks in a slab with a block that stays in use, which was current before the quiet time.
TEST(Clock, AFewCallsASecondNextToABlockInUseReturnMemory)
{
    cairn_malloc_trim(0);
    for (const size_t size : {2000, 20000}) {
        void *kept = cairn_malloc(size);
        for (int i = 0; i < 1000; i++)
            cairn_free(model::opaque(cairn_malloc(size)));
        g_now += 100;
        leave_dirty(130 * kMiB);
        for (int i = 0; i < 5 * 6; i++) {
            g_now += 200;
            cairn_free(model::opaque(cairn_malloc(size)));
        }
        EXPECT_LE(dirty_bytes(), 4 * kMiB) << size;
        cairn_free(kept);
    }
    g_now = kStart;
}

// The pages inside slabs, too: 40 pairs a second of a heap that is four fifths free.
TEST(Clock, AHeapFullOfHolesReturnsThem)
{
    if (config_hardened)
        GTEST_SKIP() << "freed blocks wait in quarantine, and slots have a random order";
    cairn_malloc_trim(0);
    std::vector<void *> blocks;
    for (size_t bytes = 0; bytes < 100 * kMiB; bytes += 1000)
        blocks.push_back(cairn_malloc(1000));
    for (size_t i = 0; i < blocks.size(); i++)
        if (i % 40 >= 8) {
            cairn_free(blocks[i]);
            blocks[i] = nullptr;
        }
    struct heap_stats before;
    struct heap_stats after;
    heap_read_stats(&before);
    for (int i = 0; i < 40 * 10; i++) {
        g_now += 25;
        cairn_free(model::opaque(cairn_malloc(1000)));
    }
    heap_read_stats(&after);
    EXPECT_GE(after.pages.swept_bytes + after.pages.purged_bytes - before.pages.swept_bytes -
                  before.pages.purged_bytes,
              50 * kMiB);
    for (void *block : blocks)
        cairn_free(block);
    g_now = kStart;
}

} // namespace

uint64_t __wrap_os_now_ms(void)
{
    g_looks++;
    return g_now;
}

uint64_t __wrap_os_now_us(void) { return g_now * 1000; }
