// cairn-trace: what a trace holds, for `cairn trace show`.
//
//   cairn-trace summary FILE          lines of name=value
//   cairn-trace events FILE [COUNT]   a line an event, tabs between; the first COUNT
//   cairn-trace stacks FILE           a line a stack: number, then frames, innermost first
//   cairn-trace text FILE             the lines of text
//   cairn-trace columns FILE          the trace in its second form, for a compressor
//
// Exit status: 0, or 2 with a sentence on stderr; of a damaged file after what could be read;
// in its second form that is of no use.
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

static void print_stacks(struct trace *trace)
{
    read_all(trace);
    for (uint32_t number = 1; number <= trace_stack_count(trace); number++) {
        uint64_t frames[TRACE_DEPTH];
        bool cut;
        unsigned depth = trace_stack(trace, number, frames, &cut);
        if (depth == 0)
            continue;
        printf("%u", number);
        for (unsigned i = 0; i < depth; i++)
            printf("\t%" PRIx64, frames[i]);
        puts(cut ? "\t..." : "");
    }
}

int main(int count, char **arguments)
{
    const char *what = count >= 3 ? arguments[1] : "";
    bool counted = count == 4 && strcmp(what, "events") == 0;
    char *end = NULL;
    uint64_t most = counted ? strtoull(arguments[3], &end, 10) : UINT64_MAX;
    static const char *const modes[] = {"summary", "events", "stacks", "text", "columns"};
    unsigned mode = 0;
    while (mode < 5 && strcmp(what, modes[mode]) != 0)
        mode++;
    if (mode == 5 || (count != 3 && !counted) || (end && *end != '\0')) {
        fputs("usage: cairn-trace summary|events|stacks|text|columns FILE [COUNT]\n", stderr);
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
    else {
        read_all(trace);
        fputs(trace_text(trace), stdout);
    }
    if (mode == 4 && error)
        fprintf(stderr, "%s cannot be copied: %s\n", arguments[2], error);
    const char *damage = trace_error(trace);
    if (damage)
        fprintf(stderr, "%s is damaged: %s\n", arguments[2], damage);
    int status = damage || error || fflush(stdout) != 0 ? 2 : 0;
    trace_close(trace);
    return status;
}
