/* The fast paths of hardened builds, in place of fast.h's: step for step the same, with the
 * hardening between. */
#ifndef CAIRN_HEAP_HARDEN_FAST_H
#define CAIRN_HEAP_HARDEN_FAST_H

#include <stddef.h>

void *harden_malloc(size_t size_bytes, void *(*slow)(size_t));
void harden_free(void *pointer);

#endif
