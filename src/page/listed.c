/* See listed.h. */
#include "page/listed.h"

#include "base/atomic.h"

/* From `before` to `after` in the first place that holds `before`; false if none does. */
static bool replace(const struct span_list *list, struct span *before, struct span *after)
{
    for (size_t i = 0; i < list->count; i++) {
        struct span *seen = before;
        if (load_relaxed(&list->places[i]) == before &&
            compare_swap_acq_rel(&list->places[i], &seen, after))
            return true;
    }
    return false;
}

bool listed_add(const struct span_list *list, struct span *span)
{
    return replace(list, NULL, span);
}

bool listed_remove(const struct span_list *list, struct span *span)
{
    return replace(list, span, NULL);
}

bool listed_each(const struct span_list *list, span_visit *visit, void *context)
{
    for (size_t i = 0; i < list->count; i++) {
        struct span *span = load_acquire(&list->places[i]); /* pairs with replace */
        unsigned tag = span ? load_relaxed(&span->tag) : (unsigned)SPAN_NONE;
        size_t before = tag >= SPAN_SLAB ? span->size_bytes : 0; /* its base is a block early */
        if (tag >= SPAN_LARGE && !visit(span, span->base + before, context))
            return false;
    }
    return true;
}
