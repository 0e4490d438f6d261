// cairn-trace prints the contents of a trace, for `cairn trace show` and other commands.
//
//   cairn-trace summary FILE          lines of name=value
//   cairn-trace events FILE [COUNT]   one line for each event, with tabs; the first COUNT
//   cairn-trace stacks FILE           one line for each stack: number, then frames, innermost first
//   cairn-trace live FILE             one line for each block live at the end: "block", address,
//                                     size, stack; then their stacks: "stack", number, frames;
//                                     then the lines of text
//   cairn-trace text FILE             the lines of text
//   cairn-trace columns FILE          the trace in its second form, for a compressor
//
// Exit status: 0, or 2 with a sentence on stderr. A damaged file is printed up to the damage; in
// the second form that part is unusable.
#include "trace_pack.h"
#include "trace_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const operations[TRACE_OPERATIONS] = {
    [TRACE_ALLOCATE] = "allocate",   [TRACE_FREE] = "free",
    [TRACE_RESIZE] = "resize",       [TRACE_RESIZE_FROM] = "resize-from",
    [TRACE_RESIZE_TO] = "resize-to", [TRACE_RESIZE_FAILED] = "resize-failed",
};

enum { BATCH = 4096 };

static void summarise(struct trace *trace)
{
    static struct trace_event events[BATCH];
    uint64_t counts[TRACE_OPERATIONS] = {0}, bytes = 0, first_ns = 0, last_ns = 0, total = 0;
    for (size_t got; (got = trace_read(trace, events, BATCH)) > 0;) {
        if (total == 0)
            first_ns = events[0].time_ns;
        total += got;
        for (size_t i = 0; i < got; i++) {
            counts[events[i].operation]++;
            if (events[i].operation == TRACE_ALLOCATE)
                bytes += events[i].size;
            if (events[i].time_ns > last_ns)
                last_ns = events[i].time_ns;
        }
    }
    const struct trace_header *head = trace_head(trace);
    static const char *const states[] = {"runs", "ended", "cut"};
    static const char *const reasons[] = {"none", "limit", "disk", "memory", "stopped"};
    printf("version=%u\nprocess=%u\nnumber=%u\nparent=%u\nstate=%s\nreason=%s\n", head->version,
           head->process, head->number, head->parent, head->state < 3 ? states[head->state] : "?",
           head->reason < 5 ? reasons[head->reason] : "?");
    printf("chunks=%" PRIu64 "\nevents=%" PRIu64 "\nevent_bytes=%" PRIu64 "\nthreads=%u\n",
           head->chunks, total, trace_bytes(trace), trace_thread_count(trace));
    printf("stacks=%u\nrequested_bytes=%" PRIu64 "\nfirst_ns=%" PRIu64 "\nlast_ns=%" PRIu64 "\n",
           trace_stack_count(trace), bytes, first_ns, last_ns);
    for (unsigned i = 0; i < TRACE_OPERATIONS; i++)
        if (operations[i])
            printf("%s=%" PRIu64 "\n", operations[i], counts[i]);
}

static void print_events(struct trace *trace, uint64_t most)
{
    struct trace_event event;
    uint64_t start = trace_head(trace)->start_ns;
    puts("order\tns\tthread\toperation\taddress\tsize\talignment\tstack\tfrom");
    for (uint64_t i = 0; i < most && trace_next(trace, &event); i++) {
        const char *name = event.zeroed ? "allocate-zeroed" : operations[event.operation];
        printf("%" PRIu64 "\t%" PRIu64 "\t%u\t%s\t%" PRIx64 "\t%" PRIu64 "\t%" PRIu64
               "\t%u\t%" PRIx64 "\n",
               event.order, event.time_ns - start, event.thread, name, event.address, event.size,
               event.alignment_log2 ? UINT64_C(1) << event.alignment_log2 : 0, event.stack,
               event.old_address);
    }
}

static void read_all(struct trace *trace)
{
    static struct trace_event events[BATCH];
    while (trace_read(trace, events, BATCH) > 0) {
    }
}

static void print_stack(struct trace *trace, uint32_t number, const char *before)
{
    uint64_t frames[TRACE_DEPTH];
    bool cut;
    unsigned depth = trace_stack(trace, number, frames, &cut);
    if (depth == 0)
        return;
    printf("%s%u", before, number);
    for (unsigned i = 0; i < depth; i++)
        printf("\t%" PRIx64, frames[i]);
    puts(cut ? "\t..." : "");
}

static void print_stacks(struct trace *trace)
{
    read_all(trace);
    for (uint32_t number = 1; number <= trace_stack_count(trace); number++)
        print_stack(trace, number, "");
}

// Blocks by address, with open addressing. A freed block keeps its place for the next block at its
// address.
struct block {
    uint64_t address, size;
    uint32_t stack;
    bool live;
};
struct table {
    struct block *blocks;
    size_t count, places;
};

static struct block *find_block(const struct table *table, uint64_t address)
{
    size_t at = (address >> 3) * 0x9e3779b97f4a7c15 >> 20 & (table->places - 1);
    while (table->blocks[at].address != 0 && table->blocks[at].address != address)
        at = (at + 1) & (table->places - 1);
    return &table->blocks[at];
}

