/* Runs of pages for other allocators: see page.h. No state. */
#include "base/bits.h"
#include "base/memory_marks.h"
#include "os/os.h"
#include "page/page.h"

struct span *run_take(size_t size_bytes, size_t alignment_bytes)
{
    pages_start();
    size_t granule = os_page_size();
    if (size_bytes > PTRDIFF_MAX - granule)
        return NULL;
    size_t pages = align_up(size_bytes, granule) >> PAGE_SHIFT;
    struct span *span = pages_take(pages, larger_of(alignment_bytes, granule));
    if (span)
        store_relaxed(&span->tag, (uint8_t)SPAN_RUN);
    return span;
}

void run_give(struct span *span)
{
    mark_defined(span->base, run_bytes(span));
    pages_give(span);
}
