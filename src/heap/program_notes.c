/* See program_notes.h. */
#include "heap/program_notes.h"

static size_t span_bytes(const struct span *span) { return (size_t)span->pages << PAGE_SHIFT; }

struct large_note *program_take_note(struct program_heap *program)
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

void program_link_note(struct program_heap *program, struct large_note *note, struct span *span)
{
    store_relaxed(&note->bytes, span_bytes(span));
    store_relaxed(&note->span, span);
    span->next = (struct span *)(void *)note;
    store_release(&span->owner,
                  (uintptr_t)program | OWNER_LARGE); /* pairs with load_acquire of who looks */
    fork_lock_acquire(&program->lock);
    note->prev = NULL;
    note->next = program->large.used;
    if (note->next)
        note->next->prev = note;
    program->large.used = note;
    fork_lock_release(&program->lock);
}

void program_spare_note(struct program_heap *program, struct large_note *note)
{
    fork_lock_acquire(&program->lock);
    note->next = program->large.spare;
    program->large.spare = note;
    fork_lock_release(&program->lock);
}

void program_lose_large(struct span *span)
{
    struct large_note *note = program_note_of(span);
    struct program_heap *program = note->program;
    store_relaxed(&span->owner, (uintptr_t)0);
    program_unreserve(program, span_bytes(span));
    store_relaxed(&note->span, (struct span *)NULL);
    note->mail_next = load_relaxed(&program->large.freed);
    while (!compare_swap_acq_rel(&program->large.freed, &note->mail_next,
                                 note)) /* release: pairs with program_collect_large */
        pause_processor();
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

/* Not of a block that another thread of the parent was freeing, or has freed and taken anew: what
 * the fork copied of the note may be older than what it copied of the header. */
static bool is_in_use(const struct program_heap *program, const struct large_note *note)
{
    const struct span *span = load_relaxed(&note->span);
    if (span == NULL)
        return false;
    uint8_t tag = load_relaxed(&span->tag);
    bool in_use = tag == SPAN_LARGE || tag == SPAN_HUGE || tag == SPAN_RESIZED;
    return in_use && span_program(span) == program && program_note_of(span) == note;
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
