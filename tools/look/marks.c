// Marks the blocks that pointers lead to. Roots are the registers, the used parts of the stacks,
// and all other private memory that was written, except Cairn's own. From the roots, marking
// continues through the blocks, as in a conservative collector (Boehm and Weiser, Garbage
// collection in an uncooperative environment, 1988). A pointer is any aligned word that points into
// a live block, not only to its start. So a lost block may be missed, but none is named falsely,
// unless pointers to it are hidden: tagged in their high bits, compressed, at odd addresses, in a
// file or in another process.
//
// A running process moves pointers while it is read. So it is read twice. A block is a candidate
// when neither pass found a pointer to it and its contents did not change in between: a program
// cannot change a block without a pointer to it. confirm.c confirms the candidates.
#include "marks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 256 * 1024, // length that one call of was_touched() can check
    RED_ZONE = 128,           // bytes in use below the stack pointer of x86-64
    SETTLE_US = 300 * 1000,
    CHECKED_BYTES = 4096,
};

struct candidate { // a block that one pass found no pointer to
    uint64_t address, bytes, checksum;
};
struct candidates {
    struct candidate *list;
    size_t count, most;
};

extern inline bool is_set(const uint64_t *bits, size_t at);
extern inline void set(uint64_t *bits, size_t at);
extern inline bool is_lost(const struct marks *marks, size_t block);

uint64_t *new_bits(const struct marks *marks)
{
    size_t bytes = (marks->index.slots / 64 + 1) * 8;
    return memset(take_memory(NULL, bytes), 0, bytes);
}

static void mark(struct marks *marks, uint64_t word, uint64_t place, void *context)
{
    struct block_span *span;
    (void)place, (void)context;
    if (word < marks->lowest || word >= marks->highest)
        return;
    int64_t block = block_at(&marks->index, word, &span);
    if (block == NO_BLOCK || is_set(marks->reached, (size_t)block))
        return;
    set(marks->reached, (size_t)block);
    if (!span->waits) {
        span->waits = true;
        marks->queue[marks->queued++] = (size_t)(span - marks->index.spans);
    }
}

// Reads through the cache if the piece is small. Returns: false when a byte cannot be read; the
// caller then reads page by page.
static bool read_piece(struct marks *marks, uint64_t address, void *buffer, size_t bytes)
{
    return bytes <= CACHE_PAGE ? read_small(marks->look->target, address, buffer, bytes)
                               : read_large(marks->look->target, address, buffer, bytes);
}

void see_words(struct marks *marks, uint64_t address, uint64_t bytes, word_seen *seen,
               void *context)
{
    static uint64_t words[PIECE_BYTES / 8];
    uint64_t end = (address + bytes) & ~(uint64_t)7;
    for (uint64_t at = (address + 7) & ~(uint64_t)7, step; at < end; at += step) {
        step = PIECE_BYTES - at % PIECE_BYTES;
        step = step < end - at ? step : end - at;
        if (step > CACHE_PAGE && !was_touched(marks->look->target, at, step))
            continue;
        spend(marks->look->target, 1 + step / 8);
        if (!read_piece(marks, at, words, step)) {
            step = CACHE_PAGE - at % CACHE_PAGE < step ? CACHE_PAGE - at % CACHE_PAGE : step;
            if (!read_piece(marks, at, words, step)) {
                uint64_t next = next_in_file(marks->look->target, at + step) & ~(uint64_t)7;
                step = next < end ? next - at : end - at;
                marks->unread_bytes += step;
                continue;
            }
        }
        for (uint64_t i = 0; i < step / 8; i++)
            seen(marks, words[i], at + 8 * i, context);
    }
}

// Scans the reached slots of a span that were not scanned yet. Adjacent slots are read together.
static void scan_span(struct marks *marks, struct block_span *span)
{
    span->waits = false;
    for (uint64_t slot = 0; slot < span->slots; slot++) {
        uint64_t first = slot;
        while (slot < span->slots && is_set(marks->reached, span->first + slot) &&
               !is_set(marks->scanned, span->first + slot))
            set(marks->scanned, span->first + slot++);
        if (slot > first && !span->is_empty_blocks)
            see_words(marks, span->start + first * span->slot_bytes,
                      (slot - first) * span->slot_bytes, mark, NULL);
    }
}

static void scan_queue(struct marks *marks)
{
    while (marks->queued > 0)
        scan_span(marks, &marks->index.spans[marks->queue[--marks->queued]]);
}

static void scan_root(struct marks *marks, uint64_t start, uint64_t end, void *context)
{
    (void)context;
    marks->root_bytes += end - start;
    see_words(marks, start, end - start, mark, NULL);
    scan_queue(marks);
}

uint64_t start_in_use(const struct target *target, uint64_t start, uint64_t end)
{
    uint64_t lowest = end;
    for (size_t i = 0; i < target->thread_count; i++) {
        uint64_t pointer = target->stack_pointers[i];
        if (pointer >= start && pointer < lowest)
            lowest = pointer;
    }
    if (lowest == end)
        return start;
    return lowest - start > RED_ZONE ? lowest - RED_ZONE : start;
}

static void see_mapping(struct marks *marks, uint64_t start, uint64_t end, root_seen *seen,
                        void *context)
{
    struct target *target = marks->look->target;
    spend(target, target->thread_count + marks->index.own_count);
    start = start_in_use(target, start, end);
    for (size_t i = 0; i < marks->index.own_count && start < end; i++) {
        const struct address_range *own = &marks->index.own[i];
        if (own->end <= start || own->start >= end)
            continue;
        if (own->start > start)
            seen(marks, start, own->start, context);
        start = own->end;
    }
    if (start < end)
        seen(marks, start, end, context);
}

