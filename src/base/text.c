/* Text that ends with a zero byte: see text.h. No state. */
#include "base/text.h"

#include <errno.h>

/* Without this the compiler would replace a loop that only counts by a call of libc. */
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

static bool text_begins(const char *text, const char *word)
{
    for (; *word != '\0' && *text == *word; text++)
        word++;
    return *word == '\0';
}

const char *text_find(const char *text, const char *word)
{
    for (; !text_begins(text, word); text++)
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

static const struct {
    int number; /* arrays instead of pointers, which would be relocated at the start of a program */
    char name[16];
} text_errors[] = {
    {ENOENT, "ENOENT"}, {EACCES, "EACCES"}, {EPERM, "EPERM"}, {EEXIST, "EEXIST"},
    {ENOTDIR, "ENOTDIR"}, {EISDIR, "EISDIR"}, {ELOOP, "ELOOP"}, {ENAMETOOLONG, "ENAMETOOLONG"},
    {EINVAL, "EINVAL"}, {EMFILE, "EMFILE"}, {ENFILE, "ENFILE"}, {EFBIG, "EFBIG"},
    {ENOSPC, "ENOSPC"}, {EDQUOT, "EDQUOT"}, {EROFS, "EROFS"}, {EIO, "EIO"}, {ENXIO, "ENXIO"},
    {ENODEV, "ENODEV"}, {ENOMEM, "ENOMEM"}, {EAGAIN, "EAGAIN"}, {EBUSY, "EBUSY"}, {EINTR, "EINTR"},
    {EADDRINUSE, "EADDRINUSE"}, {ENODATA, "ENODATA"}, {E2BIG, "E2BIG"}, {ERANGE, "ERANGE"},
    {ENOSYS, "ENOSYS"}, {EOPNOTSUPP, "EOPNOTSUPP"},
};

const char *text_of_error(int error)
{
    for (size_t i = 0; i < countof(text_errors); i++)
        if (text_errors[i].number == error)
            return text_errors[i].name;
    return "an unknown error";
}
