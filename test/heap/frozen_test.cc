// Blocks of threads that a fork ended.

#include <unistd.h>

#include <atomic>
#include <thread>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;

class Frozen : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (config_hardened)
            GTEST_SKIP() << "hardened builds end the process";
        heap_layer::own_heap();
    }
};

// A fork's child refuses the second free of a thread's block that exists only in its parent.
TEST_F(Frozen, BlocksOfThreadsThatAForkEnded)
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
