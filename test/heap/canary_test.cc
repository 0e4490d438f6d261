// Canaries: every byte next to a block's end.

#include "heap/harden_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::span_of;

class Canary : public heap_layer::HardenedHeap
{
};

using CanaryDeathTest = Canary;

// Whatever byte is written next to a block's end, whatever its size: also a zero, as of a string.
TEST_F(CanaryDeathTest, OneByteTooFar)
{
    for (size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{24}, size_t{40},
                        size_t{41}, size_t{1000}, size_t{3001}, MEDIUM_MOST + size_t{0}}) {
        if (config_void_blocks && size == 0)
            continue;
        char *block = static_cast<char *>(allocate(size));
        const std::string message = "^cairn: overflow of 0x[0-9a-f]+ \\(" +
                                    std::to_string(span_of(block)->size_bytes) +
                                    "-byte block\\)\n$";
        const auto overflow = [&](char value) {
            block[size] = block[size] == value ? static_cast<char>(value + 1) : value;
            free_fast(block);
        };
        EXPECT_EXIT(overflow(0), testing::KilledBySignal(SIGABRT), message) << size;
        EXPECT_EXIT(overflow(65), testing::KilledBySignal(SIGABRT), message) << size;
        const auto elsewhere = [&] {
            block[size]++;
            in_thread([&] { free_fast(block); });
        };
        EXPECT_EXIT(elsewhere(), testing::KilledBySignal(SIGABRT), message) << size;
        const auto resized = [&] {
            block[size]++;
            (void)heap_resize(block, size + 1);
        };
        EXPECT_EXIT(resized(), testing::KilledBySignal(SIGABRT), message) << size;
        const auto asked = [&] {
            block[size]++;
            (void)heap_usable_size(block);
        };
        EXPECT_EXIT(asked(), testing::KilledBySignal(SIGABRT), message) << size;
        const auto sized = [&] {
            block[size]++;
            heap_free_sized(block, size, 1);
        };
        EXPECT_EXIT(sized(), testing::KilledBySignal(SIGABRT), message) << size;
        const auto far = [&] {
            block[span_of(block)->size_bytes - 1]++;
            heap_free_sized(block, size, 1);
        };
        EXPECT_EXIT(far(), testing::KilledBySignal(SIGABRT), message) << size;
        free_fast(block);
    }
}

TEST_F(CanaryDeathTest, ADoubleFreeIsNotTakenForAnOverflow)
{
    char *block = static_cast<char *>(allocate(40));
    const auto twice = [&] {
        free_fast(block);
        free_fast(block);
    };
    EXPECT_EXIT(twice(), testing::KilledBySignal(SIGABRT), "^cairn: double free of ");
    free_fast(block);
}

} // namespace
