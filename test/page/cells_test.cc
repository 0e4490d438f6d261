// Descriptors that are recycled: fresh ones, those given back, many threads at once.

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

extern "C" {
#include "page/page.h"
}

namespace
{

struct Descriptor {
    uint64_t words[9];
};

TEST(Cells, AFreshOneIsZeroAndAlignedToALine)
{
    static struct cell_list list = {0, sizeof(Descriptor)};
    for (int i = 0; i < 100; i++) {
        auto *cell = static_cast<Descriptor *>(cell_take_from(&list));
        ASSERT_NE(cell, nullptr);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(cell) % 64, 0u);
        for (uint64_t word : cell->words)
            ASSERT_EQ(word, 0u);
        memset(cell, 1, sizeof *cell);
    }
}

TEST(Cells, OneGivenBackKeepsItsContentAndIsTakenNext)
{
    static struct cell_list list = {0, sizeof(Descriptor)};
    static struct cell_list other = {0, sizeof(Descriptor)};
    auto *first = static_cast<Descriptor *>(cell_take_from(&list));
    auto *second = static_cast<Descriptor *>(cell_take_from(&list));
    memset(first, 7, sizeof *first);
    cell_give_to(&list, second);
    cell_give_to(&list, first);
    EXPECT_NE(cell_take_from(&other), first);
    EXPECT_EQ(cell_take_from(&list), first);
    for (uint64_t word : first->words)
        EXPECT_EQ(word, 0x0707070707070707u);
    EXPECT_EQ(cell_take_from(&list), second);
}

TEST(Cells, ThreadsNeverHoldTheSameOne)
{
    static struct cell_list list = {0, sizeof(Descriptor)};
    constexpr int kThreads = 4;
    std::vector<std::thread> threads;
    int faults[kThreads] = {};
    for (int self = 0; self < kThreads; self++)
        threads.emplace_back([&, self] {
            for (uint64_t round = 0; round < 20000; round++) {
                Descriptor *held[3];
                for (Descriptor *&cell : held) {
                    cell = static_cast<Descriptor *>(cell_take_from(&list));
                    cell->words[8] = round * kThreads + static_cast<uint64_t>(self);
                }
                for (Descriptor *cell : held) {
                    faults[self] +=
                        cell->words[8] != round * kThreads + static_cast<uint64_t>(self);
                    cell_give_to(&list, cell);
                }
            }
        });
    for (auto &thread : threads)
        thread.join();
    for (int count : faults)
        EXPECT_EQ(count, 0);
}

} // namespace
