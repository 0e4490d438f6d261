// Reports the blocks that no pointer leads to: counts by size, and the largest ones individually. A
// lost block is direct when no other lost block leads to it, or when it is part of a cycle. A
// direct block holds the lost blocks that it leads to.
#include "marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 40, LIST_MOST = 64 * 1024 };

// Which lost blocks are held by others, and how much each of the rest holds.
struct holding {
    uint64_t *held;  // one bit for each slot: another lost block leads to it
    size_t from;     // the block that is searched
    uint64_t *stack; // addresses
    size_t depth, most;
    uint64_t blocks, bytes;
};

static void note_held(struct marks *marks, uint64_t word, uint64_t place, void *context)
{
    struct holding *holding = context;
    struct block_span *span;
    (void)place;
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
    uint32_t site;                    // site of the profiler; 0: none
    uint64_t held_blocks, held_bytes; // reached through it, without itself
};

struct size_row {
    uint64_t bytes, blocks, direct;
};

struct report {
    struct holding holding;
    uint64_t *owned; // one bit for each slot: direct, or held by a direct one
    uint64_t *direct;
    bool cycles; // the remaining blocks lead to one another
    struct leak *list;
    size_t count, most;
    struct size_row *sizes;
    size_t size_count, sizes_most;
    uint64_t blocks, bytes, held_blocks, held_bytes;
    struct groups groups;
    struct samples samples;
    bool *is_site; // by site of the profiler: lost blocks were allocated there
    bool every;
};

static void count_size(struct marks *marks, struct report *report, uint64_t bytes, bool direct)
{
    size_t i = 0;
    spend(marks->look->target, report->size_count);
    while (i < report->size_count && report->sizes[i].bytes != bytes)
        i++;
    if (i == report->size_count) {
        report->sizes = with_room(report->sizes, i, &report->sizes_most, sizeof *report->sizes);
        report->sizes[report->size_count++] = (struct size_row){bytes, 0, 0};
    }
    report->sizes[i].blocks++;
    report->sizes[i].direct += direct;
}

