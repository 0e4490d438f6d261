// Swaps and counts that are atomic only where other threads run.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

extern "C" {
#include "base/alone.h"
}

namespace
{

void swap()
{
    uintptr_t word = 1;
    EXPECT_EQ(alone_or_exchange(&word, 1, 2), 1u);
    EXPECT_EQ(word, 2u);
    uint8_t byte = 3;
    uint8_t expected = 3;
    EXPECT_TRUE(alone_or_compare_swap(&byte, &expected, uint8_t{4}));
    EXPECT_EQ(byte, 4);
    uint64_t count = 5;
    EXPECT_EQ(alone_or_count(&count), 5u);
    EXPECT_EQ(alone_or_count(&count), 6u);
    EXPECT_EQ(count, 7u);
}

TEST(Alone, SwapsAreTheSameWithAndWithoutOthers)
{
    swap();
    std::atomic<bool> ends{false};
    std::thread other([&] {
        while (!ends)
            std::this_thread::yield();
    });
    EXPECT_FALSE(is_alone());
    swap();
    uintptr_t word = 1;
    EXPECT_EQ(alone_or_exchange(&word, 5, 2), 1u) << "another thread changed it meanwhile";
    uint8_t byte = 3;
    uint8_t expected = 5;
    EXPECT_FALSE(alone_or_compare_swap(&byte, &expected, uint8_t{4}));
    EXPECT_EQ(expected, 3);
    ends = true;
    other.join();
}

TEST(Alone, ThreadsCountTogether)
{
    enum { ROUNDS = 10000 };
    uint64_t count = 0;
    const auto go = [&] {
        for (int i = 0; i < ROUNDS; i++)
            (void)alone_or_count(&count);
    };
    std::thread other(go);
    go();
    other.join();
    EXPECT_EQ(count, 2u * ROUNDS);
}

} // namespace
