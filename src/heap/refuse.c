/* What a wrong pointer is: see refuse.h. */
#include "heap/refuse.h"

#include "base/check.h"
#include "base/host.h"
#include "heap/packed_words.h"

enum { REPORTS_MAX = 100 };

static struct {
    bool goes_on; /* set once, before there are threads */
    size_t frees; /* atomic: refused so far */
} refused;

void heap_go_on_after_wrong_frees(void) { refused.goes_on = true; }

size_t heap_count_wrong_frees(void) { return load_relaxed(&refused.frees); }

static bool goes_on_after(const char *operation)
{
    return !config_hardened && refused.goes_on && operation[0] == 'f';
}

void refuse_reported(const char *operation)
{
    if (!goes_on_after(operation))
        host_abort();
    fetch_add_relaxed(&refused.frees, (size_t)1);
}

void refuse(const char *operation, const char *format, ...)
{
    size_t before = load_relaxed(&refused.frees);
    if (before < REPORTS_MAX) {
        va_list arguments;
        va_start(arguments, format);
        report_list(REPORT_ERROR, format, arguments);
        va_end(arguments);
    } else if (before == REPORTS_MAX) {
        report("%zu wrong frees were refused; from here on they are only counted", before);
    }
    refuse_reported(operation);
}

static void refuse_foreign(const void *pointer, const char *operation)
{
    refuse(operation, "%s of %p, which is not a Cairn block", operation, pointer);
}

void refuse_free_block(const void *block, size_t size_bytes, const char *operation)
{
    refuse(operation,
           operation[0] == 'f' ? "double %s of %p (%zu-byte block)"
                               : "%s of freed block %p (%zu-byte block)",
           operation, block, size_bytes);
}

static void refuse_in_slab(const void *pointer, const char *operation, const struct span *slab,
                           const char *start)
{
    size_t size = slab->size_bytes;
    size_t offset = (size_t)((const char *)pointer - start);
    size_t slot = offset / size + 1;
    bool packed = slab_is_packed(slab);
    if (!packed && slot > slab->capacity)
        refuse_foreign(pointer, operation);
    else if (offset % size != 0)
        refuse(operation, "%s of interior pointer %p (%zu-byte block at %p)", operation, pointer,
               size, (const void *)(start + offset - offset % size));
    else if (slot >= (packed ? slab->limit * 64 + 1 : slab->limit))
        refuse_foreign(pointer, operation);
    else
        refuse_free_block(pointer, size, operation);
}

cold void refuse_pointer(const void *pointer, const char *operation)
{
    char *start;
    struct span *span = pages_search(pointer, &start);
    if (load_relaxed(&page_map_find(pointer)->tag) == SPAN_RESIZED) {
        refuse(operation, "%s of %p, which another thread resizes", operation, pointer);
        return;
    }
    if (span && span_is_slab(span)) {
        refuse_in_slab(pointer, operation, span, start);
        return;
    }
    if (span && span->tag != SPAN_RUN && span->tag != SPAN_RUN_HUGE) {
        size_t size = (size_t)span->pages << PAGE_SHIFT;
        refuse(operation, "%s of interior pointer %p (%zu-byte block at %p)", operation, pointer,
               size, (void *)start);
        return;
    }
    unsigned tag = load_relaxed(&page_map_find(pointer)->tag);
    bool kept = tag == SPAN_KEPT || tag == SPAN_TRAPPED;
    if (span == NULL && (kept || pages_holds(pointer)))
        refuse(operation,
               operation[0] == 'f' ? "double %s of %p (its memory is free)"
                                   : "%s of freed block %p (its memory is free)",
               operation, pointer);
    else
        refuse_foreign(pointer, operation);
}

cold void refuse_freed(const void *block, const struct span *slab, const char *operation)
{
    size_t size_bytes = slab->size_bytes;
    if (page_map_find(block) == slab && span_is_slab(slab))
        refuse_free_block(block, size_bytes, operation);
    else /* it was given back meanwhile, and that is no length */
        refuse_pointer(block, operation);
}
