/* Lock-free lists with tagged heads.
 *
 * A tagged head is one word: the address of the first element, a multiple of 64 below 2^48, and in
 * the other 22 bits a tag. Each change of the head takes the next tag. So the head differs from an
 * earlier one even if the same element was taken and returned in between (the ABA problem). Each
 * element has a word that links it to the next one. Elements stay mapped for ever, so a late thread
 * may still read the link of an element that another thread took.
 *
 * Algorithm: the stack of R. K. Treiber, "Systems Programming: Coping with Parallelism", 1986.
 *
 * Threads: any. In the child of a fork the elements that other threads held are lost.
 */
#ifndef CAIRN_BASE_TAGGED_H
#define CAIRN_BASE_TAGGED_H

#include "base/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Puts an element on the list. Its link is `link_offset` bytes behind its start. Release: pairs
 * with tagged_pop and tagged_pop_all. */
void tagged_push(uintptr_t *head, void *element, size_t link_offset);

/* Takes the first element. Acquire: pairs with tagged_push.
 * Returns: NULL when the list is empty. */
void *tagged_pop(uintptr_t *head, size_t link_offset);

/* Whether the list is empty at this moment. */
bool tagged_is_empty(const uintptr_t *head);

/* Takes all elements, still linked. Acquire: pairs with tagged_push.
 * Returns: the first; NULL when the list is empty. */
void *tagged_pop_all(uintptr_t *head);

#endif
