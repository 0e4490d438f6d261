/* How TLSF dies: the messages of misuse, apart from the paths that find it. See
 * docs/MESSAGES-region.md. No locks, no memory, no libc.
 */
#ifndef CAIRN_REGION_TLSF_FAULT_H
#define CAIRN_REGION_TLSF_FAULT_H

#include "region/tlsf_block.h"

/* `pointer` was given to `verb` and is no block in use. */
no_return void die_of_pointer(const struct cairn_tlsf *heap, const void *pointer, const char *verb);

/* The word behind the block in use at `at` is gone. */
no_return void die_of_overrun(const struct cairn_tlsf *heap, place at);

/* The free block at `at`, or a link that leads to it, was written to. */
no_return void die_of_free_block(const struct cairn_tlsf *heap, place at);

/* The boundary tag of the free block in front of the block at `at` was written to. */
no_return void die_of_boundary_tag(const struct cairn_tlsf *heap, place at);

/* A walk met a word that is none. */
no_return void die_of_damage(const struct cairn_tlsf *heap, place at);

#endif
