// Marks for memory checkers: they work where a checker runs, and cost nothing elsewhere.

#include <gtest/gtest.h>

#include <cstring>

extern "C" {
#include "base/memory_marks.h"
}

namespace memory_marks_test
{

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif

TEST(MemoryMarks, AddressSanitizerIsFound)
{
    if (kAddressSanitizer) {
        EXPECT_TRUE(memory_marks_active());
    }
    EXPECT_EQ(memory_marks_active(), memory_marks_active());
}

TEST(MemoryMarks, MemoryIsUsableAgain)
{
    alignas(64) static char block[256];
    mark_inaccessible(block, sizeof block);
    mark_undefined(block, 128);
    memset(block, 1, 128);
    mark_defined(block, sizeof block);
    EXPECT_EQ(block[127], 1);
    EXPECT_EQ(block[255], 0);
}

TEST(MemoryMarksDeathTest, InaccessibleMemoryIsReported)
{
    if (!kAddressSanitizer)
        GTEST_SKIP() << "needs AddressSanitizer";
    alignas(64) static char block[64];
    mark_inaccessible(block, sizeof block);
    // compilers do not instrument an access that is known to be in bounds
    volatile size_t index = 8;
    EXPECT_DEATH(static_cast<volatile char *>(block)[index] = 1, "use-after-poison");
    mark_defined(block, sizeof block);
}

} // namespace memory_marks_test
