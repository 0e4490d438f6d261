// The forms of TLSF's allocation: zeroed, arrays, aligned; and the out-of-memory function.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "region/tlsf_arena.h"

namespace tlsf_forms_test
{

using tlsf_test::Arena;
using tlsf_test::fault;
using tlsf_test::kKiB;
using tlsf_test::stats;

bool is_zero(const void *memory, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (static_cast<const char *>(memory)[i] != 0)
            return false;
    return true;
}

TEST(TlsfForms, ZeroedBlocks)
{
    Arena heap(64 * kKiB); // starts as garbage
    for (size_t size : {size_t{0}, size_t{1}, size_t{24}, size_t{25}, size_t{1000}}) {
        void *block = cairn_tlsf_alloc_zero(heap, size);
        ASSERT_NE(block, nullptr);
        EXPECT_TRUE(is_zero(block, size));
        void *array = cairn_tlsf_alloc_array_zero(heap, 7, size);
        ASSERT_NE(array, nullptr);
        EXPECT_TRUE(is_zero(array, 7 * size));
        memset(array, 1, cairn_tlsf_usable(heap, array));
        cairn_tlsf_free(heap, array);
        memset(block, 1, cairn_tlsf_usable(heap, block));
        cairn_tlsf_free(heap, block);
    }
    EXPECT_EQ(fault(heap), "");
}

TEST(TlsfForms, AProductThatOverflowsFails)
{
    Arena heap(64 * kKiB);
    for (size_t count : {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 16}) {
        errno = 0;
        EXPECT_EQ(cairn_tlsf_alloc_array(heap, count, 32), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
        EXPECT_EQ(cairn_tlsf_alloc_array_zero(heap, 32, count), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
}

TEST(TlsfForms, AnAlignmentThatIsNoPowerOfTwoIsInvalid)
{
    Arena heap(64 * kKiB);
    for (size_t align : {size_t{0}, size_t{3}, size_t{48}, SIZE_MAX}) {
        errno = 0;
        EXPECT_EQ(cairn_tlsf_alloc_aligned(heap, 100, align), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
}

// A heap that is full except for one block, which the out-of-memory function frees.
class TlsfOutOfMemory : public testing::Test
{
  protected:
    TlsfOutOfMemory() : heap_(64 * kKiB), grown_(cairn_tlsf_alloc(heap_, 100))
    {
        (void)!cairn_tlsf_alloc(heap_, 16);
        reserve_ = cairn_tlsf_alloc(heap_, 20000);
        while (size_t size = stats(heap_).largest_request_bytes)
            (void)!cairn_tlsf_alloc(heap_, size);
        cairn_tlsf_set_out_of_memory(heap_, release, this);
    }

    static bool release(void *context, size_t size_bytes)
    {
        auto *self = static_cast<TlsfOutOfMemory *>(context);
        self->calls_++;
        self->size_bytes_ = size_bytes;
        if (self->reserve_ == nullptr)
            return false;
        cairn_tlsf_free(self->heap_, self->reserve_);
        self->reserve_ = nullptr;
        return true;
    }

    // The function was called once, and the block is in the memory that it freed. The next request
    // finds none.
    void expect_asked_once(void *block, size_t size)
    {
        EXPECT_NE(block, nullptr);
        EXPECT_EQ(calls_, 1);
        EXPECT_EQ(size_bytes_, size);
        errno = 0;
        EXPECT_EQ(cairn_tlsf_alloc(heap_, 20000), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(calls_, 2);
        EXPECT_EQ(fault(heap_), "");
    }

    Arena heap_;
    void *grown_;
    void *reserve_;
    int calls_ = 0;
    size_t size_bytes_ = 0;
};

TEST_F(TlsfOutOfMemory, Alloc) { expect_asked_once(cairn_tlsf_alloc(heap_, 19000), 19000); }
TEST_F(TlsfOutOfMemory, Zero)
{
    void *block = cairn_tlsf_alloc_zero(heap_, 19000);
    expect_asked_once(block, 19000);
    EXPECT_TRUE(is_zero(block, 19000));
}
TEST_F(TlsfOutOfMemory, Array)
{
    expect_asked_once(cairn_tlsf_alloc_array(heap_, 19, 1000), 19000);
}
TEST_F(TlsfOutOfMemory, Aligned)
{
    void *block = cairn_tlsf_alloc_aligned(heap_, 15000, 1024);
    expect_asked_once(block, 15000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 1024, 0u);
}
TEST_F(TlsfOutOfMemory, Realloc)
{
    memset(grown_, 7, 100);
    auto *moved = static_cast<char *>(cairn_tlsf_realloc(heap_, grown_, 19000));
    expect_asked_once(moved, 19000);
    EXPECT_EQ(moved[0], 7);
    EXPECT_EQ(moved[99], 7);
}

TEST_F(TlsfOutOfMemory, IsNotAskedForWhatNoRegionCouldHold)
{
    volatile size_t most = SIZE_MAX; // volatile: compilers warn of the constant
    EXPECT_EQ(cairn_tlsf_alloc(heap_, most), nullptr);
    EXPECT_EQ(cairn_tlsf_alloc_array(heap_, most, most), nullptr);
    EXPECT_EQ(cairn_tlsf_realloc(heap_, grown_, most), nullptr);
    EXPECT_EQ(cairn_tlsf_resize(heap_, grown_, 20000), nullptr);
    EXPECT_EQ(calls_, 0);
}

TEST_F(TlsfOutOfMemory, IsNotAskedForAnAlignmentThatNoRegionCouldHold)
{
    const cairn_tlsf *inside = heap_;
    const size_t most = inside->largest_bytes - BLOCK_WORD_BYTES;
    EXPECT_EQ(cairn_tlsf_alloc_aligned(heap_, 10, size_t{1} << 62), nullptr);
    EXPECT_EQ(cairn_tlsf_alloc_aligned(heap_, most - 1024 - TLSF_GRAIN_BYTES + 1, 1024), nullptr);
    EXPECT_EQ(calls_, 0);
    EXPECT_EQ(cairn_tlsf_alloc_aligned(heap_, most - 1024 - TLSF_GRAIN_BYTES, 1024), nullptr);
    EXPECT_EQ(calls_, 2) << "a larger region could hold it";
}

TEST_F(TlsfOutOfMemory, NoneAnyMore)
{
    cairn_tlsf_set_out_of_memory(heap_, nullptr, nullptr);
    EXPECT_EQ(cairn_tlsf_alloc(heap_, 19000), nullptr);
    EXPECT_EQ(calls_, 0);
}

} // namespace tlsf_forms_test
