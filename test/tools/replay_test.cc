// Traces that a test makes are turned into replay programs and played in this process
// (tools/replay). The player or the sanitizer reports a block that is used before it exists or
// after its end.
#include "replay_kit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace
{

class Replay : public testing::Test
{
  protected:
    void SetUp() override
    {
        char name[] = "/tmp/replay-test-XXXXXX";
        int file = mkstemp(name);
        ASSERT_GE(file, 0);
        close(file);
        path_ = name;
    }

    void TearDown() override
    {
        unlink(path_.c_str());
        unlink(policies_.c_str());
    }

    void begin(const char *policies = nullptr)
    {
        if (policies) {
            policies_ = path_ + ".policy";
            std::ofstream(policies_) << policies;
        }
        kit_begin(path_.c_str(), policies ? policies_.c_str() : nullptr);
    }

    static void allocate(uint32_t thread, uint64_t address, uint64_t size, uint32_t stack = 1)
    {
        add({KIT_ALLOC, thread, address, size, stack, 0, 0});
    }
    static void free(uint32_t thread, uint64_t address)
    {
        add({KIT_FREE, thread, address, 0, 0, 0, 0});
    }
    static void move(uint32_t thread, uint64_t from, uint64_t to, uint64_t size)
    {
        add({KIT_FROM, thread, from, 0, 0, 0, 0});
        add({KIT_TO, thread, to, size, 0, 0, 0});
    }
    static void add(const kit_event &event) { kit_add(&event); }

    kit_result play(bool empty = false) { return kit_play(path_.c_str(), empty, 100); }

    void write_at(uint64_t place, const std::string &bytes)
    {
        int file = open(path_.c_str(), O_WRONLY);
        ASSERT_EQ(pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(place)),
                  static_cast<ssize_t>(bytes.size()));
        close(file);
    }

    std::string path_, policies_;
};

TEST_F(Replay, OneThreadUsesNumbersAgain)
{
    begin();
    for (uint64_t i = 0; i < 10000; i++) {
        allocate(1, 0x1000, 100);
        allocate(1, 0x2000, 5000);
        move(1, 0x1000, 0x9000, 70000);
        free(1, 0x2000);
        free(1, 0x9000);
    }
    kit_program program = kit_finish();
    EXPECT_EQ(program.events, 50000u);
    EXPECT_EQ(program.slots, 2u);
    EXPECT_EQ(program.threads, 1u);
    EXPECT_EQ(program.waits, 0u);
    EXPECT_EQ(program.peak_live_bytes, 75000u);
    EXPECT_EQ(program.end_live_bytes, 0u);
    EXPECT_GE(play().samples, 20u);
    play(true);
}

TEST_F(Replay, SizesAndAlignmentsOfAllKinds)
{
    begin();
    add({KIT_ALLOC, 1, 0x1000, 0, 1, 0, 0});
    add({KIT_ALLOC, 1, 0x2000, 300000000, 1, 0, 0}); // more than the field of a record holds
    add({KIT_ALLOC, 1, 0x3000, 200, 1, 12, 0});
    add({KIT_ALLOC, 1, 0x4000, 4096, 1, 0, 1});
    add({KIT_RESIZE, 1, 0x2000, 200, 1, 0, 0});
    add({KIT_RESIZE, 1, 0x1000, 0, 1, 0, 0});
    for (uint64_t address = 0x1000; address <= 0x4000; address += 0x1000)
        free(1, address);
    EXPECT_EQ(kit_finish().events, 10u);
    EXPECT_GT(play().peak_bytes, 250000000u); // every page of the large block was written
}

// Thread A hands each block over to B, which frees it at once: B must not overtake A, and A's next
// blocks of a number must not overtake B.
TEST_F(Replay, HandOverKeepsItsOrder)
{
    begin();
    for (uint64_t i = 0; i < 20000; i++) {
        allocate(1, 0x1000, 64);
        free(2, 0x1000);
    }
    kit_program program = kit_finish();
    EXPECT_EQ(program.threads, 2u);
    EXPECT_EQ(program.waits, 20000u);
    EXPECT_LT(program.slots, 20000u); // B returns the numbers
    EXPECT_EQ(play().events, 40000u);
}

