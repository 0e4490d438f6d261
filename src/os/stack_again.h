/* Walks that come again: what a walk has found is kept, and believed once a look at the stack shows
 * that it is so still. Only for os/.
 */
#ifndef CAIRN_OS_STACK_AGAIN_H
#define CAIRN_OS_STACK_AGAIN_H

#include "os/stack_walk.h"

/* As os_stack_again; `first` is the return address to its caller, `frame` that one's frame pointer,
 * `own` this library, or NULL. */
struct os_stack_memo;
struct os_stack_step;
struct os_stack_step *stack_walk_again(struct os_stack_memo *memo, uint32_t thread, uintptr_t first,
                                       uintptr_t frame, const struct stack_object *own);

#endif
