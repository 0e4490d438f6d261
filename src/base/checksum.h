/* A 64-bit checksum of bytes: detects accidents, not forgery.
 *
 * Algorithm: XXH64 by Yann Collet,
 * https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md: four lanes of multiplications
 * and rotations, 32 bytes for each step, at about the speed of memory. For little-endian
 * machines only; Cairn supports no others. Pure function, no state.
 */
#ifndef CAIRN_BASE_CHECKSUM_H
#define CAIRN_BASE_CHECKSUM_H

#include "base/compiler.h"

/* The checksum of `size_bytes` bytes. Another seed gives another checksum. */
uint64_t checksum_of(const void *bytes, size_t size_bytes, uint64_t seed);

#endif
