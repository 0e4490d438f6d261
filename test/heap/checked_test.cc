// Wrong frees that are refused: nothing changes, whatever kind of block and whoever's.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;

class Checked : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (config_hardened)
            GTEST_SKIP() << "hardened builds end the process";
        heap_layer::own_heap();
    }
};

class CheckedKinds : public Checked, public testing::WithParamInterface<size_t>
{
};

// In a process of its own, which goes on after wrong frees; whether all of it is as it was then.
template <typename Body> void expect_unchanged(Body frees)
{
    EXPECT_EXIT(
        {
            heap_go_on_after_wrong_frees();
            const heap_stats before = heap_layer::stats();
            const size_t wrong = frees();
            heap_layer::verify();
            const heap_stats after = heap_layer::stats();
            _exit(heap_count_wrong_frees() == wrong && before.live_bytes == after.live_bytes &&
                          before.live_blocks == after.live_blocks
                      ? 0
                      : 1);
        },
        testing::ExitedWithCode(0), "^(cairn: [^\n]*\n)+$");
}

TEST_P(CheckedKinds, FreesOfWhatIsNoBlockInUse)
{
    static std::vector<char *> blocks;
    blocks.clear();
    for (int i = 0; i < 9; i++)
        blocks.push_back(static_cast<char *>(allocate(GetParam())));
    free_fast(blocks[3]);
    in_thread([] { free_fast(blocks[5]); });
    expect_unchanged([] {
        char local[64];
        const auto wrong = [&] {
            free_fast(blocks[3]);
            free_fast(blocks[5]);
            free_fast(blocks[4] + 1);
            free_fast(local + 16);
            free_fast(reinterpret_cast<void *>(uintptr_t{1} << 60));
            heap_free_sized(blocks[4], GetParam() / 4 + 5000000000, 1);
        };
        wrong();
        in_thread(wrong);
        return size_t{12};
    });
    for (size_t i = 0; i < blocks.size(); i++)
        if (i != 3 && i != 5)
            free_fast(blocks[i]);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CheckedKinds,
                         testing::Values(24, 200, 3000, 20 * kKiB, 40 * kKiB, kMiB, 64 * kMiB));

// A fork's child refuses the second free of a thread's block that exists only in its parent.
TEST_F(Checked, BlocksOfThreadsThatAForkEnded)
{
    static void *block;
    static std::atomic<bool> made{false};
    static std::atomic<bool> over{false};
    std::thread owner([] {
        block = allocate(200);
        made = true;
        while (!over)
            usleep(100);
    });
    while (!made)
        usleep(100);
    EXPECT_EXIT(
        {
            heap_go_on_after_wrong_frees();
            free_fast(block);
            free_fast(block);
            _exit(heap_count_wrong_frees() == 1 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "^cairn: double free of [^\n]*\n$");
    over = true;
    owner.join();
}

} // namespace
