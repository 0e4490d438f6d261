// Bit arithmetic, checksums and random numbers.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

extern "C" {
#include "base/bits.h"
#include "base/checksum.h"
#include "base/random.h"
}

namespace numbers_test
{

// Bit arithmetic and bitmap ranges.

TEST(Bits, PowersOfTwo)
{
    EXPECT_FALSE(is_power_of_two(0));
    for (unsigned shift = 0; shift < 64; shift++) {
        const size_t power = size_t{1} << shift;
        EXPECT_TRUE(is_power_of_two(power));
        EXPECT_EQ(is_power_of_two(power + 1), power == 1);
        EXPECT_EQ(lowest_bit(power), shift);
        EXPECT_EQ(highest_bit(power), shift);
        EXPECT_EQ(highest_bit(power | (power - 1)), shift);
        EXPECT_EQ(count_bits(power - 1), shift);
    }
}

TEST(Bits, Alignment)
{
    EXPECT_EQ(align_up(0, 16), 0u);
    EXPECT_EQ(align_up(1, 16), 16u);
    EXPECT_EQ(align_up(16, 16), 16u);
    EXPECT_EQ(align_down(31, 16), 16u);
    for (size_t value = 0; value < 300; value++) {
        for (size_t alignment = 1; alignment <= 128; alignment *= 2) {
            EXPECT_EQ(align_up(value, alignment), (value + alignment - 1) / alignment * alignment);
            EXPECT_EQ(align_down(value, alignment), value / alignment * alignment);
        }
    }
}

TEST(Bits, RotationAndOrder)
{
    EXPECT_EQ(rotate_right(1, 1), uint64_t{1} << 63);
    EXPECT_EQ(rotate_right(0xf0, 4), 0xfu);
    EXPECT_EQ(rotate_right(0xf0, 0), 0xf0u);
    EXPECT_EQ(rotate_right(rotate_right(0x123456789abcdefu, 15), 64 - 15), 0x123456789abcdefu);
    EXPECT_EQ(smaller_of(2, 3), 2u);
    EXPECT_EQ(larger_of(2, 3), 3u);
}

// Random ranges against a vector of booleans: within a word, whole words, across several words,
// empty.
TEST(Bits, BitmapRanges)
{
    constexpr size_t kBits = 64 * 7;
    uint64_t words[kBits / 64] = {};
    std::vector<bool> model(kBits);
    std::mt19937 random(5);
    for (int round = 0; round < 20000; round++) {
        const size_t first = random() % kBits;
        const size_t count = random() % 4 == 0 ? 64 * (random() % 3) : random() % 200;
        const size_t taken = std::min(count, kBits - first);
        const bool value = random() % 2 == 0;
        if (value)
            bitmap_set(words, first, taken);
        else
            bitmap_clear(words, first, taken);
        std::fill_n(model.begin() + static_cast<ptrdiff_t>(first), taken, value);
        const size_t from = random() % kBits;
        const size_t length = random() % (kBits - from + 1);
        const auto start = model.begin() + static_cast<ptrdiff_t>(from);
        ASSERT_EQ(
            bitmap_count(words, from, length),
            static_cast<size_t>(std::count(start, start + static_cast<ptrdiff_t>(length), true)));
    }
}

TEST(Bits, ZeroOfAWordThatWillBeWritten)
{
    uint64_t words[] = {7, 0, 7};
    EXPECT_TRUE(is_zero_to_write(&words[1]));
    for (unsigned bit = 0; bit < 64; bit++) {
        words[1] = uint64_t{1} << bit;
        EXPECT_FALSE(is_zero_to_write(&words[1]));
        EXPECT_EQ(words[1], uint64_t{1} << bit);
    }
    EXPECT_EQ(words[0] + words[2], 14u);
}

// Sanitizers write memory of their own for each page, so the test does not run there.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Bits, AFreshPageThatWillBeWrittenFaultsOnce)
{
    constexpr size_t kPages = 500;
    const auto page_bytes = static_cast<size_t>(getpagesize());
    void *start = mmap(nullptr, kPages * page_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(start, MAP_FAILED);
    (void)madvise(start, kPages * page_bytes, MADV_NOHUGEPAGE);
    const auto faults = [] {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        return usage.ru_minflt;
    };
    const long before = faults();
    for (size_t i = 0; i < kPages; i++) {
        char *page = static_cast<char *>(start) + i * page_bytes;
        ASSERT_TRUE(is_zero_to_write(page));
        *const_cast<volatile char *>(page) = 1;
    }
    EXPECT_LE(faults() - before, long{kPages} * 5 / 4);
    munmap(start, kPages * page_bytes);
}
#endif

// XXH64 compared with the values of its specification, and the properties that a checksum needs.

uint64_t sum(const std::string &text, uint64_t seed = 0)
{
    return checksum_of(text.data(), text.size(), seed);
}

// Values from xxhsum, version 0.8.
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

// Random numbers.

// The test vector of the paper's reference implementation: the key 0, 1, ... 15, and eight bytes.
TEST(Random, KeyedIsSipHash)
{
    const struct random_key key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    EXPECT_EQ(random_keyed(&key, 0x0706050403020100), 0x93f5f5799a932462u);
}

TEST(Random, BelowStaysBelow)
{
    uint64_t state = 1;
    for (int i = 0; i < 1000; i++)
        ASSERT_LT(random_below(&state, 7), 7u);
}

} // namespace numbers_test