TEST_F(Replay, ThreadsResizeInTurn)
{
    begin();
    allocate(1, 0x1000, 16);
    for (uint64_t i = 0; i < 3000; i++)
        move(static_cast<uint32_t>(1 + i % 3), 0x1000, 0x1000, 16 + i % 500);
    free(2, 0x1000);
    EXPECT_EQ(kit_finish().slots, 1u);
    EXPECT_EQ(play().events, 3002u);
}

// Thread A fills 780 MB in total, of which at most 1 MiB is live at a time. Memory would grow if A
// ran ahead of B, which frees.
TEST_F(Replay, LiveMemoryStaysAsItWas)
{
    begin();
    enum { BLOCK = 64 << 10, LIVE = 16, BLOCKS = 12000 };
    for (uint64_t i = 0; i < BLOCKS; i++) {
        allocate(1, 0x100000 * (1 + i), BLOCK);
        if (i >= LIVE)
            free(2, 0x100000 * (1 + i - LIVE));
    }
    for (uint64_t i = BLOCKS - LIVE; i < BLOCKS; i++)
        free(1, 0x100000 * (1 + i));
    kit_program program = kit_finish();
    EXPECT_EQ(program.peak_live_bytes, uint64_t{BLOCK} * (LIVE + 1));
    kit_result result = play();
    EXPECT_LT(result.peak_bytes - result.start_bytes, uint64_t{400} << 20);
}

TEST_F(Replay, ThreadsComeAndGo)
{
    begin();
    for (uint32_t thread = 1; thread <= 300; thread++) {
        for (uint64_t i = 0; i < 20; i++)
            allocate(thread, 0x1000 * (1 + i), 1000);
        for (uint64_t i = 0; i < 20; i++)
            free(thread, 0x1000 * (1 + i));
    }
    EXPECT_EQ(kit_finish().threads, 300u);
    play();
}

TEST_F(Replay, BlocksOlderThanTheTrace)
{
    begin();
    free(1, 0x1000);
    add({KIT_RESIZE, 1, 0x2000, 100, 1, 0, 0});
    move(1, 0x3000, 0x4000, 100);
    free(1, 0x2000);
    free(1, 0x4000);
    allocate(1, 0x5000, 10);
    allocate(1, 0x5000, 20); // the free of the first block is missing
    add({KIT_FROM, 1, 0x5000, 0, 0, 0, 0});
    add({KIT_FAILED, 1, 0x5000, 0, 0, 0, 0});
    free(1, 0x5000);
    kit_program program = kit_finish();
    EXPECT_EQ(program.unknown, 3u);
    EXPECT_EQ(program.lost, 1u);
    EXPECT_EQ(program.end_live_bytes, 0u);
    play();
}

// Random events of six threads, on blocks of all of them.
void add_random(unsigned seed, uint64_t count, uint32_t stacks)
{
    std::mt19937 engine(seed);
    auto random = [&] { return static_cast<uint32_t>(engine()); };
    std::vector<uint64_t> live;
    uint64_t next = 0x1000;
    auto size = [&] { return random() % 16 ? random() % 300 : random() % 100000; };
    for (uint64_t i = 0; i < count; i++) {
        uint32_t thread = 1 + random() % 6;
        size_t at = live.empty() ? 0 : random() % live.size();
        unsigned what = random() % 8;
        if (live.size() < 100 || what < 3) {
            unsigned align = random() % 32 == 0 ? 4 + random() % 9 : 0;
            kit_event event = {KIT_ALLOC, thread,           next, size(), 1 + random() % stacks,
                               align,     random() % 8 == 0};
            kit_add(&event);
            live.push_back(next);
            next += 0x10;
        } else if (what < 5) {
            kit_event from = {KIT_FROM, thread, live[at], 0, 0, 0, 0};
            kit_event to = {KIT_TO, thread, next, size(), 0, 0, 0};
            kit_add(&from);
            kit_add(&to);
            live[at] = next;
            next += 0x10;
        } else {
            kit_event event = {KIT_FREE, thread, live[at], 0, 0, 0, 0};
            kit_add(&event);
            live[at] = live.back();
            live.pop_back();
        }
    }
    for (uint64_t address : live) {
        kit_event event = {KIT_FREE, static_cast<uint32_t>(1 + address / 16 % 6), address, 0, 0, 0,
                           0};
        kit_add(&event);
    }
}

TEST_F(Replay, RandomTraces)
{
    for (unsigned seed = 1; seed <= 3; seed++) {
        begin();
        add_random(seed, 30000, 9);
        kit_program program = kit_finish();
        EXPECT_EQ(program.lost + program.unknown, 0u);
        EXPECT_EQ(play().events, program.events);
    }
}

