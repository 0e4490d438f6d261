// Formatted strings on stacks.

#include <cstring>
#include <string>

#include "cairn/stack.h"
#include "frame/frame_kit.h"
#include "frame/stack_kit.h"

namespace stack_text_test
{

using namespace frame_kit;
using namespace stack_kit;

__attribute__((format(printf, 2, 3))) char *through_va_list(cairn_stack *stack, const char *format,
                                                            ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cairn_stack_vprintf(stack, format, arguments);
    va_end(arguments);
    return text;
}

TEST(StackText, IsWhatPrintfWrites)
{
    Stack stack = make();
    EXPECT_STREQ(cairn_stack_printf(stack.get(), "%d %s", 42, "stones"), "42 stones");
    EXPECT_STREQ(through_va_list(stack.get(), "%c", 'x'), "x");
    std::string longer(5000, 'x');
    EXPECT_EQ(cairn_stack_printf(stack.get(), "<%s>", longer.c_str()), "<" + longer + ">");
    for (int width = 120; width < 136; width++) // lengths around the buffer of the first pass
        EXPECT_EQ(strlen(cairn_stack_printf(stack.get(), "%*d", width, 7)),
                  static_cast<size_t>(width));
}

TEST(StackText, FailsWithoutMemory)
{
    char memory[256];
    cairn_stack_options options = {};
    options.buffer = memory;
    options.buffer_bytes = sizeof memory;
    options.fixed = true;
    Stack stack = make(options);
    errno = 0;
    EXPECT_EQ(cairn_stack_printf(stack.get(), "%300d", 1), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_STREQ(cairn_stack_printf(stack.get(), "%d", 1), "1");
}

} // namespace stack_text_test
