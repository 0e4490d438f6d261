// Wrong frees that are refused: nothing changes, whatever kind of block and whoever's.

#include <unistd.h>

#include <vector>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;

class RefuseKinds : public testing::TestWithParam<size_t>
{
  protected:
    void SetUp() override
    {
        if (config_hardened)
            GTEST_SKIP() << "hardened builds end the process";
        heap_layer::own_heap();
    }
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

TEST_P(RefuseKinds, FreesOfWhatIsNoBlockInUse)
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

INSTANTIATE_TEST_SUITE_P(Kinds, RefuseKinds,
                         testing::Values(24, 200, 3000, 20 * kKiB, 40 * kKiB, kMiB, 64 * kMiB));

} // namespace
