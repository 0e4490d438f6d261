/* A 64-bit checksum of bytes: finds accidents, not forgers.
 *
 * Algorithm: XXH64 by Yann Collet, https://github.com/Cyan4973/xxHash/blob/dev/doc/
 * xxhash_spec.md: four lanes of multiply and rotate, 32 bytes a step, at about the speed of memory.
 * Little endian machines only, which all of Cairn's are. Pure function, no state.
 */
#ifndef CAIRN_BASE_CHECKSUM_H
#define CAIRN_BASE_CHECKSUM_H

#include "base/compiler.h"

uint64_t checksum_of(const void *bytes, size_t size_bytes, uint64_t seed);

#endif
