/* Text ended by zero: see text.h. No state; any thread, any signal context. */
#include "base/text.h"

/* The compiler would make a loop that only counts a call of libc's. */
#define keep_loop() __asm__ volatile("")

size_t text_length(const char *text)
{
    size_t length = 0;
    for (; text[length] != '\0'; length++)
        keep_loop();
    return length;
}

bool text_equals(const char *text, const char *other)
{
    for (; *text != '\0' && *text == *other; text++)
        other++;
    return *text == *other;
}

static bool begins(const char *text, const char *word)
{
    for (; *word != '\0' && *text == *word; text++)
        word++;
    return *word == '\0';
}

const char *text_find(const char *text, const char *word)
{
    for (; !begins(text, word); text++)
        if (*text == '\0')
            return NULL;
    return text;
}

size_t text_until(const char *text, char end)
{
    size_t length = 0;
    for (; text[length] != '\0' && text[length] != end; length++)
        keep_loop();
    return length;
}

char *bytes_find(char *bytes, size_t count, char byte)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] == byte)
            return bytes + i;
    return NULL;
}
