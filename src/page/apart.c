/* See apart.h. */
#include "page/apart.h"

#include "base/atomic.h"
#include "page/bound.h"
#include "page/detached.h"
#include "page/listed.h"
#include "page/state.h"

enum { APART_MOST = 1024 };
static struct span *places[APART_MOST];
static const struct span_list list = {places, APART_MOST};

struct span *apart_take(size_t pages, size_t alignment_bytes, unsigned cold_64,
                        size_t covered_bytes)
{
    if (!hard_limit_admits(pages))
        return NULL;
    struct span *span = detached_take(pages, alignment_bytes, cold_64, covered_bytes);
    if (span)
        fetch_add_relaxed(&pages_state.apart_pages, pages);
    return span;
}

void apart_add(struct span *span) { (void)listed_add(&list, span); }

void apart_give(struct span *span)
{
    for (struct span *next; span; span = next) {
        next = span->next;
        (void)listed_remove(&list, span);
        fetch_sub_relaxed(&pages_state.apart_pages, (size_t)span->pages);
        detached_give(span);
    }
}

bool apart_each(span_visit *visit, void *context) { return listed_each(&list, visit, context); }
