// Sampling as an option starts it: guarded blocks come out of malloc, and traps are reported.

#include "watch/guarded_layer.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

using namespace guarded_layer;

void *allocate(size_t size) { return malloc_fast(size, malloc_slow); }

bool is_guarded(const void *block) { return page_map_find(block)->tag == SPAN_GUARDED; }

// Each case is a process of its own in ctest; run all at once they share what the first started.
class Sample : public testing::Test
{
  protected:
    void SetUp() override
    {
        static const int error = sample_start(1);
        ASSERT_EQ(error, 0);
    }
};

TEST_F(Sample, EveryBlockIsGuarded)
{
    for (const size_t size : {size_t{0}, size_t{1}, size_t{100}, size_t{1024}, size_t{30000}}) {
        if (config_void_blocks && size == 0)
            continue; // an access to one faults in any case
        void *block = allocate(size);
        EXPECT_TRUE(is_guarded(block)) << size;
        EXPECT_EQ(heap_usable_size(block), size);
        free_fast(block);
        block = heap_allocate_aligned(size, 256);
        EXPECT_TRUE(is_guarded(block)) << size;
        free_fast(block);
    }
    void *large = allocate(100000);
    EXPECT_FALSE(is_guarded(large));
    free_fast(large);
}

// Of an aligned block of up to 8 bytes, whose class is that of 9, too.
TEST_F(Sample, ASizedFreeNamesTheSizeThatWasAskedFor)
{
    for (size_t alignment = 1; alignment <= 64; alignment *= 2)
        for (size_t size = config_void_blocks ? 1 : 0; size <= 40; size++) {
            void *block = heap_allocate_aligned(size, alignment);
            ASSERT_TRUE(is_guarded(block)) << size << ", " << alignment;
            EXPECT_EQ(heap_usable_size(block), size) << alignment;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << size;
            heap_free_sized(block, size, alignment);
        }
}

TEST_F(Sample, AFullPoolLeavesTheRestToTheHeap)
{
    void *blocks[2 * SLOT_COUNT];
    size_t guarded = 0;
    for (void *&block : blocks) {
        block = allocate(100);
        ASSERT_NE(block, nullptr);
        guarded += is_guarded(block);
        memset(block, 1, 100);
    }
    EXPECT_EQ(guarded, size_t{SLOT_COUNT});
    for (void *block : blocks)
        free_fast(block);
}

TEST_F(Sample, TrapsAreReported)
{
    char *block = static_cast<char *>(allocate(100));
    while (!stands_right(block, 112)) {
        free_fast(block);
        block = static_cast<char *>(allocate(100));
    }
    volatile char *bytes = block;
    EXPECT_DEATH(bytes[112] = 1, "cairn: overflow: [a-z]+ of 0x[0-9a-f]+, 12 bytes behind a "
                                 "100-byte block at 0x[0-9a-f]+\n" +
                                     stack("allocated") + stack("misused"));
    free_fast(block);
    EXPECT_DEATH(bytes[50] = 1, "cairn: use after free: [a-z]+ of 0x[0-9a-f]+ \\(100-byte block "
                                "at 0x[0-9a-f]+\\)\n" +
                                    stack("allocated") + stack("freed") + stack("misused"));
}

TEST_F(Sample, ItCannotBeStartedWithoutMemory)
{
    if (!config_debug)
        GTEST_SKIP() << "no fault injection in release builds";
    const struct guarded_pool saved = guarded_pool;
    for (size_t skip = 0; skip < 3; skip++) {
        guarded_pool = {};
        os_fault_plan(skip, 1, ENOMEM);
        EXPECT_NE(guarded_start(), 0) << skip;
        os_fault_plan(0, 0, 0);
        EXPECT_EQ(guarded_pool.start, nullptr);
    }
    guarded_pool = saved;
}

} // namespace
