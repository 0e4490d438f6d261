// The bit arithmetic, checked for every value that can occur. The unit tests of these modules check
// examples only.

#include <gtest/gtest.h>

#include <vector>

extern "C" {
#include "heap/lifecycle.h"
#include "heap/size_class.h"
#include "heap/slab.h"
#include "region/tlsf.h"
}

namespace
{

// The slot formula is rotate(d * inverse), where d is the difference between an address in the
// slab's pages and its base, so 0 <= d < 2^20; the test decides it for |d| < 2^20. For each class
// and each number that free could take for a slot, the set of all d with that result is computed
// backwards. At most one member of the set can occur, and that is the start of the block. So no
// other address in a slab is ever taken for a block.
TEST(Arithmetic, OnlyABlocksStartHasASlotNumber)
{
    heap_start();
    for (unsigned i = 0; i < CLASS_COUNT; i++) { // hardened builds have bytes behind each block
        const struct slab_shape &shape = size_classes[i];
        // The smaller the block, the fewer differences the 32 bits tell apart: of packed slabs,
        // with blocks of 8 bytes, 2^20 in all. Their pages are at most 2^19 bytes long.
        const int64_t reach = int64_t{1} << (class_is_packed(i) ? 19 : 20);
        ASSERT_LE((shape.pages << PAGE_SHIFT) + shape.size_bytes, reach);
        const unsigned twos = lowest_bit(shape.size_bytes);
        ASSERT_LE(twos, unsigned{INVERSE_SHIFT});
        // high bits of the difference that have no effect
        const unsigned lost = INVERSE_SHIFT - twos;
        const uint32_t odd = shape.size_bytes >> twos;
        ASSERT_EQ((shape.inverse >> lost) * odd << lost, uint32_t{1} << lost) << shape.size_bytes;
        for (uint32_t slot = 0; slot <= CAPACITY_MAX + 1u; slot++) {
            const auto product = static_cast<uint32_t>(rotate_right_32(slot, 32 - INVERSE_SHIFT));
            ASSERT_EQ(product & ((uint32_t{1} << lost) - 1), 0u) << "the formula's low bits are 0";
            const uint32_t least = (product >> lost) * odd & ((~uint32_t{0}) >> lost);
            // All solutions are least + n * 2^(32 - lost); the loop looks at those in reach.
            const uint32_t step = lost == 0 ? 0 : uint32_t{1} << (32 - lost);
            int found = 0;
            for (uint32_t n = 0; n < uint32_t{1} << lost; n++) {
                const auto difference = static_cast<int32_t>(least + n * step);
                if (difference <= -reach || difference >= reach)
                    continue;
                found++;
                ASSERT_EQ(difference, static_cast<int32_t>(slot * shape.size_bytes));
            }
            ASSERT_EQ(found, int64_t{slot} * shape.size_bytes < reach)
                << shape.size_bytes << ", slot " << slot;
        }
    }
}

// The opposite direction, through the code: every slot of every class, at both ends of the address
// space.
TEST(Arithmetic, EveryBlocksStartHasItsSlotNumber)
{
    heap_start();
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        for (const uintptr_t start : {uintptr_t{1} << 16, (uintptr_t{1} << 47) - (1 << 20)}) {
            const struct slab_shape &shape = size_classes[i];
            struct span slab = {};
            slab.base = reinterpret_cast<char *>(start - shape.size_bytes);
            slab.size_inverse = shape.inverse;
            slab.size_bytes = shape.size_bytes;
            for (unsigned slot = 1; slot <= shape.capacity; slot++)
                ASSERT_EQ(slab_slot(&slab, slab_block(&slab, slot)), slot) << shape.size_bytes;
        }
}

// frees_to_attention reaches 0 after at most 255 frees, and never starts at 0.
TEST(Arithmetic, CountsOfFreesFitTheirByte)
{
    heap_start();
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        const struct slab_shape &shape = size_classes[i];
        struct slab_header_parts slab = {};
        slab.header.capacity = shape.capacity;
        slab_wait(&slab.header);
        ASSERT_EQ(slab.hot_line.frees_to_attention, 1 + shape.capacity / 16) << shape.size_bytes;
        ASSERT_GE(slab.hot_line.frees_to_attention, 1);
        ASSERT_LE(slab.hot_line.frees_to_attention, shape.capacity)
            << "it is listed before it is empty";
    }
}

TEST(Arithmetic, EverySizeAndAlignmentHasTheSmallestClassThatServes)
{
    heap_start();
    const size_t most = config_hardened ? size_t{PAGE_BYTES} : size_t{MEDIUM_REQUEST_MAX};
    for (size_t alignment = 16; alignment <= most; alignment *= 2) {
        unsigned expected = 0;
        for (size_t size = 1; size <= MEDIUM_BLOCK_MAX; size++) {
            while (expected < CLASS_COUNT && (size_classes[expected].size_bytes < size ||
                                              size_classes[expected].size_bytes % alignment != 0))
                expected++;
            // Above a page, no class has a page more than the request needs.
            const bool fits = alignment <= PAGE_BYTES ||
                              size_classes[expected].size_bytes - size < size_t{PAGE_BYTES};
            ASSERT_EQ(class_of_aligned(size, alignment), fits ? expected : unsigned{CLASS_COUNT})
                << size << " at " << alignment;
        }
    }
}

// TLSF: the mapping is constant within a class and rises by one from class to class, so its steps
// decide it: each class begins at its floor and ends one grain before the next. The test checks all
// classes up to the largest size.
TEST(Arithmetic, TlsfClassesTileAllSizes)
{
    for (unsigned size_class = 1; size_class + 1 < TLSF_CLASSES_MAX; size_class++) {
        const size_t floor = tlsf_class_floor(size_class);
        const size_t next = tlsf_class_floor(size_class + 1);
        ASSERT_LT(floor, next);
        ASSERT_EQ(floor % TLSF_GRAIN_BYTES, 0u);
        ASSERT_EQ(tlsf_class_of(floor), size_class);
        ASSERT_EQ(tlsf_class_of(next - TLSF_GRAIN_BYTES), size_class);
        ASSERT_EQ(tlsf_class_of(next - 1), size_class);
        // Sizes within a class: one high bit and the five below it decide, and the others are
        // shifted out.
        for (size_t at = floor; at < next; at += larger_of((next - floor) / 64, 1))
            ASSERT_EQ(tlsf_class_of(at), size_class) << at;
    }
    // The next class is searched when a class is empty: every block in it is large enough.
    for (size_t size = TLSF_GRAIN_BYTES; size < size_t{1} << 24; size += TLSF_GRAIN_BYTES)
        ASSERT_GT(tlsf_class_floor(tlsf_class_of(size) + 1), size);
}

// Every size up to 1 GiB in steps of a grain: floor and class are inverse to each other.
TEST(Arithmetic, TlsfFloorsBoundEverySize)
{
    for (size_t size = TLSF_GRAIN_BYTES; size <= size_t{1} << 30; size += TLSF_GRAIN_BYTES) {
        const unsigned size_class = tlsf_class_of(size);
        ASSERT_TRUE(tlsf_class_floor(size_class) <= size && size < tlsf_class_floor(size_class + 1))
            << size;
    }
}

} // namespace