const char every_verdict[] = "# one policy of each\n"
                             "site-policy 1\n"
                             "h heap 1\ns stack 2\nc scope 3\nf fifo 4\nr ring:8 5\nq ring 6\n"
                             "p pool:256 7\nv reserve:4000 8\nt temporary 9-10 # two stacks\n";

TEST_F(Replay, EveryVerdictOnRandomTraces)
{
    begin(every_verdict);
    add_random(7, 30000, 11);
    kit_program program = kit_finish();
    EXPECT_EQ(play().events, program.events);
    EXPECT_EQ(kit_play_by_malloc(path_.c_str()).events, program.events);
    EXPECT_EQ(kit_play_with_work(path_.c_str(), 0, 3).events, program.events);
    EXPECT_EQ(kit_play_with_work(path_.c_str(), 1, 3).events, program.events);
}

TEST_F(Replay, WorkTakesAsLongAsItIsSaid)
{
    begin();
    for (uint64_t i = 0; i < 10000; i++) {
        allocate(1, 0x1000, 40, 1);
        free(1, 0x1000);
    }
    const kit_program program = kit_finish();
    constexpr uint32_t kWorkNs = 2000;
    for (const int in_line : {0, 1})
        EXPECT_GT(kit_play_with_work(path_.c_str(), in_line, kWorkNs).cpu_ns,
                  program.events * kWorkNs / 2);
}

TEST_F(Replay, EveryVerdictInOneThread)
{
    begin(every_verdict);
    for (uint32_t stack = 1; stack <= 10; stack++)
        for (uint64_t i = 0; i < 2000; i++) {
            allocate(1, 0x1000, 40, stack);
            allocate(1, 0x2000, 200, stack);
            move(1, 0x2000, 0x3000, 3000);
            free(1, i % 2 ? 0x3000 : 0x1000);
            free(1, i % 2 ? 0x1000 : 0x3000);
        }
    kit_finish();
    play();
    kit_play_by_malloc(path_.c_str());
}

TEST_F(Replay, DamagedProgramsAreRefused)
{
    begin();
    allocate(1, 0x1000, 10);
    free(1, 0x1000);
    kit_program program = kit_finish();
    ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(program.bytes - 8)), 0);
    EXPECT_EXIT(play(), testing::ExitedWithCode(1), "damaged replay program: the file is "
                                                    "truncated; prepare it again");
    ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(program.bytes)), 0);
    write_at(8, std::string("\2\0\0\0", 4));
    EXPECT_EXIT(play(), testing::ExitedWithCode(1),
                "is a replay program of version 2, this player reads version 1: prepare it again");
    write_at(8, std::string("\1\0\0\0", 4));
    write_at(0, "x");
    EXPECT_EXIT(play(), testing::ExitedWithCode(1), "is not a replay program");
    write_at(0, "C");
    write_at(128 + 24 + 4, "\7"); // the number of the first record
    EXPECT_EXIT(play(), testing::ExitedWithCode(1), "a block that (exists|does not exist)");
    ASSERT_EQ(truncate(path_.c_str(), 10), 0);
    EXPECT_EXIT(play(), testing::ExitedWithCode(1), "is not a replay program");
}

TEST_F(Replay, WrongPoliciesAreRefused)
{
    const std::map<const char *, const char *> wrong = {
        {"", ":0: the file is empty"},
        {"policy 1\n", ":1: the first line is not `site-policy 1`"},
        {"site-policy 1\na heap\n", ":2: a policy is NAME VERDICT STACK"},
        {"site-policy 1\na arena 3\n", ":2: arena is not a verdict"},
        {"site-policy 1\na heap:3 3\n", ":2: heap takes no number"},
        {"site-policy 1\na pool 3\n", ":2: pool needs a number: pool:N"},
        {"site-policy 1\na pool:0 3\n", ":2: pool:0: N is a number above 0"},
        {"site-policy 1\na heap 5-3\n", ":2: 5-3 is neither a stack's number nor a range"},
        {"site-policy 1\na heap x\n", ":2: x is not a number up to"},
        {"site-policy 1\na heap 3\nb fifo 1-4\n", ":3: stack 3 has a policy already"},
    };
    for (auto [text, message] : wrong)
        EXPECT_EXIT(begin(text), testing::ExitedWithCode(1), message) << text;
    policies_ = path_ + ".policy";
}

} // namespace
