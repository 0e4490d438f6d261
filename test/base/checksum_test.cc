// XXH64 against the values of its specification, and what a checksum is for.

#include <gtest/gtest.h>

#include <string>

extern "C" {
#include "base/checksum.h"
}

namespace
{

uint64_t sum(const std::string &text, uint64_t seed = 0)
{
    return checksum_of(text.data(), text.size(), seed);
}

// Of xxhsum, version 0.8.
TEST(Checksum, ValuesOfTheReference)
{
    EXPECT_EQ(sum(""), 0xef46db3751d8e999u);
    EXPECT_EQ(sum("a"), 0xd24ec4f1a98c6e5bu);
    EXPECT_EQ(sum("abc"), 0x44bc2cf5ad770999u);
    EXPECT_EQ(sum("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1u);
}

TEST(Checksum, EveryBitCounts)
{
    for (size_t size : {1, 3, 7, 8, 15, 31, 32, 33, 63, 64, 100, 200}) {
        std::string text(size, 'x');
        const uint64_t before = sum(text);
        for (size_t bit = 0; bit < size * 8; bit++) {
            text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
            EXPECT_NE(sum(text), before) << size << " bytes, bit " << bit;
            text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
        }
    }
}

TEST(Checksum, SeedAndLengthCount)
{
    EXPECT_NE(sum("abc", 1), sum("abc"));
    EXPECT_NE(sum(std::string(40, '\0')), sum(std::string(41, '\0')));
}

} // namespace
