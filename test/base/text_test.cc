// Text without libc: formatting, names of errors, and the last line of a process.

#include <gtest/gtest.h>
#include <limits.h>
#include <stdio.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>

extern "C" {
#include "base/check.h"
#include "base/text.h"
}

namespace text_test
{

// Text that ends with a zero byte, compared with the functions of libc.

TEST(Text, AsLibcs)
{
    std::mt19937 random(3);
    for (int round = 0; round < 3000; round++) {
        std::string text;
        std::string word;
        for (size_t i = random() % 12; i > 0; i--)
            text += static_cast<char>('a' + random() % 3);
        for (size_t i = random() % 4; i > 0; i--)
            word += static_cast<char>('a' + random() % 3);
        EXPECT_EQ(text_length(text.c_str()), text.size());
        EXPECT_EQ(text_equals(text.c_str(), word.c_str()), text == word) << text << " " << word;
        EXPECT_TRUE(text_equals(text.c_str(), std::string(text).c_str()));
        EXPECT_EQ(text_find(text.c_str(), word.c_str()), strstr(text.c_str(), word.c_str()))
            << text << " " << word;
        EXPECT_EQ(text_until(text.c_str(), 'b'), strcspn(text.c_str(), "b")) << text;
        EXPECT_EQ(bytes_find(text.data(), text.size(), 'c'), memchr(text.data(), 'c', text.size()));
    }
    EXPECT_FALSE(text_equals("ab", "abc"));
    EXPECT_FALSE(text_equals("abc", "ab"));
    EXPECT_EQ(text_find("", "a"), nullptr);
}

TEST(Text, ErrorsHaveTheirNames)
{
    EXPECT_STREQ(text_of_error(ENOENT), "ENOENT");
    EXPECT_STREQ(text_of_error(EADDRINUSE), "EADDRINUSE");
    EXPECT_STREQ(text_of_error(0), "an unknown error");
    int known = 0;
    for (int error = 1; error < 200; error++)
        if (text_of_error(error)[0] == 'E') {
            EXPECT_STREQ(text_of_error(error), strerrorname_np(error)) << error;
            known++;
        }
    EXPECT_GT(known, 20);
}

// Formatting without libc, the line on stderr, and the end of the process.

print_like(1, 2) std::string formatted(const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    const size_t length = format_text_list(text, sizeof text, format, arguments);
    va_end(arguments);
    EXPECT_EQ(text[length], '\0');
    return {text, length};
}

TEST(Check, FormatsAsPrintfDoes)
{
    EXPECT_EQ(formatted("plain"), "plain");
    EXPECT_EQ(formatted("%s and %s", "one", "two"), "one and two");
    const char *volatile null = nullptr;
    EXPECT_EQ(formatted("%s", null), "(null)");
    EXPECT_EQ(formatted("%d %d %d", 0, 17, -4), "0 17 -4");
    EXPECT_EQ(formatted("%d %d", INT_MIN, INT_MAX), "-2147483648 2147483647");
    EXPECT_EQ(formatted("%u", UINT_MAX), "4294967295");
    EXPECT_EQ(formatted("%x", 0xbeefu), "beef");
    EXPECT_EQ(formatted("%zu", SIZE_MAX), "18446744073709551615");
    EXPECT_EQ(formatted("%p", reinterpret_cast<void *>(0x7f00dead0010)), "0x7f00dead0010");
    EXPECT_EQ(formatted("%p", static_cast<void *>(nullptr)), "0x0");
    EXPECT_EQ(formatted("100%%, %u%%", 5u), "100%, 5%");
}

TEST(Check, NeverWritesBeyondTheBuffer)
{
    for (size_t capacity = 1; capacity < 24; capacity++) {
        char text[32];
        memset(text, '#', sizeof text);
        const size_t length = format_text(text, capacity, "%s %zu", "abcdefgh", size_t{1234567890});
        const std::string whole = "abcdefgh 1234567890";
        EXPECT_EQ(std::string(text), whole.substr(0, capacity - 1));
        EXPECT_EQ(length, std::min(capacity - 1, whole.size()));
        EXPECT_EQ(text[capacity], '#');
    }
}

TEST(CheckDeathTest, DieSaysOneLineAndAborts)
{
    EXPECT_EXIT(die("double fault of %p (%u-byte block)", reinterpret_cast<void *>(0x10), 48u),
                testing::KilledBySignal(SIGABRT),
                "^cairn: double fault of 0x10 \\(48-byte block\\)\n");
}

TEST(CheckDeathTest, AnOverlongLineIsCut)
{
    const std::string text(5000, 'x');
    EXPECT_EXIT(die("%s", text.c_str()), testing::KilledBySignal(SIGABRT), "^cairn: x+\n");
}

TEST(CheckDeathTest, ReportGoesOn)
{
    const auto body = [] {
        errno = 7;
        report("option %s", "a");
        _exit(errno == 7 ? 5 : 6);
    };
    EXPECT_EXIT(body(), testing::ExitedWithCode(5), "^cairn: option a\n");
}

TEST(CheckDeathTest, InternalChecksAreForDebugBuilds)
{
    check_internal(1 + 1 == 2);
    if (config_debug) {
        EXPECT_EXIT(check_internal(1 + 1 == 3), testing::KilledBySignal(SIGABRT),
                    "internal error: .*text_test.cc:[0-9]+: 1 \\+ 1 == 3");
    } else
        check_internal(1 + 1 == 3);
}

} // namespace text_test
