/* Large blocks of first-class heaps: see program_large.h. */
#include "heap/program_large.h"

#include "heap/frozen.h"
#include "heap/large.h"
#include "heap/program_limit.h"
#include "heap/program_notes.h"
#include "os/os.h"

static struct span *take_span(size_t size_bytes, size_t alignment_bytes)
{
    struct span *span = alignment_bytes <= PAGE_BYTES ? large_allocate_kept(size_bytes) : NULL;
    return span ? span : large_allocate(size_bytes, alignment_bytes);
}

/* What was taken may be longer or shorter than what was counted for it. False: the limit does not
 * allow the rest. */
static bool count_length(struct program_heap *program, const struct span *span, size_t counted)
{
    size_t bytes = (size_t)span->pages << PAGE_SHIFT;
    if (bytes > counted)
        return program_reserve(program, bytes - counted);
    program_unreserve(program, counted - bytes);
    return true;
}

static struct span *allocate(struct program_heap *program, size_t size_bytes,
                             size_t alignment_bytes,
                             struct span *(*take)(size_t size_bytes, size_t alignment_bytes))
{
    if (size_bytes > PTRDIFF_MAX)
        return NULL;
    size_t least = larger_of(size_bytes, MEDIUM_MOST + 1);
    size_t counted = align_up(least, os_page_size());
    if (!program_reserve(program, counted))
        return NULL;
    struct large_note *note = program_take_note(program);
    struct span *span = note ? take(size_bytes, alignment_bytes) : NULL;
    if (span && !count_length(program, span, counted)) {
        (void)large_free(span, span->base);
        span = NULL;
    }
    if (span == NULL) {
        if (note)
            program_spare_note(program, note);
        program_unreserve(program, counted);
        return NULL;
    }
    program_link_note(program, note, span);
    program_note_peak(program);
    return span;
}

struct span *program_allocate_large(struct program_heap *program, size_t size_bytes,
                                    size_t alignment_bytes)
{
    return allocate(program, size_bytes, alignment_bytes, take_span);
}

struct span *program_allocate_large_zeroed(struct program_heap *program, size_t size_bytes)
{
    struct span *span = allocate(program, size_bytes, PAGE_BYTES, large_allocate);
    if (span)
        pages_clear(span, size_bytes);
    return span;
}

/* A block that is freed at the same time is freed once: by whoever takes its tag. */
void program_end_large(struct program_heap *program)
{
    for (struct large_note *note = program->large.used; note; note = note->next) {
        struct span *span = load_relaxed(&note->span);
        const char *base = span ? span->base : NULL;
        if (span && slab_heap(span) == &program->heap && large_is_in_use(span))
            (void)large_free(span, base);
    }
    program_collect_large(program);
}
