// Swaps and counts that use atomic instructions only while other threads run.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

extern "C" {
#include "base/alone.h"
}

namespace alone_test
{

void swap()
{
    uintptr_t word = 1;
    EXPECT_EQ(exchange_if_threaded(&word, 1, 2), 1u);
    EXPECT_EQ(word, 2u);
    store_if_threaded(&word, uintptr_t{3});
    EXPECT_EQ(word, 3u);
    uint8_t byte = 3;
    uint8_t expected = 3;
    EXPECT_TRUE(compare_swap_if_threaded(&byte, &expected, uint8_t{4}));
    EXPECT_EQ(byte, 4);
    uint64_t count = 5;
    EXPECT_EQ(count_if_threaded(&count), 5u);
    EXPECT_EQ(count_if_threaded(&count), 6u);
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
    EXPECT_FALSE(process_is_single_threaded());
    swap();
    uintptr_t word = 1;
    EXPECT_EQ(exchange_if_threaded(&word, 5, 2), 1u) << "another thread has changed the word";
    uint8_t byte = 3;
    uint8_t expected = 5;
    EXPECT_FALSE(compare_swap_if_threaded(&byte, &expected, uint8_t{4}));
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
            (void)count_if_threaded(&count);
    };
    std::thread other(go);
    go();
    other.join();
    EXPECT_EQ(count, 2u * ROUNDS);
}

} // namespace alone_test
