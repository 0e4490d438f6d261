/* See program_limit.h. */
#include "heap/program_limit.h"

#include "heap/heap_slabs.h"
#include "heap/program_notes.h"
#include "os/os.h"

static bool try_reserve(struct program_heap *program, size_t bytes)
{
    size_t limit = load_relaxed(&program->limit_bytes);
    size_t held = load_relaxed(&program->held_bytes);
    do
        if (bytes > limit || held > limit - bytes)
            return false;
    while (!compare_swap_acq_rel(&program->held_bytes, &held, held + bytes));
    return true;
}

void program_trim(struct program_heap *program)
{
    program_enter(program);
    heap_trim(&program->heap);
    program_leave(program);
}

bool program_reserve(struct program_heap *program, size_t bytes)
{
    if (likely(try_reserve(program, bytes)))
        return true;
    if (bytes <= load_relaxed(&program->limit_bytes)) {
        program_trim(program);
        if (try_reserve(program, bytes))
            return true;
    }
    fetch_add_relaxed(&program->refusals, (size_t)1);
    return false;
}

bool program_begin_resize(struct span *span, size_t pages, size_t *counted_pages)
{
    struct program_heap *program = span_program(span);
    *counted_pages = span->pages;
    if (likely(program == NULL) || pages <= span->pages)
        return true;
    *counted_pages = align_up(pages << PAGE_SHIFT, os_page_size()) >> PAGE_SHIFT;
    return program_reserve(program, (*counted_pages - span->pages) << PAGE_SHIFT);
}

void program_end_resize(struct span *span, size_t counted_pages)
{
    struct program_heap *program = span_program(span);
    if (unlikely(program != NULL)) {
        fetch_add_relaxed(&program->held_bytes, (span->pages - counted_pages) << PAGE_SHIFT);
        store_relaxed(&program_note_of(span)->bytes, (size_t)span->pages << PAGE_SHIFT);
        program_note_peak(program);
    }
}