// Calls `seen` for the parts of a mapping that pointers can have been written to: all of a writable
// mapping, and memory that became read-only afterwards (RELRO). In mappings of files, only pages
// that differ from the file count.
static void see_pieces(struct marks *marks, const struct mapping *mapping, root_seen *seen,
                       void *context)
{
    if (mapping->writable || mapping->path[0] != '/') {
        see_mapping(marks, mapping->start, mapping->end, seen, context);
        return;
    }
    for (uint64_t at = mapping->start, end; at < mapping->end; at = end) {
        end = at + PIECE_BYTES < mapping->end ? at + PIECE_BYTES : mapping->end;
        if (was_written(marks->look->target, at, end - at))
            see_mapping(marks, at, end, seen, context);
    }
}

void each_root(struct marks *marks, root_seen *seen, void *context)
{
    const struct target *target = marks->look->target;
    for (size_t i = 0; i < target->mapping_count && target->pid != 0; i++) {
        const struct mapping *mapping = &target->mappings[i];
        if (mapping->readable && !mapping->shared && strncmp(mapping->path, "[v", 2) != 0)
            see_pieces(marks, mapping, seen, context);
    }
    for (size_t i = 0; i < target->segment_count; i++)
        see_mapping(marks, target->segments[i].start,
                    target->segments[i].start + target->segments[i].bytes, seen, context);
    for (size_t i = 0; i < marks->index.run_count; i++)
        seen(marks, marks->index.runs[i].start, marks->index.runs[i].end, context);
}

static void scan_roots(struct marks *marks)
{
    const struct target *target = marks->look->target;
    for (size_t i = 0; i < target->register_words; i++)
        mark(marks, target->registers[i], 0, NULL);
    for (size_t i = 0; i < target->kernel_count; i++)
        mark(marks, target->kernel_words[i], 0, NULL);
    scan_queue(marks);
    each_root(marks, scan_root, NULL);
}

void mark_once(struct marks *marks)
{
    struct index *index = &marks->index;
    make_index(marks->look, index);
    marks->lowest = index->span_count ? index->spans[0].start : 0;
    marks->highest = 0;
    for (size_t i = 0; i < index->span_count; i++)
        if (index->spans[i].start + index->spans[i].bytes > marks->highest)
            marks->highest = index->spans[i].start + index->spans[i].bytes;
    marks->reached = new_bits(marks);
    marks->scanned = new_bits(marks);
    marks->queue = take_memory(NULL, (index->span_count + 1) * sizeof *marks->queue);
    marks->queued = 0;
    marks->root_bytes = marks->unread_bytes = 0;
    read_kernel_pointers(marks->look->target);
    scan_roots(marks);
}

static void end_look(struct marks *marks)
{
    free_index(&marks->index);
    free(marks->reached);
    free(marks->scanned);
    free(marks->queue);
}

void each_lost(struct marks *marks, block_seen *seen, void *context)
{
    for (size_t i = 0; i < marks->index.span_count; i++) {
        const struct block_span *span = &marks->index.spans[i];
        for (uint64_t slot = 0; slot < span->slots; slot++)
            if (is_lost(marks, span->first + slot))
                seen(marks, span->first + slot, span, span->start + slot * span->slot_bytes,
                     context);
    }
}

// Adds a word to a checksum: FNV-1a (Fowler, Noll, Vo) over words.
static void add_to_checksum(struct marks *marks, uint64_t word, uint64_t place, void *context)
{
    uint64_t *checksum = context;
    (void)marks, (void)place;
    *checksum = (*checksum ^ word) * 0x100000001b3;
}

static void note_candidate(struct marks *marks, size_t block, const struct block_span *span,
                           uint64_t address, void *context)
{
    struct candidates *found = context;
    (void)block;
    found->list = with_room(found->list, found->count, &found->most, sizeof *found->list);
    struct candidate *candidate = &found->list[found->count++];
    *candidate = (struct candidate){address, span->slot_bytes, 0xcbf29ce484222325};
    if (!span->is_empty_blocks)
        see_words(marks, address,
                  span->slot_bytes < CHECKED_BYTES ? span->slot_bytes : CHECKED_BYTES,
                  add_to_checksum, &candidate->checksum);
}

struct confirmation {
    const struct candidates *before;
    struct candidates now;
    size_t at; // index in `before`: both lists are sorted by address
};

static void confirm(struct marks *marks, size_t block, const struct block_span *span,
                    uint64_t address, void *context)
{
    struct confirmation *both = context;
    const struct candidates *before = both->before;
    both->now.count = 0;
    note_candidate(marks, block, span, address, &both->now);
    while (both->at < before->count && before->list[both->at].address < address)
        both->at++;
    if (both->at == before->count ||
        memcmp(&before->list[both->at], both->now.list, sizeof *both->now.list) != 0)
        set(marks->reached, block);
}

void mark_twice(struct marks *marks)
{
    struct look *look = marks->look;
    struct candidates first = {0};
    mark_once(marks);
    each_lost(marks, note_candidate, &first);
    end_look(marks);
    (void)usleep(SETTLE_US);
    forget_pages(look->target);
    forget_threads(look->target);
    read_mappings_again(look->target);
    read_threads(look->target, false);
    look->torn = look->unreadable = 0;
    mark_once(marks);
    struct confirmation both = {&first, {0}, 0};
    each_lost(marks, confirm, &both);
    free(both.now.list);
    free(first.list);
}
