// The tables of the functions of the process, in a program that is linked statically and replaces
// one pair of operators and no function of libc. test/behaviour has whole programs of every kind.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <new>

extern "C" {
#include "front/replaced.h"
}

namespace
{

int deletes;

} // namespace

void *operator new(size_t size)
{
    if (void *block = malloc(size))
        return block;
    throw std::bad_alloc();
}

void operator delete(void *pointer) noexcept
{
    deletes++;
    free(pointer);
}

namespace
{

TEST(Replaced, LibcsNamesAreTheLibrarysOwn)
{
    ASSERT_NE(&libc_own, nullptr);
    EXPECT_EQ(process_libc.malloc, libc_own.malloc);
    EXPECT_EQ(process_libc.free, libc_own.free);
    EXPECT_EQ(process_libc.realloc, libc_own.realloc);
    EXPECT_EQ(process_libc.aligned_alloc, libc_own.aligned_alloc);
}

TEST(Replaced, AReplacedPairIsFound)
{
    EXPECT_FALSE(replaced_nothing());
    EXPECT_NE(process_cxx.new_single, cxx_own.new_single);
    EXPECT_NE(process_cxx.delete_single, cxx_own.delete_single);
    EXPECT_EQ(process_cxx.new_array, cxx_own.new_array);
    EXPECT_EQ(process_cxx.delete_array, cxx_own.delete_array);
    EXPECT_EQ(process_cxx.new_single_aligned, cxx_own.new_single_aligned);
    EXPECT_EQ(process_cxx.delete_array_aligned, cxx_own.delete_array_aligned);
}

TEST(Replaced, TheArraysFormCallsIt)
{
    void *block = ::operator new[](100);
    int before = deletes;
    ::operator delete[](block);
    EXPECT_EQ(deletes, before + 1);
}

} // namespace
