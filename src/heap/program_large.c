/* Large blocks of first-class heaps: see program_large.h. */
#include "heap/program_large.h"

#include "heap/large.h"
#include "heap/program_heap.h"
#include "os/os.h"

static size_t span_bytes(const struct span *span) { return (size_t)span->pages << PAGE_SHIFT; }

/* As long as the span is in use, this field is nobody else's. */
static struct large_note *note_of(const struct span *span)
{
    return (struct large_note *)(void *)span->next;
}

static struct large_note *take_note(struct program_heap *program)
{
    fork_lock_acquire(&program->lock);
    program_collect_large(program);
    struct large_note *note = program->large.spare;
    if (note)
        program->large.spare = note->next;
    fork_lock_release(&program->lock);
    if (note == NULL && (note = meta_take(META_HOT, sizeof *note)) != NULL)
        note->program = program;
    return note;
}

static void link_note(struct program_heap *program, struct large_note *note)
{
    fork_lock_acquire(&program->lock);
    note->prev = NULL;
    note->next = program->large.used;
    if (note->next)
        note->next->prev = note;
    program->large.used = note;
    fork_lock_release(&program->lock);
}

static void spare_note(struct program_heap *program, struct large_note *note)
{
    fork_lock_acquire(&program->lock);
    note->next = program->large.spare;
    program->large.spare = note;
    fork_lock_release(&program->lock);
}

static struct span *take_span(size_t size_bytes, size_t alignment_bytes)
{
    struct span *span = alignment_bytes <= PAGE_BYTES ? large_allocate_kept(size_bytes) : NULL;
    return span ? span : large_allocate(size_bytes, alignment_bytes);
}

/* What was taken may be longer or shorter than what was counted for it. False: the limit does not
 * allow the rest. */
static bool count_length(struct program_heap *program, const struct span *span, size_t counted)
{
    size_t bytes = span_bytes(span);
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
    struct large_note *note = take_note(program);
    struct span *span = note ? take(size_bytes, alignment_bytes) : NULL;
    if (span && !count_length(program, span, counted)) {
        (void)large_free(span);
        span = NULL;
    }
    if (span == NULL) {
        if (note)
            spare_note(program, note);
        program_unreserve(program, counted);
        return NULL;
    }
    store_relaxed(&note->bytes, span_bytes(span));
    store_relaxed(&note->span, span);
    span->next = (struct span *)(void *)note;
    store_release(&span->owner,
                  (uintptr_t)program | OWNER_LARGE); /* pairs with load_acquire of who looks */
    link_note(program, note);
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

void program_lose_large(struct span *span)
{
    struct large_note *note = note_of(span);
    struct program_heap *program = note->program;
    store_relaxed(&span->owner, (uintptr_t)0);
    program_unreserve(program, span_bytes(span));
    store_relaxed(&note->span, (struct span *)NULL);
    note->mail_next = load_relaxed(&program->large.freed);
    while (!compare_swap_acq_rel(&program->large.freed, &note->mail_next,
                                 note)) /* release: pairs with program_collect_large */
        pause_processor();
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
        store_relaxed(&note_of(span)->bytes, span_bytes(span));
        program_note_peak(program);
    }
}

static void unlink_note(struct program_heap *program, struct large_note *note)
{
    if (note->next)
        note->next->prev = note->prev;
    if (note->prev)
        note->prev->next = note->next;
    else
        program->large.used = note->next;
    note->next = program->large.spare;
    program->large.spare = note;
}

void program_collect_large(struct program_heap *program)
{
    if (load_relaxed(&program->large.freed) == NULL)
        return;
    struct large_note *note = exchange_acquire(
        &program->large.freed, (struct large_note *)NULL); /* pairs with program_lose_large */
    for (struct large_note *next; note; note = next) {
        next = note->mail_next;
        unlink_note(program, note);
    }
}

/* A block that is freed at the same time is freed once: by whoever takes its tag. */
void program_end_large(struct program_heap *program)
{
    for (struct large_note *note = program->large.used; note; note = note->next) {
        struct span *span = load_relaxed(&note->span);
        if (span && slab_heap(span) == &program->heap)
            (void)large_free(span);
    }
    program_collect_large(program);
}

/* Not of a block that another thread of the parent was freeing, or has freed and taken anew: what
 * the fork copied of the note may be older than what it copied of the header. */
static bool is_in_use(const struct program_heap *program, const struct large_note *note)
{
    const struct span *span = load_relaxed(&note->span);
    if (span == NULL)
        return false;
    uint8_t tag = load_relaxed(&span->tag);
    return (tag == SPAN_LARGE || tag == SPAN_HUGE) && span_program(span) == program &&
           note_of(span) == note;
}

size_t program_recount_large(struct program_heap *program)
{
    size_t bytes = 0;
    store_relaxed(&program->large.freed, (struct large_note *)NULL);
    for (struct large_note *note = program->large.used, *next; note; note = next) {
        next = note->next;
        if (is_in_use(program, note))
            bytes += span_bytes(load_relaxed(&note->span));
        else
            unlink_note(program, note);
    }
    return bytes;
}
