/* The functions that base/ needs from the system, which os/ implements: base/ itself makes no
 * system calls.
 *
 * A program without a C library that uses TLSF's core provides host_write_error, host_abort,
 * host_note_no_memory and host_note_invalid itself, next to memcpy, memmove and memset, which
 * each compiler needs.
 */
#ifndef CAIRN_BASE_HOST_H
#define CAIRN_BASE_HOST_H

#include "base/compiler.h"

/* Writes text to stderr, as far as possible. Does not change errno. */
void host_write_error(const char *text, size_t length_bytes);

/* Waits while `*word == seen`. May also return at any other time. */
void host_wait(uint32_t *word, uint32_t seen);

/* Wakes at most `waiters` threads that wait for the word. */
void host_wake(uint32_t *word, uint32_t waiters);

/* Ends the process. */
no_return void host_abort(void);

/* Called when an allocation of TLSF fails because memory is out. With a C library it sets errno
 * to ENOMEM. */
void host_note_no_memory(void);

/* Called when an allocation of TLSF fails because of an argument that more memory would not make
 * valid. With a C library it sets errno to EINVAL. */
void host_note_invalid(void);

#endif
