/* Spans that lie in no arena, by a list of a fixed length, for whoever looks for all spans in use.
 *
 * Threading: any thread; a place is taken and left by compare and swap. In the child of a fork a
 * place may hold a span that another thread of the parent was just making or giving back: so may it
 * for any reader at any time, who looks at the tag.
 */
#ifndef CAIRN_PAGE_LISTED_H
#define CAIRN_PAGE_LISTED_H

#include "page/span.h"

struct span_list {
    struct span **places; /* atomic: in use, else NULL */
    size_t count;         /* const: of places */
};

/* False when the list is full, or does not have it. */
bool listed_add(const struct span_list *list, struct span *span);
bool listed_remove(const struct span_list *list, struct span *span);

/* As pages_each. */
bool listed_each(const struct span_list *list, span_visit *visit, void *context);

#endif