static void no_memory(size_t count)
{
    fprintf(stderr, "out of memory for %zu blocks of the trace\n", count);
    exit(2);
}

static void grow(struct table *table)
{
    struct table more = {.places = table->places ? 2 * table->places : 4096};
    more.blocks = calloc(more.places, sizeof *more.blocks);
    if (more.blocks == NULL)
        no_memory(more.places);
    for (size_t i = 0; i < table->places; i++)
        if (table->blocks[i].live) {
            *find_block(&more, table->blocks[i].address) = table->blocks[i];
            more.count++;
        }
    free(table->blocks);
    *table = more;
}

static void put_block(struct table *table, uint64_t address, uint64_t size, uint32_t stack)
{
    if (2 * table->count >= table->places)
        grow(table);
    struct block *block = find_block(table, address);
    table->count += block->address == 0;
    *block = (struct block){address, size, stack, true};
}

// The blocks that threads are resizing: a failed resize restores its block, whose address another
// block may have had in between.
struct resized {
    struct block *of; // by the trace's number of the thread
    uint32_t threads;
};

static struct block *resized_by(struct resized *resized, uint32_t thread)
{
    if (thread >= resized->threads) {
        uint32_t threads = thread + 64;
        resized->of = realloc(resized->of, threads * sizeof *resized->of);
        if (resized->of == NULL)
            no_memory(threads);
        memset(resized->of + resized->threads, 0,
               (threads - resized->threads) * sizeof *resized->of);
        resized->threads = threads;
    }
    return &resized->of[thread];
}

static void follow_event(struct table *table, struct resized *resized,
                         const struct trace_event *event)
{
    struct block *block = find_block(table, event->address), *before;
    if (event->operation == TRACE_FREE) {
        block->live = false;
    } else if (event->operation == TRACE_RESIZE_FROM) {
        *resized_by(resized, event->thread) = *block;
        block->live = false;
    } else if (event->operation == TRACE_RESIZE_FAILED) {
        before = resized_by(resized, event->thread);
        if (before->live)
            put_block(table, before->address, before->size, before->stack);
    } else {
        put_block(table, event->address, event->size, event->stack);
    }
}

static void print_live(struct trace *trace)
{
    static struct trace_event events[BATCH];
    struct table table = {0};
    struct resized resized = {0};
    grow(&table);
    for (size_t got; (got = trace_read(trace, events, BATCH)) > 0;)
        for (size_t i = 0; i < got; i++)
            follow_event(&table, &resized, &events[i]);
    uint32_t stacks = trace_stack_count(trace);
    bool *has_blocks = calloc(stacks + 1, sizeof *has_blocks);
    if (has_blocks == NULL)
        no_memory(table.count);
    for (size_t i = 0; i < table.places; i++) {
        const struct block *block = &table.blocks[i];
        if (!block->live)
            continue;
        printf("block\t%" PRIx64 "\t%" PRIu64 "\t%u\n", block->address, block->size, block->stack);
        if (block->stack <= stacks)
            has_blocks[block->stack] = true;
    }
    for (uint32_t number = 1; number <= stacks; number++)
        if (has_blocks[number])
            print_stack(trace, number, "stack\t");
    fputs(trace_text(trace), stdout);
    free(has_blocks);
    free(table.blocks);
    free(resized.of);
}

int main(int count, char **arguments)
{
    const char *what = count >= 3 ? arguments[1] : "";
    bool counted = count == 4 && strcmp(what, "events") == 0;
    char *end = NULL;
    uint64_t most = counted ? strtoull(arguments[3], &end, 10) : UINT64_MAX;
    static const char *const modes[] = {"summary", "events", "stacks", "text", "columns", "live"};
    unsigned mode = 0;
    while (mode < 6 && strcmp(what, modes[mode]) != 0)
        mode++;
    if (mode == 6 || (count != 3 && !counted) || (end && *end != '\0')) {
        fputs("usage: cairn-trace summary|events|stacks|text|columns|live FILE [COUNT]\n", stderr);
        return 2;
    }
    char *error;
    struct trace *trace = trace_open(arguments[2], &error);
    if (trace == NULL) {
        fprintf(stderr, "%s\n", error);
        free(error);
        return 2;
    }
    if (mode == 0)
        summarise(trace);
    else if (mode == 1)
        print_events(trace, most);
    else if (mode == 2)
        print_stacks(trace);
    else if (mode == 4)
        error = trace_pack(trace, stdout);
    else if (mode == 5)
        print_live(trace);
    else {
        read_all(trace);
        fputs(trace_text(trace), stdout);
    }
    if (mode == 4 && error)
        fprintf(stderr, "cannot copy %s: %s\n", arguments[2], error);
    const char *damage = trace_error(trace);
    if (damage)
        fprintf(stderr, "%s is damaged: %s\n", arguments[2], damage);
    int status = damage || error || fflush(stdout) != 0 ? 2 : 0;
    trace_close(trace);
    return status;
}
