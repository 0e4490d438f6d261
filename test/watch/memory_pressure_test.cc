// The limits of the control group as they change, and memory pressure that rises and falls. The
// files belong to the test, which also moves the clock.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "cairn/heap.h"
#include "heap/heap_layer.h"

extern "C" {
#include "watch/watch.h"
}

namespace memory_pressure_test
{

using heap_layer::limits;

constexpr size_t kMiB = size_t{1} << 20;

page_stats stats()
{
    page_stats now;
    pages_read_stats(&now);
    return now;
}

// Frees at least 4 MiB of written memory, in blocks that no run cache keeps.
void free_much()
{
    constexpr size_t kBlocks = 15;
    constexpr size_t kBytes = 512 << 10;
    void *blocks[kBlocks];
    for (void *&block : blocks)
        memset(block = cairn_malloc(kBytes), 1, kBytes);
    for (void *block : blocks)
        cairn_free(block);
}

class MemoryPressure : public testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        char name[] = "/tmp/cairn-pressure-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        root() = name;
        ASSERT_TRUE(memory_pressure_root(name, strlen(name)));
        heap_start();
    }

    static void TearDownTestSuite() { std::filesystem::remove_all(root()); }

    void TearDown() override
    {
        memory_pressure_forget();
        (void)memory_pressure_follow_soft(false);
        (void)memory_pressure_follow_hard(false);
        pages_limit_soft(0);
        pages_limit_hard(0);
        std::filesystem::remove_all(root());
    }

    static std::string &root()
    {
        static std::string path;
        return path;
    }

    static void write(const std::string &path, const std::string &text)
    {
        const std::filesystem::path full = root() + path;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full) << text;
    }

    static void group(const std::string &max, const std::string &high)
    {
        write("/proc/self/cgroup", "0::/a\n");
        write("/sys/fs/cgroup/a/memory.max", max);
        write("/sys/fs/cgroup/a/memory.high", high);
    }

    static void stall(const std::string &file, uint64_t us)
    {
        write("/proc/self/cgroup", "0::/a\n");
        write(file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=" + std::to_string(us) + "\n");
    }

    uint64_t clock_ms_ = 1000;
};

TEST_F(MemoryPressure, TheLimitsFollowTheGroup)
{
    group("1000000000", "max");
    (void)memory_pressure_follow_soft(true);
    (void)memory_pressure_follow_hard(true);
    EXPECT_EQ(limits().soft_limit_bytes, 900000000u);
    EXPECT_EQ(limits().hard_limit_bytes, 950000000u);
    group("1000000000", "500000000");
    memory_pressure_look(clock_ms_);
    EXPECT_EQ(limits().soft_limit_bytes, 450000000u) << "below memory.high, never above";
    EXPECT_EQ(limits().hard_limit_bytes, 950000000u);
    group("200000000", "500000000");
    memory_pressure_look(clock_ms_ += 500);
    EXPECT_EQ(limits().soft_limit_bytes, 180000000u);
    EXPECT_EQ(limits().hard_limit_bytes, 190000000u);
    memory_pressure_figures figures;
    memory_pressure_read(&figures);
    EXPECT_EQ(figures.max_bytes, 200000000u);
    EXPECT_EQ(figures.high_bytes, 500000000u);
    group("max", "max");
    memory_pressure_look(clock_ms_ += 500);
    EXPECT_EQ(limits().soft_limit_bytes, 0u);
    EXPECT_EQ(limits().hard_limit_bytes, 0u);
}

// Each change of a page setting follows the group anew.
TEST_F(MemoryPressure, LimitsStayWhenTheyAreSetAgainAndTheGroupCannotBeRead)
{
    group("1000000000", "500000000");
    EXPECT_EQ(memory_pressure_follow_soft(true), 0);
    EXPECT_EQ(memory_pressure_follow_hard(true), 0);
    std::filesystem::remove_all(root() + "/proc");
    EXPECT_EQ(memory_pressure_follow_soft(true), 0);
    EXPECT_EQ(memory_pressure_follow_hard(true), 0);
    EXPECT_EQ(limits().soft_limit_bytes, 450000000u);
    EXPECT_EQ(limits().hard_limit_bytes, 950000000u);
}

// A fork copied the parent while its thread began pressure and had not noted it.
TEST_F(MemoryPressure, AChildForgetsPressureThatHasJustBegun)
{
    pages_press(true);
    memory_pressure_forget();
    EXPECT_FALSE(stats().pressed);
}