static void push_owned(struct marks *marks, uint64_t word, uint64_t place, void *context)
{
    struct report *report = context;
    struct holding *holding = &report->holding;
    struct block_span *span;
    (void)place;
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
    count_size(marks, report, span->is_empty_blocks ? 0 : span->slot_bytes, false);
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

// Returns: the profiler's site of a block; 0 when it has none.
static uint32_t site_of(struct report *report, uint64_t address)
{
    size_t place = first_sample(&report->samples, address);
    if (place == report->samples.count || report->samples.list[place].block != address)
        return 0;
    uint32_t site = report->samples.list[place].site;
    report->is_site[site] = true;
    return site;
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
    count_size(marks, report, bytes, true);
    own_from(marks, report, address);
    report->blocks++;
    report->bytes += bytes;
    report->held_blocks += report->holding.blocks;
    report->held_bytes += report->holding.bytes;
    if (report->count == LIST_MOST && !report->every) { // only the largest are printed
        sort(report->list, report->count, sizeof *report->list, by_bytes);
        report->count = SHOWN;
    }
    const struct leak leak = {address, bytes, site_of(report, address), report->holding.blocks,
                              report->holding.bytes};
    report->list = with_room(report->list, report->count, &report->most, sizeof *report->list);
    report->list[report->count++] = leak;
    const struct group one = {bytes,
                              kind_of(marks->look, address, bytes),
                              leak.site,
                              address,
                              1,
                              leak.held_blocks,
                              leak.held_bytes};
    add_to_group(marks->look->target, &report->groups, &one);
}

static void print_leak(struct look *look, const struct leak *leak)
{
    printf("leak\taddress=%#" PRIx64 "\tsize_bytes=%" PRIu64 "\theld_blocks=%" PRIu64
           "\theld_bytes=%" PRIu64,
           leak->address, leak->bytes, leak->held_blocks, leak->held_bytes);
    if (leak->site != 0)
        printf("\tsite=%" PRIu32, leak->site);
    print_contents(look, leak->address, leak->bytes);
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

static void print_sites(struct look *look, const struct report *report)
{
    bool *is_named = no_names(look->target);
    for (uint32_t i = 1; i < look->library->profile.site_count; i++)
        if (report->is_site[i]) {
            printf("stack\tsite=%" PRIu32 "\t", i);
            print_frames(look, i, is_named);
            putchar('\n');
        }
    print_mappings(look->target, is_named);
    free(is_named);
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
    sort(report->list, report->count, sizeof *report->list, by_bytes);
    print_target(marks->look);
    printf("lost\tlooks=%d\tdirect_blocks=%" PRIu64 "\tdirect_bytes=%" PRIu64
           "\theld_blocks=%" PRIu64 "\theld_bytes=%" PRIu64 "\tlive_blocks=%" PRIu64
           "\troot_bytes=%" PRIu64 "\tunread_bytes=%" PRIu64 "\tthreads=%zu\tthreads_unread=%zu\n",
           looks, report->blocks, report->bytes, report->held_blocks, report->held_bytes, live,
           marks->root_bytes, marks->unread_bytes, target->thread_count, target->threads_unread);
    for (size_t i = 0; i < report->size_count; i++)
        printf("size\tsize_bytes=%" PRIu64 "\tblocks=%" PRIu64 "\tdirect=%" PRIu64 "\n",
               report->sizes[i].bytes, report->sizes[i].blocks, report->sizes[i].direct);
    print_groups(marks->look, &report->groups);
    for (size_t i = 0; i < shown; i++)
        print_leak(marks->look, &report->list[i]);
    if (report->every)
        each_lost(marks, print_held, report);
    print_sites(marks->look, report);
    printf("doubts\ttorn=%" PRIu64 "\tunreadable=%" PRIu64 "\n", marks->look->torn,
           marks->look->unreadable);
}

// Removes an unconfirmed block from the lost ones, and counts it.
static void forgive(struct marks *marks, size_t block, const struct block_span *span,
                    uint64_t address, void *context)
{
    uint64_t *count = context;
    (void)span, (void)address;
    set(marks->reached, block);
    ++*count;
}

void leaks(struct look *look, enum leaks_manner manner, bool every)
{
    struct target *target = look->target;
    struct marks marks = {.look = look};
    bool stands_still =
        target->pid == 0 || manner != LEAKS_LOOK || target->state == 'T' || target->state == 't';
    if (target->pid != 0 && manner != LEAKS_AT_END) // at_end.c has read them
        read_threads(target, manner == LEAKS_HOLD);
    if (stands_still)
        mark_once(&marks);
    else
        mark_twice(&marks);
    struct holds holds = {0};
    const char *unsure = stands_still ? NULL : confirm_lost(&marks, &holds);
    uint64_t doubtful = 0;
    if (!stands_still)
        read_mappings_again(target);
    if (unsure)
        each_lost(&marks, forgive, &doubtful);
    struct report report = {.every = every, .owned = new_bits(&marks), .direct = new_bits(&marks)};
    report.holding.held = new_bits(&marks);
    report.is_site = calloc(look->library->profile.site_count + 1, 1);
    if (report.is_site == NULL)
        fail("%s: out of memory for the sites of its profiler", target->name);
    read_samples(look, &report.samples);
    each_lost(&marks, see_held, &report.holding);
    each_lost(&marks, note_leak, &report);
    report.cycles = true;
    each_lost(&marks, note_leak, &report);
    print_report(&marks, &report, stands_still ? 1 : 2);
    if (unsure)
        printf("unsure\tblocks=%" PRIu64 "\treason=%s\n", doubtful, unsure);
    if (!stands_still)
        printf("holds\tcount=%u\tlongest_us=%" PRIu64 "\n", holds.count, holds.longest_ns / 1000);
    release_threads();
}
