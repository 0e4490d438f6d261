// Text ended by zero, beside libc's functions.

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

extern "C" {
#include "base/text.h"
}

namespace
{

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

} // namespace
