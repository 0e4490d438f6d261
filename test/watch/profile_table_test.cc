// The profiler's tables: sums by stack, samples in use, weights, and what happens when they are
// full.

#include "watch/profile_kit.h"

#include <cmath>
#include <memory>
#include <thread>

namespace
{

// Tables lie in metadata memory, which is never given back: all cases share one.
struct profile_table *table()
{
    static struct profile_table *made = profile_table_make();
    return made;
}

class ProfileTable : public testing::Test
{
  protected:
    void SetUp() override
    {
        heap_start();
        ASSERT_NE(table(), nullptr);
        profile_table_reset(table());
    }
    void TearDown() override { profile_table_reset(table()); }

    static bool add(uintptr_t block, size_t size, std::vector<uintptr_t> frames,
                    uint64_t interval = 1)
    {
        const struct profile_block taken = {block, 0, 7, size, profile_weight(size, interval),
                                            0,     99};
        return profile_table_add(table(), &taken, size, frames.data(),
                                 static_cast<unsigned>(frames.size()));
    }
    static bool remove(uintptr_t block)
    {
        return profile_table_remove(table(), reinterpret_cast<void *>(block));
    }
    static const struct profile_site *site_of(const std::vector<uintptr_t> &frames)
    {
        const struct profile_site *found = nullptr;
        for (const struct profile_site &site : table()->sites)
            if (site.ready == frames.size() + 1 &&
                std::equal(frames.begin(), frames.end(), &table()->frames[site.first_frame])) {
                EXPECT_EQ(found, nullptr) << "two sites of one stack";
                found = &site;
            }
        return found;
    }
};

TEST_F(ProfileTable, CostsAtMost2MiB)
{
    EXPECT_LE(sizeof(struct profile_table), size_t{2} << 20);
    EXPECT_GT(sizeof(struct profile_table), size_t{1} << 20);
}

TEST_F(ProfileTable, WeightsAreOneThroughTheChance)
{
    for (const double interval : {1.0, 4096.0, 524288.0, 1e9})
        for (double size = 8; size < 1e8; size *= 1.7) {
            const auto bytes = static_cast<uint64_t>(size);
            const double weight =
                1 / -expm1(-static_cast<double>(bytes) / interval) * (1 << PROFILE_WEIGHT_SHIFT);
            const auto got =
                static_cast<double>(profile_weight(bytes, static_cast<uint64_t>(interval)));
            EXPECT_NEAR(got / weight, 1, 1e-5) << bytes << " at " << interval;
        }
}

TEST_F(ProfileTable, SumsByStack)
{
    EXPECT_TRUE(add(0x1000, 100, {1, 2, 3}));
    EXPECT_TRUE(add(0x2000, 200, {1, 2, 3}));
    EXPECT_TRUE(add(0x3000, 50, {1, 2, 4}));
    const struct profile_site *site = site_of({1, 2, 3});
    ASSERT_NE(site, nullptr);
    EXPECT_EQ(site->allocated.samples, 2u);
    EXPECT_EQ(site->allocated.bytes, 300u);
    EXPECT_EQ(site->live.objects, uint64_t{2} << PROFILE_WEIGHT_SHIFT);
    EXPECT_EQ(site_of({1, 2, 4})->live.bytes, 50u);
    EXPECT_EQ(table()->live.bytes, 350u);
    EXPECT_TRUE(remove(0x1000));
    EXPECT_FALSE(remove(0x1000)) << "once";
    EXPECT_FALSE(remove(0x4000));
    EXPECT_EQ(site->allocated.bytes, 300u);
    EXPECT_EQ(site->live.bytes, 200u);
    EXPECT_EQ(site->live.samples, 1u);
    EXPECT_EQ(table()->live.bytes, 250u);
}

TEST_F(ProfileTable, ABlockOfASmallChanceCountsForMany)
{
    EXPECT_TRUE(add(0x1000, 1024, {5}, 512 << 10));
    const struct profile_site *site = site_of({5});
    EXPECT_NEAR(static_cast<double>(site->live.objects) / (1 << PROFILE_WEIGHT_SHIFT), 512.5, 0.01);
    EXPECT_NEAR(static_cast<double>(site->live.bytes), 512.5 * 1024, 20);
    EXPECT_TRUE(remove(0x1000));
    EXPECT_EQ(site->live.objects, 0u);
    EXPECT_EQ(site->live.bytes, 0u);
}

TEST_F(ProfileTable, WithoutAStackItGoesToTheFirstSite)
{
    EXPECT_TRUE(add(0x1000, 100, {}));
    EXPECT_EQ(table()->sites[0].live.bytes, 100u);
    EXPECT_EQ(table()->stacks_lost, 0u);
    EXPECT_TRUE(remove(0x1000));
}

TEST_F(ProfileTable, TooManySamplesAreCounted)
{
    uint64_t kept = 0, blocks = 2 * PROFILE_BLOCKS;
    for (uint64_t i = 1; i <= blocks; i++)
        kept += add(i * 4112, 16, {9});
    EXPECT_LE(kept, uint64_t{PROFILE_BLOCKS});
    EXPECT_GT(kept, uint64_t{PROFILE_BLOCKS} * 9 / 10) << "the table is used well";
    EXPECT_EQ(table()->blocks_lost, blocks - kept);
    const struct profile_site *site = site_of({9});
    EXPECT_EQ(site->allocated.samples, blocks);
    EXPECT_EQ(site->live.samples, kept);
    uint64_t removed = 0;
    for (uint64_t i = 1; i <= blocks; i++)
        removed += remove(i * 4112);
    EXPECT_EQ(removed, kept);
    EXPECT_EQ(site->live.bytes, 0u);
}

TEST_F(ProfileTable, ResetForgetsSamplesAndSums)
{
    EXPECT_TRUE(add(0x1000, 100, {1, 2, 3}));
    profile_table_reset(table());
    EXPECT_FALSE(remove(0x1000));
    EXPECT_EQ(site_of({1, 2, 3})->allocated.samples, 0u);
    EXPECT_EQ(table()->live.bytes, 0u);
    EXPECT_EQ(table()->allocated.bytes, 0u);
    EXPECT_TRUE(add(0x1000, 100, {1, 2, 3}));
    EXPECT_EQ(site_of({1, 2, 3})->live.bytes, 100u);
}

TEST_F(ProfileTable, ThreadsTogether)
{
    std::vector<std::thread> threads;
    for (uintptr_t number = 0; number < 4; number++)
        threads.emplace_back([number] {
            for (uintptr_t round = 0; round < 200; round++)
                for (uintptr_t i = 1; i <= 30; i++) {
                    EXPECT_TRUE(add(i << 20 | number << 12, 64, {i, 77, 78}));
                    if (i > 5) {
                        EXPECT_TRUE(remove((i - 5) << 20 | number << 12));
                    }
                    for (uintptr_t left = 26; i == 30 && left <= 30; left++) {
                        EXPECT_TRUE(remove(left << 20 | number << 12));
                    }
                }
        });
    for (std::thread &thread : threads)
        thread.join();
    uint64_t samples = 0;
    for (const struct profile_site &site : table()->sites)
        samples += site.allocated.samples;
    EXPECT_EQ(samples, 4u * 200 * 30);
    EXPECT_EQ(table()->live.samples, 0u);
    EXPECT_EQ(table()->live.bytes, 0u);
}

// Last: stacks stay for ever.
TEST_F(ProfileTable, ZTooManyStacksCountAsOne)
{
    for (uintptr_t i = 1; i <= 2 * PROFILE_SITES; i++) {
        EXPECT_TRUE(add(0x100000, 16, {i, 1000, 2000}));
        EXPECT_TRUE(remove(0x100000));
    }
    EXPECT_GT(table()->stacks_lost, uint64_t{PROFILE_SITES} / 2);
    EXPECT_EQ(table()->sites[0].allocated.samples, table()->stacks_lost);
    EXPECT_EQ(table()->allocated.samples, uint64_t{2} * PROFILE_SITES);
    std::vector<uintptr_t> deep(PROFILE_DEPTH);
    for (uintptr_t i = 1; i <= 2 * PROFILE_FRAMES / PROFILE_DEPTH; i++) {
        deep[0] = i;
        EXPECT_TRUE(add(0x100000, 16, deep));
        EXPECT_TRUE(remove(0x100000));
    }
    EXPECT_LE(table()->frames_taken, uint64_t{PROFILE_FRAMES});
}

} // namespace
