// C++'s operators, linked statically. test/behaviour tests their forms as a program sees them;
// these cases check that they are Cairn's, and that free and sized delete accept their blocks.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "cairn/heap.h"

namespace
{

constexpr std::align_val_t k256{256};

TEST(Cxx, EveryFormIsOurs)
{
    struct Form {
        void *block;
        size_t alignment;
    };
    const Form forms[] = {{::operator new(100), 16},
                          {::operator new[](100), 16},
                          {::operator new(100, std::nothrow), 16},
                          {::operator new[](100, std::nothrow), 16},
                          {::operator new(100, k256), 256},
                          {::operator new[](100, k256), 256},
                          {::operator new(100, k256, std::nothrow), 256},
                          {::operator new[](100, k256, std::nothrow), 256}};
    for (const Form &form : forms) {
        ASSERT_NE(form.block, nullptr);
        EXPECT_GE(cairn_malloc_usable_size(form.block), 100u);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(form.block) % form.alignment, 0u);
    }
    ::operator delete(forms[0].block);
    ::operator delete[](forms[1].block, 100);
    ::operator delete(forms[2].block, std::nothrow);
    ::operator delete[](forms[3].block, std::nothrow);
    ::operator delete(forms[4].block, 100, k256);
    ::operator delete[](forms[5].block, k256);
    ::operator delete(forms[6].block, k256, std::nothrow);
    ::operator delete[](forms[7].block, k256, std::nothrow);
}

TEST(Cxx, ContainersRunOnIt)
{
    std::map<int, std::string> map;
    for (int i = 0; i < 10000; i++)
        map[i * 7919 % 10007] = std::string(static_cast<size_t>(i % 300), 'x');
    size_t sum = 0;
    for (const auto &[key, text] : map)
        sum += text.size();
    EXPECT_EQ(sum, 10000u / 300 * (299 * 300 / 2) + 99 * 100 / 2);
    EXPECT_GT(cairn_malloc_usable_size(&*std::make_unique<std::string>()), 0u);
}

TEST(Cxx, FailureThrowsOrIsNull)
{
    volatile size_t beyond = size_t{1} << 62;
    EXPECT_THROW(::operator delete(::operator new(beyond)), std::bad_alloc);
    EXPECT_THROW(::operator delete[](::operator new[](beyond)), std::bad_alloc);
    EXPECT_THROW(::operator delete(::operator new(beyond, k256), k256), std::bad_alloc);
    EXPECT_EQ(::operator new(beyond, std::nothrow), nullptr);
    EXPECT_EQ(::operator new(beyond, k256, std::nothrow), nullptr);
}

int handler_calls;

void give_up_at_third()
{
    if (++handler_calls == 3)
        std::set_new_handler(nullptr);
}

void throw_at_once()
{
    handler_calls++;
    throw std::bad_alloc();
}

TEST(Cxx, TheNewHandlerIsAskedAgainAndAgain)
{
    volatile size_t beyond = size_t{1} << 62;
    handler_calls = 0;
    std::set_new_handler(give_up_at_third);
    EXPECT_THROW(::operator delete(::operator new(beyond)), std::bad_alloc);
    EXPECT_EQ(handler_calls, 3);
}

TEST(Cxx, AThrowingHandlerIsNullForNothrow)
{
    volatile size_t beyond = size_t{1} << 62;
    handler_calls = 0;
    std::set_new_handler(throw_at_once);
    EXPECT_EQ(::operator new(beyond, std::nothrow), nullptr);
    EXPECT_EQ(handler_calls, 1);
    EXPECT_THROW(::operator delete(::operator new(beyond)), std::bad_alloc);
    std::set_new_handler(nullptr);
}

TEST(CxxDeathTest, SizedDeleteOfAWrongSizeDies)
{
    void *block = ::operator new(100);
    EXPECT_EXIT(::operator delete(block, 1000), testing::KilledBySignal(SIGABRT),
                "cairn: sized free of 0x[0-9a-f]+ with size 1000 \\(112-byte block\\)");
    ::operator delete(block, 100);
}

} // namespace
