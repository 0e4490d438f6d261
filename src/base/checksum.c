/* XXH64: see checksum.h. */
#include "base/checksum.h"

#include "base/bits.h"

#define PRIME_1 0x9e3779b185ebca87u
#define PRIME_2 0xc2b2ae3d27d4eb4fu
#define PRIME_3 0x165667b19e3779f9u
#define PRIME_4 0x85ebca77c2b2ae63u
#define PRIME_5 0x27d4eb2f165667c5u

static uint64_t checksum_rotate_left(uint64_t value, unsigned count)
{
    return rotate_right(value, 64 - count);
}

static uint64_t checksum_read_64(const unsigned char *at)
{
    uint64_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t checksum_read_32(const unsigned char *at)
{
    uint32_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t checksum_mix(uint64_t lane, uint64_t input)
{
    return checksum_rotate_left(lane + input * PRIME_2, 31) * PRIME_1;
}

static uint64_t checksum_merge(uint64_t sum, uint64_t lane)
{
    return (sum ^ checksum_mix(0, lane)) * PRIME_1 + PRIME_4;
}

static uint64_t checksum_sum_of_lanes(const unsigned char **from, size_t *left_bytes, uint64_t seed)
{
    const unsigned char *at = *from;
    uint64_t lane[4] = {seed + PRIME_1 + PRIME_2, seed + PRIME_2, seed, seed - PRIME_1};
    for (; *left_bytes >= 32; *left_bytes -= 32, at += 32)
        for (unsigned i = 0; i < 4; i++)
            lane[i] = checksum_mix(lane[i], checksum_read_64(at + 8 * i));
    *from = at;
    uint64_t sum = checksum_rotate_left(lane[0], 1) + checksum_rotate_left(lane[1], 7) +
                   checksum_rotate_left(lane[2], 12) + checksum_rotate_left(lane[3], 18);
    for (unsigned i = 0; i < 4; i++)
        sum = checksum_merge(sum, lane[i]);
    return sum;
}

uint64_t checksum_of(const void *bytes, size_t size_bytes, uint64_t seed)
{
    const unsigned char *at = bytes;
    size_t left = size_bytes;
    uint64_t sum = left >= 32 ? checksum_sum_of_lanes(&at, &left, seed) : seed + PRIME_5;
    sum += size_bytes;
    for (; left >= 8; left -= 8, at += 8)
        sum = checksum_rotate_left(sum ^ checksum_mix(0, checksum_read_64(at)), 27) * PRIME_1 +
              PRIME_4;
    if (left >= 4) {
        sum = checksum_rotate_left(sum ^ checksum_read_32(at) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        left -= 4;
        at += 4;
    }
    for (; left > 0; left--, at++)
        sum = checksum_rotate_left(sum ^ *at * PRIME_5, 11) * PRIME_1;
    sum = (sum ^ sum >> 33) * PRIME_2;
    sum = (sum ^ sum >> 29) * PRIME_3;
    return sum ^ sum >> 32;
}
