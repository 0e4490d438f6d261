// The blocks that no pointer leads to: counted by size, and the largest of them one by one. Direct
// is one that no other lost block leads to, or one of a cycle; what it leads to, it holds.
#include "marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 40, LIST_MOST = 64 * 1024, TEXT_BYTES = 32 };

// Which lost blocks others of them lead to, and how much each of the rest holds so.
struct holding {
    uint64_t *held;  // a bit a slot: another lost block leads to it
    size_t from;     // the block that is looked through
    uint64_t *stack; // addresses
    size_t depth, most;
    uint64_t blocks, bytes;
};

static void note_held(struct marks *marks, uint64_t word, void *context)
{
    struct holding *holding = context;
    struct block_span *span;
    int64_t block = block_at(&marks->index, word, &span);
    if (block != NO_BLOCK && (size_t)block != holding->from && is_lost(marks, (size_t)block))
        set(holding->held, (size_t)block);
}

static void see_held(struct marks *marks, size_t block, const struct block_span *span,
                     uint64_t address, void *context)
{
    struct holding *holding = context;
    holding->from = block;
    if (!span->is_empty_blocks)
        see_words(marks, address, span->slot_bytes, note_held, holding);
}

struct leak {
    uint64_t address, bytes;
    uint64_t held_blocks, held_bytes; // through it, itself not counted
};

struct size_row {
    uint64_t bytes, blocks, direct;
};

struct report {
    struct holding holding;
    uint64_t *owned; // a bit a slot: counted as held by a direct one, or direct itself
    uint64_t *direct;
    bool cycles; // those that are left lead to one another
    struct leak *list;
    size_t count, most;
    struct size_row *sizes;
    size_t size_count, sizes_most;
    uint64_t blocks, bytes, held_blocks, held_bytes;
    bool every;
};

static void count_size(struct report *report, uint64_t bytes, bool direct)
{
    size_t i = 0;
    while (i < report->size_count && report->sizes[i].bytes != bytes)
        i++;
    if (i == report->size_count) {
        report->sizes = with_room(report->sizes, i, &report->sizes_most, sizeof *report->sizes);
        report->sizes[report->size_count++] = (struct size_row){bytes, 0, 0};
    }
    report->sizes[i].blocks++;
    report->sizes[i].direct += direct;
}

static void push_owned(struct marks *marks, uint64_t word, void *context)
{
    struct report *report = context;
    struct holding *holding = &report->holding;
    struct block_span *span;
    int64_t block = block_at(&marks->index, word, &span);
    if (block == NO_BLOCK || !is_lost(marks, (size_t)block) || is_set(report->owned, (size_t)block))
        return;
    set(report->owned, (size_t)block);
    holding->stack =
        with_room(holding->stack, holding->depth, &holding->most, sizeof *holding->stack);
    holding->stack[holding->depth++] =
        span->start + (uint64_t)((size_t)block - span->first) * span->slot_bytes;
    holding->blocks++;
    holding->bytes += span->is_empty_blocks ? 0 : span->slot_bytes;
    count_size(report, span->is_empty_blocks ? 0 : span->slot_bytes, false);
}

static void own_from(struct marks *marks, struct report *report, uint64_t address)
{
    struct holding *holding = &report->holding;
    struct block_span *span;
    holding->depth = 0;
    for (;;) {
        if (block_at(&marks->index, address, &span) != NO_BLOCK && !span->is_empty_blocks)
            see_words(marks, address, span->slot_bytes, push_owned, report);
        if (holding->depth == 0)
            return;
        address = holding->stack[--holding->depth];
    }
}

static int by_bytes(const void *left, const void *right)
{
    const struct leak *a = left, *b = right;
    uint64_t x = a->bytes + a->held_bytes, y = b->bytes + b->held_bytes;
    return x != y ? (x < y) - (x > y) : (a->address > b->address) - (a->address < b->address);
}

static void note_leak(struct marks *marks, size_t block, const struct block_span *span,
                      uint64_t address, void *context)
{
    struct report *report = context;
    if (is_set(report->owned, block) || (!report->cycles && is_set(report->holding.held, block)))
        return;
    set(report->owned, block);
    set(report->direct, block);
    uint64_t bytes = span->is_empty_blocks ? 0 : span->slot_bytes;
    report->holding.blocks = report->holding.bytes = 0;
    count_size(report, bytes, true);
    own_from(marks, report, address);
    report->blocks++;
    report->bytes += bytes;
    report->held_blocks += report->holding.blocks;
    report->held_bytes += report->holding.bytes;
    if (report->count == LIST_MOST && !report->every) { // the largest of them are shown
        qsort(report->list, report->count, sizeof *report->list, by_bytes);
        report->count = SHOWN;
    }
    report->list = with_room(report->list, report->count, &report->most, sizeof *report->list);
    report->list[report->count++] =
        (struct leak){address, bytes, report->holding.blocks, report->holding.bytes};
}

