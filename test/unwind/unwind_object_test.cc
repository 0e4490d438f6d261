// The unwind tables for a code address.

#include <gtest/gtest.h>
#include <stdlib.h>

extern "C" {
#include "os/memory.h"
#include "os/module.h"
#include "unwind/unwind_rules.h"
}

namespace unwind_object_test
{

void here() {}

uintptr_t address_of(void (*function)()) { return reinterpret_cast<uintptr_t>(function); }

const char *file_of(uintptr_t address)
{
    uintptr_t base;
    return os_locate(address, &base);
}

class StackObject : public testing::Test
{
  protected:
    void SetUp() override
    {
        unwind_objects_prepare();
        if (file_of(address_of(here)) == nullptr)
            GTEST_SKIP() << "this libc does not provide the file of an address";
    }
};

TEST_F(StackObject, ItsTablesLieWhereTheyAreReadable)
{
    struct unwind_object object = {};
    ASSERT_TRUE(unwind_object_of(address_of(here), &object));
    EXPECT_LE(object.start, address_of(here));
    EXPECT_GT(object.end, address_of(here));
    EXPECT_GE(object.tables, object.readable_from);
    EXPECT_LT(object.tables, object.readable_to);
    EXPECT_TRUE(os_is_readable(reinterpret_cast<void *>(object.tables & ~uintptr_t{7})));
}

TEST_F(StackObject, TwoFilesAreTwoObjects)
{
    struct unwind_object own = {};
    struct unwind_object other = {};
    ASSERT_TRUE(unwind_object_of(address_of(here), &own));
    ASSERT_TRUE(unwind_object_of(reinterpret_cast<uintptr_t>(&qsort) + 1, &other));
    if (file_of(reinterpret_cast<uintptr_t>(&qsort)) == file_of(address_of(here)))
        GTEST_SKIP() << "the program contains libc";
    EXPECT_NE(own.tables, other.tables);
    EXPECT_NE(own.tag, other.tag);
}

TEST_F(StackObject, NoObjectHoldsData)
{
    struct unwind_object object = {};
    char *block = static_cast<char *>(malloc(1));
    EXPECT_FALSE(unwind_object_of(reinterpret_cast<uintptr_t>(block), &object));
    EXPECT_FALSE(unwind_object_of(16, &object));
    free(block);
}

} // namespace unwind_object_test
