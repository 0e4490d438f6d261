// Prints one line for each span, from which a map of the heap can be drawn.
#include "look.h"

#include <inttypes.h>
#include <stdio.h>

const char *span_kind_name(enum span_kind kind)
{
    static const char *const names[SPAN_KINDS] = {
        [SPAN_IS_SLAB] = "slab",       [SPAN_IS_LARGE] = "large", [SPAN_IS_HUGE] = "huge",
        [SPAN_IS_FREE] = "free",       [SPAN_IS_KEPT] = "kept",   [SPAN_IS_RUN] = "run",
        [SPAN_IS_REVOKED] = "revoked", [SPAN_IS_GUARDED] = "",
    };
    return names[kind];
}

void print_map_line(const struct look *look, const struct span_view *span,
                    const struct span_use *use)
{
    printf("span\tkind=%s\tstart=%#" PRIx64 "\tbytes=%" PRIu64, span_kind_name(span->kind),
           span->start, span->bytes);
    if (span->kind == SPAN_IS_SLAB)
        printf("\tsize_bytes=%" PRIu64 "\tpacked=%d\tlive=%" PRIu64 "\tslots=%" PRIu64
               "\tlive_bytes=%" PRIu64 "\tidle_bytes=%" PRIu64,
               use->size_bytes, span->packed, use->live, use->slots, use->live_bytes,
               use->idle_bytes);
    if (span->kind == SPAN_IS_FREE)
        printf("\tdirty_bytes=%" PRIu64, span->dirty_pages << look->library->page.page_shift);
    if (span->heap != 0)
        printf("\theap=%#" PRIx64, span->heap);
    if (look->target->residence >= 0)
        printf("\tresident_bytes=%" PRIu64, use->resident_bytes);
    putchar('\n');
}
