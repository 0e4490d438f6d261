// The figures by name: all of them, with the right values, and those that show whether memory is
// released.

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "cairn/heap.h"

extern "C" {
#include "front/control.h"
#include "heap/heap.h"
#include "os/process.h"
}

namespace figures_test
{

uint64_t value_of(const struct figures &figures, const std::string &name)
{
    bool of_steering = false;
    for (size_t i = 0; const char *key = figures_key(i, &of_steering); i++)
        if ("stats." + name == key)
            return figures_value(&figures, i);
    ADD_FAILURE() << "no " << name;
    return 0;
}

struct figures read()
{
    struct figures figures;
    figures_read(&figures);
    return figures;
}

TEST(Figures, EachNameHasItsMember)
{
    void *block = cairn_malloc(100000);
    const struct figures figures = read();
    EXPECT_EQ(value_of(figures, "allocated_bytes"), figures.heap.allocated_bytes);
    EXPECT_EQ(value_of(figures, "remap_calls"), figures.heap.remap_calls);
    EXPECT_EQ(value_of(figures, "large_blocks"), figures.heap.large_blocks);
    EXPECT_EQ(value_of(figures, "counted_bytes"), figures.steering.counted_bytes);
    EXPECT_EQ(value_of(figures, "pressure_spells"), figures.steering.pressure_spells);
    EXPECT_GE(value_of(figures, "large_bytes"), 100000u);
    cairn_free(block);
    std::set<std::string> names;
    bool of_steering = false;
    bool before = false;
    for (size_t i = 0; const char *key = figures_key(i, &of_steering); i++) {
        EXPECT_TRUE(names.insert(key).second) << key;
        EXPECT_TRUE(of_steering || !before) << "the figures of the heap are first";
        before = of_steering;
    }
    EXPECT_EQ(names.size(), sizeof figures / sizeof(uint64_t));
}

TEST(Figures, PinnedAndDirtyAreToldApart)
{
    constexpr size_t kBlocks = 40000;
    static void *blocks[kBlocks];
    for (void *&block : blocks)
        memset(block = cairn_malloc(64), 1, 64);
    const struct figures full = read();
    for (size_t i = 0; i < kBlocks; i++)
        if (i % 32 != 0)
            cairn_free(blocks[i]);
    heap_release(0);
    const struct figures sparse = read();
    EXPECT_LT(full.steering.pinned_bytes, full.heap.slab_bytes / 4);
    EXPECT_GT(sparse.steering.pinned_bytes, size_t{kBlocks} * 32);
    EXPECT_EQ(sparse.heap.dirty_bytes, 0u) << "no memory waits for decay, but the pages are in use";
    for (size_t i = 0; i < kBlocks; i += 32)
        cairn_free(blocks[i]);
    heap_release(0);
    EXPECT_LT(read().steering.pinned_bytes, sparse.steering.pinned_bytes / 4);
}

TEST(Figures, DecaysAreCountedAndAged)
{
    cairn_free(cairn_malloc(100000));
    const struct figures before = read();
    os_sleep_ms(1100); // more than half of the decay
    EXPECT_GE(read().steering.decay_age_ms, before.steering.decay_age_ms + 500)
        << "without a call nothing decays";
    const uint64_t called_ms = os_now_ms();
    cairn_thread_idle();
    EXPECT_EQ(read().steering.decays, before.steering.decays + 1);
    const uint64_t age_ms = read().steering.decay_age_ms;
    EXPECT_LE(age_ms, os_now_ms() - called_ms);
}

} // namespace figures_test
