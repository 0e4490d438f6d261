/* See header.h. */
#include "page/header.h"

#include "base/atomic.h"
#include "page/state.h"

struct span *header_pop(unsigned cold_64)
{
    struct span *span = pages_state.headers[cold_64];
    if (span)
        pages_state.headers[cold_64] = span->next;
    return span;
}

void header_push(struct span *span)
{
    store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
    span->next = pages_state.headers[span->cold_64];
    pages_state.headers[span->cold_64] = span;
}

struct span *header_make(unsigned cold_64)
{
    struct span *span = meta_take_near(META_HOT, sizeof *span);
    if (span == NULL)
        return NULL;
    if (cold_64 != 0 && (span->links = meta_take_near(META_COLD, (size_t)cold_64 * 64)) == NULL)
        return NULL; /* the header is lost: one cache line, when memory is out */
    span->cold_64 = (uint8_t)cold_64;
    store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
    return span;
}

struct span *header_take(unsigned cold_64)
{
    struct span *span = NULL;
    if (lock_acquire(&pages_state.lock)) {
        span = header_pop(cold_64);
        lock_release(&pages_state.lock);
    }
    return span ? span : header_make(cold_64);
}
