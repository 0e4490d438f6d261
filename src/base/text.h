/* Functions for text that ends with a zero byte. The functions replace functions of libc, because
 * each name of libc costs a few hundred instructions of the dynamic linker at the start of each
 * process, whether it is called or not.
 *
 * Threads: any, and any signal handler.
 */
#ifndef CAIRN_BASE_TEXT_H
#define CAIRN_BASE_TEXT_H

#include "base/compiler.h"

/* The length of a text in bytes. */
size_t text_length(const char *text);

/* Whether two texts are equal. */
bool text_equals(const char *text, const char *other);

/* Finds the first place where `word` begins in a text.
 * Returns: NULL if there is none. */
const char *text_find(const char *text, const char *word);

/* The number of bytes before the first `end`, or of the whole text if it has none. */
size_t text_until(const char *text, char end);

/* Finds the first `byte` among `count` bytes.
 * Returns: NULL if there is none. */
char *bytes_find(char *bytes, size_t count, char byte);

/* The name of a positive errno, such as "ENOENT".
 *
 * Returns: "an unknown error" for a number that the table lacks. */
const char *text_of_error(int error);

#endif