static void print_leak(struct look *look, const struct leak *leak)
{
    unsigned char text[TEXT_BYTES];
    uint64_t first = 0;
    size_t bytes = leak->bytes < sizeof text ? (size_t)leak->bytes : sizeof text;
    printf("leak\taddress=%#" PRIx64 "\tsize_bytes=%" PRIu64 "\theld_blocks=%" PRIu64
           "\theld_bytes=%" PRIu64 "\tbegins=x",
           leak->address, leak->bytes, leak->held_blocks, leak->held_bytes);
    if (read_small(look->target, leak->address, text, bytes))
        for (size_t i = 0; i < bytes; i++)
            printf("%02x", text[i]);
    if (bytes >= sizeof first)
        memcpy(&first, text, sizeof first);
    const struct mapping *mapping = mapping_of(look->target, first);
    if (mapping && mapping->path[0] == '/')
        printf("\tpoints_to=%s+%#" PRIx64, mapping->path,
               first - mapping->start + mapping->file_offset);
    putchar('\n');
}

static void print_held(struct marks *marks, size_t block, const struct block_span *span,
                       uint64_t address, void *context)
{
    const struct report *report = context;
    (void)marks;
    if (!is_set(report->direct, block))
        printf("held\taddress=%#" PRIx64 "\tsize_bytes=%" PRIu64 "\n", address,
               span->is_empty_blocks ? 0 : span->slot_bytes);
}

static uint64_t count_bits(const uint64_t *bits, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count / 64 + 1; i++)
        sum += (uint64_t)__builtin_popcountll(bits[i]);
    return sum;
}

static void print_report(struct marks *marks, struct report *report, int looks)
{
    const struct target *target = marks->look->target;
    size_t shown = report->every || report->count < SHOWN ? report->count : SHOWN;
    uint64_t live = 0;
    if (marks->index.slots > 0)
        live = count_bits(marks->index.live, marks->index.slots - 1);
    qsort(report->list, report->count, sizeof *report->list, by_bytes);
    print_target(marks->look);
    printf("lost\tlooks=%d\tdirect_blocks=%" PRIu64 "\tdirect_bytes=%" PRIu64
           "\theld_blocks=%" PRIu64 "\theld_bytes=%" PRIu64 "\tlive_blocks=%" PRIu64
           "\troot_bytes=%" PRIu64 "\tunread_bytes=%" PRIu64 "\tthreads=%zu\tthreads_unread=%zu\n",
           looks, report->blocks, report->bytes, report->held_blocks, report->held_bytes, live,
           marks->root_bytes, marks->unread_bytes, target->thread_count, target->threads_unread);
    for (size_t i = 0; i < report->size_count; i++)
        printf("size\tsize_bytes=%" PRIu64 "\tblocks=%" PRIu64 "\tdirect=%" PRIu64 "\n",
               report->sizes[i].bytes, report->sizes[i].blocks, report->sizes[i].direct);
    for (size_t i = 0; i < shown; i++)
        print_leak(marks->look, &report->list[i]);
    if (report->every)
        each_lost(marks, print_held, report);
    printf("doubts\ttorn=%" PRIu64 "\tunreadable=%" PRIu64 "\n", marks->look->torn,
           marks->look->unreadable);
}

void leaks(struct look *look, bool hold, bool every)
{
    struct target *target = look->target;
    struct marks marks = {.look = look};
    bool stands_still = target->pid == 0 || hold || target->state == 'T' || target->state == 't';
    if (target->pid != 0)
        read_threads(target, hold);
    if (stands_still)
        mark_once(&marks);
    else
        mark_twice(&marks);
    struct report report = {.every = every, .owned = new_bits(&marks), .direct = new_bits(&marks)};
    report.holding.held = new_bits(&marks);
    each_lost(&marks, see_held, &report.holding);
    each_lost(&marks, note_leak, &report);
    report.cycles = true;
    each_lost(&marks, note_leak, &report);
    print_report(&marks, &report, stands_still ? 1 : 2);
    release_threads(target);
}
