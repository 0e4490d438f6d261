/* Classifies wrong pointers, reports them, and ends the process or continues: misuse_report.h. */
#include "heap/misuse_report.h"

#include "base/check.h"
#include "base/host.h"
#include "heap/hooks.h"
#include "heap/thread_heap.h"

enum { REPORTS_MAX = 100 };

static struct {
    bool goes_on; /* const after init */
    size_t frees; /* atomic: invalid frees reported or counted */
} refused;

void heap_go_on_after_wrong_frees(void) { refused.goes_on = true; }

size_t heap_count_wrong_frees(void) { return load_relaxed(&refused.frees); }

void misuse_reported(const char *operation)
{
    if (config_hardened || !refused.goes_on || operation[0] != 'f')
        host_abort();
    fetch_add_relaxed(&refused.frees, (size_t)1);
}

void report_misuse(const char *operation, const char *format, ...)
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
    misuse_reported(operation);
}

static void misuse_refuse_foreign(const void *pointer, const char *operation)
{
    report_misuse(operation, "%s of %p, which is not a Cairn block", operation, pointer);
}

void report_free_block(const void *block, size_t size_bytes, const char *operation)
{
    report_misuse(operation,
                  operation[0] == 'f' ? "double %s of %p (%zu-byte block)"
                                      : "%s of freed block %p (%zu-byte block)",
                  operation, block, size_bytes);
}

static void misuse_refuse_in_slab(const void *pointer, const char *operation,
                                  const struct span *slab, const char *start)
{
    size_t size = slab->size_bytes;
    size_t offset = (size_t)((const char *)pointer - start);
    size_t slot = offset / size + 1;
    bool packed = slab_is_packed(slab);
    if (!packed && slot > slab->capacity)
        misuse_refuse_foreign(pointer, operation);
    else if (offset % size != 0)
        report_misuse(operation, "%s of interior pointer %p (%zu-byte block at %p)", operation,
                      pointer, size, (const void *)(start + offset - offset % size));
    else if (slot >= (packed ? (slab->fresh_slot - 1) * 64 + 1 : slab->fresh_slot))
        misuse_refuse_foreign(pointer, operation);
    else
        report_free_block(pointer, size, operation);
}

cold void report_bad_pointer(const void *pointer, const char *operation)
{
    char *start;
    struct span *span = pages_search(pointer, &start);
    if (load_relaxed(&page_map_find(pointer)->tag) == SPAN_RESIZED) {
        report_misuse(operation, "concurrent %s and realloc of %p", operation, pointer);
        return;
    }
    if (span && span_is_slab(span)) {
        misuse_refuse_in_slab(pointer, operation, span, start);
        return;
    }
    if (span && span->tag != SPAN_RUN && span->tag != SPAN_RUN_HUGE) {
        size_t size = (size_t)span->pages << PAGE_SHIFT;
        report_misuse(operation, "%s of interior pointer %p (%zu-byte block at %p)", operation,
                      pointer, size, (void *)start);
        return;
    }
    unsigned tag = load_relaxed(&page_map_find(pointer)->tag);
    bool kept = tag == SPAN_KEPT || tag == SPAN_REVOKED;
    if (span == NULL && (kept || pages_holds(pointer)))
        report_misuse(operation,
                      operation[0] == 'f' ? "double %s of %p (its memory is free)"
                                          : "%s of freed block %p (its memory is free)",
                      operation, pointer);
    else
        misuse_refuse_foreign(pointer, operation);
}

/* Whether the slot, as computed by slab_slot, is in use. */
static bool misuse_shows_use(const struct span *slab, unsigned slot)
{
    return likely(slot < load_relaxed(&slab->fresh_slot)) &&
           likely(link_shows_use(load_relaxed(slab_link(slab, slot))));
}

unsigned checked_slot(const void *pointer, struct span *slab, const char *operation)
{
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (misuse_shows_use(slab, slot))
        return slot;
    report_bad_pointer(pointer, operation);
    return SLOT_INVALID;
}

/* Whether the pointer is a block in use of its packed slab. */
static bool misuse_shows_packed(const struct span *slab, const void *pointer)
{
    size_t offset = (size_t)((const char *)pointer - slab_start(slab));
    size_t index = offset / PACKED_BYTES;
    /* Another thread may be giving the slab back. */
    size_t slots = smaller_of((size_t)PACKED_SLOTS, (size_t)load_relaxed(&slab->fresh_slot) - 1);
    return offset % PACKED_BYTES == 0 && index / 64 < slots &&
           (load_acquire(packed_word(slab, index / 64)) & packed_bit(index)) == 0;
}

struct span *checked_span(const void *pointer, const char *operation)
{
    struct span *span = page_map_find(pointer);
    bool taken;
    if (span_is_slab(span) && slab_is_packed(span))
        taken = misuse_shows_packed(span, pointer);
    else if (span_is_slab(span))
        taken = misuse_shows_use(span, (unsigned)slab_slot(span, pointer));
    else if (span->tag == SPAN_GUARDED)
        return heap_hooks.guard->check(pointer, span, operation) ? span : NULL;
    else
        taken = large_is_in_use(span) && span->base == pointer;
    if (likely(taken))
        return span;
    report_bad_pointer(pointer, operation);
    return NULL;
}
