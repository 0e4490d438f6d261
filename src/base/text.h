/* Text ended by zero. Of our own: a name of libc's costs each process that is started some hundred
 * instructions of the dynamic linker, whether it is called or not. */
#ifndef CAIRN_BASE_TEXT_H
#define CAIRN_BASE_TEXT_H

#include "base/compiler.h"

size_t text_length(const char *text);
bool text_equals(const char *text, const char *other);

/* Where `word` begins in the text; NULL: nowhere. */
const char *text_find(const char *text, const char *word);

/* Bytes before the first `end`, all of them where there is none. */
size_t text_until(const char *text, char end);

/* The first `byte` of so many; NULL: none. */
char *bytes_find(char *bytes, size_t count, char byte);

#endif
