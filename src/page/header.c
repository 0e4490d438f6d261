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
    enum meta_kind kind = cold_64 == 0 ? META_HOT : META_COLD;
    struct span *span = meta_take_near(kind, sizeof *span + (size_t)cold_64 * 64);
    if (span == NULL)
        return NULL;
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
