/* Cutting a span in use in two, for an owner that gives parts of it back: see page.h. The owner has
 * the span; only the header comes from shared state.
 */
#include "base/bits.h"
#include "page/header.h"
#include "page/state.h"

struct span *pages_split(struct span *span, size_t pages, bool huge)
{
    struct span *rest = header_take(0);
    if (rest == NULL)
        return NULL;
    rest->base = span->base + (pages << PAGE_SHIFT);
    rest->pages = span->pages - (uint32_t)pages;
    store_relaxed(&rest->zero, span->zero);
    rest->owner = 0;
    store_relaxed(&rest->tag, load_relaxed(&span->tag));
    store_relaxed(&span->pages, (uint32_t)pages);
    if (huge)
        fetch_add_relaxed(&pages_state.huge_count, (size_t)1);
    return rest;
}