TEST_F(MemoryPressure, LimitsStayWhileTheGroupCannotBeRead)
{
    group("1000000000", "max");
    (void)memory_pressure_follow_soft(true);
    (void)memory_pressure_follow_hard(true);
    memory_pressure_look(clock_ms_ += 1000);
    std::filesystem::rename(root() + "/proc/self/cgroup", root() + "/hidden");
    memory_pressure_look(clock_ms_ += 1000);
    EXPECT_EQ(limits().soft_limit_bytes, 900000000u);
    EXPECT_EQ(limits().hard_limit_bytes, 950000000u);
    group("500000000", "max");
    memory_pressure_look(clock_ms_ += 1000);
    EXPECT_EQ(limits().hard_limit_bytes, 475000000u);
}

TEST_F(MemoryPressure, WhatDoesNotFollowStays)
{
    pages_limit_soft(77);
    pages_limit_hard(size_t{1} << 40);
    group("1000000000", "max");
    memory_pressure_look(clock_ms_);
    EXPECT_EQ(limits().soft_limit_bytes, 77u);
    EXPECT_EQ(limits().hard_limit_bytes, size_t{1} << 40);
}

TEST_F(MemoryPressure, ALimitThatFallsIsHeededAtOnce)
{
    group("1000000000", "max");
    (void)memory_pressure_follow_soft(true);
    free_much();
    ASSERT_GE(stats().dirty_bytes, 4 * kMiB);
    group("2000000", "max");
    memory_pressure_look(clock_ms_);
    EXPECT_EQ(stats().dirty_bytes, 0u);
}

// A file of the group does not answer: the thread that reads it waits, and other threads get an
// error instead of waiting for ever.
TEST_F(MemoryPressure, WhoIsHeldUpByAFileHoldsUpNobodyForEver)
{
    group("1000000000", "max");
    const std::string high = root() + "/sys/fs/cgroup/a/memory.high";
    ASSERT_EQ(unlink(high.c_str()), 0);
    ASSERT_EQ(mkfifo(high.c_str(), 0600), 0);
    std::thread reader([] { EXPECT_EQ(memory_pressure_follow_soft(true), 0); });
    int writer = -1; // it can be opened once the reader waits
    while (writer < 0)
        writer = open(high.c_str(), O_WRONLY | O_NONBLOCK);
    EXPECT_EQ(memory_pressure_follow_hard(true), -EBUSY);
    EXPECT_EQ(::write(writer, "max", 3), 3);
    (void)close(writer);
    reader.join();
    EXPECT_EQ(memory_pressure_follow_hard(false), 0);
}

class Pressure : public MemoryPressure, public testing::WithParamInterface<const char *>
{
};

TEST_P(Pressure, KeepsNothingAndThenTheUsualPolicyIsBack)
{
    memory_pressure_figures before;
    memory_pressure_read(&before);
    stall(GetParam(), 5000000);
    memory_pressure_look(clock_ms_);
    free_much();
    EXPECT_GE(stats().dirty_bytes, 4 * kMiB) << "stalls before the first look do not count";
    stall(GetParam(), 5020000);
    memory_pressure_look(clock_ms_ += 500);
    EXPECT_FALSE(stats().pressed) << "20 of 500 ms are no pressure";
    stall(GetParam(), 5120000);
    memory_pressure_look(clock_ms_ += 500);
    EXPECT_TRUE(stats().pressed);
    EXPECT_EQ(stats().dirty_bytes, 0u);
    free_much();
    EXPECT_EQ(stats().dirty_bytes, 0u);
    for (int looks = 0; looks < 3; looks++) {
        memory_pressure_look(clock_ms_ += 500);
        EXPECT_TRUE(stats().pressed);
    }
    memory_pressure_look(clock_ms_ += 500);
    EXPECT_FALSE(stats().pressed);
    free_much();
    EXPECT_GE(stats().dirty_bytes, 4 * kMiB);
    memory_pressure_figures after;
    memory_pressure_read(&after);
    EXPECT_EQ(after.pressure_spells, before.pressure_spells + 1);
}

INSTANTIATE_TEST_SUITE_P(Files, Pressure,
                         testing::Values("/proc/pressure/memory",
                                         "/sys/fs/cgroup/a/memory.pressure"),
                         [](const auto &each) { return each.index == 0 ? "System" : "Group"; });

} // namespace memory_pressure_test
